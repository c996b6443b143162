package sink_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/sink"
)

// heavy is a steady topic whose messages have a size.
type heavy struct {
	steady
	size int
}

func (h heavy) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	r, err := h.steady.Open(p, after)
	return &heavyReader{r, h.size}, err
}

type heavyReader struct {
	eventlog.Reader
	size int
}

// Read returns as many messages at once as a log does.
func (r *heavyReader) Read(dst []eventlog.Message) (int, error) {
	n, err := r.Reader.Read(dst[:min(len(dst), eventlog.ReadBytes/r.size)])
	for i := range dst[:n] {
		dst[i].Payload = protowire.AppendBytes(protowire.AppendTag(dst[i].Payload, 1000, protowire.BytesType), make([]byte, r.size))
	}
	return n, err
}

// A backlog of large messages takes as much memory as a few of them: a transaction is
// bounded by bytes too. Not parallel: it measures the heap.
func TestMemoryOfLargeMessages(t *testing.T) { //nolint:paralleltest // see above
	const size, batch = 400_000, 5
	events, decisions := heavy{steady{1000}, size}, newTopic(1)
	c := newChain(t, decisions, 0)
	for i := batch - 1; i < events.messages(); i += batch {
		c.answer(steadyAt(i), batch)
	}
	before, most, batches := heap(), 0.0, 0
	w, err := sink.New(sink.Config{
		Events: events, Decisions: decisions, DB: newMemStore(),
		Hit: func(label string) error {
			if label == "loaded" {
				most = max(most, heap()-before)
			}
			return nil
		},
		Hooks: sink.Hooks{Committed: func(b sink.Batch) {
			batches++
			if covered := b.Messages * size; covered > 8<<20+batch*size {
				t.Errorf("a transaction took %d messages, of %d bytes", b.Messages, covered)
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for progress := true; progress; {
		if progress, err = w.Advance(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if batches < 2 || most > 40 {
		t.Errorf("%d MB of messages in %d transactions took %.0f MiB of memory", events.messages()*size/1e6, batches, most)
	}
}
