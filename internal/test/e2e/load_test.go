package e2e

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/refloat/refloat/internal/eventlog"
)

// load publishes events at a rate and notes when each was durable, and when it was answered by an accepted envelope.
type load struct {
	w        *world
	logs     *Logs
	producer pulsar.Producer
	history  *History
	stop     context.CancelFunc
	fed      chan error
	tails    sync.WaitGroup

	mu     sync.Mutex
	events map[int][]moment // by partition: when each was durable
	chains map[int]*Chain
	steps  map[int][]moment // accepted envelopes
	broken error
}

// moment is when a position was reached, and whether a new owner reached it.
type moment struct {
	at    time.Time
	upTo  eventlog.Position
	claim bool
}

func newLoad(w *world, rate int) *load {
	w.t.Helper()
	l := &load{w: w, fed: make(chan error, 1), events: map[int][]moment{}, chains: map[int]*Chain{}, steps: map[int][]moment{}}
	var err error
	l.logs, err = w.Open()
	w.must(err)
	l.history, err = OpenHistory([]string{recordingFile("plain"), recordingFile("chaos"), recordingFile("preempted")}, 4*l.logs.Events.Partitions())
	w.must(err)
	l.producer, err = l.logs.Cluster.Client().CreateProducer(pulsar.ProducerOptions{Topic: w.Topic("events"), SendTimeout: -1, MaxPendingMessages: 20_000})
	w.must(err)
	for p := range l.logs.Decisions.Partitions() {
		l.chains[p] = NewChain()
		l.tails.Go(func() { l.tail(p) })
	}
	ctx, stop := context.WithCancel(w.ctx)
	l.stop = stop
	go func() { l.fed <- l.feed(ctx, rate) }()
	w.t.Cleanup(func() { stop(); l.tails.Wait(); l.producer.Close(); _ = l.logs.Close() })
	return l
}

func (l *load) tail(p int) {
	at := eventlog.Start
	err := Follow(l.w.ctx, l.logs.Decisions, p, &at, func(m eventlog.Message) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		c := l.chains[p]
		before := c.Claims
		ignored, err := c.Offer(m.Payload)
		if err == nil && ignored == "" {
			l.steps[p] = append(l.steps[p], moment{time.Now(), c.InTo, c.Claims > before})
		}
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w.ctx.Err() == nil {
		l.broken = errors.Join(l.broken, err)
	}
}

func (l *load) feed(ctx context.Context, rate int) error {
	const ticks = 20 // a second
	tick := time.NewTicker(time.Second / ticks)
	defer tick.Stop()
	for due := 0.0; ; due += float64(rate) / ticks {
		for ; due >= 1; due-- {
			ev, err := l.history.Next(time.Now())
			if err != nil {
				return err
			}
			l.producer.SendAsync(l.w.ctx, &pulsar.ProducerMessage{Key: ev.Key, Payload: ev.Payload}, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.broken = errors.Join(l.broken, err); err == nil {
					at := eventlog.Position{Ledger: id.LedgerID(), Entry: id.EntryID(), Batch: id.BatchIdx()}
					l.events[int(id.PartitionIdx())] = append(l.events[int(id.PartitionIdx())], moment{at: time.Now(), upTo: at})
				}
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return l.producer.FlushWithCtx(l.w.ctx)
		}
	}
}

// end stops the load, and waits until everything is answered and in the job database.
func (l *load) end() {
	l.w.t.Helper()
	l.stop()
	l.w.must(<-l.fed)
	l.w.must(l.w.Settled(l.w.ctx))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.must(l.broken)
}

// latencies are the times from durable event to readable answer, in ascending order, of the events since a time.
func (l *load) latencies(since time.Time) (all []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, events := range l.events {
		for _, e := range events {
			if e.at.Before(since) {
				continue
			}
			i, _ := slices.BinarySearchFunc(l.steps[p], e.upTo, func(m moment, at eventlog.Position) int { return m.upTo.Compare(at) })
			if i == len(l.steps[p]) {
				l.w.t.Errorf("partition %d does not answer %v", p, e.upTo)
				continue
			}
			all = append(all, max(0, l.steps[p][i].at.Sub(e.at)))
		}
	}
	slices.Sort(all)
	return all
}

// handOvers are the times, in ascending order, from the last envelope of an owner to the first answer of the next one.
func (l *load) handOvers(since time.Time) (all []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, steps := range l.steps {
		for i, s := range steps {
			if !s.claim || s.at.Before(since) || i == 0 {
				continue
			}
			for _, next := range steps[i:] {
				if next.upTo.Compare(s.upTo) > 0 {
					all = append(all, next.at.Sub(steps[i-1].at))
					break
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func at(q float64, sorted []time.Duration) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Round(time.Millisecond)
}

func logTimes(t *testing.T, what string, sorted []time.Duration) {
	t.Helper()
	t.Logf("%s: %d, median %v, p99 %v, longest %v", what, len(sorted), at(0.5, sorted), at(0.99, sorted), at(1, sorted))
}
