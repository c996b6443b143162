package sink_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/sink"
)

// lives is a history of jobs that fail once, are requeued and succeed: about
// active of them at a time, one event a message, ten messages an envelope.
func lives(t *testing.T, jobs, active int) (events, decisions *memTopic) {
	events, decisions = newTopic(1), newTopic(1)
	c := newChain(t, decisions, 0)
	steps := []string{
		"submit %[1]s priority=3 namespace=team policies=infra,ml init=setup grace=30", "leased %[1]s %[2]s-0 node=node-0001 executor=cluster-a pool=default",
		"assigned %[1]s %[2]s-0", "running %[1]s %[2]s-0 node=node-0001",
		"run-errors %[1]s %[2]s-0 pod exit=137 node=node-0001 category=infra message=the_node_was_low_on_resource:_memory._Container_main_was_using_1Gi\n> requeue %[1]s %[2]s-0 after=60 avoid=node-0001",
		"leased %[1]s %[2]s-1 node=node-0002 executor=cluster-b pool=default", "assigned %[1]s %[2]s-1", "running %[1]s %[2]s-1 node=node-0002",
		"run-succeeded %[1]s %[2]s-1", "succeeded %[1]s",
	}
	var records []chain.Record
	entry := int64(0)
	publish := func(job, step int) {
		entry++
		at := eventlog.Position{Ledger: 1, Entry: entry, Batch: -1}
		id, run := fmt.Sprintf("01m7xn681y99tqr99%09d", job), fmt.Sprintf("017a6709-710f-4baf-bcc7-%010d", job)
		m, rs := build("vision-train", fmt.Sprintf("sweep-%d", job/100), splitLines(fmt.Sprintf(steps[step], id, run)), at, entry*second/100)
		events.append(0, m)
		if records = append(records, rs...); entry%10 == 0 {
			c.answer(at, 10, records...)
			records = records[:0]
		}
	}
	for from := 0; from < jobs; from += active {
		for step := range steps {
			for job := from; job < min(from+active, jobs); job++ {
				publish(job, step)
			}
		}
	}
	return events, decisions
}

func splitLines(s string) (lines []string) {
	for start, i := 0, 0; i <= len(s); i++ {
		if i == len(s) || s[i] == '\n' {
			lines = append(lines, s[start:i])
			start = i + 1
		}
	}
	return lines
}

// noting reads back what each transaction wrote, as the values that the driver binds.
type noting struct {
	jobdb.Store
	bare *bare
}

type notingTx struct {
	jobdb.Tx
	bare    *bare
	changes *jobdb.Changes
}

func (n noting) Begin(ctx context.Context, p int) (jobdb.Tx, error) {
	tx, err := n.Store.Begin(ctx, p)
	return &notingTx{Tx: tx, bare: n.bare}, err
}

func (t *notingTx) Write(ctx context.Context, c *jobdb.Changes) error {
	t.changes = c
	return t.Tx.Write(ctx, c)
}

func (t *notingTx) Commit(ctx context.Context, from, to jobdb.Positions) error {
	err := t.Tx.Commit(ctx, from, to)
	t.bare.note(t.changes)
	return err
}

// BenchmarkSQLite writes a history through the Writer (decode, load, fold,
// write, commit) and then the very same rows, in the same transactions, through
// the driver alone. Both sync every commit.
func BenchmarkSQLite(b *testing.B) {
	// With few active jobs a row takes in several events of a transaction; with
	// many, nearly every event is a row. The weights make 1,000 rows of each.
	for _, c := range []struct{ active, weight int }{{100, 2300}, {5000, 640}} {
		active, weight := c.active, c.weight
		b.Run(fmt.Sprintf("active=%d", active), func(b *testing.B) {
			events, decisions := lives(&testing.T{}, 5_000, active)
			bare := &bare{b: b}
			ingest(b, events, decisions, weight, func(db jobdb.Store, path string) jobdb.Store { return noting{db, bare.reading(path)} })
			rows := 0
			for _, batch := range bare.batches {
				rows += len(batch)
			}
			var ours, alone time.Duration
			n := 0
			for b.Loop() {
				n++
				ours += ingest(b, events, decisions, weight, func(db jobdb.Store, _ string) jobdb.Store { return db })
				alone += bare.write()
			}
			perSecond := func(d time.Duration) float64 { return float64(rows*n) / d.Seconds() }
			b.ReportMetric(perSecond(ours), "rows/s")
			b.ReportMetric(perSecond(alone), "bare-rows/s")
			b.ReportMetric(perSecond(ours)/perSecond(alone), "ratio")
			b.ReportMetric(float64(rows)/float64(len(bare.batches)), "rows/tx")
			b.ReportMetric(float64(len(events.parts[0].messages)*n)/ours.Seconds(), "events/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func ingest(b *testing.B, events, decisions eventlog.Topic, weight int, wrap func(db jobdb.Store, path string) jobdb.Store) time.Duration {
	path := filepath.Join(b.TempDir(), "jobs.db")
	db, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: wrap(db, path), MaxRows: weight})
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	drain(b, w, 1)
	return time.Since(start)
}
