package e2e

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/test/pgtest"
)

// late is how long after its event a decision may come while processes are restarted one by one.
const late = 5 * time.Second

// TestScale restarts evaluators and ingesters one by one under load, on PostgreSQL: SCALE is their number of each, and
// there are 16 partitions for each pair.
func TestScale(t *testing.T) {
	processes, err := strconv.Atoi(cmp.Or(os.Getenv("SCALE"), "0"))
	if err != nil {
		t.Fatal(err)
	}
	if processes == 0 {
		t.Skip("set SCALE to a number of evaluators, as `make scale` does; it takes minutes")
	}
	partitions, rate := 16*processes, 80*processes
	w := newWorld(t, partitions)
	w.JobDB = pgtest.Database(t)
	var evaluators, ingesters []*Process
	for i := range processes {
		evaluators = append(evaluators, w.evaluator(fmt.Sprintf("e%d", i)))
		ingesters = append(ingesters, w.ingester(fmt.Sprintf("i%d", i)))
	}
	w.live(partitions, evaluators...)
	l := newLoad(w, rate)
	began := time.Now()
	calm := time.After(5 * time.Second)
	<-calm
	rolling, before := time.Now(), processorTime(t)
	for i := range processes {
		w.must(ingesters[i].Term(w.ctx))
		ingesters[i] = w.ingester(fmt.Sprintf("i%d", i))
		w.must(evaluators[i].Term(w.ctx))
		evaluators[i] = w.evaluator(fmt.Sprintf("e%d", i))
		w.live(partitions, evaluators...)
	}
	rolled, after := time.Since(rolling), processorTime(t)
	l.end()
	sum := w.settledAndRight() // no decision is made twice
	all, during, handOvers := l.latencies(began), l.latencies(rolling), l.handOvers(rolling)
	t.Logf("%d partitions, %d evaluators and %d ingesters, %d events a second, restarted in %v: %d messages, %d failed runs, %d claims",
		partitions, processes, processes, rate, rolled.Round(time.Millisecond), sum.Messages, sum.Failed, sum.Claims)
	if total := after.total - before.total; total > 0 {
		t.Logf("the processors were idle for %.1f %% of the time of the restarts", 100*(after.idle-before.idle)/total)
	}
	logTimes(t, "event to decision", all)
	logTimes(t, "event to decision from the first restart on", during)
	logTimes(t, "hand-over of a partition", handOvers)
	if sum.Failed == 0 || len(handOvers) < partitions/2 {
		t.Errorf("%d failed runs and %d hand-overs show nothing", sum.Failed, len(handOvers))
	}
	if longest := at(1, during); longest > late {
		t.Errorf("a decision came %v after its event, want %v", longest, late)
	}
}

// processors is how long all processors together ran since the machine started, in ticks.
type processors struct{ idle, total float64 }

// processorTime reads it from the kernel; nothing where there is no /proc. Without idle time, all that is measured
// waits for processors.
func processorTime(t *testing.T) (p processors) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatal(err)
		}
		if p.total += ticks; i == 3 {
			p.idle = ticks
		}
	}
	return p
}
