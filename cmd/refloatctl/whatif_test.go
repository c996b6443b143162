package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/query"
)

// TestWhatifSame: the policies that decided the recordings change nothing.
func TestWhatifSame(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	inProcess(t, "whatif", "--data", data, "--policies", testPolicies).exits(t, exitFine).prints(t, "against what was decided: 0 of ", "what happened", "jobs that succeeded")
	for _, name := range recordings {
		data := filepath.Join(t.TempDir(), "data")
		inProcess(t, "up", "--data", data, "--policies", examplesDir, "--feed", recordingFile(name), "--exit-when-drained", "--quiet").exits(t, exitFine)
		out := inProcess(t, "whatif", "--data", data, "--policies", examplesDir, "-o", "json").exits(t, exitFine).out
		r := jsonLine(t, out)
		if r["changed"].(interface{ String() string }).String() != "0" || r["compared"].(interface{ String() string }).String() == "0" {
			t.Errorf("%s: %v", name, r)
		}
		// The failed runs are the decisions, and rules decided what the decisions say.
		var got query.WhatIfResult
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		decided, byRule := uint64(0), map[string]uint64{}
		for line := range strings.Lines(inProcess(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
			d := jsonLine(t, line)
			decided++
			if d.text("rule") != "" {
				byRule[query.RuleName(d.text("policy"), d.text("rule"))]++
			}
		}
		if got.Compared != decided {
			t.Errorf("%s: %d failed runs compared, %d decisions", name, got.Compared, decided)
		}
		for _, u := range got.Rules {
			if of := query.RuleName(u.Policy, u.Rule); byRule[of] != u.Decided || u.Candidate != u.Decided || u.Retried != u.WouldRetry {
				t.Errorf("%s: %+v, want %d decisions", name, u, byRule[of])
			}
		}
		if len(got.Rules) != len(byRule) {
			t.Errorf("%s: %d rules, want %d", name, len(got.Rules), len(byRule))
		}
	}
	log := app.Dir(data).Events()
	inProcess(t, "whatif", "--log", log, "--against", testPolicies, "--policies", testPolicies).exits(t, exitFine).prints(t, ": 0 of ")
	inProcess(t, "whatif", "--data", data, "--set", "settings.globalMaxRetries=1").exits(t, exitFinding).prints(t, "retries fewer: ", "CANDIDATE", "GlobalLimit", "fewer failed runs; ")
	inProcess(t, "whatif", "--data", data, "--against", "now", "--set", "settings.globalMaxRetries=1").exits(t, exitFinding).
		prints(t, "the policies in force with settings.globalMaxRetries=1, against the policies in force: ")
	// What the policies of --against decide was not decided.
	versus := inProcess(t, "whatif", "--log", log, "--against", examplesDir, "--policies", testPolicies).exits(t, exitFinding).prints(t, ": in "+examplesDir+", it decides ").out
	for _, head := range []string{"CAUSE", "  RUN "} {
		for line := range strings.Lines(versus) {
			if strings.Contains(line, head) && !strings.Contains(line, filepath.Base(examplesDir)) {
				t.Errorf("the sides have no names: %s", line)
			}
		}
	}
	if strings.Contains(versus, "DECIDED") || strings.Contains(versus, ": decided ") {
		t.Errorf("what candidates would decide is shown as what was decided: %s", versus)
	}
	for _, at := range []string{"--from 2100-01-01", "--to 2020-01-01"} {
		inProcess(t, append([]string{"whatif", "--data", data, "--set", "settings.globalMaxRetries=1"}, strings.Fields(at)...)...).exits(t, exitFine).
			prints(t, "nothing to compare: no failed run lies in what is counted, of a history that begins 20")
	}
	infra := filepath.Join(examplesDir, "infra.yaml")
	inProcess(t, "whatif", "--data", data, "--policies", infra).exits(t, exitFinding).prints(t, "warning: "+infra+": no Queue names a policy")
	if out := inProcess(t, "whatif", "--data", data, "--policies", examplesDir); strings.Contains(out.err, "warning") {
		t.Error(out.err)
	}
	var all query.WhatIfResult
	if err := json.Unmarshal([]byte(inProcess(t, "whatif", "--data", data, "--set", "settings.globalMaxRetries=1", "-o", "json").exits(t, exitFinding).out), &all); err != nil {
		t.Fatal(err)
	}
	if n := uint64(len(all.Jobs)); n <= 20 || n != all.Differences() || all.Next != 0 {
		t.Errorf("%d of %d changes, next %d", n, all.Differences(), all.Next)
	}
	two := inProcess(t, "whatif", "--data", data, "--policies", testPolicies+","+examplesDir, "-o", "json", "--jobs", "1").exits(t, exitFinding).out
	if lines := strings.Count(two, "\n"); lines != 2 || !strings.Contains(two, `"next":1`) {
		t.Errorf("%d lines: %.500s", lines, two)
	}
}

// TestWhatifUsage: mistakes in the command line.
func TestWhatifUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"whatif", "needs --policies PATH or --set"},
		{"whatif --set a=b", "--data DIR is required"},
		{"whatif --log x --policies y", "give --against PATH"},
		{"whatif --log x --against y --set a=b", "give --policies PATH"},
		{"whatif --data x --set a=b --jobs -1", "use 0 or more"},
		{"whatif --data x --set a=b --from yesterday", "or a time such as"},
		{"whatif --data " + drainedData(t) + " --set a=b --from 1h --to 2h", "nothing lies between"},
		{"whatif --data x --set a=b --semantics 2", "omit it"},
		{"whatif --data x --set a=b -o yaml", `-o "yaml"`},
		{"whatif --data " + drainedData(t) + " --set policies.infra.rules[none].retryLimit=1", `there is no "none"`},
	} {
		ctl(t, strings.Fields(c.args)...).exits(t, exitUsage).prints(t, c.want)
	}
	ctl(t, "whatif", "--data", t.TempDir(), "--set", "a=b").exits(t, exitEnvironment)
}

