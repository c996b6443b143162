package policyfile

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// TestFieldTexts: every field has a text, and every text a field.
func TestFieldTexts(t *testing.T) {
	t.Parallel()
	used := map[fieldText]bool{}
	for _, f := range Fields() {
		text, ok := textOf(f.Kind, f.Path)
		if !ok || text.meaning == "" || !strings.HasSuffix(text.meaning, ".") {
			t.Errorf("%s %s: no text", f.Kind, f.Path)
		}
		used[text] = true
		if f.Type == "" || !f.Required && f.Default == "" && strings.Contains(f.Path, ".") {
			t.Errorf("%s %s: type %q, default %q", f.Kind, f.Path, f.Type, f.Default)
		}
	}
	for _, text := range slices.Concat(fieldTexts[:], groupTexts[:], matcherTexts[:]) {
		if !used[text] {
			t.Errorf("no field for the text of %q", text.at)
		}
	}
}

// ofNames and ofCounts are the usual limits, which the page of fields states once.
const ofNames, ofCounts = "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends", "0 to 1000000"

// TestFieldsDocumented: the table of fields in docs/reference/fields.md is these texts,
// without rows that only hold others, or say what another one says. With -rewrite it is
// written anew.
func TestFieldsDocumented(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	kind, described := "", map[string]bool{}
	for _, f := range Fields() {
		if strings.HasSuffix(f.Kind, "/v1beta1") {
			continue // Armada's flat form, which the page mentions only
		}
		if f.Kind != kind {
			kind = f.Kind
			fmt.Fprintf(&rows, "\n### %s\n\n%s\n\n| field | unset | meaning |\n|---|---|---|\n", kind, f.Text)
			continue
		}
		text, unset := f.Text, f.Default
		if f.Limits != "" && f.Limits != ofNames && f.Limits != ofCounts && !namesAll(f.Text, f.Limits) {
			text += " Limits: " + f.Limits + "."
		}
		if f.Required {
			unset = "required"
		}
		row := fmt.Sprintf("%s | %s |", unset, text)
		if holds := unset == "required" && f.Type == "a mapping"; holds || unset == "" || described[f.Name()+row] {
			continue
		}
		described[f.Name()+row] = true
		fmt.Fprintf(&rows, "| `%s` | %s\n", f.Path, row)
	}
	const path, from, to = "../../../docs/reference/fields.md", "<!-- fields: written by go test ./internal/policy/policyfile -rewrite -->\n", "\n<!-- end of fields -->"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), from)
	have, after, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks of the table of fields", path)
	}
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(before+from+rows.String()+to+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != rows.String() {
		t.Errorf("%s has another table of fields; run go test ./internal/policy/policyfile -run FieldsDocumented -rewrite", path)
	}
}

// namesAll reports whether a text names all values of an enumeration, such as "In or NotIn".
func namesAll(text, values string) bool {
	for v := range strings.FieldsSeq(strings.ReplaceAll(strings.ReplaceAll(values, ",", ""), " or ", " ")) {
		if !strings.Contains(text, v) || strings.ToUpper(v[:1]) != v[:1] {
			return false
		}
	}
	return true
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ asked, kind, path, err string }{
		{"spec.rules.backoff", "RetryPolicy", "spec.rules.backoff", ""},
		{"spec.rules[].backoff", "RetryPolicy", "spec.rules.backoff", ""},
		{"RetryPolicy", "RetryPolicy", "", ""},
		{"RetryPolicy/v1beta1.retryLimit", "RetryPolicy/v1beta1", "retryLimit", ""},
		{"Queue.mode", "Queue", "mode", ""},
		{"GroupPolicy.spec.parts[].after", "GroupPolicy", "spec.parts.after", ""},
		{"GroupPolicy.spec.rules", "GroupPolicy", "spec.rules", ""},
		{"GroupPolicy.parallelism", "", "", "did you mean GroupPolicy.spec.parts.parallelism?"}, // as it has to be asked
		{"spec.parts.after", "", "", "did you mean GroupPolicy.spec.parts.after?"},
		{"retryLimit", "", "", "did you mean spec.retryLimit?"}, // not that of Armada's flat form
		{"retryPolicies", "", "", "did you mean Queue.retryPolicies?"},
		{"RetrySettings.spec.horizon", "RetrySettings", "spec.horizon", ""},
		{"spec.rules.bakoff", "", "", "did you mean spec.rules.backoff?"},
		{"jitter", "", "", "did you mean spec.backoff.jitter?"},
		{"Queue.nothing-like-it", "", "", "explain field Queue"},
		{"", "RetryPolicy", "", ""},
		{"\x1b[31m", "", "", "unknown field"},
	} {
		f, _, err := Describe(c.asked)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("Describe(%q): %v, want %q", c.asked, err, c.err)
			}
			continue
		}
		if err != nil || f.Kind != c.kind || f.Path != c.path {
			t.Errorf("Describe(%q) = %s %s, %v", c.asked, f.Kind, f.Path, err)
		}
	}
	_, below, err := Describe("spec.rules.onExitCodes")
	if err != nil || len(below) != 2 || below[0].Name() != "operator" {
		t.Errorf("below onExitCodes: %v, %v", below, err)
	}
}

