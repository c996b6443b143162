package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/simulate"
	"github.com/refloat/refloat/internal/sink"
)

// simulatedAtOnce is how many messages of a simulation a transaction writes.
const simulatedAtOnce = 1000

// writeSimulated runs a simulation, and writes its jobs, runs and decisions into a new job database, as the ingester writes those of a
// cluster. What fails leaves no file behind.
func writeSimulated(ctx context.Context, path string, o simulate.Options) (err error) {
	path, sqlitePath := strings.CutPrefix(path, "sqlite://")
	if !sqlitePath && strings.Contains(path, "://") {
		return usageError{fmt.Errorf("--save %s: want a path, or sqlite:///path", path)}
	}
	if _, err := os.Stat(path); err == nil {
		return usageError{fmt.Errorf("--save %s: it exists, and a simulation is not mixed with other jobs: give a new name", path)}
	}
	db, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return fmt.Errorf("--save: %w", err)
	}
	defer func() {
		if err = errors.Join(err, db.Close()); err != nil {
			_ = os.Remove(path)
		}
	}()
	w := simulatedRows{db: db, rows: sink.NewRows(0)}
	o.Observe = func(m *eventlog.Message, out *evaluator.Output) {
		if w.err == nil {
			w.err = w.add(ctx, m, out)
		}
	}
	_, err = simulate.Run(ctx, o)
	return errors.Join(err, w.err, w.flush(ctx))
}

type simulatedRows struct {
	db      *sqlite.DB
	rows    *sink.Rows
	seq     uint64
	pending int
	to      eventlog.Position
	err     error
}

func (w *simulatedRows) add(ctx context.Context, m *eventlog.Message, out *evaluator.Output) error {
	answered := sink.Answered(m, out.Records)
	w.seq++ // an envelope of its own
	answered.Seq = w.seq
	w.rows.Apply(&answered)
	w.to = m.Position
	if w.pending++; w.pending < simulatedAtOnce {
		return nil
	}
	return w.flush(ctx)
}

func (w *simulatedRows) flush(ctx context.Context) error {
	if w.pending == 0 {
		return nil
	}
	w.pending = 0
	tx, err := w.db.Begin(ctx, 0)
	if err != nil {
		return err
	}
	from := tx.Positions()
	to := from
	to.Chain.Seq, to.Chain.InTo, to.Events = w.seq, w.to, w.to
	if err := w.write(ctx, tx, from, to); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return nil
}

func (w *simulatedRows) write(ctx context.Context, tx jobdb.Tx, from, to jobdb.Positions) error {
	if err := tx.Write(ctx, w.rows.Take()); err != nil {
		return err
	}
	return tx.Commit(ctx, from, to)
}
