package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/schedulerdb"
)

// Migration is the number of Armada's last migration that this package knows.
const Migration = 41

// LockKey is the advisory lock under which all ingesters of job events write, so
// that serials become visible in their order. It is Armada's.
const LockKey = 8741339439634283896

// Queryer is a connection, a pool or a transaction.
type Queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Check looks whether the tables are there as this package knows them.
func Check(ctx context.Context, conn Queryer) error {
	const doing = "look at the scheduler database"
	var known bool
	err := conn.QueryRow(ctx, "SELECT to_regclass('database_version') IS NOT NULL AND to_regclass('jobs') IS NOT NULL").Scan(&known)
	if err != nil {
		return classify(doing, err, nil)
	}
	if !known {
		return fmt.Errorf("%s: %w: it has no table jobs or no sequence database_version; give the database that Armada's scheduler uses", doing, ErrForeign)
	}
	var migration int64
	if err := conn.QueryRow(ctx, "SELECT last_value FROM database_version").Scan(&migration); err != nil {
		return classify(doing, err, nil)
	}
	switch {
	case migration < Migration:
		return fmt.Errorf("%s: %w: migration %d, and %d is needed; run Armada's migrations", doing, ErrOlder, migration, Migration)
	case migration > Migration:
		return fmt.Errorf("%s: %w: migration %d, and %d is the last one known", doing, ErrNewer, migration, Migration)
	}
	return nil
}

// Writer writes inside one transaction, which its caller began and ends. How long
// it waits for locks is the transaction's lock_timeout.
type Writer struct {
	tx     pgx.Tx
	locked bool
}

// In is a writer inside a transaction.
func In(tx pgx.Tx) *Writer { return &Writer{tx: tx} }

// Lock takes Armada's lock, if the writer did not take it yet. All partitions,
// and Armada's own ingester, wait for one another there, so Apply takes it as
// late as may be.
func (w *Writer) Lock(ctx context.Context) error {
	if w.locked {
		return nil
	}
	if _, err := w.tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(LockKey)); err != nil {
		return w.failed("take Armada's lock", err)
	}
	w.locked = true
	return nil
}

// Apply applies operations in their order. After an error, the transaction can
// only be rolled back.
func (w *Writer) Apply(ctx context.Context, ops []schedulerdb.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if err := w.Lock(ctx); err != nil {
		return err
	}
	c := newChanges()
	for _, op := range ops {
		if c.full() || !c.add(op) {
			if err := w.write(ctx, c); err != nil {
				return err
			}
			c = newChanges()
			if setwide(op) {
				if err := w.applySet(ctx, op); err != nil {
					return err
				}
				continue
			}
			c.add(op)
		}
	}
	return w.write(ctx, c)
}

func (w *Writer) failed(doing string, err error) error {
	return classify(doing, err, w.tx.Conn())
}
