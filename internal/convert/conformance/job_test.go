package conformance_test

import (
	"maps"
	"regexp"
	"strings"

	"github.com/refloat/refloat/internal/test/oracle"
)

// startJob starts a Job of Kubernetes.
func startJob(c *oracle.Check, j *oracle.Job) oracle.Group {
	spec := maps.Clone(j.Spec)
	if _, ok := spec["completionMode"]; !ok && spec["backoffLimitPerIndex"] != nil {
		spec["completionMode"] = "Indexed"
	}
	if _, ok := spec["parallelism"]; !ok {
		spec["parallelism"] = spec["completions"] // the row is about counts alone
	}
	return start(c, manifest("batch/v1", "Job", withPods(spec, j.InitContainers, j.Containers...)), j.Containers...)
}

func manifest(apiVersion, kind string, spec map[string]any) map[string]any {
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": strings.ToLower(kind)}, "spec": spec}
}

// withPods completes the spec of a Job with the template of its pods.
func withPods(spec map[string]any, init []string, containers ...string) map[string]any {
	list := func(names []string) (out []any) {
		for _, name := range names {
			out = append(out, map[string]any{"name": name, "image": "busybox"})
		}
		return out
	}
	spec["template"] = map[string]any{"spec": map[string]any{"restartPolicy": "Never", "initContainers": list(init), "containers": list(containers)}}
	return spec
}

// written is how indexes of a Job are written.
var written = regexp.MustCompile(`^\d+(-\d+)?(,\d+(-\d+)?)*$`)

// successSuite: a Job whose indexes succeed ends early, or does not.
func successSuite() *oracle.Suite {
	return &oracle.Suite{
		File:     "k8s_success_policy.json",
		Silent:   map[string]string{"expected.wantMessage": "which rule of a success policy matched is in no record"},
		Optional: []string{"expected.wantMetSuccessPolicy"},
		Run: func(c *oracle.Check) {
			var row struct {
				Policy struct {
					SuccessPolicy *struct {
						Rules []struct{ SucceededIndexes *string }
					}
				}
				Observed struct{ Completions int }
				Expected struct{ WantMetSuccessPolicy bool }
			}
			var raw struct{ Policy map[string]any }
			if !c.Read(&row) || !c.Read(&raw) {
				return
			}
			n, spec, succeeded, refused := row.Observed.Completions, maps.Clone(raw.Policy), oracle.SucceededIndexes(c), false
			if p := row.Policy.SuccessPolicy; p != nil {
				for _, r := range p.Rules {
					refused = refused || r.SucceededIndexes != nil && !written.MatchString(*r.SucceededIndexes)
				}
			}
			if c.CannotRun(oracle.Reason{Holds: n > 1000 || n < 1, Why: "as many completions as no test runs"}) || c.LeaveOut(
				oracle.Reason{Holds: refused, Why: "succeededIndexes that are none: Kubernetes' API server refuses the Job, and so does the conversion"},
				oracle.Reason{Holds: len(succeeded) >= n, Why: "all indexes succeeded: the Job is complete, whatever its success policy"},
			) {
				return
			}
			spec["completions"], spec["parallelism"], spec["completionMode"] = n, n, "Indexed"
			w := start(c, manifest("batch/v1", "Job", withPods(spec, nil, "main-container")), "main-container")
			for _, i := range succeeded {
				m := oracle.Member{Part: "main", Index: i}
				if s := w.State(m); s == oracle.Waiting || s == oracle.Running {
					w.Succeed(m)
				}
			}
			oracle.Equal(c, "succeeded early", w.Status().State == string(oracle.Succeeded), row.Expected.WantMetSuccessPolicy)
		},
	}
}