// goodFiles are files that must parse and validate.
func goodFiles(t *testing.T) []File {
	t.Helper()
	var all []File
	for _, dir := range []string{"../../../examples/policies", "../../../cmd/refloatctl/testdata/policies", "../../../cmd/refloatctl/starter"} {
		files, err := LoadDir(os.DirFS(dir))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, f := range files {
			f.Name = filepath.Join(dir, f.Name)
			all = append(all, f)
		}
	}
	return append(all, File{"flat.yaml", []byte("{apiVersion: armadaproject.io/v1beta1, kind: RetryPolicy, name: f, retryLimit: 3, defaultAction: Fail, rules: [{action: RETRY_ACTION_RETRY, onCategory: c, onSubcategory: s}, {action: 1, onCategory: d}]}")},
		File{"group.yaml", []byte(groupExample)},
		File{"groups.yaml", []byte("{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: g}, spec: {rules: []}}\n---\n{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: h}, spec: {parts: [{name: a, after: [b], restarts: {}}, {name: b, onMemberFailure: Continue}]}}")},
		File{"all.yaml", []byte(`apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: a}
spec:
  retryLimit: 0
  defaultAction: Retry
  selectableByJobs: false
  replacement: WhenTerminated
  antiAffinity: {mode: allNodes}
  backoff: {initialDelay: 1h30m, maxDelay: .5h, multiplier: 1.125, jitter: 1}
  rules:
  - name: r
    action: Ignore
    onConditions: [OOMKilled, Evicted, DeadlineExceeded, Preempted, Unschedulable, LeaseReturned, LeaseExpired]
    onExitCodes: {operator: NotIn, values: [0, -1]}
    onTerminationMessage: {pattern: 'a\b'}
    onFailureCategory: [c]
    onFailureSubcategory: [s]
    onRunDuration: {lessThan: 6h, atLeast: 30s}
    containerName: main
    includeInitContainers: true
    retryLimit: 1000000
    backoff: {type: Constant}
    antiAffinity: {mode: none}
    replacement: WhenFailed
---
kind: Queue
name: Q.with/odd_name
mode: Shadow
killed: true
pausedUntil: "2026-12-01T06:00:00Z"
---
kind: RetrySettings
spec: {pausedUntil: "2026-12-01T06:00:00.5+01:00", horizon: 1ms, enabled: false}
`)})
}

