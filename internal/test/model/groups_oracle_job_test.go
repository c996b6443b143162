package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/refloat/refloat/events/pb"
)

// Kubernetes Job.

type podRule struct {
	Action      string
	OnExitCodes *struct {
		Operator string
		Values   []int32
	}
}

type jobPolicy struct {
	BackoffLimit, BackoffLimitPerIndex *int
	Completions, Parallelism           int
	MaxFailedIndexes                   *int
	PodFailurePolicy                   *struct{ Rules []podRule }
}

type pod struct {
	Index             any
	Phase             string
	IndexFailureCount int
	Containers        []struct{ ExitCode int32 }
}

// job is the policy set of a Job of several indexes.
func (p jobPolicy) job() Policies {
	part := GroupPart{Name: "main", Members: new(p.Completions), MaxFailedMembers: p.MaxFailedIndexes}
	if p.BackoffLimitPerIndex != nil {
		part.OnMemberFailure = "Continue"
	}
	if p.BackoffLimit != nil && *p.BackoffLimit < 1<<20 {
		part.RetryLimit = p.BackoffLimit
	}
	member := Policy{Name: "pods", DefaultAction: "Retry", RetryLimit: p.BackoffLimitPerIndex}
	if p.PodFailurePolicy != nil {
		actions := map[string]string{"FailJob": "FailUnit", "FailIndex": "Fail", "Ignore": "Ignore", "Count": "Retry"}
		for _, r := range p.PodFailurePolicy.Rules {
			member.Rules = append(member.Rules, Rule{
				Action: actions[r.Action], OnExitCodes: &ExitCodes{r.OnExitCodes.Operator, r.OnExitCodes.Values},
			})
		}
	}
	set := ml(Settings{GlobalMaxRetries: new(1000)}, member)
	set.Groups = []GroupPolicy{{Name: "p", Parts: []GroupPart{part}}}
	return set
}

// startJob submits the members of a Job.
func startJob(t *testing.T, p jobPolicy) *trial {
	t.Helper()
	r := newTrial(t, p.job())
	var events []*pb.Event
	for i := range p.Completions {
		events = append(events, in(fmt.Sprint(i), annotationIndex, strconv.Itoa(i)))
	}
	r.say(events...)
	return r
}

// observe lets the pods of a row come to where they are.
func (r *trial) observe(pods []pod) []Record {
	var last []Record
	for _, p := range pods {
		index := fmt.Sprint(p.Index)
		for r.runs[index] < p.IndexFailureCount {
			r.exit(index, 1, "")
		}
		code := int32(1)
		if len(p.Containers) > 0 {
			code = p.Containers[0].ExitCode
		}
		switch p.Phase {
		case "Failed":
			last = r.exit(index, code, "")
		case "Succeeded":
			last = r.say(succeeded(index, r.run(index)))
		default:
			last = r.say(lease(index, r.run(index)))
		}
	}
	return last
}

// indexes of the members that are over for a cause, as Kubernetes writes them.
func (r *trial) indexes(over string) string {
	var list []int
	for _, mem := range r.m.groups[0].members() {
		failedUnit := slices.ContainsFunc(r.all, func(rec Record) bool {
			return rec.JobID == mem.job.id && (rec.UnitReason == PodFailurePolicy || rec.Code == UnitLimit)
		})
		if mem.over == over && !failedUnit {
			list = append(list, mem.index)
		}
	}
	return indexString(list)
}

// indexString: two in a row are written one by one, three or more as an interval.
func indexString(list []int) string {
	var words []string
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		switch k {
		case i:
			words = append(words, strconv.Itoa(list[i]))
		case i + 1:
			words = append(words, strconv.Itoa(list[i]), strconv.Itoa(list[k]))
		default:
			words = append(words, fmt.Sprintf("%d-%d", list[i], list[k]))
		}
		i = k + 1
	}
	return strings.Join(words, ",")
}

func TestJobPerIndex(t *testing.T) {
	t.Parallel()
	type row struct {
		Policy   jobPolicy
		Observed struct{ Pods []pod }
		Expected struct {
			Active                          *int
			FailedIndexes, CompletedIndexes string
			Conditions                      []struct{ Reason string }
		}
	}
	oracle(t, "k8s_sync_backoff_limit_per_index.json", func(t *testing.T, _ string, row row) {
		r := startJob(t, row.Policy)
		r.observe(row.Observed.Pods)
		if got := r.indexes(failedForGood); got != row.Expected.FailedIndexes {
			t.Errorf("failedIndexes %q, want %q", got, row.Expected.FailedIndexes)
		}
		if got := r.indexes(succeededWell); got != row.Expected.CompletedIndexes {
			t.Errorf("completedIndexes %q, want %q", got, row.Expected.CompletedIndexes)
		}
		reason := ""
		for _, rec := range r.all {
			if rec.GroupAction != "" && reason == "" {
				reason = rec.UnitReason + rec.State
				if rec.Kind == UnitEnded {
					reason = rec.Reason
				}
			}
		}
		want := ""
		if len(row.Expected.Conditions) > 0 {
			want = row.Expected.Conditions[0].Reason
		}
		if reason != want {
			t.Errorf("the unit failed by %q, want %q", reason, want)
		}
		active := r.m.groups[0].units()[0].count(func(mem *member) bool { return mem.over == "" })
		if row.Expected.Active != nil && active != *row.Expected.Active {
			t.Errorf("%d active, want %d", active, *row.Expected.Active)
		}
	})
}

