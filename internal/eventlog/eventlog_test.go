package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/eventlog"
)

// TestPositionText: a position is read as it is written, and nothing else is one.
func TestPositionText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := eventlog.Position{Ledger: rapid.Int64().Draw(t, "ledger"), Entry: rapid.Int64().Draw(t, "entry"), Batch: rapid.Int32().Draw(t, "batch")}
		if got, err := eventlog.ParsePosition(p.String()); got != p || err != nil {
			t.Fatalf("%v is read as %v, %v", p, got, err)
		}
	})
	for _, s := range []string{"", "1", "1:2", "1:2:3:4", "1:2:x", "+1:2:3", "01:2:3", "1:2:3 ", " 1:2:3", "1:2:2147483648", "1::3", "-:1:2"} {
		if p, err := eventlog.ParsePosition(s); err == nil {
			t.Errorf("%q is read as %v", s, p)
		}
	}
}

// ends is a topic of which only its ends are known.
type ends struct {
	eventlog.Topic
	end, begin       eventlog.Position
	endErr, beginErr error
}

func (e ends) End(int) (eventlog.Position, error)       { return e.end, e.endErr }
func (e ends) Beginning(int) (eventlog.Position, error) { return e.begin, e.beginErr }

// endless is a topic with messages, and a reader of it that never reaches its end.
type endless struct {
	eventlog.Topic
	eventlog.Reader
}

func (e endless) Open(int, eventlog.Position) (eventlog.Reader, error) { return e, nil }
func (endless) Read(dst []eventlog.Message) (int, error)               { return len(dst), nil }

// TestToEndStops: who reads to the end of a log stops with his context, also where there is more to read.
func TestToEndStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := eventlog.ToEnd(ctx, endless{}).Open(0, eventlog.Start)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]eventlog.Message, 4)); n != 4 || err != nil {
		t.Fatalf("Read = %d, %v", n, err)
	}
	cancel()
	if n, err := r.Read(make([]eventlog.Message, 4)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended, Read = %d, %v, want %v", n, err, context.Canceled)
	}
}

// TestReach: a topic reaches its end, or what was deleted of it if it holds nothing. It is
// not taken to reach anything if it cannot tell.
func TestReach(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("%w: no connection", eventlog.ErrTransient)
	at, begin := eventlog.Position{Ledger: 3, Entry: 4}, eventlog.Position{Ledger: 7, Entry: -1, Batch: -1}
	for name, tt := range map[string]struct {
		ends
		want eventlog.Position
		err  error
	}{
		"messages":        {ends: ends{end: at, begin: eventlog.Start}, want: at},
		"new":             {ends: ends{end: eventlog.Start, begin: eventlog.Start}, want: eventlog.Start},
		"emptied":         {ends: ends{end: eventlog.Start, begin: begin}, want: begin},
		"cannot tell":     {ends: ends{end: eventlog.Start, beginErr: errors.New("no admin API")}, want: eventlog.Start},
		"cannot tell now": {ends: ends{end: eventlog.Start, beginErr: away}, err: eventlog.ErrTransient},
		"away":            {ends: ends{endErr: away}, err: eventlog.ErrTransient},
	} {
		if got, err := eventlog.Reach(tt.ends, 0); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, err, tt.want, tt.err)
		}
	}
}

// trimming is a topic of which more is deleted before each Open, up to a position.
type trimming struct {
	eventlog.Topic
	begin, until int64
	broken       bool // Open never succeeds
}

func (l *trimming) Beginning(int) (eventlog.Position, error) {
	if l.begin == 0 {
		return eventlog.Start, nil
	}
	return eventlog.Position{Ledger: l.begin, Batch: -1}, nil
}

func (l *trimming) Open(_ int, after eventlog.Position) (eventlog.Reader, error) {
	l.begin = min(l.begin+1, l.until)
	if begin, _ := l.Beginning(0); l.broken || after != begin {
		return nil, fmt.Errorf("after %v: %w", after, eventlog.ErrTrimmed)
	}
	return endless{}, nil
}

// TestOpenHeld: a topic opens where it begins, although messages are deleted after it said where that is. A topic
// that contradicts itself is no endless loop.
func TestOpenHeld(t *testing.T) {
	t.Parallel()
	for until := range int64(3) {
		want := eventlog.Position{Ledger: until, Batch: -1}
		if until == 0 {
			want = eventlog.Start
		}
		r, at, err := eventlog.OpenHeld(&trimming{until: until}, 0)
		if r == nil || at != want || err != nil {
			t.Errorf("deleted up to %d: opened at %v, %v; want %v", until, at, err, want)
		}
		if _, _, err := eventlog.OpenHeld(&trimming{until: until, broken: true}, 0); !errors.Is(err, eventlog.ErrTrimmed) {
			t.Errorf("broken: %v", err)
		}
	}
}
