package logtest

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/eventlog"
)

func testEmpty(t *testing.T, h *Harness) {
	if n := h.Topic().Partitions(); n != 2 {
		t.Fatalf("Partitions() = %d, want 2", n)
	}
	for p := range 2 {
		if end := h.end(t, p); end != eventlog.Start {
			t.Fatalf("End(%d) of an empty partition = %v", p, end)
		}
		if got := h.read(t, p, eventlog.Start, 4); len(got) != 0 {
			t.Fatalf("an empty partition gave %d messages", len(got))
		}
	}
	// A reader that was there before the first message gets it.
	r := h.open(t, 0, eventlog.Start)
	defer shut(t, r)
	want := h.fill(t, 0, 1)
	equal(t, next(t, r, 1), want)
	if end := h.end(t, 1); end != eventlog.Start {
		t.Fatalf("End(1) = %v after an append to partition 0", end)
	}
}

// next reads n messages, waiting for them.
func next(t *testing.T, r eventlog.Reader, n int) []eventlog.Message {
	t.Helper()
	dst := make([]eventlog.Message, n)
	for got := 0; got < n; {
		k, err := r.Read(dst[got:])
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		if k == 0 {
			await(t, r)
		}
		got += k
	}
	return dst
}

func testOrder(t *testing.T, h *Harness) {
	var want [3][]eventlog.Message
	for p := range want {
		want[p] = h.fill(t, p, 50+p)
	}
	for p := range want {
		for _, size := range []int{1, 3, 1000} {
			got := h.read(t, p, eventlog.Start, size)
			equal(t, got, want[p])
			if end := h.end(t, p); end != got[len(got)-1].Position {
				t.Fatalf("End(%d) = %v, want %v", p, end, got[len(got)-1].Position)
			}
		}
	}
}

// After each position comes exactly the next message, in a batch, at its end,
// and at the end of the log.
func testPositions(t *testing.T, h *Harness) {
	want := h.fill(t, 0, 41)
	all := h.read(t, 0, eventlog.Start, 64)
	equal(t, all, want)
	for i, m := range all {
		got := h.read(t, 0, m.Position, 7)
		equal(t, got, want[i+1:])
		for j := range got {
			if got[j].Position != all[i+1+j].Position || got[j].Publish != all[i+1+j].Publish {
				t.Fatalf("after %v, message %d is at %v, and was at %v", m.Position, j, got[j].Position, all[i+1+j].Position)
			}
		}
	}
	// A reader at the end is given what comes.
	r := h.open(t, 0, all[len(all)-1].Position)
	defer shut(t, r)
	more := h.fill(t, 0, 5)
	equal(t, next(t, r, 5), more)
}

// testBetween reads from positions without a message, which are ordered like any other.
func testBetween(t *testing.T, h *Harness) {
	want := h.fill(t, 0, 20)
	all := h.read(t, 0, eventlog.Start, 64)
	equal(t, all, want)
	end := h.end(t, 0)
	for _, m := range all {
		for _, after := range []eventlog.Position{
			{Ledger: m.Position.Ledger, Entry: m.Position.Entry, Batch: -1},
			{Ledger: m.Position.Ledger, Entry: m.Position.Entry, Batch: math.MaxInt32},
			{Ledger: m.Position.Ledger, Entry: -1, Batch: -1},
			{Ledger: m.Position.Ledger, Entry: math.MaxInt64, Batch: 7},
		} {
			if after.Compare(end) > 0 {
				continue // behaviour after the end of a log is not specified
			}
			i := slices.IndexFunc(all, func(n eventlog.Message) bool { return n.Position.Compare(after) > 0 })
			if i < 0 {
				i = len(all)
			}
			equal(t, h.read(t, 0, after, 64), want[i:])
		}
	}
}

func testContent(t *testing.T, h *Harness) {
	origin := eventlog.Origin{
		Recording: "chaos", Publish: 1_795_217_891_390_414_542,
		Position: eventlog.Position{Ledger: math.MaxInt64, Entry: 1 << 40, Batch: -1},
	}
	want := []eventlog.Message{
		{},
		{Payload: []byte{}},
		{Key: "key without payload"},
		{Payload: []byte{0}},
		{Key: "\x00 \n\t\"", Payload: []byte("odd key")},
		{Key: "ünïcode 日本", Payload: []byte("\xff\xfe not UTF-8")},
		{Key: strings.Repeat("long", 3000), Payload: []byte("long key")},
		{Payload: []byte("one property"), Properties: []eventlog.Property{{Key: "a", Value: "b"}}},
		{
			Key: "k", Payload: []byte("properties"),
			Properties: []eventlog.Property{{Key: "a", Value: ""}, {Key: "b", Value: "\n"}, {Key: "ü", Value: strings.Repeat("v", 5000)}},
		},
		{Key: "k", Payload: []byte("origin"), Origin: origin},
		{
			Key: "k", Payload: []byte("all"), Origin: eventlog.Origin{Recording: "r", Position: eventlog.Position{Batch: math.MaxInt32}, Publish: 1},
			Properties: []eventlog.Property{{Key: "partition", Value: "3"}},
		},
	}
	for _, m := range want {
		h.append(t, 0, m)
	}
	h.append(t, 0, want...)
	twice := slices.Concat(want, want)
	got := h.read(t, 0, eventlog.Start, 100)
	equal(t, got, twice)
	for i, m := range got {
		meant := m.Position
		if twice[i].Origin.Recording != "" {
			meant = twice[i].Origin.Position
		}
		if m.OriginPosition() != meant {
			t.Fatalf("message %d at %v means %v, want %v", i, m.Position, m.OriginPosition(), meant)
		}
	}
	equal(t, h.read(t, 0, eventlog.Start, 1), twice)
}
