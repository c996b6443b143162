package pulsarlog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
)

// BenchmarkRead reads small messages from a partition, with queues of several sizes.
func BenchmarkRead(b *testing.B) {
	const messages = 100_000
	for _, perBatch := range []int{1, 10, 1000} {
		s := setUp(b)
		s.create("log", 1)
		topic := s.open("log")
		a := topic.Appender()
		for i := 0; i < messages; i += perBatch {
			batch := make([]eventlog.Message, perBatch)
			for k := range batch {
				batch[k].Payload = fmt.Appendf(nil, "%d %0200d", i, k)
			}
			s.must(a.Append(0, batch))
		}
		s.must(a.Flush(b.Context()))
		shut(b, a)
		for _, queue := range []int{1000, 300, 100, 50, 20} {
			config := s.config
			config.ReceiverQueue = queue
			topic, err := s.connect(config).Open("log")
			s.must(err)
			b.Run(fmt.Sprintf("batch=%d/queue=%d", perBatch, queue), func(b *testing.B) {
				for b.Loop() {
					r, err := topic.Open(0, eventlog.Start)
					s.must(err)
					into := make([]eventlog.Message, 1024)
					for got := 0; got < messages; {
						n, err := r.Read(into)
						s.must(err)
						if got += n; n == 0 {
							<-r.Changed()
						}
					}
					shut(b, r)
				}
				b.ReportMetric(float64(messages*b.N)/b.Elapsed().Seconds(), "messages/s")
				b.ReportMetric(0, "ns/op")
			})
			shut(b, topic)
		}
	}
}

// What a reader prefetches of large messages does not grow with the backlog. Not parallel: it measures the heap.
func TestPrefetchIsBounded(t *testing.T) { //nolint:paralleltest // see above
	b := setUp(t)
	b.create("log", 1)
	topic := b.open("log")
	a := topic.Appender()
	payload := make([]byte, 500_000)
	for i := range payload {
		payload[i] = byte(rand.Uint32())
	}
	const messages = 600
	for range messages {
		b.must(a.Append(0, []eventlog.Message{{Payload: bytes.Clone(payload)}}))
	}
	b.must(a.Flush(t.Context()))
	shut(t, a)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	r := b.read(topic, eventlog.Start)
	r.next(1) // and no more: the consumer is slow
	most := uint64(0)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for quiet := 0; quiet < 20; quiet++ { // until it has not grown for two seconds
		<-tick.C
		if now := heap(); now > most+1<<20 {
			most, quiet = now, 0
		}
	}
	took := (int64(most) - int64(before)) >> 20
	t.Logf("a reader with a backlog of %d MB takes %d MiB", messages*len(payload)/1e6, took)
	if took > 128 {
		t.Errorf("a reader with a backlog of %d MB takes %d MiB", messages*len(payload)/1e6, took)
	}
}
