package bench_test

import (
	"strings"
	"testing"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
)

// BenchmarkReplayParts measures what no replay can do without, each alone and as BenchmarkReplay does the whole: x-faster
// is how many times faster than protobuf-go a replay is that has nothing else to do.
func BenchmarkReplayParts(b *testing.B) {
	set := examplePolicies(b)
	for _, in := range []struct {
		name string
		h    *history
	}{
		{"recordings-x20", repeated(b, recorded(b, "plain", "chaos", "retried", "preempted"), 20)},
		{"errors", simulated(b, 6000)},
	} {
		h, log := in.h, logged(b, in.h)
		var records [][]byte
		for p := range h.Partitions() {
			_, err := audit.Replay(b.Context(), h, p, set.Set, func(_ *eventlog.Message, out *evaluator.Output) error {
				for _, r := range out.Bytes {
					records = append(records, append([]byte(nil), r...))
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		var d events.Decoder
		hashed := func() {
			var hash chain.Hash
			for _, r := range records {
				hash = hash.Extend(r)
			}
		}
		for _, part := range []struct {
			name string
			do   func()
		}{
			{"read", func() { h.each(b, log, func(*eventlog.Message) {}) }},
			{"decode", func() {
				h.each(b, h, func(m *eventlog.Message) {
					if _, err := d.Decode(m.Payload); err != nil {
						b.Fatal(err)
					}
				})
			}},
			{"hash", hashed},
			// All of these in one, with the least of a state: of each job and run, the kind of its last event.
			{"least", func() {
				jobs, runs := map[string]*events.Kind{}, map[string]*events.Kind{}
				h.each(b, h, func(m *eventlog.Message) {
					seq, err := d.Decode(m.Payload)
					if err != nil {
						b.Fatal(err)
					}
					seq.Resolve(m.OriginPublish())
					for i := range seq.Events {
						e := &seq.Events[i]
						note(jobs, e.JobID, e.Kind)
						note(runs, e.RunID, e.Kind)
					}
				})
				hashed()
			}},
		} {
			b.Run("history="+in.name+"/part="+part.name, func(b *testing.B) {
				r := compare(b, part.do, func() { unmarshalled(b, h) })
				b.ReportMetric(median(r.x)/float64(h.events), "ns/event")
			})
		}
	}
}

func note(in map[string]*events.Kind, id string, kind events.Kind) {
	if id == "" {
		return
	}
	last := in[id]
	if last == nil {
		last = new(events.Kind)
		in[strings.Clone(id)] = last
	}
	*last = kind
}

// each reads a topic of the history's messages.
func (h *history) each(tb testing.TB, topic eventlog.Topic, do func(*eventlog.Message)) {
	tb.Helper()
	chunk, seen := make([]eventlog.Message, 64), 0
	for p := range topic.Partitions() {
		r, err := topic.Open(p, eventlog.Start)
		if err != nil {
			tb.Fatal(err)
		}
		for {
			eventlog.Release(r)
			n, err := r.Read(chunk)
			if err != nil {
				tb.Fatal(err)
			}
			if n == 0 {
				break
			}
			seen += n
			for i := range chunk[:n] {
				do(&chunk[i])
			}
		}
		if err := r.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	if seen != h.messages {
		tb.Fatalf("%d messages, want %d", seen, h.messages)
	}
}
