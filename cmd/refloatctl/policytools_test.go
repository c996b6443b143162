package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// started is what init writes, in a directory of its own.
func started(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "my policies")
	ctl(t, "init", dir).exits(t, exitFine).prints(t, "wrote "+filepath.Join(dir, "policy.yaml"), "Try next")
	return dir
}

// rewritten edits a file.
func rewritten(t *testing.T, file string, edit func(string) string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	after := edit(string(b))
	if after == string(b) {
		t.Fatalf("%s: nothing to change", file)
	}
	if err := os.WriteFile(file, []byte(after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestInit: what init writes is green, and each broken rule turns it red.
func TestInit(t *testing.T) {
	t.Parallel()
	dir := started(t)
	ctl(t, "lint", dir, "--strict").exits(t, exitFine).prints(t, "2 files are valid")
	ctl(t, "test", dir, "--coverage", "--mutate").exits(t, exitFine).prints(t, "0 failed", "24 of 24 detected", "5 of 5 rules")
	ctl(t, "replay", "--log", imported(t, recordingFile("plain")), "--policies", dir).exits(t, exitFine).prints(t, "starter/default")
	ci, err := os.ReadFile(filepath.Join(dir, "ci", "github-actions.yml"))
	if err != nil || !strings.Contains(string(ci), "refloatctl test "+filepath.ToSlash(dir)) {
		t.Errorf("the step for CI: %s, %v", ci, err)
	}
	schema, err := os.ReadFile(filepath.Join(dir, schemaFile))
	var written, printed map[string]any
	err = errors.Join(err, json.Unmarshal(schema, &written), json.Unmarshal([]byte(ctl(t, "schema").out), &printed))
	if err != nil || !reflect.DeepEqual(written, printed) {
		t.Errorf("the schema is another than `schema` prints: %.100s, %v", schema, err)
	}
	for _, name := range []string{"policy.yaml", "queue.yaml"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(data), "---\n") {
			if !strings.HasPrefix(doc, "# yaml-language-server: $schema="+schemaFile+"\n") {
				t.Errorf("%s: a document does not name the schema: %.100s", name, doc)
			}
		}
	}
	ctl(t, "init", dir).exits(t, exitEnvironment).prints(t, "already exists", "nothing was written")
	ctl(t, "init", filepath.Join(dir, "policy.yaml")).exits(t, exitEnvironment)

	rules := regexp.MustCompile(`(?m)^  - name: ([a-z-]+)\n    action: ([A-Za-z]+)\n`)
	policyFile := filepath.Join(dir, "policy.yaml")
	whole, err := os.ReadFile(policyFile)
	if err != nil {
		t.Fatal(err)
	}
	all := rules.FindAllStringSubmatchIndex(string(whole), -1)
	if len(all) != 4 {
		t.Fatalf("%d rules", len(all))
	}
	for _, at := range all {
		name, next := string(whole[at[2]:at[3]]), strings.Index(string(whole[at[1]:]), "\n  - name:")
		end := len(whole)
		if next >= 0 {
			end = at[1] + next + 1
		}
		for how, broken := range map[string]string{
			"gone":   string(whole[:at[0]]) + string(whole[end:]),
			"failed": string(whole[:at[4]]) + "Fail" + string(whole[at[5]:]),
		} {
			rewritten(t, policyFile, func(string) string { return broken })
			if r := ctl(t, "test", dir); r.code != exitFinding {
				t.Errorf("rule %s %s, and test exits with %d:\n%s%s", name, how, r.code, r.out, r.err)
			}
		}
	}
	rewritten(t, policyFile, func(string) string {
		return strings.Replace(string(whole), "defaultAction: Fail", "defaultAction: Retry", 1)
	})
	ctl(t, "test", dir).exits(t, exitFinding).prints(t, "want Fail", "got  Retry")
}

func TestEval(t *testing.T) {
	t.Parallel()
	examples := filepath.Join("..", "..", "examples", "policies")
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"-p EX --exit-code 137 --condition OOMKilled", exitFine, []string{"JobRequeued, RuleRetry", "rule oom of policy training", "no queue", "✓", "Delay 15s"}},
		{"-p EX --queue vision-train --exit-code 139 --failures 3", exitFine, []string{"JobFailed, RuleLimit", "2 of 2", "queue vision-train"}},
		{"-p EX --queue genomics --exit-code 1 --retry-policy extra,batch", exitFine, []string{"rule flaky of policy extra", "policies skipped: batch"}},
		{"-p EX/infra.yaml --condition Preempted --grace-seconds 30 --verify Retry", exitFine, []string{"RuleIgnore", "termination grace 30s"}},
		{"-p EX/infra.yaml --condition Preempted --verify Fail", exitFinding, []string{"want Fail, got Retry"}},
		{"-p EX --category infrastructure --subcategory gpu --node n17", exitFine, []string{"rule gpu", "not on n17", "on node n17"}},
		{"-p EX --queue vision-train --exit-code 1 --run-duration 6h --verify Retry", exitFine, []string{"rule late-crash of policy training", "running for 6h0m0s"}},
		{"-p EX --queue vision-train --exit-code 1 --run-duration 5h59m --verify Retry", exitFinding, []string{"the run was running for 5h59m0s, not for at least 6h0m0s"}},
		{"-p EX --condition Unschedulable --run-duration 1s", exitUsage, []string{"never tried"}},
		{"-p EX --run-duration -1s", exitUsage, []string{"--run-duration -1s"}},
		{"-p EX --pod-oom", exitFine, []string{"condition OOMKilled"}},
		{"-p EX --fail-fast --exit-code 1", exitFine, []string{"FailFast"}},
		{"-p EX --gang 4 --exit-code 1", exitFine, []string{"GangRetry"}},
		{"-p EX --exit-code 2 --failures 9", exitFine, []string{"RuleFail", "failed for good at failure 1 of 9"}},
		{"--exit-code 1", exitUsage, []string{"-p PATH is required"}},
		{"-p EX --condition OOM", exitUsage, []string{"unknown condition"}},
		{"-p EX --condition Evictd", exitUsage, []string{"did you mean Evicted?"}},
		{"-p EX --condition LeaseExpired --exit-code 1", exitUsage, []string{"reports no container"}},
		{"-p EX --failures 0", exitUsage, []string{"--failures 0"}},
		{"-p EX --verify Maybe", exitUsage, []string{"use Retry or Fail"}},
		{"-p EX --gang 1", exitUsage, []string{"--gang 1"}},
		{"-p EX --subcategory gpu", exitUsage, []string{"--category"}},
		{"-p EX --at noon", exitUsage, []string{"--at"}},
		{"-p EX -o yaml", exitUsage, []string{`-o "yaml"`}},
		{"-p nowhere", exitEnvironment, []string{"no such file"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			ctl(t, append([]string{"eval"}, strings.Fields(strings.ReplaceAll(c.args, "EX", examples))...)...).exits(t, c.code).prints(t, c.want...)
		})
	}
	bad := writeFile(t, t.TempDir(), "bad.yaml", badPolicy)
	ctl(t, "eval", "-p", bad).exits(t, exitFinding).prints(t, bad+":5:15: ")
	r := ctl(t, "eval", "-p", examples, "--queue", "vision-train", "--exit-code", "143", "-o", "json").exits(t, exitFine)
	o := jsonLine(t, r.out)
	if d, _ := o["decision"].(map[string]any); object(d).follows(contract) != nil || object(d).text("rule") != "signalled" {
		t.Errorf("%v: %s", object(d).follows(contract), r.out)
	}
	if ladder, _ := o["ladder"].([]any); len(ladder) != 13 {
		t.Errorf("%d rules in the ladder", len(ladder))
	}
}

