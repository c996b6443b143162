package policylog

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Log follows the policies log. It never waits, and is used by one goroutine. After
// an error it may be used on: the next call reads on where the last one ended.
type Log struct {
	// OnUnusable, if set, is told of each generation that cannot be used.
	OnUnusable func(number uint64, err error)

	topic  eventlog.Topic
	reader eventlog.Reader   // nil: the last one met an error
	at     eventlog.Position // of the last message read
	chunk  []eventlog.Message
	held   []generation // held[i] is generation i+1
	counts uint64       // the newest generation that counts
	newest struct {     // the newest that can be used
		number uint64
		set    *policyfile.Set
		seen   uint64 // generations that were looked at for it
	}
}

type generation struct {
	entry *Entry // nil: it does not count
	err   error  // it cannot be used, and why
}

// Open begins to follow a policies topic.
func Open(topic eventlog.Topic) (*Log, error) {
	r, err := topic.Open(0, eventlog.Start)
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	l := &Log{topic: topic, reader: r, at: eventlog.Start, chunk: make([]eventlog.Message, 16)}
	l.newest.set = policyfile.Empty()
	return l, nil
}

// reopen gives the log a reader again after an error: a reader may keep its error
// for good, long after what caused it is over.
func (l *Log) reopen() error {
	if l.reader != nil {
		return nil
	}
	r, err := l.topic.Open(0, l.at)
	if err != nil {
		return fmt.Errorf("read policies: %w", err)
	}
	l.reader = r
	return nil
}

// Refresh reads what has come.
func (l *Log) Refresh() error {
	if err := l.reopen(); err != nil {
		return err
	}
	for {
		n, err := l.reader.Read(l.chunk)
		if err != nil {
			err = errors.Join(fmt.Errorf("read policies: %w", err), l.reader.Close())
			l.reader = nil
			return err
		}
		if n == 0 {
			return nil
		}
		l.at = l.chunk[n-1].Position
		for i := range l.chunk[:n] {
			l.take(l.chunk[i].Payload)
		}
	}
}

// take holds the next generation.
func (l *Log) take(payload []byte) {
	number := uint64(len(l.held)) + 1
	entry, madeOf, err := decode(payload, number)
	switch {
	case err != nil:
		l.unusable(number, err)
	case madeOf != nil && *madeOf != l.counts:
		entry, err = nil, fmt.Errorf("%w: it was made of generation %d, and %d came before it", ErrOutrun, *madeOf, l.counts)
	default:
		l.counts = number
	}
	l.held = append(l.held, generation{entry, err})
}

func (l *Log) unusable(number uint64, err error) {
	if l.OnUnusable != nil {
		l.OnUnusable(number, err)
	}
}

// AtEnd reads what has come, and says whether that is all that the log holds.
func (l *Log) AtEnd() (bool, error) {
	end, err := l.topic.End(0)
	if err != nil {
		return false, fmt.Errorf("find the end of policies: %w", err)
	}
	if err := l.Refresh(); err != nil {
		return false, err
	}
	return l.at.Compare(end) >= 0, nil
}

// Newest is the newest generation that can be used; generation 0 is the empty
// set. One that cannot be used is passed over, so that it stops nothing.
func (l *Log) Newest() (uint64, *policyfile.Set) {
	for n := uint64(len(l.held)); n > l.newest.seen; n-- {
		g := &l.held[n-1]
		if g.entry == nil || g.err != nil {
			continue
		}
		set, err := g.entry.parse(g.entry.content, l.newest.set)
		if err == nil {
			l.newest.number, l.newest.set = n, set
			break
		}
		g.err = err
		l.unusable(n, err)
	}
	l.newest.seen = uint64(len(l.held))
	return l.newest.number, l.newest.set
}

// Held returns the set of a generation. It is not ok while the log does not hold it
// yet, or where it cannot be used.
func (l *Log) Held(n uint64) (set *policyfile.Set, ok bool, err error) {
	switch {
	case n == 0:
		return policyfile.Empty(), true, nil
	case n > uint64(len(l.held)):
		return nil, false, nil
	case n == l.newest.number:
		return l.newest.set, true, nil
	}
	g := l.held[n-1]
	if g.err != nil {
		return nil, false, g.err
	}
	set, err = g.entry.parse(g.entry.content, l.newest.set)
	return set, err == nil, err
}

// Counting is the newest generation that counts, whether it can be used or not;
// nil: the log has none.
func (l *Log) Counting() *Entry {
	if l.counts == 0 {
		return nil
	}
	return l.held[l.counts-1].entry
}

// Entries lists the generations that count and come after a number, oldest first.
func (l *Log) Entries(after uint64) []*Entry {
	var all []*Entry
	for n := after; n < uint64(len(l.held)); n++ {
		if e := l.held[n].entry; e != nil {
			all = append(all, e)
		}
	}
	return all
}

// Outrun says whether a generation came too late to count.
func (l *Log) Outrun(n uint64) bool {
	return n > 0 && n <= uint64(len(l.held)) && errors.Is(l.held[n-1].err, ErrOutrun)
}

// Changed announces more to read. It is nil after an error: then the next call
// that reads shows whether there is more.
func (l *Log) Changed() <-chan struct{} {
	if l.reader == nil {
		return nil
	}
	return l.reader.Changed()
}

// Close closes the reader.
func (l *Log) Close() error {
	if l.reader == nil {
		return nil
	}
	return l.reader.Close()
}
