package table

import (
	"errors"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

// Summary implements [jobdb.Queries].
func (q Queries) Summary() (*jobdb.Summary, error) {
	s := &jobdb.Summary{}
	var decided jobdb.DecisionCount
	var superseded uint64
	err := errors.Join(
		q.Source.Find(Query{
			Columns: []string{"requeue", "shadow", "code", "policy", "rule", "count(*)", "count(*) FILTER (WHERE superseded)"},
			From:    "decisions", Rest: " GROUP BY 1, 2, 3, 4, 5 ORDER BY 1 DESC, 2, 3, 4, 5",
		}, func() []any {
			d := &decided
			return []any{&d.Requeue, &d.Shadow, (*uint8)(&d.Code), &d.Policy, &d.Rule, &d.Count, &superseded}
		}, func() error {
			s.Decisions = append(s.Decisions, decided)
			s.Superseded += superseded
			return nil
		}),
		q.tally("jobs", "state", func(state uint8, n uint64) {
			s.Jobs = append(s.Jobs, jobdb.JobCount{State: jobdb.JobState(state), Count: n})
		}),
		q.tally("not_decided", "reason", func(reason uint8, n uint64) {
			s.NotDecided = append(s.NotDecided, jobdb.NotDecidedCount{Reason: chain.NotDecidedReason(reason), Count: n})
		}),
		q.tally("parked", "reason", func(reason uint8, n uint64) {
			s.Parked = append(s.Parked, jobdb.ParkedCount{Reason: events.ParkReason(reason), Count: n})
		}),
		q.count("runs", &s.Runs), q.count("ready", &s.Ready), q.count("releases", &s.Releases),
	)
	return s, err
}

// tally counts the rows of a table by an enum column.
func (q Queries) tally(from, by string, counted func(uint8, uint64)) error {
	var value uint8
	var n uint64
	return q.Source.Find(Query{Columns: []string{by, "count(*)"}, From: from, Rest: " GROUP BY 1 ORDER BY 1"},
		func() []any { return []any{&value, &n} },
		func() error { counted(value, n); return nil })
}

func (q Queries) count(from string, n *uint64) error {
	return q.Source.Find(Query{Columns: []string{"count(*)"}, From: from}, func() []any { return []any{n} }, func() error { return nil })
}
