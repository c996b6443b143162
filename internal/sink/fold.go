package sink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// Fold computes in memory a partition's rows after the envelope with this seq, from its
// two logs and the releases that were made; 0: after the last accepted one. If the chain
// ends earlier, the position of the result shows that.
//
// The releases are those of the database, in order: each names the envelope after which
// it was made. Releases made after the last wanted envelope are ignored.
func Fold(events, decisions eventlog.Topic, partition int, through uint64, releases ...*jobdb.Release) (*jobdb.Contents, error) {
	if through == 0 {
		through = math.MaxUint64
	}
	return FoldTo(events, decisions, jobdb.PartitionPositions{Partition: partition, Positions: jobdb.Positions{Chain: chain.End{Seq: through}}}, releases...)
}

// FoldTo is Fold up to the position of a database, which may be before the first
// envelope. Only the envelope's seq of the position is used.
func FoldTo(events, decisions eventlog.Topic, to jobdb.PartitionPositions, releases ...*jobdb.Release) (*jobdb.Contents, error) {
	return foldRows(NewRows(to.Partition), events, decisions, to.Positions.Chain.Seq, releases)
}

// FoldJob is FoldTo for one job and its records alone, in little memory.
func FoldJob(events, decisions eventlog.Topic, job string, to jobdb.PartitionPositions, releases []*jobdb.Release) (*jobdb.Contents, error) {
	rows := NewRows(to.Partition)
	rows.only = job
	return foldRows(rows, events, decisions, to.Positions.Chain.Seq, releases)
}

// FoldJobUntil is FoldJob as of an earlier moment: it ends before the first message of events for which until is not
// true, with what was decided on the messages before.
func FoldJobUntil(events, decisions eventlog.Topic, job string, to jobdb.PartitionPositions, releases []*jobdb.Release, until func(*eventlog.Message) bool) (*jobdb.Contents, error) {
	rows := NewRows(to.Partition)
	rows.only, rows.until = job, until
	return foldRows(rows, events, decisions, to.Positions.Chain.Seq, releases)
}

