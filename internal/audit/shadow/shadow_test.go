package shadow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/audit/shadow"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// rows is the part of a job database that a report reads.
type rows struct {
	jobdb.Queries
	decisions []*jobdb.Decision
	jobs      []*jobdb.Job
}

func (r *rows) QueuesInShadow() (queues []string, _ error) {
	for _, d := range r.decisions {
		if d.Shadow && !slices.Contains(queues, d.Queue) {
			queues = append(queues, d.Queue)
		}
	}
	return queues, nil
}

func (r *rows) DecisionList(c *jobdb.Criteria, _ jobdb.Page, visit func(*jobdb.Decision) error) ([]any, error) {
	for _, d := range r.decisions {
		if c.Queue == "" || c.Queue == d.Queue {
			if err := visit(d); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

func (r *rows) JobList(c *jobdb.Criteria, _ jobdb.Page, visit func(*jobdb.Job) error) ([]any, error) {
	for _, j := range r.jobs {
		if c.Queue == "" || c.Queue == j.Queue {
			if err := visit(j); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// world parses one line per job: its id, its final state, and its failed runs, of which
// the last one is the job's latest unless "again" follows:
//
//	ID STATE [VERB:RULE:SECONDS@GENERATION]... [again]
//
// VERB is retry or fail, in shadow, or Retry or Fail, enforced. The time advances by
// one second per failure.
func world(t *testing.T, queue, text string) *rows {
	t.Helper()
	out := &rows{}
	now := int64(0)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		state := slices.Index(policy.Names(jobdb.UnknownJob, jobdb.JobStopping), words[1])
		if state < 0 {
			t.Fatalf("no job state is called %s", words[1])
		}
		j := &jobdb.Job{JobID: words[0], Queue: queue, State: jobdb.JobState(state)}
		for i, word := range words[2:] {
			j.Queueing.LatestRun = fmt.Sprint(words[0], "-", i)
			if word == "again" {
				continue
			}
			now += int64(time.Second)
			d := chain.Decision{Queue: queue, JobID: j.JobID, RunID: j.Queueing.LatestRun, RunIndex: uint32(i), Time: now}
			parts := strings.FieldsFunc(word, func(r rune) bool { return r == ':' || r == '@' })
			verb, rule := parts[0], parts[1]
			var seconds int64
			if _, err := fmt.Sscan(parts[2]+" "+parts[3], &seconds, &d.Generation); err != nil {
				t.Fatal(err)
			}
			d.Shadow = strings.ToLower(verb) == verb
			d.Requeue = strings.EqualFold(verb, "retry")
			d.Code = policy.RuleFail
			if rule != "none" {
				d.Policy, d.Rule = "p", rule
			}
			if d.Requeue {
				d.Code, d.RetryAfter = policy.RuleRetry, now+seconds*int64(time.Second)
			}
			out.decisions = append(out.decisions, &jobdb.Decision{Decision: d})
		}
		out.jobs = append(out.jobs, j)
	}
	return out
}

const everything = `
	failed       Failed    retry:a:10@7
	failed-too   Failed    fail:b:0@7
	rerun        Failed    retry:a:20@7 retry:a:40@7
	lost         Succeeded fail:b:0@7 fail:b:0@8 again
	not-lost     Failed    fail:b:0@8 again
	maybe-lost   Running   fail:b:0@8 again
	won          Succeeded retry:a:20@8 again
	cancelled    Cancelled retry:a:20@8
	odd          Succeeded fail:c:0@8
	waits        Queued    retry:none:0@8
	enforced     Failed    retry:a:20@8 Fail:b:0@11
	enforced-too Queued    Retry:a:20@10
	before       Queued    Retry:a:20@5
`

// TestRead: each job is counted by its outcome.
func TestRead(t *testing.T) {
	t.Parallel()
	w := world(t, "q", strings.TrimSpace(everything))
	queues, err := shadow.Read(w, shadow.Filter{})
	if err != nil || len(queues) != 1 {
		t.Fatalf("%d queues, %v", len(queues), err)
	}
	q := queues[0]
	if q.Name != "q" || q.First != 7 || q.Last != 8 || q.Enforced != 10 {
		t.Errorf("queue %s, generations %d to %d, enforced since %d", q.Name, q.First, q.Last, q.Enforced)
	}
	want := shadow.Jobs{All: 11, ArmadaFailed: 3, WouldRetry: 2, RanAgain: 3, ThenSucceeded: 1, ThenOpen: 1, Cancelled: 1, Open: 1}
	if diff := cmp.Diff(want, q.Jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	rules := []shadow.Rule{
		{Retry: shadow.Tally{Runs: 1, Open: 1, Codes: map[string]int{"RuleRetry": 1}}},
		{
			Policy: "p", Rule: "a",
			Retry: shadow.Tally{Runs: 6, ArmadaFailed: 2, RanAgain: 3, ThenSucceeded: 1, Cancelled: 1, Codes: map[string]int{"RuleRetry": 6}},
			Waits: shadow.Waits{Median: 20 * time.Second, Longest: 40 * time.Second, Total: 130 * time.Second},
		},
		{
			Policy: "p", Rule: "b",
			Fail: shadow.Tally{Runs: 5, ArmadaFailed: 1, RanAgain: 4, ThenSucceeded: 2, ThenOpen: 1, Codes: map[string]int{"RuleFail": 5}},
		},
		{Policy: "p", Rule: "c", Fail: shadow.Tally{Runs: 1, Succeeded: 1, Codes: map[string]int{"RuleFail": 1}}},
	}
	if diff := cmp.Diff(rules, q.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	var got []string
	for _, r := range q.Runs {
		got = append(got, fmt.Sprintf("%s %s %s differs=%v lost=%v", r.Decision.RunID, r.Outcome, r.Job, r.Differs(), r.Lost()))
	}
	wantRuns := []string{
		"failed-0 Failed Failed differs=true lost=false",
		"failed-too-0 Failed Failed differs=false lost=false",
		"rerun-0 RanAgain Failed differs=false lost=false",
		"rerun-1 Failed Failed differs=true lost=false",
		"lost-0 RanAgain Succeeded differs=true lost=true",
		"lost-1 RanAgain Succeeded differs=true lost=true",
		"not-lost-0 RanAgain Failed differs=true lost=false",
		"maybe-lost-0 RanAgain Running differs=true lost=false",
		"won-0 RanAgain Succeeded differs=false lost=false",
		"cancelled-0 Cancelled Cancelled differs=false lost=false",
		"odd-0 Succeeded Succeeded differs=false lost=false",
		"waits-0 Open Queued differs=false lost=false",
		"enforced-0 RanAgain Failed differs=false lost=false",
	}
	if diff := cmp.Diff(wantRuns, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// TestFilter filters by queue and time; generations include all decisions.
func TestFilter(t *testing.T) {
	t.Parallel()
	w := world(t, "q", strings.TrimSpace(everything))
	other := world(t, "other", "j Failed retry:a:1@9")
	w.decisions, w.jobs = append(w.decisions, other.decisions...), append(w.jobs, other.jobs...)
	for _, tt := range []struct {
		filter shadow.Filter
		want   string
	}{
		{shadow.Filter{}, "other 9-9 1 runs, 1 jobs; q 7-8 13 runs, 11 jobs"},
		{shadow.Filter{Queue: "q"}, "q 7-8 13 runs, 11 jobs"},
		{shadow.Filter{Queue: "Q"}, ""},
		{shadow.Filter{Since: int64(12 * time.Second)}, "q 7-8 2 runs, 2 jobs"},
		{shadow.Filter{Since: int64(time.Hour)}, ""},
	} {
		queues, err := shadow.Read(w, tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, q := range queues {
			got = append(got, fmt.Sprintf("%s %d-%d %d runs, %d jobs", q.Name, q.First, q.Last, len(q.Runs), q.Jobs.All))
		}
		if got := strings.Join(got, "; "); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.filter, got, tt.want)
		}
	}
}

// TestSentences: each part says what it is a part of.
func TestSentences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		jobs  shadow.Jobs
		fails bool
		want  string
	}{
		{shadow.Jobs{All: 1}, false, "Armada failed 0 of 1 job whose run failed."},
		{shadow.Jobs{All: 1200, ArmadaFailed: 1040, WouldRetry: 34}, true, "Armada failed 1,040 of 1,200 jobs whose run failed; of the 1,040 that it failed, Refloat would have retried 34. " +
			"Armada reran no job that Refloat would have failed."},
		{shadow.Jobs{All: 3, RanAgain: 2, ThenSucceeded: 1, ThenOpen: 1, Cancelled: 1, Open: 1}, true, "Armada failed 0 of 3 jobs whose run failed. " +
			"Armada reran 2 jobs that Refloat would have failed, of which 1 succeeded and 1 not yet over: in Enforce mode the 1 that succeeded would have failed. " +
			"Cancelled after the failure: 1 job. Unfinished, so the last failed run is not compared: 1 job."},
	} {
		if got := strings.Join(c.jobs.Sentences(c.fails), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.jobs, got, c.want)
		}
	}
}
