package logtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/eventlog"
)

// testReopen checks that a reopened log has the same messages at the same positions, and continues after them.
func testReopen(t *testing.T, h *Harness) {
	var want []eventlog.Message
	var seen []eventlog.Position
	for round := range 5 {
		all := h.read(t, 0, eventlog.Start, 100)
		equal(t, all, want)
		for i, at := range seen {
			if all[i].Position != at {
				t.Fatalf("round %d: message %d is at %v, and was at %v", round, i, all[i].Position, at)
			}
		}
		want = append(want, h.fill(t, 0, 7+round)...)
		all = h.read(t, 0, eventlog.Start, 100)
		equal(t, all, want)
		seen = nil
		for _, m := range all {
			seen = append(seen, m.Position)
		}
		end, empty := h.end(t, 0), h.end(t, 1)
		if err := h.Reopen(); err != nil {
			t.Fatalf("Reopen: %v", err)
		}
		if got := h.end(t, 0); got != end || got != seen[len(seen)-1] {
			t.Fatalf("round %d: End(0) = %v, and was %v", round, got, end)
		}
		if got := h.end(t, 1); got != empty || got != eventlog.Start {
			t.Fatalf("round %d: End(1) = %v, want %v", round, got, eventlog.Start)
		}
	}
	third := h.read(t, 0, seen[2], 100)
	equal(t, third, want[3:])
}

// testPublisher checks that messages are read in the order of publishing, that a closed publisher accepts nothing,
// and that the next one continues.
func testPublisher(t *testing.T, h *Harness) {
	const p = 1
	r := h.open(t, p, eventlog.Start)
	defer shut(t, r)
	var want []eventlog.Message
	for round := range 3 {
		pub, err := h.Publisher(p)
		if err != nil {
			t.Fatalf("Publisher(%d): %v", p, err)
		}
		for i := range 40 {
			payload := fmt.Appendf(nil, "%d/%d", round, i)
			if err := pub.Publish(payload); err != nil {
				t.Fatalf("Publish: %v", err)
			}
			want = append(want, eventlog.Message{Payload: slices.Clone(payload)})
		}
		equal(t, next(t, r, 40), want[len(want)-40:])
		shut(t, pub)
		if err := pub.Publish([]byte("late")); err == nil {
			t.Fatal("Publish on a closed publisher gave no error")
		}
	}
	equal(t, h.read(t, p, eventlog.Start, 64), want)
	if got := h.read(t, 0, eventlog.Start, 64); len(got) != 0 {
		t.Fatalf("partition 0 has %d messages", len(got))
	}
}