// TestTest tries the command on a red file, in every form.
func TestTest(t *testing.T) {
	t.Parallel()
	dir := started(t)
	file := filepath.Join(dir, "starter_test.yaml")
	rewritten(t, file, func(s string) string { return strings.Replace(s, "delay: 20s", "delay: 21s", 1) })

	r := ctl(t, "test", dir).exits(t, exitFinding).prints(t, "FAIL  "+file+":13:3: an evicted run goes elsewhere", "want 21s", "got  20s", "✓ starter/lost-capacity", "10 tests in 1 file, 1 failed")
	if strings.Contains(r.out, "ok ") {
		t.Errorf("shows green tests: %s", r.out)
	}
	ctl(t, "test", dir, "--run", "memory|75", "-v").exits(t, exitFine).prints(t, "ok    "+file, "3 tests in 1 file, 0 failed")
	ctl(t, "test", dir, "--mutate").exits(t, exitFinding).prints(t, "all tests must pass first")

	red := 0
	for line := range strings.Lines(ctl(t, "test", dir, "-o", "json").exits(t, exitFinding).out) {
		o := jsonLine(t, line)
		if o["passed"] == false {
			red++
		}
		for _, s := range o["steps"].([]any) {
			outcome := object(object(s.(map[string]any))["outcome"].(map[string]any))
			if err := object(outcome["decision"].(map[string]any)).follows(contract); err != nil {
				t.Error(err)
			}
		}
	}
	if red != 1 {
		t.Errorf("%d red tests in JSON", red)
	}
	var suites struct {
		Suites []struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
			Cases    []struct {
				Name    string  `xml:"name,attr"`
				Failure *string `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	junit := ctl(t, "test", dir, "-o", "junit", "--coverage").exits(t, exitFinding)
	if err := xml.Unmarshal([]byte(junit.out), &suites); err != nil {
		t.Fatalf("%v: %s", err, junit.out)
	}
	if s := suites.Suites; len(s) != 1 || s[0].Tests != 10 || s[0].Failures != 1 || len(s[0].Cases) != 10 || !strings.Contains(*s[0].Cases[1].Failure, "got  20s") {
		t.Errorf("JUnit: %+v", s)
	}

	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ctl(t, "test", dir, "--update").exits(t, exitFine).prints(t, file+": updated")
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(string(before), "delay: 21s", "delay: 20s", 1); string(after) != want {
		t.Errorf("updated to:\n%s", after)
	}
	ctl(t, "test", dir, "--update").exits(t, exitFine).prints(t, "nothing to update")
	ctl(t, "test", dir).exits(t, exitFine)
	ctl(t, "test", dir, "--run", "75", "--coverage").exits(t, exitFinding).prints(t, filepath.Join(dir, "policy.yaml")+":16:5: starter/preempted is not reached")

	rewritten(t, file, func(s string) string { return strings.Replace(s, "decision:", "decisions:", 1) })
	ctl(t, "test", dir).exits(t, exitFinding).prints(t, file+":10:", "RP010", "did you mean decision?")
	rewritten(t, file, func(s string) string { return strings.Replace(s, "decisions:", "decision:", 1) })
	writeFile(t, dir, "bad.yaml", badPolicy)
	ctl(t, "test", dir).exits(t, exitFinding).prints(t, "bad.yaml:5:15: ")

	empty := t.TempDir()
	for args, c := range map[string]struct {
		code int
		want string
	}{
		"test " + empty:                               {exitEnvironment, "no *_test.yaml below"},
		"test " + empty + "/nowhere":                  {exitEnvironment, "no such file"},
		"test " + examplesDir + " --run (":            {exitUsage, "--run"},
		"test " + examplesDir + " --run no-such-test": {exitUsage, "matches no test"},
		"test " + examplesDir + " -o yaml":            {exitUsage, "use text, json or junit"},
		"test " + examplesDir + " --update --run OOM": {exitUsage, "--update"},
		"test record --data x --out y":                {exitUsage, "--job ID is required"},
		"test record --job x --out y":                 {exitUsage, "--data DIR is required"},
		"test record --job x --data y":                {exitUsage, "--out DIR is required"},
	} {
		ctl(t, strings.Fields(args)...).exits(t, c.code).prints(t, c.want)
	}
}

var examplesDir = filepath.Join("..", "..", "examples", "policies")

// TestExamplesTested: the examples are clean, covered, and every fault in them is noticed.
func TestExamplesTested(t *testing.T) {
	t.Parallel()
	ctl(t, "lint", examplesDir, "--strict").exits(t, exitFine).prints(t, "8 files are valid")
	ctl(t, "test", examplesDir, "--coverage", "--mutate").exits(t, exitFine).prints(t, "0 failed", "23 of 23 rules")
}

func TestLintForms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec:\n  rules:\n" +
		"  - {name: a, action: Retry, onFailureCategory: [Infra]}\n  - {name: b, action: Fail, onFailureCategory: [Infra], onExitCodes: {operator: In, values: [1]}}\n"
	file := writeFile(t, dir, "p.yaml", text)
	categories := writeFile(t, dir, "categories.txt", "infra\nuser # theirs\n")
	r := ctl(t, "lint", file, "--categories", categories).exits(t, exitFinding)
	r.prints(t, file+":6:50: warning RP110 spec.rules[0].onFailureCategory[0]", "did you mean infra?", file+":7:5: warning RP103 spec.rules[1]: never reached: p/a matches")
	for line := range strings.Lines(ctl(t, "lint", file, "-o", "json").exits(t, exitFinding).out) {
		if o := jsonLine(t, line); o.text("code") != "RP103" || o.text("severity") != "warning" || o.number("line") != 7 || o.text("file") != file {
			t.Error(line)
		}
	}
	var sarif struct {
		Version string
		Runs    []struct{ Results []struct{ RuleID string } }
	}
	if err := json.Unmarshal([]byte(ctl(t, "lint", file, "-o", "sarif").exits(t, exitFinding).out), &sarif); err != nil || sarif.Version != "2.1.0" || len(sarif.Runs[0].Results) != 1 {
		t.Errorf("%v: %+v", err, sarif)
	}
	ctl(t, "lint", examplesDir, "-o", "sarif").exits(t, exitFine).prints(t, `"results": []`)
	ctl(t, "lint", file, "-o", "xml").exits(t, exitUsage).prints(t, "use text, json or sarif")
	ctl(t, "lint", file, "--categories", filepath.Join(dir, "none")).exits(t, exitEnvironment).prints(t, "read categories")
	ctl(t, "lint", file, "--categories", writeFile(t, dir, "empty.txt", "#\n")).exits(t, exitFinding).prints(t, "the file contains no category")
}

func TestDiff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(testPolicies)); err != nil {
		t.Fatal(err)
	}
	log := app.Dir(drainedData(t)).Events()
	ctl(t, "diff", testPolicies, dir, "--log", log).exits(t, exitFine).prints(t, "0 of ", "are equal")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if s := strings.ReplaceAll(string(b), "action: Retry", "action: Fail"); s != string(b) {
			changed++
			writeFile(t, dir, filepath.Base(file), s)
		}
	}
	if changed == 0 {
		t.Fatal("no rule to change")
	}
	ctl(t, "diff", testPolicies, dir).exits(t, exitFinding).prints(t, "changed  rule ", `action: "Retry" → "Fail"`)
	r := ctl(t, "diff", testPolicies, dir, "--log", log, "--jobs", "2").exits(t, exitFinding)
	r.prints(t, "failed runs are decided differently", "retries fewer: ", "QUEUE", "more: --jobs")
	var effects, changes int
	var last object
	for line := range strings.Lines(ctl(t, "diff", testPolicies, dir, "--log", log, "-o", "json").exits(t, exitFinding).out) {
		last = jsonLine(t, line)
		if e, ok := last["effect"].(map[string]any); ok {
			effects++
			if e["jobId"] == "" || e["decided"] == nil || e["candidate"] == nil {
				t.Error(line)
			}
		}
		if last["change"] != nil {
			changes++
		}
	}
	summary := object(last["summary"].(map[string]any))
	if effects == 0 || summary.number("effects") != int64(effects) || summary.number("changes") != int64(changes) || summary.number("failures") < int64(effects) {
		t.Errorf("%d effects, %d changes, summary %v", effects, changes, summary)
	}
	whatif := jsonLine(t, ctl(t, "whatif", "--log", log, "--against", testPolicies, "--policies", dir, "-o", "json").exits(t, exitFinding).out)
	if whatif.number("changed") != int64(effects) || whatif.number("compared") != summary.number("failures") {
		t.Errorf("whatif says %d of %d, diff %v", whatif.number("changed"), whatif.number("compared"), summary)
	}
	if !strings.Contains(r.out, " of "+summary["failures"].(json.Number).String()+" failed runs") {
		t.Errorf("table and JSON differ: %v\n%s", summary, r.out)
	}
	ctl(t, "diff", testPolicies).exits(t, exitUsage)
	ctl(t, "diff", testPolicies, dir, "--jobs", "-1").exits(t, exitUsage)
	ctl(t, "diff", testPolicies, dir+"/nowhere").exits(t, exitEnvironment)
	ctl(t, "diff", testPolicies, dir, "--log", dir+"/nowhere").exits(t, exitEnvironment)
	ctl(t, "diff", testPolicies, writeFile(t, t.TempDir(), "bad.yaml", badPolicy)).exits(t, exitFinding).prints(t, "bad.yaml:5:15")
}

func TestSchemaAndFields(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", "RetryPolicy", "Queue", "RetrySettings"} {
		args := strings.Fields("schema " + kind)
		var schema map[string]any
		if err := json.Unmarshal([]byte(ctl(t, args...).exits(t, exitFine).out), &schema); err != nil || schema["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%s: %v", args, err)
		}
	}
	ctl(t, "schema", "Quee").exits(t, exitUsage).prints(t, "did you mean Queue?")
	r := ctl(t, "explain", "field", "spec.rules.backoff").exits(t, exitFine).prints(t, "KIND:     RetryPolicy", "initialDelay", "The delay before a retry")
	whole := strings.Join(strings.Fields(r.out), " ")
	if schema := ctl(t, "schema").out; !strings.Contains(schema, "The delay before a retry: the smaller of initialDelay") || !strings.Contains(whole, "The delay before a retry: the smaller of initialDelay") {
		t.Error("schema and explain field tell different texts")
	}
	ctl(t, "explain-field", "Queue.mode").exits(t, exitFine).prints(t, "Shadow")
	ctl(t, "explain-field", "spec.bakoff").exits(t, exitUsage).prints(t, "did you mean spec.backoff?")
}

// TestRecord: jobs of a real history become tests that pass as recorded, and turn
// red under policies that decide otherwise.
func TestRecord(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	jobs := map[string]string{} // by code of the last decision
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
		o := jsonLine(t, line)
		jobs[o.text("code")] = o.text("jobId")
	}
	if len(jobs) < 4 {
		t.Fatalf("only %v", jobs)
	}
	out := t.TempDir()
	recorded := map[string]bool{}
	for code, job := range jobs {
		if !recorded[job] {
			ctl(t, "test", "record", "--job", job, "--data", data, "--out", out).exits(t, exitFine).prints(t, "1 test in 1 file, 0 failed")
		}
		recorded[job] = true
		b, err := os.ReadFile(filepath.Join(out, job+"_test.yaml"))
		if err != nil || !strings.Contains(string(b), "code: "+code) {
			t.Errorf("%s: %v\n%s", code, err, b)
		}
	}
	ctl(t, "test", out).exits(t, exitFine).prints(t, " 0 failed")
	for _, job := range jobs {
		ctl(t, "test", "record", "--job", job, "--data", data, "--out", out).exits(t, exitEnvironment).prints(t, "already exists")
		break
	}
	ctl(t, "test", "record", "--job", jobs["RuleRetry"], "--data", data, "--out", t.TempDir(), "--policies", started(t)).exits(t, exitFinding).prints(t, "FAIL")
	ctl(t, "test", "record", "--job", "nobody", "--data", data, "--out", out).exits(t, exitFinding).prints(t, "job nobody is not in the job database")
}

// TestPolicyToolsInPipes: help has examples, and pipes get no control characters.
func TestPolicyToolsInPipes(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"eval", "test", "test record", "init", "lint", "diff", "schema", "explain field"} {
		ctl(t, append(strings.Fields(args), "--help")...).exits(t, exitFine).prints(t, "Examples:\n", "refloatctl "+args)
	}
	for _, args := range []string{
		"eval -p " + examplesDir + " --exit-code 1", "test " + examplesDir + " --mutate -v", "lint " + examplesDir,
		"diff " + examplesDir + " " + testPolicies + " --log " + app.Dir(drainedData(t)).Events(), "explain-field spec", "init " + filepath.Join(t.TempDir(), "p"),
	} {
		r := ctlIn(t, []string{"TERM=xterm-256color"}, strings.Fields(args)...)
		if at := strings.IndexAny(r.out+r.err, rewriting); at >= 0 || r.out == "" {
			t.Errorf("%s prints %q", args, r.out+r.err)
		}
	}
}

// TestEvalGroup: eval decides about a unit of a group, and says why not otherwise.
func TestEvalGroup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"", exitFine, []string{"Verdict RestartGroup", "1 of 10 counted restarts", "✗ training-job/host-maintenance onMessage: the failure has no message", "✓ training-job/lost-pod", "not before 30s"}},
		{"--restarts 3 --verify RestartGroup", exitFine, []string{"4 of 10", "not before 4m "}},
		{"--restarts 10 --verify RestartGroup", exitFinding, []string{"Verdict FailGroup", "used up: 10 of 10", "want RestartGroup, got FailGroup"}},
		{"--restarts 10 --message maintenance", exitFine, []string{`no message matches`}},
		{"--restarts 10 --message host.is.going.down --verify RestartGroup", exitFine, []string{"✓ training-job/host-maintenance", "10 of 10 counted"}},
		{"--unit-reason MemberCancelled --verify Leave", exitFine, []string{"no run failed", "leaves it failed"}},
		{"--unit-succeeded --verify None", exitFine, []string{"which succeeded", "nothing is done"}},
		{"--group-policy distributed-training --part workers --unit-reason PodFailurePolicy --verify FailGroup", exitFine, []string{"✓ distributed-training/broken"}},
		{"--group-policy distributed-training --part data --message host.maintenance --rule-restarts 20 --verify FailGroup", exitFine, []string{"the rule's own limit is used up"}},
		{"--group-policy distributed-training", exitUsage, []string{"--part is required", "data, workers"}},
		{"--group-policy distributed-training --part worker", exitUsage, []string{"did you mean workers?"}},
		{"--group-policy training-jobs", exitUsage, []string{"did you mean training-job?"}},
		{"--unit-reason FailedIndex", exitUsage, []string{"did you mean FailedIndexes?"}},
		{"--unit-succeeded --unit-reason FailedIndexes", exitUsage, []string{"no --unit-reason"}},
		{"--verify Retry", exitUsage, []string{`--verify "Retry"`}},
		{"--failures 3", exitUsage, []string{"--failures is about a job"}},
	} {
		args := []string{"eval", "-p", examplesDir, "--group-policy", "training-job"}
		for a := range strings.FieldsSeq(c.args) {
			args = append(args, strings.ReplaceAll(a, ".", " "))
		}
		ctl(t, args...).exits(t, c.code).prints(t, c.want...)
	}
	ctl(t, "eval", "-p", examplesDir, "--part", "workers").exits(t, exitUsage).prints(t, "--part needs --group-policy")
	r := ctl(t, "eval", "-p", examplesDir, "--group-policy", "training-job", "--restarts", "10", "-o", "json").exits(t, exitFine)
	o := jsonLine(t, r.out)
	if ladder, _ := o["ladder"].([]any); len(ladder) != 3 || o.text("groupAction") != "FailGroup" || o.text("groupRule") != "lost-pod" || o["refused"] != true || o.number("restartsUsed") != 10 {
		t.Error(r.out)
	}
}

// TestGroupTests: files with tests of groups, in every form.
func TestGroupTests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "groups.yaml", groupPolicies)
	file := writeFile(t, dir, "groups_test.yaml", `kind: RetryPolicyTest
tests:
- name: workers wait
  group: {policy: training}
  events:
  - {succeed: driver, expect: {released: workers/0/0-1}}
  - {member: workers/0/1, fail: {exitCode: 1}, expect: {groupAction: Halt, restarted: all}}
`)
	ctl(t, "test", dir).exits(t, exitFinding).prints(t, "FAIL  "+file+":3:3: workers wait", "event 1 at 0s: workers/0/1: main exited with 1", "want Halt", "got  RestartGroup", "✓ training: no rule matches: RestartGroup")
	ctl(t, "test", dir, "-o", "junit").exits(t, exitFinding).prints(t, `failures="1"`, "got  RestartGroup")
	o := jsonLine(t, ctl(t, "test", dir, "-o", "json").exits(t, exitFinding).out)
	steps, _ := o["steps"].([]any)
	if len(steps) != 2 {
		t.Fatal(o)
	}
	group := object(object(steps[1].(map[string]any))["outcome"].(map[string]any)["group"].(map[string]any))
	if group.text("state") != "Active" || group.number("restartsUsed") != 1 || fmt.Sprint(group["restarted"]) != "[driver workers]" || fmt.Sprint(group["held"]) != "[workers]" {
		t.Error(group)
	}
	ctl(t, "test", dir, "--update").exits(t, exitFine).prints(t, "updated")
	ctl(t, "test", dir, "--run", "workers wait").exits(t, exitFine)
	r := ctl(t, "test", dir, "--coverage", "--mutate").exits(t, exitFinding)
	r.prints(t, filepath.Join(dir, "groups.yaml")+":14:3: sweep/default is not reached", ":5:16: no test fails when GroupPolicy training: maxRestarts is one more", ":8:5: no test fails when GroupPolicy training: part workers: minMembers is one less")
	rewritten(t, file, func(s string) string { return strings.Replace(s, "succeed: driver", "succeed: drivers", 1) })
	ctl(t, "test", dir).exits(t, exitFinding).prints(t, "line 6: drivers: the group policy has no part drivers")
}

// TestDiffGroups: what another group policy would have done with a recorded history.
func TestDiffGroups(t *testing.T) {
	t.Parallel()
	dir, logs := t.TempDir(), t.TempDir()
	old, changed := writeFile(t, dir, "old.yaml", groupPolicies), writeFile(t, dir, "new.yaml", strings.Replace(groupPolicies, "maxRestarts: 1", "maxRestarts: 2", 1))
	ctl(t, "import", groupHistoryFile(t), "--log", logs).exits(t, exitFine)
	ctl(t, "diff", old, old, "--log", logs).exits(t, exitFine).prints(t, "0 of ")
	r := ctl(t, "diff", old, changed, "--log", logs).exits(t, exitFinding)
	r.prints(t, "group policy training: maxRestarts: 1 → 2", "1 of 5 failed runs are decided differently", "retries more: 1\n", "Fail DefaultFail by lost/default", "Retry GroupRestart by lost/default")
	ctl(t, "diff", old, changed, "--log", logs, "--semantics", "2").exits(t, exitFinding).prints(t, "0 of ")
	r = ctl(t, "diff", old, changed, "--log", logs, "-o", "json").exits(t, exitFinding)
	r.prints(t, `"effects":1`, `"failures":5`, "GroupRestart")
}

// TestDocumentedGroupTest: the test that docs/policies.md shows passes.
func TestDocumentedGroupTest(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "policies.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "### Tests of groups")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	shown, _, _ := strings.Cut(rest, "```")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(examplesDir)); err != nil {
		t.Fatal(err)
	}
	ctl(t, "test", writeFile(t, dir, "shown_test.yaml", shown)).exits(t, exitFine).prints(t, "1 test in 1 file, 0 failed")
}

// TestSchemaHelpNamesEachKind: the help of schema names the kinds that there are.
func TestSchemaHelpNamesEachKind(t *testing.T) {
	t.Parallel()
	for _, kind := range policyfile.Kinds() {
		inProcess(t, "schema", "--help").exits(t, exitFine).prints(t, kind)
	}
}
