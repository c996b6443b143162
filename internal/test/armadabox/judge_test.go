package armadabox_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// judge waits until all jobs are as expected, and then looks at what must hold always.
func (r *run) judge() error {
	var found error
	err := r.until("all is as expected", func() bool {
		found = nil
		for _, name := range slices.Sorted(maps.Keys(r.Expect)) {
			if some := r.Expect[name].Some; some != "" && !slices.ContainsFunc(r.of(name), func(j *seenJob) bool { return j.hasRun(some) }) {
				found = errors.Join(found, fmt.Errorf("no run of %s is %s", name, some))
			}
			for _, j := range r.of(name) {
				if err := r.Expect[name].judge(j); err != nil {
					found = errors.Join(found, fmt.Errorf("job %s %s %w", name, j.ID, err))
				}
			}
		}
		return found == nil
	})
	if err != nil {
		return errors.Join(found, err)
	}
	for _, name := range slices.Sorted(maps.Keys(r.ids)) {
		for _, j := range r.of(name) {
			if err := j.always(); err != nil {
				found = errors.Join(found, fmt.Errorf("job %s %s %w", name, j.ID, err))
			}
		}
	}
	return found
}

func (e expectation) judge(j *seenJob) error {
	if j.State != e.Is && (e.Is != "over" || !j.over()) {
		return fmt.Errorf("is %s, want %s", j.State, e.Is)
	}
	var runs, decisions, executors []string
	for _, v := range j.Runs {
		runs = append(runs, v.State)
		executors = append(executors, v.Executor)
	}
	for _, d := range j.Decisions {
		decisions = append(decisions, d.Code)
	}
	switch {
	case e.Runs != nil && !slices.Equal(runs, e.Runs):
		return fmt.Errorf("has the runs %q, want %q", runs, e.Runs)
	case len(runs) < e.MinRuns:
		return fmt.Errorf("has %d runs, want at least %d", len(runs), e.MinRuns)
	case e.Decisions != nil && !slices.Equal(decisions, e.Decisions):
		return fmt.Errorf("has the decisions %q, want %q", decisions, e.Decisions)
	case e.Undecided && decisions != nil:
		return fmt.Errorf("has the decisions %q, want none", decisions)
	case e.Executions != nil && !slices.Equal(executors, e.Executions):
		return fmt.Errorf("ran on the executors %q, want %q", executors, e.Executions)
	case e.Priority != nil && j.Priority != *e.Priority:
		return fmt.Errorf("has the priority %d, want %d", j.Priority, *e.Priority)
	}
	return e.judgeRuns(j)
}

func (e expectation) judgeRuns(j *seenJob) error {
	for i, v := range j.Runs {
		if e.Requested != nil && v.Requested != *e.Requested {
			return fmt.Errorf("run %d: preemption requested is %t", i+1, v.Requested)
		}
		if i == 0 {
			continue
		}
		before := j.Runs[i-1]
		if e.OtherNode && v.Node == before.Node {
			return fmt.Errorf("runs %d and %d are on %s", i, i+1, v.Node)
		}
		if gap := v.Leased.Sub(before.Ended); !before.Ended.IsZero() && gap < time.Duration(e.Gap) {
			return fmt.Errorf("run %d was leased %v after the end of the one before, want at least %v", i+1, gap, time.Duration(e.Gap))
		}
	}
	return nil
}

func (j *seenJob) hasRun(state string) bool {
	return slices.ContainsFunc(j.Runs, func(v seenRun) bool { return v.State == state })
}

// always is what holds of each job at any time: no two of its runs overlap, no run
// has two decisions, and none is leased before our decision on the one before allows it.
func (j *seenJob) always() error {
	decided := map[string]seenDecision{}
	for _, d := range j.Decisions {
		if _, twice := decided[d.Run]; twice {
			return fmt.Errorf("has two decisions on run %s", d.Run)
		}
		decided[d.Run] = d
	}
	for i, v := range j.Runs[:max(len(j.Runs)-1, 0)] {
		next := j.Runs[i+1]
		if !v.Ended.IsZero() && next.Leased.Before(v.Ended) || v.Ended.Unix() == 0 {
			return fmt.Errorf("run %d was leased at %s and run %d ended at %s", i+2, clock(next.Leased), i+1, clock(v.Ended))
		}
		if d := decided[v.ID]; d.Acted && next.Leased.Before(d.RetryAfter) {
			return fmt.Errorf("run %d was leased at %s, and not to be before %s", i+2, clock(next.Leased), clock(d.RetryAfter))
		}
	}
	return nil
}
