package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refloat/refloat/internal/jobdb/pgerror"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
)

// db is a scheduler database as its writer has it: a pool of connections whose
// transactions hold a store.Writer each.
type db struct {
	pool *pgxpool.Pool
	wait time.Duration
	// begun, if set, is called first in each transaction.
	begun func(ctx context.Context, tx pgx.Tx) error
}

func openDB(ctx context.Context, url string) (*db, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := pgstore.Check(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return &db{pool: pool, wait: 5 * time.Second}, nil
}

func open(t testing.TB, url string) *db {
	t.Helper()
	d, err := openDB(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.pool.Close)
	return d
}

// tx is a transaction. Errors of its own beginning and end are classed as those
// of the writer in it.
type tx struct {
	*pgstore.Writer
	conn pgx.Tx
}

func (d *db) Begin(ctx context.Context) (*tx, error) {
	conn, err := d.pool.Begin(ctx)
	if err != nil {
		return nil, classed(err, nil)
	}
	_, err = conn.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", fmt.Sprintf("%dms", d.wait.Milliseconds()))
	if err == nil && d.begun != nil {
		err = d.begun(ctx, conn)
	}
	t := &tx{Writer: pgstore.In(conn), conn: conn}
	if err != nil {
		return nil, errors.Join(err, t.Rollback())
	}
	return t, nil
}

func (t *tx) Commit(ctx context.Context) error { return classed(t.conn.Commit(ctx), t.conn.Conn()) }

func (t *tx) Rollback() error {
	err := t.conn.Rollback(context.Background())
	if errors.Is(err, pgx.ErrTxClosed) || t.conn.Conn().IsClosed() {
		return nil // with its connection, it is taken back
	}
	return err
}

func classed(err error, conn *pgx.Conn) error {
	if pgerror.Of(err, conn) == pgerror.Unavailable {
		return fmt.Errorf("%w: %w", pgstore.ErrUnavailable, err)
	}
	return err
}
