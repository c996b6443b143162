package sink_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/sink"
)

// folded folds one message about so many things, and reports the time of each of them, which must not grow with their number.
func folded(b *testing.B, what string, message func(n int) (events, decisions *memTopic)) {
	b.Helper()
	var each []float64
	for _, n := range []int{1_000, 10_000, 30_000} {
		b.Run(fmt.Sprintf("%ss=%d", what, n), func(b *testing.B) {
			events, decisions := message(n)
			for b.Loop() {
				if _, err := sink.Fold(events, decisions, 0, 2); err != nil {
					b.Fatal(err)
				}
			}
			each = append(each, b.Elapsed().Seconds()*1e9/float64(b.N*n))
			b.ReportMetric(each[len(each)-1], "ns/"+what)
			b.ReportMetric(0, "ns/op")
		})
	}
	if most := slices.Max(each); most > 8*each[0] {
		b.Errorf("a %s takes %.0f ns, and with few of them %.0f", what, most, each[0])
	}
}

// BenchmarkBurst applies one message in which many runs fail, with a decision on each.
func BenchmarkBurst(b *testing.B) { folded(b, "failure", burst) }

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

// BenchmarkOneJob applies one message about a single job that is leased and cancelled again and again.
func BenchmarkOneJob(b *testing.B) {
	folded(b, "run", func(runs int) (events, decisions *memTopic) {
		lines := []string{"submit j"}
		for i := range runs {
			lines = append(lines, fmt.Sprintf("leased j r%d node=n executor=e pool=default", i), "cancelled j")
		}
		events, decisions = newTopic(1), newTopic(1)
		c := newChain(&testing.T{}, decisions, 0)
		at := eventlog.Position{Ledger: 1, Entry: 1, Batch: -1}
		m, records := build("q", "set", lines, at, second)
		events.append(0, m)
		c.answer(at, 1, records...)
		return events, decisions
	})
}
