// Package pgtest gives tests a PostgreSQL server: a child process on a Unix socket,
// created once per test binary, or the server that REFLOAT_TEST_POSTGRES (a URL)
// names. For tests only.
//
// If there is neither, tests are skipped with the reason; REQUIRE_INTEGRATION=1 makes
// them fail instead. Nothing is left behind, even if the test binary is killed: a
// watchdog process then stops the server and removes its files.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// timeout limits every wait of a test here.
const timeout = 4 * time.Minute

// shared is the test binary's own server, started on first use. It does not sync: its data need not survive a
// power failure.
var shared = sync.OnceValues(func() (*process, error) { return launch(false, 0) })

// numbers make the names of databases differ within one test binary.
var numbers atomic.Int64

// Database makes a fresh empty database, which goes with the test, and returns
// its URL.
func Database(t testing.TB) string {
	t.Helper()
	if given := os.Getenv("REFLOAT_TEST_POSTGRES"); given != "" {
		return database(t, given)
	}
	p, err := shared()
	if err != nil {
		skip(t, err)
	}
	return database(t, p.url("postgres"))
}

// Server is a server of a test's own, which may be killed.
type Server struct{ p *process }

// Start starts a server that goes with the test. It always is a child process,
// whatever REFLOAT_TEST_POSTGRES says. With fsync it keeps what is committed
// through the crash of a machine, and takes the time for that.
func Start(t testing.TB, fsync bool) *Server {
	t.Helper()
	return started(t)(launch(fsync, 0))
}

// StartTCP is Start for a server that also listens on a port of 127.0.0.1: see [Server.Address].
func StartTCP(t testing.TB, fsync bool) *Server {
	t.Helper()
	return started(t)(launch(fsync, freePort(t)))
}

// Standby starts a standby that streams from this server, and that Promote makes a primary.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	return started(t)(launchStandby(s.p, freePort(t)))
}

func started(t testing.TB) func(*process, error) *Server {
	return func(p *process, err error) *Server {
		t.Helper()
		if err != nil {
			skip(t, err)
		}
		t.Cleanup(func() {
			if err := p.remove(); err != nil {
				t.Errorf("remove the PostgreSQL of the test: %v", err)
			}
		})
		return &Server{p}
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Address is the host and the port of a server that StartTCP or Standby started.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.p.port) }

// Promote makes a standby a primary, and returns when it is one.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.Execute(t, "SELECT pg_promote()")
}

// Execute executes statements as the superuser, on the database postgres.
func (s *Server) Execute(t testing.TB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if err := exec(s.p.url("postgres"), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// Bounce starts PgBouncer, the program, before the server of StartTCP, in transaction mode and with few connections to
// it. It returns its address; PgBouncer goes with the test.
func (s *Server) Bounce(t testing.TB, program string) string {
	t.Helper()
	port := freePort(t)
	users := s.Put(t, "users", []byte(`"postgres" ""`+"\n"))
	config := s.Put(t, "pgbouncer.ini", fmt.Appendf(nil, `[databases]
* = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = 3
max_client_conn = 100
`, s.p.port, port, users))
	cmd := osexec.Command(program, config)
	cmd.Dir = s.p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.p.as}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("PgBouncer printed\n%s", &out)
		}
	})
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for ; ; <-again.C {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return address
		}
		if ctx.Err() != nil {
			t.Fatalf("PgBouncer does not answer: %v", err)
		}
	}
}

// Put writes a file that only the server can read, beside its data, and returns its path.
func (s *Server) Put(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(s.p.dir, name)
	err := os.WriteFile(path, content, 0o600)
	if err == nil && s.p.as != nil {
		err = os.Chown(path, int(s.p.as.Uid), int(s.p.as.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Database is like the function, on this server.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return database(t, s.p.url("postgres"))
}

// Kill ends the server and all of its processes as kill -9 does.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if err := s.p.kill(); err != nil {
		t.Fatalf("kill PostgreSQL: %v", err)
	}
}

// Stop shuts the server down as an operator does: connected clients are notified.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.p.stop(); err != nil {
		t.Fatalf("stop PostgreSQL: %v", err)
	}
}

// Restart starts a killed or stopped server again, and returns when it has recovered.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.p.run(); err != nil {
		t.Fatalf("restart PostgreSQL: %v", err)
	}
}

// errNone reports that this machine has no PostgreSQL.
var errNone = errors.New("no initdb and postgres in PATH or /usr/lib/postgresql/*/bin; install PostgreSQL or set REFLOAT_TEST_POSTGRES to a server's URL")

// Columns returns the columns of a table that a row is written with, separated by commas: not those that are generated.
func Columns(t testing.TB, conn *pgx.Conn, table string) (names string) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`, table).Scan(&names)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func skip(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, errNone) || os.Getenv("REQUIRE_INTEGRATION") == "1" {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	t.Skipf("SKIP: %v", err)
}

// database makes a database beside the one that base names.
func database(t testing.TB, base string) string {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatalf("REFLOAT_TEST_POSTGRES: %v", err)
	}
	name := "refloat_test_" + strconv.Itoa(os.Getpid()) + "_" + strconv.FormatInt(numbers.Add(1), 10)
	if err := exec(base, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"); err != nil {
		t.Fatalf("create a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := exec(base, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Logf("drop the test's database: %v", err)
		}
	})
	u.Path = path.Join("/", name)
	return u.String()
}

func exec(base, query string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, query)
	if closing := conn.Close(ctx); err == nil && closing != nil {
		err = fmt.Errorf("close: %w", closing)
	}
	return err
}
