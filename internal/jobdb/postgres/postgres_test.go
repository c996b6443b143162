package postgres_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/test/jobdbtest"
	"github.com/refloat/refloat/internal/test/pgtest"
)

func open(t testing.TB, at string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(context.Background(), at, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openReader(t testing.TB, at string) *postgres.Reader {
	t.Helper()
	r, err := postgres.OpenReader(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func connect(t testing.TB, at string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, query string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// with adds a parameter to a URL.
func with(t testing.TB, at, name, value string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func TestConformance(t *testing.T) {
	t.Parallel()
	jobdbtest.Run(t, func(t *testing.T) jobdbtest.Database {
		at := pgtest.Database(t)
		db := jobdbtest.Database{Writer: open(t, at), Other: open(t, at)}
		db.Reader = openReader(t, at)
		return db
	})
}

// both opens a database for writing and for reading.
func both(at string) []error {
	db, werr := postgres.Open(context.Background(), at, postgres.Options{})
	if werr == nil {
		_ = db.Close()
	}
	r, rerr := postgres.OpenReader(context.Background(), at)
	if rerr == nil {
		_ = r.Close()
	}
	return []error{werr, rerr}
}

// tables returns all relations of the default schema.
func tables(t *testing.T, conn *pgx.Conn) (names string) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `SELECT COALESCE(string_agg(relname, ' ' ORDER BY relname), '') FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'`).Scan(&names)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestForeign: foreign tables with our names are refused, and nothing is changed.
func TestForeign(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{
		"another shape":   "CREATE TABLE refloat_schema (version integer); INSERT INTO refloat_schema VALUES (1)",
		"another type":    "CREATE TABLE refloat_schema (application text, version text); INSERT INTO refloat_schema VALUES ('refloat job database', '1')",
		"another's name":  "CREATE TABLE refloat_schema (application text, version integer); INSERT INTO refloat_schema VALUES ('blog', 1)",
		"no row":          "CREATE TABLE refloat_schema (application text, version integer)",
		"two rows":        "CREATE TABLE refloat_schema (application text, version integer); INSERT INTO refloat_schema SELECT 'refloat job database', 1 FROM generate_series(1, 2)",
		"tables, no mark": "CREATE TABLE refloat_jobs (x int)",
		"a view":          "CREATE VIEW refloat_schema AS SELECT 1 AS version",
	} {
		at := pgtest.Database(t)
		conn := connect(t, at)
		exec(t, conn, query)
		before := tables(t, conn)
		for _, err := range both(at) {
			if !errors.Is(err, jobdb.ErrForeign) {
				t.Errorf("%s: error %v, want ErrForeign", name, err)
			}
		}
		if after := tables(t, conn); after != before {
			t.Errorf("%s: the tables %q became %q", name, before, after)
		}
	}
}

// TestBeside: other tables in the schema, such as Armada's, stay unchanged; another
// schema is another job database.
func TestBeside(t *testing.T) {
	t.Parallel()
	at := pgtest.Database(t)
	conn := connect(t, at)
	exec(t, conn, "CREATE TABLE jobs (x int); CREATE TABLE runs (x int); CREATE TABLE refloats (x int); CREATE SCHEMA second")
	open(t, at)
	names := " " + tables(t, conn) + " "
	for _, want := range []string{" jobs ", " runs ", " refloats ", " refloat_jobs ", " refloat_schema "} {
		if !strings.Contains(names, want) {
			t.Errorf("no table%sin%s", want, names)
		}
	}
	second := with(t, at, "search_path", "second,public")
	if _, err := postgres.OpenReader(t.Context(), second); !errors.Is(err, jobdb.ErrAbsent) {
		t.Errorf("a reader of a schema without tables: %v, want ErrAbsent", err)
	}
	write(t, open(t, second), "in the second")
	if got := jobIDs(t, openReader(t, at)); got != "" {
		t.Errorf("the first has %q", got)
	}
	if got := jobIDs(t, openReader(t, second)); got != "in the second" {
		t.Errorf("the second has %q", got)
	}
	for _, err := range both(with(t, at, "search_path", "nowhere")) {
		if !errors.Is(err, jobdb.ErrForeign) {
			t.Errorf("no schema: error %v, want ErrForeign", err)
		}
	}
}

// TestVersions: a newer schema is refused, even while a writer runs; only a writer
// migrates an older one.
func TestVersions(t *testing.T) {
	t.Parallel()
	at := pgtest.Database(t)
	if _, err := postgres.OpenReader(t.Context(), at); !errors.Is(err, jobdb.ErrAbsent) {
		t.Errorf("a reader of an empty database: %v, want ErrAbsent", err)
	}
	db, conn := open(t, at), connect(t, at)
	exec(t, conn, "UPDATE refloat_schema SET version = 99")
	for _, err := range both(at) {
		if !errors.Is(err, jobdb.ErrNewer) || !strings.Contains(err.Error(), "99") {
			t.Errorf("newer schema: error %v, want ErrNewer", err)
		}
	}
	if _, err := db.Begin(t.Context(), 0); !errors.Is(err, jobdb.ErrNewer) {
		t.Errorf("a writer that was there before: %v, want ErrNewer", err)
	}
	exec(t, conn, "UPDATE refloat_schema SET version = 1")
	if _, err := postgres.OpenReader(t.Context(), at); !errors.Is(err, jobdb.ErrOlder) {
		t.Errorf("older schema: error %v, want ErrOlder", err)
	}
}

// TestOpenAtOnce: several processes may find an empty database at the same time.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	at := pgtest.Database(t)
	var group errgroup.Group
	for range 6 {
		group.Go(func() error {
			db, err := postgres.Open(context.Background(), at, postgres.Options{})
			if err == nil {
				err = db.Close()
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	openReader(t, at)
}

// TestNotThere: an unreachable or read-only database is reported by its class, without
// the password.
func TestNotThere(t *testing.T) {
	t.Parallel()
	at := pgtest.Database(t)
	open(t, at)
	conn := connect(t, at)
	exec(t, conn, "CREATE ROLE poor LOGIN PASSWORD 'sesame'")
	t.Cleanup(func() { exec(t, conn, "DROP ROLE poor") })
	none, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	none.Path = "/no_such_database"
	readOnly := with(t, at, "default_transaction_read_only", "on")
	for _, tt := range []struct {
		name, at string
		want     []error // for the writer and for the reader
	}{
		{"no server", "postgres://u:sesame@127.0.0.1:1/x?connect_timeout=5", []error{jobdb.ErrUnavailable, jobdb.ErrUnavailable}},
		{"no socket", "postgres://u:sesame@/x?host=/nowhere", []error{jobdb.ErrUnavailable, jobdb.ErrUnavailable}},
		{"no database", none.String(), []error{jobdb.ErrForeign, jobdb.ErrForeign}},
		{"no privilege", with(t, at, "user", "poor"), []error{jobdb.ErrDenied, jobdb.ErrDenied}},
	} {
		for i, err := range both(tt.at) {
			if !errors.Is(err, tt.want[i]) || strings.Contains(err.Error(), "sesame") {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want[i])
			}
		}
	}
	db := open(t, readOnly) // the tables exist already
	if _, err := db.Begin(t.Context(), 0); !errors.Is(err, jobdb.ErrReadOnly) || !errors.Is(err, jobdb.ErrUnavailable) {
		t.Errorf("begin, read-only: %v, want ErrReadOnly and ErrUnavailable", err)
	}
	if _, err := postgres.Open(t.Context(), with(t, pgtest.Database(t), "default_transaction_read_only", "on"), postgres.Options{}); !errors.Is(err, jobdb.ErrReadOnly) {
		t.Errorf("make tables, read-only: %v, want ErrReadOnly", err)
	}
	openReader(t, readOnly)
}

// TestNoPassword: no error about an invalid URL contains its password.
func TestNoPassword(t *testing.T) {
	t.Parallel()
	for _, at := range []string{
		"postgres://u:sesame%zz@host/db", "postgres://u:sesame@host:port/db", "postgres://u:sesame@ho st/db", "postgres://u:sesame@[::1/db",
		"postgres://u@host/db?password=sesame&sslmode=odd", "postgres://u:sesame@host/db?sslmode=odd", "postgres://u:sesame@host/db?pool_max_conns=sesame1",
		"postgres://u:ses@me:sesame@host:1:2/db", "postgresql://u:sesame@host/db?connect_timeout=soon", "postgres://u:sesame@h/db?sslrootcert=/none&sslmode=verify-full",
		"postgres://h/db?sslpassword=sesame&sslcert=/none&sslkey=/none&sslmode=require", "postgres://u:se/same@host/db?x=%zz",
	} {
		for _, err := range both(at) {
			if err == nil || strings.Contains(strings.ReplaceAll(err.Error(), "sesame1", "sesame"), "same") && !strings.Contains(at, "pool_max_conns") {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
}

// write commits a job after the partition's position.
func write(t testing.TB, db *postgres.DB, id string) {
	t.Helper()
	if err := try(db, id, nil); err != nil {
		t.Fatal(err)
	}
}

// try does the same, and calls hit before the commit.
func try(db *postgres.DB, id string, hit func(tx *postgres.Tx)) error {
	ctx := context.Background()
	tx, err := db.Begin(ctx, 0)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after an error there is one already
	if err := tx.Write(ctx, &jobdb.Changes{Jobs: []*jobdb.Job{{JobID: id, Queue: "q"}}}); err != nil {
		return err
	}
	if hit != nil {
		hit(tx.(*postgres.Tx))
	}
	next := tx.Positions()
	next.Chain.Seq++
	return tx.Commit(ctx, tx.Positions(), next)
}

func jobIDs(t testing.TB, r *postgres.Reader) string {
	t.Helper()
	var ids []string
	err := r.View(context.Background(), func(q jobdb.Queries) error {
		_, err := q.JobList(&jobdb.Criteria{}, jobdb.Page{}, func(j *jobdb.Job) error {
			ids = append(ids, j.JobID)
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(ids, ",")
}

// TestBackendKilled: a connection that is cut before the commit leaves nothing, one
// that is cut after it leaves everything, and the next one works in both cases.
func TestBackendKilled(t *testing.T) {
	t.Parallel()
	at := pgtest.Database(t)
	db, r, conn := open(t, at), openReader(t, at), connect(t, at)
	cut := func(tx *postgres.Tx) { terminate(t, conn, tx.Conn().Conn().PgConn().PID()) }
	if err := try(db, "lost", cut); !errors.Is(err, jobdb.ErrUnavailable) {
		t.Errorf("commit on a cut connection: %v, want ErrUnavailable", err)
	}
	if got := jobIDs(t, r); got != "" {
		t.Errorf("a cut transaction left %q", got)
	}
	var pid uint32
	if err := try(db, "a", func(tx *postgres.Tx) { pid = tx.Conn().Conn().PgConn().PID() }); err != nil {
		t.Fatal(err)
	}
	terminate(t, conn, pid)
	if err := try(db, "b", nil); err != nil {
		if !errors.Is(err, jobdb.ErrUnavailable) {
			t.Errorf("after the cut: %v, want ErrUnavailable or none", err)
		}
		write(t, db, "b")
	}
	if got := jobIDs(t, r); got != "a,b" {
		t.Errorf("jobs %q, want a,b", got)
	}
	tx, err := db.Begin(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := tx.Positions().Chain.Seq; got != 2 {
		t.Errorf("envelope %d, want 2", got)
	}
	cut(tx.(*postgres.Tx))
	if _, err := tx.Load(t.Context(), jobdb.Keys{Jobs: []string{"a"}}); !errors.Is(err, jobdb.ErrUnavailable) {
		t.Errorf("load on a cut connection: %v, want ErrUnavailable", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
}

// terminate ends a backend and waits for its end.
func terminate(t *testing.T, conn *pgx.Conn, pid uint32) {
	t.Helper()
	var gone bool
	if err := conn.QueryRow(context.Background(), "SELECT pg_terminate_backend($1, 10000)", pid).Scan(&gone); err != nil || !gone {
		t.Fatalf("terminate: %v, %v", gone, err)
	}
}

// TestServerKilled: a crashed server keeps what was committed; a DB and a reader
// continue once it is back.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, true)
	at := server.Database(t)
	db, r := open(t, at), openReader(t, at)
	write(t, db, "kept")
	if err := try(db, "lost", func(*postgres.Tx) { server.Kill(t) }); !errors.Is(err, jobdb.ErrUnavailable) {
		t.Errorf("commit on a killed server: %v, want ErrUnavailable", err)
	}
	if _, err := db.Begin(t.Context(), 0); !errors.Is(err, jobdb.ErrUnavailable) {
		t.Errorf("begin on a killed server: %v, want ErrUnavailable", err)
	}
	if err := r.View(t.Context(), func(jobdb.Queries) error { return nil }); !errors.Is(err, jobdb.ErrUnavailable) {
		t.Errorf("read from a killed server: %v, want ErrUnavailable", err)
	}
	server.Restart(t)
	write(t, db, "next")
	if got := jobIDs(t, r); got != "kept,next" {
		t.Errorf("jobs %q, want kept,next", got)
	}
}

// TestLocked: a writer that waits too long for the other one may retry. Other
// partitions and readers do not wait.
func TestLocked(t *testing.T) {
	t.Parallel()
	at := pgtest.Database(t)
	first := open(t, at)
	second, err := postgres.Open(t.Context(), at, postgres.Options{Wait: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	for _, address := range []string{"a partition that is new", "one that is known"} {
		tx, err := first.Begin(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := second.Begin(t.Context(), 0); !errors.Is(err, jobdb.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", address, err)
		}
		other, err := second.Begin(t.Context(), 1)
		if err != nil {
			t.Fatalf("another partition: %v", err)
		}
		if err := errors.Join(other.Rollback(), tx.Rollback()); err != nil {
			t.Fatal(err)
		}
		write(t, second, "x")
	}
}

// TestSettings: a commit is durable even if the server's default is asynchronous.
func TestSettings(t *testing.T) {
	t.Parallel()
	at := pgtest.Database(t)
	exec(t, connect(t, at), "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || quote_ident(current_database()) || ' SET synchronous_commit = off'; END $$")
	tx, err := open(t, at).Begin(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing is written
	var sync, wait, idle string
	err = tx.(*postgres.Tx).Conn().QueryRow(t.Context(), `SELECT current_setting('synchronous_commit'), current_setting('lock_timeout'),
		current_setting('idle_in_transaction_session_timeout')`).Scan(&sync, &wait, &idle)
	if err != nil || sync != "on" || wait != "5s" || idle != "1min" {
		t.Errorf("synchronous_commit %q, lock_timeout %q, idle_in_transaction_session_timeout %q, %v", sync, wait, idle, err)
	}
}

// TestSilentServer: a server that stops responding without closing connections is
// detected when an idle connection is used again.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	at := pgtest.Database(t)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	socket, ok := strings.CutPrefix(u.Query().Get("host"), "/")
	if !ok {
		t.Skip("SKIP: the test's server has no socket")
	}
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var silent atomic.Bool
	opened := make(chan net.Conn, 100)
	pass := func(to io.Writer, from io.Reader) {
		buffer := make([]byte, 1<<16)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if silent.Load() {
				continue
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			var dialer net.Dialer
			server, err := dialer.DialContext(context.Background(), "unix", "/"+socket+"/.s.PGSQL.5432")
			if err != nil {
				_ = client.Close()
				return
			}
			opened <- client
			opened <- server
			go pass(server, client)
			go pass(client, server)
		}
	}()
	through := with(t, at, "host", "127.0.0.1")
	through = with(t, through, "port", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	through = with(t, through, "sslmode", "disable")
	through = with(t, through, "pool_ping_timeout", "200ms")
	db := open(t, with(t, through, "connect_timeout", "10"))
	write(t, db, "before")
	silent.Store(true)
	<-time.NewTimer(1100 * time.Millisecond).C // until then, a connection counts as alive
	if err := try(db, "lost", nil); !errors.Is(err, jobdb.ErrUnavailable) {
		t.Errorf("begin on a silent server: %v, want ErrUnavailable", err)
	}
	silent.Store(false)
	write(t, db, "after")
	if got := jobIDs(t, openReader(t, at)); got != "after,before" {
		t.Errorf("jobs %q, want after,before", got)
	}
	for len(opened) > 0 { // otherwise closing the silent one takes 15 s
		_ = (<-opened).Close()
	}
}