// badDocuments are refused by the JSON Schema as well as by Parse.
var badDocuments = []string{
	"[]",
	"{}",
	"{kind: Job}",
	"{kind: RetryPolicy, metadata: {name: a}, spec: {}}",
	"{apiVersion: armadaproject.io/v2, kind: RetryPolicy, metadata: {name: a}, spec: {}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, spec: {}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: A}, spec: {}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a, labels: {}}, spec: {}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {retries: 1}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {retryLimit: -1}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {retryLimit: 1000001}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {retryLimit: many}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {defaultAction: Ignore}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {selectableByJobs: 'yes'}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {backoff: {initialDelay: 10}}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {backoff: {initialDelay: ''}}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {backoff: {initialDelay: -5s}}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {backoff: {multiplier: 0.5}}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {backoff: {jitter: 2}}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {backoff: {type: Linear}}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {backoff: {type: Constant, multiplier: 1}}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {antiAffinity: {mode: rack}}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {antiAffinity: {}}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {replacement: Never}}",
	"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {mutate: {}}}",
	oneRule("{action: Retry}"),
	oneRule("{onConditions: [Evicted]}"),
	oneRule("{action: Restart, onConditions: [Evicted]}"),
	oneRule("{action: Retry, onConditions: []}"),
	oneRule("{action: Retry, onConditions: [Evicted, Evicted]}"),
	oneRule("{action: Retry, onConditions: [OOM]}"),
	oneRule("{action: Retry, onConditions: Evicted}"),
	oneRule("{action: Retry, onExitCodes: {operator: In, values: []}}"),
	oneRule("{action: Retry, onExitCodes: {operator: In, values: [0]}}"),
	oneRule("{action: Retry, onExitCodes: {operator: Is, values: [1]}}"),
	oneRule("{action: Retry, onExitCodes: {values: [1]}}"),
	oneRule("{action: Retry, onExitCodes: {operator: In, values: [1.5]}}"),
	oneRule("{action: Retry, onExitCodes: {operator: In, values: [3000000000]}}"),
	oneRule("{action: Retry, onRunDuration: {}}"),
	oneRule("{action: Retry, onRunDuration: 30s}"),
	oneRule("{action: Retry, onRunDuration: {lessThan: 30}}"),
	oneRule("{action: Retry, onRunDuration: {moreThan: 30s}}"),
	oneRule("{action: Retry, onTerminationMessage: {pattern: ''}}"),
	oneRule("{action: Retry, onTerminationMessage: x}"),
	oneRule("{action: Retry, onFailureCategory: [\"\\e[31m\"]}"),
	oneRule("{action: Retry, onFailureSubcategory: [s]}"),
	oneRule("{action: Retry, onConditions: [Evicted], onFailureSubcategory: [s]}"),
	oneRule("{action: Retry, name: default, onConditions: [Evicted]}"),
	oneRule("{action: Retry, name: -a, onConditions: [Evicted]}"),
	oneRule("{action: Retry, onConditions: [Evicted], defaultAction: Fail}"),
	"{apiVersion: armadaproject.io/v1beta1, kind: RetryPolicy, name: a}",
	"{apiVersion: armadaproject.io/v1beta1, kind: RetryPolicy, name: a, defaultAction: Ignore}",
	"{apiVersion: armadaproject.io/v1beta1, kind: RetryPolicy, name: a, defaultAction: Fail, rules: [{action: Retry}]}",
	"{apiVersion: armadaproject.io/v1beta1, kind: RetryPolicy, metadata: {name: a}, spec: {}}",
	"{apiVersion: armadaproject.io/v1, kind: GroupPolicy, metadata: {name: a}, spec: {}}",
	"{kind: GroupPolicy, metadata: {name: a}, spec: {}}",
	"{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: a}}",
	oneGroup("rules: [{action: Halt}]"),
	oneGroup("rules: [{name: a}]"),
	oneGroup("rules: [{name: restarts, action: Halt}]"),
	oneGroup("rules: [{name: a, action: Retry}]"),
	oneGroup("rules: [{name: a, action: Halt, onReasons: []}]"),
	oneGroup("rules: [{name: a, action: Halt, onReasons: [ReachedMaxRestarts]}]"),
	oneGroup("rules: [{name: a, action: Halt, onReasons: [FailedIndexes, FailedIndexes]}]"),
	oneGroup("rules: [{name: a, action: Halt, parts: main}]"),
	oneGroup("rules: [{name: a, action: Halt, onMessage: {}}]"),
	oneGroup("maxRestarts: -1"),
	oneGroup("completed: Never"),
	oneGroup("unit: {restarts: {on: OnSuccess, limit: 1}}"),
	oneGroup("unit: {parts: []}"),
	oneGroup("parts: []"),
	oneGroup("parts: [{members: 3}]"),
	oneGroup("parts: [{name: a, members: 0}]"),
	oneGroup("parts: [{name: a, replicas: 100001}]"),
	oneGroup("parts: [{name: a, after: []}]"),
	oneGroup("parts: [{name: a, maxFailedMembers: 1}]"),
	oneGroup("parts: [{name: a, maxFailedMembers: 1, onMemberFailure: FailUnit}]"),
	oneGroup("parts: [{name: a, onMemberFailure: Fail}]"),
	"{kind: Queue}",
	"{kind: Queue, name: a b}",
	"{kind: Queue, name: a, retryPolicies: infra}",
	"{kind: Queue, name: a, mode: Off}",
	"{kind: Queue, name: a, pausedUntil: tomorrow}",
	"{kind: RetrySettings}",
	"{kind: RetrySettings, spec: {globalMaxRetries: '20'}}",
	"{apiVersion: armadaproject.io/v1beta1, kind: RetrySettings, spec: {}}",
}

