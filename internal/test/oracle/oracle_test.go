package oracle

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const text = `{"id": "r#1", "policy": {"limit": 2, "name": {"$chain": [{"fn": "strings.Repeat", "args": ["ab", 3]}]}},
	"expected": {"ok": true, "used": 1, "code": "A", "list": [{"why": null}], "words": "any"}}`

// blind compares the code only, and admits to what is in silent.
func blind(silent map[string]string) *Suite {
	return &Suite{Silent: silent, Run: func(c *Check) {
		var p struct {
			Limit int
			Name  string
		}
		var expected struct{ Code string }
		if !c.Inputs(map[string]any{"policy": &p}) || c.LeaveOut(Reason{Holds: p.Limit != 2, Why: "another limit"}) || !c.Expected(&expected) {
			return
		}
		Equal(c, "name", p.Name, "ababab")
		Equal(c, "code", "A", expected.Code)
		if p.Limit == 0 {
			c.Fatalf("no limit")
		}
		_ = 1 / p.Limit / (p.Limit - 7)
	}}
}

// TestMutations: a suite that does not compare what it should is found out.
func TestMutations(t *testing.T) {
	t.Parallel()
	r, err := ParseRow(text)
	if err != nil {
		t.Fatal(err)
	}
	unnoticed := func(s *Suite) (paths []string) {
		if result := s.Try(&r); result.Failed() || result.LeftOut != "" {
			t.Fatalf("%+v", result)
		}
		for _, m := range s.Mutations(&r, map[string][]any{"expected.code": {"A", "B"}, "expected.more": {"C"}}) {
			if result := s.Try(&m.Row); !result.Failed() {
				paths = append(paths, m.Path)
			}
		}
		return paths
	}
	s := blind(nil)
	s.Optional = []string{"expected.more"}
	if got, want := strings.Join(unnoticed(s), " "), "expected.list expected.list[0].why expected.ok expected.used expected.words expected.more"; got != want {
		t.Errorf("unnoticed: %s, want %s", got, want)
	}
	honest := blind(map[string]string{"expected.list": "?", "expected.ok": "?", "expected.used": "?", "expected.words": "?"})
	if got := unnoticed(honest); len(got) > 0 {
		t.Errorf("unnoticed: %v", got)
	}
}

// TestTry: what becomes of a row that is left out, that cannot be read, that passes though it is left out, or that
// makes the suite panic.
func TestTry(t *testing.T) {
	t.Parallel()
	silent := map[string]string{"expected.list": "?", "expected.ok": "?", "expected.used": "?", "expected.words": "?"}
	for change, want := range map[string]Result{
		`"limit": 2`:               {},
		`"limit": 0`:               {LeftOut: "another limit"},
		`"limit": 7`:               {LeftOut: "another limit"},
		`"limit": 3`:               {Despite: "another limit"},
		`"limit": "2"`:             {Findings: []string{"the suite does not read policy: "}},
		`"limit": 2, "more": true`: {Findings: []string{"the suite does not read policy: unknown field"}},
		`"limit": {"$now": "?"}`:   {LeftOut: "built by a Go expression"},
	} {
		r, err := ParseRow(strings.Replace(text, `"limit": 2`, change, 1))
		if err != nil {
			t.Fatal(err)
		}
		got := blind(silent).Try(&r)
		if len(got.Findings) != len(want.Findings) || got.Failed() && !strings.HasPrefix(got.Findings[0], want.Findings[0]) ||
			!strings.HasPrefix(got.LeftOut, want.LeftOut) || want.LeftOut == "" && got.LeftOut != "" || got.Despite != want.Despite {
			t.Errorf("%s: %+v, want %+v", change, got, want)
		}
	}
	r, err := ParseRow(strings.Replace(text, `"limit": 2`, `"limit": 7`, 1))
	if err != nil {
		t.Fatal(err)
	}
	careless := blind(silent)
	careless.Run = func(c *Check) { blind(silent).Run(&Check{row: c.row, forced: true}) }
	if got := careless.Try(&r); !got.Failed() || !strings.HasPrefix(got.Findings[0], "panic: runtime error: integer divide by zero") {
		t.Errorf("a panic: %+v", got)
	}
}

