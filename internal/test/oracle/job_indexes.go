package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// FailedIndexes is the suite of k8s_failed_indexes.json.
func (start Jobs) FailedIndexes() *Suite {
	return &Suite{
		File: "k8s_failed_indexes.json",
		Run: func(c *Check) {
			var row struct {
				Policy   Job
				Prior    struct{ FailedIndexes string }
				Observed struct {
					Pods                  []Pod
					Pod, PodBeingReplaced *Pod
				}
				Expected struct {
					Intervals                                         []Interval
					StringDerived                                     *string `json:"string_derived"`
					IndexFailed                                       *bool
					NewIndexFailureCount, NewIndexIgnoredFailureCount *int
				}
			}
			if !c.Read(&row) {
				return
			}
			pods := row.Observed.Pods
			for _, p := range []*Pod{row.Observed.Pod, row.Observed.PodBeingReplaced} {
				if p != nil {
					pods = append(pods, *p)
				}
			}
			g := start.indexes(c, &row.Policy, pods)
			if g == nil || c.CannotRun(Reason{len(pods) == 0, "no pod"}) {
				return
			}
			row.Policy.before(c, g, row.Prior.FailedIndexes, "")
			row.Policy.observe(c, g, pods)
			want := row.Expected
			n, _ := strconv.Atoi(fmt.Sprint(pods[0].Index))
			var decided []Decision
			if g.State(index(n)) != "" {
				decided = g.Decisions(index(n))
			}
			if want.StringDerived != nil || want.Intervals != nil {
				got := indexString(failedIndexes(g))
				Equal(c, "intervals", got, indexString(indexesOf(want.Intervals)))
				EqualIf(c, "failed indexes", got, want.StringDerived)
			}
			EqualIf(c, "failed", g.State(index(n)) == Failed, want.IndexFailed)
			if want.NewIndexFailureCount == nil && want.NewIndexIgnoredFailureCount == nil {
				return
			}
			if len(decided) == 0 {
				c.Fatalf("no failure was decided")
			}
			ignoring := 0
			for _, d := range decided {
				if ignored(d) {
					ignoring++
				}
			}
			EqualIf(c, "failures", len(decided)-ignoring, want.NewIndexFailureCount)
			EqualIf(c, "failures that are retries", decided[len(decided)-1].Used, want.NewIndexFailureCount)
			EqualIf(c, "ignored failures", ignoring, want.NewIndexIgnoredFailureCount)
		},
	}
}

// indexes starts a Job of which a row tells the pods only: with as many indexes as it says, else as its pods need, and
// with a limit that they do not reach, if it has none.
func (start Jobs) indexes(c *Check, j *Job, pods []Pod) Group {
	var read struct{ Policy map[string]any }
	if !c.Read(&read) {
		return nil
	}
	spec, most := maps.Clone(read.Policy), 0
	if spec == nil {
		spec = map[string]any{}
	}
	for _, p := range pods {
		n, _ := strconv.Atoi(fmt.Sprint(p.Index))
		most = max(most, n)
	}
	if j.Completions == nil {
		j.Completions = new(most + 1)
		spec["completions"] = most + 1
	}
	if j.BackoffLimitPerIndex == nil {
		c.Adapt("no backoffLimitPerIndex: one that no index reaches")
		j.BackoffLimitPerIndex = new(2 * maxFailures)
		spec["backoffLimitPerIndex"] = 2 * maxFailures
	}
	own := func(c *Check, j *Job) Group {
		j.Spec = spec
		return start(c, j)
	}
	return Jobs(own).start(c, j, pods)
}

// CompletedIndexes is the suite of k8s_completed_indexes.json.
func (start Jobs) CompletedIndexes() *Suite {
	return &Suite{
		File: "k8s_completed_indexes.json",
		Run: func(c *Check) {
			var row struct {
				Prior    struct{ CompletedIndexes string }
				Observed struct {
					Completions int
					Pods        []Pod
				}
				Expected struct {
					Intervals, FromStatusIntervals []Interval
					AsString                       string `json:"intervalsAsString_derived"`
				}
			}
			if !c.Read(&row) {
				return
			}
			damaged := &Check{}
			prior := parseIndexes(damaged, row.Prior.CompletedIndexes)
			if c.LeaveOut(Reason{
				len(damaged.findings) > 0 || !slices.IsSorted(prior), "reads a damaged status string: there is none of a group (internal/jobdb reads them)",
			}) {
				return
			}
			n := row.Observed.Completions
			j := &Job{Completions: &n, Parallelism: &n, BackoffLimitPerIndex: new(maxFailures)}
			j.Spec = map[string]any{"completions": n, "parallelism": n, "backoffLimitPerIndex": maxFailures, "completionMode": "Indexed"}
			if c.CannotRun(Reason{n < 1 || n > maxMembers, "as many completions as no test runs"}) {
				return
			}
			j.name(nil)
			g := start(c, j)
			if g == nil {
				return
			}
			j.before(c, g, "", row.Prior.CompletedIndexes)
			Equal(c, "from the status", indexString(succeededIndexes(g)), indexString(indexesOf(row.Expected.FromStatusIntervals)))
			j.observe(c, g, row.Observed.Pods)
			got := indexString(succeededIndexes(g))
			Equal(c, "intervals", got, indexString(indexesOf(row.Expected.Intervals)))
			Equal(c, "completed indexes", got, row.Expected.AsString)
		},
	}
}

// SucceededIndexes are the indexes that a row says have succeeded.
func SucceededIndexes(c *Check) []int {
	var row struct {
		Observed struct{ SucceededIndexes any }
	}
	if !c.Read(&row) {
		return nil
	}
	if _, isList := row.Observed.SucceededIndexes.([]any); !isList {
		return nil // no set at all
	}
	var list struct{ SucceededIndexes []Interval }
	if !c.Part("observed", &list) {
		return nil
	}
	return indexesOf(list.SucceededIndexes)
}
