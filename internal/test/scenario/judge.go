package scenario

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/policy"
)

// Jobs are what was seen of a scenario's jobs, by their names in it.
type Jobs map[string][]*Seen

// Judge says what is not as the scenario expects.
func (s Scenario) Judge(jobs Jobs) (found error) {
	for _, name := range slices.Sorted(maps.Keys(s.Expect)) {
		e := s.Expect[name]
		if e.Some != "" && !slices.ContainsFunc(jobs[name], func(j *Seen) bool { return j.hasRun(e.Some) }) {
			found = errors.Join(found, fmt.Errorf("no run of %s is %s", name, e.Some))
		}
		for _, j := range jobs[name] {
			if err := e.judge(j); err != nil {
				found = errors.Join(found, fmt.Errorf("job %s %s %w", name, j.ID, err))
			}
		}
	}
	return found
}

// Always says what is not as it must be of every job at any time.
func (jobs Jobs) Always() (found error) {
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		for _, j := range jobs[name] {
			if err := j.always(); err != nil {
				found = errors.Join(found, fmt.Errorf("job %s %s %w", name, j.ID, err))
			}
		}
	}
	return found
}

// Anytime reports violations of what must hold for every job at any time, also before it ends: for example, a
// restarted scheduler would lease a job that is queued beside an active run.
func (jobs Jobs) Anytime() (found error) {
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		for _, j := range jobs[name] {
			if n := len(j.Runs); j.Queued && n > 0 && j.Runs[n-1].live() && !j.Over() {
				found = errors.Join(found, fmt.Errorf("job %s %s is queued while its run %d is %s", name, j.ID, n, j.Runs[n-1].State))
			}
		}
	}
	return found
}

// String formats the observations for people.
func (jobs Jobs) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		for _, j := range jobs[name] {
			fmt.Fprintf(&b, "%s %s: %s, queued: %t, priority %d\n", name, j.ID, j.State, j.Queued, j.Priority)
			for i, v := range j.Runs {
				fmt.Fprintf(&b, "  run %d on %s: %s, leased %s, ended %s, preemption requested: %t\n", i+1, v.Node, v.State, clock(v.Leased), clock(v.Ended), v.Requested)
			}
			for _, d := range j.Decisions {
				fmt.Fprintf(&b, "  decision on %s: %s, retry after %s, acted: %t\n", d.Run, d.Code, clock(d.RetryAfter), d.Acted)
			}
		}
	}
	return b.String()
}

func clock(t time.Time) string {
	if t.Unix() <= 0 {
		return "-"
	}
	return t.Format("15:04:05.000")
}

// Holds says whether all these jobs are as the moment says.
func (m Moment) Holds(jobs []*Seen) bool {
	if m.Over > 0 {
		over := slices.DeleteFunc(slices.Clone(jobs), func(j *Seen) bool { return !j.Over() })
		return len(over) >= m.Over
	}
	return len(jobs) > 0 && !slices.ContainsFunc(jobs, func(j *Seen) bool { return !j.is(m.Is) || m.Run != 0 && len(j.Runs) != m.Run })
}

func (j *Seen) is(state string) bool { return j.State == state || state == "over" && j.Over() }

func (e Expectation) judge(j *Seen) error {
	if !j.is(e.Is) {
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
	case e.Executors != nil && !slices.Equal(executors, e.Executors):
		return fmt.Errorf("ran on the executors %q, want %q", executors, e.Executors)
	case e.Priority != nil && j.Priority != *e.Priority:
		return fmt.Errorf("has the priority %d, want %d", j.Priority, *e.Priority)
	}
	return e.judgeRuns(j)
}

func (e Expectation) judgeRuns(j *Seen) error {
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

func (j *Seen) hasRun(state string) bool {
	return slices.ContainsFunc(j.Runs, func(v Run) bool { return v.State == state })
}

// always checks what must hold for each job at any time: no two of its runs overlap, no run has two decisions, and
// none is leased before our decision on the previous one allows it.
func (j *Seen) always() error {
	decided := map[string]Decision{}
	for _, d := range j.Decisions {
		if _, twice := decided[d.Run]; twice {
			return fmt.Errorf("has two decisions on run %s", d.Run)
		}
		decided[d.Run] = d
	}
	// Nothing takes a job out of the queue but a lease, in Armada too. A job that succeeds
	// there does so by a run that was decided before its success arrived.
	if n := len(j.Runs); j.State == "succeeded" && j.Queued && (n == 0 || decided[j.Runs[n-1].ID] == Decision{}) {
		return errors.New("succeeded and is queued, and its last run was not decided")
	}
	for i, v := range j.Runs[:max(len(j.Runs)-1, 0)] {
		next := j.Runs[i+1]
		if !v.Ended.IsZero() && next.Leased.Before(v.Ended) || v.Ended.Unix() == 0 {
			return fmt.Errorf("run %d was leased at %s and run %d ended at %s", i+2, clock(next.Leased), i+1, clock(v.Ended))
		}
		// What a breaker holds starts when an order brings it forward.
		if d := decided[v.ID]; d.Acted && d.Code != policy.BreakerHeld.String() && next.Leased.Before(d.RetryAfter) {
			return fmt.Errorf("run %d was leased at %s, and not to be before %s", i+2, clock(next.Leased), clock(d.RetryAfter))
		}
	}
	return nil
}
