package main

import (
	"encoding/json"
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
	inProcess(t, "whatif", "--data", data, "--policies", testPolicies).exits(t, exitFine).says(t, "against what was decided: 0 of ", "is unknown")
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
		if runs, _ := got.Runs(); runs != decided {
			t.Errorf("%s: %d failed runs compared, %d decisions", name, runs, decided)
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
	inProcess(t, "whatif", "--log", log, "--against", testPolicies, "--policies", testPolicies).exits(t, exitFine).says(t, ": 0 of ")
	inProcess(t, "whatif", "--data", data, "--set", "settings.globalMaxRetries=1").exits(t, exitFinding).says(t, "retries fewer: ", "CANDIDATE", "GlobalLimit")
	inProcess(t, "whatif", "--data", data, "--against", "now", "--set", "settings.globalMaxRetries=1").exits(t, exitFinding).
		says(t, "the policies in force with settings.globalMaxRetries=1, against the policies in force: ")
	two := inProcess(t, "whatif", "--data", data, "--policies", testPolicies+","+examplesDir, "-o", "json", "--jobs", "1").exits(t, exitFinding).out
	if lines := strings.Count(two, "\n"); lines != 2 || !strings.Contains(two, `"next":1`) {
		t.Errorf("%d lines: %.500s", lines, two)
	}
}

// TestWhatifUsage: mistakes in the command line.
func TestWhatifUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, says string }{
		{"whatif", "needs --policies PATH or --set"},
		{"whatif --set a=b", "--data DIR is required"},
		{"whatif --log x --policies y", "give --against PATH"},
		{"whatif --log x --against y --set a=b", "give --policies PATH"},
		{"whatif --data x --set a=b --jobs -1", "use 0 or more"},
		{"whatif --data x --set a=b --from yesterday", "or a time such as"},
		{"whatif --data x --set a=b --semantics 2", "omit it"},
		{"whatif --data x --set a=b -o yaml", `-o "yaml"`},
		{"whatif --data " + drainedData(t) + " --set policies.infra.rules[none].retryLimit=1", `there is no "none"`},
	} {
		ctl(t, strings.Fields(c.args)...).exits(t, exitUsage).says(t, c.says)
	}
	ctl(t, "whatif", "--data", t.TempDir(), "--set", "a=b").exits(t, exitEnvironment)
}
