package pulsarlog_test

import (
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// truncate deletes all ledgers but the one that is open, which unloading makes
// an empty one.
func (b *bench) truncate(topic string) {
	b.Helper()
	b.must(b.broker.Truncate(b.cluster.TopicName(topic)))
}

// indexed reports whether the broker tells the numbers of messages.
func (b *bench) indexed(topic string) bool {
	b.Helper()
	r, err := b.cluster.Client().CreateReader(pulsar.ReaderOptions{Topic: b.cluster.TopicName(topic), StartMessageID: pulsar.EarliestMessageID()})
	b.must(err)
	defer r.Close()
	m, err := r.Next(b.Context())
	b.must(err)
	return m.Index() != nil
}

func (b *bench) beginning(t *pulsarlog.Topic, want eventlog.Position) {
	b.Helper()
	got, err := t.Beginning(0)
	b.must(err)
	if got != want {
		b.Fatalf("Beginning(0) = %v, want %v", got, want)
	}
}

// What was deleted from the front is never passed over in silence.
func TestTrimmed(t *testing.T) {
	for _, c := range []struct {
		name  string
		admin bool
	}{{"with admin API", true}, {"without", false}} {
		t.Run(c.name, func(t *testing.T) {
			b := setUp(t)
			b.create("log", 1)
			if !c.admin {
				config := b.config
				config.AdminURL = ""
				b.cluster = b.connect(config)
			}
			topic := b.open("log")
			if c.admin {
				b.beginning(topic, eventlog.Start)
			} else {
				_, err := topic.Beginning(0)
				b.class(err, pulsarlog.ErrNoAdmin)
			}
			b.append(topic, numbers(0, 10)...)
			all := b.read(topic, eventlog.Start).next(10)
			indexed := b.indexed("log")
			if begin := before(all[0].Position); c.admin || indexed {
				b.beginning(topic, eventlog.Start)
			} else {
				b.beginning(topic, begin)
				b.same(b.read(topic, begin).next(10), numbers(0, 10))
			}
			b.truncate("log")
			b.end(topic, all[9].Position) // it was reached
			topic = b.open("log")
			b.end(topic, eventlog.Start)
			for _, i := range []int{3, 9} {
				_, err := topic.Open(0, all[i].Position)
				b.class(err, eventlog.ErrTrimmed)
			}
			empty, err := topic.Beginning(0)
			if !c.admin {
				b.class(err, pulsarlog.ErrNoAdmin)
			} else if err != nil || empty.Compare(all[9].Position) <= 0 {
				t.Fatalf("Beginning(0) of a log whose messages were deleted = %v, %v, want a place behind %v", empty, err, all[9].Position)
			}
			// A reader that stands there gets what comes.
			var r reading
			if c.admin {
				r = b.read(topic, empty)
			} else {
				r = b.read(topic, eventlog.Start)
			}
			b.append(topic, numbers(10, 20)...)
			got := r.next(10)
			b.same(got, numbers(10, 20))
			for _, i := range []int{3, 9} {
				_, err := topic.Open(0, all[i].Position)
				b.class(err, eventlog.ErrTrimmed)
			}
			b.beginning(topic, before(got[0].Position))
			b.same(b.read(topic, before(got[0].Position)).next(10), numbers(10, 20))
			b.end(topic, got[9].Position)
			_, err = topic.Open(0, eventlog.Start)
			if indexed {
				b.class(err, eventlog.ErrTrimmed)
			} else {
				b.must(err)
			}
		})
	}
}

// before is the place just before a message that begins an entry.
func before(at eventlog.Position) eventlog.Position {
	at.Batch--
	return at
}
