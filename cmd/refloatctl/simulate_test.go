package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulate: one seed always gives the same output; candidates are compared.
func TestSimulate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := inProcess(t, "simulate", "--policies", examplesDir, "--jobs", "200", "-o", "json", "--html", filepath.Join(dir, "one")).exits(t, exitFine).out
	if again := inProcess(t, "simulate", "--policies", examplesDir, "--jobs", "200", "-o", "json", "--parallel", "1", "--html", filepath.Join(dir, "again")).exits(t, exitFine).out; again != one {
		t.Errorf("a second run prints something else:\n%s\n%s", one, again)
	}
	var pages []string
	for _, name := range []string{"one", "again"} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, string(page))
	}
	if pages[0] != pages[1] || !strings.Contains(pages[0], "<svg ") {
		t.Errorf("pages of %d and %d bytes", len(pages[0]), len(pages[1]))
	}
	if r := jsonLine(t, one); r["record"] != "Simulation" || len(r["assumed"].([]any)) == 0 {
		t.Errorf("%v", r)
	}
	inProcess(t, "simulate", "--policies", examplesDir, "--set", "settings.globalMaxRetries=0", "--jobs", "200", "--seeds", "3").exits(t, exitFine).
		prints(t, "of 200 jobs", "seed 1 (the first of 3)", "KillSwitch", "medians of 3 seeds, too few for confidence intervals", "3 seeds are too few to decide by: use --seeds 10 or more", "B - A", "BY RULE", "assumed:")
}

// TestSimulateCompares: candidates run under 20 seeds, and the headline says what these are worth; --within has limits.
func TestSimulateCompares(t *testing.T) {
	t.Parallel()
	compare := []string{"simulate", "--policies", examplesDir, "--set", "settings.globalMaxRetries=0", "--jobs", "60"}
	inProcess(t, append(compare, "--within", "3h")...).exits(t, exitFine).
		prints(t, "(the first of 20)", "medians of 20 seeds (with their 95% confidence intervals)", "jobs done within 3h0m0s, %", " of 20 seeds, ", "done within 3h0m0s: ")
	ctl(t, append(compare, "--within", "49h")...).exits(t, exitUsage).prints(t, "--within 49h0m0s: the simulation ends 48h0m0s after the last submission (giveUp)")
	ctl(t, append(compare, "--within", "-1h")...).exits(t, exitUsage).prints(t, "--within -1h0m0s: want a time above 0")
}

// TestSimulateSweep: candidates are compared at each load and rate of failures; without failures nothing tells them apart.
func TestSimulateSweep(t *testing.T) {
	t.Parallel()
	args := []string{"simulate", "--policies", examplesDir, "--set", "settings.globalMaxRetries=0", "--jobs", "60", "--sweep", "load=0.5,2"}
	out := inProcess(t, append(args, "--sweep", "failures=0.001,3", "-o", "json")...).exits(t, exitFine).out
	if n := strings.Count(out, "\n"); n != 4 {
		t.Errorf("%d points, want 4", n)
	}
	for line := range strings.Lines(out) {
		p := jsonLine(t, line)
		d := object(object(p["comparisons"].([]any)[1].(map[string]any))["headline"].([]any)[0].(map[string]any))["difference"].(map[string]any)
		if often := fmt.Sprint(p["failures"]) == "3"; d["differs"] != often {
			t.Errorf("load %v, failures %v: %v", p["load"], p["failures"], d)
		}
	}
	inProcess(t, append(args, "--sweep", "failures=3")...).exits(t, exitFine).prints(t, "B is below A at 2 of 2 points, and above it at none: the order holds")
	for _, bad := range []struct{ flag, want string }{
		{"load=", `"": want numbers from 0.001 to 1000`}, {"load=1,NaN", `"NaN": want numbers`}, {"lod=1", `did you mean load`},
	} {
		ctl(t, append(args, "--sweep", bad.flag)...).exits(t, exitUsage).prints(t, bad.want)
	}
	ctl(t, "simulate", "--policies", examplesDir, "--sweep", "load=2", "--workload-from", recordingFile("plain")).exits(t, exitUsage).prints(t, "only a generated workload has a load")
}

// TestSimulateSave: a saved simulation has the runs and retries that it reports, its decisions are explained, and it is never mixed with other jobs.
func TestSimulateSave(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.sqlite")
	save := []string{"simulate", "--policies", examplesDir, "--jobs", "1200", "--save", path, "-o", "json"}
	r := jsonLine(t, inProcess(t, save...).exits(t, exitFine).out)
	for table, want := range map[string]int64{"runs": r.number("runs"), "jobs": r.number("jobs")} {
		lines := strings.Count(inProcess(t, "export", table, "--job-db", "sqlite://"+path).exits(t, exitFine).out, "\n") - 1
		if int64(lines) != want || want < 1000 {
			t.Errorf("%d %s are saved, the simulation has %d", lines, table, want)
		}
	}
	d := jsonLine(t, ctl(t, "get", "decisions", "--job-db", "sqlite://"+path, "--limit", "1", "-o", "json").exits(t, exitFine).out)
	ctl(t, "explain", d.text("jobId"), "--job-db", "sqlite://"+path).exits(t, exitFine).prints(t, "container main exited with", "Decision "+d.text("decision"))
	ctl(t, save...).exits(t, exitUsage).prints(t, "it exists, and a simulation is not mixed with other jobs")
	ctl(t, "simulate", "--policies", examplesDir, "--save", "sqlite://"+path).exits(t, exitUsage).prints(t, "it exists, and a simulation")
	ctl(t, "simulate", "--policies", examplesDir, "--save", "postgres://h/d").exits(t, exitUsage).prints(t, "want a path, or sqlite:///path")
}

// TestSimulateFiles: the examples are files that can be given back; mistakes in files are named.
func TestSimulateFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cluster := inProcess(t, "simulate", "--example", "cluster").exits(t, exitFine).out
	workload := inProcess(t, "simulate", "--example", "workload").exits(t, exitFine).out
	given := inProcess(t, "simulate", "--policies", examplesDir, "--jobs", "50", "--cluster", file("c", cluster), "--workload", file("w", workload)).exits(t, exitFine).out
	if built := inProcess(t, "simulate", "--policies", examplesDir, "--jobs", "50").exits(t, exitFine).out; built != given {
		t.Errorf("the built-in files and their copies differ:\n%s\n%s", built, given)
	}
	for _, c := range []struct{ args, want string }{
		{"simulate", "--policies PATH is required"},
		{"simulate --policies x --seeds 0", "want 1 to 10000"},
		{"simulate --policies x --jobs -1", "--jobs -1"},
		{"simulate --policies x --jobs 0", "--jobs 0: want 1 or more"},
		{"simulate --example clutser", "did you mean cluster?"},
		{"simulate --policies " + examplesDir + " --cluster " + file("typo", strings.Replace(cluster, "nodes:", "noeds:", 1)), "noeds"},
		{"simulate --policies " + examplesDir + " --workload " + file("big", strings.Replace(workload, "cpu: 8", "cpu: 800", 1)), "kinds[0] small: the job fits no node"},
	} {
		ctl(t, strings.Fields(c.args)...).exits(t, exitUsage).prints(t, c.want)
	}
	ctl(t, "simulate", "--policies", examplesDir, "--cluster", filepath.Join(dir, "none")).exits(t, exitEnvironment)
	inProcess(t, "simulate", "--policies", examplesDir, "--jobs", "1", "--html", filepath.Join(dir, "none", "page")).exits(t, exitEnvironment)
}