func oneGroup(spec string) string {
	return "{apiVersion: refloat.github.io/v1, kind: GroupPolicy, metadata: {name: a}, spec: {" + spec + "}}"
}

func oneRule(r string) string {
	return "{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: a}, spec: {rules: [" + r + "]}}"
}

func TestJSONSchema(t *testing.T) {
	t.Parallel()
	whole := schemaDocument(t, "")
	for _, f := range goodFiles(t) {
		roots, err := Nodes(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, root := range roots {
			if why := validate(whole, valueOf(root)); why != "" {
				t.Errorf("%s:%d: %s", f.Name, root.Line, why)
			}
			kind, _ := scalarAt(root, "kind")
			if why := validate(schemaDocument(t, kind), valueOf(root)); why != "" {
				t.Errorf("%s:%d: by the schema of %s: %s", f.Name, root.Line, kind, why)
			}
		}
	}
	for _, doc := range badDocuments {
		file := File{"bad.yaml", []byte(doc)}
		roots, err := Nodes(file)
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		if validate(whole, valueOf(roots[0])) == "" {
			t.Errorf("the schema takes %s", doc)
		}
		if _, err := Parse([]File{file}); err == nil {
			t.Errorf("Parse takes %s", doc)
		}
	}
	if _, err := JSONSchema("RetryPolcy"); err == nil || !strings.Contains(err.Error(), "did you mean RetryPolicy?") {
		t.Errorf("JSONSchema of no kind: %v", err)
	}
	// For a look from outside: every keyword has a value that validators know.
	if dir := os.Getenv("SCHEMA_OUT"); dir != "" {
		writeCorpus(t, dir)
	}
}

func schemaDocument(t *testing.T, kind string) map[string]any {
	t.Helper()
	b, err := JSONSchema(kind)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if doc["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
		t.Errorf("$schema is %v", doc["$schema"])
	}
	return doc
}

// writeCorpus leaves schema, good and bad documents for another validator.
func writeCorpus(t *testing.T, dir string) {
	t.Helper()
	b, err := JSONSchema("")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"schema.json": b}
	for i, doc := range badDocuments {
		roots, _ := Nodes(File{"", []byte(doc)})
		files[fmt.Sprintf("bad%02d.json", i)], _ = json.Marshal(valueOf(roots[0]))
	}
	n := 0
	for _, f := range goodFiles(t) {
		roots, _ := Nodes(f)
		for _, root := range roots {
			files[fmt.Sprintf("good%02d.json", n)], _ = json.Marshal(valueOf(root))
			n++
		}
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// valueOf is a YAML node as JSON has it.
func valueOf(n *yaml.Node) any {
	switch {
	case n.Kind == yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = valueOf(n.Content[i+1])
		}
		return m
	case n.Kind == yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			list = append(list, valueOf(c))
		}
		return list
	case n.Tag == "!!int" || n.Tag == "!!float":
		f, _ := strconv.ParseFloat(n.Value, 64)
		return f
	case n.Tag == "!!bool":
		return n.Value == "true"
	case n.Tag == "!!null":
		return nil
	}
	return n.Value
}

