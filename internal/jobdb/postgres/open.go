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

// Options configure a writer.
type Options struct {
	// Wait is how long to wait for a lock, for example another writer's, before
	// ErrUnavailable. Default 5 s.
	Wait time.Duration
}

// DB is a job database open for writing.
type DB struct {
	address   address
	pool      *pgxpool.Pool
	beginning string // of each transaction
}

// The server aborts a transaction that is idle for this long: its writer is gone, even
// if the connection does not show it, and others wait for its lock.
const silence = time.Minute

// begin begins a writer's transaction with its settings. They are the transaction's, not the session's, because a pooler
// may give each transaction another session.
func (d *DB) begin(ctx context.Context) (pgx.Tx, error) {
	return d.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: d.beginning})
}

func beginning(wait time.Duration) string {
	return fmt.Sprintf(`BEGIN ISOLATION LEVEL READ COMMITTED;
	SELECT set_config('lock_timeout', '%s', true), set_config('idle_in_transaction_session_timeout', '%s', true),
	set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),
	CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END`,
		milliseconds(wait), milliseconds(silence))
}

// Open opens the database at a URL for writing. It creates the tables if there are
// none, and migrates them.
func Open(ctx context.Context, at string, opt Options) (*DB, error) {
	if opt.Wait <= 0 {
		opt.Wait = 5 * time.Second
	}
	cfg, err := parse(at)
	if err != nil {
		return nil, err
	}
	d := &DB{address: addressOf(&cfg.ConnConfig.Config), beginning: beginning(opt.Wait)}
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, d.address.classify(err, nil)
	}
	version, err := schemaVersion(ctx, d.pool)
	if err == nil && version < len(migrations) {
		err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return migrate(ctx, tx, opt.Wait) })
	}
	if err != nil {
		d.pool.Close()
		return nil, d.address.classify(err, nil)
	}
	return d, nil
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// parse parses a URL. The error of pgx on an invalid URL could reveal a part of the
// password.
func parse(at string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(at)
	if err == nil {
		notice(cfg)
		return cfg, nil
	}
	const give = "use postgres://user@host:5432/database, and pass the password in PGPASSWORD or ~/.pgpass"
	if _, urlErr := url.Parse(at); urlErr != nil {
		return nil, fmt.Errorf("job database: not a valid PostgreSQL URL (percent-encode special characters in a password, such as %%40): %s", give)
	}
	if cause := errors.Unwrap(err); cause != nil {
		return nil, fmt.Errorf("job database %s: %w: %s", redacted(at), cause, give)
	}
	return nil, fmt.Errorf("job database %s: invalid parameter in the URL: %s", redacted(at), give)
}

// Timeouts for a server that does not respond: while connecting, when an idle
// connection is used again, and while waiting for a response.
const (
	connectTimeout = 10 * time.Second
	pingTimeout    = 10 * time.Second
	silentFor      = 15 * time.Second // then send keep-alive probes
	askEvery       = 5 * time.Second
	askTimes       = 3
)

// notice sets the timeouts that the URL leaves open. A dead peer sends no FIN.
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

// migrationLock is the advisory lock under which tables are created and migrated.
const migrationLock = 0x7265666c6f6174 // "refloat"

// migrationWait is how long to wait for another process that migrates.
const migrationWait = time.Minute

