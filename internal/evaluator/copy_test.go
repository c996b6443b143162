package evaluator_test

import (
	"context"
	"errors"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/topiccopy"
	"github.com/refloat/refloat/internal/test/model"
)

// onPulsar are the messages of a history as they stand on a topic whose first ledger
// held is 108, in a copy of it.
func (w *world) onPulsar(messages []model.Message) {
	w.t.Helper()
	for i, m := range messages {
		at := eventlog.Position{Ledger: 108, Entry: int64(i)}
		held := topiccopy.Wrap("public/default/events", &eventlog.Message{Position: at, Publish: m.Publish, Payload: m.Payload})
		if err := w.events.AppendSync(context.Background(), 0, []eventlog.Message{held}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestVerifyCopyOfAcceptedHistory: of a deployment that accepted its history from the
// beginning of what Pulsar held, the copy that record makes can be verified.
func TestVerifyCopyOfAcceptedHistory(t *testing.T) {
	t.Parallel()
	h := someHistory(t, 30)
	w := newWorld(t, 1)
	w.publish(h.YAML())
	w.onPulsar(h.Messages)
	events, err := topiccopy.Topic(w.events)
	if err != nil {
		t.Fatal(err)
	}
	begin := eventlog.Position{Ledger: 108, Batch: -1} // as pulsarlog names it
	topic := changed{Topic: openAt{events, begin}, begin: begin, partitions: 1}
	m := w.start("state", evaluator.Config{})
	if err := m.owned(topic, evaluator.Config{}); !errors.Is(err, evaluator.ErrHistory) {
		t.Fatalf("nobody accepted the history: %v", err)
	}
	from := eventlog.Start
	if err := m.owned(topic, evaluator.Config{AcceptHistory: &from}); err != nil && !errors.Is(err, errStuck) {
		t.Fatal(err)
	}
	m.stop()
	v, err := audit.Verify(context.Background(), audit.Logs{Events: events, Decisions: w.decisions, Policies: w.policies}, 0)
	if err != nil || v.Messages != uint64(len(h.Messages)) || v.Waiting != 0 {
		t.Fatalf("Verify = %+v, %v; want %d messages", v, err, len(h.Messages))
	}
}

// openAt is a topic that opens at its beginning, as the broker does.
type openAt struct {
	eventlog.Topic
	begin eventlog.Position
}

func (o openAt) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	if after == o.begin {
		after = eventlog.Start
	}
	return o.Topic.Open(p, after)
}
