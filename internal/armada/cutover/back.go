package cutover

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/plural"
)

// Back rolls back to Armada's ingester: it ends pending retries in Armada's tables, writes the rows of held members, and
// then moves the cursor of Armada's subscription to just after the last message that
// our ingester applied. It leaves a cursor that is there already, or further on, so
// Back may be repeated. A rehearsal writes nothing. ErrRefused: findings in the report
// refuse the roll-back, and nothing was written.
func (s *Site) Back(ctx context.Context, rehearse bool) (*Report, error) {
	state, err := s.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	r := &Report{State: state, Findings: s.checkBack(state)}
	r.Steps = append(r.Steps, Step{
		What: fmt.Sprintf("end %s, so that Armada's scheduler leases these jobs at once", plural.Of(state.Database.PendingRetries, "pending retry", "pending retries")), Done: state.Database.PendingRetries == 0,
	})
	if n := state.Database.HeldMembers; n > 0 {
		r.Steps = append(r.Steps, Step{
			What: fmt.Sprintf("write the rows of %s, which Armada's scheduler then starts at once", plural.Of(n, "held member", "held members")),
		})
	}
	for _, p := range state.All() {
		if p.Positions != nil && (p.EventsAt.Why == nil || p.isBack()) {
			r.Steps = append(r.Steps, p.resetStep(s.Subscription))
		}
	}
	r.Steps = append(r.Steps, Step{
		What: "make our ingesters refuse to start on this database until the next refloatctl cutover start", Done: state.Database.RolledBack != 0,
	})
	if r.Refused() {
		return r, ErrRefused
	}
	if rehearse || state.rolledBack() {
		return r, nil
	}
	if err := s.rollBack(ctx, state); err != nil {
		return r, err
	}
	s.adopted(state)
	return r, s.reset(ctx, state)
}

func (p *Partition) resetStep(subscription string) Step {
	at := "just after " + p.EventsAt.At.String()
	if p.EventsAt.At == eventlog.Start {
		at = "the beginning"
	}
	what := fmt.Sprintf("%s: move subscription %s to %s", p.name(), subscription, at)
	if p.isBack() && p.Applied.At != p.EventsAt.At {
		what = fmt.Sprintf("%s: subscription %s has already advanced from there to %v", p.name(), subscription, p.Applied.At)
	}
	return Step{What: what, Done: p.isBack()}
}

// rollBack ends the pending retries and records the roll-back, while nobody else can change
// our positions. It comes before the cursors are moved: from here on, none of our
// ingesters writes.
func (s *Site) rollBack(ctx context.Context, state *State) (err error) {
	if err := s.migrate(ctx); err != nil {
		return err
	}
	d, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.awaitForgotten(ctx, s.Now()); err != nil {
		return fmt.Errorf("wait for Armada's scheduler: %w", err)
	}
	return d.write(ctx, "end pending retries", func(tx pgx.Tx) error {
		found, err := readPositions(ctx, tx, "FOR UPDATE")
		if err != nil {
			return err
		}
		for _, p := range state.Partitions {
			if at, there := found[p.Number]; !there || at != *p.Positions {
				return errMoved
			}
		}
		// A new partition of control-plane has no row yet that could be locked.
		if _, err := tx.Exec(ctx, "LOCK TABLE refloat_control IN EXCLUSIVE MODE"); err != nil {
			return err
		}
		control, err := readControl(ctx, tx, "")
		if err != nil {
			return err
		}
		for _, p := range state.Control {
			if at, there := control[p.Number]; there && (p.Positions == nil || at != p.Positions.Events) {
				return errMoved
			}
		}
		if err := s.endRetries(ctx, tx, state); err != nil {
			return err
		}
		if err := s.adoptCursor(ctx, tx, state); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE refloat_positions SET given_back = $1 WHERE given_back IS NULL", s.Now().UnixNano())
		return err
	})
}

// keepsCursor reports whether Armada's ingester continues from its subscription's position,
// because the topic does not hold ours and the operator accepts that.
func (s *Site) keepsCursor(p *Partition) bool {
	return s.LeaveCursor && p.Positions != nil && p.EventsAt.Gone && !p.isBack() && p.Applied.Why == nil && !p.Cursor.Missing
}

// adoptCursor overwrites our position with that of Armada's subscription, in partitions whose
// cursor stays.
func (s *Site) adoptCursor(ctx context.Context, tx pgx.Tx, state *State) error {
	for _, p := range state.All() {
		if !s.keepsCursor(p) {
			continue
		}
		query := "UPDATE refloat_positions SET event_ledger = $2, event_entry = $3, event_batch = $4 WHERE partition = $1"
		if p.Control {
			query = "UPDATE refloat_control SET ledger = $2, entry = $3, batch = $4 WHERE partition = $1"
		}
		if _, err := tx.Exec(ctx, query, p.Number, p.Applied.At.Ledger, p.Applied.At.Entry, p.Applied.At.Batch); err != nil {
			return err
		}
	}
	return nil
}

// adopted updates the state with what adoptCursor has written.
func (s *Site) adopted(state *State) {
	for _, p := range state.All() {
		if s.keepsCursor(p) {
			p.Positions.Events, p.EventsAt = p.Applied.At, p.Applied
		}
	}
}

// reset moves the cursors and verifies their positions.
func (s *Site) reset(ctx context.Context, state *State) (err error) {
	of, err := s.inspectors(state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, of.Close()) }()
	for _, p := range state.All() {
		if p.Positions == nil || p.isBack() {
			continue
		}
		if err := of.topic(p).resetOne(ctx, p); err != nil {
			return fmt.Errorf("move subscription %s of %s to just after %v: %w", s.Subscription, p.name(), p.EventsAt.At, err)
		}
	}
	again, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	if len(again.All()) != len(state.All()) {
		return errors.New("partitions were added meanwhile: run this command again before you start Armada's ingester")
	}
	for i, p := range again.All() {
		was := state.All()[i]
		if was.Positions == nil {
			continue
		}
		if p.Positions == nil || *p.Positions != *was.Positions {
			return fmt.Errorf("%s: our ingester was started meanwhile: stop it, and run this command again before you start Armada's", p.name())
		}
		if !p.isBack() || p.Cursor.Holes != "" || !was.isBack() && p.Applied.At != p.EventsAt.At {
			return fmt.Errorf("%s: subscription %s is at %s, not just after %v: run this command again before you start Armada's ingester", p.name(), s.Subscription, p.Cursor.MarkDelete, p.EventsAt.At)
		}
	}
	return nil
}

// resetOne makes the entry after our position the next one. That entry need not exist
// yet.
func (l *inspector) resetOne(ctx context.Context, p *Partition) error {
	name, err := utils.GetTopicName(l.topic.PartitionName(p.Number))
	if err != nil {
		return err
	}
	next := utils.MessageID{LedgerID: p.EventsAt.At.Ledger, EntryID: p.EventsAt.At.Entry + 1, PartitionIndex: -1, BatchIndex: -1}
	switch {
	case p.EventsAt.At == eventlog.Start:
		next = utils.Earliest
	case p.EventsAt.At.Batch < 0:
		next.EntryID--
	}
	return l.admin.Subscriptions().ResetCursorToMessageIDWithContext(ctx, *name, l.Subscription, next)
}