// TestSchema: a row that breaks the schema of its file is named, with the field and what is wanted, and stops no other.
func TestSchema(t *testing.T) {
	t.Parallel()
	schema, err := ReadSchema()
	if err != nil {
		t.Fatal(err)
	}
	limit := func(id, policy, observed, more string) string {
		return `{"id": ` + id + `, "policy": {` + policy + `}, "observed": {` + observed + `}, "expected": {"expectedActive": 1}` + more + `}`
	}
	rows := []struct{ row, wrong string }{
		{limit(`"a"`, `"backoffLimit": 1`, ``, ``), ""},
		{limit(`"b"`, `"backoffLimit": "one"`, ``, ``), `policy.backoffLimit: the text "one", want a whole number`},
		{limit(`"c"`, `"backofLimit": 1`, ``, ``), `policy.backofLimit: unknown field, want one of activeDeadlineSeconds, `},
		{limit(`"d"`, ``, `"failedPods": 1.5`, ``), `observed.failedPods: 1.5, want a whole number`},
		{limit(`"e"`, ``, `"restartCounts": [0, null]`, ``), `observed.restartCounts[1]: null, want a whole number`},
		{limit(`"f"`, ``, ``, `, "steps": []`), `steps: unknown field, want one of `},
		{limit(`"a"`, ``, ``, ``), `id: also the id of rows[0], want one of its own`},
		{limit(`7`, ``, ``, ``), `id: 7, want a text`},
		{`{"id": "h", "policy": null, "expected": {}}`, `observed: missing, want an object; policy: null, want an object`},
		{`{"id": "i", "policy": [], "observed": {}, "expected": {"expectedConditions": [{"reason": "X"}]}}`, `expected.expectedConditions[0].type: missing, want a text; policy: a list, want an object`},
		{`"a text"`, `the text "a text", want an object`},
		{limit(`"j"`, `"podFailurePolicy": {"rules": [{"onExitCodes": {"values": [4294967296]}}]}`, ``, ``), `policy.podFailurePolicy.rules[0].onExitCodes.values[0]: 4294967296, want a whole number of 32 bits`},
		{limit(`"k"`, ``, `"activePodsPhase": {"$now": "?"}`, ``), ""},
		{limit(`"z"`, ``, ``, ``), ""},
	}
	var all []string
	for _, r := range rows {
		all = append(all, r.row)
	}
	read, err := schema.read("k8s_backoff_limit.json", []byte(`{"rows": [`+strings.Join(all, ",")+`]}`))
	if err != nil || len(read) != len(rows) {
		t.Fatalf("%v, %d rows", err, len(read))
	}
	for i, r := range rows {
		if got := strings.Join(read[i].Wrong, "; "); !strings.HasPrefix(got, r.wrong) || r.wrong == "" && got != "" {
			t.Errorf("%s: %q, want %q", r.row, got, r.wrong)
		}
	}
	steps := `{"id": "s", "policy": {"replicatedJobs": []}, "steps": [{"observe": %, "expect": {}}]}`
	for observe, want := range map[string]string{
		`"a text"`:                           "",
		`{"jobFailed": {"reason": ""}}`:      "",
		`{"jobFailed": {"reason": 1}}`:       "steps[0].observe.jobFailed.reason: 1, want a text",
		`3`:                                  "steps[0].observe: 3, want an object or a text",
		`{"podFailed": {}, "jobFailed": {}}`: "steps[0].observe.podFailed: unknown field, want one of jobFailed",
	} {
		var fields map[string]any
		if err := decode([]byte(strings.Replace(steps, "%", observe, 1)), &fields, false); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(schema.Check("jobset_integration.json", fields), "; "); got != want {
			t.Errorf("%s: %q, want %q", observe, got, want)
		}
	}
}

// TestFiles: every row of every file fits the schema, and every file has packages that read it, or a reason why none does.
// A suite runs each row or leaves it out with a reason, so no row is read by nothing.
func TestFiles(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := ReadSchema()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "testdata", "oracles")
	found, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	declared := slices.Sorted(maps.Keys(schema.Files))
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	if !slices.Equal(found, declared) {
		t.Errorf("testdata/oracles has %v, schema.yaml %v", found, declared)
	}
	for _, file := range declared {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Error(err)
			continue
		}
		var counted struct {
			RowCount int `json:"row_count"`
			Rows     []json.RawMessage
		}
		if err := decode(data, &counted, false); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if counted.RowCount != len(counted.Rows) {
			t.Errorf("%s: row_count: %d, want %d, the number of its rows", file, counted.RowCount, len(counted.Rows))
		}
		rows, err := Load(file)
		if err != nil {
			t.Error(err)
		}
		for i := range rows {
			for _, wrong := range rows[i].Wrong {
				t.Errorf("%s: row %s: %s", file, rows[i].ID, wrong)
			}
		}
		f := schema.Files[file]
		if (len(f.ReadBy) == 0) != (f.Unread != "") {
			t.Errorf("%s: schema.yaml must name the packages that read it, or say why none does", file)
		}
		for _, reader := range f.ReadBy {
			if !names(t, filepath.Join(root, reader), strconv.Quote(file)) {
				t.Errorf("%s: schema.yaml says that %s reads it, and no test there names it", file, reader)
			}
		}
	}
}

// names says whether a test in a directory has a text.
func names(t *testing.T, dir, text string) bool {
	t.Helper()
	tests, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(tests, func(file string) bool {
		data, err := os.ReadFile(file)
		return err == nil && bytes.Contains(data, []byte(text))
	})
}

// TestExpand: the lists of Kubernetes' tests that are one item too long.
func TestExpand(t *testing.T) {
	t.Parallel()
	for fn, want := range map[string]int{
		"func() []int32 {\n\tvalues := make([]int32, maxPodFailurePolicyOnExitCodesValues+1)\n}":                             256,
		"func() []batch.PodFailurePolicyRule { r := make([]batch.PodFailurePolicyRule, maxPodFailurePolicyRules+1) }":        21,
		"func() { p := make([]batch.PodFailurePolicyOnPodConditionsPattern, maxPodFailurePolicyOnPodConditionsPatterns+1) }": 21,
		"func() []int32 { return make([]int32, maxPodFailurePolicyOfAnotherKind+1) }":                                        -1,
		"func() []batch.SuccessPolicyRule { return make([]batch.SuccessPolicyRule, maxPodFailurePolicyRules+1) }":            -1,
	} {
		list, ok := Expand(map[string]any{"$chain": []any{map[string]any{"fn": fn, "args": []any{}}}}).([]any)
		if !ok && want >= 0 || ok && len(list) != want {
			t.Errorf("%s: %d items, want %d", fn, len(list), want)
		}
	}
}
