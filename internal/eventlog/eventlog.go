// Package eventlog is Refloat's interface to a log: partitions of messages in one
// order, read by exact position and appended at the end.
//
// It has two implementations: filelog (segment files on one machine) and pulsarlog
// (Apache Pulsar). logtest is the test suite that both must pass.
//
// Invariant: a reader sees only durable messages, each once per reader, in log order,
// and never skips one silently.
package eventlog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Position is where a message stands in its partition. Positions are ordered
// but not dense: Ledger, then Entry, then Batch (the message's index within
// the entry). They are Pulsar's message ids; filelog numbers its own.
type Position struct {
	Ledger, Entry int64
	Batch         int32
}

// Start is before every message: reading after it begins at the beginning.
var Start = Position{Ledger: -1, Entry: -1, Batch: -1}

// Compare orders positions of one partition: -1, 0 or +1.
func (p Position) Compare(q Position) int {
	switch {
	case p.Ledger != q.Ledger:
		return sign(p.Ledger < q.Ledger)
	case p.Entry != q.Entry:
		return sign(p.Entry < q.Entry)
	case p.Batch != q.Batch:
		return sign(p.Batch < q.Batch)
	}
	return 0
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}

// String renders the position as Pulsar's tools do: ledger:entry:batch.
func (p Position) String() string {
	b := strconv.AppendInt(make([]byte, 0, 32), p.Ledger, 10)
	b = strconv.AppendInt(append(b, ':'), p.Entry, 10)
	b = strconv.AppendInt(append(b, ':'), int64(p.Batch), 10)
	return string(b)
}

// ParsePosition reads what String renders.
func ParsePosition(s string) (Position, error) {
	ledger, rest, _ := strings.Cut(s, ":")
	entry, batch, _ := strings.Cut(rest, ":")
	l, e1 := strconv.ParseInt(ledger, 10, 64)
	e, e2 := strconv.ParseInt(entry, 10, 64)
	b, e3 := strconv.ParseInt(batch, 10, 32)
	p := Position{Ledger: l, Entry: e, Batch: int32(b)}
	if e1 != nil || e2 != nil || e3 != nil || p.String() != s {
		return Position{}, fmt.Errorf("%q is no position: give ledger:entry:batch, as 12:345:6", s)
	}
	return p, nil
}

// Origin is where a message stood in the recording that it was fed from. There,
// its position and publish time are the ones meant by SEMANTICS.
type Origin struct {
	Recording string // name of the recording; empty: the message was not fed
	Position  Position
	Publish   int64 // Unix nanoseconds
}

// Property is one application-defined pair of a message.
type Property struct{ Key, Value string }

// Message is one message of a partition. Its bytes are valid for as long as
// the message is referenced and must not be written to.
type Message struct {
	Position   Position // where it stands in this log
	Publish    int64    // Unix nanoseconds
	Key        string   // routing key; in events, the job set
	Payload    []byte
	Properties []Property
	Origin     Origin
}

// Meant is the position that SEMANTICS means: the origin's, if the message
// was fed from a recording, else its own.
func (m *Message) Meant() Position {
	if m.Origin.Recording != "" {
		return m.Origin.Position
	}
	return m.Position
}

// MeantPublish is the publish time that SEMANTICS means, in Unix nanoseconds.
func (m *Message) MeantPublish() int64 {
	if m.Origin.Recording != "" {
		return m.Origin.Publish
	}
	return m.Publish
}

// Errors by class. An implementation wraps them with the place.
var (
	// ErrTransient: trying again may help (a connection was lost).
	ErrTransient = errors.New("log is not reachable now")
	// ErrCorrupt: what the log holds is damaged; reading on would skip it.
	ErrCorrupt = errors.New("log is corrupt")
	// ErrTrimmed: the position is before the beginning of what the log still holds.
	ErrTrimmed = errors.New("log no longer holds this position")
	// ErrFenced: someone else took the right to publish.
	ErrFenced = errors.New("publisher was fenced")
	// ErrLocked: another process writes this log.
	ErrLocked = errors.New("log is locked by another process")
	// ErrTooLarge: the log takes no message of that size.
	ErrTooLarge = errors.New("message is too large for the log")
)

// Reader reads one partition in order.
type Reader interface {
	// Read fills dst with the next durable messages and returns how many. It
	// never waits: 0 and no error mean that the end was reached. After an error of
	// class ErrTransient it may be called again, and reads on once the log is back;
	// any other error stays.
	Read(dst []Message) (int, error)
	// Changed returns a channel that receives (or is closed) when there may be
	// more to read since the last Read that returned 0. Spurious wake-ups are
	// allowed, missed ones are not.
	Changed() <-chan struct{}
	Close() error
}

// Publisher appends to one partition. Publish never waits for durability: the
// message counts when a Reader has returned it. An error does not mean that
// the message was not written. The payload may be kept until it is durable; its
// bytes must not be changed after.
type Publisher interface {
	Publish(payload []byte) error
	// Err is why the publisher can publish no more (ErrFenced, ErrTransient), or nil.
	Err() error
	Close() error
}

// Topic is one partitioned topic.
type Topic interface {
	Partitions() int
	// Open reads partition p from the first message after the position.
	// It returns ErrTrimmed when messages between are no longer held. A log that
	// cannot tell what stood before its first message takes Start for before that.
	Open(p int, after Position) (Reader, error)
	// End is the position of the last durable message of partition p, or
	// Start when it is empty.
	End(p int) (Position, error)
	// Beginning is the earliest position that Open accepts: Start when nothing
	// was ever before the first message held, else that of the last message no
	// longer held. A log that cannot prove that nothing was there names the
	// position before its first message.
	Beginning(p int) (Position, error)
}
