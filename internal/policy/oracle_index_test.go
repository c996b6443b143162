package policy_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/oracle"
)

// An index of an indexed Job is a job of ours: its failed pods are the runs.

// indexes is a set of them; as Kubernetes writes it: "0,2,4-6".
type indexes map[int64]bool

func parseIndexes(s string) (indexes, error) {
	all := indexes{}
	for part := range strings.SplitSeq(s, ",") {
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.ParseInt(first, 10, 64)
		b, err2 := strconv.ParseInt(last, 10, 64)
		if err != nil || err2 != nil || b-a > most {
			return nil, fmt.Errorf("not a set of indexes: %q", s)
		}
		for i := a; i <= b; i++ {
			all[i] = true
		}
	}
	return all, nil
}

// String lists the indexes, one by one.
func (x indexes) String() string {
	var all []string
	for _, i := range slices.Sorted(func(yield func(int64) bool) {
		for i := range x {
			if !yield(i) {
				return
			}
		}
	}) {
		all = append(all, strconv.FormatInt(i, 10))
	}
	return strings.Join(all, ",")
}

// indexOf is the index of a pod: rows write a number or a text.
func indexOf(p *k8sPod) (int64, bool) {
	if p.Index == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(fmt.Sprint(p.Index), 10, 64)
	return n, err == nil && n >= 0
}

// indexReasons: what the pods of an indexed Job must have to be runs of ours.
func (p *k8sPolicy) indexReasons(pods []k8sPod) []oracle.Reason {
	outside, counted := false, true
	for i := range pods {
		index, ok := indexOf(&pods[i])
		outside = outside || !ok || p.Completions != nil && index >= *p.Completions
		counted = counted && (!pods[i].failed() || pods[i].HasTrackingFinalizer)
	}
	return []oracle.Reason{
		{Holds: outside, Why: "an index that the Job does not have: our jobs have none"},
		{Holds: !counted, Why: "a pod without the finalizer: Kubernetes counted it before"},
	}
}

// alone lets one failed pod be the next run of its index.
func (j *k8sJob) alone(pod *k8sPod) (decided, *job) {
	n := j.submit(pod, or(pod.IndexFailureCount, 0), or(pod.IndexIgnoredFailureCount, 0))
	return n.fail(j.failure(pod)), n
}

// notRun: no pod that failed, or more than a test lets fail.
func notRun(pods ...k8sPod) []oracle.Reason {
	failed := slices.ContainsFunc(pods, func(p k8sPod) bool { return p.failed() })
	return []oracle.Reason{{Holds: !failed, Why: "no pod that failed"}, {
		Holds: slices.ContainsFunc(pods, func(p k8sPod) bool {
			return or(p.IndexFailureCount, 0) > 1000 || or(p.IndexIgnoredFailureCount, 0) > 1000
		}),
		Why: "more failures than a test lets fail",
	}}
}

func TestOracleK8sFailedIndexes(t *testing.T) {
	t.Parallel()
	oracleK8sFailedIndexes().Test(t)
}

func oracleK8sFailedIndexes() *oracle.Suite {
	return &oracle.Suite{
		File: "k8s_failed_indexes.json",
		Run: func(c *oracle.Check) {
			var p k8sPolicy
			var prior struct{ FailedIndexes string }
			var observed struct {
				Pods                  []k8sPod
				Pod, PodBeingReplaced *k8sPod
			}
			if !c.Inputs(map[string]any{"policy": &p, "prior": &prior, "observed": &observed}) {
				return
			}
			pods := observed.Pods
			for _, pod := range []*k8sPod{observed.Pod, observed.PodBeingReplaced} {
				if pod != nil {
					pods = append(pods, *pod)
				}
			}
			before, err := parseIndexes(prior.FailedIndexes)
			if c.LeaveOut(p.reasons(k8sGates{}, pods...)...) || c.LeaveOut(p.indexReasons(pods)...) || c.CannotRun(notRun(pods...)...) || c.LeaveOut(
				oracle.Reason{Holds: err != nil, Why: "prior indexes that cannot be read"},
				oracle.Reason{
					Holds: slices.ContainsFunc(p.rules(), func(r k8sRule) bool { return r.Action == "FailJob" }),
					Why:   "FailJob ends all indexes at once: a group, not a job",
				},
			) {
				return
			}
			var expected struct {
				Intervals                                         []oracle.Interval
				Derived                                           *string `json:"string_derived"`
				IndexFailed                                       *bool
				NewIndexFailureCount, NewIndexIgnoredFailureCount number
			}
			if !c.Expected(&expected) {
				return
			}
			j := p.translate(c)
			for i := range pods {
				if !pods[i].failed() {
					continue
				}
				d, n := j.alone(&pods[i])
				if !d.Requeue {
					index, _ := indexOf(&pods[i])
					before[index] = true
				}
				if observed.PodBeingReplaced != nil {
					oracle.Equal(c, "counted", int64(d.GlobalUsed), or(expected.NewIndexFailureCount, -1))
					oracle.Equal(c, "ignored", n.ignored(&d), or(expected.NewIndexIgnoredFailureCount, -1))
				}
				if expected.IndexFailed != nil {
					oracle.Equal(c, "failed", !d.Requeue, *expected.IndexFailed)
				}
			}
			if observed.Pods != nil {
				all := indexes{}
				for _, i := range expected.Intervals {
					for n := i[0]; n <= i[1]; n++ {
						all[n] = true
					}
				}
				oracle.Equal(c, "failed indexes", before.String(), all.String())
				if expected.Derived != nil {
					derived, err := parseIndexes(*expected.Derived)
					if err != nil {
						c.Errorf("%v", err)
					}
					oracle.Equal(c, "failed indexes", before.String(), derived.String())
				}
			}
		},
	}
}