// validate is as much of JSON Schema as ours use. It returns what is wrong; an
// unknown keyword is wrong too. That whole validators agree was tried by hand.
func validate(s map[string]any, v any) string {
	for keyword, arg := range s {
		if why := validateKeyword(s, keyword, arg, v); why != "" {
			return why
		}
	}
	return ""
}

func validateKeyword(s map[string]any, keyword string, arg, v any) string {
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	text, isText := v.(string)
	number, isNumber := v.(float64)
	bad := func(ok bool) string {
		if ok {
			return ""
		}
		return fmt.Sprintf("%.60v: %s %.80v", v, keyword, arg)
	}
	holds := func(sub any) bool { m, _ := sub.(map[string]any); return validate(m, v) == "" }
	switch keyword {
	case "$schema", "title", "description", "examples", "format", "then":
		return ""
	case "type":
		ok := map[any]bool{"object": isObject, "array": isList, "string": isText, "number": isNumber, "integer": isNumber && number == float64(int64(number))}
		_, isBool := v.(bool)
		return bad(ok[arg] || arg == "boolean" && isBool)
	case "enum":
		return bad(slices.Contains(arg.([]any), func() any {
			if isObject || isList {
				return nil
			}
			return v
		}()))
	case "const":
		return bad(!isObject && !isList && v == arg)
	case "pattern":
		return bad(!isText || regexp.MustCompile(arg.(string)).MatchString(text))
	case "minLength":
		return bad(!isText || float64(utf8.RuneCountInString(text)) >= arg.(float64))
	case "maxLength":
		return bad(!isText || float64(utf8.RuneCountInString(text)) <= arg.(float64))
	case "minimum":
		return bad(!isNumber || number >= arg.(float64))
	case "maximum":
		return bad(!isNumber || number <= arg.(float64))
	case "minItems":
		return bad(!isList || float64(len(list)) >= arg.(float64))
	case "minProperties":
		object, _ := v.(map[string]any)
		return bad(!isObject || float64(len(object)) >= arg.(float64))
	case "maxItems":
		return bad(!isList || float64(len(list)) <= arg.(float64))
	case "uniqueItems":
		seen := map[string]bool{}
		for _, item := range list {
			key := fmt.Sprint(item)
			if seen[key] {
				return bad(false)
			}
			seen[key] = true
		}
		return ""
	case "items":
		for _, item := range list {
			if why := validate(arg.(map[string]any), item); why != "" {
				return why
			}
		}
		return ""
	case "required":
		for _, name := range arg.([]any) {
			if _, there := object[name.(string)]; isObject && !there {
				return bad(false)
			}
		}
		return ""
	case "dependentRequired":
		for name, others := range arg.(map[string]any) {
			if _, there := object[name]; there {
				if why := validateKeyword(s, "required", others, v); why != "" {
					return why
				}
			}
		}
		return ""
	case "properties":
		for name, sub := range arg.(map[string]any) {
			if value, there := object[name]; there {
				if why := validate(sub.(map[string]any), value); why != "" {
					return name + ": " + why
				}
			}
		}
		return ""
	case "additionalProperties":
		properties, _ := s["properties"].(map[string]any)
		for name := range object {
			if _, known := properties[name]; !known && arg == false {
				return bad(false)
			}
		}
		return ""
	case "not":
		return bad(!holds(arg))
	case "if":
		return bad(!holds(arg) || holds(s["then"]))
	case "anyOf", "oneOf":
		n := 0
		for _, sub := range arg.([]any) {
			if holds(sub) {
				n++
			}
		}
		return bad(n == 1 || n > 1 && keyword == "anyOf")
	}
	return "unknown keyword " + keyword
}
