package e2e

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// alone runs refloatctl without the flags for the cluster.
func (w *world) alone(args ...string) (string, error) {
	out, err := exec.CommandContext(w.ctx, w.Programs.Ctl, args...).CombinedOutput()
	return string(out), err
}

func exitCode(err error) int {
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return ended.ExitCode()
	}
	return 0
}

// TestAudits: explain, get, verify, whatif and jobdb verify on a deployment on
// Pulsar, while its programs run; get and explain also with the job database alone.
func TestAudits(t *testing.T) {
	w := newWorld(t, 3)
	w.live(3, w.evaluator("a"))
	w.ingester("one")
	w.feed("plain")
	w.settledAndRight()
	db := "sqlite://" + w.Database()
	ok := func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}

	var decision struct {
		JobID, Rule, Policy, Code string
		RunIndex                  int
	}
	ruled := regexp.MustCompile(`(?m)^\{.*"code":"RuleRetry".*$`)
	line := ruled.FindString(ok(w.alone("get", "decisions", "--job-db", db, "-o", "json")))
	if err := json.Unmarshal([]byte(line), &decision); err != nil {
		t.Fatalf("no decision by a rule: %v in %q", err, line)
	}
	run := []string{"explain", decision.JobID, "--run", "0", "--job-db", db}

	full := ok(w.Ctl(w.ctx, run...))
	for _, want := range []string{decision.Code, "Rules, in order", "matches: first match wins", "Delay"} {
		if !strings.Contains(full, want) {
			t.Errorf("explain on Pulsar lacks %q:\n%s", want, full)
		}
	}
	bare := ok(w.alone(run...))
	for _, want := range []string{decision.Code, "limit", "--pulsar", "Delay"} {
		if !strings.Contains(bare, want) {
			t.Errorf("explain with --job-db alone lacks %q:\n%s", want, bare)
		}
	}
	if strings.Contains(bare, "first match wins") || strings.Contains(bare, "at once") {
		t.Errorf("explain with --job-db alone claims to know the policies:\n%s", bare)
	}
	for _, args := range [][]string{{"get", "jobs"}, {"get", "job", decision.JobID}, {"get", "decisions"}} {
		args = append(args, "--job-db", db)
		if a, b := ok(w.Ctl(w.ctx, args...)), ok(w.alone(args...)); a != b || !strings.Contains(a, decision.JobID) {
			t.Errorf("%v on Pulsar gives\n%s\nand alone\n%s", args, a, b)
		}
	}
	if out := ok(w.Ctl(w.ctx, "verify")); !strings.Contains(out, "byte for byte") || strings.Contains(out, "0 decisions") {
		t.Errorf("verify on Pulsar said\n%s", out)
	}
	if out := ok(w.Ctl(w.ctx, "whatif", "--policies", w.Policies)); !strings.Contains(out, ": 0 of ") {
		t.Errorf("whatif of the policies that decided said\n%s", out)
	}
	never := fmt.Sprintf("policies.%s.rules[%s].retryLimit=0", decision.Policy, decision.Rule)
	if out, err := w.Ctl(w.ctx, "whatif", "--set", never); exitCode(err) != 1 || !strings.Contains(out, never) || strings.Contains(out, ": 0 of ") {
		t.Errorf("whatif --set %s: %v\n%s", never, err, out)
	}
	if out := ok(w.Ctl(w.ctx, "jobdb", "verify", "--job-db", db)); strings.Count(out, ": equal") != 3 {
		t.Errorf("jobdb verify on Pulsar said\n%s", out)
	}

	// What is wrong is found there, too.
	raw, err := sql.Open("sqlite3", "file:"+w.Database())
	w.must(err)
	defer raw.Close()
	_, err = raw.ExecContext(w.ctx, `UPDATE decisions SET global_limit = global_limit + 1 WHERE job_id = ?`, decision.JobID)
	w.must(err)
	out, err := w.Ctl(w.ctx, "jobdb", "verify", "--job-db", db)
	if exitCode(err) != 1 || !strings.Contains(out, "GlobalLimit is") {
		t.Errorf("jobdb verify of a changed row: %v\n%s", err, out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "jobs"}, "--job-db"},
		{[]string{"explain", decision.JobID}, "--job-db"},
		{[]string{"jobdb", "verify"}, "--job-db"},
		{[]string{"verify", "--data", "x"}, "--data"},
	} {
		if out, err := w.Ctl(w.ctx, c.args...); exitCode(err) != 2 || !strings.Contains(out, c.want) {
			t.Errorf("%v on Pulsar: %v, want exit code 2 and %q\n%s", c.args, err, c.want, out)
		}
	}
}