// TestLogBesideCluster: a cluster in the environment does not stand in the way of a log on the command line.
func TestLogBesideCluster(t *testing.T) {
	t.Parallel()
	env, log := []string{"REFLOAT_PULSAR=pulsar://127.0.0.1:1"}, imported(t, recordingFile("retried"))
	ctlIn(t, env, "whatif", "--log", log, "--against", testPolicies, "--policies", testPolicies).exits(t, exitFine).prints(t, ": 0 of ")
	logs := app.Dir(drainedData(t))
	ctlIn(t, env, "verify", "--log", logs.Events(), "--decisions", logs.Decisions()).exits(t, exitFine)
	ctl(t, "whatif", "--pulsar", "pulsar://127.0.0.1:1", "--log", log, "--against", testPolicies, "--policies", testPolicies).exits(t, exitUsage)
}

// TestWhatifEitherWay: what happened behind the retries that only one side grants is the same, whichever side is the candidate. Of
// `retried`, all jobs are over, so none is "not over", also where a side retries what Armada failed for good.
func TestWhatifEitherWay(t *testing.T) {
	t.Parallel()
	log, dir := filepath.Join(t.TempDir(), "log"), t.TempDir()
	inProcess(t, "import", recordingFile("retried"), "--log", log).exits(t, exitFine)
	path := func(limit int) string {
		name := filepath.Join(dir, fmt.Sprint(limit, ".yaml"))
		text := fmt.Sprintf("apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: any}\nspec: {retryLimit: %d, defaultAction: Retry}\n"+
			"---\nkind: RetrySettings\nspec: {defaultPolicyName: any, globalMaxRetries: 20}\n", limit)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	side := func(against, candidate int, retries, runs, seconds, outcomes string) string {
		r := jsonLine(t, inProcess(t, "whatif", "--log", log, "--against", path(against), "--policies", path(candidate), "-o", "json").exits(t, exitFinding).out)
		return strings.TrimSpace(fmt.Sprintln(r["changed"], r["notCompared"], r[retries], r[runs], r[seconds], r[outcomes]))
	}
	for _, c := range []struct {
		few, many int
		want      string
	}{
		{1, 5, "135 355 433 412 517.9705011619999 map[cancelled:0 failed:57 notOver:0 succeeded:57 unknown:21]"},
		{1, 9, "135 355 490 412 517.9705011619999 map[cancelled:0 failed:0 notOver:0 succeeded:57 unknown:78]"},
		{5, 9, "57 0 57 0 0 map[cancelled:0 failed:0 notOver:0 succeeded:0 unknown:57]"},
	} {
		fewer := side(c.many, c.few, "retriesFewer", "runsFewer", "runSecondsFewer", "jobsThatWouldHaveFailedEarlier")
		more := side(c.few, c.many, "retriesMoreAtLeast", "runsMore", "runSecondsMore", "jobsThatWouldHaveRunOn")
		if fewer != more || fewer != c.want {
			t.Errorf("limit %d instead of %d: %s\nthe other way round: %s\nwant %s", c.few, c.many, fewer, more, c.want)
		}
	}
	inProcess(t, "diff", path(1), path(9), "--log", log).exits(t, exitFinding).prints(t, " of the history took place behind them", ", 0 are not over")
}
