package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// TestAnswersGone: strangers do not write an envelope over lost events again. One that
// had come before its predecessor was accepted in seed 96,720, and no ingester can read
// what it covers.
func TestAnswersGone(t *testing.T) {
	t.Parallel()
	w := &world{rng: rand.New(rand.NewPCG(1, 1)), accepted: make([]bool, 1)}
	w.events = newTopic(w, "events", 1)
	w.decisions, w.chains = newTopic(w, "decisions", 1), []plain{{inTo: eventlog.Start}}
	var at []eventlog.Position
	for range 3 {
		at = append(at, w.events.append(0, eventlog.Message{}))
	}
	envelope := func(from, to eventlog.Position, n uint64) []byte {
		return (&chain.Envelope{Seq: 1, Epoch: 1, InFrom: from, InTo: to, InCount: n}).Append(nil)
	}
	for _, tt := range []struct {
		what string
		raw  []byte
		gone bool
	}{
		{"all of it is lost", envelope(eventlog.Start, at[1], 2), true},
		{"some of it is lost", envelope(at[0], at[2], 2), true},
		{"it covers what is left", envelope(at[1], at[2], 1), false},
		{"it covers nothing", envelope(eventlog.Start, eventlog.Start, 0), false},
		{"garbage", []byte("garbage"), false},
	} {
		w.accepted[0] = false
		w.events.parts[0].trimmed = at[1]
		if w.answersGone(0, tt.raw) {
			t.Errorf("%s: retention is taken for a loss", tt.what)
		}
		w.accepted[0] = true
		if got := w.answersGone(0, tt.raw); got != tt.gone {
			t.Errorf("%s: got %v", tt.what, got)
		}
	}
	w.decisions.append(0, eventlog.Message{Payload: envelope(eventlog.Start, at[1], 2)})
	for range 200 {
		w.strange()
	}
	for _, m := range w.decisions.parts[0].all[1:] {
		if w.answersGone(0, m.Payload) {
			t.Error("a stranger wrote it again")
		}
	}
}
