package topiccopy_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/topiccopy"
)

const topic = "public/default/events"

// history draws the messages of one partition of a topic, some of them fed from a
// recording.
func history(t *rapid.T) []eventlog.Message {
	var all []eventlog.Message
	at := eventlog.Position{Ledger: 3, Entry: -1}
	for range rapid.IntRange(0, 30).Draw(t, "n") {
		switch rapid.IntRange(0, 2).Draw(t, "step") {
		case 0:
			at.Batch++
		case 1:
			at = eventlog.Position{Ledger: at.Ledger, Entry: at.Entry + rapid.Int64Range(1, 3).Draw(t, "entries")}
		case 2:
			at = eventlog.Position{Ledger: at.Ledger + 1}
		}
		if at.Entry < 0 {
			at.Entry = 0
		}
		m := eventlog.Message{Position: at, Publish: rapid.Int64().Draw(t, "publish"), Key: rapid.String().Draw(t, "key"), Payload: rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "payload")}
		if rapid.Bool().Draw(t, "properties") {
			m.Properties = []eventlog.Property{{Key: rapid.OneOf(rapid.String(), rapid.Just("refloat-copied-origin")).Draw(t, "name"), Value: rapid.String().Draw(t, "value")}}
		}
		if rapid.Bool().Draw(t, "fed") {
			m.Origin = eventlog.Origin{
				Recording: rapid.StringMatching(`[a-z ]+`).Draw(t, "recording"), Publish: rapid.Int64().Draw(t, "fed at"),
				Position: eventlog.Position{Ledger: rapid.Int64().Draw(t, "ledger"), Entry: rapid.Int64().Draw(t, "entry"), Batch: rapid.Int32().Draw(t, "batch")},
			}
		}
		all = append(all, m)
	}
	return all
}

func open(t *rapid.T, messages []eventlog.Message) *filelog.Log {
	log, err := filelog.Open(filelog.Config{FS: vfs.NewMem(), Dir: "log", Partitions: 2, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if err := log.Append(1, []eventlog.Message{topiccopy.Wrap(topic, &messages[i])}); err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "commit") {
			if err := log.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return log
}

func read(t *rapid.T, r eventlog.Reader) []eventlog.Message {
	var all []eventlog.Message
	for {
		chunk := make([]eventlog.Message, rapid.IntRange(1, 5).Draw(t, "chunk"))
		n, err := r.Read(chunk)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all = append(all, chunk[:n]...)
	}
}

// TestCopyIsTopic: read through Topic, a copy equals the original, from every position.
func TestCopyIsTopic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := history(t)
		log := open(t, want)
		defer log.Close()
		c, err := topiccopy.Topic(log)
		if err != nil {
			t.Fatal(err)
		}
		end := eventlog.Start
		if len(want) > 0 {
			end = want[len(want)-1].Position
		}
		if got, err := c.End(1); got != end || err != nil {
			t.Fatalf("End = %v, %v, want %v", got, err, end)
		}
		if got, err := c.Beginning(1); got != eventlog.Start || err != nil {
			t.Fatalf("Beginning = %v, %v", got, err)
		}
		for from := range len(want) + 1 {
			after := eventlog.Start
			if from > 0 {
				after = want[from-1].Position
			}
			r, err := c.Open(1, after)
			if err != nil {
				t.Fatal(err)
			}
			got := read(t, r)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 && from == len(want) {
				continue
			}
			if diff := cmp.Diff(want[from:], got); diff != "" {
				t.Fatalf("after %v:\n%s", after, diff)
			}
		}
		past := end
		past.Ledger += 9
		if _, err := c.Open(1, past); len(want) > 0 && !errors.Is(err, eventlog.ErrCorrupt) {
			t.Fatalf("behind the end: %v", err)
		}
		if len(want) > 0 {
			before := want[0].Position
			before.Batch--
			r, err := c.Open(1, before)
			if before.Batch < 0 { // no message can be between it and the first message of an entry
				if err != nil {
					t.Fatalf("just before the copy begins: %v", err)
				}
				if diff := cmp.Diff(want, read(t, r)); diff != "" {
					t.Fatalf("from just before the copy begins:\n%s", diff)
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			} else if !errors.Is(err, eventlog.ErrTrimmed) {
				t.Fatalf("before the copy begins: %v", err)
			}
			before.Entry--
			if _, err := c.Open(1, before); before.Entry >= 0 && !errors.Is(err, eventlog.ErrTrimmed) {
				t.Fatalf("an entry before the copy begins: %v", err)
			}
		}
	})
}

// TestNoCopy: a log that was imported, or fed, or is empty, is returned unchanged.
func TestNoCopy(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*eventlog.Message{
		"empty": nil, "own": {Payload: []byte("x")}, "imported": {Payload: []byte("x"), Origin: eventlog.Origin{Recording: "plain"}},
	} {
		log, err := filelog.Open(filelog.Config{FS: vfs.NewMem(), Dir: "log", Partitions: 1, Manual: true})
		if err != nil {
			t.Fatal(err)
		}
		if m != nil {
			if err := log.AppendSync(t.Context(), 0, []eventlog.Message{*m}); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := topiccopy.Topic(log); got != eventlog.Topic(log) || err != nil {
			t.Errorf("%s: Topic = %T, %v", name, got, err)
		}
		if m != nil {
			if _, err := topiccopy.Unwrap(m); !errors.Is(err, eventlog.ErrCorrupt) {
				t.Errorf("%s: Unwrap = %v", name, err)
			}
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDamaged(t *testing.T) {
	t.Parallel()
	m := topiccopy.Wrap(topic, &eventlog.Message{Origin: eventlog.Origin{Recording: "plain", Publish: 5}})
	for _, value := range []string{"0:0:0", "0:0:0 5", "0:0:0 5 ", "0:0 5 plain", "0:0:0 x plain"} {
		m.Properties[0].Value = value
		if _, err := topiccopy.Unwrap(&m); !errors.Is(err, eventlog.ErrCorrupt) {
			t.Errorf("property %q: %v", value, err)
		}
	}
}
