package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/conformance"
)

// pod is a pod as the tests of Kubernetes' Job controller describe it.
type pod struct {
	Index             any
	Phase             string
	IndexFailureCount int
	Containers        []struct {
		Name     string
		ExitCode int32
	}
	Conditions []struct{ Type string }
}

// jobManifest is a Job with these fields of its spec.
func jobManifest(spec map[string]any) map[string]any {
	spec = maps.Clone(spec)
	if _, ok := spec["completionMode"]; !ok && spec["backoffLimitPerIndex"] != nil {
		spec["completionMode"] = "Indexed"
	}
	if _, ok := spec["parallelism"]; !ok {
		spec["parallelism"] = spec["completions"] // the row is about counts alone
	}
	spec["template"] = map[string]any{"spec": podSpec()}
	return map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "job"}, "spec": spec}
}

// containers are those of each pod.
var containers = []string{"main-container", "monitoring-container"}

func podSpec() map[string]any {
	var list []any
	for _, name := range containers {
		list = append(list, map[string]any{"name": name, "image": "busybox"})
	}
	return map[string]any{"restartPolicy": "Never", "containers": list}
}

func podID(index any) string { return conformance.Name("main", 0, mustIndex(index)) }

func mustIndex(index any) int {
	n, err := strconv.Atoi(fmt.Sprint(index))
	if err != nil {
		return 0 // a Job that is not indexed
	}
	return n
}

// failure is how a failed pod failed.
func (p *pod) failure() conformance.Failure {
	f := conformance.Failure{ExitCode: 1, Container: "main-container"}
	for i, c := range p.Containers {
		if i == 0 {
			f.ExitCode = c.ExitCode
			if slices.Contains(containers, c.Name) { // rows name containers that their Job does not have
				f.Container = c.Name
			}
		} else {
			f.Others = append(f.Others, conformance.Exit{Container: c.Name, Code: c.ExitCode})
		}
	}
	for _, c := range p.Conditions {
		if c.Type == "DisruptionTarget" {
			f.Condition = policy.Evicted
		}
	}
	return f
}

// observe lets the pods of a row come to where they are.
func (w *workload) observe(pods []pod) {
	w.Helper()
	for i := range pods {
		p := &pods[i]
		id := podID(p.Index)
		if p.Index == nil {
			id = podID(i)
		}
		if w.Job(id) == nil {
			continue // beyond the completions
		}
		for w.Job(id).State != conformance.Failed && w.Job(id).Runs < p.IndexFailureCount {
			w.fail(id, conformance.Failure{ExitCode: 1, Container: "main-container"})
		}
		switch p.Phase {
		case "Failed":
			w.fail(id, p.failure())
		case "Succeeded":
			w.succeed(id)
		case "Running", "Pending":
			w.run(id)
		}
	}
}

// indexes writes the indexes of members in a state as a Job's status does.
func (w *workload) indexes(s conformance.State) string {
	var set jobdb.Indexes
	for _, i := range w.Indexes("main", 0, s) {
		set.Add(uint32(i))
	}
	return set.String()
}

type condition struct{ Type, Reason string }

// wantCondition checks the reason of a Job's failure, or that it goes on.
func (w *workload) wantCondition(conditions []condition) {
	w.Helper()
	want := ""
	for _, c := range conditions {
		if c.Type == "Failed" || c.Type == "FailureTarget" {
			want = c.Reason
		}
	}
	got := ""
	if u := w.Group(w.group).Units["main/0"]; u != nil && u.Reason != policy.NoUnitReason {
		got = u.Reason.String()
	}
	if got != want {
		w.Errorf("the job failed by %q, want %q, after\n%s", got, want, strings.Join(w.AllRecords(), "\n"))
	}
}

func (w *workload) wantActive(want int) {
	w.Helper()
	if got := w.active(); got != want {
		w.Errorf("%d active, want %d, after\n%s", got, want, strings.Join(w.AllRecords(), "\n"))
	}
}

