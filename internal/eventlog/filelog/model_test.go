package filelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// model is the expected content of a log: per partition, the appended messages, and how
// many of them were reported durable.
type model struct {
	appended [][]eventlog.Message
	durable  []int
	n        int // number of messages so far; all are different
}

func newModel(partitions int) *model {
	return &model{appended: make([][]eventlog.Message, partitions), durable: make([]int, partitions)}
}

func (m *model) clone() *model {
	c := newModel(len(m.appended))
	c.n = m.n
	copy(c.durable, m.durable)
	for p, msgs := range m.appended {
		c.appended[p] = append(c.appended[p], msgs...)
	}
	return c
}

// batch returns n messages, with payloads of about size bytes.
func (m *model) batch(n, size int) []eventlog.Message {
	var msgs []eventlog.Message
	for range n {
		m.n++
		rng := rand.New(rand.NewPCG(uint64(m.n), 7))
		payload := fmt.Appendf(nil, "message %d ", m.n)
		for len(payload) < size {
			payload = append(payload, byte(rng.Uint32()>>(m.n%9))) // some compress
		}
		msg := eventlog.Message{Key: fmt.Sprint("key", m.n%3), Payload: payload}
		if m.n%4 == 0 {
			msg.Properties = []eventlog.Property{{Key: "n", Value: fmt.Sprint(m.n)}}
		}
		if m.n%5 == 0 {
			msg.Origin = eventlog.Origin{Recording: "r", Position: eventlog.Position{Ledger: 1, Entry: int64(m.n)}, Publish: int64(m.n)}
		}
		msgs = append(msgs, msg)
	}
	return msgs
}

func (m *model) append(log *filelog.Log, p, n, size int) error {
	msgs := m.batch(n, size)
	if err := log.Append(p, msgs); err != nil {
		return err
	}
	m.appended[p] = append(m.appended[p], msgs...)
	return nil
}

func (m *model) commit(log *filelog.Log) error {
	if err := log.Commit(); err != nil {
		return err
	}
	m.allDurable()
	return nil
}

func (m *model) allDurable() {
	for p := range m.appended {
		m.durable[p] = len(m.appended[p])
	}
}

// check reads the log and compares: what was reported durable is there, at its
// positions, and further messages are those that were appended next. From then on they
// are durable too, since a reader has seen them.
func (m *model) check(log *filelog.Log) error {
	for p := range m.appended {
		got, err := readAll(log, p, eventlog.Start)
		if err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
		if err := m.compare(p, got); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
		if len(got) < m.durable[p] {
			return fmt.Errorf("partition %d has %d messages, %d were reported durable", p, len(got), m.durable[p])
		}
		end, err := log.End(p)
		if err != nil {
			return err
		}
		if last := lastPosition(got); end != last {
			return fmt.Errorf("partition %d ends at %v, its last message is at %v", p, end, last)
		}
		m.appended[p], m.durable[p] = got, len(got)
	}
	return nil
}

// compare checks that got is a prefix of what was appended.
func (m *model) compare(p int, got []eventlog.Message) error {
	want := m.appended[p]
	if len(got) > len(want) {
		return fmt.Errorf("%d messages, only %d were appended", len(got), len(want))
	}
	for i := range got {
		if err := same(got[i], want[i]); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// same compares two messages; positions only if want was read from the log.
func same(got, want eventlog.Message) error {
	if !bytes.Equal(got.Payload, want.Payload) || got.Key != want.Key || got.Origin != want.Origin || fmt.Sprint(got.Properties) != fmt.Sprint(want.Properties) {
		return fmt.Errorf("%.40q at %v, want %.40q", got.Payload, got.Position, want.Payload)
	}
	if want.Publish != 0 && (got.Publish != want.Publish || got.Position != want.Position) {
		return fmt.Errorf("at %v, published %d; was at %v, published %d", got.Position, got.Publish, want.Position, want.Publish)
	}
	return nil
}

func lastPosition(msgs []eventlog.Message) eventlog.Position {
	if len(msgs) == 0 {
		return eventlog.Start
	}
	return msgs[len(msgs)-1].Position
}

// readAll reads a partition to its end. On an error it returns what it has read so far.
func readAll(log *filelog.Log, p int, after eventlog.Position) ([]eventlog.Message, error) {
	r, err := log.Open(p, after)
	if err != nil {
		return nil, err
	}
	all, err := drain(r)
	return all, errors.Join(err, r.Close())
}

func drain(r eventlog.Reader) ([]eventlog.Message, error) {
	var all []eventlog.Message
	dst := make([]eventlog.Message, 16)
	for {
		n, err := r.Read(dst)
		all = append(all, dst[:n]...)
		if err != nil || n == 0 {
			return all, err
		}
	}
}

// clock is a Config.Now that advances with each call.
func clock() func() time.Time {
	at := time.Unix(1_800_000_000, 0)
	return func() time.Time {
		at = at.Add(time.Millisecond)
		return at
	}
}

func mustOpen(t testing.TB, c filelog.Config) *filelog.Log {
	t.Helper()
	log, err := filelog.Open(c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return log
}
