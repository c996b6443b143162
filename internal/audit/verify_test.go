package audit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
)

// TestVerify: a chain that follows from its input.
func TestVerify(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		w := newWorld(t, 100*seed, 5)
		v, err := w.verify(link(w.envelopes))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if v.Progress.Running != w.running || v.Waiting != 0 || v.Claims != 2 || v.Envelopes != uint64(len(w.envelopes)) ||
			v.Messages != uint64(len(w.events)) || v.Progress.Generation != 2 || len(v.Ignored) != 0 {
			t.Errorf("seed %d: %d envelopes over %d messages: %+v, want running hash %v", seed, len(w.envelopes), len(w.events), v, w.running)
		}
	}
}

// TestVerifyPart: undecided messages and foreign envelopes are counted.
func TestVerifyPart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 5)
	for n := range w.envelopes {
		decisions := link(w.envelopes[:n])
		decisions.put([]byte("stranger"))
		v, err := w.verify(decisions)
		if err != nil {
			t.Fatalf("%d envelopes: %v", n, err)
		}
		if got := v.Messages + v.Waiting; got != uint64(len(w.events)) || v.Envelopes != uint64(n) || v.Ignored[chain.Malformed] != 1 {
			t.Errorf("%d envelopes: %d of %d messages, %+v", n, got, len(w.events), v)
		}
	}
}

// answering returns the index of the n-th envelope with records from input.
func (w *world) answering(n int) int {
	for i, e := range w.envelopes {
		if e.InCount > 0 && len(e.Records) > 0 {
			if n--; n < 0 {
				return i
			}
		}
	}
	panic("the history is too short")
}

// activating returns the index of the n-th activation.
func (w *world) activating(n int) int {
	for i, e := range w.envelopes {
		if len(e.Records) > 1 && e.InCount == 0 {
			if n--; n < 0 {
				return i
			}
		}
	}
	panic("no activation")
}

// change replaces an envelope.
func (w *world) change(i int, do func(e *chain.Envelope)) {
	e := *w.envelopes[i]
	e.Records = slices.Clone(e.Records)
	do(&e)
	w.envelopes[i] = &e
}

// changePolicy changes the PolicyActivated of the n-th activation.
func (w *world) changePolicy(n int, do func(r *chain.PolicyActivated)) int {
	i := w.activating(n)
	w.change(i, func(e *chain.Envelope) {
		r, _ := chain.DecodeRecord(e.Records[1])
		do(r.(*chain.PolicyActivated))
		e.Records[1] = chain.AppendRecord(nil, r)
	})
	return i
}

// TestVerifyFinds: tampered chains whose links were recomputed. The error names the
// envelope.
func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		tamper func(w *world) (envelope int) // index of the first wrong one
		want   string
		class  error
	}{
		{"a record of another run", func(w *world) int {
			i := w.answering(1)
			w.change(i, func(e *chain.Envelope) {
				r, _ := chain.DecodeRecord(e.Records[0])
				switch r := r.(type) {
				case *chain.Decision:
					r.RunID += "x"
				case *chain.NotDecided:
					r.RunID += "x"
				case *chain.Parked:
					r.Raw = append(r.Raw, 'x')
				case *chain.RetryReady:
					r.RunID += "x"
				}
				e.Records[0] = chain.AppendRecord(nil, r)
			})
			return i
		}, "deciding again gives", audit.ErrDifferent},
		{"a record left out", func(w *world) int {
			i := w.answering(2)
			w.change(i, func(e *chain.Envelope) { e.Records = e.Records[:len(e.Records)-1] })
			return i
		}, "the log does not have", audit.ErrDifferent},
		{"a record twice", func(w *world) int {
			i := w.answering(2)
			w.change(i, func(e *chain.Envelope) { e.Records = append(e.Records, e.Records[len(e.Records)-1]) })
			return i
		}, "its input does not produce it", audit.ErrDifferent},
		{"an envelope left out, its input too", func(w *world) int {
			i := w.answering(2)
			w.envelopes = slices.Delete(w.envelopes, i, i+1)
			return i
		}, "the input has", chain.ErrMissing},
		{"an envelope left out, its input given to the next", func(w *world) int {
			i := w.answering(2)
			w.change(i+1, func(e *chain.Envelope) { e.InCount += w.envelopes[i].InCount })
			w.envelopes = slices.Delete(w.envelopes, i, i+1)
			return i
		}, "", audit.ErrDifferent},
		{"no activation", func(w *world) int {
			i := w.activating(0)
			w.envelopes = slices.Delete(w.envelopes, i, i+1)
			return i
		}, "before any version of the semantics was activated", audit.ErrDifferent},
		{"the other semantics", func(w *world) int {
			i := w.activating(0)
			w.change(i, func(e *chain.Envelope) {
				e.Records[0] = chain.AppendRecord(nil, &chain.SemanticsActivated{Version: evaluator.SemanticsVersion + 1})
			})
			return i
		}, "this program knows", chain.ErrNewer},
		{"a policy digest", func(w *world) int {
			return w.changePolicy(1, func(r *chain.PolicyActivated) { r.Digest[0] ^= 1 })
		}, "with another digest than the policies log has", audit.ErrDifferent},
		{"a horizon", func(w *world) int {
			return w.changePolicy(1, func(r *chain.PolicyActivated) { r.HorizonMS++ })
		}, "with another horizon than the policies log has", audit.ErrDifferent},
		{"a generation that is not there", func(w *world) int {
			return w.changePolicy(1, func(r *chain.PolicyActivated) { r.Generation = 3 })
		}, "activates policy generation 3, but the policies log does not hold it", audit.ErrDifferent},
		{"a generation going back", func(w *world) int {
			w.changePolicy(0, func(r *chain.PolicyActivated) {
				r.Generation, r.Digest, r.HorizonMS = 2, w.sets[1].Digest(), w.sets[1].Horizon().Milliseconds()
			})
			i := w.activating(0)
			w.envelopes = append(w.envelopes[:i+1:i+1], w.envelopes[w.activating(1):]...) // nothing was decided in between
			return w.changePolicy(1, func(r *chain.PolicyActivated) {
				r.Generation, r.Digest, r.HorizonMS = 1, w.sets[0].Digest(), w.sets[0].Horizon().Milliseconds()
			})
		}, "goes back from policy generation 2 to 1", audit.ErrDifferent},
		{"the same generation with another digest", func(w *world) int {
			return w.changePolicy(1, func(r *chain.PolicyActivated) { r.Generation = 1 })
		}, "with another digest than the policies log has", audit.ErrDifferent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3, 12)
			at := tt.tamper(w)
			_, err := w.verify(link(w.envelopes))
			if err == nil || tt.class != nil && !errors.Is(err, tt.class) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Verify = %v, want %v with %q", err, tt.class, tt.want)
			}
			if place := fmt.Sprintf("envelope %d", at+1); !strings.Contains(err.Error(), place) {
				t.Errorf("Verify = %v, want it to name %s", err, place)
			}
		})
	}
}

