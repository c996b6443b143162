package query

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
)

// Order selects the jobs of an order (semantics.md 16): by whole ids, or of a job set those that it can be about.
type Order struct {
	Action        policy.OrderAction
	Jobs          []string
	Queue, JobSet string
	Max           int // more jobs are an *Invalid
	Set           *policy.Set
	Now           time.Time
}

// OrderedJob is a job of an order.
type OrderedJob struct {
	JobID   string
	Job     *jobdb.Job     // nil: no job has this id
	Refusal policy.Refusal // as far as is known now
	ended   int64          // Unix nanoseconds: when a job ended that is forgotten by now, one horizon later; 0: none has
	horizon time.Duration
}

// Ordered returns the jobs of an order, by id in the order of a list, and why each refuses it. Errors: *Invalid.
func (s *Source) Ordered(ctx context.Context, o *Order) (all []OrderedJob, err error) {
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		all = nil
		lists := []*jobdb.Criteria{{Queue: o.Queue, JobSet: o.JobSet, States: []uint8{uint8(jobdb.JobFailed)}}}
		if o.Action != policy.OrderRetry {
			lists[0].States, lists[0].Waiting = nil, true
		}
		if len(o.Jobs) > 0 {
			lists = nil
		}
		for _, id := range o.Jobs {
			lists = append(lists, &jobdb.Criteria{JobID: id})
		}
		for _, c := range lists {
			n := len(all)
			_, err := q.JobList(c, jobdb.Page{Limit: o.Max + 1}, func(j *jobdb.Job) error {
				all = append(all, OrderedJob{JobID: j.JobID, Job: j})
				return nil
			})
			if err != nil {
				return err
			}
			if len(all) == n && c.JobID != "" {
				all = append(all, OrderedJob{JobID: c.JobID, Refusal: policy.RefusedUnknown})
			}
		}
		if len(all) > o.Max {
			return invalid("max", "the order is about more than %s: none is ordered; raise max (--max) if all are meant", plural.Of(o.Max, "job"))
		}
		for i := range all {
			if err := all[i].ask(q, o); err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}

// ask finds out whether the job refuses the order.
func (j *OrderedJob) ask(q jobdb.Queries, o *Order) error {
	if j.Job == nil {
		return nil
	}
	var runs []*jobdb.Run
	err := q.Runs(j.Job.Partition, j.JobID, func(r *jobdb.Run) error {
		runs = append(runs, r)
		return nil
	})
	if err != nil {
		return err
	}
	j.Refusal = audit.Refuses(j.Job, runs, o.Action)
	if ended := j.Job.Times.Ended; j.Refusal == policy.NotRefused && j.Job.Final && o.Now.Sub(time.Unix(0, ended)) > o.Set.Horizon() {
		j.Refusal, j.ended, j.horizon = policy.RefusedUnknown, ended, o.Set.Horizon() // by the time of the order itself
	}
	if j.Refusal == policy.NotRefused {
		j.Refusal = o.Set.RefusesOrder(j.Job.Queue, o.Action)
	}
	armada, ok := q.(jobdb.Moded)
	if !ok || j.Refusal != policy.NotRefused {
		return nil
	}
	mode, err := armada.IngestMode(j.Job.Partition)
	if err != nil || !slices.Contains([]string{"direct", "holdback"}, mode) {
		return err
	}
	there, err := armada.InArmada(j.JobID)
	if err == nil && !there {
		j.Refusal = policy.RefusedGone
	}
	return err
}

// TakesOrders returns an error if a partition decides by a version of the semantics that passes orders over, as far as the
// job database knows.
func (s *Source) TakesOrders(ctx context.Context, partition int, since uint32) error {
	version := uint32(0)
	err := s.Jobs(ctx, func(q jobdb.Queries) error {
		return q.Activations(jobdb.RecordFilter{Partition: &partition}, func(a *jobdb.Activation) error {
			version = max(version, a.Semantics)
			return nil
		})
	})
	if err == nil && version < since {
		return invalid("", "partition %d decides by version %d of the semantics, which passes orders over: start the evaluators with --semantics %d once all programs are upgraded", partition, version, since)
	}
	return err
}

// Why says in a sentence why the order is refused; "": it is not.
func (j *OrderedJob) Why() string {
	switch {
	case j.Job == nil:
		return fmt.Sprintf("no job has the id %s: give the whole id", j.JobID)
	case j.Refusal == policy.NotRefused:
		return ""
	case j.ended != 0:
		return fmt.Sprintf("the job ended at %s and was forgotten one horizon (%v) later: submit it again", TimeText(j.ended), j.horizon)
	}
	return j.Refusal.Sentence()
}
