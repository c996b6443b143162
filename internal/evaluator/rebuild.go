package evaluator

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/projection"
)

// A rebuild derives a state from the events that are left, if the log no longer holds
// all input of the chain and no remaining state reaches far enough. The chain records what
// was decided, so numbers, policies and versions are exact; unknown are the jobs that were
// submitted before, and their counts.
//
// The chain defines the state after a StateRebuilt: every reader that meets the record
// derives the same one. Until the record is in the chain, the state is provisional
// (meta.Rebuilding), and anyone who finds it discards it.
type rebuild struct {
	from  eventlog.Position
	until uint64 // the envelope of the StateRebuilt; 0: ours has not been written yet
}

// withoutInput continues if events no longer holds the input of the chain: it searches
// the chain for a StateRebuilt.
func (o *Owner) withoutInput(cause error) (_ bool, err error) {
	if !errors.Is(cause, follow.ErrInputGone) {
		return false, cause
	}
	o.cause = cause
	if o.scan, err = follow.OpenScan(o.cfg.Decisions, o.cfg.Partition); err != nil {
		return false, err
	}
	o.enter(scanningHistory)
	return true, nil
}

// scanHistory ends with a rebuild that the chain defines or the operator acknowledges, or
// with ErrHistory.
func (o *Owner) scanHistory() (bool, error) {
	progress, done, err := o.scan.Advance()
	if err != nil || !done {
		return progress, err
	}
	begin, err := o.cfg.Events.Beginning(o.cfg.Partition)
	if err != nil {
		return false, fmt.Errorf("find the beginning of events: %w", err)
	}
	if last := o.scan.Last(); last.Seq > 0 && last.From.Compare(begin) >= 0 {
		return true, o.startRebuild(rebuild{from: last.From, until: last.Seq})
	}
	accepted := o.cfg.AcceptHistory
	switch {
	case accepted == nil:
		return false, fmt.Errorf("%w: partition %d has no state that reaches further; restore a checkpoint or a copy of the state directory, "+
			"or start with --accept-history-from beginning to go on without what is gone: jobs submitted up to %v are then unknown and not retried: %w",
			ErrHistory, o.cfg.Partition, begin, o.cause)
	case *accepted == eventlog.Start:
		return true, o.startRebuild(rebuild{from: begin})
	case accepted.Compare(begin) < 0:
		return false, fmt.Errorf("%w: history was accepted from %v, partition %d of events begins after %v", ErrHistory, *accepted, o.cfg.Partition, begin)
	}
	return true, o.startRebuild(rebuild{from: *accepted})
}

// startRebuild discards the state and starts over at the beginning of the chain.
func (o *Owner) startRebuild(r rebuild) (err error) {
	if err := o.Close(); err != nil {
		return err
	}
	o.rebuild = &r
	if err := o.wipe(); err != nil {
		return err
	}
	if o.follower, err = follow.OpenRest(o.cfg.Events, o.cfg.Decisions, o.cfg.Partition, r.from); err != nil {
		return err
	}
	o.watchIgnored()
	o.enter(catchingUp)
	return nil
}

// wipe commits an empty state.
func (o *Owner) wipe() error {
	batch := o.cfg.Store.NewBatch()
	if err := projection.Clear(batch); err != nil {
		return fmt.Errorf("clear state: %w", err)
	}
	m := emptyMeta()
	m.Rebuilding = o.rebuild != nil
	b, err := m.encode()
	if err != nil {
		return err
	}
	if err := o.cfg.Store.Commit(batch, b); err != nil {
		return err
	}
	state, err := o.newState(&m)
	o.positions, o.proc = m.Positions, &Processor{State: state}
	return err
}

// rebuildBatch applies what is known of a batch. The rebuild ends with the
// StateRebuilt that it is for.
func (o *Owner) rebuildBatch(s *follow.Batch, logged *Logged) error {
	if err := o.proc.Rebuild(s.Messages, logged); err != nil {
		return err
	}
	if s.Envelope.Seq == o.rebuild.until || o.rebuild.until == 0 && s.Rebuilt() != nil && s.End.Link == o.claim {
		o.rebuild = nil
	}
	return o.commitBatch(s)
}

// sendRebuilt publishes that the state was rebuilt, from where, and who acknowledged it.
func (o *Owner) sendRebuilt(now int64) error {
	end := o.positions.Chain
	return o.sendAwaited(&chain.Envelope{
		Seq: end.Seq + 1, Link: end.Link, Epoch: end.Epoch, Owner: end.Owner, InFrom: end.InTo, InTo: end.InTo,
		Records: [][]byte{chain.AppendRecord(nil, &chain.StateRebuilt{By: o.cfg.AcceptedBy, From: o.rebuild.from})},
	}, now)
}