// ignored is how many failures of the job were ignored, the last one included.
func (j *job) ignored(d *decided) int64 {
	n := int64(0)
	for _, r := range d.Why.Before.Rules {
		n += int64(r.Ignored)
	}
	if d.Code == policy.RuleIgnore {
		n++
	}
	return n
}

func TestOracleK8sBackoffLimitPerIndex(t *testing.T) {
	t.Parallel()
	oracleK8sBackoffLimitPerIndex().Test(t)
}

func oracleK8sBackoffLimitPerIndex() *oracle.Suite {
	const bookkeeping = "the controller's bookkeeping of pods, no decision"
	return &oracle.Suite{
		File: "k8s_sync_backoff_limit_per_index.json",
		Same: sameSaid,
		Silent: map[string]string{
			"expected.active": bookkeeping, "expected.failed": bookkeeping, "expected.terminating": bookkeeping, "expected.ready": bookkeeping,
			"expected.uncountedTerminatedPods": bookkeeping, "expected.succeeded": bookkeeping, "expected.completedIndexes": bookkeeping,
			"expected.conditions[].type":   "when Kubernetes says it, not what",
			"expected.conditions[].status": "always True",
		},
		Run: perIndex,
	}
}

func perIndex(c *oracle.Check) {
	var p k8sPolicy
	var prior struct {
		Failed, Succeeded               number
		FailedIndexes, CompletedIndexes string
		Conditions                      []k8sCondition
	}
	var observed struct{ Pods []k8sPod }
	var gates k8sGates
	if !c.Inputs(map[string]any{"policy": &p, "prior": &prior, "observed": &observed, "gates": &gates}) {
		return
	}
	failed, err := parseIndexes(prior.FailedIndexes)
	done, err2 := parseIndexes(prior.CompletedIndexes)
	off := gates.EnableJobBackoffLimitPerIndex != nil && !*gates.EnableJobBackoffLimitPerIndex
	if c.LeaveOut(p.reasons(gates, observed.Pods...)...) || c.LeaveOut(p.indexReasons(observed.Pods)...) || c.CannotRun(notRun(observed.Pods...)...) || c.LeaveOut(
		oracle.Reason{Holds: err != nil || err2 != nil, Why: "prior indexes that cannot be read"},
		oracle.Reason{Holds: off || p.BackoffLimitPerIndex == nil, Why: "no limit per index"},
		oracle.Reason{Holds: len(prior.Conditions) > 0, Why: "the Job had failed before"},
	) {
		return
	}
	var expected struct {
		FailedIndexes *string
		Conditions    []k8sCondition
	}
	if !c.Expected(&expected) {
		return
	}
	j := p.translate(c)
	v := k8sVerdict{counted: or(prior.Failed, 0)}
	alone := false // one index is over the Job's limit by itself
	for i := range observed.Pods {
		pod := &observed.Pods[i]
		index, _ := indexOf(pod)
		if pod.Phase == "Succeeded" {
			done[index] = true
		}
		if !pod.failed() {
			continue
		}
		d, _ := j.alone(pod)
		if d.Code != policy.RuleIgnore {
			v.counted++
		}
		switch {
		case d.Requeue:
		case j.action(&d) == "FailJob":
			v.reason, v.message = "PodFailurePolicy", j.says(&d)
		default:
			failed[index] = true
			alone = alone || d.limited() && p.BackoffLimit != nil && or(pod.IndexFailureCount, 0) >= *p.BackoffLimit
		}
	}
	over := p.BackoffLimit != nil && v.counted > *p.BackoffLimit
	if c.LeaveOut(oracle.Reason{Holds: over && !alone && v.reason == "", Why: "a limit for the failures of several indexes together: a group, not a job"}) {
		return
	}
	if v.reason == "" {
		v.reason = p.indexesReason(failed, done, alone)
	}
	v.compareConditions(c, expected.Conditions)
	if expected.FailedIndexes == nil {
		oracle.Equal(c, "failed indexes", failed.String(), "")
		return
	}
	want, err := parseIndexes(*expected.FailedIndexes)
	if err != nil {
		c.Errorf("%v", err)
	}
	oracle.Equal(c, "failed indexes", failed.String(), want.String())
}

// indexesReason is what Kubernetes makes of a Job by the indexes that failed.
func (p *k8sPolicy) indexesReason(failed, done indexes, overLimit bool) string {
	switch {
	case overLimit:
		return "BackoffLimitExceeded"
	case p.MaxFailedIndexes != nil && int64(len(failed)) > *p.MaxFailedIndexes:
		return "MaxFailedIndexesExceeded"
	case len(failed) > 0 && p.Completions != nil && int64(len(failed)+len(done)) >= *p.Completions:
		return "FailedIndexes"
	}
	return ""
}
