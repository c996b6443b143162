// Package logtest is the test suite that every implementation of the log must pass.
//
// It uses the interface of package eventlog and depends on no implementation: positions
// are ordered but not dense, a batch may become any number of entries, and a partition
// has one publisher at a time.
package logtest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/eventlog"
)

// Harness is a topic under test. Its functions may be called from several
// goroutines, except for Reopen.
type Harness struct {
	// Topic returns the topic as currently open.
	Topic func() eventlog.Topic
	// Append appends messages to a partition, as one batch if the log has batches. When it returns nil, readers
	// see them. It copies what it needs; it assigns Position and Publish.
	Append func(p int, batch []eventlog.Message) error
	// Publisher opens the publisher of a partition.
	Publisher func(p int) (eventlog.Publisher, error)
	// Reopen closes the topic, and opens it again as another process would.
	Reopen func() error
}

// Run runs the suite. start opens a new, empty topic with that many partitions
// and has it closed by t.Cleanup.
func Run(t *testing.T, start func(t *testing.T, partitions int) *Harness) {
	for _, c := range []struct {
		name       string
		partitions int
		run        func(*testing.T, *Harness)
	}{
		{"empty", 2, testEmpty},
		{"order", 3, testOrder},
		{"positions", 1, testPositions},
		{"between positions", 1, testBetween},
		{"content", 1, testContent},
		{"large", 1, testLarge},
		{"bytes at once", 1, testBytesAtOnce},
		{"many in one batch", 1, testManyInOneBatch},
		{"lock step", 2, testLockStep},
		{"follow", 2, testFollow},
		{"reopen", 2, testReopen},
		{"publisher", 2, testPublisher},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, start(t, c.partitions)) })
	}
}

// timeout limits every wait of a test.
const timeout = 2 * time.Minute

func (h *Harness) append(t *testing.T, p int, batch ...eventlog.Message) {
	t.Helper()
	if err := h.Append(p, batch); err != nil {
		t.Fatalf("Append(%d): %v", p, err)
	}
}

// fill appends n messages to a partition in batches of 1, 2, 3, 4, 1, … and
// returns what a reader must give, without positions.
func (h *Harness) fill(t *testing.T, p, n int) []eventlog.Message {
	t.Helper()
	var all []eventlog.Message
	for size := 1; len(all) < n; size = size%4 + 1 {
		var batch []eventlog.Message
		for range min(size, n-len(all)) {
			i := len(all) + len(batch)
			batch = append(batch, eventlog.Message{
				Key:     fmt.Sprintf("key-%d", i%5),
				Payload: fmt.Appendf(nil, "partition %d, message %d", p, i),
			})
		}
		h.append(t, p, batch...)
		all = append(all, batch...)
	}
	return all
}

func (h *Harness) open(t *testing.T, p int, after eventlog.Position) eventlog.Reader {
	t.Helper()
	r, err := h.Topic().Open(p, after)
	if err != nil {
		t.Fatalf("Open(%d, %v): %v", p, after, err)
	}
	return r
}

func (h *Harness) end(t *testing.T, p int) eventlog.Position {
	t.Helper()
	end, err := h.Topic().End(p)
	if err != nil {
		t.Fatalf("End(%d): %v", p, err)
	}
	return end
}

// read reads a partition to its end, size messages at a time.
func (h *Harness) read(t *testing.T, p int, after eventlog.Position, size int) []eventlog.Message {
	t.Helper()
	r := h.open(t, p, after)
	defer shut(t, r)
	var all []eventlog.Message
	for {
		n, dst := 0, make([]eventlog.Message, size)
		var err error
		if n, err = r.Read(dst); err != nil {
			t.Fatalf("Read of partition %d after %v: %v", p, after, err)
		}
		all = append(all, dst[:n]...)
		if n > 0 {
			continue
		}
		// A log behind a network may not have fetched all yet.
		last := after
		if len(all) > 0 {
			last = all[len(all)-1].Position
		}
		if last.Compare(h.end(t, p)) >= 0 {
			return all
		}
		await(t, r)
	}
}

func shut(t *testing.T, r interface{ Close() error }) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// await waits until the reader's channel says that there may be more.
func await(t *testing.T, r eventlog.Reader) {
	t.Helper()
	if err := changed(r); err != nil {
		t.Fatal(err)
	}
}

func changed(r eventlog.Reader) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-r.Changed():
		return nil
	case <-timer.C:
		return fmt.Errorf("the Changed channel said nothing for %v", timeout)
	}
}

// equal checks what was read against what was appended: content, ascending
// positions, and publish times.
func equal(t *testing.T, got, want []eventlog.Message) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("read %d messages, want %d", len(got), len(want))
	}
	last := eventlog.Start
	for i := range got {
		g, w := got[i], want[i]
		if g.Position.Compare(last) <= 0 {
			t.Fatalf("message %d has position %v after %v", i, g.Position, last)
		}
		last = g.Position
		if g.Publish <= 0 {
			t.Fatalf("message %d has publish time %d", i, g.Publish)
		}
		if !bytes.Equal(g.Payload, w.Payload) {
			t.Fatalf("message %d has payload %.60q (%d bytes), want %.60q (%d bytes)", i, g.Payload, len(g.Payload), w.Payload, len(w.Payload))
		}
		// The order of properties means nothing.
		g, w = rest(g), rest(w)
		if diff := gocmp.Diff(w, g); diff != "" {
			t.Fatalf("message %d (-want +got):\n%s", i, diff)
		}
	}
}

// rest is what equal has not compared yet.
func rest(m eventlog.Message) eventlog.Message {
	m.Position, m.Publish, m.Payload = eventlog.Position{}, 0, nil
	m.Properties = slices.SortedFunc(slices.Values(m.Properties), func(a, b eventlog.Property) int { return cmp.Compare(a.Key, b.Key) })
	return m
}
