package eventlog

import (
	"context"
	"errors"
	"fmt"
)

// Reach returns the position that a partition of a topic reaches: its end or, if it holds
// no message, its beginning, because what it held was deleted up to there. A topic that is
// not the one it was, or has lost its last messages, reaches less far than it once did; a
// topic without messages that cannot tell where it begins is taken for such a one.
func Reach(t Topic, p int) (Position, error) {
	end, err := t.End(p)
	if err != nil {
		return Position{}, fmt.Errorf("find the end: %w", err)
	}
	if end != Start {
		return end, nil
	}
	begin, err := t.Beginning(p)
	switch {
	case err == nil:
		return begin, nil
	case errors.Is(err, ErrTransient), errors.Is(err, context.Canceled):
		return Position{}, fmt.Errorf("find the beginning: %w", err)
	}
	return Start, nil
}

// OpenHeld opens a partition where it begins, and returns that position. A broker may delete messages between the
// two requests; then it is asked again.
func OpenHeld(t Topic, p int) (Reader, Position, error) {
	for last, again := Start, false; ; again = true {
		begin, err := t.Beginning(p)
		if err != nil {
			return nil, begin, err
		}
		r, err := t.Open(p, begin)
		if !errors.Is(err, ErrTrimmed) || again && begin == last {
			return r, begin, err
		}
		last = begin
	}
}
