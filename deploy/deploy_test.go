package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

const (
	dashboardFile  = "grafana/dashboards/refloat.json"
	policiesFile   = "grafana/dashboards/policies.json"
	policyTests    = "prometheus/policies_test.yml"
	alertsFile     = "prometheus/alerts.yml"
	alertTestsFile = "prometheus/alerts_test.yml"
	configFile     = "prometheus/prometheus.yml"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parseYAML(t *testing.T, file string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, file)), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

var (
	helperCall = regexp.MustCompile(`\b(counter|gauge|histogram)\("(\w+)", ?"[^"]*"((?:, ?"\w+")*)\)`)
	plainName  = regexp.MustCompile(`(New\w+)\(prometheus\.\w+\{\s*Name: +"(refloat_\w+)"`)
	quoted     = regexp.MustCompile(`"(\w+)"`)
)

// registered reads from the source text of a package which metrics it
// registers, as they are exposed, each with its labels.
func registered(source string) map[string][]string {
	metrics := map[string][]string{}
	for _, m := range helperCall.FindAllStringSubmatch(source, -1) {
		name, labels := "refloat_"+m[2], []string{}
		for _, l := range quoted.FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		if m[1] == "histogram" {
			metrics[name+"_bucket"] = append(slices.Clone(labels), "le")
			metrics[name+"_sum"], metrics[name+"_count"] = labels, labels
			continue
		}
		metrics[name] = labels
	}
	for _, m := range plainName.FindAllStringSubmatch(source, -1) {
		if m[1] == "NewHistogram" {
			metrics[m[2]+"_bucket"], metrics[m[2]+"_sum"], metrics[m[2]+"_count"] = []string{"le"}, nil, nil
			continue
		}
		metrics[m[2]] = nil
	}
	return metrics
}

func metricsOf(t *testing.T) map[string][]string {
	t.Helper()
	m := registered(read(t, "../internal/app/metricsets.go"))
	if len(m) < 20 {
		t.Fatalf("found %d metrics in internal/app/metricsets.go, want them all: is it still written the same way? %v", len(m), m)
	}
	return m
}

var (
	metricUse  = regexp.MustCompile(`\b(refloat_\w+)(?:\{([^}]*)\})?`)
	matcherUse = regexp.MustCompile(`(\w+) *(?:=~|!~|!=|=)`)
	scraped    = []string{"job", "instance"} // labels that Prometheus adds
)

