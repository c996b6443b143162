package sink_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/sink"
)

// BenchmarkBurst applies one message in which many runs fail, with a decision on
// each. The time per failure must not grow with their number.
func BenchmarkBurst(b *testing.B) {
	for _, failures := range []int{1_000, 10_000, 30_000} {
		b.Run(fmt.Sprintf("failures=%d", failures), func(b *testing.B) {
			events, decisions := burst(failures)
			for b.Loop() {
				if _, err := sink.Fold(events, decisions, 0, 2); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N*failures), "ns/failure")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// burst is one message of failing runs: of each job the submission, the lease and
// the failure, and Armada's own verdict on it.
func burst(failures int) (events, decisions *memTopic) {
	events, decisions = newTopic(1), newTopic(1)
	c := newChain(&testing.T{}, decisions, 0)
	var lines []string
	for i := range failures {
		id := fmt.Sprintf("01m7xn681y99tqr99%09d %017d-0", i, i)
		job, _, _ := strings.Cut(id, " ")
		lines = append(lines, "submit "+job, "leased "+id+" node=n executor=e pool=default",
			"run-errors "+id+" pod exit=137 node=n", "> requeue "+id+" after=60", "job-errors "+job+" pod")
	}
	at := eventlog.Position{Ledger: 1, Entry: 1, Batch: -1}
	m, records := build("q", "set", lines, at, second)
	events.append(0, m)
	c.answer(at, 1, records...)
	return events, decisions
}

// BenchmarkOneJob applies one message about a single job that is leased and cancelled again and again. The time per
// run must not grow with their number.
func BenchmarkOneJob(b *testing.B) {
	for _, runs := range []int{1_000, 10_000, 30_000} {
		b.Run(fmt.Sprintf("runs=%d", runs), func(b *testing.B) {
			lines := []string{"submit j"}
			for i := range runs {
				lines = append(lines, fmt.Sprintf("leased j r%d node=n executor=e pool=default", i), "cancelled j")
			}
			events, decisions := newTopic(1), newTopic(1)
			c := newChain(&testing.T{}, decisions, 0)
			at := eventlog.Position{Ledger: 1, Entry: 1, Batch: -1}
			m, records := build("q", "set", lines, at, second)
			events.append(0, m)
			c.answer(at, 1, records...)
			for b.Loop() {
				if _, err := sink.Fold(events, decisions, 0, 2); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N*runs), "ns/run")
			b.ReportMetric(0, "ns/op")
		})
	}
}
