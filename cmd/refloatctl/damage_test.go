package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/app"
)

// inProcess runs a command in this process, which is quicker than a program.
func inProcess(t *testing.T, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&err)
	r := result{args: args}
	if e := cmd.ExecuteContext(t.Context()); e != nil {
		if r.code = exitEnvironment; errors.Is(e, errFinding) {
			r.code = exitFinding
		}
		fmt.Fprintf(&err, "refloatctl: %v\n", e)
	}
	r.out, r.err = out.String(), err.String()
	return r
}

const damageFeed = "../../testdata/recordings/preempted.jsonl.gz"

func upDrained(t *testing.T, data string) result {
	t.Helper()
	return inProcess(t, "up", "--data", data, "--policies", "../../examples/policies", "--feed", damageFeed, "--exit-when-drained", "--quiet")
}

// inspect are the commands that only read, with what they print.
func inspect(t *testing.T, data, job string) []result {
	t.Helper()
	all := []result{
		inProcess(t, "get", "jobs", "--data", data, "-o", "json"),
		inProcess(t, "get", "decisions", "--data", data, "-o", "json"),
		inProcess(t, "verify", "--data", data),
	}
	if job != "" {
		explained := inProcess(t, "explain", job, "--data", data)
		explained.out = withoutChange(explained.out) // the policies of two directories were written at two times
		all = append(all, explained, inProcess(t, "get", "job", job, "--data", data, "-o", "json"))
	}
	return all
}

// damageKind is the sort of a file, so that each is damaged as often as others.
func damageKind(path string) string {
	name := filepath.Base(path)
	for _, k := range []struct{ pattern, kind string }{
		{`\.seg$`, filepath.Base(filepath.Dir(filepath.Dir(path))) + " segment"},
		{`\.sst$`, "table"},
		{`^\d+\.log$`, "state's log"},
		{`^MANIFEST`, "manifest"},
		{`^OPTIONS`, "options"},
		{`^marker`, ""},
	} {
		if regexp.MustCompile(k.pattern).MatchString(name) {
			return cmp.Or(k.kind, name)
		}
	}
	return name
}

// silent is a logger that logs nothing.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) { panic("the state store cannot go on") }

// damageBase is a data directory that is whole.
type damageBase struct {
	dir     string
	job     string   // one that was decided
	inspect []result // of it
	kinds   map[string][]string
}

func newDamageBase(t *testing.T, dir string) *damageBase {
	t.Helper()
	b := &damageBase{dir: dir, kinds: map[string][]string{}}
	probe := copyOf(t, dir)
	decided := inProcess(t, "get", "decisions", "--data", probe, "-o", "json").exits(t, 0).out
	if m := regexp.MustCompile(`"jobId":"([^"]*)"`).FindStringSubmatch(decided); m != nil {
		b.job = m[1]
	}
	for _, r := range inspect(t, probe, b.job) {
		b.inspect = append(b.inspect, r.exits(t, 0))
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if info, ierr := d.Info(); err == nil && ierr == nil && info.Mode().IsRegular() && info.Size() > 0 {
			rel, _ := filepath.Rel(dir, path)
			b.kinds[damageKind(path)] = append(b.kinds[damageKind(path)], rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to, err := os.MkdirTemp(scratch, "damage")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(to) })
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// damage changes a file in one of the ways that disks do.
func damage(t *testing.T, random *rand.Rand, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	what, at := "", random.IntN(len(b))
	switch random.IntN(4) {
	case 0:
		what, b = fmt.Sprintf("cut at %d of %d", at, len(b)), b[:at]
	case 1:
		at = at / 4096 * 4096
		what, b = fmt.Sprintf("cut at %d of %d", at, len(b)), b[:at]
	default:
		bit := random.IntN(8)
		if random.IntN(3) == 0 {
			at = random.IntN(min(len(b), 128)) // a header
		}
		what = fmt.Sprintf("bit %d of byte %d of %d flipped", bit, at, len(b))
		b[at] ^= 1 << bit
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return what
}

// TestDamagedDirectory: whatever is damaged in a data directory, no command gives
// another answer than before without an error, and `up` ends with the decisions
// and rows that it would have had, or with an error. Damage in state and job
// database never stops it. DAMAGES says how often each sort of file is damaged.
func TestDamagedDirectory(t *testing.T) {
	t.Parallel()
	each, err := strconv.Atoi(cmp.Or(os.Getenv("DAMAGES"), "5"))
	if err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(t.TempDir(), "closed")
	upDrained(t, closed).exits(t, 0)
	final := newDamageBase(t, closed)
	if final.job == "" {
		t.Fatal("nothing was decided")
	}
	killed := filepath.Join(t.TempDir(), "killed")
	p := start(t, "up", "--data", killed, "--policies", "../../examples/policies", "--feed", damageFeed, "--api", "")
	until(t, "rows of all decisions", func() bool {
		return inProcess(t, "get", "decisions", "--data", killed, "-o", "json").out == final.inspect[1].out
	})
	p.kill()
	flushed := copyOf(t, closed)
	for p := range 3 {
		db, err := pebble.Open(app.Dir(flushed).State(p), &pebble.Options{FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
		if err == nil {
			err = errors.Join(db.Flush(), db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, base := range map[string]*damageBase{"closed": final, "killed": newDamageBase(t, killed), "flushed": newDamageBase(t, flushed)} {
		for kind, paths := range base.kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(1, uint64(len(kind))))
				for range each {
					damageOnce(t, random, base, final, paths[random.IntN(len(paths))])
				}
			})
		}
	}
}

func damageOnce(t *testing.T, random *rand.Rand, base, final *damageBase, path string) {
	t.Helper()
	data := copyOf(t, base.dir)
	defer os.RemoveAll(data)
	what := path + ": " + damage(t, random, filepath.Join(data, path))
	compare := func(when string, got, want []result) {
		t.Helper()
		for i, r := range got {
			if r.code == 0 && r.out != want[i].out {
				t.Errorf("%s: %s, %q gives another answer and no error (-before +after):\n%.1500s", what, when, strings.Join(r.args[:2], " "), gocmp.Diff(want[i].out, r.out))
			}
			if r.code != 0 && r.err+r.out == "" {
				t.Errorf("%s: %s, %q ends with %d and says nothing", what, when, r.args[0], r.code)
			}
		}
	}
	compare("as it is", inspect(t, data, base.job), base.inspect)
	up := upDrained(t, data)
	if lines := strings.Count(up.err, "\n"); lines > 12 || len(up.err) > 6000 {
		t.Errorf("%s: up says %d lines, %d bytes:\n%.6000s", what, lines, len(up.err), up.err)
	}
	after := inspect(t, data, final.job)
	if up.code != 0 {
		if isFold := strings.HasPrefix(path, "state") || strings.HasPrefix(path, "jobs.sqlite"); isFold {
			t.Errorf("%s: up ends with %d, though the logs are whole:\n%s", what, up.code, up.err)
		}
		compare("after an up that failed", after, base.inspect)
		return
	}
	want := slices.Clone(final.inspect)
	for i, r := range after {
		if r.args[0] == "verify" { // it counts claims, too
			want[i].out = r.out
		}
		if noticed := strings.Contains(r.err+r.out, "corrupt") || strings.Contains(r.err, "damaged"); r.code != 0 && !noticed {
			t.Errorf("%s: after up, %q ends with %d: %s%s", what, strings.Join(r.args[:2], " "), r.code, r.err, r.out)
		}
	}
	compare("after up", after, want)
}