// wrongNames lists the metrics and labels of a text that are not registered.
func wrongNames(text string, metrics map[string][]string) []string {
	var wrong []string
	for _, use := range metricUse.FindAllStringSubmatch(text, -1) {
		labels, ok := metrics[use[1]]
		if !ok {
			wrong = append(wrong, use[1])
			continue
		}
		for _, m := range matcherUse.FindAllStringSubmatch(use[2], -1) {
			if !slices.Contains(labels, m[1]) && !slices.Contains(scraped, m[1]) {
				wrong = append(wrong, use[1]+"{"+m[1]+"}")
			}
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

func TestMetricNames(t *testing.T) {
	t.Parallel()
	metrics := metricsOf(t)
	texts := map[string]string{alertsFile: read(t, alertsFile), alertTestsFile: read(t, alertTestsFile)}
	for _, file := range dashboards {
		for title, exprs := range dashboardExprs(t, file) {
			texts[file+", panel "+title] = strings.Join(exprs, "\n")
		}
		texts[file+", variables and annotations"] = strings.Join(dashboard(t, file).queries(), "\n")
	}
	texts[policyTests] = read(t, policyTests)
	for name, text := range texts {
		if wrong := wrongNames(text, metrics); len(wrong) > 0 {
			t.Errorf("%s uses what internal/app/metricsets.go does not register: %v", name, wrong)
		}
	}
}

// TestWrongNames plants faults: a check that cannot fail holds nothing.
func TestWrongNames(t *testing.T) {
	t.Parallel()
	metrics := registered(`
		a: counter("a_total", "Text, with (marks).", "partition", "why"),
		b: histogram("b_seconds", "B.", "partition"),
		c: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "refloat_c_total", Help: "C.",
		})`)
	tests := []struct{ text, want string }{
		{`rate(refloat_a_total{why="x", job=~"y"}[5m]) + refloat_c_total`, ""},
		{`refloat_b_seconds_bucket{le="1", partition!="0"} refloat_b_seconds_sum`, ""},
		{`refloat_a`, "refloat_a"},
		{`refloat_b_seconds`, "refloat_b_seconds"},
		{`refloat_a_total{reason="x"}`, "refloat_a_total{reason}"},
		{`refloat_c_total{partition="0"}`, "refloat_c_total{partition}"},
	}
	for _, tt := range tests {
		if got := strings.Join(wrongNames(tt.text, metrics), " "); got != tt.want {
			t.Errorf("wrongNames(%s) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ UID string }
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct {
		RefID string `json:"refId"`
		Expr  string
	}
}

// dashboards are the files of the dashboards.
var dashboards = []string{dashboardFile, policiesFile}

type board struct {
	UID        string
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Definition  string
			Multi, IncludeAll bool
			AllValue          string
		}
	}
	Annotations struct {
		List []struct {
			Expr            string
			UseValueForTime bool
		}
	}
}

// queries are those of the variables and annotations.
func (b *board) queries() (all []string) {
	for _, v := range b.Templating.List {
		all = append(all, v.Definition)
	}
	for _, a := range b.Annotations.List {
		all = append(all, a.Expr)
	}
	return all
}

func dashboard(t *testing.T, file string) *board {
	t.Helper()
	var b board
	if err := json.Unmarshal([]byte(read(t, file)), &b); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return &b
}

func dashboardExprs(t *testing.T, file string) map[string][]string {
	t.Helper()
	exprs := map[string][]string{}
	for _, p := range dashboard(t, file).Panels {
		for _, target := range p.Targets {
			exprs[p.Title] = append(exprs[p.Title], target.Expr)
		}
	}
	return exprs
}

func TestDashboards(t *testing.T) {
	t.Parallel()
	uids := map[string]bool{}
	for file, rows := range map[string][]string{
		dashboardFile: {"Health", "Decisions", "Latency", "Ownership", "Ingester"},
		policiesFile:  {"In force", "Decisions of policies", "Retries"},
	} {
		t.Run(filepath.Base(file), func(t *testing.T) { checkDashboard(t, file, rows) })
		uids[dashboard(t, file).UID] = true
	}
	if len(uids) != len(dashboards) || uids[""] {
		t.Errorf("the dashboards have the uids %v", uids)
	}
}

func checkDashboard(t *testing.T, file string, wantRows []string) {
	var source struct{ Datasources []struct{ UID string } }
	parseYAML(t, "grafana/provisioning/datasources/prometheus.yml", &source)
	var rows []string
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range dashboard(t, file).Panels {
		title := p.Type + p.Title
		if ids[p.ID] || titles[title] || p.Title == "" {
			t.Errorf("panel %d %q: another one has the id or the title, or it has no title", p.ID, p.Title)
		}
		ids[p.ID], titles[title] = true, true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" || at[0] >= 24 {
					t.Fatalf("panel %q at %v: lies over %q or beyond the edge", p.Title, at, taken[at])
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if len(p.Targets) == 0 || p.Datasource.UID != source.Datasources[0].UID {
			t.Errorf("panel %q has %d queries, of data source %q", p.Title, len(p.Targets), p.Datasource.UID)
		}
	}
	if !slices.Equal(rows, wantRows) {
		t.Errorf("rows are %v, want %v", rows, wantRows)
	}
}

type rule struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func alertRules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	parseYAML(t, alertsFile, &file)
	var rules []rule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// TestRunbook holds that each alert leads to its section and back.
func TestRunbook(t *testing.T) {
	t.Parallel()
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Refloat\w+)$`).FindAllStringSubmatch(read(t, "../docs/operate.md"), -1) {
		sections[m[1]] = true
	}
	for _, r := range alertRules(t) {
		if want := "docs/operate.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("%s: runbook is %q, want %q", r.Alert, r.Annotations["runbook"], want)
		}
		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s: severity is %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s: no summary", r.Alert)
		}
		if !sections[r.Alert] {
			t.Errorf("docs/operate.md has no section ### %s", r.Alert)
		}
		delete(sections, r.Alert)
	}
	for s := range sections {
		t.Errorf("docs/operate.md speaks of %s, which is no alert", s)
	}
}

// TestAlertsAreTested holds that each alert has a story in which it fires and one in which it does not.
func TestAlertsAreTested(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	parseYAML(t, alertTestsFile, &file)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Fires) > 0 {
				fires[c.Alert] = true
			} else {
				quiet[c.Alert] = true
			}
		}
	}
	for _, r := range alertRules(t) {
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: tested to fire: %t, to be quiet: %t", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
	}
}

// TestScrapes holds that Prometheus scrapes the services that there are, as the
// jobs that alerts and dashboard ask for.
func TestScrapes(t *testing.T) {
	t.Parallel()
	var config struct {
		Jobs []struct {
			Name    string                       `yaml:"job_name"`
			Targets []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	parseYAML(t, configFile, &config)
	var compose struct {
		Services map[string]struct{ Command any }
	}
	parseYAML(t, "../docker-compose.yml", &compose)
	jobs := map[string]bool{}
	for _, job := range config.Jobs {
		jobs[job.Name] = true
		for _, group := range job.Targets {
			for _, target := range group.Targets {
				host, _, _ := strings.Cut(target, ":")
				service, ok := compose.Services[host]
				if !ok {
					t.Errorf("target %s is no service of docker-compose.yml", target)
				}
				if job.Name != "pulsar" && !strings.Contains(fmt.Sprint(service.Command), "--listen :9090") {
					t.Errorf("service %s does not listen for %s: %v", host, target, service.Command)
				}
			}
		}
	}
	text := read(t, alertsFile)
	for _, file := range dashboards {
		text += strings.Join(slices.Concat(slices.Collect(maps.Values(dashboardExprs(t, file)))...), "\n")
	}
	for _, m := range regexp.MustCompile(`job=~?"([a-z|]+)"`).FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[1], "|") {
			if !jobs[name] {
				t.Errorf("job %q is asked for and not scraped", name)
			}
		}
	}
}

// promtool runs Prometheus's checker, which hack/parts.sh fetches.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if cache, e := os.UserCacheDir(); err != nil && e == nil {
		tool, err = exec.LookPath(filepath.Join(cache, "refloat", "bin", "promtool"))
	}
	if err != nil {
		if os.Getenv("REQUIRE_INTEGRATION") == "1" {
			t.Fatalf("run hack/parts.sh promtool: %v", err)
		}
		t.Skipf("SKIP: run hack/parts.sh promtool: %v", err)
	}
	out, err := exec.Command(tool, args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPrometheusConfig(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", configFile)
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", alertTestsFile)
}

// TestDashboardQueries checks the queries of the dashboard as if they were rules.
func TestDashboardQueries(t *testing.T) {
	t.Parallel()
	type record struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []record
	for _, exprs := range dashboardExprs(t, dashboardFile) {
		for _, expr := range exprs {
			rules = append(rules, record{fmt.Sprintf("q%d", len(rules)), strings.ReplaceAll(expr, "$__rate_interval", "5m")})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// TestPolicyDashboardQueries evaluates each query of the dashboard of policies, with all queues and policies, on series
// for which the answer is known.
func TestPolicyDashboardQueries(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Cases []struct {
				Expr    string
				Samples []any `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	parseYAML(t, policyTests, &file)
	tested := map[string]bool{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			tested[c.Expr] = len(c.Samples) > 0
		}
	}
	b := dashboard(t, policiesFile)
	exprs := slices.Concat(slices.Collect(maps.Values(dashboardExprs(t, policiesFile)))...)
	for _, a := range b.Annotations.List {
		exprs = append(exprs, a.Expr)
		if !a.UseValueForTime {
			t.Errorf("annotation %s: the value is not the time", a.Expr)
		}
	}
	values := []string{"$__rate_interval", "5m"}
	for _, v := range b.Templating.List {
		if !v.Multi || !v.IncludeAll || v.AllValue != ".*" {
			t.Errorf("variable %s: multi %t, all %t with %q", v.Name, v.Multi, v.IncludeAll, v.AllValue)
		}
		values = append(values, "$"+v.Name, v.AllValue)
	}
	if len(b.Templating.List) != 2 || len(b.Annotations.List) != 1 {
		t.Errorf("%d variables and %d annotations, want queue and policy, and changes of the generation", len(b.Templating.List), len(b.Annotations.List))
	}
	for _, expr := range exprs {
		if expr = strings.NewReplacer(values...).Replace(expr); !tested[expr] {
			t.Errorf("%s has no answer for\n%s", policyTests, expr)
		}
	}
	promtool(t, "test", "rules", policyTests)
}
