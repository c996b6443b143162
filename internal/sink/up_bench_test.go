package sink_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pgtest"
)

const upPolicies = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: infra}
spec:
  retryLimit: 3
  rules:
  - {name: node, action: Retry, onFailureCategory: [infra], antiAffinity: {mode: node}, backoff: {initialDelay: 60s, type: Constant}}
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: ml}
spec: {retryLimit: 1}
`

// ups makes data directories whose events log has the same history.
type ups struct {
	b        *testing.B
	policies string
	messages []eventlog.Message
}

func newUps(b *testing.B) *ups {
	b.Helper()
	const jobs, active = 10_000, 1000
	events, _ := lives(&testing.T{}, jobs, active)
	u := &ups{b: b, policies: filepath.Join(b.TempDir(), "policies.yaml"), messages: events.parts[0].messages}
	if err := os.WriteFile(u.policies, []byte(upPolicies), 0o600); err != nil {
		b.Fatal(err)
	}
	return u
}

func (u *ups) fed() app.Dir {
	u.b.Helper()
	dir := app.Dir(u.b.TempDir())
	log := openLog(u.b, dir.Events(), false)
	defer log.Close()
	for chunk := range slices.Chunk(u.messages, 500) {
		if err := log.AppendSync(u.b.Context(), 0, chunk); err != nil {
			u.b.Fatal(err)
		}
	}
	return dir
}

// run is a whole `up`, until everything is decided and in SQLite.
func (u *ups) run(dir app.Dir) {
	u.b.Helper()
	err := app.Run(u.b.Context(), app.Config{
		Data: dir, Policies: u.policies, Evaluate: true, Ingest: true, ExitWhenDrained: true, Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		u.b.Fatal(err)
	}
}

// BenchmarkUp is a whole `up`, from an events log on disk to the last row in SQLite, beside its two baselines by the wall clock: of-log is
// how much of the speed it has of reading the events and appending the envelopes that it wrote, of-rows of writing the very same rows, in
// as few transactions, through the driver alone.
func BenchmarkUp(b *testing.B) {
	u := newUps(b)
	dir := u.fed()
	u.run(dir)
	in, out := openLog(b, dir.Events(), true), openLog(b, dir.Decisions(), true)
	defer in.Close()
	defer out.Close()
	envelopes := slices.Collect(each(b, out))
	rows := &bare{b: b}
	ingest(b, in, out, 0, func(db jobdb.Store, path string) jobdb.Store { return noting{db, rows.reading(path)} })
	logs := func() time.Duration {
		start, n := time.Now(), 0
		to := openLog(b, b.TempDir(), false)
		defer to.Close()
		for range each(b, in) {
			n++
		}
		for _, m := range envelopes {
			if err := to.AppendSync(b.Context(), 0, []eventlog.Message{m}); err != nil {
				b.Fatal(err)
			}
		}
		if n != len(u.messages) {
			b.Fatalf("%d messages, want %d", n, len(u.messages))
		}
		return time.Since(start)
	}
	var ofLog, ofRows, took []float64
	for b.Loop() {
		dir := u.fed()
		start := time.Now()
		u.run(dir)
		ours := time.Since(start).Seconds()
		took = append(took, ours)
		ofLog, ofRows = append(ofLog, logs().Seconds()/ours), append(ofRows, rows.write().Seconds()/ours)
	}
	b.ReportMetric(float64(len(u.messages))/middle(took), "events/s")
	b.ReportMetric(middle(ofLog), "of-log")
	b.ReportMetric(middle(ofRows), "of-rows")
	b.ReportMetric(ofRows[0], "of-rows-least")
	b.ReportMetric(ofRows[len(ofRows)-1], "of-rows-most")
	b.ReportMetric(float64(len(rows.batches)), "bare-tx")
	b.ReportMetric(0, "ns/op")
}

// middle is the median of v, which it sorts.
func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkIngesterCPU is the CPU time an event of this process while an `up` decides and writes (up), and while an ingester writes the
// same to SQLite, which is in the process, and to PostgreSQL, which is not. x-sqlite and x-postgres are the ingester's time as a multiple
// of the evaluator's, which is what `up` takes beyond the first; x-bare-sqlite and x-bare-postgres are what the drivers alone take of
// this process to write the very same rows.
func BenchmarkIngesterCPU(b *testing.B) {
	u := newUps(b)
	at := pgtest.Start(b, false).Database(b)
	db, conn := openPostgres(b, at), postgresConn(b, at)
	toPG := func(to jobdb.Store, in, out *filelog.Log) {
		if _, err := conn.Exec(b.Context(), emptyTables); err != nil {
			b.Fatal(err)
		}
		w, err := sink.New(sink.Config{Events: in, Decisions: out, DB: to})
		if err != nil {
			b.Fatal(err)
		}
		defer w.Close()
		drain(b, w, 1)
	}
	var up, lite, pg, xLite, xPG, bareLite, barePG []float64
	var rows *bare
	pgRows := &pgBare{b: b, conn: conn}
	for b.Loop() {
		dir := u.fed()
		both := u.cpu(func() { u.run(dir) })
		in, out := openLog(b, dir.Events(), true), openLog(b, dir.Decisions(), true)
		one := u.cpu(func() { ingest(b, in, out, 0, func(db jobdb.Store, _ string) jobdb.Store { return db }) })
		other := u.cpu(func() { toPG(db, in, out) })
		if rows == nil { // the first time, of both
			rows = &bare{b: b}
			ingest(b, in, out, 0, func(db jobdb.Store, path string) jobdb.Store { return noting{db, rows.reading(path)} })
			toPG(pgNoting{db, pgRows}, in, out)
		}
		if _, err := conn.Exec(b.Context(), emptyTables); err != nil {
			b.Fatal(err)
		}
		bareLite = append(bareLite, u.cpu(func() { rows.write() })/(both-one))
		barePG = append(barePG, u.cpu(func() { pgRows.write() })/(both-one))
		up, lite, pg = append(up, both), append(lite, one), append(pg, other)
		xLite, xPG = append(xLite, one/(both-one)), append(xPG, other/(both-one))
		if err := errors.Join(in.Close(), out.Close()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(middle(up), "up-ns/event")
	b.ReportMetric(middle(lite), "sqlite-ns/event")
	b.ReportMetric(middle(pg), "postgres-ns/event")
	b.ReportMetric(middle(xLite), "x-sqlite")
	b.ReportMetric(middle(xPG), "x-postgres")
	b.ReportMetric(middle(bareLite), "x-bare-sqlite")
	b.ReportMetric(middle(barePG), "x-bare-postgres")
	b.ReportMetric(0, "ns/op")
}

// cpu is the CPU time an event, in nanoseconds, that this process uses for what do does.
func (u *ups) cpu(do func()) float64 {
	used := func() int64 {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			u.b.Fatal(err)
		}
		return r.Utime.Nano() + r.Stime.Nano()
	}
	before := used()
	do()
	return float64(used()-before) / float64(len(u.messages))
}

func openLog(b *testing.B, dir string, read bool) *filelog.Log {
	b.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, Partitions: 1, ReadOnly: read})
	if err != nil {
		b.Fatal(err)
	}
	return log
}

// each yields the messages of a log's only partition.
func each(b *testing.B, log *filelog.Log) func(yield func(eventlog.Message) bool) {
	return func(yield func(eventlog.Message) bool) {
		r, err := log.Open(0, eventlog.Start)
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		chunk := make([]eventlog.Message, 64)
		for {
			n, err := r.Read(chunk)
			if err != nil {
				b.Fatal(err)
			}
			if n == 0 {
				return
			}
			for _, m := range chunk[:n] {
				if !yield(m) {
					return
				}
			}
		}
	}
}
