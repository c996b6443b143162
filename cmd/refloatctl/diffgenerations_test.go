package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// withGenerations is a data directory with decided runs in which ann changed a rule two hours before the first of them, and bob
// removed a policy two hours after the last one. It also returns the number of decisions.
func withGenerations(t *testing.T) (data string, decided uint64) {
	t.Helper()
	data = drainedCopy(t)
	var first, last string
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
		d := jsonLine(t, line).text("eventTime")
		if first == "" || d < first {
			first = d
		}
		last = max(last, d)
		decided++
	}
	if err := os.RemoveAll(app.Dir(data).Policies()); err != nil {
		t.Fatal(err)
	}
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: app.Dir(data).Policies(), Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	now := parseTime(t, first).Add(-48 * time.Hour)
	store, err := policylog.OpenStore(log, func(_ context.Context, payload []byte) error {
		return log.AppendSync(t.Context(), 0, []eventlog.Message{{Payload: payload}})
	}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	begin, err := app.ReadPolicies(t.Context(), testPolicies)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := begin.Assign("policies.infra.rules[0].retryLimit=9")
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range []struct {
		author string
		at     time.Time
		set    *policyfile.Set
	}{
		{"eve", now, begin},
		{"ann", parseTime(t, first).Add(-2 * time.Hour), changed},
		{"bob", parseTime(t, last).Add(2 * time.Hour), changed.Without(policyfile.ID{Kind: policyfile.KindPolicy, Name: "extra"})},
	} {
		now = g.at
		if v, err := store.Do(t.Context(), policylog.Edit{Author: g.author, Reason: "reason of " + g.author, Make: func(policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
			return g.set, nil, nil
		}}); err != nil || v.Number != uint64(i+1) {
			t.Fatal(v, err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return data, decided
}

// TestDiffGenerations: one command says what changed since a generation or a time, who changed it, and what became of decisions.
func TestDiffGenerations(t *testing.T) {
	t.Parallel()
	data, decided := withGenerations(t)
	const change = "changed  rule infra/"
	ann := ctl(t, "diff", "--from", "1", "--to", "2", "--data", data).exits(t, exitFinding)
	ann.prints(t, "generation 2 against generation 1\n", change, "retryLimit: (unset) → 9", "ann", "reason of ann", "RetryPolicy infra updated", "before generation 2 came → after it; the hour", "policy infra", "rule infra/")
	if strings.Contains(ann.out, "bob") || strings.Contains(ann.out, "extra") {
		t.Errorf("what came later is in it:\n%s", ann.out)
	}
	both := ctl(t, "diff", "--from", "1", "--data", data).exits(t, exitFinding).prints(t, "generation 3 against generation 1\n", change, "removed  policy extra", "ann", "bob", "There is no decision in the 24 hours before generation 2 came, or after generation 3;").out
	ctl(t, "diff", "--from", "30000d", "--data", data).exits(t, exitUsage).prints(t, "--from 30000d: the policies log begins later, with generation 1 at 20")
	ctl(t, "diff", "--from", "0s", "--data", data).exits(t, exitFine).prints(t, "generation 3 against generation 3\nthe policies are equal\n")
	ctl(t, "diff", "--from", "0", "--to", "1", "--data", data).exits(t, exitFinding).prints(t, "added    policy infra", "eve")
	ctl(t, "diff", "--from", "3", "--to", "1", "--data", data).exits(t, exitUsage).prints(t, "generation 1 is older than 3")
	ctl(t, "diff", "--from", "4", "--data", data).exits(t, exitUsage).prints(t, "--from 4: there is no generation 4")
	ctl(t, "diff", "--from", "generation:3", "--data", data).exits(t, exitFine).prints(t, "generation 3 against generation 3\n")
	ctl(t, "diff", "--from", "2200-01-01", "--data", data).exits(t, exitUsage).prints(t, `--from "2200-01-01" lies in the future`)
	ctl(t, "diff", "--from", "1", "--to", "soon", "--data", data).exits(t, exitUsage).prints(t, "--to", "or a generation such as 7")
	ctl(t, "diff", "--to", "1", "--data", data).exits(t, exitUsage).prints(t, "--to needs --from")
	ctl(t, "diff", "--from", "1", testPolicies, testPolicies, "--data", data).exits(t, exitUsage).prints(t, "omit OLD, NEW and --log")
	ctl(t, "diff", "--data", data).exits(t, exitUsage).prints(t, "diff needs OLD and NEW, or --from")

	// What was decided lies after the first change, and before the second.
	for _, c := range []struct{ from, to, before, after string }{{"1", "2", "0", fmt.Sprint(decided)}, {"2", "3", fmt.Sprint(decided), "0"}} {
		rows := 0
		for line := range strings.Lines(ctl(t, "diff", "--from", c.from, "--to", c.to, "--data", data, "-o", "json").exits(t, exitFinding).out) {
			o := jsonLine(t, line)
			if s, ok := o["summary"].(map[string]any); ok && (object(s).number("changes") != 1 && c.from == "1" || fmt.Sprintf("%v %v", s["from"], s["to"]) != c.from+" "+c.to) {
				t.Errorf("summary %v", s)
			}
			row, ok := o["decisions"].(map[string]any)
			if !ok {
				continue
			}
			rows++
			sum := func(side string) string {
				n := int64(0)
				for _, effect := range []string{"retried", "failedForGood", "inShadow", "superseded"} {
					n += object(row[side].(map[string]any)).number(effect)
				}
				return fmt.Sprint(n)
			}
			if before, after := sum("before"), sum("after"); row["of"] == "all" && (before != c.before || after != c.after) {
				t.Errorf("%v: %s before, %s after, want %s and %s", c, before, after, c.before, c.after)
			}
		}
		if rows < 2 {
			t.Errorf("%v: %d rows of decisions", c, rows)
		}
	}

	// Without a job database, what became of decisions is not known, and the rest is.
	if err := os.Remove(app.Dir(data).JobDB()); err != nil {
		t.Fatal(err)
	}
	r := ctl(t, "diff", "--from", "1", "--data", data).exits(t, exitFinding).prints(t, change, "What became of decisions is not known:")
	if strings.Contains(r.out, "DECISIONS OF") || !strings.HasPrefix(both, r.out) {
		t.Errorf("without a job database:\n%s\nwith one:\n%s", r.out, both)
	}
}

// TestDiffOnAServer: a server answers what its data directory does.
func TestDiffOnAServer(t *testing.T) {
	t.Parallel()
	data, _ := withGenerations(t)
	want := ctl(t, "diff", "--from", "1", "--data", data).exits(t, exitFinding).out
	p, _ := served(t, data)
	address, err := os.ReadFile(app.Dir(data).APIAddress())
	if err != nil {
		t.Fatal(err)
	}
	for _, where := range [][]string{{"--data", data}, {"--server", strings.TrimSpace(string(address))}} {
		ctl(t, append([]string{"diff", "--from", "1"}, where...)...).exits(t, exitFinding).prints(t, want)
		ctl(t, append([]string{"whatif", "--policies", "generation:1", "--against", "generation:3"}, where...)...).prints(t, "generation 1, against generation 3: ")
	}
	ctl(t, "diff", "--from", "1", "--server", strings.TrimSpace(string(address)), "--data", filepath.Dir(data)).exits(t, exitUsage).prints(t, "two places to ask")
	p.ends(t)
}

// TestWhatifOfGenerations: a generation is a candidate, or what candidates are compared with, as its files are.
func TestWhatifOfGenerations(t *testing.T) {
	t.Parallel()
	data, _ := withGenerations(t)
	path := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(path, []byte(ctl(t, "get", "resources", "--generation", "2", "--data", data, "-o", "yaml").exits(t, exitFine).out), 0o644); err != nil {
		t.Fatal(err)
	}
	whatif := func(args ...string) object {
		t.Helper()
		r := inProcess(t, append([]string{"whatif", "-o", "json"}, args...)...)
		if r.code != exitFine && r.code != exitFinding {
			t.Fatal(r.err)
		}
		return jsonLine(t, r.out)
	}
	same := func(a, b object) {
		t.Helper()
		for _, field := range []string{"compared", "changed", "retriesFewer", "retriesMoreAtLeast", "unitsCompared"} {
			if a.number(field) != b.number(field) {
				t.Errorf("%s: %d and %d", field, a.number(field), b.number(field))
			}
		}
	}
	one, two := whatif("--data", data, "--policies", "generation:2"), whatif("--data", data, "--policies", path)
	same(one, two)
	if one.text("candidate") != "generation 2" || !strings.HasPrefix(one.text("verdict"), "generation 2, against what was decided: ") {
		t.Errorf("%s: %s", one.text("candidate"), one.text("verdict"))
	}
	log := app.Dir(data).Events()
	now := whatif("--data", data, "--policies", "now", "--against", "generation:1")
	same(now, whatif("--log", log, "--decisions", app.Dir(data).Decisions(), "--policies", "generation:3", "--against", testPolicies))
	if now.text("candidate") != "the policies in force" || now.text("against") != "generation 1" {
		t.Errorf("%s against %s", now.text("candidate"), now.text("against"))
	}
	for _, c := range []struct{ args, want string }{
		{"--data " + data + " --policies generation:7", "--policies generation:7: there is no generation 7"},
		{"--data " + data + " --policies generation:x", "or a generation such as 7"},
		{"--data " + data + " --policies generation:30000d", "the policies log begins later"},
		{"--data " + data + " --policies now --against generation:", "--against generation:: which one?"},
		{"--data " + data + " --policies generation:2200-01-01", "lies in the future"},
		{"--data " + data + " --policies decided", "is no candidate"},
		{"--log " + log + " --policies generation:1 --against " + path, "--log alone has no policies log"},
		{"--log " + log + " --policies now --against " + path, "--log alone has no policies"},
	} {
		ctl(t, append([]string{"whatif"}, strings.Fields(c.args)...)...).exits(t, exitUsage).prints(t, c.want)
	}
	for path, want := range map[string]string{"1": "; did you mean generation:1?", "24h": "; did you mean generation:24h?", "nope": "\n"} {
		ctl(t, "whatif", "--data", data, "--policies", path).exits(t, exitEnvironment).prints(t, "--policies "+path+": no such file or directory"+want)
	}
}

// TestSimulateGenerations: generations of a policies log are candidates of a simulation, as their files are.
func TestSimulateGenerations(t *testing.T) {
	t.Parallel()
	data, _ := withGenerations(t)
	simulate := func(policies string, args ...string) result {
		t.Helper()
		return ctl(t, append([]string{"simulate", "--policies", policies, "--jobs", "50", "--seeds", "1"}, args...)...)
	}
	both := simulate("generation:1,now", "--data", data).exits(t, exitFine).prints(t, "generation 1", "generation 3")
	files := simulate(testPolicies, "--data", data).exits(t, exitFine)
	body := func(r result) string {
		_, after, _ := strings.Cut(r.out, "\n")
		return after
	}
	if one := simulate("generation:1", "--data", data).exits(t, exitFine); body(one) != body(files) || body(one) == body(both) {
		t.Errorf("of generation 1:\n%s\nof its files:\n%s", one.out, files.out)
	}
	simulate("generation:1").exits(t, exitUsage).prints(t, "--data DIR or --server HOST:PORT is required")
	simulate("generation:9", "--data", data).exits(t, exitUsage).prints(t, "--policies generation:9: there is no generation 9")
	simulate("1").exits(t, exitEnvironment).prints(t, "did you mean generation:1?")
}

// TestOneGeneration: a comparison of the only generation with itself says so.
func TestOneGeneration(t *testing.T) {
	t.Parallel()
	ctl(t, "diff", "--from", "1", "--data", drainedCopy(t)).exits(t, exitFine).prints(t, "there is only one generation: --from 0")
}
