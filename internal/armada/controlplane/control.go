package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
)

// DB begins transactions on Armada's scheduler database, which also holds our tables.
type DB interface {
	BeginPlain(ctx context.Context) (pgx.Tx, error)
}

// Config of a Follower. Topic and DB are required.
type Config struct {
	Topic     eventlog.Topic
	Partition int
	DB        DB
	// Hit, if set, is called at the labels of a transaction: applied, committed. An
	// error ends the attempt there.
	Hit   func(label string) error
	Hooks Hooks
}

// Hooks observe a follower; nil is off.
type Hooks struct {
	// Applied is called after each operation was committed, with the number of jobs
	// that it changed.
	Applied func(partition int, at eventlog.Position, op schedulerdb.ControlOp, jobs int)
	// Parked is called for each message that was skipped.
	Parked func(partition int, at eventlog.Position, f schedulerdb.Finding)
	// Committed is called with the new position.
	Committed func(partition int, at eventlog.Position)
	// Retry is called with the error after which Run tries again.
	Retry func(partition int, err error)
}

// Follower follows one partition of the topic.
type Follower struct {
	cfg      Config
	reader   eventlog.Reader // nil: the position must be read first
	position eventlog.Position
	queue    []eventlog.Message // read, not applied yet
}

// New returns a follower.
func New(cfg Config) *Follower { return &Follower{cfg: cfg} }

// ErrTaken reports that Armada's own ingester may have read the topic, and nobody has
// recorded its position.
var ErrTaken = errors.New("the control-plane topic holds messages that Armada's ingester may have applied, and it is not known where it stopped; " +
	"jobs would be cancelled a second time: run `refloatctl cutover start` first (docs/operate.md)")

// Begin makes sure that a start position is known. Call it before our ingester writes
// Armada's tables for the first time: if they have no jobs, the topic is ours from its
// beginning, and so is a topic without messages once the tables are ours. topic is nil
// if it does not exist yet: then all of it will be new.
func Begin(ctx context.Context, db DB, topic eventlog.Topic) error {
	return inTx(ctx, db, func(tx pgx.Tx) error {
		if err := mustBeOurs(ctx, tx); err != nil {
			return err
		}
		const query = "SELECT EXISTS (SELECT FROM refloat_control), EXISTS (SELECT FROM jobs), EXISTS (SELECT FROM refloat_mirror)"
		var known, jobs, ours bool
		if err := tx.QueryRow(ctx, query).Scan(&known, &jobs, &ours); err != nil {
			return failed("read the start position in control-plane", err, tx)
		}
		switch {
		case known:
			return nil
		case jobs && !ours:
			return ErrTaken
		case jobs && topic != nil:
			for p := range topic.Partitions() {
				end, err := topic.End(p)
				if err != nil {
					return err
				}
				if end != eventlog.Start {
					return ErrTaken
				}
			}
		}
		_, err := tx.Exec(ctx, insertSQL, 0, eventlog.Start.Ledger, eventlog.Start.Entry, eventlog.Start.Batch)
		return failed("write the start position in control-plane", err, tx)
	})
}

// insertSQL: if any partition has a row, a partition without one is new.
const insertSQL = `INSERT INTO refloat_control (partition, ledger, entry, batch) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`

// readPosition reads the partition's position and locks it for this transaction.
func (f *Follower) readPosition(ctx context.Context, tx pgx.Tx) (at eventlog.Position, err error) {
	const query = "SELECT ledger, entry, batch FROM refloat_control WHERE partition = $1 FOR UPDATE"
	for range 2 {
		err = tx.QueryRow(ctx, query, f.cfg.Partition).Scan(&at.Ledger, &at.Entry, &at.Batch)
		if !errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if _, err := tx.Exec(ctx, insertSQL, f.cfg.Partition, eventlog.Start.Ledger, eventlog.Start.Entry, eventlog.Start.Batch); err != nil {
			return at, failed("write the start position in control-plane", err, tx)
		}
	}
	if err != nil {
		return at, failed("read the position in control-plane", err, tx)
	}
	return at, mustBeOurs(ctx, tx)
}

// mustBeOurs returns ErrRolledBack if the tables were rolled back to Armada's ingester.
// While the position is locked, nobody can roll back.
func mustBeOurs(ctx context.Context, tx pgx.Tx) error {
	var given bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM refloat_positions WHERE given_back IS NOT NULL)").Scan(&given)
	if given {
		return jobdb.ErrRolledBack
	}
	return failed("read whether a roll-back was recorded", err, tx)
}

// Advance applies the next message, if there is one. After an error, or if another
// process has advanced meanwhile, it starts again from the committed position.
func (f *Follower) Advance(ctx context.Context) (progress bool, err error) {
	progress, err = f.advance(ctx)
	if err != nil {
		err = fmt.Errorf("control-plane, partition %d: %w", f.cfg.Partition, errors.Join(err, f.Close()))
	}
	return progress, err
}

