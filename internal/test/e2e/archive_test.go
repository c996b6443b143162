package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestArchive: decisions and events are archived while everything runs, deleted by the broker, and verified
// from the archive. Evaluators with a state or a checkpoint go on, and so does the archive; one that has
// neither is refused, as is an archive of what is gone.
func TestArchive(t *testing.T) {
	w := newWorld(t, 3)
	a := w.evaluator("a")
	w.ingester("one")
	w.feed("plain")
	w.settledAndRight()
	dir := filepath.Join(t.TempDir(), "archive")
	ok := func(args ...string) string {
		t.Helper()
		out, err := w.Ctl(w.ctx, args...)
		w.must(err)
		return out
	}
	says := func(out string, want ...string) {
		t.Helper()
		for _, s := range want {
			if !strings.Contains(out, s) {
				t.Errorf("it does not say %q:\n%s", s, out)
			}
		}
	}
	whole := func() {
		t.Helper()
		out, err := w.alone("archive", "verify", dir)
		if err != nil || !strings.Contains(out, "is whole, and deciding it again gives the same decisions") {
			t.Fatalf("archive verify: %v\n%s", err, out)
		}
	}
	says(ok("archive", "create", dir), "SHA-256 of ")
	whole()
	before := ok("replay", "--verify", "--allow-waiting")

	// Every partition has a checkpoint of what is archived.
	w.until("every partition has a checkpoint", func() bool {
		found, _ := filepath.Glob(filepath.Join(w.Checkpoints(), "*", "*"))
		return len(found) >= 3 && w.scrape(a).Sum("refloat_checkpoint_timestamp_seconds") > 0
	})
	says(ok("topics", "create", "--retain-decisions", "1d"), "did    retain persistent://", "for 1 d")
	says(ok("doctor", "--archive", dir), "ok    RD020", "is retained for 1 d, and what is older is in "+dir)
	out, err := w.Ctl(w.ctx, "doctor")
	if err == nil {
		t.Errorf("doctor without the archive found nothing:\n%s", out)
	}
	says(out, "error RD020", "no archive is known", "--archive DIR")

	// The broker deletes what retention no longer holds: here, all that was written so far.
	for p := range 3 {
		w.truncate(fmt.Sprintf("decisions-partition-%d", p))
		w.truncate(fmt.Sprintf("events-partition-%d", p))
	}
	w.feed("chaos")
	w.must(Within(w.ctx, time.Minute, w.Settled))
	out, err = w.Ctl(w.ctx, "replay", "--verify", "--allow-waiting")
	if exitCode(err) == 0 {
		t.Errorf("the topics alone were verified:\n%s", out)
	}
	after := ok("replay", "--verify", "--allow-waiting", "--archive", dir)
	says(after, "byte for byte")
	if before == after {
		t.Error("nothing came after the archive")
	}
	says(ok("archive", "create", dir), "SHA-256 of ")
	whole()
	job := w.oneDecided()
	says(ok("explain", job, "--job-db", "sqlite://"+w.Database()), "Rules, in order")

	// What is gone cannot be archived any more by somebody who begins now.
	out, err = w.Ctl(w.ctx, "archive", "create", filepath.Join(t.TempDir(), "late"))
	if err == nil {
		t.Errorf("an archive without a beginning:\n%s", out)
	}
	says(out, "deleted before they were archived")

	// Nothing but the topics: refused. The state or a checkpoint: it goes on.
	a.Kill()
	b := w.evaluator("b")
	w.live(3, b)
	b.Kill()
	w.must(os.RemoveAll(w.Checkpoints()))
	w.must(os.MkdirAll(w.Checkpoints(), 0o755))
	c := w.evaluator("c")
	w.until("all partitions are refused", func() bool { return w.scrape(c).Sum("refloat_refused") == 3 })
	t.Log(lastWith(c.Text(), "partition refused"))
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
