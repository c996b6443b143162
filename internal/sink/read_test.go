package sink

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/test/model"
)

// checkRead holds what we read of a payload against the reference decoder.
func checkRead(t *testing.T, payload []byte) {
	t.Helper()
	want, err := events.Reference(payload)
	got := readable(payload)
	if (err == nil) != (got != nil) {
		t.Fatalf("readable: %v, the reference says %v", got != nil, err)
	}
	if err != nil {
		return
	}
	m := Message{Log: eventlog.Message{Payload: payload}, Events: got}
	for i := range want.Events {
		w, n := &want.Events[i], read(got.Events[i])
		if w.Kind != events.Other {
			usable := w.Missing() == events.UnknownParkReason
			if usable != (n.set || n.job != "") || n.set != (w.Kind == events.CancelJobSet) {
				t.Fatalf("event %d: named %+v, the reference says %v (missing %v)", i, n, w.Kind, w.Missing())
			}
			if usable && (n.job != w.JobID || n.run != w.RunID) {
				t.Fatalf("event %d names %+v, the reference says %s/%s", i, n, w.JobID, w.RunID)
			}
		}
		if ours, ref := timeOf(got.Events[i], 7), w.Created.Time(7); ours != ref {
			t.Fatalf("event %d: time %d, the reference says %d", i, ours, ref)
		}
		checkErrors(t, &m, i, w)
	}
}

// checkErrors: the first terminal error is found, and its bytes are those of the payload.
func checkErrors(t *testing.T, m *Message, i int, w *events.Event) {
	t.Helper()
	list := m.Events.Events[i].GetJobRunErrors().GetErrors()
	if w.Kind != events.RunErrors {
		return
	}
	at := firstTerminal(list)
	if (at < 0) != (w.Error == nil) {
		t.Fatalf("event %d: first terminal error at %d, the reference says %v", i, at, w.Error)
	}
	for e := range list {
		raw := m.rawError(i, e)
		var back pb.Error
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, &back); err != nil || !bytes.Contains(m.Log.Payload, raw) {
			t.Fatalf("event %d, error %d: bytes %x (%v) are not the payload's", i, e, raw, err)
		}
		if !proto.Equal(&back, list[e]) {
			t.Fatalf("event %d, error %d: bytes say %v, decoded %v", i, e, &back, list[e])
		}
	}
}

func TestReadAgreesWithReference(t *testing.T) {
	t.Parallel()
	n := 0
	for seed := range uint64(500) {
		for _, m := range model.Generate(seed, model.Options{}).Messages {
			checkRead(t, m.Payload)
			n++
		}
	}
	t.Logf("%d messages", n)
}

// TestRawError: unknown fields stay, repeated members of the oneof are merged,
// and another member takes their place.
func TestRawError(t *testing.T) {
	t.Parallel()
	field := func(n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), v)
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	terminal := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	first := join(terminal, field(18, []byte("policy")), field(999, []byte("unknown")))
	second := join(field(17, []byte("sub")), terminal)
	ids := join(field(4, []byte("job")), field(5, []byte("run")))
	for name, ev := range map[string][]byte{
		"one":      field(14, join(ids, field(3, first), field(3, second))),
		"merged":   join(field(14, join(ids, field(3, first))), field(14, field(3, second))),
		"replaced": join(field(14, field(3, []byte{8, 0})), field(13, ids), field(14, join(ids, field(3, first), field(3, second)))),
		"unknown":  join(field(14, join(ids, field(3, first))), field(777, []byte("?")), field(14, field(3, second))),
	} {
		payload := join(field(1, []byte("q")), field(2, []byte("s")), field(5, field(8, nil)), field(5, ev))
		m := Message{Log: eventlog.Message{Payload: payload}, Events: readable(payload)}
		checkRead(t, payload)
		if !bytes.Equal(m.rawError(1, 0), first) || !bytes.Equal(m.rawError(1, 1), second) {
			t.Errorf("%s: %x and %x", name, m.rawError(1, 0), m.rawError(1, 1))
		}
	}
}

// FuzzApply: no payload panics, what is read agrees with the reference, and a
// fold that was given what Keys ask for makes the same rows as one that has all.
func FuzzApply(f *testing.F) {
	for seed := range uint64(20) {
		for _, m := range model.Generate(seed, model.Options{}).Messages {
			f.Add(m.Payload)
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		checkRead(t, payload)
		all, part := NewRows(0), NewRows(0)
		for i := range int64(2) {
			m := Message{Seq: 1, Log: eventlog.Message{Position: eventlog.Position{Entry: i}, Publish: i, Payload: payload}, Events: readable(payload)}
			all.Apply(&m)
			part.Admit(part.Keys([]Message{m}), &jobdb.Found{})
			part.Apply(&m)
		}
		want, got := all.Take(), part.Take()
		if diff := Compare(&jobdb.Contents{Changes: *want}, &jobdb.Contents{Changes: *got}); len(diff) > 0 {
			t.Fatal(diff)
		}
		for _, j := range want.Jobs {
			if j.Queueing.OpenRuns > j.Queueing.Runs {
				t.Fatalf("job %+v has more open runs than runs", j)
			}
		}
	})
}
