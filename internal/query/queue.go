package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// QueueQuestion asks what happened to the failed runs of a queue.
type QueueQuestion struct {
	Queue  string
	JobSet string // "": the whole queue
	Since  int64  // only failures, and ends of jobs, from then on, in Unix nanoseconds; 0: all
	Limit  int    // bounds the lists of jobs; 0: all
}

// QueueStory is what happened to the failed runs of a queue or a job set.
type QueueStory struct {
	Queue         string   `json:"queue"`
	JobSet        string   `json:"jobSet,omitempty"`
	Since         string   `json:"since,omitempty"`
	Decisions     int      `json:"decisions"`     // retries, failures and those without effect
	Retries       int      `json:"retries"`       // Retried
	Failures      int      `json:"failures"`      // FailedForGood
	WithoutEffect int      `json:"withoutEffect"` // the next two
	InShadow      int      `json:"inShadow"`
	Superseded    int      `json:"superseded"`
	Codes         []Tally  `json:"codes"`
	Rules         []Tally  `json:"rules"`
	Causes        []Tally  `json:"causes"`   // of decided failures
	CausesOf      int      `json:"causesOf"` // the decisions whose failures Causes counts: the newest ones, up to 500
	Failed        Outcomes `json:"failedForGood"`
	Pending       Outcomes `json:"pendingRetries"`
	Policies      *InForce `json:"policies,omitempty"` // absent: the policies log was not read
}

// Tally is how often a code, rule or cause occurred.
type Tally struct {
	Key   string `json:"key"`
	Count int    `json:"count"`
}

// Outcomes are jobs with the same outcome.
type Outcomes struct {
	Count int           `json:"count"`
	Jobs  []LastOutcome `json:"jobs"` // the newest, up to the limit
}

// LastOutcome is a job, and the last decision on it.
type LastOutcome struct {
	JobID      string `json:"jobId"`
	Runs       uint32 `json:"runs"`
	Ended      string `json:"ended,omitempty"`
	RetryAfter string `json:"retryAfter,omitempty"`
	Code       string `json:"code,omitempty"`
	Rule       string `json:"rule,omitempty"`
	Reason     string `json:"reason"` // of the last decision; without one, what Armada says
}

// InForce are the policies in force.
type InForce struct {
	Generation uint64       `json:"generation"`
	Applying   []string     `json:"applying"` // to a job that names none
	Shadow     bool         `json:"shadow"`
	Limit      uint32       `json:"globalMaxRetries"`
	Changes    []LastChange `json:"lastChanges"`
	Overrides  []string     `json:"brakes"`
}

// Name names what the story is about.
func (s *QueueStory) Name() string {
	if s.JobSet == "" {
		return "queue " + OneLine(s.Queue)
	}
	return "job set " + OneLine(s.JobSet) + " of queue " + OneLine(s.Queue)
}

// Effects returns what became of the decisions.
func (s *QueueStory) Effects() Effects {
	return Effects{uint64(s.Retries), uint64(s.Failures), uint64(s.InShadow), uint64(s.Superseded)}
}

// NewestCauses says that only the causes of the newest decided failures were counted; "": all were.
func (s *QueueStory) NewestCauses() string {
	if s.CausesOf >= s.Decisions {
		return ""
	}
	return fmt.Sprintf(" of the newest %d", s.CausesOf)
}

// QueueStory is what happened to the failed runs of a queue or a job set. Retries that are pending are all listed.
// Errors: *NotFound, *Invalid.
func (s *Source) QueueStory(ctx context.Context, about QueueQuestion) (*QueueStory, error) {
	if about.Limit < 0 {
		return nil, invalid("limit", "%d: want 1 or more, or 0 for all", about.Limit)
	}
	if about.Queue == "" {
		return nil, invalid("queue", "it is empty: which queue?")
	}
	out := &QueueStory{Queue: about.Queue, JobSet: about.JobSet, Since: TimeText(about.Since)}
	var generation uint64
	jobs := 0
	err := s.Jobs(ctx, func(q jobdb.Queries) error {
		some, err := out.count(q, &about)
		jobs = some
		return errors.Join(err, q.Activations(jobdb.RecordFilter{}, func(a *jobdb.Activation) error {
			generation = max(generation, a.Generation)
			return nil
		}))
	})
	switch {
	case err != nil:
		return nil, err
	case jobs == 0:
		return nil, &NotFound{What: out.Name(), Text: "the job database has no job of " + out.Name()}
	case s.Policies == nil:
		return out, nil
	}
	at, err := s.Generation(ctx, generation)
	if err != nil {
		return nil, err
	}
	out.Policies = at.inForce(about.Queue)
	return out, nil
}

