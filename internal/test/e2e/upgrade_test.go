package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/sink"
)

// older builds the programs of the commit UPGRADE_FROM, and returns its policies too.
func older(t *testing.T) (p Programs, policies string) {
	t.Helper()
	commit := os.Getenv("UPGRADE_FROM")
	if commit == "" {
		t.Skip("make upgrade runs this, with the commit to upgrade from in UPGRADE_FROM")
	}
	tree, bin := filepath.Join(t.TempDir(), "tree"), t.TempDir()
	run := func(dir, name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	run(".", "git", "worktree", "add", "--detach", tree, commit)
	t.Cleanup(func() { run(".", "git", "worktree", "remove", "--force", tree) })
	run(tree, "go", "build", "-o", bin+string(filepath.Separator), "./cmd/evaluator", "./cmd/ingester", "./cmd/refloatctl")
	in := func(name string) string { return filepath.Join(bin, name) }
	return Programs{Evaluator: in("evaluator"), Ingester: in("ingester"), Ctl: in("refloatctl")}, filepath.Join(tree, "examples", "policies")
}

// corrected are rows that the old ingester writes otherwise: it took the annotation index from a gang that names no group, and did
// not keep what a job requests, and of what it is a retry.
func corrected(d sink.Difference) bool {
	switch d.Table + " " + d.Field {
	case "jobs Member.Index":
		return true
	case "units Taken":
		return strings.HasSuffix(d.Key, "/0/main")
	case "jobs Submit.Requests", "jobs Retry":
		return d.Got == "none"
	}
	return false
}

// TestUpgrade follows operate.md under load: programs of two versions share the partitions, in any order, and a program
// that was upgraded is downgraded again.
func TestUpgrade(t *testing.T) {
	programs, policies := older(t)
	w := newWorld(t, 6)
	w.Policies, w.Corrected = policies, corrected
	newer := w.Programs
	of := func(p Programs, start func() *Process) *Process {
		w.Programs = p
		return start()
	}
	evaluator := func(p Programs, name string) *Process { return of(p, func() *Process { return w.evaluator(name) }) }
	ingester := func(p Programs, name string) *Process { return of(p, func() *Process { return w.ingester(name) }) }
	a, b := evaluator(programs, "a"), evaluator(programs, "b")
	one, two := ingester(programs, "one"), ingester(programs, "two")
	w.live(6, a, b)
	l := newLoad(w, 60)
	began := time.Now()
	shared := func(what string) { // both evaluators decide, and what they decide reaches the job database
		t.Helper()
		w.live(6, a, b)
		for _, p := range []*Process{a, b} {
			before := w.scrape(p).Sum("refloat_answered_messages_total")
			w.until(what+": "+p.Name+" decides", func() bool { return w.scrape(p).Sum("refloat_answered_messages_total") > before })
		}
	}
	shared("both old")
	for _, p := range []*Process{one, two} { // of a SQLite file, none may go on beside a newer one
		w.must(p.Term(w.ctx))
	}
	one = ingester(newer, "one")
	w.must(a.Term(w.ctx))
	a = evaluator(newer, "a")
	shared("one of each")
	w.must(a.Term(w.ctx))
	a = evaluator(programs, "a")
	shared("downgraded")
	w.must(a.Term(w.ctx))
	a = evaluator(newer, "a")
	w.must(b.Term(w.ctx))
	b = evaluator(newer, "b")
	shared("both new")
	two = ingester(newer, "two")
	l.end()
	w.must(w.Settled(w.ctx))
	sum, violations, err := w.Check(w.ctx, nil)
	w.must(err)
	for _, v := range violations {
		t.Error(v)
	}
	t.Logf("%d messages, %d failed runs, %d claims", sum.Messages, sum.Failed, sum.Claims)
	logTimes(t, "event to decision", l.latencies(began))
	for _, p := range []*Process{one, two, a, b} {
		if p.Ended() {
			t.Errorf("%s has ended:\n%s", p.Name, p.Tail())
		}
	}
}
