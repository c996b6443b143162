package main

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// BenchmarkReplayParallel reports how many times faster eight partitions of the recordings, ten copies of each, are replayed, and their
// decisions printed as JSON, two at once than one after the other, by the wall clock. The output must be the same.
func BenchmarkReplayParallel(b *testing.B) {
	const partitions, copies = 8, 10
	dir := b.TempDir()
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, Partitions: partitions})
	if err != nil {
		b.Fatal(err)
	}
	for p := range partitions {
		for _, name := range recordings {
			entries, err := recording.ReadFile(recordingFile(name))
			if err != nil {
				b.Fatal(err)
			}
			for c := range copies {
				messages := make([]eventlog.Message, len(entries))
				for i := range entries {
					messages[i] = entries[i].Message
					messages[i].Payload = bytes.ReplaceAll(messages[i].Payload, []byte("01m7x"), fmt.Appendf(nil, "r%d%03d", p, c)) // other jobs
				}
				if err := log.AppendSync(b.Context(), p, messages); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
	var ratios []float64
	for b.Loop() {
		var took [2]time.Duration
		var out [2]maphash.Hash
		out[1].SetSeed(out[0].Seed())
		for i := range took {
			cmd := newRoot()
			cmd.SetArgs([]string{"replay", "--log", dir, "--policies", testPolicies, "-o", "json", "--parallel", fmt.Sprint(i + 1)})
			cmd.SetOut(&out[i])
			runtime.GC()
			procs, start := runtime.GOMAXPROCS(i+1), time.Now()
			err := cmd.ExecuteContext(b.Context())
			took[i] = time.Since(start)
			if runtime.GOMAXPROCS(procs); err != nil {
				b.Fatal(err)
			}
		}
		if out[0].Sum64() != out[1].Sum64() {
			b.Fatal("two at once print something else")
		}
		ratios = append(ratios, float64(took[0])/float64(took[1]))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x-faster")
	b.Logf("two at once are %.2f times faster (%.2f to %.2f), %d rounds", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1], len(ratios))
}
