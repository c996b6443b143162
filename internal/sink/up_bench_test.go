package sink_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/jobdb"
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

// BenchmarkUp is a whole `up`, from an events log on disk to the last row in SQLite, beside its two baselines by the wall clock: of-log is
// how much of the speed it has of reading the events and appending the envelopes that it wrote, of-rows of writing the very same rows, in
// as few transactions, through the driver alone.
func BenchmarkUp(b *testing.B) {
	const jobs, active = 10_000, 1000
	events, _ := lives(&testing.T{}, jobs, active)
	policy := filepath.Join(b.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(upPolicies), 0o600); err != nil {
		b.Fatal(err)
	}
	messages := events.parts[0].messages
	fed := func() app.Dir {
		dir := app.Dir(b.TempDir())
		log := openLog(b, dir.Events(), false)
		for chunk := range slices.Chunk(messages, 500) {
			if err := log.AppendSync(b.Context(), 0, chunk); err != nil {
				b.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			b.Fatal(err)
		}
		return dir
	}
	up := func(dir app.Dir) time.Duration {
		start := time.Now()
		err := app.Run(b.Context(), app.Config{
			Data: dir, Policies: policy, Evaluate: true, Ingest: true, ExitWhenDrained: true, Now: time.Now,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	dir := fed()
	up(dir)
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
			if err := to.AppendSync(context.Background(), 0, []eventlog.Message{m}); err != nil {
				b.Fatal(err)
			}
		}
		if n != len(messages) {
			b.Fatalf("%d messages, want %d", n, len(messages))
		}
		return time.Since(start)
	}
	var ofLog, ofRows, took []float64
	for b.Loop() {
		ours := up(fed()).Seconds()
		took = append(took, ours)
		ofLog, ofRows = append(ofLog, logs().Seconds()/ours), append(ofRows, rows.write().Seconds()/ours)
	}
	middle := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	b.ReportMetric(float64(len(messages))/middle(took), "events/s")
	b.ReportMetric(middle(ofLog), "of-log")
	b.ReportMetric(middle(ofRows), "of-rows")
	b.ReportMetric(ofRows[0], "of-rows-least")
	b.ReportMetric(ofRows[len(ofRows)-1], "of-rows-most")
	b.ReportMetric(float64(len(envelopes)), "envelopes")
	b.ReportMetric(float64(len(rows.batches)), "bare-tx")
	b.ReportMetric(0, "ns/op")
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