func migrate(ctx context.Context, tx pgx.Tx, wait time.Duration) error {
	if err := timeout(ctx, tx, migrationWait); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("wait for another process that migrates the tables: %w", err)
	}
	if err := timeout(ctx, tx, wait); err != nil {
		return err
	}
	version, err := schemaVersion(ctx, tx) // again, under the lock
	if err != nil || version == len(migrations) {
		return err
	}
	// An ingester reads the version of the schema with the position that it locks. Those of an older program that have read it end
	// first: a migration that counts rows would miss what they write. Later ones see the new version.
	if version > 0 {
		if _, err := tx.Exec(ctx, "LOCK TABLE refloat_positions IN EXCLUSIVE MODE"); err != nil {
			return fmt.Errorf("wait for ingesters that write: %w", err)
		}
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.Exec(ctx, migrations[version]); err != nil {
			return fmt.Errorf("migrate from schema %d: %w", version, err)
		}
	}
	// Lists need statistics of new indexes on expressions at once; later ones are autovacuum's.
	if _, err := tx.Exec(ctx, "ANALYZE refloat_jobs, refloat_runs, refloat_decisions, refloat_groups"); err != nil {
		return fmt.Errorf("analyze the tables: %w", err)
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

// ours counts the tables with our prefix in the default schema, and checks whether
// refloat_schema has the expected columns.
const ours = `SELECT COALESCE(current_schema(), ''), getdatabaseencoding(), count(DISTINCT c.oid),
	count(*) FILTER (WHERE c.relname = 'refloat_schema' AND (a.attname, a.atttypid) IN (('application', 'text'::regtype), ('version', 'integer'::regtype)))
FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relname LIKE 'refloat\_%' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')`

// schemaVersion returns 0 if we have no tables yet, ErrForeign if tables are not ours,
// and ErrNewer for a version that this program does not know.
func schemaVersion(ctx context.Context, q querier) (int, error) {
	var schema, encoding string
	var tables, columns int
	if err := q.QueryRow(ctx, ours).Scan(&schema, &encoding, &tables, &columns); err != nil {
		return 0, err
	}
	switch {
	case schema == "":
		return 0, fmt.Errorf("%w: no schema of its search_path exists: create one, or set another search_path", jobdb.ErrForeign)
	case encoding != "UTF8":
		return 0, fmt.Errorf("%w: its encoding is %s: create it with ENCODING 'UTF8'", jobdb.ErrForeign, encoding)
	case tables == 0:
		return 0, nil
	case columns != 2:
		return 0, fmt.Errorf("%w: schema %s has tables named refloat_… but no refloat_schema of ours: use another schema or database", jobdb.ErrForeign, schema)
	}
	var app string
	var version, rows int
	err := q.QueryRow(ctx, "SELECT COALESCE(min(application), ''), COALESCE(min(version), 0), count(*) FROM refloat_schema").Scan(&app, &version, &rows)
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the schema version: %w", err)
	case rows != 1 || app != application || version < 0:
		return 0, fmt.Errorf("%w: refloat_schema in schema %s has %d rows and belongs to application %q: use another schema or database", jobdb.ErrForeign, schema, rows, app)
	case version > len(migrations):
		return 0, newer(version)
	}
	return version, nil
}

func newer(version int) error {
	return fmt.Errorf("%w: version %d, this program supports up to %d: use a newer program", jobdb.ErrNewer, version, len(migrations))
}

// Close closes the connections once no transaction is open.
func (d *DB) Close() error {
	d.pool.Close()
	return nil
}

// Reader is a job database open for reading.
type Reader struct {
	address address
	pool    *pgxpool.Pool
}

// OpenReader opens the database at a URL for reading, also on a server that is
// read-only. It creates and changes nothing.
func OpenReader(ctx context.Context, at string) (*Reader, error) {
	cfg, err := parse(at)
	if err != nil {
		return nil, err
	}
	// A plan that suits most values does not suit all: each list is planned for the values that it selects by.
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SELECT set_config('plan_cache_mode', 'force_custom_plan', false), set_config('jit', 'off', false)")
		return err
	}
	r := &Reader{address: addressOf(&cfg.ConnConfig.Config)}
	if r.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, r.address.classify(err, nil)
	}
	version, err := schemaVersion(ctx, r.pool)
	switch {
	case err != nil:
	case version == 0:
		err = fmt.Errorf("%w: the schema has no tables of ours: an ingester or `refloatctl up` creates them", jobdb.ErrAbsent)
	case version < len(migrations):
		err = fmt.Errorf("%w: version %d of %d: start an ingester or `refloatctl up` on it to migrate it", jobdb.ErrOlder, version, len(migrations))
	}
	if err != nil {
		r.pool.Close()
		return nil, r.address.classify(err, nil)
	}
	return r, nil
}

// Close closes the connections.
func (r *Reader) Close() error {
	r.pool.Close()
	return nil
}
