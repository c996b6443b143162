package policylog

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Store changes the policies log. It is safe for concurrent use, also by several processes.
type Store struct {
	write func(ctx context.Context, payload []byte) error
	now   func() time.Time

	mu       sync.Mutex
	log      *Log
	seen     uint64 // generations that the fields below cover
	history  []*Version
	requests map[string]*Version // by the part of Entry.Request before #
	newest   Snapshot
}

// Version is an effective generation and its changes.
type Version struct {
	*Entry
	Changes []Change
	Err     error // why it is unusable
}

// Change is a generation's change of one resource.
type Change struct {
	policyfile.ID
	Op Op
}

// Op is what happened to a resource.
type Op string

// The operations.
const (
	Created Op = "created"
	Updated Op = "updated"
	Deleted Op = "deleted"
)

// Snapshot is the content of a generation. It is immutable.
type Snapshot struct {
	*Version                 // nil: generation 0
	Set      *policyfile.Set // the set that decides
	Unbraked *policyfile.Set // without overrides: the set that is edited
	// Since holds the generation that last changed each resource.
	Since map[policyfile.ID]uint64
}

// Generation returns the number of the generation.
func (s *Snapshot) Generation() uint64 {
	if s.Version == nil {
		return 0
	}
	return s.Number
}

// BrakesOn lists the active overrides.
func (s *Snapshot) BrakesOn() []Brake {
	if s.Version == nil {
		return nil
	}
	return s.Brakes
}

// Edit is a requested change.
type Edit struct {
	Author, Reason string
	// Request identifies the change, so that repeating it has no effect: an id, and after # a digest of the
	// request. Empty: none.
	Request string
	// Make derives the set and the overrides from the newest ones. It is called again after a concurrent change;
	// its error is returned by Do.
	Make func(Snapshot) (*policyfile.Set, []Brake, error)
}

var (
	// ErrUnknown reports that it is unknown whether a change was written. Repeating the same request finds out.
	ErrUnknown = errors.New("it is unknown whether the change was written: repeat the request with the same request id")
	// ErrRequestUsed reports that a request id was used for another change.
	ErrRequestUsed = errors.New("the request id was used for another change: choose a new one")
)

// OpenStore starts following a policies topic; write appends to it, durably.
func OpenStore(topic eventlog.Topic, write func(ctx context.Context, payload []byte) error, now func() time.Time) (*Store, error) {
	log, err := Open(topic)
	if err != nil {
		return nil, err
	}
	return &Store{
		write: write, now: now, log: log, requests: map[string]*Version{},
		newest: Snapshot{Set: policyfile.Empty(), Unbraked: policyfile.Empty()},
	}, nil
}

// Close closes the reader.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Close()
}

// Newest returns the newest usable generation, as of the end of the log at the time of the call.
func (s *Store) Newest(ctx context.Context) (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.sync(ctx)
	return s.newest, err
}

// At returns an effective and usable generation.
func (s *Store) At(ctx context.Context, generation uint64) (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sync(ctx); err != nil {
		return Snapshot{}, err
	}
	if generation == 0 {
		return Snapshot{Set: policyfile.Empty(), Unbraked: policyfile.Empty()}, nil
	}
	at, ok := slices.BinarySearchFunc(s.history, generation, func(v *Version, n uint64) int { return cmp.Compare(v.Number, n) })
	if !ok {
		return Snapshot{}, fmt.Errorf("%w: %d; the newest is %d", ErrNoGeneration, generation, s.newest.Generation())
	}
	v := s.history[at]
	snap := Snapshot{Version: v, Since: map[policyfile.ID]uint64{}}
	for _, before := range s.history[:at+1] {
		follow(snap.Since, before)
	}
	var err error
	snap.Set, snap.Unbraked, err = v.sets(s.newest.Set)
	return snap, err
}

// ErrNoGeneration reports that a generation does not exist, or is not effective.
var ErrNoGeneration = errors.New("generation does not exist")

// History lists the effective generations, newest first.
func (s *Store) History(ctx context.Context) ([]*Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.sync(ctx)
	all := slices.Clone(s.history)
	slices.Reverse(all)
	return all, err
}

// maxRaces is how often an edit is retried after concurrent changes.
const maxRaces = 100

// Outcome is the generation after a change.
type Outcome struct {
	*Version
	Made bool // this change made it; otherwise there was nothing to change
}

