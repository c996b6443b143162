package follow_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
)

// topic is a partition in memory, of which readers see so many messages, and
// End so many.
type topic struct {
	msgs              []eventlog.Message
	readable, durable int
	fail              error // of the next Read
}

func (*topic) Partitions() int { return 1 }

func (*topic) Beginning(int) (eventlog.Position, error) { return eventlog.Start, nil }

func (x *topic) End(int) (eventlog.Position, error) {
	if x.durable == 0 {
		return eventlog.Start, nil
	}
	return x.msgs[x.durable-1].Position, nil
}

func (x *topic) Open(_ int, after eventlog.Position) (eventlog.Reader, error) {
	r := &reader{topic: x}
	for r.next < len(x.msgs) && x.msgs[r.next].Position.Compare(after) <= 0 {
		r.next++
	}
	return r, nil
}

type reader struct {
	topic  *topic
	next   int
	closed bool
	given  [][]byte
}

func (r *reader) Read(dst []eventlog.Message) (int, error) {
	if err := r.topic.fail; err != nil {
		return 0, err
	}
	n := copy(dst, r.topic.msgs[min(r.next, r.topic.readable):r.topic.readable])
	r.next += n
	for i := range dst[:n] {
		dst[i].Payload = bytes.Clone(dst[i].Payload)
		r.given = append(r.given, dst[i].Payload)
	}
	return n, nil
}

// Release overwrites what was returned.
func (r *reader) Release() {
	for _, payload := range r.given {
		clear(payload)
	}
	r.given = nil
}

func (*reader) Changed() <-chan struct{} { return nil }

func (r *reader) Close() error {
	r.closed = true
	return nil
}

func at(n int64) eventlog.Position { return eventlog.Position{Ledger: 1, Entry: n, Batch: -1} }

// input is a topic with messages at the entries named; positions are not dense.
func input(entries ...int64) *topic {
	x := &topic{}
	for _, n := range entries {
		x.msgs = append(x.msgs, eventlog.Message{Position: at(n), Payload: fmt.Append(nil, n)})
	}
	x.readable, x.durable = len(x.msgs), len(x.msgs)
	return x
}

// writer writes a chain that fits.
type writer struct {
	topic
	end chain.End
}

func newWriter() *writer {
	w := &writer{end: chain.Beginning}
	w.claim()
	return w
}

func (w *writer) claim() {
	e := &chain.Envelope{Epoch: w.end.Epoch + 1, Owner: chain.OwnerID{byte(w.end.Epoch + 1)}, InTo: w.end.InTo}
	c := &chain.OwnerClaim{Epoch: e.Epoch, Owner: e.Owner, LastSeq: w.end.Seq, LastLink: w.end.Link}
	e.Records = [][]byte{chain.AppendRecord(nil, c)}
	w.add(e)
}

func (w *writer) answer(to int64, count uint64) {
	w.add(&chain.Envelope{Epoch: w.end.Epoch, Owner: w.end.Owner, InTo: at(to), InCount: count})
}

func (w *writer) add(e *chain.Envelope) {
	e.Seq, e.Link, e.InFrom = w.end.Seq+1, w.end.Link, w.end.InTo
	raw := e.Append(nil)
	w.end = chain.End{Seq: e.Seq, Link: chain.Link(raw), Epoch: e.Epoch, Owner: e.Owner, InTo: e.InTo}
	w.put(raw)
}

func (w *writer) put(raw []byte) {
	w.msgs = append(w.msgs, eventlog.Message{Position: at(int64(len(w.msgs))), Payload: raw})
	w.readable, w.durable = len(w.msgs), len(w.msgs)
}

