package pulsarlog_test

import (
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

func (b *bench) delete(topic string, plain bool) {
	b.Helper()
	admin, err := b.cluster.Admin()
	b.must(err)
	b.must(admin.Topics().Delete(b.name(topic), true, plain))
}

// A topic that is deleted while it is read is an error, not an empty log.
func TestDeleted(t *testing.T) {
	for _, c := range []struct {
		name       string
		partitions int
	}{{"partitioned", 2}, {"plain", 0}} {
		t.Run(c.name, func(t *testing.T) {
			b := setUp(t)
			b.create("log", c.partitions)
			topic := b.open("log")
			b.append(topic, numbers(0, 10)...)
			r := b.read(topic, eventlog.Start)
			all := r.next(10)
			b.end(topic, all[9].Position)
			w, err := topic.Publisher(t.Context(), 0)
			b.must(err)
			b.delete("log", c.partitions == 0)
			_, err = r.try(1)
			if c.partitions > 0 {
				b.class(err, pulsarlog.ErrGone)
			} else if err == nil {
				t.Fatal("a deleted topic is an empty log")
			}
			// A plain topic may be there again, made by any client; then it holds nothing.
			_, err = topic.Open(0, all[4].Position)
			if c.partitions > 0 {
				b.class(err, pulsarlog.ErrGone)
				_, err = topic.End(0)
				b.class(err, pulsarlog.ErrGone)
				_, err = topic.Beginning(0)
				b.class(err, pulsarlog.ErrGone)
				_, err = topic.Recount()
				b.class(err, pulsarlog.ErrGone)
			} else if err == nil {
				t.Fatal("a position of a deleted topic was opened")
			}
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for begun := time.Now(); w.Publish([]byte("x")) == nil; <-tick.C {
				if time.Since(begun) > 3*time.Second {
					t.Log("a publisher of a deleted topic goes on: the broker made the topic again")
					break
				}
			}
			shut(b, w)
		})
	}
}

func TestMissing(t *testing.T) {
	b := setUp(t)
	_, err := b.cluster.Open("nothing")
	b.class(err, pulsarlog.ErrGone)
	_, err = b.cluster.Open("non-persistent://public/default/x")
	if err == nil {
		t.Fatal("a topic that is not persistent was opened")
	}
}

// Positions of a topic that was made anew are not held by it.
func TestRecreated(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int // messages in the new topic
	}{{"empty", 0}, {"shorter", 3}, {"longer", 30}} {
		t.Run(c.name, func(t *testing.T) {
			b := setUp(t)
			b.create("log", 1)
			topic := b.open("log")
			b.append(topic, numbers(0, 10)...)
			all := b.read(topic, eventlog.Start).next(10)
			b.delete("log", false)
			b.create("log", 1)
			topic = b.open("log")
			if c.n > 0 {
				b.append(topic, numbers(0, c.n)...)
			}
			for _, i := range []int{0, 9} {
				_, err := topic.Open(0, all[i].Position)
				b.class(err, eventlog.ErrTrimmed)
			}
			b.same(b.read(topic, eventlog.Start).next(c.n), numbers(0, c.n))
		})
	}
}

func TestGrowth(t *testing.T) {
	b := setUp(t)
	b.create("log", 2)
	topic := b.open("log")
	admin, err := b.cluster.Admin()
	b.must(err)
	b.must(admin.Topics().Update(b.name("log"), 5))
	if n, err := topic.Recount(); n != 5 || err != nil {
		t.Fatalf("Recount() = %d, %v, want 5", n, err)
	}
	if n := topic.Partitions(); n != 2 {
		t.Fatalf("Partitions() = %d, and was 2", n)
	}
	if _, err := topic.Open(2, eventlog.Start); err == nil {
		t.Fatal("partition 2 of 2 was opened")
	}
	// One partition of it is a topic, too.
	one := b.open("log-partition-4")
	b.append(one, numbers(0, 3)...)
	all := b.read(one, eventlog.Start).next(3)
	b.same(all, numbers(0, 3))
	topic = b.open("log")
	if end, err := topic.End(4); end != all[2].Position || err != nil {
		t.Fatalf("End(4) = %v, %v, want %v", end, err, all[2].Position)
	}
}
