package doctor

import (
	"errors"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// memory is one partition of messages, one per entry, in ledgers.
type memory struct {
	messages []eventlog.Message
	opened   []eventlog.Position
}

func (m *memory) Partitions() int { return 1 }

func (m *memory) Open(_ int, after eventlog.Position) (eventlog.Reader, error) {
	m.opened = append(m.opened, after)
	for i := range m.messages {
		if m.messages[i].Position.Compare(after) > 0 {
			return &memoryReader{m.messages[i:]}, nil
		}
	}
	return &memoryReader{}, nil
}

func (m *memory) End(int) (eventlog.Position, error) {
	if len(m.messages) == 0 {
		return eventlog.Start, nil
	}
	return m.messages[len(m.messages)-1].Position, nil
}

func (m *memory) Beginning(int) (eventlog.Position, error) { return eventlog.Start, nil }

type memoryReader struct{ left []eventlog.Message }

func (r *memoryReader) Read(dst []eventlog.Message) (int, error) {
	n := copy(dst, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (*memoryReader) Changed() <-chan struct{} { return nil }
func (*memoryReader) Close() error             { return nil }

// chainOf builds a decision log with claims at some positions, in ledgers of a given
// size.
func chainOf(n, ledger int, claims map[int]uint32) (*memory, Ledgers) {
	m := &memory{}
	var l Ledgers
	for i := range n {
		e := chain.Envelope{Seq: uint64(i + 1), Epoch: 1, InFrom: eventlog.Start, InTo: eventlog.Position{Entry: int64(i)}, InCount: 1}
		if count, ok := claims[i]; ok {
			e.InTo, e.InCount = e.InFrom, 0
			e.Records = [][]byte{chain.AppendRecord(nil, &chain.OwnerClaim{Epoch: uint64(i), Partitions: count})}
		}
		at := eventlog.Position{Ledger: int64(10 + i/ledger), Entry: int64(i % ledger)}
		m.messages = append(m.messages, eventlog.Message{Position: at, Payload: e.Append(nil)})
		if i%ledger == 0 {
			l.Ledgers = append(l.Ledgers, struct {
				ID      int64 `json:"ledgerId"`
				Entries int64 `json:"entries"`
			}{ID: at.Ledger})
		}
		l.Ledgers[len(l.Ledgers)-1].Entries++
	}
	if n > 0 { // the broker reports the open ledger elsewhere
		last := &l.Ledgers[len(l.Ledgers)-1]
		l.CurrentEntries, last.Entries = last.Entries, 0
	}
	return m, l
}

func TestLastClaim(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		n, ledger int
		claims    map[int]uint32
		want      int // its index; -1: none
		rounds    int // of the search
		unknown   bool
	}{
		{name: "empty", want: -1},
		{name: "none", n: 10, ledger: 3, want: -1, rounds: 1},
		{name: "near the end", n: 1000, ledger: 7, claims: map[int]uint32{1: 1, 990: 5, 995: 6}, want: 995, rounds: 1},
		{name: "at the end", n: 1000, ledger: 1000, claims: map[int]uint32{999: 5}, want: 999, rounds: 1},
		{name: "at the edge", n: 1000, ledger: 100, claims: map[int]uint32{936: 5}, want: 936, rounds: 1},
		{name: "before the edge", n: 1000, ledger: 100, claims: map[int]uint32{935: 5}, want: 935, rounds: 2},
		{name: "at the beginning", n: 700, ledger: 33, claims: map[int]uint32{0: 5}, want: 0, rounds: 3},
		{name: "too far", n: 40_000, ledger: 1000, claims: map[int]uint32{0: 5}, want: -1, rounds: 4, unknown: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, l := chainOf(c.n, max(1, c.ledger), c.claims)
			if c.n > 20 {
				m.messages[c.n-2].Payload = []byte("a stranger's")
			}
			got, err := lastClaim(t.Context(), m, 0, l)
			switch {
			case c.unknown != errors.Is(err, ErrNotChecked) || !c.unknown && err != nil:
				t.Fatalf("lastClaim: %v", err)
			case c.want < 0 && got != nil, c.want >= 0 && (got == nil || got.Epoch != uint64(c.want) || got.Partitions != int(c.claims[c.want])):
				t.Errorf("lastClaim = %+v, want that at %d", got, c.want)
			case len(m.opened) != c.rounds:
				t.Errorf("looked %d times, want %d: %v", len(m.opened), c.rounds, m.opened)
			}
		})
	}
}