// TestVerifyFindsEveryBit: of every record, one bit of every third byte is changed, and
// the links are recomputed. Every change is found.
func TestVerifyFindsEveryBit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 12)
	different, malformed := 0, 0
	for i, e := range w.envelopes {
		if isClaim(e) != nil {
			continue // link would repair it
		}
		for k := range e.Records {
			step := 3
			if testing.Short() {
				step = 9
			}
			for at := 0; at < len(e.Records[k]); at += step {
				w := &world{events: w.events, policies: w.policies, envelopes: slices.Clone(w.envelopes)}
				w.change(i, func(e *chain.Envelope) {
					e.Records[k] = slices.Clone(e.Records[k])
					e.Records[k][at] ^= 1 << (at % 8)
				})
				v, err := w.verify(link(w.envelopes))
				what := fmt.Sprintf("envelope %d, record %d, byte %d", i+1, k, at)
				if _, bad := chain.DecodeRecord(w.envelopes[i].Records[k]); bad != nil {
					// A foreign envelope: the chain ends before it, which Verified
					// reports, or a later claim shows that something is missing. Or it
					// looks like one of a newer program.
					malformed++
					stopped := errors.Is(err, chain.ErrMissing) || errors.Is(err, audit.ErrDifferent) || errors.Is(err, chain.ErrNewer)
					if err == nil && v.Ignored[chain.Malformed] != 1 || err != nil && !stopped || v.Envelopes != uint64(i) {
						t.Fatalf("%s: %+v, %v; want %d envelopes", what, v, err, i)
					}
					continue
				}
				different++
				if err == nil {
					t.Fatalf("%s: no difference is found", what)
				}
			}
		}
	}
	t.Logf("%d changes found, %d made the record malformed", different, malformed)
}

// TestVerifyRaw: damage to a log without recomputed links. A chain that just ends is
// not an error, since its owner may have lost what it sent; but it is reported as
// waiting, and the next claim shows what is missing.
func TestVerifyRaw(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 12)
	whole := *link(w.envelopes)
	claims := 0
	for i := range whole {
		if isClaim(w.envelopes[i]) != nil {
			claims++
		}
		for _, tt := range []struct {
			name string
			raw  func() topic
		}{
			{"dropped", func() topic { return slices.Concat(whole[:i], whole[i+1:]) }},
			{"swapped with the next", func() topic {
				x := slices.Clone(whole)
				if i+1 < len(x) {
					x[i].Payload, x[i+1].Payload = x[i+1].Payload, x[i].Payload
				}
				return x
			}},
			{"a bit changed", func() topic {
				x := slices.Clone(whole)
				x[i].Payload = slices.Clone(x[i].Payload)
				x[i].Payload[len(x[i].Payload)/2] ^= 4
				return x
			}},
		} {
			decisions := tt.raw()
			if tt.name != "dropped" && i+1 == len(whole) {
				continue
			}
			v, err := w.verify(&decisions)
			what := fmt.Sprintf("envelope %d %s", i+1, tt.name)
			switch {
			case err != nil && !errors.Is(err, chain.ErrMissing) && !errors.Is(err, audit.ErrDifferent):
				t.Fatalf("%s: %v", what, err)
			case err != nil && !strings.Contains(err.Error(), "envelope"):
				t.Errorf("%s: %v names no envelope", what, err)
			case err == nil && claims < 2:
				t.Errorf("%s: no error, though a claim follows that names a later end", what)
			case err == nil && v.Waiting == 0 && v.Envelopes == uint64(len(whole)):
				t.Errorf("%s: all is well: %+v", what, v)
			case err == nil && i+1 < len(whole) && len(v.Ignored) == 0:
				t.Errorf("%s: nothing was ignored: %+v", what, v)
			}
		}
	}
}