// Do makes a change: when it returns without error, the change is durable and effective.
func (s *Store) Do(ctx context.Context, e Edit) (Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	request := e.Request
	if request == "" {
		request = "-" + randomName()
	}
	for range maxRaces {
		if err := s.sync(ctx); err != nil {
			return Outcome{}, err
		}
		v, err := s.once(ctx, &e, request)
		if v != nil || err != nil {
			return Outcome{v, v != nil && v.Request == request}, err
		}
	}
	return Outcome{}, fmt.Errorf("superseded by %d concurrent changes: try again", maxRaces)
}

// once tries to make a change. It returns neither a version nor an error if a concurrent change superseded it.
func (s *Store) once(ctx context.Context, e *Edit, request string) (*Version, error) {
	if v, err := s.made(request); v != nil || err != nil {
		return v, err
	}
	if c := s.log.Counting(); c != nil && c.Number != s.newest.Generation() {
		return nil, fmt.Errorf("%w: this program does not understand generation %d: upgrade it", ErrUnusable, c.Number)
	}
	set, brakes, err := e.Make(s.newest)
	if err != nil {
		return nil, err
	}
	if set.Digest() == s.newest.Unbraked.Digest() && slices.Equal(brakes, s.newest.BrakesOn()) {
		if s.newest.Version == nil {
			return &Version{Entry: &Entry{Digest: set.Digest()}}, nil
		}
		return s.newest.Version, nil
	}
	madeOf := s.newest.Generation()
	payload, err := Encode(&Proposal{
		Set: set, Brakes: brakes, MadeOf: &madeOf, Author: e.Author, Reason: e.Reason, Request: request, Time: s.now().UnixNano(),
	})
	if err != nil {
		return nil, err
	}
	writeErr := s.write(ctx, payload)
	if err := s.sync(ctx); err != nil {
		return nil, errors.Join(ErrUnknown, writeErr, err)
	}
	if v, err := s.made(request); v != nil || err != nil {
		return v, err // whatever the error of the write
	}
	if writeErr != nil {
		return nil, errors.Join(ErrUnknown, writeErr)
	}
	return nil, nil
}

// made returns the generation that a request made; nil: none yet.
func (s *Store) made(request string) (*Version, error) {
	v := s.requests[nameOf(request)]
	if v != nil && v.Request != request {
		return nil, ErrRequestUsed
	}
	return v, nil
}

func nameOf(request string) string {
	name, _, _ := strings.Cut(request, "#")
	return name
}

func randomName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// sync reads to the end of the log.
func (s *Store) sync(ctx context.Context) error {
	for {
		if err := s.log.reopen(); err != nil {
			return err
		}
		changed := s.log.Changed()
		ended, err := s.log.AtEnd()
		if err != nil {
			return err
		}
		if ended {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("read the policies log to its end: %w", ctx.Err())
		}
	}
	for _, e := range s.log.Entries(s.seen) {
		s.seen = e.Number
		v := &Version{Entry: e}
		s.history = append(s.history, v)
		if e.Request != "" && s.requests[nameOf(e.Request)] == nil {
			s.requests[nameOf(e.Request)] = v
		}
		next := Snapshot{Version: v, Since: maps.Clone(s.newest.Since)}
		if next.Since == nil {
			next.Since = map[policyfile.ID]uint64{}
		}
		if next.Set, next.Unbraked, v.Err = e.sets(s.newest.Set); v.Err != nil {
			continue
		}
		v.Changes = Differences(s.newest.Unbraked, next.Unbraked)
		follow(next.Since, v)
		s.newest = next
	}
	return nil
}

// follow updates Since for a version.
func follow(since map[policyfile.ID]uint64, v *Version) {
	for _, c := range v.Changes {
		if c.Op == Deleted {
			delete(since, c.ID)
		} else {
			since[c.ID] = v.Number
		}
	}
}

// Differences lists the changes of resources from one set to another, in the order of policyfile.Kinds and names;
// deletions come last.
func Differences(from, to *policyfile.Set) []Change {
	var all []Change
	for _, id := range to.Resources() {
		now, _ := to.Body(id)
		switch before, was := from.Body(id); {
		case !was:
			all = append(all, Change{id, Created})
		case before != now:
			all = append(all, Change{id, Updated})
		}
	}
	for _, id := range from.Resources() {
		if _, is := to.Body(id); !is {
			all = append(all, Change{id, Deleted})
		}
	}
	return all
}
