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

// Position is the position of a message in its partition. Positions are ordered
// but not dense: Ledger, then Entry, then Batch (the message's index within
// the entry). In Pulsar they are message ids; filelog assigns its own.
type Position struct {
	Ledger, Entry int64
	Batch         int32
}

// Start is the position before every message: reading after it begins at the beginning.
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

// ParsePosition parses the form that String returns.
func ParsePosition(s string) (Position, error) {
	ledger, rest, _ := strings.Cut(s, ":")
	entry, batch, _ := strings.Cut(rest, ":")
	l, e1 := strconv.ParseInt(ledger, 10, 64)
	e, e2 := strconv.ParseInt(entry, 10, 64)
	b, e3 := strconv.ParseInt(batch, 10, 32)
	p := Position{Ledger: l, Entry: e, Batch: int32(b)}
	if e1 != nil || e2 != nil || e3 != nil || p.String() != s {
		return Position{}, fmt.Errorf("invalid position %q: use ledger:entry:batch, for example 12:345:6", s)
	}
	return p, nil
}

// Origin is the position and publish time of a message in the recording that it was
// fed from. Decisions use these instead of the message's own.
type Origin struct {
	Recording string // name of the recording; empty: the message was not fed
	Position  Position
	Publish   int64 // Unix nanoseconds
}

// Property is one application-defined pair of a message.
type Property struct{ Key, Value string }

// Message is one message of a partition. Its bytes are valid as long as the message
// is referenced, and must not be modified.
type Message struct {
	Position   Position // in this log
	Publish    int64    // Unix nanoseconds
	Key        string   // routing key; in events, the job set
	Payload    []byte
	Properties []Property
	Origin     Origin
}

// OriginPosition returns the position that records name: that of the origin, if the
// message was fed from a recording, else its own.
func (m *Message) OriginPosition() Position {
	if m.Origin.Recording != "" {
		return m.Origin.Position
	}
	return m.Position
}

// OriginPublish returns the publish time that decisions use: that of the origin, if the
// message was fed from a recording, else its own. In Unix nanoseconds.
func (m *Message) OriginPublish() int64 {
	if m.Origin.Recording != "" {
		return m.Origin.Publish
	}
	return m.Publish
}

// Error classes. An implementation wraps them with the position.
var (
	// ErrTransient: a retry may help (a connection was lost).
	ErrTransient = errors.New("log is unavailable")
	// ErrFull: a publisher has no room for more messages that are not durable yet; an ErrTransient.
	ErrFull = fmt.Errorf("%w for now: too much is on its way", ErrTransient)
	// ErrCorrupt: the log holds damaged data; continuing would skip it.
	ErrCorrupt = errors.New("log is corrupt")
	// ErrTrimmed: the log no longer holds the position.
	ErrTrimmed = errors.New("log no longer holds this position")
	// ErrFenced: another publisher took over the partition.
	ErrFenced = errors.New("publisher was fenced")
	// ErrLocked: another process writes this log.
	ErrLocked = errors.New("log is locked by another process")
	// ErrTooLarge: the log does not accept messages of that size.
	ErrTooLarge = errors.New("message is too large for the log")
)

// ReadBytes is how many bytes of payloads a Read returns before it stops: whoever reads
// in batches needs memory for the bytes that he wants, and not for the messages.
const ReadBytes = 4 << 20

// Reader reads one partition in order.
type Reader interface {
	// Read fills dst with the next durable messages and returns their number; it may stop
	// once they have ReadBytes, so fewer than len(dst) do not mean that the end was
	// reached. It never blocks: 0 without an error means the end. After an
	// ErrTransient it may be called again, and continues once the log is back; any
	// other error is permanent.
	Read(dst []Message) (int, error)
	// Changed returns a channel that receives (or is closed) when there may be
	// more to read since the last Read that returned 0. Spurious wake-ups are
	// allowed, missed ones are not.
	Changed() <-chan struct{}
	Close() error
}

// Release tells a reader that whoever reads needs nothing any more of what Reads returned so far: no payload.
// A reader that can uses their memory again.
func Release(r Reader) {
	if r, ok := r.(interface{ Release() }); ok {
		r.Release()
	}
}

// Publisher appends to one partition. Publish does not wait for durability: a
// message is effective when a Reader has returned it. An error does not mean that
// the message was not written. The payload may be retained until it is durable, and
// must not be modified afterwards. ErrFull is an exception: that message was not
// written, and can be published again.
type Publisher interface {
	Publish(payload []byte) error
	// Err returns why the publisher can publish no more (ErrFenced, ErrTransient), or nil.
	Err() error
	Close() error
}

// Topic is one partitioned topic.
type Topic interface {
	Partitions() int
	// Open reads partition p from the first message after the position.
	// It returns ErrTrimmed if the log no longer holds all messages after it. A log
	// that does not know what preceded its first message treats Start as the position
	// just before that message.
	Open(p int, after Position) (Reader, error)
	// End returns the position of the last durable message of partition p, or
	// Start if it holds none, even if it once did ([Reach]).
	End(p int) (Position, error)
	// Beginning returns the earliest position that Open accepts: Start if no message
	// ever preceded the first one held, else the position of the last message no longer
	// held. A log that cannot prove that there was no earlier message returns the
	// position just before its first message.
	Beginning(p int) (Position, error)
}
