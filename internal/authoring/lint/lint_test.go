package lint_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/authoring/lint"
	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

var rewrite = flag.Bool("rewrite", false, "write the table of codes in docs/policies.md anew")

// lintText lints one file; tests of policies are read as such.
func lintText(t *testing.T, text string) policyfile.Problems {
	t.Helper()
	file := policyfile.File{Name: "p.yaml", Data: []byte(text)}
	if strings.Contains(text, "kind: "+suite.Kind) {
		_, err := suite.Parse(file)
		return err.(policyfile.Problems) //nolint:errorlint,forcetypeassert // it is no other
	}
	categories, err := lint.ParseCategories(policyfile.File{Name: "c.txt", Data: []byte("infrastructure/gpu # broken\nc\nuser\n")})
	if err != nil {
		t.Fatal(err)
	}
	problems, err := lint.Lint([]policyfile.File{file}, categories)
	if err != nil {
		t.Fatal(err)
	}
	return problems
}

// TestCodes: every code that the sources name is in the table with its severity,
// and has an example that triggers it.
func TestCodes(t *testing.T) {
	t.Parallel()
	known := map[string]lint.Code{}
	for _, c := range lint.Codes() {
		known[c.Code] = c
	}
	var sources []string
	for _, dir := range []string{"../../policy/policyfile", ".", "../suite"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, files...)
	}
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range regexp.MustCompile(`"RP[0-9]{3}"`).FindAllString(string(b), -1) {
			if _, ok := known[strings.Trim(code, `"`)]; !ok {
				t.Errorf("%s: %s is not in the table", name, code)
			}
		}
	}
	for _, c := range lint.Codes() {
		t.Run(c.Code, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("testdata", "codes", c.Code+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			problems := lintText(t, string(text))
			i := slices.IndexFunc(problems, func(p policyfile.Problem) bool { return p.Code == c.Code })
			if i < 0 {
				t.Fatalf("its example gives\n%v", problems)
			}
			if p := problems[i]; p.Severity != c.Severity || p.Line < 1 || p.Column < 1 || p.Message == "" || p.Fix == "" {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestCodesDocumented: docs/reference/fields.md lists the warnings and notes. An error explains itself where it occurs.
func TestCodesDocumented(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	rows.WriteString("| code | severity | meaning |\n|---|---|---|\n")
	for _, c := range lint.Codes() {
		if c.Severity == policyfile.Error {
			continue
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", c.Code, c.Severity, c.Text)
	}
	const path, from, to = "../../../docs/reference/fields.md", "<!-- codes: written by go test ./internal/authoring/lint -rewrite -->\n", "\n<!-- end of codes -->"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), from)
	have, after, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks of the table of codes", path)
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(before+from+rows.String()+to+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != rows.String() {
		t.Errorf("%s has another table of codes; run go test ./internal/authoring/lint -run CodesDocumented -rewrite", path)
	}
}

// policyOf is a policy of these rules.
func policyOf(name string, rules ...string) string {
	return "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: " + name + "}\nspec:\n  rules:\n  - " + strings.Join(rules, "\n  - ") + "\n"
}

func TestShadowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		rules []string
		want  bool // the last one is reported
	}{
		{"same in other words", []string{"{action: Retry, onExitCodes: {operator: NotIn, values: [0]}}", "{action: Fail, onExitCodes: {operator: In, values: [1]}}"}, true},
		{"by two together", []string{"{action: Retry, onConditions: [Evicted]}", "{action: Retry, onConditions: [Preempted]}", "{action: Fail, onConditions: [Preempted, Evicted]}"}, true},
		{"by one of two", []string{"{action: Retry, onConditions: [Evicted]}", "{action: Fail, onConditions: [Preempted, Evicted]}"}, false},
		{"narrower", []string{"{action: Retry, onFailureCategory: [a, b]}", "{action: Fail, onFailureCategory: [b], onFailureSubcategory: [s]}"}, true},
		{"wider", []string{"{action: Retry, onFailureCategory: [a], onFailureSubcategory: [s]}", "{action: Fail, onFailureCategory: [a]}"}, false},
		{"another container", []string{"{action: Retry, onExitCodes: {operator: In, values: [1]}}", "{action: Fail, containerName: main, onExitCodes: {operator: In, values: [1]}}"}, false},
		{"any code of any container", []string{"{action: Retry, onExitCodes: {operator: NotIn, values: [0]}}", "{action: Fail, containerName: main, onExitCodes: {operator: In, values: [1]}}"}, true},
		{"init containers too", []string{"{action: Retry, onExitCodes: {operator: NotIn, values: [0]}}", "{action: Fail, includeInitContainers: true, onExitCodes: {operator: In, values: [1]}}"}, false},
		{"same pattern", []string{"{action: Retry, onTerminationMessage: {pattern: a}}", "{action: Fail, containerName: main, onTerminationMessage: {pattern: a}}"}, true},
		{"another pattern", []string{"{action: Retry, onTerminationMessage: {pattern: a}}", "{action: Fail, onTerminationMessage: {pattern: aa}}"}, false},
		{"OOM of another container", []string{"{action: Retry, onConditions: [OOMKilled]}", "{action: Fail, containerName: main, onConditions: [OOMKilled]}"}, false},
		{"a shorter duration", []string{"{action: Retry, onRunDuration: {lessThan: 30s}}", "{action: Fail, onConditions: [Evicted], onRunDuration: {lessThan: 30s}}"}, true},
		{"within both bounds", []string{"{action: Retry, onRunDuration: {atLeast: 1s, lessThan: 3s}}", "{action: Fail, onRunDuration: {atLeast: 2s, lessThan: 3s}}"}, true},
		{"a longer duration", []string{"{action: Retry, onRunDuration: {lessThan: 30s}}", "{action: Fail, onRunDuration: {lessThan: 31s}}"}, false},
		{"without the upper bound", []string{"{action: Retry, onRunDuration: {atLeast: 1s, lessThan: 3s}}", "{action: Fail, onRunDuration: {atLeast: 2s}}"}, false},
		{"a run that never was", []string{"{action: Retry, onRunDuration: {atLeast: 0s}}", "{action: Fail, onConditions: [Evicted]}"}, false},
		{"complements", []string{"{action: Retry, onExitCodes: {operator: In, values: [1]}}", "{action: Retry, onExitCodes: {operator: NotIn, values: [1]}}", "{action: Fail, onExitCodes: {operator: In, values: [1, 2]}}"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			last := fmt.Sprintf("spec.rules[%d]", len(c.rules)-1)
			problems := lintText(t, policyOf("p", c.rules...))
			got := slices.ContainsFunc(problems, func(p policyfile.Problem) bool { return p.Code == "RP103" && p.Path == last })
			if got != c.want {
				t.Errorf("shadowed: %v, want %v\n%v", got, c.want, problems)
			}
		})
	}
}

// TestSARIF checks what SARIF 2.1.0 requires of a log's structure, sections 3.13
// to 3.49 of the standard: version, runs, tool.driver.name, rules with ids that
// results refer to by id and index, message.text, levels, regions from 1, URIs.
func TestSARIF(t *testing.T) {
	t.Parallel()
	problems := lintText(t, policyOf("p", "{action: Retry, onTerminationMessage: {pattern: '.*'}}", "{action: Retry, onExitCodes: {operator: In, values: [1]}, onConditions: [LeaseExpired]}"))
	problems = append(problems, policyfile.Problem{File: "a b/ü.yaml", Code: "RP001", Message: "m", Fix: "f"})
	b, err := lint.SARIF(problems)
	if err != nil {
		t.Fatal(err)
	}
	var log struct {
		Schema  string `json:"$schema"`
		Version string
		Runs    []struct {
			ColumnKind string
			Tool       struct {
				Driver struct {
					Name  string
					Rules []struct {
						ID               string
						ShortDescription struct{ Text string }
						DefaultLevel     struct{ Level string } `json:"defaultConfiguration"`
					}
				}
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine, StartColumn int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(b, &log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || !strings.Contains(log.Schema, "sarif-2.1.0") || len(log.Runs) != 1 {
		t.Fatalf("version %q, schema %q, %d runs", log.Version, log.Schema, len(log.Runs))
	}
	run := log.Runs[0]
	rules := run.Tool.Driver.Rules
	if run.Tool.Driver.Name != "refloatctl" || run.ColumnKind != "unicodeCodePoints" || len(rules) != len(lint.Codes()) {
		t.Errorf("driver %q, columns %q, %d rules", run.Tool.Driver.Name, run.ColumnKind, len(rules))
	}
	levels := []string{"error", "warning", "note"}
	ids := map[string]bool{}
	for _, r := range rules {
		if ids[r.ID] || r.ShortDescription.Text == "" || !slices.Contains(levels, r.DefaultLevel.Level) {
			t.Errorf("rule %+v", r)
		}
		ids[r.ID] = true
	}
	if len(run.Results) != len(problems) || len(problems) < 3 {
		t.Fatalf("%d results of %d problems", len(run.Results), len(problems))
	}
	for _, r := range run.Results {
		if rules[r.RuleIndex].ID != r.RuleID || r.Message.Text == "" || !slices.Contains(levels, r.Level) || len(r.Locations) != 1 {
			t.Errorf("result %+v", r)
		}
		at := r.Locations[0].PhysicalLocation
		if at.Region.StartLine < 1 || at.Region.StartColumn < 1 || strings.ContainsAny(at.ArtifactLocation.URI, " ü") || at.ArtifactLocation.URI == "" {
			t.Errorf("location %+v", at)
		}
	}
	if b, err = lint.SARIF(nil); err != nil || !strings.Contains(string(b), `"results": []`) {
		t.Errorf("without problems: %s, %v", b, err)
	}
}

func TestParseCategories(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "# none\n", "/gpu\n", "gpu/\n", "a\xff\n", strings.Repeat("a", 1<<17)} {
		_, err := lint.ParseCategories(policyfile.File{Name: "c.txt", Data: []byte(bad)})
		if err == nil || !strings.Contains(err.Error(), "c.txt:") {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	text := policyOf("p", "{action: Retry, onFailureCategory: [infrastructure], onFailureSubcategory: [gpus]}", "{action: Retry, onFailureCategory: [user], onFailureSubcategory: [any]}")
	problems := lintText(t, text)
	if len(problems) != 1 || problems[0].Code != "RP110" || problems[0].Value != "gpus" || !strings.Contains(problems[0].Fix, "gpu") {
		t.Errorf("%v", problems)
	}
}

// TestCategoriesOfBreakers: what the settings hold must be a category that executors report.
func TestCategoriesOfBreakers(t *testing.T) {
	t.Parallel()
	text := "kind: RetrySettings\nspec:\n  openBreakers:\n"
	for _, cause := range []string{"category: users", "category: infrastructure, subcategory: gpus", "category: infrastructure", "category: c, subcategory: any"} {
		text += "  - {" + cause + ", until: \"2026-12-01T00:00:00Z\"}\n"
	}
	problems := lintText(t, text)
	if len(problems) != 2 || problems[0].Code != "RP110" || problems[0].Value != "users" || problems[0].Line != 4 || problems[1].Value != "gpus" || problems[1].Line != 5 {
		t.Errorf("%v", problems)
	}
}

// FuzzLint: what can be parsed can be linted.
func FuzzLint(f *testing.F) {
	files, err := filepath.Glob("testdata/codes/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := []policyfile.File{{Name: "f.yaml", Data: data}}
		problems, err := lint.Lint(file, nil)
		if err != nil {
			t.Fatalf("lint: %v", err)
		}
		if _, err := lint.SARIF(problems); err != nil {
			t.Fatal(err)
		}
		_, parseErr := policyfile.Parse(file)
		stops := slices.ContainsFunc(problems, func(p policyfile.Problem) bool { return p.Severity == policyfile.Error })
		if (parseErr != nil) != stops {
			t.Errorf("Parse says %v, lint %v", parseErr, problems)
		}
	})
}

// TestCannotHold: names that nothing has in Kubernetes or Armada, and policies
// that say nothing.
func TestCannotHold(t *testing.T) {
	t.Parallel()
	long, longest := strings.Repeat("a", 64), strings.Repeat("a", 63)
	container := func(name string) string {
		return policyOf("p", "{action: Retry, containerName: "+name+", onExitCodes: {operator: In, values: [1]}}")
	}
	label := func(field, name string) string {
		return policyOf("p", "{action: Retry, onFailureCategory: [c], "+field+": ["+name+"]}")
	}
	flat := func(category, sub string) string {
		return "apiVersion: armadaproject.io/v1beta1\nkind: RetryPolicy\nname: p\ndefaultAction: Fail\nrules:\n- {action: Retry, onCategory: " + category + ", onSubcategory: " + sub + "}\n"
	}
	spec := func(spec string) string {
		return "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: p}\nspec: " + spec + "\n"
	}
	for _, c := range []struct{ name, text, code, path string }{
		{"a container's name with a space", container(`"Not A Container!"`), "RP114", "spec.rules[0].containerName"},
		{"a container's name of 64 bytes", container(long), "RP114", "spec.rules[0].containerName"},
		{"a container's name that ends with -", container("a-"), "RP114", "spec.rules[0].containerName"},
		{"the longest name of a container", container(longest), "", ""},
		{"a subcategory of 64 bytes", label("onFailureSubcategory", long), "RP115", "spec.rules[0].onFailureSubcategory[0]"},
		{"a subcategory of 253 bytes among others", label("onFailureSubcategory", "s, "+strings.Repeat("b", 253)), "RP115", "spec.rules[0].onFailureSubcategory[1]"},
		{"a category of 64 bytes", policyOf("p", "{action: Retry, onFailureCategory: ["+long+"]}"), "RP115", "spec.rules[0].onFailureCategory[0]"},
		{"the longest subcategory", label("onFailureSubcategory", longest), "", ""},
		{"22 characters of 66 bytes", label("onFailureSubcategory", strings.Repeat("€", 22)), "", ""},
		{"64 characters of 192 bytes", label("onFailureSubcategory", strings.Repeat("€", 64)), "RP115", "spec.rules[0].onFailureSubcategory[0]"},
		{"Armada's form: a category", flat(long, "s"), "RP115", "rules[0].onCategory"},
		{"Armada's form: a subcategory", flat("c", long), "RP115", "rules[0].onSubcategory"},
		{"an empty policy", spec("{}"), "RP116", "spec"},
		{"a policy with limits only", spec("{retryLimit: 3}"), "RP116", "spec"},
		{"a policy with an empty list", spec("{rules: []}"), "RP116", "spec"},
		{"a policy with a default action", spec("{defaultAction: Fail}"), "", ""},
		{"a policy with a rule", container("main"), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found := slices.DeleteFunc(lintText(t, c.text), func(p policyfile.Problem) bool { return p.Code == "RP110" }) // not in the list of categories
			if c.code == "" {
				if len(found) > 0 {
					t.Errorf("%v, want nothing", found)
				}
				return
			}
			if len(found) != 1 || found[0].Code != c.code || found[0].Path != c.path || found[0].Severity != policyfile.Warning {
				t.Errorf("%v, want one %s at %s", found, c.code, c.path)
			}
		})
	}
}

// TestAboveMaxRetries: a limit is held against the total that its policy asks for, and, if the settings are there, against
// what they permit.
func TestAboveMaxRetries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ spec, settings, want string }{
		{"retryLimit: 21", "", "21 is above globalMaxRetries 20, which is reached first"},
		{"retryLimit: 21, maxRetries: 30", "", ""},
		{"retryLimit: 31, maxRetries: 30", "", "31 is above maxRetries 30, which is reached first"},
		{"retryLimit: 21, maxRetries: 30", "horizon: 1h", "21 is above what the settings permit, 20, which is reached first"},
		{"retryLimit: 21, maxRetries: 30", "policyMaxRetries: 30", ""},
		{"retryLimit: 21", "policyMaxRetries: 30", "21 is above globalMaxRetries 20, which is reached first"},
	} {
		files := []policyfile.File{{Name: "p.yaml", Data: []byte("{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: p}, spec: {defaultAction: Retry, " + tt.spec + "}}")}}
		if tt.settings != "" {
			files = append(files, policyfile.File{Name: "s.yaml", Data: []byte("{kind: RetrySettings, spec: {" + tt.settings + "}}")})
		}
		problems, err := lint.Lint(files, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range problems {
			if p.Code == "RP107" {
				got += p.Message
			}
		}
		if got != tt.want {
			t.Errorf("%s with settings %q: %q, want %q", tt.spec, tt.settings, got, tt.want)
		}
	}
}
