package table

import (
	"errors"
	"strings"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

// Counted implements [jobdb.Queries].
func (q Queries) Counted(queues []string) (c jobdb.Counted, err error) {
	of := &jobdb.Criteria{Queues: queues}
	c.Decisions, err = q.CountDecisions(of)
	return c, errors.Join(
		err,
		q.kept(jobsOfQueue, of, func(state uint8, n uint64) {
			c.Jobs = append(c.Jobs, jobdb.JobCount{State: jobdb.JobState(state), Count: n})
		}),
		q.kept(undecided, of, func(reason uint8, n uint64) {
			c.NotDecided = append(c.NotDecided, jobdb.NotDecidedCount{Reason: chain.NotDecidedReason(reason), Count: n})
		}),
	)
}

// Summary implements [jobdb.Queries].
func (q Queries) Summary() (s *jobdb.Summary, err error) {
	s = &jobdb.Summary{}
	s.Counted, err = q.Counted(nil)
	return s, errors.Join(
		err,
		q.tally(Query{Columns: []string{"reason", "count(*)"}, From: Parked.Name, Rest: " GROUP BY 1 ORDER BY 1"}, func(reason uint8, n uint64) {
			s.Parked = append(s.Parked, jobdb.ParkedCount{Reason: events.ParkReason(reason), Count: n})
		}),
		q.count("runs", &s.Runs), q.count("ready", &s.Ready), q.count("releases", &s.Releases),
	)
}

// CountJobs implements [jobdb.Queries].
func (q Queries) CountJobs(c *jobdb.Criteria) (n uint64, err error) {
	of := jobs(c)
	s := of.found()
	s.Columns, s.From = []string{"count(*)"}, Jobs.Name
	kept := *c
	kept.Queue, kept.Queues, kept.JobSet, kept.States, kept.Waiting = "", nil, "", nil, false
	if kept.Empty() && (len(c.States) == 0 || !c.Waiting) {
		grouping := uint8(jobsOfQueue)
		switch {
		case c.Waiting && c.JobSet != "":
			grouping = waitingOfSet
		case c.Waiting:
			grouping = waitingOfQueue
		case c.JobSet != "":
			grouping = jobsOfSet
		}
		s = ofCounts(grouping, &jobdb.Criteria{Queue: c.Queue, Queues: c.Queues, JobSet: c.JobSet})
		for _, c := range among("", "kind", c.States) {
			s.where(c.where.Where[0], c.where.Args...)
		}
		s.Columns = []string{"CAST(coalesce(sum(n), 0) AS BIGINT)"}
	}
	return n, q.Source.Find(s, func() []any { return []any{&n} }, func() error { return nil })
}

// CountRuns implements [jobdb.Queries].
func (q Queries) CountRuns(c *jobdb.Criteria) (n uint64, err error) {
	of := runs(c)
	s := of.found()
	s.Columns, s.From = []string{"count(*)"}, Runs.Name
	return n, q.Source.Find(s, func() []any { return []any{&n} }, func() error { return nil })
}

// RetriesQuery returns the query of Retries.
func RetriesQuery(partitions []int, now int64) Query {
	c := Query{
		Columns: []string{"queue", "count(*)", "count(*) FILTER (WHERE retry_after > ?)", "max(retry_after)"},
		From:    Jobs.Name, Rest: " GROUP BY 1 ORDER BY 2 DESC, 1", Args: []any{now},
	}
	in := make([]any, len(partitions))
	for i, p := range partitions {
		in[i] = int64(p)
	}
	c.where("retry_after > 0")
	c.where("partition IN (?"+strings.Repeat(", ?", len(partitions)-1)+")", in...)
	return c
}

// Retries implements [jobdb.Queries].
func (q Queries) Retries(partitions []int, now int64, visit func(*jobdb.QueueRetries) error) error {
	if len(partitions) == 0 {
		return nil
	}
	var r jobdb.QueueRetries
	return q.Source.Find(RetriesQuery(partitions, now), func() []any {
		return []any{&r.Queue, &r.Jobs, &r.Delayed, &r.Latest}
	}, func() error { return visit(&r) })
}

// kept reads kept counts by their kind.
func (q Queries) kept(of uint8, c *jobdb.Criteria, counted func(uint8, uint64)) error {
	s := ofCounts(of, c)
	s.Columns, s.Rest = []string{"kind", "CAST(sum(n) AS BIGINT)"}, " GROUP BY 1 HAVING sum(n) > 0 ORDER BY 1"
	return q.tally(s, counted)
}

// tally visits numbers with their counts.
func (q Queries) tally(s Query, counted func(uint8, uint64)) error {
	var value uint8
	var n uint64
	return q.Source.Find(s, func() []any { return []any{&value, &n} }, func() error { counted(value, n); return nil })
}

func (q Queries) count(from string, n *uint64) error {
	return q.Source.Find(Query{Columns: []string{"count(*)"}, From: from}, func() []any { return []any{n} }, func() error { return nil })
}
