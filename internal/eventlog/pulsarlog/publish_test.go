package pulsarlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// One at a time; the next one as soon as the first is closed.
func TestExclusive(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic, other := b.open("log"), b.connect(b.config)
	there, err := other.Open("log")
	b.must(err)
	w, err := topic.Publisher(t.Context(), 0)
	b.must(err)
	for _, from := range []*pulsarlog.Topic{topic, there} {
		begun := time.Now()
		_, err = from.Publisher(t.Context(), 0)
		b.class(err, eventlog.ErrFenced)
		if took := time.Since(begun); took > timeout/2 {
			t.Errorf("it took %v to say so", took)
		}
	}
	b.must(w.Publish([]byte("0")))
	b.must(w.Err())
	b.same(b.read(there, eventlog.Start).next(1), numbers(0, 1))
	shut(t, w)
	shut(t, w)
	if w.Publish(nil) == nil || w.Err() == nil {
		t.Error("a closed publisher goes on")
	}
	second, err := there.Publisher(t.Context(), 0)
	b.must(err)
	b.must(second.Publish([]byte("1")))
	b.same(b.read(topic, eventlog.Start).next(2), numbers(0, 2))
	shut(t, second)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = topic.Publisher(cancelled, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Publisher with a cancelled context: %v", err)
	}
}

// move unloads a topic, and tells when it has.
func (b *bench) move(topic string) <-chan error {
	moved := make(chan error, 1)
	name := b.cluster.TopicName(topic)
	go func() { moved <- b.broker.Unload(name) }()
	return moved
}

// overtake moves the topic "log", and tries meanwhile to be its publisher; nil: the one before was quicker.
func (b *bench) overtake(there *pulsarlog.Topic) eventlog.Publisher {
	b.Helper()
	moved := b.move("log")
	for over := false; !over; {
		select {
		case err := <-moved:
			b.must(err)
			over = true
		default:
		}
		next, err := there.Publisher(b.Context(), 0)
		if err == nil {
			if !over {
				b.must(<-moved)
			}
			return next
		}
		if !errors.Is(err, eventlog.ErrTransient) {
			b.class(err, eventlog.ErrFenced)
		}
	}
	return nil
}

// A busy owner loses the right while its topic moves. Whatever of its messages
// landed stands before the first one of the next owner, in order.
func TestFenced(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic, other := b.open("log"), b.connect(b.config)
	there, err := other.Open("log")
	b.must(err)
	for round := range 40 {
		old, err := topic.Publisher(t.Context(), 0)
		b.must(err)
		stop, stopped := make(chan struct{}), make(chan error)
		go func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for i := 0; ; {
				select {
				case <-stop:
					stopped <- nil
					return
				case <-tick.C:
				}
				err := old.Publish(fmt.Appendf(nil, "old %d %d", round, i))
				switch {
				case err == nil:
					i++
				case old.Err() != nil || !errors.Is(err, eventlog.ErrTransient):
					stopped <- err
					return
				} // else too many are on their way: the same again
			}
		}()
		r := b.read(topic, eventlog.Start)
		for string(r.next(1)[0].Payload) != fmt.Sprintf("old %d 9", round) {
			continue // it is busy
		}
		next := b.overtake(there)
		if next == nil { // the old one was quicker
			close(stop)
			b.must(<-stopped)
			shut(t, old)
			continue
		}
		b.must(next.Publish(fmt.Appendf(nil, "claim %d", round)))
		select {
		case err = <-stopped:
			b.class(err, eventlog.ErrFenced)
			b.class(old.Err(), eventlog.ErrFenced)
		case <-time.After(timeout):
			t.Fatal("the old publisher goes on")
		}
		at, last := 9, ""
		for last != fmt.Sprintf("claim %d", round) {
			last = string(r.next(1)[0].Payload)
			var i int
			if _, err := fmt.Sscanf(last, fmt.Sprintf("old %d %%d", round), &i); err == nil {
				if i != at+1 {
					t.Fatalf("message %d came after %d", i, at)
				}
				at = i
			}
		}
		t.Logf("round %d: the new publisher won; the last message of the old one that landed is %d", round, at)
		b.must(next.Publish([]byte("end")))
		if got := string(r.next(1)[0].Payload); got != "end" {
			t.Fatalf("%q stands behind the claim", got)
		}
		shut(t, old)
		shut(t, next)
		return
	}
	t.Fatal("the new publisher never won")
}

