package policylog

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Log follows the policies log. It never waits, and must be used by a single goroutine. It remains usable after an
// error: the next call continues where the last one ended.
type Log struct {
	// OnUnusable, if set, is called for each unusable generation.
	OnUnusable func(number uint64, err error)

	topic  eventlog.Topic
	reader eventlog.Reader   // nil: the last one returned an error
	at     eventlog.Position // of the last message read
	chunk  []eventlog.Message
	held   []generation // held[i] is generation i+1
	counts uint64       // the newest effective generation
	newest struct {     // the newest usable generation
		number uint64
		set    *policyfile.Set
		seen   uint64 // generations considered for it so far
	}
	newestOnly bool   // the text of the others is dropped
	dropped    uint64 // generations whose text was
}

type generation struct {
	entry *Entry // nil: the generation is not effective
	err   error  // why it is unusable
}

// Open starts following a policies topic.
func Open(topic eventlog.Topic) (*Log, error) {
	r, err := topic.Open(0, eventlog.Start)
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	l := &Log{topic: topic, reader: r, at: eventlog.Start, chunk: make([]eventlog.Message, 16)}
	l.newest.set = policyfile.Empty()
	return l, nil
}

// reopen replaces the reader after an error: a reader may keep returning an error long after its cause is gone.
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

// Refresh reads new messages.
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

// take records the next generation.
func (l *Log) take(payload []byte) {
	number := uint64(len(l.held)) + 1
	entry, madeOf, err := decode(payload, number)
	switch {
	case err != nil:
		l.unusable(number, err)
	case madeOf != nil && *madeOf != l.counts:
		entry, err = nil, fmt.Errorf("%w: it is based on generation %d, but generation %d was effective before it", ErrSuperseded, *madeOf, l.counts)
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

// AtEnd reads new messages, and reports whether it has read the whole log.
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

// Newest returns the newest usable generation; generation 0 is the empty set. It skips unusable generations, so
// that they stop nothing.
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
	if l.newestOnly {
		l.drop()
	}
	return l.newest.number, l.newest.set
}

// NewestOnly drops the text of all generations but the newest usable one, now and later: whoever needs only that one
// needs no memory for the history. Held reads the log again for any other.
func (l *Log) NewestOnly() {
	l.newestOnly = true
	l.Newest()
}

// drop drops the text of the generations that Newest has considered.
func (l *Log) drop() {
	for ; l.dropped < l.newest.seen; l.dropped++ {
		if e := l.held[l.dropped].entry; e != nil {
			e.content, e.base = nil, nil
		}
	}
}

// rewind lets the next Refresh read the log from its beginning, and keeps all of it.
func (l *Log) rewind() error {
	l.newestOnly, l.dropped, l.newest.seen, l.counts, l.held, l.at = false, 0, 0, 0, nil, eventlog.Start
	if l.reader == nil {
		return nil
	}
	err := l.reader.Close()
	l.reader = nil
	return err
}

// Held returns the set of a generation. It is not ok if the log does not have the generation yet, or it is
// unusable.
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
	if n <= l.dropped {
		return nil, false, l.rewind()
	}
	set, err = g.entry.parse(g.entry.content, l.newest.set)
	return set, err == nil, err
}

// Effective returns the newest effective generation, usable or not; nil if there is none.
func (l *Log) Effective() *Entry {
	if l.counts == 0 {
		return nil
	}
	return l.held[l.counts-1].entry
}

// Entries lists the effective generations after a number, oldest first.
func (l *Log) Entries(after uint64) []*Entry {
	var all []*Entry
	for n := after; n < uint64(len(l.held)); n++ {
		if e := l.held[n].entry; e != nil {
			all = append(all, e)
		}
	}
	return all
}

// Superseded reports whether a generation was superseded by a concurrent change.
func (l *Log) Superseded(n uint64) bool {
	return n > 0 && n <= uint64(len(l.held)) && errors.Is(l.held[n-1].err, ErrSuperseded)
}

// Changed signals new messages. It is nil after an error: call a reading method to find out.
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
