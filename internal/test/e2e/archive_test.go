package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestArchive: decisions and events are archived while everything runs, deleted by the broker, and verified
// from the archive. The programs go on, and so does the archive; an evaluator without state and checkpoint
// is refused, as is an archive of what is gone.
func TestArchive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.evaluator("a")
	w.ingester("one")
	w.live(1, a)
	w.feedOne("c0001")
	w.must(w.Settled(w.ctx))
	logs, err := w.Open()
	w.must(err)
	defer logs.Close()
	dir := filepath.Join(t.TempDir(), "archive")
	ok := func(want string, args ...string) string {
		t.Helper()
		out, err := w.Ctl(w.ctx, args...)
		w.must(err)
		if !strings.Contains(out, want) {
			t.Errorf("%v does not say %q:\n%s", args, want, out)
		}
		return out
	}
	refused := func(want string, args ...string) {
		t.Helper()
		out, err := w.Ctl(w.ctx, args...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v, and it does not say %q:\n%s", args, err, want, out)
		}
	}
	whole := func() {
		t.Helper()
		out, err := w.alone("archive", "verify", dir)
		if err != nil || !strings.Contains(out, "is whole, and deciding it again gives the same decisions") {
			t.Fatalf("archive verify: %v\n%s", err, out)
		}
	}
	ok("SHA-256 of ", "archive", "create", dir)
	whole()
	archived, err := logs.Decisions.End(0)
	w.must(err)

	ok("did    retain persistent://", "topics", "create", "--retain-decisions", "1d")
	ok("is retained for 1 d, and what is older is in "+dir, "doctor", "--archive", dir)
	refused("no archive is known", "doctor")

	// A day passes, and then the broker deletes what no subscription needs.
	for _, name := range []string{"decisions", "events"} {
		w.admin(http.MethodPost, w.path(name)+"/retention", `{"retentionTimeInMinutes":0,"retentionSizeInMB":0}`)
		w.must(w.broker.Unload(w.Topic(name + "-partition-0")))
	}
	w.until("archived decisions are deleted", func() bool {
		w.nudge()
		for _, name := range []string{"decisions", "events"} {
			w.admin(http.MethodPost, w.path(name+"-partition-0")+"/trim", "")
		}
		at, err := logs.Decisions.Beginning(0)
		w.must(err)
		return at.Compare(archived) > 0
	})
	w.must(w.Settled(w.ctx))
	refused("log no longer holds this position", "verify", "--allow-waiting")
	ok("byte for byte", "verify", "--allow-waiting", "--archive", dir)
	db := "sqlite://" + w.Database()
	ok(": equal", "jobdb", "verify", "--job-db", db, "--archive", dir)
	ok("Rules, in order", "explain", w.oneDecided(), "--job-db", db)
	ok("SHA-256 of ", "archive", "create", dir)
	whole()
	refused("were deleted before they were archived", "archive", "create", filepath.Join(t.TempDir(), "late"))

	// The state is enough to go on; nothing at all is not.
	w.must(a.Term(w.ctx))
	a = w.evaluator("a")
	w.live(1, a)
	w.must(a.Term(w.ctx))
	w.must(errors.Join(os.RemoveAll(w.Data("a")), os.RemoveAll(w.Checkpoints()), os.MkdirAll(w.Checkpoints(), 0o755)))
	a = w.evaluator("a")
	w.until("it is refused", func() bool { return w.scrape(a).Sum("refloat_refused") == 1 })
	t.Log(lastWith(a.Text(), "partition refused"))
}

// oneDecided is a job with a decision by a rule.
func (w *world) oneDecided() string {
	w.t.Helper()
	out, err := w.alone("get", "decisions", "--job-db", "sqlite://"+w.Database(), "-o", "json")
	w.must(err)
	for line := range strings.Lines(out) {
		var d struct{ JobID, Code string }
		if json.Unmarshal([]byte(line), &d) == nil && d.Code == "RuleRetry" {
			return d.JobID
		}
	}
	w.t.Fatal("no decision by a rule")
	return ""
}