// A publisher that is closed while its topic moves, and the client reconnects it, leaves the partition to others.
func TestCloseWhileReconnecting(t *testing.T) {
	b := setUp(t)
	const rounds = 24
	b.create("log", rounds) // what one round leaves behind is not in the way of the next
	topic, other := b.open("log"), b.connect(b.config)
	there, err := other.Open("log")
	b.must(err)
	var old [rounds]eventlog.Publisher
	for p := range old {
		old[p], err = topic.Publisher(t.Context(), p)
		b.must(err)
	}
	moved := b.move("log")
	var closing sync.WaitGroup
	for p := range old {
		closing.Go(func() {
			<-time.After(time.Duration(p) * 20 * time.Millisecond)
			shut(t, old[p])
		})
	}
	closing.Wait()
	b.must(<-moved)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	for p := range rounds {
		for {
			next, err := there.Publisher(t.Context(), p)
			if err == nil {
				shut(t, next)
				break
			}
			if time.Since(begun) > timeout {
				t.Errorf("partition %d: %v", p, err)
				break
			}
			<-tick.C
		}
	}
}

// An idle publisher that was fenced says so without being told to publish.
func TestFencedIdle(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic, other := b.open("log"), b.connect(b.config)
	there, err := other.Open("log")
	b.must(err)
	for range 40 {
		old, err := topic.Publisher(t.Context(), 0)
		b.must(err)
		next := b.overtake(there)
		if next == nil {
			shut(t, old)
			continue
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for begun := time.Now(); old.Err() == nil; <-tick.C {
			if time.Since(begun) > timeout {
				t.Fatal("the old publisher notices nothing")
			}
		}
		b.class(old.Err(), eventlog.ErrFenced)
		shut(t, old)
		shut(t, next)
		return
	}
	t.Fatal("the new publisher never won")
}

func TestPublishLarge(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	topic := b.open("log")
	w, err := topic.Publisher(t.Context(), 0)
	b.must(err)
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 8<<20)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	repetitive := bytes.Repeat([]byte("record of a decision "), 20<<20/21)
	want := []eventlog.Message{{Payload: repetitive}, {}, {Payload: noise[:4<<20]}, {Payload: []byte("x")}}
	for _, m := range want {
		b.must(w.Publish(m.Payload))
	}
	err = w.Publish(noise)
	b.class(err, eventlog.ErrTooLarge)
	b.must(w.Err())
	b.must(w.Publish([]byte("last")))
	want = append(want, eventlog.Message{Payload: []byte("last")})
	b.same(b.read(topic, eventlog.Start).next(len(want)), want)
	shut(t, w)
	a := topic.Appender()
	b.class(a.AppendSync(t.Context(), 0, []eventlog.Message{{Payload: noise}}), eventlog.ErrTooLarge)
	b.must(a.AppendSync(t.Context(), 0, numbers(0, 1)))
	shut(t, a)
}

// More than may be in flight is refused, not waited for; and to close is not to
// wait for what is.
func TestPublishFull(t *testing.T) {
	b := setUp(t)
	b.create("log", 1)
	config := b.config
	config.InFlight = 8
	topic, err := b.connect(config).Open("log")
	b.must(err)
	w, err := topic.Publisher(t.Context(), 0)
	b.must(err)
	payload := make([]byte, 1<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range payload {
		payload[i] = byte(rng.Uint32())
	}
	taken, full := 0, false
	for range 500 {
		if err := w.Publish(payload); err != nil {
			b.class(err, eventlog.ErrTransient)
			full = true
			break
		}
		taken++
	}
	if !full {
		t.Fatal("500 messages of 1 MiB were never too many")
	}
	b.must(w.Err())
	b.read(topic, eventlog.Start).next(taken)
	b.must(w.Publish([]byte("x")))
	for err = nil; err == nil; {
		err = w.Publish(payload)
	}
	begun := time.Now()
	shut(t, w)
	if took := time.Since(begun); took > closeBound {
		t.Errorf("Close took %v", took)
	}
}
