package evaluator

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
)

// mustReach returns an error if a log does not reach the state's position: the state follows
// from durable messages, so the log has lost its end, or is a different one. (What it has
// lost of its beginning, even if that was everything, is for mayClaim to judge.)
func (o *Owner) mustReach(positions follow.Positions) error {
	for _, l := range []struct {
		name  string
		topic eventlog.Topic
		at    eventlog.Position
	}{{"events", o.cfg.Events, positions.Chain.InTo}, {"decisions", o.cfg.Decisions, positions.Decisions}} {
		if l.at == eventlog.Start {
			continue
		}
		end, err := eventlog.Reach(l.topic, o.cfg.Partition)
		if err != nil {
			return fmt.Errorf("find how far %s reach: %w", l.name, err)
		}
		if end.Compare(l.at) < 0 {
			return fmt.Errorf("%w: the state of partition %d follows from %s up to %v, the log ends at %v", chain.ErrMissing, o.cfg.Partition, l.name, l.at, end)
		}
	}
	return nil
}

// mayClaim refuses what only an operator can resolve, and finds where an accepted
// history begins.
func (o *Owner) mayClaim() error {
	if err := o.mayBegin(); err != nil {
		return err
	}
	n := uint32(o.cfg.Events.Partitions())
	if was := o.proc.Progress.Partitions; was != 0 && was != n && o.cfg.AcceptPartitions != int(n) {
		return fmt.Errorf("%w: partition %d was decided when there were %d, now there are %d, so job sets have moved between partitions "+
			"and their counts have not; start with --accept-partitions %d to go on with what each partition knows", ErrRepartitioned, o.cfg.Partition, was, n, n)
	}
	begin, err := o.cfg.Events.Beginning(o.cfg.Partition)
	if err != nil {
		return fmt.Errorf("find the beginning of events: %w", err)
	}
	to, held := begin, o.positions.Chain.InTo
	if accepted := o.cfg.AcceptHistory; accepted != nil && *accepted != eventlog.Start {
		to = *accepted
	}
	gap := begin.Compare(held) > 0
	switch {
	case gap && o.cfg.AcceptHistory == nil:
		return fmt.Errorf("%w: partition %d of events begins after %v, the decision log answers events up to %v; restore a checkpoint that reaches further, "+
			"or start with --accept-history-from beginning (or a position from %v on) to go on without what is gone", ErrHistory, o.cfg.Partition, begin, held, begin)
	case gap && to.Compare(begin) < 0:
		return fmt.Errorf("%w: history was accepted from %v, partition %d of events begins after %v", ErrHistory, to, o.cfg.Partition, begin)
	case gap, held == eventlog.Start && to != eventlog.Start:
		o.skipTo = to
		return nil
	}
	return o.follower.OpenInput() // refuse before anything is written
}

// ErrEmptied means that the decision log is empty although it may have held decisions.
var ErrEmptied = errors.New("the decision log is empty, and may not always have been")

// mayBegin refuses to begin a chain if there may have been one, because counts would
// restart at zero.
func (o *Owner) mayBegin() error {
	if o.positions.Chain.Seq > 0 || o.cfg.AcceptEmptyDecisions {
		return nil
	}
	const advice = "bring the decisions topic back, or a state or a checkpoint; if nothing was ever decided here, start once with --accept-empty-decisions"
	begin, err := o.cfg.Decisions.Beginning(o.cfg.Partition)
	if err != nil {
		return fmt.Errorf("%w: partition %d has no state, and where its decision log begins cannot be told (%s): %w", ErrEmptied, o.cfg.Partition, advice, err)
	}
	end, err := o.cfg.Decisions.End(o.cfg.Partition)
	if err != nil {
		return fmt.Errorf("find the end of decisions: %w", err)
	}
	// An empty topic cannot prove that it was always empty; the acknowledged position can.
	if begin != eventlog.Start && (end != eventlog.Start || o.cfg.Acknowledged == nil) {
		return fmt.Errorf("%w: partition %d has no state, and its decision log begins after %v; %s", ErrEmptied, o.cfg.Partition, begin, advice)
	}
	if o.cfg.Acknowledged == nil {
		return nil
	}
	at, err := o.cfg.Acknowledged()
	if err != nil {
		return fmt.Errorf("find what evaluators acknowledged: %w", err)
	}
	held, err := o.cfg.Events.Beginning(o.cfg.Partition)
	if err != nil {
		return fmt.Errorf("find the beginning of events: %w", err)
	}
	// An operator who deletes events moves the subscription as well; that is ErrHistory.
	if at != eventlog.Start && at.Compare(held) >= 0 {
		return fmt.Errorf("%w: partition %d has no state, and evaluators have acknowledged its events up to %v; %s", ErrEmptied, o.cfg.Partition, at, advice)
	}
	return nil
}
