package evaluator_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/test/model"
)

// TestRebuild: a lost state whose input is gone is rebuilt from what is held, when an
// operator says so, and that stands in the chain. Whoever comes later derives the same
// state from it, unasked: from nothing, from what is held or all of it, or with a state
// of before.
func TestRebuild(t *testing.T) {
	t.Parallel()
	ran := 0
	defer func() {
		if ran < 10 {
			t.Errorf("%d histories were long enough", ran)
		}
	}()
	for seed := range uint64(40) {
		h := model.Generate(seed, model.Options{Republished: seed%4 == 1})
		if len(h.Messages) < 20 {
			continue
		}
		ran++
		w := newWorld(t, seed)
		w.publish(h.YAML())
		answered := 10 + w.rng.IntN(len(h.Messages)-10)
		w.append(h.Messages[:answered])
		old := w.start("old", evaluator.Config{MaxMessages: 1 + w.rng.IntN(6)})
		if err := old.drain(); err != nil {
			t.Fatal(err)
		}
		w.append(h.Messages[answered:])
		at := w.positions()
		gone := at[w.rng.IntN(len(at)-1)] // also behind what was answered
		held := changed{Topic: w.events, begin: gone, partitions: 1}
		end, _ := w.decisions.End(0)

		lost := w.start("lost", evaluator.Config{})
		err := lost.owned(held, evaluator.Config{})
		if after, _ := w.decisions.End(0); !errors.Is(err, evaluator.ErrHistory) || !strings.Contains(err.Error(), "--accept-history-from") || after != end {
			t.Fatalf("seed %d: %v, want ErrHistory with what to do, and nothing written", seed, err)
		}
		from := eventlog.Start
		acknowledged := evaluator.Config{AcceptHistory: &from, AcceptedBy: "olga", MaxMessages: 1 + w.rng.IntN(6)}
		for crashes := w.rng.IntN(3); crashes > 0; crashes-- {
			left := w.rng.IntN(12)
			acknowledged.Hooks.Point = func(string) error {
				if left--; left < 0 {
					return errCrash
				}
				return nil
			}
			if err := lost.owned(held, acknowledged); err != nil && !errors.Is(err, errCrash) && !errors.Is(err, evaluator.ErrLost) {
				t.Fatalf("seed %d, crashing: %v", seed, err)
			}
		}
		acknowledged.Hooks.Point = nil
		if err := lost.owned(held, acknowledged); err != nil {
			t.Fatalf("seed %d: acknowledged: %v", seed, err)
		}
		rebuilt := w.rebuilt()
		if len(rebuilt) == 0 || rebuilt[0].By != "olga" || rebuilt[0].From != gone {
			t.Fatalf("seed %d: the chain says %+v, want that olga accepted the loss up to %v", seed, rebuilt, gone)
		}
		want := dump(t, lost.cfg.Store)
		for _, other := range []struct {
			name   string
			m      *machine
			events eventlog.Topic
		}{
			{"from nothing", w.start("nothing", evaluator.Config{}), held},
			{"from nothing, with all events", w.start("all", evaluator.Config{}), changed{Topic: w.events, begin: eventlog.Start, partitions: 1}},
			{"with a state of before", old, held},
		} {
			if gone.Compare(at[answered-1]) > 0 && other.events != eventlog.Topic(held) {
				other.m.stop()
				continue // events that nobody answered came back
			}
			if err := other.m.owned(other.events, evaluator.Config{}); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, other.name, err)
			}
			if got := dump(t, other.m.cfg.Store); !bytes.Equal(got, want) {
				t.Fatalf("seed %d, %s: the state is\n%s\nwant\n%s", seed, other.name, got, want)
			}
			if n := len(w.rebuilt()); n != len(rebuilt) {
				t.Fatalf("seed %d, %s: rebuilt once more", seed, other.name)
			}
			other.m.stop()
		}
		lost.stop()
		v, err := audit.Verify(context.Background(), audit.Logs{Events: held, Decisions: w.decisions, Policies: w.policies}, 0)
		if err != nil || v.Waiting != 0 || v.Unknown != uint64(answered) || v.RebuiltBy != "olga" {
			t.Fatalf("seed %d: Verify = %+v, %v; want %d messages unknown", seed, v, err, answered)
		}
		if again := v.Records["JobFailed"] + v.Records["JobRequeued"]; v.Again() != again || v.LinkedEnvelopes == 0 {
			t.Fatalf("seed %d: %d decisions were decided again, Verify says %d: %+v", seed, again, v.Again(), v)
		}
		if gone.Compare(at[answered-1]) <= 0 {
			if v := w.verified(); v.Unknown != 0 || v.Messages != uint64(len(at)) {
				t.Fatalf("seed %d: with all events, Verify = %+v", seed, v)
			}
		}
	}
}

func (w *world) rebuilt() (all []*chain.StateRebuilt) {
	for _, r := range w.records() {
		if r, ok := r.(*chain.StateRebuilt); ok {
			all = append(all, r)
		}
	}
	return all
}

// emptied is a log that lost its beginning.
type emptied struct {
	eventlog.Topic
	begin eventlog.Position
}

func (e emptied) Beginning(int) (eventlog.Position, error) { return e.begin, nil }

// TestEmptiedDecisions: without a state, an owner begins no chain where there may have
// been one, whatever is accepted of events.
func TestEmptiedDecisions(t *testing.T) {
	t.Parallel()
	at := eventlog.Position{Ledger: 5, Entry: 3, Batch: -1}
	from := eventlog.Start
	tests := []struct {
		name  string
		begin eventlog.Position  // of decisions
		acked *eventlog.Position // of events; nil: it cannot be told
		want  error
	}{
		{"never written", eventlog.Start, &from, nil},
		{"never written, which it cannot show", eventlog.Position{Ledger: 9, Entry: -1, Batch: -1}, &from, nil},
		{"its beginning is gone", eventlog.Position{Ledger: 9, Entry: -1, Batch: -1}, nil, evaluator.ErrEmptied},
		{"made again, and events were acknowledged", eventlog.Start, &at, evaluator.ErrEmptied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.feed(someHistory(t, 10))
			m := w.start("state", evaluator.Config{})
			defer m.stop()
			c := evaluator.Config{AcceptHistory: &from}
			if tt.acked != nil {
				c.Acknowledged = func() (eventlog.Position, error) { return *tt.acked, nil }
			}
			run := func(c evaluator.Config) error {
				m.cfg.AcceptHistory, m.cfg.Acknowledged, m.cfg.AcceptEmptyDecisions = c.AcceptHistory, c.Acknowledged, c.AcceptEmptyDecisions
				return m.ownedOn(emptied{w.decisions, tt.begin})
			}
			err := run(c)
			if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), "--accept-empty-decisions") {
				t.Fatalf("%v, want %v with what to do", err, tt.want)
			}
			if end, _ := w.decisions.End(0); tt.want != nil && end != eventlog.Start {
				t.Fatal("refused, but something was written")
			}
			c.AcceptEmptyDecisions = true
			if err := run(c); err != nil {
				t.Fatalf("accepted: %v", err)
			}
		})
	}
}
