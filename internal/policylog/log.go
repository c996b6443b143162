package policylog

import (
	"errors"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Log follows the policies log. It never waits, and must be used by a single goroutine. It remains usable after an
// error: the next call continues where the last one ended.
type Log struct {
	*Shared
	changed chan struct{} // nil: it has its Shared to itself
	again   rereader
}

// Open starts following a policies topic, with a reader of its own.
func Open(topic eventlog.Topic) (*Log, error) {
	l := &Log{Shared: newShared(topic)}
	if err := l.reopen(); err != nil {
		return nil, err
	}
	return l, nil
}

// Held returns the set of a generation. It is not ok if the log does not have the generation yet, or it has to be
// read again and has not arrived, or it is unusable.
func (l *Log) Held(n uint64) (set *policyfile.Set, ok bool, err error) {
	if n == 0 {
		return policyfile.Empty(), true, nil
	}
	newest, base := l.Newest()
	if n == newest {
		return base, true, nil
	}
	e, err := l.entry(n)
	if e == nil || err != nil {
		return nil, false, err
	}
	set, err = e.parse(e.content, base)
	return set, err == nil, err
}

// entry returns a generation with its text; nil: it is not here yet.
func (l *Log) entry(n uint64) (*Entry, error) {
	e, g := l.known(n)
	if e != nil || g.entry == nil || g.err != nil {
		return e, g.err
	}
	return l.again.entry(l.topic, n, &g)
}

// known returns what is known of a generation, with the text if that is kept.
func (l *Log) known(n uint64) (*Entry, generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case n > uint64(len(l.held)):
		return nil, generation{}
	case n == l.effective && l.held[n-1].err == nil:
		return l.text, l.held[n-1]
	}
	return nil, l.held[n-1]
}

// Rest closes what Held keeps open for the next generation.
func (l *Log) Rest() error { return l.again.close() }

// Changed signals new messages. It is nil after an error: call a reading method to find out.
func (l *Log) Changed() <-chan struct{} {
	switch {
	case l.again.reader != nil:
		return l.again.reader.Changed()
	case l.changed != nil:
		return l.changed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes()
}

// Close closes the reader, if it is not a shared one.
func (l *Log) Close() error {
	err := l.again.close()
	if l.changed == nil {
		return errors.Join(err, l.Shared.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.followers, l)
	return err
}
