package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/refloat/refloat/internal/jobdb"
)

// Options of a writer.
type Options struct {
	// Wait is how long to wait for a lock, as another writer's, before
	// ErrUnavailable. Default 5 s.
	Wait time.Duration
}

// DB is a job database open for writing.
type DB struct {
	place place
	pool  *pgxpool.Pool
}

// A server takes back a transaction that says nothing for so long: its writer is
// gone, though the connection does not show it, and others wait for its lock.
const silence = time.Minute

// settings are those of a writer's connections.
const settings = `SELECT set_config('lock_timeout', $1, false), set_config('idle_in_transaction_session_timeout', $2, false),
	set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false),
	CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END`

// Open opens the database at a URL for writing, makes its tables if there are
// none and brings them up to date.
func Open(ctx context.Context, at string, opt Options) (*DB, error) {
	if opt.Wait <= 0 {
		opt.Wait = 5 * time.Second
	}
	cfg, err := parse(at)
	if err != nil {
		return nil, err
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, settings, milliseconds(opt.Wait), milliseconds(silence))
		return err
	}
	d := &DB{place: placeOf(&cfg.ConnConfig.Config)}
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, d.place.classify(err, nil)
	}
	version, err := schemaVersion(ctx, d.pool)
	if err == nil && version < len(migrations) {
		err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return migrate(ctx, tx, opt.Wait) })
	}
	if err != nil {
		d.pool.Close()
		return nil, d.place.classify(err, nil)
	}
	return d, nil
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// parse reads a URL. What pgx says about one that is none could show a part of
// the password.
func parse(at string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(at)
	if err == nil {
		notice(cfg)
		return cfg, nil
	}
	const give = "give postgres://user@host:5432/database, and the password by PGPASSWORD or ~/.pgpass"
	if _, urlErr := url.Parse(at); urlErr != nil {
		return nil, fmt.Errorf("job database: this is no URL of PostgreSQL (in a password, write special characters as %%40): %s", give)
	}
	if cause := errors.Unwrap(err); cause != nil {
		return nil, fmt.Errorf("job database %s: %w: %s", redacted(at), cause, give)
	}
	return nil, fmt.Errorf("job database %s: a setting in it cannot be read: %s", redacted(at), give)
}

// How soon a server that says nothing is noticed: when it is connected to, when a
// connection that was idle is used again, and while an answer is awaited.
const (
	connectTimeout = 10 * time.Second
	pingTimeout    = 10 * time.Second
	silentFor      = 15 * time.Second // then it is asked, every so often
	askEvery       = 5 * time.Second
	askTimes       = 3
)

// notice sets what the URL leaves open. A machine that is gone closes nothing.
func notice(cfg *pgxpool.Config) {
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if cfg.PingTimeout == 0 {
		cfg.PingTimeout = pingTimeout
	}
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silentFor, Interval: askEvery, Count: askTimes}}
	cfg.ConnConfig.DialFunc = dialer.DialContext
}

// migrationLock is the advisory lock under which tables are made and changed.
const migrationLock = 0x7265666c6f6174 // "refloat"

// migrationWait is how long to wait for another process that does it.
const migrationWait = time.Minute

func migrate(ctx context.Context, tx pgx.Tx, wait time.Duration) error {
	if err := timeout(ctx, tx, migrationWait); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("wait for another process that makes the tables: %w", err)
	}
	if err := timeout(ctx, tx, wait); err != nil {
		return err
	}
	version, err := schemaVersion(ctx, tx) // again, under the lock
	if err != nil || version == len(migrations) {
		return err
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.Exec(ctx, migrations[version]); err != nil {
			return fmt.Errorf("migrate from schema %d: %w", version, err)
		}
	}
	_, err = tx.Exec(ctx, "UPDATE refloat_schema SET version = $1", version)
	return err
}

func timeout(ctx context.Context, tx pgx.Tx, wait time.Duration) error {
	_, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", milliseconds(wait))
	return err
}

type querier interface {
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

// ours counts what stands in the default schema: tables with our prefix, and of
// them whether refloat_schema has the columns that it should.
const ours = `SELECT COALESCE(current_schema(), ''), getdatabaseencoding(), count(DISTINCT c.oid),
	count(*) FILTER (WHERE c.relname = 'refloat_schema' AND (a.attname, a.atttypid) IN (('application', 'text'::regtype), ('version', 'integer'::regtype)))
FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relname LIKE 'refloat\_%' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')`

// schemaVersion is 0 where there are no tables of ours yet, ErrForeign for
// someone else's and ErrNewer for those that this version of the program does
// not know.
func schemaVersion(ctx context.Context, q querier) (int, error) {
	var schema, encoding string
	var tables, columns int
	if err := q.QueryRow(ctx, ours).Scan(&schema, &encoding, &tables, &columns); err != nil {
		return 0, err
	}
	switch {
	case schema == "":
		return 0, fmt.Errorf("%w: no schema of its search_path is there: create one, or name another", jobdb.ErrForeign)
	case encoding != "UTF8":
		return 0, fmt.Errorf("%w: its encoding is %s: create it with ENCODING 'UTF8'", jobdb.ErrForeign, encoding)
	case tables == 0:
		return 0, nil
	case columns != 2:
		return 0, fmt.Errorf("%w: schema %s has tables that are called refloat_… and no refloat_schema of ours: use another schema or database", jobdb.ErrForeign, schema)
	}
	var app string
	var version, rows int
	err := q.QueryRow(ctx, "SELECT COALESCE(min(application), ''), COALESCE(min(version), 0), count(*) FROM refloat_schema").Scan(&app, &version, &rows)
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the schema's version: %w", err)
	case rows != 1 || app != application || version < 0:
		return 0, fmt.Errorf("%w: refloat_schema in schema %s has %d rows and is that of %q", jobdb.ErrForeign, schema, rows, app)
	case version > len(migrations):
		return 0, newer(version)
	}
	return version, nil
}

func newer(version int) error {
	return fmt.Errorf("%w: %d, this program knows up to %d: use the newer program", jobdb.ErrNewer, version, len(migrations))
}

// Close closes the connections, when no transaction is open any more.
func (d *DB) Close() error {
	d.pool.Close()
	return nil
}

// Reader is a job database open for reading.
type Reader struct {
	place place
	pool  *pgxpool.Pool
}

// OpenReader opens the database at a URL for reading, also on a server that
// cannot be written. It makes and changes nothing.
func OpenReader(ctx context.Context, at string) (*Reader, error) {
	cfg, err := parse(at)
	if err != nil {
		return nil, err
	}
	r := &Reader{place: placeOf(&cfg.ConnConfig.Config)}
	if r.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, r.place.classify(err, nil)
	}
	version, err := schemaVersion(ctx, r.pool)
	if err == nil && version < len(migrations) {
		err = fmt.Errorf("%w: %d of %d: an ingester or `refloatctl up` on it brings it up to date", jobdb.ErrOlder, version, len(migrations))
	}
	if err != nil {
		r.pool.Close()
		return nil, r.place.classify(err, nil)
	}
	return r, nil
}

// Close closes the connections.
func (r *Reader) Close() error {
	r.pool.Close()
	return nil
}
