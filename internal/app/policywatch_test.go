package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

const (
	policyOne = "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: one}\nspec: {retryLimit: 1}\n"
	queueOfIt = "kind: Queue\nname: ml\nretryPolicies: [one]\n"
)

// files are policy files that are watched, with a clock of their own.
type files struct {
	*testing.T
	dir    string
	at     time.Time
	watch  *policyWatch
	log    strings.Builder
	reason string
	set    *policyfile.Set // that is refused
}

func watchFiles(t *testing.T) *files {
	t.Helper()
	f := &files{T: t, dir: t.TempDir(), at: time.Now()}
	logs, err := Dir(filepath.Join(t.TempDir(), "data")).OpenLogs(1, Access{Events: true, Decisions: true, Policies: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = logs.Close() })
	store, err := policylog.OpenStore(logs.Backend().Policies, logs.Backend().AppendPolicies, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	f.watch = &policyWatch{
		path: f.dir, settle: 5 * time.Second, store: store, log: slog.New(slog.NewTextHandler(&f.log, nil)),
		now:     func() time.Time { return f.at },
		refused: func(reason string, set *policyfile.Set) { f.reason, f.set = reason, set },
	}
	return f
}

func (f *files) write(name, text string) {
	f.Helper()
	path := filepath.Join(f.dir, name)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o644), os.Chtimes(path, f.at, f.at), os.Chtimes(f.dir, f.at, f.at)); err != nil {
		f.Fatal(err)
	}
}

// copy overwrites a file in place and keeps all times, as `rsync --inplace -t` does.
func (f *files) copy(name, text string) {
	f.Helper()
	path, old := filepath.Join(f.dir, name), time.Unix(1, 0)
	for _, other := range []string{f.dir, filepath.Join(f.dir, "one.yaml")} {
		if err := os.Chtimes(other, old, old); err != nil {
			f.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o644), os.Chtimes(path, old, old)); err != nil {
		f.Fatal(err)
	}
}

func (f *files) remove(name string) {
	f.Helper()
	if err := errors.Join(os.Remove(filepath.Join(f.dir, name)), os.Chtimes(f.dir, f.at, f.at)); err != nil {
		f.Fatal(err)
	}
}

