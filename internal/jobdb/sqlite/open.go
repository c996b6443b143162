package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"time"

	sqlite3 "github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/refloat/refloat/internal/jobdb"
)

// Options configure a writer.
type Options struct {
	// Wait is how long to wait for another writer before ErrUnavailable. Default 5 s;
	// negative: do not wait.
	Wait time.Duration
	// CacheBytes is how many bytes of pages the writer keeps in memory, which is not of the Go heap. Default 64 MiB.
	CacheBytes int64
}

// DB is a job database open for writing.
type DB struct {
	path  string
	db    *sql.DB
	conn  *sql.Conn
	stmts map[stmtKey]*sql.Stmt
	busy  chan struct{} // holds a token while a transaction is open
}

// Open opens the database at path for writing. It creates the database if there is
// none, and migrates its schema.
func Open(ctx context.Context, path string, opt Options) (*DB, error) {
	if opt.Wait == 0 {
		opt.Wait = 5 * time.Second
	}
	if opt.CacheBytes == 0 {
		opt.CacheBytes = 64 << 20
	}
	pragmas := url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", max(opt.Wait, 0).Milliseconds()),
		"synchronous(FULL)", fmt.Sprintf("cache_size(-%d)", opt.CacheBytes>>10), "wal_autocheckpoint(4000)",
	}}
	if err := checkFiles(path); err != nil {
		return nil, classify(path, err)
	}
	db, err := driver.Open(dsn(path, pragmas))
	if err != nil {
		return nil, classify(path, err)
	}
	db.SetMaxOpenConns(1)
	d := &DB{path: path, db: db, stmts: map[stmtKey]*sql.Stmt{}, busy: make(chan struct{}, 1)}
	if d.conn, err = db.Conn(ctx); err == nil {
		err = d.prepare(ctx)
	}
	if err == nil { // what a statement changes is copied first, to a file if it is more than 64 KiB; migrations may need that
		_, err = d.conn.ExecContext(ctx, "PRAGMA temp_store = MEMORY")
	}
	if err != nil {
		return nil, errors.Join(classify(path, err), d.Close())
	}
	return d, nil
}

// hasTempDir reports whether SQLite can create the files into which it spills statements that change many rows, and
// sorts. A container with a read-only root file system often has no place for them.
func hasTempDir() bool {
	f, err := os.CreateTemp("", "refloat-*")
	if err != nil {
		return false
	}
	return errors.Join(f.Close(), os.Remove(f.Name())) == nil
}

func dsn(path string, q url.Values) string {
	registerVFS()
	if !hasTempDir() {
		q["_pragma"] = append(q["_pragma"], "temp_store(MEMORY)")
	}
	q.Set("vfs", unmappedVFS)
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// prepare checks that the file is ours before it changes anything in it.
func (d *DB) prepare(ctx context.Context) error {
	version, err := schemaVersion(ctx, d.conn)
	if err != nil {
		return err
	}
	var mode string
	if err := d.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%s: SQLite uses journal mode %q instead of WAL: the file system may not support WAL; use a local disk", d.path, mode)
	}
	if version == len(migrations) {
		return checksummed(ctx, d.conn)
	}
	// Checksums first: once the schema's version is in the file, readers require them.
	if err := raw(d.conn, func(c *sqlite3.Conn) error { return c.EnableChecksums("main") }); err != nil {
		return fmt.Errorf("enable checksums: %w", err)
	}
	switch on, err := checksumsInFile(d.path); {
	case err != nil:
		return err
	case on:
		return d.migrate(ctx)
	}
	// Whoever created the file was killed. Readers find out from the file itself, not from
	// the write-ahead log, whether its pages have checksums: the header must be there
	// before the schema is.
	var busy, pages, moved int
	if err := d.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved); err != nil {
		return fmt.Errorf("enable checksums: %w", err)
	}
	if busy != 0 {
		return fmt.Errorf("%w: another process reads it while its checksums are enabled", jobdb.ErrUnavailable)
	}
	return d.migrate(ctx)
}

// checksumsInFile reports whether the file's header reserves room for checksums in pages.
func checksumsInFile(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	header := make([]byte, 21) // the last byte is the size of that room
	if _, err := io.ReadFull(f, header); err != nil {
		return false, nil //nolint:nilerr // the file has no header yet
	}
	return header[20] == 8, nil
}

// raw calls do with the driver's connection.
func raw(conn *sql.Conn, do func(*sqlite3.Conn) error) error {
	return conn.Raw(func(c any) error { return do(c.(driver.Conn).Raw()) })
}

