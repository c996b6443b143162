package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refloat/refloat/internal/armadadb"
)

// Migration is the number of Armada's last migration that this package knows.
const Migration = 41

// lockKey is the advisory lock under which all ingesters of job events write, so
// that serials become visible in their order. It is Armada's.
const lockKey = 8741339439634283896

// lockTimeout is how long Armada waits for it; how long rollback may take, too.
const lockTimeout = 5 * time.Second

// Config of a DB. URL is required.
type Config struct {
	// URL is the database's, as pgx reads it: postgres://…, or keywords and values.
	URL string
	// LockTimeout is how long a transaction waits for a lock. Default 5 s.
	LockTimeout time.Duration
	// Begun, if set, is called first in each transaction: for whoever keeps the
	// place of a partition in this database, to lock it and to read it.
	Begun func(ctx context.Context, tx pgx.Tx, partition int) error
}

// DB is Armada's scheduler database, for writing.
type DB struct {
	cfg  Config
	pool *pgxpool.Pool
}

// Open connects, and checks that the tables are there as this package knows them.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	if cfg.URL == "" {
		return nil, errors.New("store: Config lacks URL")
	}
	if cfg.LockTimeout <= 0 {
		cfg.LockTimeout = lockTimeout
	}
	pool, err := pgxpool.New(ctx, cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("open scheduler database: %w", err)
	}
	d := &DB{cfg: cfg, pool: pool}
	if err := d.check(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

func (d *DB) check(ctx context.Context) error {
	const doing = "open scheduler database"
	var known bool
	err := d.pool.QueryRow(ctx, "SELECT to_regclass('database_version') IS NOT NULL AND to_regclass('jobs') IS NOT NULL").Scan(&known)
	if err != nil {
		return classify(doing, err)
	}
	if !known {
		return fmt.Errorf("%s: %w: it has no table jobs or no sequence database_version; give the database that Armada's scheduler uses", doing, ErrForeign)
	}
	var migration int64
	if err := d.pool.QueryRow(ctx, "SELECT last_value FROM database_version").Scan(&migration); err != nil {
		return classify(doing, err)
	}
	switch {
	case migration < Migration:
		return fmt.Errorf("%s: %w: migration %d, and %d is needed; run Armada's migrations", doing, ErrOlder, migration, Migration)
	case migration > Migration:
		return fmt.Errorf("%s: %w: migration %d, and %d is the last one known", doing, ErrNewer, migration, Migration)
	}
	return nil
}

// Close closes the connections.
func (d *DB) Close() { d.pool.Close() }

// Tx is one transaction. It ends by Commit or Rollback; Rollback after the end
// does nothing.
type Tx struct {
	d      *DB
	tx     pgx.Tx
	locked bool
}

// Begin opens a transaction. Armada's lock is not taken yet, but by Apply, as
// late as may be: all partitions, and Armada's own ingester, wait for one
// another there.
func (d *DB) Begin(ctx context.Context, partition int) (*Tx, error) {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, classify("begin", err)
	}
	t := &Tx{d: d, tx: tx}
	_, err = tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", fmt.Sprintf("%dms", d.cfg.LockTimeout.Milliseconds()))
	if err == nil && d.cfg.Begun != nil {
		err = d.cfg.Begun(ctx, tx, partition)
	}
	if err != nil {
		return nil, errors.Join(t.failed("begin", err), t.Rollback())
	}
	return t, nil
}

// Conn is the transaction for statements of the caller's own. What they return
// is not classified; Classify does that.
func (t *Tx) Conn() pgx.Tx { return t.tx }

// Classify wraps an error of a statement of the caller's own with its class.
func (t *Tx) Classify(doing string, err error) error { return t.failed(doing, err) }

// Lock takes Armada's lock, if the transaction does not have it yet.
func (t *Tx) Lock(ctx context.Context) error {
	if t.locked {
		return nil
	}
	if _, err := t.tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(lockKey)); err != nil {
		return t.failed("take Armada's lock", err)
	}
	t.locked = true
	return nil
}

// Apply applies operations in their order. After an error, the transaction can
// only be rolled back.
func (t *Tx) Apply(ctx context.Context, ops []armadadb.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if err := t.Lock(ctx); err != nil {
		return err
	}
	c := newChanges()
	for _, op := range ops {
		if c.full() || !c.add(op) {
			if err := t.write(ctx, c); err != nil {
				return err
			}
			c = newChanges()
			if setwide(op) {
				if err := t.applySet(ctx, op); err != nil {
					return err
				}
				continue
			}
			c.add(op)
		}
	}
	return t.write(ctx, c)
}

// Commit ends the transaction. After an error, it is not known whether it took
// effect.
func (t *Tx) Commit(ctx context.Context) error {
	return t.failed("commit", t.tx.Commit(ctx))
}

// Rollback takes everything back, unless the transaction has ended.
func (t *Tx) Rollback() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	err := t.tx.Rollback(ctx)
	if errors.Is(err, pgx.ErrTxClosed) || t.tx.Conn().IsClosed() {
		return nil // with its connection, it is taken back
	}
	return t.failed("roll back", err)
}

// failed classifies; whatever goes wrong on a broken connection is that.
func (t *Tx) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	if t.tx.Conn().IsClosed() && !errors.Is(err, context.Canceled) {
		err = errors.Join(err, errClosed)
	}
	return classify(doing, err)
}
