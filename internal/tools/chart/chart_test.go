package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const (
	root   = "../../.."
	deploy = root + "/deploy"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// sets are the values that the chart is rendered with.
var sets = []string{"minimal", "production", "beside-armada"}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func valuesOf(t *testing.T, set string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "chart/values", set+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// render does what `helm template` does, and returns the documents in the order of their files.
func render(c *chart.Chart, values map[string]any) ([]string, error) {
	options := common.ReleaseOptions{Name: "refloat", Namespace: "refloat", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, values, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	var documents []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for document := range strings.SplitSeq(files[name], "\n---\n") {
			if text := strings.Trim(strings.TrimSuffix(strings.TrimSpace(document), "---"), "\n"); text != "" {
				documents = append(documents, text+"\n")
			}
		}
	}
	return documents, nil
}

func mustRender(t *testing.T, set string) []string {
	t.Helper()
	documents, err := render(load(t), valuesOf(t, set))
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// kinds has an empty object of each kind that the chart may hold.
var kinds = map[string]func() any{
	"v1 ConfigMap":                            func() any { return &core.ConfigMap{} },
	"v1 Service":                              func() any { return &core.Service{} },
	"v1 ServiceAccount":                       func() any { return &core.ServiceAccount{} },
	"apps/v1 Deployment":                      func() any { return &apps.Deployment{} },
	"apps/v1 StatefulSet":                     func() any { return &apps.StatefulSet{} },
	"batch/v1 Job":                            func() any { return &batch.Job{} },
	"networking.k8s.io/v1 Ingress":            func() any { return &networking.Ingress{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return &networking.NetworkPolicy{} },
	"policy/v1 PodDisruptionBudget":           func() any { return &policy.PodDisruptionBudget{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return &monitoring.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return &monitoring.PrometheusRule{} },
}

// object reads a document into the API's type of its kind, and refuses fields that the type does not have.
func object(document string) (any, error) {
	var of struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(document), &of); err != nil {
		return nil, err
	}
	empty, ok := kinds[of.APIVersion+" "+of.Kind]
	if !ok {
		return nil, fmt.Errorf("%s %s is no kind that is checked", of.APIVersion, of.Kind)
	}
	o := empty()
	return o, yaml.UnmarshalStrict([]byte(document), o)
}

func objects[T any](t *testing.T, set string) (found []*T) {
	t.Helper()
	for _, document := range mustRender(t, set) {
		o, err := object(document)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if o, ok := o.(*T); ok {
			found = append(found, o)
		}
	}
	return found
}

// podSpecs are those of all workloads of a set, by the name of the workload.
func podSpecs(t *testing.T, set string) map[string]core.PodSpec {
	t.Helper()
	specs := map[string]core.PodSpec{}
	for _, o := range objects[apps.StatefulSet](t, set) {
		specs[o.Name] = o.Spec.Template.Spec
	}
	for _, o := range objects[apps.Deployment](t, set) {
		specs[o.Name] = o.Spec.Template.Spec
	}
	for _, o := range objects[batch.Job](t, set) {
		specs[o.Name] = o.Spec.Template.Spec
	}
	return specs
}

func TestLint(t *testing.T) {
	for _, set := range sets {
		for _, m := range lint.RunAll(source, valuesOf(t, set), "refloat").Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", set, m)
			}
		}
	}
}

// TestGolden compares what is rendered with testdata, where what comes from other files is left out.
func TestGolden(t *testing.T) {
	for _, set := range sets {
		var text strings.Builder
		for _, document := range mustRender(t, set) {
			if _, err := object(document); err != nil {
				t.Errorf("%s: %v in\n%s", set, err, document)
			}
			for _, from := range []string{"\n  groups:\n", "\n  policies.json: ", "\n  refloat.json: "} {
				if at := strings.Index(document, from); at > 0 {
					document = document[:at] + strings.TrimRight(from, "\n ") + " (left out)\n"
				}
			}
			fmt.Fprintf(&text, "---\n%s", document)
		}
		file := filepath.Join("testdata", set+".yaml")
		if *rewrite {
			if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || string(want) != text.String() {
			t.Errorf("%s differs: run this test with -rewrite, and read the diff (%v)", file, err)
		}
	}
}

// TestFieldsAreChecked: a wrong field of a type, at any depth, is an error.
func TestFieldsAreChecked(t *testing.T) {
	for _, document := range []string{
		"apiVersion: v1\nkind: Service\nspec: {port: 1}\n",
		"apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: two}\n",
		"apiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: {containers: [{name: x, livenessProbe: {http: {}}}]}}}\n",
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec: {groups: [{name: x, rules: [{alert: x, expression: y}]}]}\n",
		"apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\n",
	} {
		if _, err := object(document); err == nil {
			t.Errorf("no error in %q", document)
		}
	}
}

// TestSameFiles: alerts and dashboards are those of deploy.
func TestSameFiles(t *testing.T) {
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(deploy, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(read("prometheus/alerts.yml"), &want); err != nil {
		t.Fatal(err)
	}
	rules := objects[monitoring.PrometheusRule](t, "production")
	if len(rules) != 1 || len(want.Groups) == 0 {
		t.Fatalf("%d objects with alerts, want one", len(rules))
	}
	got, err := yaml.Marshal(rules[0].Spec)
	wanted, err2 := yaml.Marshal(want)
	if err != nil || err2 != nil || !bytes.Equal(got, wanted) {
		t.Errorf("the alerts differ from alerts.yml: %v, %v\n%s", err, err2, got)
	}
	files, err := filepath.Glob(filepath.Join(deploy, "grafana/dashboards/*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	boards := map[string]string{}
	for _, o := range objects[core.ConfigMap](t, "production") {
		if o.Labels["grafana_dashboard"] != "" {
			maps.Copy(boards, o.Data)
		}
	}
	for _, file := range files {
		name := filepath.Base(file)
		if boards[name] != string(read("grafana/dashboards/"+name)) {
			t.Errorf("the dashboard %s differs", name)
		}
	}
	if len(boards) != len(files) {
		t.Errorf("%d dashboards, want %d", len(boards), len(files))
	}
}

// TestJobs: Prometheus calls the jobs what alerts and dashboards ask for.
func TestJobs(t *testing.T) {
	monitors := objects[monitoring.ServiceMonitor](t, "production")
	if len(monitors) != 1 {
		t.Fatalf("%d monitors, want one", len(monitors))
	}
	label := monitors[0].Spec.JobLabel
	var jobs []string
	for _, s := range objects[core.Service](t, "production") {
		if slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == "metrics" }) {
			jobs = append(jobs, s.Labels[label])
		}
	}
	if slices.Sort(jobs); !slices.Equal(jobs, []string{"evaluator", "ingester"}) {
		t.Errorf("jobs are %v", jobs)
	}
}

// TestPrivileges: no pod runs as root, writes its image, or talks to Kubernetes.
func TestPrivileges(t *testing.T) {
	for _, set := range sets {
		for name, spec := range podSpecs(t, set) {
			c := spec.Containers[0].SecurityContext
			if !*spec.SecurityContext.RunAsNonRoot || *spec.AutomountServiceAccountToken || !*c.ReadOnlyRootFilesystem ||
				*c.AllowPrivilegeEscalation || !slices.Equal(c.Capabilities.Drop, []core.Capability{"ALL"}) {
				t.Errorf("%s, %s: %+v %+v", set, name, spec.SecurityContext, c)
			}
			mounts := map[string]bool{}
			for _, v := range spec.Containers[0].VolumeMounts {
				mounts[v.Name] = true
			}
			for _, v := range spec.Volumes {
				if !mounts[v.Name] {
					t.Errorf("%s, %s: volume %s is not mounted", set, name, v.Name)
				}
			}
		}
	}
}

// TestFlags: each program accepts the arguments and the environment that the chart gives it. A file that an
// argument names is in a secret that is mounted there.
func TestFlags(t *testing.T) {
	for _, set := range sets {
		for name, spec := range podSpecs(t, set) {
			c := spec.Containers[0]
			cmd := exec.Command("go", slices.Concat([]string{"-C", root, "run", "./cmd/" + c.Command[0]}, c.Command[1:], c.Args, []string{"--print-config"})...)
			cmd.Env = os.Environ()
			for _, e := range c.Env {
				cmd.Env = append(cmd.Env, e.Name+"=chart-test")
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s, %s: %v\n%s", set, name, err, out)
			}
			for _, e := range c.Env {
				if !strings.Contains(string(out), "# "+e.Name+"\n") {
					t.Errorf("%s, %s: no flag takes %s:\n%s", set, name, e.Name, out)
				}
			}
			mounted := map[string]bool{"/etc/refloat/policies": slices.ContainsFunc(spec.Volumes, func(v core.Volume) bool { return v.ConfigMap != nil })}
			for _, v := range spec.Volumes {
				if v.Projected != nil {
					for _, s := range v.Projected.Sources {
						for _, item := range s.Secret.Items {
							mounted["/etc/refloat/secrets/"+item.Path] = true
						}
					}
				}
			}
			for _, arg := range c.Args {
				if _, file, ok := strings.Cut(arg, "=/etc/"); ok && !mounted["/etc/"+file] {
					t.Errorf("%s, %s: %s is not mounted", set, name, arg)
				}
			}
		}
	}
}

// TestSlack: what Slack gets is not signed, so no secret is mounted; the network policy has its port once.
func TestSlack(t *testing.T) {
	values := valuesOf(t, "minimal")
	values["notifications"] = map[string]any{"secret": "hook", "format": "slack"}
	documents, err := render(load(t), values)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(documents, "")
	for text, want := range map[string]int{"--notify-format=slack\n": 1, "secretKeyRef: {name: hook, key: url}": 1, "notify-secret": 0, "{port: 443, protocol: TCP}": 1} {
		if n := strings.Count(all, text); n != want {
			t.Errorf("%q: %d times, want %d", text, n, want)
		}
	}
}

// TestSchema: values that would give a deployment that does not start are refused.
func TestSchema(t *testing.T) {
	for text, want := range map[string]string{
		"pulsar: {url: ''}":                                        "pulsar/url",
		"pulsar: {url: 'pulsar://user@host:6650'}":                 "pulsar/url",
		"jobDB: {secret: ''}":                                      "jobDB/secret",
		"evaluator: {checkpoints: 'file:///data'}":                 "evaluator/checkpoints",
		"evaluator: {replica: 3}":                                  "replica",
		"ingester: {mode: enforce}":                                "ingester/mode",
		"ingester: {memory: lots}":                                 "ingester/memory",
		"api: {enabled: true}":                                     "authSecret",
		"api: {enabled: true, authSecret: a}":                      "api",
		"api: {ingress: {enabled: true, host: h}}":                 "enabled",
		"createTopics: true":                                       "adminUrl",
		"pulsar: {tokenSecret: a, certSecret: b}":                  "not",
		"policies: {configMap: a}\nfollowArmada: {address: 'a:1'}": "not",
		"api: {enabled: true, authSecret: a, plaintext: true}":     "",
		"notifications: {secret: a, format: teams}":                "notifications/format",
		"notifications: {secret: a, port: 0}":                      "notifications/port",
		"notifications: {url: 'https://hooks.slack.com/x'}":        "url",
	} {
		values, more := valuesOf(t, "minimal"), map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(text), &more); err != nil {
			t.Fatal(err)
		}
		_, err := render(load(t), loader.MergeMaps(values, more))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
}

// TestPackage: a package has the same bytes whenever it is made, and renders as the directory does.
func TestPackage(t *testing.T) {
	var packed [2][]byte
	var files [2]string
	for i := range packed {
		var err error
		if files[i], err = pack("v1.2.3", time.Unix(1_700_000_000, 0), t.TempDir()); err != nil {
			t.Fatal(err)
		}
		if packed[i], err = os.ReadFile(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packed[0], packed[1]) || filepath.Base(files[0]) != "refloat-1.2.3.tgz" {
		t.Errorf("two packages differ, or %s is a wrong name", files[0])
	}
	c, err := loader.LoadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	documents, err := render(c, valuesOf(t, "production"))
	if err != nil || len(documents) != len(mustRender(t, "production")) || !strings.Contains(strings.Join(documents, ""), `refloat:v1.2.3"`) {
		t.Errorf("the package renders %d documents, %v", len(documents), err)
	}
	for version, want := range map[string]string{"v0.1.0": "0.1.0", "v0.1.0-3-gabc": "0.1.0-3-gabc", "0123456-dirty": "0.0.0-commit.0123456-dirty"} {
		if got := semantic(version); got != want {
			t.Errorf("semantic(%s) = %s, want %s", version, got, want)
		}
	}
}
