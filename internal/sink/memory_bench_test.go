package sink_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// steady is an events topic that makes its messages when they are read, so that it
// takes no memory: first all jobs are submitted, then all are leased, then all run.
// A message has the events of 20 jobs; a job set has 100 jobs.
type steady struct{ jobs int }

const (
	jobsAMessage = 20
	jobsASet     = 100
)

var liveSteps = []string{
	"submit %[1]s priority=3 namespace=team policies=infra,ml init=setup grace=30",
	"leased %[1]s %[2]s-0 node=node-0001 executor=cluster-a pool=default",
	"running %[1]s %[2]s-0 node=node-0001",
}

func (s steady) messages() int { return s.jobs / jobsAMessage * len(liveSteps) }

func (s steady) message(i int) eventlog.Message {
	step, first := i/(s.jobs/jobsAMessage), i%(s.jobs/jobsAMessage)*jobsAMessage
	lines := make([]string, jobsAMessage)
	for k := range lines {
		job := first + k
		lines[k] = fmt.Sprintf(liveSteps[step], fmt.Sprintf("01m7xn681y99tqr99%09d", job), fmt.Sprintf("017a6709-710f-4baf-bcc7-%010d", job))
	}
	m, _ := build("vision-train", fmt.Sprintf("sweep-%d", first/jobsASet), lines, steadyAt(i), int64(i+1)*second/100)
	return m
}

func steadyAt(i int) eventlog.Position {
	return eventlog.Position{Ledger: 1, Entry: int64(i), Batch: -1}
}

func (s steady) Partitions() int                          { return 1 }
func (s steady) Beginning(int) (eventlog.Position, error) { return eventlog.Start, nil }
func (s steady) End(int) (eventlog.Position, error)       { return steadyAt(s.messages() - 1), nil }
func (s steady) Open(_ int, after eventlog.Position) (eventlog.Reader, error) {
	return &steadyReader{steady: s, next: int(after.Entry) + 1}, nil // after Start: 0
}

type steadyReader struct {
	steady
	next int
}

func (r *steadyReader) Read(dst []eventlog.Message) (n int, err error) {
	for ; n < len(dst) && r.next < r.messages(); n++ {
		dst[n] = r.message(r.next)
		r.next++
	}
	return n, nil
}

func (r *steadyReader) Changed() <-chan struct{} { return nil }
func (r *steadyReader) Close() error             { return nil }

// heap is what is in use after a collection.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

func residentMB(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skipf("SKIP: memory is read from /proc: %v", err)
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

// BenchmarkLiveJobs is an ingester's memory while it writes so many jobs, of one
// partition, none of which ends. Run it with -benchtime 1x.
func BenchmarkLiveJobs(b *testing.B) {
	for _, jobs := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			at := pgtest.Start(b, false).Database(b)
			db, conn := openPostgres(b, at), postgresConn(b, at)
			for b.Loop() {
				if _, err := conn.Exec(context.Background(), emptyTables); err != nil {
					b.Fatal(err)
				}
				events, decisions := steady{jobs}, newTopic(1)
				c := newChain(&testing.T{}, decisions, 0)
				const batch = 100
				for i := batch - 1; i < events.messages(); i += batch {
					c.answer(steadyAt(i), batch)
				}
				before, most, resident := heap(), 0.0, 0.0
				w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: db})
				if err != nil {
					b.Fatal(err)
				}
				start, tx := time.Now(), 0
				for progress := true; progress; tx++ {
					if progress, err = w.Advance(context.Background(), 0); err != nil {
						b.Fatal(err)
					}
					resident = max(resident, residentMB(b))
					if tx%20 == 0 {
						most = max(most, heap()-before)
					}
				}
				took := time.Since(start)
				var live int
				if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM refloat_runs WHERE state = 3").Scan(&live); err != nil || live != jobs {
					b.Fatalf("%d runs are running, %v; want %d", live, err, jobs)
				}
				b.ReportMetric(most, "heap-MB")
				b.ReportMetric(resident, "resident-MB")
				b.ReportMetric(float64(jobs*len(liveSteps))/took.Seconds(), "events/s")
				b.ReportMetric(0, "ns/op")
				if err := w.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// withIndexes are the bytes of a table with its indexes; those of an index are not added.
const withIndexes = "CASE c.relkind WHEN 'r' THEN pg_total_relation_size(c.oid) ELSE 0 END"

// BenchmarkGrowth is what stays in each table of a job that is over, which failed
// once and was retried, in its indexes, and what the work itself leaves behind. Run it with
// -benchtime 1x.
func BenchmarkGrowth(b *testing.B) {
	ctx, at := context.Background(), pgtest.Start(b, false).Database(b)
	db, conn := openPostgres(b, at), postgresConn(b, at)
	const jobs, rounds = 5000, 4
	sizes := func(size string) map[string]float64 {
		if _, err := conn.Exec(ctx, "VACUUM ANALYZE"); err != nil {
			b.Fatal(err)
		}
		rows, err := conn.Query(ctx, `SELECT c.relname::text, `+size+`::float8 FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
			WHERE coalesce(i.indrelid, c.oid)::regclass::text LIKE 'refloat\_%' AND c.relkind IN ('r', 'i') AND c.relnamespace = 'public'::regnamespace`)
		if err != nil {
			b.Fatal(err)
		}
		all := map[string]float64{}
		for rows.Next() {
			var name string
			var size float64
			if err := rows.Scan(&name, &size); err != nil {
				b.Fatal(err)
			}
			all[name] = size
		}
		if rows.Err() != nil {
			b.Fatal(rows.Err())
		}
		return all
	}
	for b.Loop() {
		if _, err := conn.Exec(ctx, emptyTables); err != nil {
			b.Fatal(err)
		}
		events, decisions := lives(&testing.T{}, jobs*rounds, 1000)
		w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: db, MaxRows: 1000})
		if err != nil {
			b.Fatal(err)
		}
		sizes(withIndexes)
		messages := len(events.parts[0].messages)
		var early map[string]float64
		for n := 0; ; n++ {
			progress, err := w.Advance(ctx, 0)
			if err != nil {
				b.Fatal(err)
			}
			if !progress {
				break
			}
			if n%20 == 19 && early == nil {
				early = sizes(withIndexes)
			} else if n%20 == 19 {
				sizes(withIndexes) // as an autovacuum would
			}
		}
		late := sizes(withIndexes)
		for name, size := range late {
			if size > 0 {
				b.ReportMetric(size/(jobs*rounds), strings.TrimPrefix(name, "refloat_")+"-B/job")
			}
		}
		alone := sizes("pg_table_size(c.oid)")
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(alone)) {
			if size := alone[name] / (jobs * rounds); size >= 1 {
				parts = append(parts, fmt.Sprintf("%s %.0f", strings.TrimPrefix(name, "refloat_"), size))
			}
		}
		b.Logf("bytes a job, tables without their indexes: %s", strings.Join(parts, ", "))
		b.Logf("%d messages of %d jobs; refloat_positions: %.0f bytes early, %.0f at the end", messages, jobs*rounds, early["refloat_positions"], late["refloat_positions"])
		b.ReportMetric(0, "ns/op")
	}
}