func jobRows(t *testing.T, s *score) {
	everything := because(nil)
	type perIndex struct {
		Policy   map[string]any
		Observed struct{ Pods []pod }
		Expected struct {
			Active                          *int
			FailedIndexes, CompletedIndexes string
			Conditions                      []condition
		}
	}
	runRows(t, s, "k8s_sync_backoff_limit_per_index.json", everything, func(t *testing.T, row perIndex) {
		w := start(t, jobManifest(row.Policy))
		w.observe(row.Observed.Pods)
		if got := w.indexes(conformance.Failed); got != row.Expected.FailedIndexes && len(row.Expected.Conditions) == 0 {
			t.Errorf("failedIndexes %q, want %q", got, row.Expected.FailedIndexes)
		}
		if got := w.indexes(conformance.Succeeded); got != row.Expected.CompletedIndexes {
			t.Errorf("completedIndexes %q, want %q", got, row.Expected.CompletedIndexes)
		}
		w.wantCondition(row.Expected.Conditions)
		if row.Expected.Active != nil {
			w.wantActive(*row.Expected.Active)
		}
	})
	type podPolicy struct {
		Policy   map[string]any
		Observed struct{ Pods []pod }
		Expected struct {
			WantConditions   []condition
			WantStatusActive int
		}
	}
	runRows(t, s, "k8s_sync_pod_failure_policy.json", func(id string, raw json.RawMessage) string {
		switch {
		case strings.Contains(string(raw), "deletionTimestamp"):
			return "a pod that is being deleted and has not ended: Armada reports the end of a run, not what comes before it"
		case strings.Contains(string(raw), "ResourceLimitExceeded"):
			return "only the pod condition DisruptionTarget has a meaning in Armada; conversion says that others are lost (GROUPS 12)"
		case strings.Contains(id, "#03"):
			return "a Job that has failed before the row begins"
		}
		return ""
	}, func(t *testing.T, row podPolicy) {
		w := start(t, jobManifest(row.Policy))
		w.observe(row.Observed.Pods)
		w.wantCondition(row.Expected.WantConditions)
		w.wantActive(row.Expected.WantStatusActive)
	})
	type backoffLimit struct {
		Policy   map[string]any
		Observed struct{ FailedPods int }
		Expected struct {
			ExpectedActive     int
			ExpectedConditions []condition
		}
	}
	runRows(t, s, "k8s_backoff_limit.json", because(map[string]string{
		"TestJobBackoffForOnFailure#*": "restarts of a container inside its pod are no runs; conversion says that restartPolicy OnFailure is lost",
	}), func(t *testing.T, row backoffLimit) {
		w := start(t, jobManifest(row.Policy))
		completions := int(row.Policy["completions"].(float64))
		for i := range row.Observed.FailedPods {
			w.fail(podID(i%completions), conformance.Failure{ExitCode: 1})
		}
		w.wantCondition(row.Expected.ExpectedConditions)
		w.wantActive(row.Expected.ExpectedActive)
	})
	type failedIndex struct {
		Policy   map[string]any
		Prior    struct{ FailedIndexes string }
		Observed struct {
			Pods []pod
			Pod  *pod
		}
		Expected struct {
			StringDerived string `json:"string_derived"`
			IndexFailed   *bool
		}
	}
	runRows(t, s, "k8s_failed_indexes.json", because(map[string]string{
		"TestGetNewIndexFailureCountValue#*": "a count in an annotation of a pod; here it is the decision's ruleUsed (internal/test/model, TestJobFailedIndexes)",
	}), func(t *testing.T, row failedIndex) {
		w := start(t, jobManifest(row.Policy))
		if row.Prior.FailedIndexes != "" { // with backoffLimitPerIndex 0
			w.fail(podID(row.Prior.FailedIndexes), conformance.Failure{ExitCode: 1})
		}
		if row.Observed.Pod != nil {
			w.observe([]pod{*row.Observed.Pod})
			if got := w.indexes(conformance.Failed) == fmt.Sprint(row.Observed.Pod.Index); got != *row.Expected.IndexFailed {
				t.Errorf("failed: %t, want %t", got, *row.Expected.IndexFailed)
			}
			return
		}
		w.observe(row.Observed.Pods)
		if got := w.indexes(conformance.Failed); got != row.Expected.StringDerived {
			t.Errorf("failedIndexes %q, want %q", got, row.Expected.StringDerived)
		}
	})
	successRows(t, s)
}

// successRows: a rule with a count alone is kept; others are lost, and said to be.
func successRows(t *testing.T, s *score) {
	type success struct {
		Policy   map[string]any
		Observed struct {
			Completions      int
			SucceededIndexes json.RawMessage
		}
		Expected struct{ WantMetSuccessPolicy bool }
	}
	runRows(t, s, "k8s_success_policy.json", func(_ string, raw json.RawMessage) string {
		switch {
		case strings.Contains(string(raw), `"succeededIndexes": "`):
			return "a rule with succeededIndexes is lost whole; conversion says so (GROUPS 12)"
		case strings.Contains(string(raw), `"successPolicy": null`):
			return "no success policy, or one that is switched off"
		}
		return ""
	}, func(t *testing.T, row success) {
		spec := maps.Clone(row.Policy)
		spec["completions"], spec["parallelism"], spec["completionMode"] = row.Observed.Completions, row.Observed.Completions, "Indexed"
		w := start(t, jobManifest(spec))
		var intervals [][2]int
		if strings.HasPrefix(string(row.Observed.SucceededIndexes), "[") {
			if err := json.Unmarshal(row.Observed.SucceededIndexes, &intervals); err != nil {
				t.Fatal(err)
			}
		}
		for _, in := range intervals {
			for i := in[0]; i <= in[1] && w.active() > 0; i++ {
				w.succeed(podID(i))
			}
		}
		if met := w.Group(w.group).State == policy.GroupSucceeded; met != row.Expected.WantMetSuccessPolicy {
			t.Errorf("succeeded early: %t, want %t", met, row.Expected.WantMetSuccessPolicy)
		}
	})
}