func TestJobFailedIndexes(t *testing.T) {
	t.Parallel()
	type row struct {
		Policy   jobPolicy
		Prior    struct{ FailedIndexes string }
		Observed struct {
			Pods                  []pod
			Pod, PodBeingReplaced *pod
		}
		Expected struct {
			StringDerived        string `json:"string_derived"`
			IndexFailed          *bool
			NewIndexFailureCount *int
		}
	}
	oracle(t, "k8s_failed_indexes.json", func(t *testing.T, _ string, row row) {
		pods := row.Observed.Pods
		for _, p := range []*pod{row.Observed.Pod, row.Observed.PodBeingReplaced} {
			if p != nil {
				pods = append(pods, *p)
			}
		}
		row.Policy.Completions = max(row.Policy.Completions, 1)
		r := startJob(t, row.Policy)
		if row.Prior.FailedIndexes != "" { // with backoffLimitPerIndex 0
			r.exit(row.Prior.FailedIndexes, 1, "")
		}
		for _, p := range pods { // no member has an index that is not declared
			if index := fmt.Sprint(p.Index); index >= strconv.Itoa(row.Policy.Completions) {
				r.say(in(index, annotationIndex, index))
			}
		}
		last := r.observe(pods)
		switch {
		case row.Expected.IndexFailed != nil:
			if got := r.indexes(failedForGood) == fmt.Sprint(pods[0].Index); got != *row.Expected.IndexFailed {
				t.Errorf("failed %t, want %t", got, *row.Expected.IndexFailed)
			}
		case row.Expected.NewIndexFailureCount != nil:
			if got := last[0].RuleUsed; got != *row.Expected.NewIndexFailureCount {
				t.Errorf("%d failures, want %d", got, *row.Expected.NewIndexFailureCount)
			}
		default:
			if got := r.indexes(failedForGood); got != row.Expected.StringDerived {
				t.Errorf("failedIndexes %q, want %q", got, row.Expected.StringDerived)
			}
		}
	})
}

func TestJobBackoffLimit(t *testing.T) {
	t.Parallel()
	type row struct {
		Policy   jobPolicy
		Observed struct{ FailedPods int }
		Expected struct {
			ExpectedActive     int
			ExpectedConditions []struct{ Reason string }
		}
	}
	oracle(t, "k8s_backoff_limit.json", func(t *testing.T, _ string, row row) {
		r := startJob(t, row.Policy)
		var last []Record
		for i := range row.Observed.FailedPods {
			last = r.exit(strconv.Itoa(i%row.Policy.Completions), 1, "")
		}
		active := r.m.groups[0].units()[0].count(func(mem *member) bool { return mem.over == "" })
		if active != row.Expected.ExpectedActive {
			t.Errorf("%d active, want %d", active, row.Expected.ExpectedActive)
		}
		want := ""
		if len(row.Expected.ExpectedConditions) > 0 {
			want = row.Expected.ExpectedConditions[0].Reason
		}
		if got := last[0].UnitReason; got != want {
			t.Errorf("the unit failed by %q, want %q", got, want)
		}
	})
}

func TestJobCompletedIndexes(t *testing.T) {
	t.Parallel()
	type row struct {
		Prior    struct{ CompletedIndexes string }
		Observed struct {
			Completions int
			Pods        []pod
		}
		Expected struct {
			IntervalsAsString string `json:"intervalsAsString_derived"`
		}
	}
	oracle(t, "k8s_completed_indexes.json", func(t *testing.T, _ string, row row) {
		p := jobPolicy{Completions: row.Observed.Completions, BackoffLimitPerIndex: new(5)}
		r := startJob(t, p)
		var pods []pod
		for word := range strings.SplitSeq(row.Prior.CompletedIndexes, ",") {
			from, to, interval := strings.Cut(word, "-")
			if !interval {
				to = from
			}
			first, _ := strconv.Atoi(from)
			last, _ := strconv.Atoi(to)
			for i := first; from != "" && i <= last; i++ {
				pods = append(pods, pod{Index: i, Phase: "Succeeded"})
			}
		}
		for _, p := range row.Observed.Pods {
			if index := fmt.Sprint(p.Index); p.Phase == "Succeeded" && r.m.jobs[index] == nil {
				r.say(in(index, annotationIndex, index)) // an index that is not declared, or none
			}
			pods = append(pods, p)
		}
		r.observe(pods)
		if got := r.indexes(succeededWell); got != row.Expected.IntervalsAsString {
			t.Errorf("completedIndexes %q, want %q", got, row.Expected.IntervalsAsString)
		}
	})
}
