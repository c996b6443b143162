package cutover

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/jobdb/table"
	"github.com/refloat/refloat/internal/plural"
)

// Start takes over at the position of Armada's ingester. A rehearsal writes nothing.
// ErrRefused: findings in the report refuse the cut-over, and nothing was written.
//
// Start creates our tables in an earlier transaction than the one that writes the
// positions: empty tables commit to nothing. Between the two it republishes jobs whose
// SubmitJob has expired from events. That has no effect on consumers that know the
// jobs, so Start may be repeated after an error.
func (s *Site) Start(ctx context.Context, rehearse bool) (*Report, error) {
	state, err := s.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.decided(ctx, state); err != nil {
		return nil, err
	}
	r := &Report{State: state, Findings: checkStart(state)}
	r.Steps = append(r.Steps, Step{What: "create or migrate our ingester's tables refloat_…"})
	anew := state.rolledBack()
	if anew {
		r.Steps = append(r.Steps, Step{What: "empty them: their rows end where our ingester stopped, rolled back at " + when(state.Database.RolledBack)})
	}
	alone := state.onlyControlLeft()
	if n := state.older(); n > 0 && !alone {
		r.Steps = append(r.Steps, Step{What: fmt.Sprintf("republish %s and their runs to events, as events that only our evaluators and ingesters read", plural.Of(n, "job"))})
	}
	for _, p := range state.toTakeOver() {
		if p.Cursor.Missing || p.Applied.Why != nil {
			continue
		}
		what := fmt.Sprintf("%s: our ingester continues after %v", p.name(), p.Applied.At)
		if p.Applied.At == eventlog.Start {
			what = p.name() + ": our ingester starts at the beginning"
		}
		if p.Decided.Chain.Seq > 0 {
			what += fmt.Sprintf(", and follows the decisions after envelope %d", p.Decided.Chain.Seq)
		}
		r.Steps = append(r.Steps, Step{What: what})
	}
	if r.Refused() {
		return r, ErrRefused
	}
	if rehearse {
		return r, nil
	}
	if err := s.migrate(ctx); err != nil {
		return r, err
	}
	if alone {
		return r, s.takeOver(ctx, state)
	}
	unread, err := s.republish(ctx, state)
	if err != nil {
		return r, err
	}
	if unread != nil {
		r.Findings = append(r.Findings, Finding{About: "jobs", What: unread.Error()})
	}
	return r, s.takeOver(ctx, state)
}

// migrate creates or migrates our tables.
func (s *Site) migrate(ctx context.Context) error {
	db, err := postgres.Open(ctx, s.JobDB, postgres.Options{})
	if err != nil {
		return err
	}
	return db.Close()
}

var errMoved = errors.New("a position changed meanwhile, so nothing was written: run this command again")

func (s *Site) takeOver(ctx context.Context, state *State) (err error) {
	d, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return d.write(ctx, "write our positions", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "LOCK TABLE refloat_positions, refloat_control IN EXCLUSIVE MODE"); err != nil {
			return err
		}
		if err := state.requireNoPositions(ctx, tx); err != nil {
			return err
		}
		for _, p := range state.toTakeOver() {
			if err := s.putPosition(ctx, tx, p); err != nil {
				return err
			}
		}
		if s.Control != "" && len(state.Control) == 0 { // the topic does not exist yet: all of it will be new
			if err := putControl(ctx, tx, &Partition{Applied: Position{At: eventlog.Start}}); err != nil {
				return err
			}
		}
		// Armada's ingester may have been started since Inspect.
		return s.requireUnmoved(ctx, state)
	})
}

// requireNoPositions makes sure that there are no positions of ours where Start writes some: it
// deletes rolled-back positions together with all rows derived from them.
func (s *State) requireNoPositions(ctx context.Context, tx pgx.Tx) error {
	found, err := readPositions(ctx, tx, "")
	if err != nil {
		return err
	}
	if s.onlyControlLeft() {
		control, err := readControl(ctx, tx, "")
		if err != nil || len(found) == 0 || len(control) > 0 {
			return errors.Join(err, errMoved)
		}
		return nil
	}
	if len(found) == 0 {
		_, err := tx.Exec(ctx, "DELETE FROM refloat_control")
		return err
	}
	if !s.rolledBack() || len(found) != len(s.Partitions) {
		return errMoved
	}
	for i := range s.Partitions {
		if p := &s.Partitions[i]; found[p.Number] != *p.Positions {
			return errMoved
		}
	}
	if at, err := rolledBack(ctx, tx); err != nil || at != s.Database.RolledBack {
		return errors.Join(err, errMoved)
	}
	return empty(ctx, tx)
}

func (s *Site) putPosition(ctx context.Context, tx pgx.Tx, p *Partition) error {
	if p.Control {
		return putControl(ctx, tx, p)
	}
	positions := jobdb.Positions{Chain: p.Decided.Chain, Decisions: p.Decided.Decisions, Events: p.Applied.At}
	if err := put(ctx, tx, &table.Positions, &jobdb.PartitionPositions{Partition: p.Number, Positions: positions}); err != nil {
		return err
	}
	// Writing to Armada's tables begins here too: copies of decisions are published
	// from this position on, and none for failures that Armada handled itself.
	const begin = "INSERT INTO refloat_mirror (partition, since) VALUES ($1, $2) ON CONFLICT (partition) DO UPDATE SET since = excluded.since"
	if _, err := tx.Exec(ctx, begin, p.Number, p.Applied.At.String()); err != nil {
		return err
	}
	if p.Applied.At == eventlog.Start {
		return nil // Armada's ingester applied nothing
	}
	return put(ctx, tx, &table.Releases, &jobdb.Release{
		Partition: p.Number, Seq: positions.Chain.Seq, From: eventlog.Start, To: p.Applied.At, When: s.Now().UnixNano(),
	})
}

// requireUnmoved checks that the cursors have not moved since Inspect and have no consumers.
func (s *Site) requireUnmoved(ctx context.Context, state *State) (err error) {
	of, err := s.inspectors(state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, of.Close()) }()
	for _, p := range state.toTakeOver() {
		var now Cursor
		if _, err := of.topic(p).cursor(ctx, p.Number, &now); err != nil {
			return err
		}
		if now.MarkDelete != p.Cursor.MarkDelete || now.Holes != "" || len(now.Consumers) > 0 {
			return fmt.Errorf("subscription %s of %s: %w", s.Subscription, p.name(), errMoved)
		}
	}
	return nil
}