func open(t testing.TB, events, decisions eventlog.Topic, from follow.Positions) *follow.Follower {
	t.Helper()
	f, err := follow.Open(events, decisions, 0, from)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// all takes batches until there is none, and says what they hold.
func all(f *follow.Follower) (string, error) {
	var b strings.Builder
	for {
		s, err := f.Next()
		if err != nil || s == nil {
			return b.String(), err
		}
		fmt.Fprintf(&b, "%d:", s.Envelope.Seq)
		for _, m := range s.Messages {
			fmt.Fprintf(&b, " %s", m.Payload)
		}
		b.WriteByte('\n')
	}
}

// TestFits: a chain whose ranges and counts are those of the input.
func TestFits(t *testing.T) {
	t.Parallel()
	w := newWriter()
	w.answer(3, 2)
	w.answer(3, 0) // no input
	w.answer(7, 1)
	w.claim()
	w.answer(9, 2)
	got, err := all(open(t, input(1, 3, 7, 8, 9, 12), w, follow.Beginning))
	if want := "1:\n2: 1 3\n3:\n4: 7\n5:\n6: 8 9\n"; got != want || err != nil {
		t.Errorf("batches %q, %v; want %q", got, err, want)
	}
}

// TestMissing: a chain and an input that do not fit each other (protocol.md 3).
func TestMissing(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		input  []int64
		answer func(w *writer)
		got    string // before the error
		want   string // in the error
	}{
		{"the count is too small", []int64{1, 2, 3}, func(w *writer) { w.answer(3, 2) }, "1:\n", "envelope 2 answers 2 messages up to 1:3:-1, the input has 3"},
		{"the count is too large", []int64{1, 2, 3}, func(w *writer) { w.answer(3, 4) }, "1:\n", "the input has 3"},
		{"the first is missing", []int64{2, 3}, func(w *writer) { w.answer(3, 3) }, "1:\n", "the input has 2"},
		{"one in the middle is missing", []int64{1, 3, 4}, func(w *writer) { w.answer(1, 1); w.answer(4, 3) }, "1:\n2: 1\n", "envelope 3 answers 3 messages up to 1:4:-1, the input has 2"},
		{"the last of a range is missing", []int64{1, 2, 4}, func(w *writer) { w.answer(3, 3) }, "1:\n", "the input has 2"},
		{"one too many", []int64{1, 2, 3}, func(w *writer) { w.answer(1, 1); w.answer(3, 1) }, "1:\n2: 1\n", "the input has 2"},
		{"a range with nothing in it", []int64{1, 5}, func(w *writer) { w.answer(1, 1); w.answer(3, 1) }, "1:\n2: 1\n", "the input has 0"},
		{"the end is missing", []int64{1, 2}, func(w *writer) { w.answer(2, 2); w.answer(4, 2) }, "1:\n2: 1 2\n", "decisions answer events up to 1:4:-1, the events end at 1:2:-1"},
		{"all of it is missing", nil, func(w *writer) { w.answer(2, 2) }, "1:\n", "the events end at -1:-1:-1"},
		{
			"an epoch whose claim is missing",
			[]int64{1},
			func(w *writer) { w.end.Epoch++; w.answer(1, 1) },
			"1:\n", "decision log at 1:1:-1: ",
		},
		{
			"a claim on what is missing",
			[]int64{1},
			func(w *writer) { w.end.Seq++; w.claim() },
			"1:\n", "epoch 2 was claimed at envelope 2, but only 1 are here",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWriter()
			tt.answer(w)
			f := open(t, input(tt.input...), w, follow.Beginning)
			got, err := all(f)
			if !errors.Is(err, chain.ErrMissing) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want ErrMissing with %q", err, tt.want)
			}
			if got != tt.got {
				t.Errorf("before it %q, want %q", got, tt.got)
			}
		})
	}
}

// TestLags: what a reader does not see yet is not missing while the log's end
// says that it is there.
func TestLags(t *testing.T) {
	t.Parallel()
	in, w := input(1, 2, 3, 4), newWriter()
	w.answer(3, 3)
	w.answer(4, 1)
	in.readable = 0
	f := open(t, in, w, follow.Beginning)
	for _, step := range []struct {
		readable int
		want     string
	}{{0, "1:\n"}, {0, ""}, {2, ""}, {3, "2: 1 2 3\n"}, {3, ""}, {4, "3: 4\n"}, {4, ""}} {
		in.readable = step.readable
		if got, err := all(f); got != step.want || err != nil {
			t.Fatalf("with %d readable: %q, %v; want %q", step.readable, got, err, step.want)
		}
	}
	if got, want := f.Positions(), (follow.Positions{Chain: w.end, Decisions: at(2)}); got != want {
		t.Errorf("Positions = %+v, want %+v", got, want)
	}
}

// TestIgnored: ignored messages are reported, and count as processed.
func TestIgnored(t *testing.T) {
	t.Parallel()
	in, w := input(1, 2), newWriter()
	w.put([]byte("stranger"))
	w.answer(1, 1)
	w.put(w.msgs[2].Payload)
	w.answer(2, 1)
	w.put(w.msgs[0].Payload)
	f := open(t, in, w, follow.Beginning)
	var notified []string
	f.OnIgnored = func(why chain.Ignored, at eventlog.Position) {
		notified = append(notified, fmt.Sprint(at.Entry, " ", why))
	}
	got, err := all(f)
	if want := "1:\n2: 1\n3: 2\n"; got != want || err != nil {
		t.Errorf("batches %q, %v; want %q", got, err, want)
	}
	if got, want := strings.Join(notified, ", "), "1 malformed, 3 repeated, 5 lost_claim"; got != want {
		t.Errorf("ignored %q, want %q", got, want)
	}
	if got, want := f.Processed(), at(5); got != want {
		t.Errorf("Processed = %v, want %v", got, want)
	}
	if got, want := f.Positions().Decisions, at(4); got != want {
		t.Errorf("Positions: %v, want %v", got, want)
	}
}

