package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const oneTemplate = `apiVersion: flow.volcano.sh/v1alpha1
kind: JobTemplate
metadata: {name: a}
spec:
  minAvailable: 1
  tasks: [{name: main, replicas: 2, template: {spec: {restartPolicy: Never, containers: [{name: main, image: busybox, resources: {limits: {cpu: 1}}}]}}}]
`

// A note about a patched step is where its value stands: in the patch, or in the template, which may be another file.
func TestPatchPositions(t *testing.T) {
	t.Parallel()
	flow := `apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata: {name: f}
spec:
  flows:
  - name: a
    patch:
      maxRetry: 5
      networkTopology: {mode: soft}
`
	r := Convert([]File{{"flow.yaml", []byte(flow)}, {"template.yaml", []byte(oneTemplate)}}, Options{})
	var got []string
	for _, n := range r.Notes {
		text, _, _ := strings.Cut(n.String(), " →")
		got = append(got, text)
	}
	want := []string{
		"flow.yaml:8:17: lost: JobFlow f: spec.flows[0].patch.maxRetry 5",
		`flow.yaml:9:24: lost: JobFlow f: spec.flows[0].patch.networkTopology {"mode":"soft"}`,
		"template.yaml:5:3: changed: JobTemplate a: spec.policies (not set)",
		"template.yaml:5:17: lost: JobTemplate a: spec.minAvailable 1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("notes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Two templates of one name in one namespace are an error, whichever a step would get; in two namespaces they are not.
func TestTemplateNames(t *testing.T) {
	t.Parallel()
	flow := "apiVersion: flow.volcano.sh/v1alpha1\nkind: JobFlow\nmetadata: {name: f}\nspec: {flows: [{name: a}]}\n"
	r := Convert([]File{{"one.yaml", []byte(oneTemplate)}, {"two.yaml", []byte(oneTemplate)}, {"flow.yaml", []byte(flow)}}, Options{})
	if i := slices.IndexFunc(r.Notes, func(n Note) bool { return n.Kind == Error }); i < 0 || r.Notes[i].File != "two.yaml" || r.Notes[i].Path != "metadata.name" {
		t.Errorf("notes: %v", r.Notes)
	}
	other := strings.Replace(oneTemplate, "{name: a}", "{name: a, namespace: other}", 1)
	r = Convert([]File{{"one.yaml", []byte(oneTemplate)}, {"two.yaml", []byte(other)}, {"flow.yaml", []byte(flow)}}, Options{})
	if r.Failed() || len(r.Submits) != 1 || len(r.Submits[0].Jobs) != 2 {
		t.Errorf("%v, notes: %v", r.Submits, r.Notes)
	}
}

// The actions of Volcano's policies, per class of failures: the first policy that covers the class decides.
func TestReact(t *testing.T) {
	t.Parallel()
	r := react([]volcanoRule{
		{exitCode: 3, action: volcanoRestartTask},
		{failed: true, action: volcanoRestartJob},
		{exitCode: 4, action: volcanoFailJob},
		{evicted: true, failed: true, action: volcanoRestartPod},
	})
	if r.evicted != volcanoRestartPod || r.failed != volcanoRestartJob || r.codes[3] != volcanoRestartTask || r.codes[4] != volcanoRestartJob {
		t.Errorf("react = %+v", r)
	}
}

// Aliases cannot make a small manifest large, or endless.
func TestPatchAliases(t *testing.T) {
	t.Parallel()
	const depth = 40
	var levels strings.Builder
	for i := range depth {
		fmt.Fprintf(&levels, "%s- &l%d {a: ", "\n    ", i)
		if i == 0 {
			levels.WriteString("0, b: 0}")
			continue
		}
		fmt.Fprintf(&levels, "*l%d, b: *l%d}", i-1, i-1)
	}
	for name, manifest := range map[string]string{
		"repeated": oneTemplate + "  plugins: *p\n---\n",
		"many": `apiVersion: flow.volcano.sh/v1alpha1
kind: JobTemplate
metadata:
  name: a
  managedFields:` + levels.String() + fmt.Sprintf(`
spec: {policies: *l%d, tasks: *l%d, plugins: *l%d}
---
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata:
  name: f
  managedFields:`, depth-1, depth-1, depth-1) + levels.String() + fmt.Sprintf(`
spec: {flows: [{name: a, patch: {policies: *l%d, tasks: *l%d, plugins: *l%d}}]}
`, depth-1, depth-1, depth-1),
		"endless":  oneTemplate + "---\napiVersion: flow.volcano.sh/v1alpha1\nkind: JobFlow\nmetadata: {name: f}\nspec: {flows: [{name: a, patch: &p [*p]}]}\n",
		"endless2": oneTemplate + "---\napiVersion: flow.volcano.sh/v1alpha1\nkind: JobFlow\nmetadata: {name: f}\nspec: {flows: [{name: a, patch: &p {plugins: *p}}]}\n",
	} {
		if r := Convert([]File{{"in.yaml", []byte(manifest)}}, Options{}); !r.Failed() {
			t.Errorf("%s: converted, notes: %v", name, r.Notes)
		}
	}
}
