package app_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/sink"
)

const policies = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: all}
spec: {defaultAction: Retry, retryLimit: 2, backoff: {initialDelay: 5s}, rules: []}
---
kind: RetrySettings
spec: {defaultPolicyName: all}
`

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// quiet fails the test on anything that is worth a warning.
func quiet(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(complaints{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type complaints struct{ t *testing.T }

func (c complaints) Write(b []byte) (int, error) {
	c.t.Errorf("logged: %s", b)
	return len(b), nil
}

// follows checks that everything in the logs is decided, that the decisions
// follow from the events, and that the rows follow from both.
func follows(t *testing.T, dir app.Dir) (decisions uint64) {
	t.Helper()
	return followsIn(t, dir, dir.JobDBURL())
}

func followsIn(t *testing.T, dir app.Dir, jobDB string) (decisions uint64) {
	t.Helper()
	logs, err := dir.OpenLogs(0, app.Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	db, err := app.ReadJobDB(t.Context(), jobDB)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for p := range logs.Events.Partitions() {
		v, err := audit.Verify(t.Context(), logs.Audit(), p)
		if err != nil || v.Waiting > 0 {
			t.Fatalf("Verify = %+v, %v", v, err)
		}
		decisions += v.Progress.Decisions
		var got *jobdb.Contents
		if err := db.View(t.Context(), func(q jobdb.Queries) error { got, err = q.Contents(p); return err }); err != nil {
			t.Fatal(err)
		}
		end, err := logs.Events.End(p)
		if err != nil || got.Positions.Chain.InTo != end {
			t.Errorf("partition %d: the rows answer up to %v, the events end at %v (%v)", p, got.Positions.Chain.InTo, end, err)
		}
		if end == eventlog.Start {
			continue
		}
		want, err := sink.Fold(logs.Events, logs.Decisions, p, got.Positions.Chain.Seq)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range sink.Compare(want, got) {
			t.Errorf("partition %d: %v", p, d)
		}
	}
	return decisions
}

// TestApart: evaluator and ingester in nodes of their own, at the same time on
// one directory, do what one node does.
func TestApart(t *testing.T) {
	t.Parallel()
	file := writeFile(t, t.TempDir(), "policies.yaml", policies)
	together := app.Dir(filepath.Join(t.TempDir(), "together"))
	base := app.Config{Policies: file, Log: quiet(t), Now: time.Now}
	c := base
	c.Data, c.Feeds, c.Evaluate, c.Ingest, c.ExitWhenDrained = together, []string{recordingFile("chaos"), recordingFile("preempted")}, true, true, true
	var last app.Status
	c.Progress = func(s app.Status) { last = s }
	if err := app.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	want := follows(t, together)
	if want == 0 || last.Fed != 918 || last.Total != 918 {
		t.Errorf("%d decisions, %+v", want, last)
	}

	apart := app.Dir(filepath.Join(t.TempDir(), "apart"))
	for _, f := range c.Feeds {
		if written, total, err := app.Import(t.Context(), f, apart.Events(), 3, func(int, int) {}); err != nil || written != total {
			t.Fatalf("Import = %d, %d, %v", written, total, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	evaluator := base
	evaluator.Data, evaluator.Evaluate = apart, true
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, evaluator) }()
	ingester := app.Config{Data: apart, Ingest: true, ExitWhenDrained: true, Log: quiet(t), Now: time.Now}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := app.Run(t.Context(), ingester)
		if err == nil {
			break
		}
		if !errors.Is(err, app.ErrNoData) && !errors.Is(err, os.ErrNotExist) { // the evaluator makes the logs in a moment
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("the evaluator ended: %v", err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := follows(t, apart); got != want {
		t.Errorf("%d decisions, want %d", got, want)
	}
}

// TestOpenLogs: what is wrong with a directory is said.
func TestOpenLogs(t *testing.T) {
	t.Parallel()
	all := app.Access{Events: true, Decisions: true, Policies: true}
	dir := app.Dir(filepath.Join(t.TempDir(), "data"))
	if _, err := dir.OpenLogs(3, app.Access{}); !errors.Is(err, app.ErrNoData) {
		t.Errorf("to read what is not there: %v", err)
	}
	if _, err := os.Stat(string(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading made something: %v", err)
	}
	logs, err := dir.OpenLogs(3, all)
	if err != nil {
		t.Fatal(err)
	}
	if e, d, p := logs.Events.Partitions(), logs.Decisions.Partitions(), logs.Policies.Partitions(); e != 3 || d != 3 || p != 1 {
		t.Errorf("%d, %d, %d partitions", e, d, p)
	}
	if _, err := dir.OpenLogs(3, all); !errors.Is(err, eventlog.ErrLocked) {
		t.Errorf("a second writer: %v", err)
	}
	reading, err := dir.OpenLogs(0, app.Access{})
	if err != nil {
		t.Errorf("a reader beside the writer: %v", err)
	} else if err := reading.Close(); err != nil {
		t.Error(err)
	}
	if err := logs.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir.Decisions()); err != nil {
		t.Fatal(err)
	}
	// A log that is made anew has as many partitions as the events.
	if logs, err = dir.OpenLogs(2, all); err != nil || logs.Decisions.Partitions() != 3 {
		t.Fatalf("decisions made anew: %v", err)
	}
	if err := errors.Join(logs.Close(), os.RemoveAll(dir.Decisions())); err != nil {
		t.Fatal(err)
	}
	two, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir.Decisions(), Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first attempt holds on to nothing
		if _, err := dir.OpenLogs(2, all); err == nil || !strings.Contains(err.Error(), "they must be equal") {
			t.Errorf("partitions that differ: %v", err)
		}
	}
}

// TestPublishPolicies: a generation is published when the content changes, and
// never goes back.
func TestPublishPolicies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logs, err := app.Dir(filepath.Join(dir, "data")).OpenLogs(1, app.Access{Events: true, Decisions: true, Policies: true})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	store, err := policylog.OpenStore(logs.Backend().Policies, logs.Backend().AppendPolicies, func() time.Time { return time.Unix(0, 0) })
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	other := strings.Replace(policies, "retryLimit: 2", "retryLimit: 3", 1)
	for i, c := range []struct {
		text string
		want uint64
	}{{policies, 1}, {policies, 1}, {"# a comment\n" + policies, 1}, {other, 2}, {policies, 3}, {policies, 3}} {
		set, err := app.ReadPolicies(t.Context(), writeFile(t, dir, "p.yaml", c.text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := app.PublishPolicies(t.Context(), store, set, "test", false); got != c.want || err != nil {
			t.Errorf("%d: PublishPolicies = %d, %v; want %d", i, got, err, c.want)
		}
	}
	if n := len(readAll(t, logs.Policies, 0)); n != 3 {
		t.Errorf("%d messages in the policies log", n)
	}
}

func TestPolicyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := writeFile(t, dir, "one.yaml", policies)
	writeFile(t, dir, "more/two.yml", "kind: Queue\nname: q\nretryPolicies: [all]\n")
	writeFile(t, dir, "more/readme.txt", "not a policy")
	files, err := app.PolicyFiles(t.Context(), one, filepath.Join(dir, "more"))
	if err != nil || len(files) != 2 || files[0].Name != one || files[1].Name != filepath.Join(dir, "more", "two.yml") {
		t.Errorf("PolicyFiles = %v, %v", files, err)
	}
	if _, err := app.PolicyFiles(t.Context(), filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	bad := writeFile(t, dir, "bad.yaml", "kind: Queue\nname: 7\n")
	_, err = app.ReadPolicies(t.Context(), bad)
	var problems policyfile.Problems
	if !errors.As(err, &problems) || !strings.Contains(err.Error(), bad+":2:7") {
		t.Errorf("a mistake: %v", err)
	}
}

// TestMetrics: what a node serves before and after it has taken up its work.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := app.NewMetrics(time.Now, 10)
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return w.Code, w.Body.String()
	}
	if code, _ := get("/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
	if code, body := get("/readyz"); code != 503 || body != "not yet\n" {
		t.Errorf("/readyz before the work: %d %q", code, body)
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "refloat_policy_generations_unusable_total 0") {
		t.Errorf("/metrics: %d\n%s", code, body)
	}
}

// TestEndedBefore: a node whose context ends at once ends cleanly, at any moment.
func TestEndedBefore(t *testing.T) {
	t.Parallel()
	file := writeFile(t, t.TempDir(), "policies.yaml", policies)
	dir := app.Dir(filepath.Join(t.TempDir(), "data"))
	c := app.Config{Data: dir, Policies: file, Feeds: []string{recordingFile("preempted")}, Evaluate: true, Ingest: true, Log: quiet(t), Now: time.Now}
	for _, after := range []time.Duration{0, time.Microsecond, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(after, cancel)
		if after == 0 {
			cancel()
		}
		if err := app.Run(ctx, c); err != nil {
			t.Errorf("ended after %v: %v", after, err)
		}
	}
	c.ExitWhenDrained = true
	if err := app.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	follows(t, dir)
}