// count reads the job database, and returns 0 if it has no such job.
func (s *QueueStory) count(q jobdb.Queries, about *QueueQuestion) (jobs int, err error) {
	of := jobdb.Criteria{Queue: s.Queue, JobSet: s.JobSet}
	if _, err := q.JobList(&of, jobdb.Page{Limit: 1}, func(*jobdb.Job) error { jobs++; return nil }); err != nil || jobs == 0 {
		return jobs, err
	}
	failures := of
	failures.Since = about.Since
	counts, err := q.CountDecisions(&failures)
	if err != nil {
		return 0, err
	}
	codes, rules := map[string]int{}, map[string]int{}
	for i := range counts {
		c := &counts[i]
		codes[c.Code.String()] += int(c.Count)
		if c.Rule != "" {
			rules[RuleName(c.Policy, c.Rule)] += int(c.Count)
		}
	}
	n := CountEffects(counts)
	s.Decisions, s.Retries, s.Failures = int(n.All()), int(n.Retried), int(n.FailedForGood)
	s.WithoutEffect, s.InShadow, s.Superseded = int(n.WithoutEffect()), int(n.InShadow), int(n.Superseded)
	s.Codes, s.Rules = Ranked(codes), Ranked(rules)
	if err := s.countCauses(q, &failures); err != nil {
		return 0, err
	}
	failed, pending := of, of
	failed.States, failed.EndedSince = []uint8{uint8(jobdb.JobFailed)}, about.Since
	pending.Waiting = true
	if s.Failed, err = outcomesOf(q, &failed, "ended", about.Limit); err != nil {
		return 0, err
	}
	s.Pending, err = outcomesOf(q, &pending, "retry-after", about.Limit)
	return jobs, err
}

// maxCauses bounds the failures whose causes are counted: each is read from its run's error.
const maxCauses = 500

// countCauses counts the causes of the newest decided failures.
func (s *QueueStory) countCauses(q jobdb.Queries, of *jobdb.Criteria) error {
	type job struct {
		partition int
		id        string
	}
	decided := map[job]map[string]bool{} // runs
	if _, err := q.DecisionList(of, jobdb.Page{Sort: "time", Descending: true, Limit: maxCauses}, func(d *jobdb.Decision) error {
		s.CausesOf++
		j := job{d.Partition, d.JobID}
		if decided[j] == nil {
			decided[j] = map[string]bool{}
		}
		decided[j][d.RunID] = true
		return nil
	}); err != nil {
		return err
	}
	causes := map[string]int{}
	for j, runs := range decided {
		if err := q.Runs(j.partition, j.id, func(r *jobdb.Run) error {
			if r.Decision == 0 || !runs[r.RunID] {
				return nil
			}
			x, err := audit.Recall(audit.Case{Job: &jobdb.Job{}, Run: r, Decision: &chain.Decision{}})
			causes[audit.Cause(&x.Facts)]++
			return err
		}); err != nil {
			return err
		}
	}
	s.Causes = Ranked(causes)
	return nil
}

// Ranked orders counts, the greatest first.
func Ranked(counts map[string]int) []Tally {
	list := make([]Tally, 0, len(counts))
	for key, n := range counts {
		list = append(list, Tally{key, n})
	}
	slices.SortFunc(list, func(a, b Tally) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) })
	return list
}

// outcomesOf counts jobs, and returns the last decision on the newest of them.
func outcomesOf(q jobdb.Queries, c *jobdb.Criteria, sort string, limit int) (all Outcomes, err error) {
	all.Jobs = []LastOutcome{}
	n, err := q.CountJobs(c)
	if err != nil {
		return all, err
	}
	all.Count = int(n)
	var listed []*jobdb.Job
	_, err = q.JobList(c, jobdb.Page{Sort: sort, Descending: true, Limit: limit}, func(j *jobdb.Job) error {
		listed = append(listed, j)
		return nil
	})
	for _, j := range listed {
		one := LastOutcome{JobID: j.JobID, Runs: j.Queueing.Runs, Ended: TimeText(j.Times.Ended), RetryAfter: TimeText(j.Queueing.RetryAfter)}
		if j.Armada.Failed {
			one.Reason = strings.TrimSpace("Armada: " + j.Armada.Reason + " " + j.Armada.Message)
		}
		err = errors.Join(err, q.Decisions(jobdb.RecordFilter{JobID: j.JobID, Partition: &j.Partition}, func(d *jobdb.Decision) error {
			one.Code, one.Rule, one.Reason = d.Code.String(), RuleName(d.Policy, d.Rule), audit.Reason(&d.Decision)
			return nil
		}))
		all.Jobs = append(all.Jobs, one)
	}
	return all, err
}

// inForce describes what applies to the jobs of a queue.
func (p *PoliciesAt) inForce(queue string) *InForce {
	in := &InForce{
		Generation: p.Generation(), Applying: p.Set.Applying(queue, ""), Shadow: p.Set.Set.InShadow(queue), Limit: p.Set.GlobalMaxRetries(),
		Changes: []LastChange{}, Overrides: []string{},
	}
	ids := []policyfile.ID{{Kind: policyfile.KindQueue, Name: queue}, {Kind: policyfile.KindSettings}}
	for _, name := range in.Applying {
		ids = append(ids, policyfile.ID{Kind: policyfile.KindPolicy, Name: name})
	}
	in.Changes = append(in.Changes, p.changesOf(ids...)...)
	for _, o := range overridesOn(p.ActiveOverrides(), queue) {
		in.Overrides = append(in.Overrides, OverrideText(o))
	}
	return in
}
