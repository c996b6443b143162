package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/certtest"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// long skips a test of the long tier: make secure.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("SECURE") == "" {
		t.Skip("runs with SECURE=1")
	}
}

// reached is the URL of a database by another address, with other parameters.
func reached(t *testing.T, at, address string, params ...string) string {
	t.Helper()
	u := parse(t, at)
	u.Host, u.User = address, url.User("postgres")
	q := url.Values{}
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// TestVerifyFull: with sslmode=verify-full, a server's certificate must be of a trusted authority and for its host.
func TestVerifyFull(t *testing.T) {
	t.Parallel()
	server := pgtest.StartTCP(t, false)
	dir, soon := t.TempDir(), time.Now().Add(time.Hour)
	ca, stranger := certtest.New(t, "authority"), certtest.New(t, "stranger")
	roots, others := certtest.File(t, filepath.Join(dir, "ca.crt"), ca), certtest.File(t, filepath.Join(dir, "others.crt"), stranger)
	serve := func(hosts ...string) {
		pair := ca.Issue(t, filepath.Join(dir, "server"), "server", soon, hosts...)
		for setting, file := range map[string]string{"ssl_cert_file": pair.Cert, "ssl_key_file": pair.Key} {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			server.Execute(t, fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", setting, server.Put(t, filepath.Base(file), content)))
		}
		server.Execute(t, "ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
	}
	serve("127.0.0.1")
	at := server.Database(t)
	hba := server.Put(t, "hba.conf", []byte("local all all trust\nhostssl all all all trust\n"))
	server.Execute(t, "ALTER SYSTEM SET hba_file = '"+hba+"'")
	server.Stop(t)
	server.Restart(t)
	verified := func(address, roots string) string {
		return reached(t, at, address, "sslmode", "verify-full", "sslrootcert", roots)
	}
	begin(t, verified(server.Address(), roots), nil).drained()
	begin(t, reached(t, at, server.Address(), "sslmode", "disable"), nil).fails(jobdb.ErrDenied, "SQLSTATE 28000", "pg_hba.conf")

	for name, bad := range map[string]string{
		"another authority": verified(server.Address(), others),
		"another host":      verified(strings.Replace(server.Address(), "127.0.0.1", "localhost", 1), roots),
	} {
		l := begin(t, bad, nil)
		l.await("sslrootcert")
		if !strings.Contains(l.notes.all(), "x509: certificate") {
			t.Errorf("%s: %s", name, l.notes.all())
		}
		t.Log(lineWith(l.notes.all(), "x509"))
	}
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// TestFailOver: the primary dies while rows are written, and its standby is promoted. The URL names both, and nothing
// is lost or written twice.
func TestFailOver(t *testing.T) {
	long(t)
	primary := pgtest.StartTCP(t, true)
	at := primary.Database(t)
	standby := primary.Standby(t)
	// What was committed must be on the standby: then a fail-over loses nothing.
	primary.Execute(t, "ALTER SYSTEM SET synchronous_standby_names = '*'", "ALTER SYSTEM SET synchronous_commit = 'remote_apply'", "SELECT pg_reload_conf()")
	both := reached(t, at, primary.Address()+","+standby.Address(), "target_session_attrs", "read-write", "sslmode", "disable")
	l := begin(t, both, func() { primary.Kill(t) })
	l.await(unavailable)
	standby.Execute(t, "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
	standby.Promote(t)
	l.await(available)
	l.drained()
	t.Log(lineWith(l.notes.all(), available))
}

// TestFailOverBehind: a standby that had not received all when it was promoted. What it lacks is written again, because
// our positions are in the same transactions.
func TestFailOverBehind(t *testing.T) {
	long(t)
	primary := pgtest.StartTCP(t, true)
	at := primary.Database(t)
	standby := primary.Standby(t)
	on := func(address string) string { return reached(t, at, address, "sslmode", "disable") }
	both := reached(t, at, primary.Address()+","+standby.Address(), "target_session_attrs", "read-write", "sslmode", "disable")
	l := begin(t, both, func() {
		tick, limit := time.NewTicker(time.Millisecond), time.Now().Add(time.Minute)
		defer tick.Stop()
		for jobs(t, on(standby.Address())) == 0 && time.Now().Before(limit) {
			<-tick.C
		}
		standby.Execute(t, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()") // it receives no more
	})
	l.drained()
	ours := jobs(t, on(primary.Address()))
	primary.Kill(t)
	standby.Promote(t)
	if theirs := jobs(t, on(standby.Address())); theirs == 0 || theirs >= ours {
		t.Errorf("the standby has %d jobs, the primary had %d: nothing is missing", theirs, ours)
	} else {
		t.Logf("the primary had %d jobs, the standby has %d", ours, theirs)
	}
	begin(t, both, nil, func(c *app.Config) { c.Data, c.Feeds = l.c.Data, nil }).drained()
}

// jobs is how many jobs a job database has.
func jobs(t *testing.T, at string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM refloat_jobs").Scan(&n)
	if missing := (*pgconn.PgError)(nil); err != nil && (!errors.As(err, &missing) || missing.Code != "42P01") {
		t.Fatal(err)
	}
	return n
}

// TestStatementTimeout: a timeout that operators set for all is survived where it strikes.
func TestStatementTimeout(t *testing.T) {
	long(t)
	server := pgtest.Start(t, false)
	at := server.Database(t)
	all, database := admin(t, at)
	l := begin(t, at, func() {
		execute(t, all, "ALTER DATABASE "+database+" SET statement_timeout = '1ms'",
			"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+database+"'")
	})
	l.await("state=slow")
	l.await("statement_timeout")
	execute(t, all, "ALTER DATABASE "+database+" RESET statement_timeout",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+database+"'")
	l.drained()
}

// TestPgBouncer: behind PgBouncer in transaction mode, with the one parameter that docs name. Without it the error says
// so.
func TestPgBouncer(t *testing.T) {
	long(t)
	bouncer, err := exec.LookPath("pgbouncer")
	if err != nil {
		if _, err = os.Stat("/usr/sbin/pgbouncer"); err != nil {
			t.Skip("SKIP: pgbouncer is not installed")
		}
		bouncer = "/usr/sbin/pgbouncer"
	}
	server := pgtest.StartTCP(t, false)
	at := server.Database(t)
	address := server.Bounce(t, bouncer)
	through := func(params ...string) string {
		return reached(t, at, address, append([]string{"sslmode", "disable"}, params...)...)
	}
	server.Execute(t, "ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()")
	begin(t, through("default_query_exec_mode", "exec"), nil).drained()

	// Without it, the second client finds the prepared statements of the first one in the session that both get.
	first, err := postgres.Open(t.Context(), through(), postgres.Options{})
	if err == nil {
		defer first.Close()
		var second *postgres.DB
		if second, err = postgres.Open(t.Context(), through(), postgres.Options{}); err == nil {
			defer second.Close()
		}
	}
	if err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
		t.Errorf("without the parameter: %v", err)
	}
	t.Log(err)

	// What is committed must be durable, whichever session of the server a transaction gets: here another one than its
	// connection began with, which somebody else holds.
	address = server.Bounce(t, bouncer)
	db, err := postgres.Open(t.Context(), through("default_query_exec_mode", "exec"), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := pgx.Connect(t.Context(), through("default_query_exec_mode", "exec"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background()) }()
	if _, err := other.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var durable, wait string
	err = tx.(*postgres.Tx).Conn().QueryRow(t.Context(), "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')").Scan(&durable, &wait)
	if err != nil || durable != "on" || wait != "5s" {
		t.Errorf("the transaction has synchronous_commit %q and lock_timeout %q, %v", durable, wait, err)
	}
}

// grants are the statements of docs/operate.md.
func grants(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sql\n(.*?)```").FindStringSubmatch(string(text))
	if block == nil {
		t.Fatal("docs/operate.md has no block of SQL")
	}
	all := strings.Split(strings.TrimSpace(block[1]), "\n")
	if len(all) < 8 {
		t.Fatalf("docs/operate.md grants %q", all)
	}
	return all
}

var grantLine = regexp.MustCompile(`^GRANT (.+) ON (SCHEMA )?(.+) TO (\w+);$`)

// TestGrants: with exactly the grants of docs/operate.md, our programs do everything, in both forms of the job
// database, and each grant is needed.
func TestGrants(t *testing.T) {
	long(t)
	server, all := pgtest.StartTCP(t, false), grants(t)
	server.Execute(t, "CREATE ROLE refloat LOGIN", "CREATE ROLE lookup LOGIN")
	own := server.Database(t)
	execute(t, own, all[0], all[len(all)-1])
	begin(t, asUser(t, own, "refloat"), nil).drained()
	reader, err := postgres.OpenReader(t.Context(), asUser(t, own, "lookup"))
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	if jobs(t, asUser(t, own, "lookup")) == 0 {
		t.Error("a reader finds no jobs")
	}

	try := func(at string) error {
		l := begin(t, asUser(t, at, "refloat"), nil, func(c *app.Config) { c.IngestMode = "holdback" })
		limit := time.NewTimer(time.Minute)
		defer limit.Stop()
		select {
		case err := <-l.ended:
			return errors.Join(err, operate(t, asUser(t, at, "refloat")))
		case <-limit.C:
			return errors.New("it does not end")
		}
	}
	armadas := func() string {
		at := server.Database(t)
		conn, err := pgx.Connect(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
		if err := schema.Create(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		execute(t, at, all...)
		return at
	}
	if err := try(armadas()); err != nil {
		t.Errorf("with all grants: %v", err)
	}
	for _, line := range all[:len(all)-1] {
		m := grantLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("docs/operate.md: cannot read %q", line)
		}
		for privilege := range strings.SplitSeq(m[1], ", ") {
			for object := range strings.SplitSeq(m[3], ", ") {
				at := armadas()
				revoke := "REVOKE " + privilege + " ON " + m[2] + object + " FROM refloat"
				execute(t, at, "REVOKE USAGE ON SCHEMA public FROM PUBLIC", revoke)
				if err := try(at); err == nil || !strings.Contains(err.Error(), "42501") && !strings.Contains(err.Error(), "no schema of its search_path exists") {
					t.Errorf("after %s: %v, want an error: it is not needed", revoke, err)
				} else {
					t.Logf("%s: %v", revoke, err)
				}
			}
		}
	}
}

// operate applies one request of each kind that operators make, and a marker of the scheduler's.
func operate(t *testing.T, at string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	queues, states := []string{"queue"}, []schedulerdb.JobState{schedulerdb.JobQueued, schedulerdb.JobRunning}
	for _, op := range []schedulerdb.ControlOp{
		&schedulerdb.SetExecutor{Executor: "east", Cordoned: true, Reason: "r", User: "u", At: time.Now()}, &schedulerdb.ForgetSettings{Executor: "east"},
		&schedulerdb.DeleteExecutor{Executor: "east"}, &schedulerdb.Sweep{Cancel: true, Queues: queues, States: states}, &schedulerdb.Sweep{Queues: queues, States: states},
	} {
		if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := pgstore.In(tx).ApplyControl(t.Context(), op, nil)
			return err
		}); err != nil {
			return err
		}
	}
	marker := &schedulerdb.InsertMarker{Group: [16]byte{1}, Partition: 1, Created: time.Now()}
	return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return pgstore.In(tx).Apply(t.Context(), []schedulerdb.Op{marker}) })
}