// foldRows folds everything up to an envelope into rows, which are empty at first.
func foldRows(rows *Rows, events, decisions eventlog.Topic, through uint64, releases []*jobdb.Release) (_ *jobdb.Contents, err error) {
	partition := rows.partition
	all := &jobdb.Contents{Partition: partition, Positions: jobdb.Beginning}
	from, origin := follow.Beginning, jobdb.Origin(releases)
	if origin != eventlog.Start {
		before := releases[0].Seq
		from, _, err = follow.Seek(context.Background(), decisions, partition, from, func(a *chain.Accepted) bool { return a.End.Seq > before })
		if err != nil {
			return nil, err
		}
		all.Positions.Chain, all.Positions.Decisions = from.Chain, from.Decisions
	}
	f, err := follow.Open(events, decisions, partition, from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	f.SkipInput(origin)
	for {
		for !rows.ended && len(releases) > 0 && releases[0].Seq <= all.Positions.Chain.Seq {
			r := releases[0]
			releases = releases[1:]
			if r.Partition != partition || r.Seq != all.Positions.Chain.Seq || r.From != all.Positions.Events {
				return nil, fmt.Errorf("%w: the one after envelope %d from %v comes where the rows stand after envelope %d at %v", ErrUnfit, r.Seq, r.From, all.Positions.Chain.Seq, all.Positions.Events)
			}
			if err := rows.applyRelease(events, r, origin); err != nil {
				return nil, err
			}
			all.Positions.Events = r.To
			rows.collect(all)
		}
		if all.Positions.Chain.Seq >= through || rows.ended {
			break
		}
		s, err := f.Next()
		if err != nil {
			return nil, err
		}
		if s == nil {
			break
		}
		if err := rows.ApplyBatch(s, all.Positions.Events); err != nil {
			return nil, err
		}
		all.Positions = after(all.Positions, f.Positions())
		rows.collect(all)
	}
	if !rows.ended && len(releases) > 0 && releases[0].Seq <= through {
		return nil, fmt.Errorf("%w: a release was made after envelope %d, the chain ends at %d", chain.ErrMissing, releases[0].Seq, all.Positions.Chain.Seq)
	}
	for _, j := range rows.recent {
		all.Jobs = append(all.Jobs, &j.Job)
		for _, run := range j.runs {
			all.Runs = append(all.Runs, &run.Run)
		}
	}
	for _, g := range rows.groups.recent {
		all.Groups = append(all.Groups, &g.Group)
	}
	for _, u := range rows.units.recent {
		all.Units = append(all.Units, &u.Unit)
	}
	sort.Slice(all.Groups, func(a, b int) bool { return all.Groups[a].ID < all.Groups[b].ID })
	sort.Slice(all.Units, func(a, b int) bool { return all.Units[a].ID < all.Units[b].ID })
	sort.Slice(all.Jobs, func(a, b int) bool { return all.Jobs[a].JobID < all.Jobs[b].JobID })
	sort.Slice(all.Runs, func(a, b int) bool {
		x, y := all.Runs[a], all.Runs[b]
		return x.JobID < y.JobID || x.JobID == y.JobID && x.RunID < y.RunID
	})
	return all, nil
}

// after returns the position after an envelope. Messages that were released beyond its
// input remain applied.
func after(positions jobdb.Positions, f follow.Positions) jobdb.Positions {
	next := positions
	next.Chain, next.Decisions = f.Chain, f.Decisions
	if next.Events.Compare(f.Chain.InTo) < 0 {
		next.Events = f.Chain.InTo
	}
	return next
}

// collect adds the records of the rows' changes; the other rows will still change.
func (r *Rows) collect(all *jobdb.Contents) {
	c := r.Take()
	if r.only != "" {
		r.keepOnly(c)
	}
	all.Decisions = append(all.Decisions, c.Decisions...)
	all.NotDecided = append(all.NotDecided, c.NotDecided...)
	all.Ready = append(all.Ready, c.Ready...)
	all.Parked = append(all.Parked, c.Parked...)
	all.Activations = append(all.Activations, c.Activations...)
	all.Releases = append(all.Releases, c.Releases...)
	all.GroupRecords = append(all.GroupRecords, c.GroupRecords...)
}

// ApplyBatch applies one accepted envelope with its input. The rows already have the
// messages up to released.
func (r *Rows) ApplyBatch(s *follow.Batch, released eventlog.Position) error {
	acts, messages, err := Split(s, r.partition, released)
	if err != nil {
		return err
	}
	r.Put(acts)
	for i := range messages {
		if r.ends(&messages[i].Log) {
			return nil
		}
		r.Apply(&messages[i])
	}
	return nil
}

// ends reports whether the fold ends before a message.
func (r *Rows) ends(m *eventlog.Message) bool {
	r.ended = r.ended || r.until != nil && !r.until(m)
	return r.ended
}

// ErrUnfit means that a release does not belong to these rows.
var ErrUnfit = errors.New("release does not fit the rows")

// applyRelease applies a release again: the messages that it names. An empty release
// records what Armada's own ingester had applied before ours began: our rows have nothing
// of that, and the topic need not hold it any more.
func (r *Rows) applyRelease(events eventlog.Topic, release *jobdb.Release, origin eventlog.Position) (err error) {
	if release.Messages == 0 {
		r.putRelease(release)
		return nil
	}
	a, err := openAhead(events, release.Partition, release.From, origin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.reader.Close()) }()
	r.putRelease(release)
	n := uint64(0)
	for {
		m, err := a.next()
		if err != nil {
			return err
		}
		if m == nil || m.Position.Compare(release.To) > 0 {
			break
		}
		taken := a.take()
		if r.ends(&taken.Log) {
			return nil
		}
		r.Apply(&taken)
		n++
	}
	if a.after != release.To || n != release.Messages {
		return fmt.Errorf("%w: a release took %d messages from %v to %v, the events have %d up to %v", chain.ErrMissing, release.Messages, release.From, release.To, n, a.after)
	}
	return nil
}