// TestVerifyInput: the input differs from the one that was decided.
func TestVerifyInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 12)
	decisions := link(w.envelopes)
	events := w.events
	for i := range events {
		w.events = slices.Delete(slices.Clone(events), i, i+1)
		if _, err := w.verify(decisions); !errors.Is(err, chain.ErrMissing) {
			t.Errorf("without message %d: %v, want ErrMissing", i, err)
		}
	}
	w.events = slices.Clone(events)
	changed := 0
	for i := range events {
		w.events[i].Payload = []byte("\xff")
		if _, err := w.verify(decisions); err != nil {
			if !errors.Is(err, audit.ErrDifferent) || !strings.Contains(err.Error(), fmt.Sprintf("message at %v", events[i].Position)) {
				t.Errorf("with message %d unreadable: %v, want ErrDifferent at %v", i, err, events[i].Position)
			}
			changed++
		}
		w.events[i] = events[i]
	}
	if changed < len(events)-10 { // some are garbage already
		t.Errorf("%d of %d unreadable messages were found", changed, len(events))
	}
}

// TestVerifyStops: Verify and Replay stop when their context ends.
func TestVerifyStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 12)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := audit.Verify(ctx, audit.Logs{Events: &w.events, Decisions: link(w.envelopes), Policies: &w.policies}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Verify = %v, want %v", err, context.Canceled)
	}
	visit := func(*eventlog.Message, *evaluator.Output) error { return nil }
	if _, err := audit.Replay(ctx, &w.events, 0, w.sets[0].Set, visit); !errors.Is(err, context.Canceled) {
		t.Errorf("Replay = %v, want %v", err, context.Canceled)
	}
}

// TestReplay visits each message with its records, in order, and stops with the
// visitor's error.
func TestReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 12)
	var running chain.Hash
	next := 0
	p, err := audit.Replay(context.Background(), &w.events, 0, w.sets[0].Set, func(m *eventlog.Message, out *evaluator.Output) error {
		if m.Position != w.events[next].Position {
			t.Fatalf("message %d at %v, want %v", next, m.Position, w.events[next].Position)
		}
		next++
		for i, b := range out.Bytes {
			if at, ok := chain.PositionOf(out.Records[i]); !ok || at != m.Position {
				t.Fatalf("a record of the message at %v is of %v", m.Position, at)
			}
			running = running.Extend(b)
		}
		return nil
	})
	if err != nil || next != len(w.events) || p.Running != running {
		t.Errorf("Replay = %+v, %v after %d of %d messages; want running hash %v", p, err, next, len(w.events), running)
	}
	enough := errors.New("enough")
	if _, err := audit.Replay(context.Background(), &w.events, 0, w.sets[0].Set, func(*eventlog.Message, *evaluator.Output) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("Replay = %v, want %v", err, enough)
	}
}

// TestVerifyIgnoresMalformed: an envelope of which only a record that would follow from input is malformed is ignored, though
// it fits the chain and verify does not decode such records at first; so is what is wrong in other ways, too.
func TestVerifyIgnoresMalformed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 5)
	i := w.answering(1)
	want, err := w.verify(link(w.envelopes))
	if err != nil {
		t.Fatal(err)
	}
	decisions := *link(w.envelopes)
	e, err := chain.DecodeEnvelope(decisions[i].Payload)
	if err != nil {
		t.Fatal(err)
	}
	last := len(e.Records) - 1
	e.Records[last] = append(slices.Clone(e.Records[last]), 0xFF)
	damaged := topic{}
	for k := range decisions {
		if k == i || k == i+1 { // before the one that it replaces, and once that is there
			damaged.put(e.Append(nil))
		}
		damaged.put(decisions[k].Payload)
	}
	got, err := w.verify(&damaged)
	if err != nil {
		t.Fatal(err)
	}
	if got.Progress != want.Progress || got.Envelopes != want.Envelopes || !maps.Equal(got.Records, want.Records) || got.Ignored[chain.Malformed] != 2 {
		t.Errorf("%+v, want %+v with two malformed envelopes", got, want)
	}
}
