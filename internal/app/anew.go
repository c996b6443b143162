package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/projection"
)

// makeAnew replaces the logs of events and decisions, the state and the job database of a data directory that has
// never had an event, so that there are as many partitions as the feeds need. Policies stay. If any of them holds
// something, or holds what is unknown here, nothing is deleted. It closes the logs that it gets.
func (c Config) makeAnew(ctx context.Context, logs *Logs, partitions int, write Access) (*Logs, error) {
	if err := c.checkUnused(ctx, logs, write); err != nil {
		err = fmt.Errorf("the feeds need %d partitions, %s has %d, which cannot be changed any more: use a new data directory (%w)", partitions, c.Data.Events(), logs.Events.Partitions(), err)
		return nil, errors.Join(err, logs.Close())
	}
	// While the logs are open, they are locked. Events goes last and at once, so that what is left after a crash in
	// between is complete, or made anew too.
	db := c.Data.JobDB()
	var errs []error
	for _, path := range []string{db + "-wal", db + "-shm", db, c.Data.stateRoot(), c.Data.Decisions()} {
		errs = append(errs, os.RemoveAll(path))
	}
	old := c.Data.Events() + ".empty"
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(fmt.Errorf("make the logs anew: %w", err), logs.Close())
	}
	err := errors.Join(os.RemoveAll(old), os.Rename(c.Data.Events(), old), logs.Close(), os.RemoveAll(old))
	if err != nil {
		return nil, fmt.Errorf("make the logs anew: %w", err)
	}
	return c.Data.OpenLogs(partitions, write)
}

// checkUnused returns an error unless the data directory holds nothing but policies and what `up` writes before the
// first event.
func (c Config) checkUnused(ctx context.Context, logs *Logs, write Access) error {
	if c.JobDB != "" || c.Checkpoints != nil || !write.Decisions || !write.Events {
		return errors.New("not all of its data is in this directory")
	}
	if err := logs.checkUnused(); err != nil {
		return err
	}
	if err := c.checkStatesUnused(logs.Events.Partitions()); err != nil {
		return err
	}
	return c.Data.checkJobDBUnused(ctx)
}

// checkUnused returns an error if there is an event, or a record that a new log would lack: the events may have been
// deleted.
func (l *Logs) checkUnused() error {
	for p := range l.Events.Partitions() {
		end, err := l.Events.End(p)
		if err != nil {
			return err
		}
		if end != eventlog.Start {
			return errors.New("it has events")
		}
		decisions, err := l.Decisions.Open(p, eventlog.Start)
		if err != nil {
			return err
		}
		if err := errors.Join(checkCoversNothing(decisions), decisions.Close()); err != nil {
			return fmt.Errorf("decision log: %w", err)
		}
	}
	return nil
}

// checkCoversNothing returns an error unless the decision log has nothing but what an owner writes before the first
// event: its claim and what is in force.
func checkCoversNothing(decisions eventlog.Reader) error {
	chunk := make([]eventlog.Message, feedBatch)
	for {
		n, err := decisions.Read(chunk)
		if err != nil || n == 0 {
			return err
		}
		for i := range chunk[:n] {
			e, err := chain.DecodeEnvelope(chunk[i].Payload)
			if err != nil {
				return err
			}
			if e.InTo != eventlog.Start {
				return errors.New("it has decided events")
			}
			for _, raw := range e.Records {
				switch r, err := chain.DecodeRecord(raw); r.(type) {
				case *chain.OwnerClaim, *chain.PolicyActivated, *chain.SemanticsActivated:
				default:
					return errors.Join(errors.New("it has a record that is not written anew"), err)
				}
			}
		}
	}
}

// checkStatesUnused returns an error unless the states of all partitions are those before the first event. A
// directory may hold the state of another log: that of a cluster, if the process ran with --pulsar before.
func (c Config) checkStatesUnused(partitions int) error {
	entries, err := os.ReadDir(c.Data.stateRoot())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(c.Data.stateRoot(), e.Name())
		if p, err := strconv.Atoi(e.Name()); err != nil || !e.IsDir() || dir != c.Data.State(p) || p >= partitions {
			return fmt.Errorf("%s is no state of its logs", dir)
		}
		if err := c.checkStateUnused(dir); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkStateUnused(dir string) (err error) {
	store, err := projection.OpenStore(projection.StoreConfig{FS: vfs.Default, Dir: dir, Logger: pebbleLog{c.Log, c.Fatal}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	positions, err := evaluator.PositionsIn(store)
	if err == nil && positions.Chain.InTo != eventlog.Start {
		err = fmt.Errorf("%s has the state after an event", dir)
	}
	return err
}

// checkJobDBUnused returns an error unless the embedded job database has no row.
func (d Dir) checkJobDBUnused(ctx context.Context) (err error) {
	if _, err := os.Lstat(d.JobDB()); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	// An `up` that ended early may have left it without tables.
	if w, err := OpenJobDB(ctx, d.JobDBURL()); err != nil {
		return err
	} else if err := w.Close(); err != nil {
		return err
	}
	db, err := ReadJobDB(ctx, d.JobDBURL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(ctx, func(q jobdb.Queries) error {
		positions, err := q.Positions()
		if err != nil {
			return err
		}
		rows, err := q.Summary()
		if err != nil {
			return err
		}
		used := len(rows.Jobs) > 0 || len(rows.Decisions) > 0 || len(rows.NotDecided) > 0 || len(rows.Parked) > 0 ||
			rows.Runs > 0 || rows.Ready > 0 || rows.Releases > 0
		for _, p := range positions {
			used = used || p.Positions.Events != eventlog.Start || p.Positions.Pruned.Jobs > 0
		}
		if used {
			return fmt.Errorf("%s has rows", d.JobDB())
		}
		return nil
	})
}
