package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/projection"
)

// partition is a store with so many known jobs, of which some are active: each
// of them has failed and been requeued, and runs again.
type partition struct {
	tb    testing.TB
	store *projection.Store
	state *projection.State
	meta  []byte

	active []string
	next   int // whose turn it is
	run    string
	nodes  [2]string
	now    int64
	seq    events.Sequence
}

const activeJobs = 2000

func newPartition(tb testing.TB, jobs int) *partition {
	tb.Helper()
	p := &partition{tb: tb, now: 1_800_000_000e9, meta: make([]byte, 600), nodes: [2]string{"node-17", "node-18"}}
	p.open(tb.TempDir())
	p.seq = events.Sequence{Queue: "vision-train", JobSet: "set"}
	for n := range jobs {
		p.fold(events.Event{Kind: events.SubmitJob, JobID: jobID(n), Submit: &events.Submit{RetryPolicies: "training", GraceSeconds: 30}})
		if n%1000 == 999 {
			p.commit()
		}
	}
	p.commit()
	for i := range activeJobs {
		job := jobID(i * (jobs / activeJobs))
		p.active = append(p.active, job)
		p.run = runID(0)
		p.fold(events.Event{Kind: events.RunErrors, JobID: job, RunID: p.run, Error: &events.Error{Reason: events.PodError, Node: p.nodes[0]}})
		p.run = runID(1)
		p.fold(events.Event{Kind: events.RunLeased, JobID: job, RunID: p.run, Node: p.nodes[0]})
	}
	p.commit()
	return p
}

func jobID(n int) string { return fmt.Sprintf("01m7xn68%018d", n) }

func runID(n int) string { return fmt.Sprintf("0197a1c2-7d3e-7000-8000-%012d", n) }

func (p *partition) open(dir string) {
	store, err := projection.OpenStore(projection.StoreConfig{FS: vfs.Default, Dir: dir, Logger: quiet{}})
	if err != nil {
		p.tb.Fatal(err)
	}
	p.tb.Cleanup(func() { _ = store.Close() })
	p.store = store
	if p.state, err = projection.NewState(store, projection.NoWatermark, int64(24*time.Hour)); err != nil {
		p.tb.Fatal(err)
	}
}

// fold takes in a message of one event; a run that fails is requeued.
func (p *partition) fold(ev events.Event) {
	p.now += 1e6
	ev.Created = events.Timestamp{Present: true, Seconds: p.now / 1e9, Nanos: int32(p.now % 1e9)}
	p.seq.Events = append(p.seq.Events[:0], ev)
	p.seq.Resolve(p.now)
	if err := p.state.Process(&p.seq, projection.Features{}, requeues{}); err != nil {
		p.tb.Fatal(err)
	}
}

// requeues requeues every failed run.
type requeues struct{ projection.Questions }

func (requeues) Decide(f *projection.Failure) (projection.Decided, error) {
	return projection.Decided{Requeue: true, Policy: "infra", Rule: "evicted", RetryAfter: f.Time + 30e9, ReadyAfter: f.Time}, nil
}

// step is the next event of the active jobs, in turn: their run is on another
// node. It changes their records and lets nothing grow, so that a turn costs what
// the one before it did.
func (p *partition) step() {
	i := p.next % activeJobs
	p.next++
	p.fold(events.Event{Kind: events.RunRunning, JobID: p.active[i], RunID: p.run, Node: p.nodes[p.next/activeJobs%2]})
}

// commit flushes and commits, as an owner does when its envelope was read back.
func (p *partition) commit() {
	b := p.store.NewBatch()
	n, err := p.state.Flush(b)
	if err == nil {
		err = p.store.Commit(b, p.meta)
	}
	if err != nil {
		p.tb.Fatal(err)
	}
	p.state.Committed(n)
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// BenchmarkStore is the cost per event of fold, flush and commit, without the
// sync, which an owner does once for what it has read back: at 10⁵ known jobs
// against 10⁴, of which the same number is active. x-faster is how much cheaper
// 10⁴ are: 1 is what is wanted.
func BenchmarkStore(b *testing.B) {
	for _, batch := range []int{1, 10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			few, many := newPartition(b, 10_000), newPartition(b, 100_000)
			const steps = 10_000
			round := func(p *partition) func() {
				return func() {
					for n := range steps {
						p.step()
						if (n+1)%batch == 0 {
							p.commit()
						}
					}
				}
			}
			r := compare(b, round(few), round(many))
			objects, bytes := allocations(round(many))
			b.ReportMetric(median(r.x)/steps, "10k-ns/event")
			b.ReportMetric(median(r.y)/steps, "100k-ns/event")
			b.ReportMetric(objects/steps, "allocs/event")
			b.ReportMetric(bytes/steps, "B/event")
		})
	}
}

// BenchmarkStoreSync is what waiting for the disk costs, by the wall clock.
func BenchmarkStoreSync(b *testing.B) {
	for _, batch := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			p := newPartition(b, 10_000)
			for b.Loop() {
				for range batch {
					p.step()
				}
				p.commit()
				if err := p.store.Sync(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/event")
		})
	}
}

// TestHistories: what the benchmarks measure is what they say.
func TestHistories(t *testing.T) {
	t.Parallel()
	set := examplePolicies(t)
	h := simulated(t, 60)
	if n := unmarshalled(t, h); n != h.events {
		t.Errorf("%d events, want %d", n, h.events)
	}
	want, decisions := replayed(t, h, set)
	if got, n := replayed(t, logged(t, h), set); got != want || n != decisions {
		t.Errorf("from a log: %d decisions, running hash %v; want %d, %v", n, got, decisions, want)
	}
	if decisions < 60 {
		t.Errorf("%d decisions on 60 jobs", decisions)
	}
	size, n := 0, 0
	for _, m := range h.partitions[0] {
		if len(m.Payload) > simulatedBytes/2 {
			size, n = size+len(m.Payload), n+1
		}
	}
	t.Logf("%d messages, %d bytes, %d decisions; the long ones have %d bytes", h.messages, h.bytes, decisions, size/n)
}

var _ eventlog.Topic = (*history)(nil)