// after looks at the files some time later, and returns the generation in force.
func (f *files) after(d time.Duration) uint64 {
	f.Helper()
	for end := f.at.Add(d); f.at.Before(end); {
		f.at = f.at.Add(min(end.Sub(f.at), max(100*time.Millisecond, d/100))) // a look is what notices a change
		if err := f.watch.step(f.Context()); err != nil {
			f.log.WriteString(err.Error())
		}
	}
	newest, err := f.watch.store.Newest(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return newest.Generation()
}

// Files are read when they have settled, and only when they changed.
func TestPolicyFilesSettle(t *testing.T) {
	t.Parallel()
	f := watchFiles(t)
	f.write("one.yaml", policyOne)
	for _, c := range []struct {
		what string
		do   func()
		wait time.Duration
		want uint64
	}{
		{"just written", func() {}, time.Second, 0},
		{"written again", func() { f.write("one.yaml", policyOne+"# more\n") }, 4900 * time.Millisecond, 0},
		{"settled", func() {}, 300 * time.Millisecond, 1},
		{"unchanged", func() {}, time.Hour, 1},
		{"a queue is added", func() { f.write("queue.yaml", queueOfIt) }, time.Second, 1},
		{"that settled too", func() {}, 5 * time.Second, 2},
		{"copied with its time", func() { f.copy("queue.yaml", queueOfIt+"---\n"+strings.Replace(queueOfIt, "ml", "other", 1)) }, 4 * time.Second, 2},
		{"the copy settled", func() {}, 2 * time.Second, 3},
		{"a queue and, a moment later, another program's file", func() { f.write("more.yaml", strings.Replace(queueOfIt, "ml", "third", 1)) }, 4 * time.Second, 3},
		{"which changes nothing", func() { f.write("readme.txt", "x") }, 2 * time.Second, 4},
	} {
		c.do()
		if got := f.after(c.wait); got != c.want {
			t.Errorf("%s: generation %d, want %d\n%s", c.what, got, c.want, f.log.String())
		}
	}
	// What did not change is not read again: this change does not show.
	path, at := f.watch.seen.names[1], f.watch.seen.infos[1].ModTime()
	other := strings.Replace(policyOne, "retryLimit: 1", "retryLimit: 2", 1) + "# more\n"
	if err := errors.Join(os.WriteFile(path, []byte(other), 0o644), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
	if got := f.after(2 * time.Hour); got != 4 {
		t.Errorf("unchanged files were read again: generation %d", got)
	}
}

// TestPolicyFilesThatTakeAway checks that files that remove policies are refused until an operator confirms it.
func TestPolicyFilesThatTakeAway(t *testing.T) {
	t.Parallel()
	f := watchFiles(t)
	f.write("one.yaml", policyOne)
	f.write("queue.yaml", queueOfIt)
	if got := f.after(10 * time.Second); got != 1 || f.reason != "" {
		t.Fatalf("generation %d, %q", got, f.reason)
	}
	f.write("settings.yaml", "kind: RetrySettings\nspec: {defaultPolicyName: one}\n")
	f.remove("one.yaml") // it is half copied
	f.write("two.yaml", strings.ReplaceAll(policyOne, "one", "two"))
	for range 3 {
		if got := f.after(10 * time.Second); got != 1 || f.reason != "takes_away" {
			t.Errorf("without the policy of a queue: generation %d, %q", got, f.reason)
		}
	}
	if n := strings.Count(f.log.String(), "level=WARN"); n != 1 || !strings.Contains(f.log.String(), "names policy one, which is not there") {
		t.Errorf("%d warnings: %s", n, f.log.String())
	}
	for _, name := range []string{"two.yaml", "queue.yaml", "settings.yaml"} {
		f.remove(name)
	}
	if got := f.after(10 * time.Second); got != 1 || f.reason != "takes_away" || !strings.Contains(f.log.String(), "no policy is left") {
		t.Errorf("without any policy: generation %d, %q, %s", got, f.reason, f.log.String())
	}
	// What comes back is in force again, and nothing is refused.
	f.write("one.yaml", policyOne)
	if got := f.after(10 * time.Second); got != 2 || f.reason != "" {
		t.Errorf("complete again: generation %d, %q", got, f.reason)
	}
	// Somebody confirms that there is none: the files are not refused any more.
	f.remove("one.yaml")
	if f.after(10 * time.Second); f.set == nil || f.set.HasPolicies() {
		t.Fatal("no set waits to be confirmed")
	}
	if _, err := PublishPolicies(t.Context(), f.watch.store, f.set, "confirmed", true); err != nil {
		t.Fatal(err)
	}
	if got := f.after(time.Second); got != 3 || f.reason != "" {
		t.Errorf("confirmed: generation %d, %q", got, f.reason)
	}
}

// A process that starts on files that take policies away keeps those that it had; one
// that has none does not start.
func TestPolicyFilesAtTheStart(t *testing.T) {
	t.Parallel()
	f := watchFiles(t)
	f.watch.settle = 0
	f.write("queue.yaml", queueOfIt)
	if err := f.watch.begin(t.Context()); !errors.Is(err, errTakesAway) {
		t.Errorf("a queue without its policy: %v", err)
	}
	f.write("one.yaml", policyOne)
	if err := f.watch.begin(t.Context()); err != nil {
		t.Error(err)
	}
	f.remove("one.yaml")
	if err := f.watch.begin(t.Context()); err != nil || f.reason != "takes_away" {
		t.Errorf("with an earlier generation: %v, %q", err, f.reason)
	}
	// Who waits for the files to settle can be ended.
	f.watch.settle, f.watch.seen = time.Hour, fileList{}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.watch.begin(ctx) }()
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A named pipe among the files is an error, and reading one can be ended.
func TestNamedPipe(t *testing.T) {
	t.Parallel()
	f := watchFiles(t)
	f.write("one.yaml", policyOne)
	pipe := filepath.Join(f.dir, "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Skipf("no named pipes here: %v", err)
	}
	if got := f.after(10 * time.Second); got != 0 || !strings.Contains(f.log.String(), "pipe.yaml: it is no regular file, but a named pipe") {
		t.Errorf("generation %d: %s", got, f.log.String())
	}
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	if got := f.after(10 * time.Second); got != 1 {
		t.Errorf("without the pipe: generation %d, %s", got, f.log.String())
	}
	// A link to a file is a file.
	target := filepath.Join(t.TempDir(), "target")
	if err := errors.Join(os.WriteFile(target, []byte(queueOfIt), 0o644), os.Symlink(target, filepath.Join(f.dir, "queue.yaml"))); err != nil {
		t.Fatal(err)
	}
	if got := f.after(10 * time.Second); got != 2 {
		t.Errorf("with a link: generation %d, %s", got, f.log.String())
	}
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := ReadPolicies(ctx, pipe); done <- err }()
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("reading a pipe: %v", err)
	}
}