// TestReadErrors come out, with what was being read.
func TestReadErrors(t *testing.T) {
	t.Parallel()
	broken := fmt.Errorf("%w: broken", eventlog.ErrTransient)
	for _, tt := range []struct {
		name string
		fail func(in, decisions *topic)
		want string
	}{
		{"events", func(in, _ *topic) { in.fail = broken }, "read events: "},
		{"decisions", func(_, decisions *topic) { decisions.fail = broken }, "read decisions: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in, w := input(1), newWriter()
			w.answer(1, 1)
			f := open(t, in, w, follow.Beginning)
			tt.fail(in, &w.topic)
			_, err := all(f)
			if !errors.Is(err, eventlog.ErrTransient) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestFollowLaw: whatever readers see when, wherever a follower begins anew,
// and however long the batches, each message is handed out once, in its
// batch; and whoever takes over the readers gets the rest.
func TestFollowLaw(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in, w := &topic{}, newWriter()
		want := "1:\n"
		entry := int64(0)
		longest := rapid.SampledFrom([]int{3, 700}).Draw(t, "longest") // beyond what is read at once
		for range rapid.IntRange(0, 6).Draw(t, "envelopes") {
			if rapid.IntRange(0, 3).Draw(t, "claim") == 0 {
				w.claim()
				want += fmt.Sprintf("%d:\n", w.end.Seq)
				continue
			}
			n := rapid.IntRange(1, longest).Draw(t, "messages")
			line := ""
			for range n {
				entry += rapid.Int64Range(1, 2).Draw(t, "gap")
				in.msgs = append(in.msgs, eventlog.Message{Position: at(entry), Payload: fmt.Append(nil, entry)})
				line += fmt.Sprintf(" %d", entry)
			}
			w.answer(entry, uint64(n))
			want += fmt.Sprintf("%d:%s\n", w.end.Seq, line)
			if rapid.IntRange(0, 3).Draw(t, "stranger") == 0 {
				w.put([]byte("stranger"))
			}
		}
		rest := ""
		for range rapid.IntRange(0, 5).Draw(t, "unanswered") {
			entry++
			in.msgs = append(in.msgs, eventlog.Message{Position: at(entry), Payload: fmt.Append(nil, entry)})
			rest += fmt.Sprintf(" %d", entry)
		}
		in.durable = len(in.msgs)

		w.readable, w.durable = 0, 0
		f, err := follow.Open(in, w, 0, follow.Beginning)
		if err != nil {
			t.Fatal(err)
		}
		passing := rapid.Bool().Draw(t, "passing")
		f.Passing = passing
		var got strings.Builder
		for done := false; !done; {
			in.readable = rapid.IntRange(in.readable, len(in.msgs)).Draw(t, "events")
			w.readable = rapid.IntRange(w.readable, len(w.msgs)).Draw(t, "decisions")
			done = in.readable == len(in.msgs) && w.readable == len(w.msgs)
			text, err := all(f)
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString(text)
			if !done && rapid.Bool().Draw(t, "anew") {
				if f, err = follow.Open(in, w, 0, f.Positions()); err != nil {
					t.Fatal(err)
				}
				f.Passing = passing
			}
		}
		if got.String() != want {
			t.Fatalf("batches\n%swant\n%s", got.String(), want)
		}
		decisions, pending := f.Pending()
		if len(decisions) > 0 {
			t.Fatalf("%d decisions are pending", len(decisions))
		}
		events, _, err := f.Readers()
		if err != nil {
			t.Fatal(err)
		}
		more := make([]eventlog.Message, 10)
		n, err := events.Read(more)
		if err != nil {
			t.Fatal(err)
		}
		left := ""
		for _, m := range append(pending, more[:n]...) {
			left += " " + string(m.Payload)
		}
		if left != rest {
			t.Fatalf("left: %q, want %q", left, rest)
		}
	})
}

// TestClose closes both readers.
func TestClose(t *testing.T) {
	t.Parallel()
	f := open(t, input(1), newWriter(), follow.Beginning)
	events, decisions, err := f.Readers()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil || !events.(*reader).closed || !decisions.(*reader).closed {
		t.Errorf("Close = %v; events closed %v, decisions closed %v", err, events.(*reader).closed, decisions.(*reader).closed)
	}
}

// TestFewDecisionsWait: a follower holds few envelopes beyond the one that it returned, and
// none that it has processed, because each has the records of many messages.
func TestFewDecisionsWait(t *testing.T) {
	t.Parallel()
	w := newWriter()
	entries := make([]int64, 300)
	for i := range entries {
		entries[i] = int64(i) + 1
		w.answer(entries[i], 1)
	}
	f := open(t, input(entries...), w, follow.Beginning)
	for n := 0; ; n++ {
		s, err := f.Next()
		if err != nil {
			t.Fatal(err)
		}
		if s == nil {
			break
		}
		waiting, _ := f.Pending()
		if len(waiting) > 15 {
			t.Fatalf("after envelope %d, %d wait", n, len(waiting))
		}
	}
}
