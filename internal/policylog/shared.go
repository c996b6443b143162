package policylog

import (
	"errors"
	"fmt"
	"sync"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Shared is what all followers of the policies log in a process have in common: one reader, and one policy set. Of every
// generation it keeps who made it, when and why; it keeps the text of the newest effective one only, and reads any
// other again when someone asks for it. It is safe for concurrent use, and never waits for messages.
type Shared struct {
	// OnUnusable, if set, is called for each unusable generation, with the Shared locked.
	OnUnusable func(number uint64, err error)

	topic  eventlog.Topic
	ended  chan struct{} // closed by Close
	wakers sync.WaitGroup

	mu        sync.Mutex        // guards the fields below
	reader    eventlog.Reader   // nil: not opened yet, or the last one returned an error
	renewed   chan struct{}     // receives when reader or again has another channel
	at        eventlog.Position // of the last message read
	chunk     []eventlog.Message
	held      []generation // held[i] is generation i+1
	effective uint64       // the newest effective generation
	text      *Entry       // that generation with its text
	newest    struct {     // the newest usable generation
		number uint64
		set    *policyfile.Set
		seen   uint64 // generations considered for it so far
	}
	again     rereader // of effective generations that precede an unusable one
	failed    error    // of again, until it was returned
	followers map[*Log]struct{}
}

type generation struct {
	entry *Entry // without its text; nil: the generation is not effective
	err   error  // why it is unusable
	after eventlog.Position
}

// NewShared follows a policies topic, which it opens when it is first read.
func NewShared(topic eventlog.Topic) *Shared {
	s := newShared(topic)
	s.wakers.Go(s.wake)
	return s
}

func newShared(topic eventlog.Topic) *Shared {
	s := &Shared{
		topic: topic, at: eventlog.Start, chunk: make([]eventlog.Message, 16),
		ended: make(chan struct{}), renewed: make(chan struct{}, 1), followers: map[*Log]struct{}{},
	}
	s.newest.set = policyfile.Empty()
	return s
}

// Follow returns a Log that has its reader in common with the others. It must be closed before the Shared.
func (s *Shared) Follow() *Log {
	l := &Log{Shared: s, changed: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers[l] = struct{}{}
	return l
}

// wake wakes all followers when the one reader has something new, until Close.
func (s *Shared) wake() {
	for {
		s.mu.Lock()
		changed := s.changes()
		s.mu.Unlock()
		select {
		case <-changed:
			s.mu.Lock()
			s.wakeAll()
			s.mu.Unlock()
		case <-s.renewed:
		case <-s.ended:
			return
		}
	}
}

func (s *Shared) wakeAll() {
	for l := range s.followers {
		signal(l.changed)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changes returns the channel that announces what the next call can read.
func (s *Shared) changes() <-chan struct{} {
	switch {
	case s.again.reader != nil:
		return s.again.reader.Changed()
	case s.reader != nil:
		return s.reader.Changed()
	}
	return nil
}

// Close closes the reader.
func (s *Shared) Close() error {
	s.mu.Lock()
	r := s.reader
	s.reader = nil
	err := s.again.close()
	s.mu.Unlock()
	close(s.ended)
	s.wakers.Wait()
	if r == nil {
		return err
	}
	return errors.Join(err, r.Close())
}

// reopen opens the reader, also after an error: a reader may keep returning an error long after its cause is gone.
func (s *Shared) reopen() error {
	if s.reader != nil {
		return nil
	}
	r, err := s.topic.Open(0, s.at)
	if err != nil {
		return fmt.Errorf("read policies: %w", err)
	}
	s.reader = r
	signal(s.renewed)
	return nil
}

// Refresh reads new messages.
func (s *Shared) Refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refresh()
}

func (s *Shared) refresh() error {
	if err := s.failed; err != nil {
		s.failed = nil
		return err
	}
	if err := s.reopen(); err != nil {
		return err
	}
	var u unpacker
	defer u.close()
	defer clear(s.chunk)
	for {
		n, err := s.reader.Read(s.chunk)
		if err != nil {
			err = errors.Join(fmt.Errorf("read policies: %w", err), s.reader.Close())
			s.reader = nil
			s.wakeAll() // each finds out by itself
			return err
		}
		if n == 0 {
			return nil
		}
		for i := range s.chunk[:n] {
			s.take(s.chunk[i].Payload, &u)
			s.at = s.chunk[i].Position
		}
	}
}

// take records the next generation.
func (s *Shared) take(payload []byte, u *unpacker) {
	number := uint64(len(s.held)) + 1
	g := generation{after: s.at}
	entry, madeOf, err := decode(payload, number, u)
	switch {
	case err != nil:
		g.err = err
		s.unusable(number, err)
	case madeOf != nil && *madeOf != s.effective:
		g.err = fmt.Errorf("%w: it is based on generation %d, but generation %d was effective before it", ErrSuperseded, *madeOf, s.effective)
	default:
		s.effective, s.text, g.entry = number, entry, entry.withoutText()
	}
	s.held = append(s.held, g)
}

func (s *Shared) unusable(number uint64, err error) {
	if s.OnUnusable != nil {
		s.OnUnusable(number, err)
	}
}

// AtEnd reads new messages, and reports whether it has read the whole log and knows its newest usable generation.
func (s *Shared) AtEnd() (bool, error) {
	end, err := s.topic.End(0)
	if err != nil {
		return false, fmt.Errorf("find the end of policies: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(); err != nil || s.at.Compare(end) < 0 {
		return false, err
	}
	return s.settle()
}

// Newest returns the newest usable generation that is known; generation 0 is the empty set. It skips unusable
// generations, so that they stop nothing.
func (s *Shared) Newest() (uint64, *policyfile.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, s.failed = s.settle()
	return s.newest.number, s.newest.set
}

// settle finds the newest usable generation. It is not ok if one has to be read again, and has not arrived yet.
func (s *Shared) settle() (ok bool, err error) {
	for n := uint64(len(s.held)); n > s.newest.seen; n-- {
		g := &s.held[n-1]
		if g.entry == nil || g.err != nil {
			continue
		}
		text := s.text
		if n != s.effective {
			if text, err = s.again.entry(s.topic, n, g); text == nil || err != nil {
				signal(s.renewed)
				return false, err
			}
		}
		set, err := text.parse(text.content, s.newest.set)
		if err == nil {
			s.newest.number, s.newest.set = n, set
			break
		}
		g.err = err
		s.unusable(n, err)
	}
	s.newest.seen = uint64(len(s.held))
	return true, s.again.close()
}

// Entries lists the effective generations after a number, oldest first.
func (s *Shared) Entries(after uint64) []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Entry
	for n := after; n < uint64(len(s.held)); n++ {
		if e := s.held[n].entry; e != nil {
			all = append(all, e)
		}
	}
	return all
}

// Superseded reports whether a generation was superseded by a concurrent change.
func (s *Shared) Superseded(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return n > 0 && n <= uint64(len(s.held)) && errors.Is(s.held[n-1].err, ErrSuperseded)
}

// rereader reads generations again, without waiting.
type rereader struct {
	reader eventlog.Reader // nil: not open
	next   uint64          // the generation that it returns next
}

// skipped is how many generations a rereader reads and drops, rather than being opened again.
const skipped = 16

// entry returns a generation with its text; nil: it has not arrived yet.
func (r *rereader) entry(topic eventlog.Topic, n uint64, g *generation) (*Entry, error) {
	if r.reader != nil && (n < r.next || n-r.next > skipped) {
		if err := r.close(); err != nil {
			return nil, err
		}
	}
	if r.reader == nil {
		reader, err := topic.Open(0, g.after)
		if err != nil {
			return nil, fmt.Errorf("read policy generation %d again: %w", n, err)
		}
		r.reader, r.next = reader, n
	}
	var one [1]eventlog.Message
	for r.next <= n {
		k, err := r.reader.Read(one[:])
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read policy generation %d again: %w", n, err), r.close())
		}
		if k == 0 {
			return nil, nil
		}
		r.next++
	}
	var u unpacker
	defer u.close()
	e, _, err := decode(one[0].Payload, n, &u)
	if err == nil && e.Digest != g.entry.Digest {
		err = fmt.Errorf("policy generation %d is another one than when it was first read: %w", n, eventlog.ErrCorrupt)
	}
	return e, err
}

func (r *rereader) close() error {
	if r.reader == nil {
		return nil
	}
	reader := r.reader
	r.reader = nil
	return reader.Close()
}
