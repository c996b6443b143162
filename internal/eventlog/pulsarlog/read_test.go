package pulsarlog_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

const (
	timeout = pulsartest.Patience
	// closeBound is more than closing waits for what ends in the background.
	closeBound = 15 * time.Second
)

// reading is a reader under test.
type reading struct {
	*bench
	eventlog.Reader
}

func (b *bench) read(t *pulsarlog.Topic, after eventlog.Position) reading {
	b.Helper()
	r, err := t.Open(0, after)
	b.must(err)
	b.Cleanup(func() { shut(b, r) })
	return reading{b, r}
}

// next reads n messages.
func (r reading) next(n int) []eventlog.Message {
	r.Helper()
	got, err := r.try(n)
	if err != nil {
		r.Fatalf("after %d of %d messages: %v", len(got), n, err)
	}
	return got
}

// try reads n messages, or up to the first error.
func (r reading) try(n int) ([]eventlog.Message, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	all := make([]eventlog.Message, n)
	for got := 0; got < n; {
		k, err := r.Read(all[got:])
		if err != nil {
			return all[:got], err
		}
		if got += k; k > 0 {
			continue
		}
		select {
		case <-r.Changed():
		case <-timer.C:
			return all[:got], fmt.Errorf("no message for %v", timeout)
		}
	}
	return all, nil
}

func (b *bench) append(t *pulsarlog.Topic, batch ...eventlog.Message) {
	b.Helper()
	a := t.Appender()
	b.must(a.AppendSync(b.Context(), 0, batch))
	shut(b, a)
}

// numbers are messages that say their number.
func numbers(from, to int) []eventlog.Message {
	var out []eventlog.Message
	for i := range to - from {
		out = append(out, eventlog.Message{Payload: fmt.Append(nil, from+i)})
	}
	return out
}

func (b *bench) same(got, want []eventlog.Message) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%d messages, want %d", len(got), len(want))
	}
	for i := range got {
		if string(got[i].Payload) != string(want[i].Payload) {
			b.Fatalf("message %d is %.40q, want %.40q", i, got[i].Payload, want[i].Payload)
		}
		if i > 0 && got[i].Position.Compare(got[i-1].Position) <= 0 {
			b.Fatalf("message %d is at %v, after %v", i, got[i].Position, got[i-1].Position)
		}
	}
}

func (b *bench) end(t *pulsarlog.Topic, want eventlog.Position) {
	b.Helper()
	got, err := t.End(0)
	b.must(err)
	if got != want {
		b.Fatalf("End(0) = %v, want %v", got, want)
	}
}

func (b *bench) class(err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Fatalf("error is %v, want class %v", err, want)
	}
}

func (b *bench) unload(topic string) {
	b.Helper()
	b.must(b.broker.Unload(b.cluster.TopicName(topic)))
}

// Each position of two batches, exclusive and as the place just before.
func TestPositionsInBatches(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic := b.open("log")
	b.append(topic, numbers(0, 100)...)
	b.append(topic, numbers(100, 200)...)
	b.append(topic, numbers(200, 201)...)
	all := b.read(topic, eventlog.Start).next(201)
	b.same(all, numbers(0, 201))
	if first, last := all[0].Position, all[99].Position; first.Entry != last.Entry || last.Batch != 99 {
		t.Fatalf("a call of 100 messages stands at %v to %v, not in one batch", first, last)
	}
	if at := all[200].Position; at.Batch != 0 {
		t.Fatalf("a message alone stands at %v", at)
	}
	b.end(topic, all[200].Position)
	for _, i := range []int{0, 1, 49, 98, 99, 100, 101, 150, 198, 199} {
		b.same(b.read(topic, all[i].Position).next(200-i), numbers(i+1, 201))
		before := all[i].Position
		before.Batch--
		b.same(b.read(topic, before).next(201-i), numbers(i, 201))
	}
	// A place in a ledger that was closed since.
	b.unload("log")
	b.append(topic, numbers(201, 202)...)
	far := eventlog.Position{Ledger: all[0].Position.Ledger, Entry: math.MaxInt64, Batch: 7}
	got := b.read(topic, far).next(1)
	b.same(got, numbers(201, 202))
	if got[0].Position.Ledger == far.Ledger {
		t.Fatal("unloading did not begin a ledger: the test tests nothing")
	}
	b.end(topic, got[0].Position)
	b.unload("log")
	b.end(topic, got[0].Position)
	behind := eventlog.Position{Ledger: got[0].Position.Ledger, Entry: got[0].Position.Entry + 1}
	_, err := topic.Open(0, behind)
	b.class(err, eventlog.ErrCorrupt)
}

// When its connection is lost, the client's own reader goes on behind the batch
// that it was handing over. Ours must not.
func TestUnloadWhileBehind(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic := b.open("log")
	const n = 40_000 // more than a reader takes from its client
	for i := 0; i < n; i += 1000 {
		b.append(topic, numbers(i, i+1000)...)
	}
	r := b.read(topic, eventlog.Start)
	got := r.next(1)
	for range 3 {
		b.unload("log")
		got = append(got, r.next(9000)...)
	}
	got = append(got, r.next(n-len(got))...)
	b.same(got, numbers(0, n))
}

// A writer and readers, and the topic moves again and again.
func TestUnloadWhileFollowing(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic := b.open("log")
	r := b.read(topic, eventlog.Start)
	const rounds = 6
	a := topic.Appender()
	for round := range rounds {
		b.must(a.Append(0, numbers(round*500, round*500+250)))
		b.unload("log")
		b.must(a.AppendSync(b.Context(), 0, numbers(round*500+250, round*500+500)))
	}
	shut(b, a)
	// A producer that reconnects may write a batch twice; so the log is the measure.
	var want []eventlog.Message
	end, err := topic.End(0)
	b.must(err)
	second := b.read(topic, eventlog.Start)
	for len(want) == 0 || want[len(want)-1].Position != end {
		want = append(want, second.next(1)...)
	}
	got := r.next(len(want))
	b.same(got, want)
	if len(got) < rounds*500 {
		t.Fatalf("%d messages, want at least %d", len(got), rounds*500)
	}
	for i := range rounds * 500 {
		if !slices.ContainsFunc(got, func(m eventlog.Message) bool { return string(m.Payload) == fmt.Sprint(i) }) {
			t.Fatalf("message %d is missing", i)
		}
	}
}

func TestReaderClose(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic := b.open("log")
	b.append(topic, numbers(0, 30_000)...)
	r := b.read(topic, eventlog.Start)
	r.next(1)
	begun := time.Now()
	shut(b, r)
	if took := time.Since(begun); took > closeBound {
		t.Errorf("Close took %v", took)
	}
	// What it still held comes first.
	if _, err := r.try(30_000); err == nil {
		t.Error("a closed reader read to the end")
	}
	shut(b, r)
}
