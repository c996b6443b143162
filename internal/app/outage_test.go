package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// notes are what a node logs.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(b)
}

func (n *notes) all() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// count is how many lines have the text.
func (n *notes) count(text string) (lines int) {
	for line := range strings.Lines(n.all()) {
		if strings.Contains(line, text) {
			lines++
		}
	}
	return lines
}

// living is a node that runs in a test.
type living struct {
	t     *testing.T
	c     app.Config
	notes *notes
	ended chan error
	fault chan struct{} // closed when the fault is over
}

// begin starts a node that is fed two recordings and ends when it is drained. After a part of them the feed pauses
// until fault returns; with nil it does not pause.
func begin(t *testing.T, jobDB string, fault func(), changes ...func(*app.Config)) *living {
	t.Helper()
	l := &living{t: t, notes: &notes{}, ended: make(chan error, 1), fault: make(chan struct{})}
	if fault == nil {
		close(l.fault)
	}
	var once sync.Once
	l.c = app.Config{
		Data: app.Dir(filepath.Join(t.TempDir(), "data")), JobDB: jobDB, Policies: writeFile(t, t.TempDir(), "policies.yaml", policies),
		Feeds: []string{recordingFile("chaos"), recordingFile("preempted")}, Evaluate: true, Ingest: true, ExitWhenDrained: true,
		Listen: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(l.notes, nil)), Now: time.Now,
		Progress: func(s app.Status) {
			if fault != nil && s.Fed < s.Total {
				once.Do(func() { defer close(l.fault); fault() })
			}
		},
	}
	for _, change := range changes {
		change(&l.c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { l.ended <- app.Run(ctx, l.c) }()
	return l
}

// await waits until the fault is over and the node has logged a text.
func (l *living) await(text string) {
	l.t.Helper()
	<-l.fault
	tick, limit := time.NewTicker(10*time.Millisecond), time.NewTimer(time.Minute)
	defer tick.Stop()
	defer limit.Stop()
	for !strings.Contains(l.notes.all(), text) {
		select {
		case <-tick.C:
		case err := <-l.ended:
			if l.ended <- err; !strings.Contains(l.notes.all(), text) {
				l.t.Fatalf("the node ended with %v and never said %q:\n%s", err, text, l.notes.all())
			}
		case <-limit.C:
			l.t.Fatalf("the node does not say %q:\n%s", text, l.notes.all())
		}
	}
}

var served = regexp.MustCompile(`serving /metrics.* address=(\S+)`)

// gauges returns the lines of /metrics about an unavailable database.
func (l *living) gauges() (lines []string) {
	l.t.Helper()
	l.await("serving /metrics")
	request, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "http://"+served.FindStringSubmatch(l.notes.all())[1]+"/metrics", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		l.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "refloat_jobdb_unavailable{") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// drained waits for the node's end, and checks that everything is there.
func (l *living) drained() {
	l.t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	select {
	case err := <-l.ended:
		if err != nil {
			l.t.Fatalf("the node ended with %v:\n%s", err, l.notes.all())
		}
	case <-limit.C:
		l.t.Fatalf("the node does not end:\n%s", l.notes.all())
	}
	if followsIn(l.t, l.c.Data, l.c.JobDB) == 0 {
		l.t.Error("no decisions")
	}
}

// fails waits for the node's end, which is an error that says what to do.
func (l *living) fails(class error, texts ...string) {
	l.t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case err := <-l.ended:
		if class != nil && !errors.Is(err, class) {
			l.t.Errorf("the node ended with %v, want %v", err, class)
		}
		for _, text := range texts {
			if !strings.Contains(fmt.Sprint(err), text) {
				l.t.Errorf("the node ended with %v, want %q in it", err, text)
			}
		}
	case <-limit.C:
		l.t.Fatalf("the node does not end:\n%s", l.notes.all())
	}
}

const (
	unavailable = "job database is unavailable"
	available   = "job database is available again"
)

