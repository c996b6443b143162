package sink

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// Fold computes in memory what a partition's rows must be after the envelope
// with this seq, from its two logs and the releases that were made; 0: after the
// last one that is accepted. Where the chain ends earlier, the place of the
// result says so.
//
// The releases are those of the database, in their order: each says after which
// envelope it was made. Those made after the last one wanted are left out.
func Fold(events, decisions eventlog.Topic, partition int, through uint64, releases ...*jobdb.Release) (*jobdb.Contents, error) {
	if through == 0 {
		through = math.MaxUint64
	}
	return FoldTo(events, decisions, jobdb.PartitionPlace{Partition: partition, Place: jobdb.Place{Chain: chain.End{Seq: through}}}, releases...)
}

// FoldTo is Fold up to the place where a database stands, which may be before the
// first envelope. Of the place, only the envelope's seq counts.
func FoldTo(events, decisions eventlog.Topic, to jobdb.PartitionPlace, releases ...*jobdb.Release) (_ *jobdb.Contents, err error) {
	partition, through := to.Partition, to.Place.Chain.Seq
	f, err := follow.Open(events, decisions, partition, follow.Beginning)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	rows := NewRows(partition)
	all := &jobdb.Contents{Partition: partition, Place: jobdb.Beginning}
	for {
		for len(releases) > 0 && releases[0].Seq <= all.Place.Chain.Seq {
			r := releases[0]
			releases = releases[1:]
			if r.Partition != partition || r.Seq != all.Place.Chain.Seq || r.From != all.Place.Events {
				return nil, fmt.Errorf("%w: the one after envelope %d from %v comes where the rows stand after envelope %d at %v", ErrUnfit, r.Seq, r.From, all.Place.Chain.Seq, all.Place.Events)
			}
			if err := rows.applyRelease(events, r); err != nil {
				return nil, err
			}
			all.Place.Events = r.To
			collect(all, rows.Take())
		}
		if all.Place.Chain.Seq >= through {
			break
		}
		s, err := f.Next()
		if err != nil {
			return nil, err
		}
		if s == nil {
			break
		}
		if err := rows.ApplyStretch(s, all.Place.Events); err != nil {
			return nil, err
		}
		all.Place = after(all.Place, f.Place())
		collect(all, rows.Take())
	}
	if len(releases) > 0 && releases[0].Seq <= through {
		return nil, fmt.Errorf("%w: a release was made after envelope %d, the chain ends at %d", chain.ErrMissing, releases[0].Seq, all.Place.Chain.Seq)
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

// after is the place after an envelope. What was released beyond its input stays
// taken in.
func after(place jobdb.Place, f follow.Place) jobdb.Place {
	next := jobdb.Place{Chain: f.Chain, Decisions: f.Decisions, Events: place.Events}
	if next.Events.Compare(f.Chain.InTo) < 0 {
		next.Events = f.Chain.InTo
	}
	return next
}

// collect adds the records of c; its jobs and runs change on.
func collect(all *jobdb.Contents, c *jobdb.Changes) {
	all.Decisions = append(all.Decisions, c.Decisions...)
	all.NotDecided = append(all.NotDecided, c.NotDecided...)
	all.Ready = append(all.Ready, c.Ready...)
	all.Parked = append(all.Parked, c.Parked...)
	all.Activations = append(all.Activations, c.Activations...)
	all.Releases = append(all.Releases, c.Releases...)
}

// ApplyStretch takes in one accepted envelope with its input, of which the rows
// hold what stands up to released.
func (r *Rows) ApplyStretch(s *follow.Stretch, released eventlog.Position) error {
	acts, messages, err := Split(s, r.partition, released)
	if err != nil {
		return err
	}
	r.Put(acts)
	for i := range messages {
		r.Apply(&messages[i])
	}
	return nil
}

// ErrUnfit says that a release is not one of these rows.
var ErrUnfit = errors.New("release does not fit the rows")

// applyRelease takes in a release again: the messages that it names. One of no
// messages says what Armada's own ingester took in before ours began: nothing of
// it is in our rows, and it need not be held any more.
func (r *Rows) applyRelease(events eventlog.Topic, release *jobdb.Release) (err error) {
	if release.Messages == 0 {
		r.putRelease(release)
		return nil
	}
	a, err := openAhead(events, release.Partition, release.From)
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
		r.Apply(&taken)
		n++
	}
	if a.after != release.To || n != release.Messages {
		return fmt.Errorf("%w: a release took %d messages from %v to %v, the events have %d up to %v", chain.ErrMissing, release.Messages, release.From, release.To, n, a.after)
	}
	return nil
}