func (f *Follower) advance(ctx context.Context) (bool, error) {
	if f.reader == nil {
		if err := f.open(ctx); err != nil {
			return false, err
		}
	}
	if len(f.queue) == 0 {
		chunk := make([]eventlog.Message, 64)
		n, err := f.reader.Read(chunk)
		if n == 0 || err != nil {
			return false, err
		}
		f.queue = chunk[:n]
	}
	m := &f.queue[0]
	op, finding := schedulerdb.Control(m)
	jobs, err := f.commit(ctx, m, op)
	if errors.Is(err, pgstore.ErrRefused) {
		finding = &schedulerdb.Finding{Event: schedulerdb.WholeMessage, Kind: schedulerdb.Blocked, Reason: err.Error()}
		op = nil
		_, err = f.commit(ctx, m, nil)
	}
	if errors.Is(err, errMoved) {
		return true, f.Close()
	}
	if err != nil {
		return false, err
	}
	f.position, f.queue = m.Position, f.queue[1:]
	f.notify(op, finding, jobs)
	return true, f.hit("committed")
}

var errMoved = errors.New("another process has advanced")

func (f *Follower) open(ctx context.Context) error {
	err := inTx(ctx, f.cfg.DB, func(tx pgx.Tx) (err error) {
		f.position, err = f.readPosition(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	f.reader, err = f.cfg.Topic.Open(f.cfg.Partition, f.position)
	if f.position == eventlog.Start && errors.Is(err, eventlog.ErrTrimmed) {
		// "From the beginning" means what existed at the take-over, and everything
		// since.
		f.reader, _, err = eventlog.OpenHeld(f.cfg.Topic, f.cfg.Partition)
	}
	if err != nil {
		f.reader = nil
	}
	return err
}

// commit applies op, if it is not nil, and moves the position past its message, in one
// transaction.
func (f *Follower) commit(ctx context.Context, m *eventlog.Message, op schedulerdb.ControlOp) (jobs int, err error) {
	err = inTx(ctx, f.cfg.DB, func(tx pgx.Tx) error {
		at, err := f.readPosition(ctx, tx)
		if err != nil {
			return err
		}
		if at != f.position {
			return errMoved
		}
		if op != nil {
			if jobs, err = apply(ctx, tx, op); err != nil {
				return err
			}
		}
		const move = "UPDATE refloat_control SET ledger = $2, entry = $3, batch = $4 WHERE partition = $1"
		to := m.Position
		if _, err := tx.Exec(ctx, move, f.cfg.Partition, to.Ledger, to.Entry, to.Batch); err != nil {
			return failed("write the position in control-plane", err, tx)
		}
		return f.hit("applied")
	})
	return jobs, err
}

func apply(ctx context.Context, tx pgx.Tx, op schedulerdb.ControlOp) (int, error) {
	armada := pgstore.In(tx)
	var requeueing []string
	if s, ok := op.(*schedulerdb.Sweep); ok && s.Cancel {
		if s.Unleased() {
			if _, err := writer.SubmitHeld(ctx, tx, s.Queues, s.InClass); err != nil {
				return 0, err
			}
		}
		// Lock first, so that we see what an ingester commits while we wait for the
		// lock.
		if err := armada.Lock(ctx); err != nil {
			return 0, unavailable(err)
		}
		// For a few seconds these jobs are not in a queue, but will be.
		rows, err := tx.Query(ctx, "SELECT job_id FROM refloat_waits WHERE forgetting")
		if err == nil {
			requeueing, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return 0, failed("read which jobs are being requeued", err, tx)
		}
	}
	jobs, err := armada.ApplyControl(ctx, op, requeueing)
	return jobs, unavailable(err)
}

// unavailable maps a transient error of Armada's tables to jobdb.ErrUnavailable.
func unavailable(err error) error {
	if errors.Is(err, pgstore.ErrUnavailable) {
		return fmt.Errorf("%w: %w", jobdb.ErrUnavailable, err)
	}
	return err
}

func (f *Follower) hit(label string) error {
	if f.cfg.Hit == nil {
		return nil
	}
	return f.cfg.Hit(label)
}

func (f *Follower) notify(op schedulerdb.ControlOp, finding *schedulerdb.Finding, jobs int) {
	h, p := &f.cfg.Hooks, f.cfg.Partition
	if finding != nil && h.Parked != nil {
		h.Parked(p, f.position, *finding)
	}
	if op != nil && h.Applied != nil {
		h.Applied(p, f.position, op, jobs)
	}
	if h.Committed != nil {
		h.Committed(p, f.position)
	}
}

// Close closes the reader and drops what is not committed. The follower can still be
// used.
func (f *Follower) Close() error {
	r := f.reader
	f.reader, f.queue = nil, nil
	if r == nil {
		return nil
	}
	return r.Close()
}

// inTx runs do in one transaction.
func inTx(ctx context.Context, db DB, do func(tx pgx.Tx) error) error {
	tx, err := db.BeginPlain(ctx)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWait)
		defer cancel()
		_ = tx.Rollback(end) // an error after a commit is expected; after a failure there is one already
	}()
	if err := do(tx); err != nil {
		return err
	}
	return failed("commit", tx.Commit(ctx), tx)
}

const rollbackWait = 5 * time.Second

// failed wraps an error with its class, as the job database does.
func failed(doing string, err error, tx pgx.Tx) error {
	if err == nil {
		return nil
	}
	class := postgres.Class(err, tx.Conn())
	if class == nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, class, err)
}
