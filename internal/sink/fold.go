package sink

import (
	"errors"
	"sort"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/follow"
	"github.com/refloat/refloat/internal/jobdb"
)

// Fold computes in memory what a partition's rows must be after the envelope
// with this seq, from its two logs alone; 0: after the last one that is accepted.
// Where the chain ends earlier, the place of the result says so.
func Fold(events, decisions eventlog.Topic, partition int, through uint64) (_ *jobdb.Contents, err error) {
	f, err := follow.Open(events, decisions, partition, follow.Beginning)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	rows := NewRows(partition)
	all := &jobdb.Contents{Partition: partition, Place: jobdb.Beginning}
	for through == 0 || all.Place.Chain.Seq < through {
		s, err := f.Next()
		if err != nil {
			return nil, err
		}
		if s == nil {
			break
		}
		if err := rows.ApplyStretch(s); err != nil {
			return nil, err
		}
		all.Place = jobdb.Place(f.Place())
		collect(all, rows.Take())
	}
	for _, j := range rows.recent {
		all.Jobs = append(all.Jobs, &j.Job)
		for _, run := range j.runs {
			all.Runs = append(all.Runs, &run.Run)
		}
	}
	sort.Slice(all.Jobs, func(a, b int) bool { return all.Jobs[a].JobID < all.Jobs[b].JobID })
	sort.Slice(all.Runs, func(a, b int) bool {
		x, y := all.Runs[a], all.Runs[b]
		return x.JobID < y.JobID || x.JobID == y.JobID && x.RunID < y.RunID
	})
	return all, nil
}

// collect adds the records of c; its jobs and runs change on.
func collect(all *jobdb.Contents, c *jobdb.Changes) {
	all.Decisions = append(all.Decisions, c.Decisions...)
	all.NotDecided = append(all.NotDecided, c.NotDecided...)
	all.Ready = append(all.Ready, c.Ready...)
	all.Parked = append(all.Parked, c.Parked...)
	all.Activations = append(all.Activations, c.Activations...)
}

// ApplyStretch takes in one accepted envelope with its input.
func (r *Rows) ApplyStretch(s *follow.Stretch) error {
	acts, messages, err := Split(s, r.partition)
	if err != nil {
		return err
	}
	r.Put(acts)
	for i := range messages {
		r.Apply(&messages[i])
	}
	return nil
}