func execute(t *testing.T, at string, queries ...string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, q := range queries {
		if _, err := conn.Exec(context.Background(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// admin is the URL of another database on the server.
func admin(t *testing.T, at string) (url, database string) {
	t.Helper()
	u := parse(t, at)
	database = strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	return u.String(), database
}

func parse(t *testing.T, at string) *url.URL {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func asUser(t *testing.T, at, user string) string {
	t.Helper()
	u := parse(t, at)
	q := u.Query()
	q.Set("user", user)
	u.RawQuery = q.Encode()
	return u.String()
}

// TestAwayAtStart: a PostgreSQL that comes up later is waited for, and said to be
// away, once.
func TestAwayAtStart(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, false)
	at := server.Database(t)
	server.Kill(t)
	l := begin(t, at, nil)
	l.await(unavailable)
	if got := l.gauges(); len(got) != 1 || got[0] != `refloat_jobdb_unavailable{state="unreachable"} 1` {
		t.Errorf("/metrics has %q", got)
	}
	server.Restart(t)
	l.await(available)
	l.drained()
	if n := l.notes.count(unavailable); n < 1 || n > 2 { // it may be seen starting
		t.Errorf("%d lines say that it is away:\n%s", n, l.notes.all())
	}
}

// TestTooManyConnections: a server that has no place for us is waited for.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, false)
	at := server.Database(t)
	all, database := admin(t, at)
	execute(t, all, "CREATE ROLE few LOGIN CONNECTION LIMIT 0", "ALTER DATABASE "+database+" OWNER TO few")
	l := begin(t, asUser(t, at, "few"), nil)
	l.await("state=too_many_connections")
	execute(t, all, "ALTER ROLE few CONNECTION LIMIT -1")
	l.drained()
	if n := l.notes.count(unavailable); n != 1 {
		t.Errorf("%d lines say that it is away:\n%s", n, l.notes.all())
	}
}

// TestRestarted: a server that is killed or shut down while rows are written is
// waited for, and what was lost with it is written again.
func TestRestarted(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, true)
	for name, end := range map[string]func(testing.TB){"killed": server.Kill, "stopped": server.Stop} {
		l := begin(t, server.Database(t), func() { end(t) })
		l.await(unavailable)
		server.Restart(t)
		l.drained()
		if l.notes.count(available) == 0 {
			t.Errorf("%s: nothing says that it is back:\n%s", name, l.notes.all())
		}
		if n := l.notes.count("state=unreachable"); n > 2 {
			t.Errorf("%s: %d lines say that it is away:\n%s", name, n, l.notes.all())
		}
	}
}

// TestReadOnlyInBetween: sessions that may not write, as on a standby, are given
// up for new ones.
func TestReadOnlyInBetween(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, false)
	at := server.Database(t)
	all, database := admin(t, at)
	l := begin(t, at, func() {
		execute(t, all, "ALTER DATABASE "+database+" SET default_transaction_read_only = on",
			"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+database+"'")
	})
	l.await("state=read_only")
	l.await("target_session_attrs=read-write")
	execute(t, all, "ALTER DATABASE "+database+" RESET default_transaction_read_only") // for new sessions only
	l.drained()
	if l.notes.count(available) == 0 {
		t.Errorf("nothing says that it is back:\n%s", l.notes.all())
	}
}

// TestNewerSchemaInBetween: what a newer program made is left alone.
func TestNewerSchemaInBetween(t *testing.T) {
	t.Parallel()
	at := pgtest.Database(t)
	l := begin(t, at, func() {
		// The node may not have made the tables yet.
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			conn, err := pgx.Connect(context.Background(), at)
			if err == nil {
				_, err = conn.Exec(context.Background(), "UPDATE refloat_schema SET version = 99")
				_ = conn.Close(context.Background())
			}
			if err == nil {
				return
			}
			<-tick.C
		}
	})
	l.fails(jobdb.ErrNewer, "use a newer program")
	begin(t, at, nil).fails(jobdb.ErrNewer, "use a newer program")
}

// TestNoWaitingMends: what an operator must repair ends the program, with what to do.
func TestNoWaitingMends(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, false)
	at := server.Database(t)
	all, _ := admin(t, at)
	hba := filepath.Join(t.TempDir(), "hba.conf")
	if err := os.WriteFile(hba, []byte("local all postgres trust\nlocal all locked reject\nlocal all all scram-sha-256\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(hba); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // the server has a user of its own
			t.Fatal(err)
		}
	}
	execute(t, all, "CREATE ROLE somebody LOGIN PASSWORD 'sesame'", "CREATE ROLE poor LOGIN", "CREATE ROLE locked LOGIN", "ALTER SYSTEM SET hba_file = '"+hba+"'")
	begin(t, asUser(t, at, "poor"), nil).fails(jobdb.ErrDenied, "SQLSTATE 42501", "grant this user")
	begin(t, asUser(t, at, "nobody"), nil).fails(jobdb.ErrDenied, "SQLSTATE 28000", "check the user")
	server.Stop(t)
	server.Restart(t)
	wrong := parse(t, asUser(t, at, "somebody"))
	q := wrong.Query()
	q.Set("password", "open")
	wrong.RawQuery = q.Encode()
	begin(t, wrong.String(), nil).fails(jobdb.ErrDenied, "SQLSTATE 28P01", "PGPASSWORD")
	begin(t, asUser(t, at, "locked"), nil).fails(jobdb.ErrDenied, "SQLSTATE 28000", "pg_hba.conf")
	none := parse(t, at)
	none.Path = "/nowhere"
	begin(t, none.String(), nil).fails(jobdb.ErrForeign, "SQLSTATE 3D000", "create the database")
	begin(t, "postgres://host:port/db", nil).fails(nil, "use postgres://")
	begin(t, "mysql://host/db", nil).fails(nil, "give sqlite:///path")
	execute(t, all, "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	latin := parse(t, at)
	latin.Path = "/latin"
	begin(t, latin.String(), nil).fails(jobdb.ErrForeign, "ENCODING 'UTF8'")

	c := app.Config{Data: app.Dir(filepath.Join(t.TempDir(), "data")), JobDB: at, IngestMode: "holdback", Evaluate: true, Ingest: true, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	if err := app.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "mode holdback writes Armada's scheduler database") || !strings.Contains(err.Error(), "give the database that Armada's scheduler uses") {
		t.Errorf("holdback without Armada's tables: %v", err)
	}
}
