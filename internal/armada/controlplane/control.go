package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/schedulerdb"
	"github.com/refloat/refloat/internal/armada/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
)

// DB begins transactions on Armada's scheduler database, which has our tables too.
type DB interface {
	BeginPlain(ctx context.Context) (pgx.Tx, error)
}

// Config of a Follower. Topic and DB are required.
type Config struct {
	Topic     eventlog.Topic
	Partition int
	DB        DB
	// Hit, if set, is called at the labels of a transaction: applied, committed. Its
	// error ends the attempt there.
	Hit   func(label string) error
	Hooks Hooks
}

// Hooks tell of what a follower does; nil is off.
type Hooks struct {
	// Applied is told of each operation after it was committed, and how many jobs it
	// concerned.
	Applied func(partition int, at eventlog.Position, op schedulerdb.ControlOp, jobs int)
	// Parked is told of each message that was passed over.
	Parked func(partition int, at eventlog.Position, f schedulerdb.Finding)
	// Committed is told of the new position.
	Committed func(partition int, at eventlog.Position)
	// Retry is told why Run tries again.
	Retry func(partition int, err error)
}

// Follower follows one partition of the topic.
type Follower struct {
	cfg    Config
	reader eventlog.Reader // nil: the place must be read first
	place  eventlog.Position
	queue  []eventlog.Message // read and not applied
}

// New makes a follower.
func New(cfg Config) *Follower { return &Follower{cfg: cfg} }

// ErrTaken says that Armada's own ingester has read the topic, and nobody said up
// to where.
var ErrTaken = errors.New("the control-plane topic holds messages that Armada's ingester may have applied, and it is not known where it stopped; " +
	"jobs would be cancelled a second time: run `refloatctl cutover start` first (docs/cutover.md)")

// Begin sees to it that it is known where to begin. It comes before anyone of ours
// writes Armada's tables for the first time: in tables without jobs the topic is
// ours from its beginning, and so is one without messages once the tables are ours.
// Topic is nil where there is none: all that will be in it is new.
func Begin(ctx context.Context, db DB, topic eventlog.Topic) error {
	return inTx(ctx, db, func(tx pgx.Tx) error {
		if err := mustBeOurs(ctx, tx); err != nil {
			return err
		}
		const query = "SELECT EXISTS (SELECT FROM refloat_control), EXISTS (SELECT FROM jobs), EXISTS (SELECT FROM refloat_mirror)"
		var known, jobs, ours bool
		if err := tx.QueryRow(ctx, query).Scan(&known, &jobs, &ours); err != nil {
			return failed("look where to begin in control-plane", err, tx)
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
		return failed("begin in control-plane", err, tx)
	})
}

// insertSQL: where there is a row of any partition, one without is a new one.
const insertSQL = `INSERT INTO refloat_control (partition, ledger, entry, batch) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`

// readPlace reads the partition's place, and keeps it for this transaction.
func (f *Follower) readPlace(ctx context.Context, tx pgx.Tx) (at eventlog.Position, err error) {
	const query = "SELECT ledger, entry, batch FROM refloat_control WHERE partition = $1 FOR UPDATE"
	for range 2 {
		err = tx.QueryRow(ctx, query, f.cfg.Partition).Scan(&at.Ledger, &at.Entry, &at.Batch)
		if !errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if _, err := tx.Exec(ctx, insertSQL, f.cfg.Partition, eventlog.Start.Ledger, eventlog.Start.Entry, eventlog.Start.Batch); err != nil {
			return at, failed("begin in control-plane", err, tx)
		}
	}
	if err != nil {
		return at, failed("read the place in control-plane", err, tx)
	}
	return at, mustBeOurs(ctx, tx)
}

// mustBeOurs refuses to write what was given back to Armada's ingester. Where the
// place is locked, it cannot be given back meanwhile.
func mustBeOurs(ctx context.Context, tx pgx.Tx) error {
	var given bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM refloat_positions WHERE given_back IS NOT NULL)").Scan(&given)
	if given {
		return jobdb.ErrGivenBack
	}
	return failed("look whose the tables are", err, tx)
}

// Advance applies the next message, if there is one. After an error, or when
// someone else went on meanwhile, it begins anew at the committed place.
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
	f.place, f.queue = m.Position, f.queue[1:]
	f.tell(op, finding, jobs)
	return true, f.hit("committed")
}

var errMoved = errors.New("someone else went on")

func (f *Follower) open(ctx context.Context) error {
	err := inTx(ctx, f.cfg.DB, func(tx pgx.Tx) (err error) {
		f.place, err = f.readPlace(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	after := f.place
	f.reader, err = f.cfg.Topic.Open(f.cfg.Partition, after)
	if after == eventlog.Start && errors.Is(err, eventlog.ErrTrimmed) {
		// Ours from the beginning is what there was when it became ours, or came since.
		if after, err = f.cfg.Topic.Beginning(f.cfg.Partition); err == nil {
			f.reader, err = f.cfg.Topic.Open(f.cfg.Partition, after)
		}
	}
	if err != nil {
		f.reader = nil
	}
	return err
}

// commit applies an operation, if there is one, and moves the place behind its
// message, in one transaction.
func (f *Follower) commit(ctx context.Context, m *eventlog.Message, op schedulerdb.ControlOp) (jobs int, err error) {
	err = inTx(ctx, f.cfg.DB, func(tx pgx.Tx) error {
		at, err := f.readPlace(ctx, tx)
		if err != nil {
			return err
		}
		if at != f.place {
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
			return failed("move the place in control-plane", err, tx)
		}
		return f.hit("applied")
	})
	return jobs, err
}

func apply(ctx context.Context, tx pgx.Tx, op schedulerdb.ControlOp) (int, error) {
	armada := pgstore.In(tx)
	var requeueing []string
	if s, ok := op.(*schedulerdb.Sweep); ok && s.Cancel {
		// Lock first: what an ingester commits while we wait for it must be seen here.
		if err := armada.Lock(ctx); err != nil {
			return 0, unavailable(err)
		}
		// For some seconds these jobs are in no queue, but will be.
		rows, err := tx.Query(ctx, "SELECT job_id FROM refloat_waits WHERE forgetting")
		if err == nil {
			requeueing, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return 0, failed("look which jobs are put back", err, tx)
		}
	}
	jobs, err := armada.ApplyControl(ctx, op, requeueing)
	return jobs, unavailable(err)
}

// unavailable gives a passing error of Armada's tables the class that those of the
// job database have.
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

func (f *Follower) tell(op schedulerdb.ControlOp, finding *schedulerdb.Finding, jobs int) {
	h, p := &f.cfg.Hooks, f.cfg.Partition
	if finding != nil && h.Parked != nil {
		h.Parked(p, f.place, *finding)
	}
	if op != nil && h.Applied != nil {
		h.Applied(p, f.place, op, jobs)
	}
	if h.Committed != nil {
		h.Committed(p, f.place)
	}
}

// Close lets go of what is not committed. The follower may go on.
func (f *Follower) Close() error {
	r := f.reader
	f.reader, f.queue = nil, nil
	if r == nil {
		return nil
	}
	return r.Close()
}

// inTx does something in one transaction.
func inTx(ctx context.Context, db DB, do func(tx pgx.Tx) error) error {
	tx, err := db.BeginPlain(ctx)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWait)
		defer cancel()
		_ = tx.Rollback(end) // after a commit it says so, after an error there is one already
	}()
	if err := do(tx); err != nil {
		return err
	}
	return failed("commit", tx.Commit(ctx), tx)
}

const rollbackWait = 5 * time.Second

// failed gives an error of the database the class that the job database's have.
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
