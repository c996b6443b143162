package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// change does something to a job database behind the program's back.
func change(t *testing.T, data, query string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+app.Dir(data).JobDB())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
}

// TestJobDBVerify: a database is equal to its logs until one row of it changes.
func TestJobDBVerify(t *testing.T) {
	t.Parallel()
	data, empty := drainedCopy(t), t.TempDir()
	verify := func(data string, more ...string) result {
		t.Helper()
		return ctl(t, append([]string{"jobdb", "verify", "--data", data}, more...)...)
	}
	verify(data).exits(t, exitFine).prints(t, "partition 2: ", ": equal\n")
	first, _, _ := strings.Cut(verify(data, "-o", "json").exits(t, exitFine).out, "\n")
	if v := jsonLine(t, first+"\n"); v["equal"] != true || v["differences"] == nil {
		t.Errorf("as JSON: %s", first)
	}
	verify(data, "-o", "yaml").exits(t, exitUsage).prints(t, `-o "yaml"`)
	ctl(t, "jobdb", "verify").exits(t, exitUsage).prints(t, "--data DIR is required")
	ctl(t, "jobdb").exits(t, exitUsage).prints(t, "verify")
	verify(empty).exits(t, exitEnvironment).prints(t, "no Refloat data")
	verify(data, "--job-db", "sqlite://"+filepath.Join(empty, "none.sqlite")).exits(t, exitEnvironment).prints(t, "there is no job database yet")
	verify(data, "--job-db", "mysql://root:sesame@host/x").exits(t, exitEnvironment).prints(t, "give sqlite:///path/to/jobs.sqlite or postgres://")

	job := firstJob(t, data)
	change(t, data, "UPDATE jobs SET priority = priority + 41 WHERE job_id = '"+job+"'")
	verify(data).exits(t, exitFinding).prints(t, ": 1 difference\n", "jobs "+job+": Queueing.Priority is 41, want 0")
	verify(data, "-o", "json").exits(t, exitFinding).prints(t, `"differenceCount":1`, `"table":"jobs"`, `"field":"Queueing.Priority"`, `"got":"41"`)
	change(t, data, "UPDATE jobs SET priority = priority + 1")
	verify(data).exits(t, exitFinding).prints(t, "  … and ")
	change(t, data, "INSERT INTO positions SELECT 7, seq, link, epoch, owner, in_to_ledger, in_to_entry, in_to_batch, decision_ledger, decision_entry, decision_batch, event_ledger, event_entry, event_batch, 0, 0, 0, 0, 0, 0 FROM positions LIMIT 1")
	verify(data).exits(t, exitFinding).prints(t, "partition 7: ", "the logs have 3 partitions")

	// The database of other logs.
	other := filepath.Join(t.TempDir(), "data")
	ctl(t, "up", "--data", other, "--policies", testPolicies, "--feed", recordingFile("plain"), "--quiet", "--exit-when-drained").exits(t, exitFine)
	verify(other, "--job-db", app.Dir(drainedData(t)).JobDBURL()).exits(t, exitFinding)
}

// TestPostgresJobDB: with the job database on PostgreSQL, the commands say what they
// say with SQLite.
func TestPostgresJobDB(t *testing.T) {
	t.Parallel()
	at, data := pgtest.Database(t), filepath.Join(t.TempDir(), "data")
	made, err := postgres.Open(t.Context(), at, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	p := start(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("retried"), "--pace", "100000x", "--exit-when-drained", "--job-db", at)
	verify := []string{"jobdb", "verify", "--data", data, "--job-db", at}
	p.err.await(t, "policies read")
	running := 0
	for alive := true; alive; running++ { // also while the ingester writes
		select {
		case <-p.done:
			alive = false
		default:
		}
		if r := ctl(t, verify...); r.code != exitEnvironment || !strings.Contains(r.err, app.ErrNoData.Error()) { // no decision log yet
			r.exits(t, exitFine)
		}
	}
	p.exits(t, exitFine)
	t.Logf("%d times, most while it ran", running)
	if r := ctl(t, verify...).exits(t, exitFine); strings.Contains(r.out, " 0 rows") || strings.Count(r.out, ": equal\n") != 3 {
		t.Errorf("verify says:\n%s", r.out)
	}
	for next := range strings.SplitSeq(p.out.text(), "\n") {
		if args, ok := strings.CutPrefix(next, "  bin/refloatctl "); ok && strings.Contains(args, "--job-db") {
			ctl(t, strings.Fields(args)...).exits(t, exitFine)
		}
	}
	like := drainedData(t)
	for _, args := range []string{"get jobs", "get jobs --waiting -o json", "get jobs --queue genomics --state Failed", "get decisions --all -o json", "shadow report", "shadow report -o json", "explain " + firstJob(t, like)} {
		want := ctl(t, append(strings.Fields(args), "--data", like)...).exits(t, exitFine)
		got := ctl(t, append(strings.Fields(args), "--data", data, "--job-db", at)...).exits(t, exitFine)
		if w, g := withoutChange(want.out), withoutChange(got.out); w != g {
			t.Errorf("%s: %s", args, firstDifference(w, g))
		}
	}
	ctl(t, "get", "job", firstJob(t, like), "--job-db", at).exits(t, exitFine)

	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "UPDATE refloat_runs SET node = 'elsewhere' WHERE (job_id, run_id) = (SELECT job_id, run_id FROM refloat_runs LIMIT 1)"); err != nil {
		t.Fatal(err)
	}
	ctl(t, verify...).exits(t, exitFinding).prints(t, `Node is "elsewhere"`)
	if _, err := conn.Exec(t.Context(), "UPDATE refloat_schema SET version = 99"); err != nil {
		t.Fatal(err)
	}
	ctl(t, verify...).exits(t, exitEnvironment).prints(t, "newer schema")
}

// TestPasswords: where a password is given in a URL, nothing shows it.
func TestPasswords(t *testing.T) {
	t.Parallel()
	data, at := drainedData(t), "postgres://u:sesame@127.0.0.1:1/x?connect_timeout=5"
	for _, args := range []string{
		"get jobs --job-db " + at, "get jobs --job-db postgres://u:sesame@host:port/x", "get job nobody --job-db postgres:u:sesame@h", "get jobs --job-db u:sesame",
		"explain x --data " + data + " --job-db " + at, "jobdb verify --data " + data + " --job-db " + at,
		"up --data " + filepath.Join(t.TempDir(), "data") + " --job-db postgres://u:sesame@host:port/x", "up --data x --print-config --job-db " + at,
	} {
		if r := ctl(t, strings.Fields(args)...); strings.Contains(r.out+r.err, "sesame") || r.code != exitEnvironment && !strings.Contains(args, "print-config") {
			t.Errorf("%s: exit code %d\n%s%s", args, r.code, r.out, r.err)
		}
	}
	p := start(t, "up", "--data", filepath.Join(t.TempDir(), "data"), "--job-db", at) // waits for it
	p.err.await(t, "job database is unavailable")
	p.signal(t, syscall.SIGTERM)
	p.exits(t, exitFine)
	if text := p.err.text(); strings.Contains(text, "sesame") {
		t.Errorf("up shows the password:\n%s", text)
	}
}

// withoutChange removes when the deciding policy was changed, which differs between two deployments.
func withoutChange(out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		if !strings.Contains(line, " was last changed by ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
