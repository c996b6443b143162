package shadow

import (
	"context"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/sink"
)

// Read reports, by queue, on the decisions in a job database that were made in shadow.
// It reads all decisions and jobs of the queues that have any, and its memory grows with those in shadow.
func Read(q jobdb.Queries, f Filter) ([]*Queue, error) {
	c := newCollector(f)
	queues, err := q.QueuesInShadow()
	if err != nil {
		return nil, err
	}
	for _, queue := range queues {
		if f.Queue != "" && f.Queue != queue {
			continue
		}
		if _, err := q.DecisionList(&jobdb.Criteria{Queue: queue}, jobdb.Page{Sort: "time"}, func(d *jobdb.Decision) error {
			c.decision(d)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	for _, queue := range c.sorted() {
		_, err := q.JobList(&jobdb.Criteria{Queue: queue.Name}, jobdb.Page{Sort: "submitted"}, func(j *jobdb.Job) error {
			c.job(j)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return c.report(), nil
}

// Replay reports what a policy set would have decided in a recorded history, with all
// queues in shadow. Its memory grows with the history's jobs.
func Replay(ctx context.Context, events eventlog.Topic, set *policyfile.Set, f Filter) ([]*Queue, error) {
	c := newCollector(f)
	set = set.InShadow()
	for partition := range events.Partitions() {
		rows, jobs := sink.NewRows(partition), map[string]*jobdb.Job{}
		_, err := audit.Replay(ctx, events, partition, set.Set, func(m *eventlog.Message, out *evaluator.Output) error {
			answered := sink.Answered(m, out.Records)
			rows.Apply(&answered)
			changes := rows.Take()
			for _, d := range changes.Decisions {
				c.decision(d)
			}
			for _, j := range changes.Jobs { // shared with rows: later messages change them
				jobs[j.JobID] = j
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			c.job(j)
		}
	}
	return c.report(), nil
}