// checksummed returns jobdb.ErrDamaged unless pages have room for checksums. Every file
// of the newest schema does; if the header says otherwise, nothing would be verified.
func checksummed(ctx context.Context, conn *sql.Conn) error {
	var on bool
	if err := conn.QueryRowContext(ctx, "PRAGMA checksum_verification").Scan(&on); err != nil {
		return err
	}
	if !on {
		return fmt.Errorf("%w: page checksums are disabled in its header", jobdb.ErrDamaged)
	}
	return nil
}

func (d *DB) migrate(ctx context.Context) error {
	if _, err := d.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := d.migrateInside(ctx)
	if err == nil {
		_, err = d.conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		_, _ = d.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	}
	return err
}

func (d *DB) migrateInside(ctx context.Context) error {
	version, err := schemaVersion(ctx, d.conn) // again, under the lock
	if err != nil {
		return err
	}
	for ; version < len(migrations); version++ {
		if _, err := d.conn.ExecContext(ctx, migrations[version]); err != nil {
			return fmt.Errorf("migrate from schema %d: %w", version, err)
		}
	}
	_, err = d.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; UPDATE refloat_schema SET version = %d", applicationID, version))
	return err
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// schemaVersion returns 0 for an empty file, ErrForeign for a file that is not ours,
// and ErrNewer for a version that this program does not know.
func schemaVersion(ctx context.Context, q querier) (int, error) {
	var id, objects, version int
	err := q.QueryRowContext(ctx, "SELECT application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id").Scan(&id, &objects)
	if err != nil {
		return 0, err
	}
	if id != applicationID {
		if id != 0 || objects != 0 {
			return 0, fmt.Errorf("%w: application id %#x, %d objects", jobdb.ErrForeign, id, objects)
		}
		return 0, nil
	}
	if err := q.QueryRowContext(ctx, "SELECT version FROM refloat_schema").Scan(&version); err != nil {
		return 0, fmt.Errorf("read the schema version: %w", err)
	}
	return version, known(version)
}

// known refuses a version of the schema that this program does not know.
func known(version int) error {
	if version > len(migrations) {
		return fmt.Errorf("%w: version %d, this program supports up to %d: use a newer program", jobdb.ErrNewer, version, len(migrations))
	}
	return nil
}

// Close closes the database and rolls back an open transaction.
func (d *DB) Close() error {
	var errs []error
	for _, s := range d.stmts {
		errs = append(errs, s.Close())
	}
	if d.conn != nil {
		errs = append(errs, d.conn.Close())
	}
	return errors.Join(append(errs, d.db.Close())...)
}

// Reader is a job database open for reading.
type Reader struct {
	path string
	db   *sql.DB
}

// OpenReader opens the database at path for reading, also while a writer works on it.
// It returns jobdb.ErrAbsent if there is none.
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w at %s: give the path that `refloatctl up` or an ingester writes to", jobdb.ErrAbsent, path)
	} else if err != nil {
		return nil, fmt.Errorf("open job database: %w", err)
	}
	if err := checkFiles(path); err != nil {
		return nil, classify(path, err)
	}
	q := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)", "query_only(1)"}}
	r, err := openReader(ctx, path, q)
	var code sqlite3.ExtendedErrorCode
	if errors.As(err, &code) && code.Code() == sqlite3.CANTOPEN {
		// In WAL mode even a reader needs to write beside the file. If it may not, and
		// no writer left a log behind, the file alone is the database.
		if info, statErr := os.Stat(path + "-wal"); errors.Is(statErr, fs.ErrNotExist) || statErr == nil && info.Size() == 0 {
			q.Set("immutable", "1")
			r, err = openReader(ctx, path, q)
		}
	}
	return r, classify(path, err)
}

func openReader(ctx context.Context, path string, q url.Values) (*Reader, error) {
	db, err := driver.Open(dsn(path, q))
	if err != nil {
		return nil, err
	}
	if err := readable(ctx, db, path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Reader{path: path, db: db}, nil
}

func readable(ctx context.Context, db *sql.DB, path string) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	version, err := schemaVersion(ctx, conn)
	if err != nil {
		return err
	}
	switch {
	case version == 0:
		return fmt.Errorf("%w: the file is empty: `refloatctl up` or an ingester creates the tables", jobdb.ErrAbsent)
	case version < len(migrations):
		return fmt.Errorf("%w: version %d of %d: start an ingester or `refloatctl up` on it to migrate it", jobdb.ErrOlder, version, len(migrations))
	}
	err = checksummed(ctx, conn)
	if on, headerErr := checksumsInFile(path); err != nil && headerErr == nil && on { // the connection read the header before it was there
		return fmt.Errorf("%w: the file is being created: open it again", jobdb.ErrAbsent)
	}
	return err
}

// Close closes the database.
func (r *Reader) Close() error { return r.db.Close() }
