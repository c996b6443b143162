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
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Store changes the policies log. It is safe for concurrent use, also by several processes.
//
// No call outlasts its context: what hangs, a read or an append, is left behind and ends in the background. Reads
// do not wait for appends.
type Store struct {
	write func(ctx context.Context, payload []byte) error
	now   func() time.Time

	changing, overriding slot // held by the change that is being made
	reading              slot // guards the fields below
	log                  *Log
	seen                 uint64 // generations that the fields below cover
	history              []*Version
	requests             map[string]*Version // by the part of Entry.Request before #
	newest               Snapshot
	lent                 bool // newest.Since was returned, and must not change
}

// slot is a mutex that can be waited for until a context ends.
type slot chan struct{}

func (s slot) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for an operation on the policies log: %w", ctx.Err())
	}
}

func (s slot) release() { <-s }

// synced reads to the end of the log and then calls use with the store's fields guarded; use gets the error.
func synced[T any](ctx context.Context, s *Store, use func(error) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	if err := s.reading.acquire(ctx); err != nil {
		return *new(T), err
	}
	done := make(chan result, 1)
	go func() {
		defer s.reading.release()
		value, err := use(s.sync(ctx))
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return *new(T), fmt.Errorf("read policies to their end: %w", ctx.Err())
	}
}

// Version is an effective generation and its changes. Store.At reads its text.
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
	Base     *policyfile.Set // without overrides: the set that is edited
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

// ActiveOverrides lists the active overrides.
func (s *Snapshot) ActiveOverrides() []Override {
	if s.Version == nil {
		return nil
	}
	return s.Overrides
}

// Edit is a requested change.
type Edit struct {
	Author, Reason string
	// Request identifies the change, so that repeating it has no effect: an id, and after # a digest of the
	// request. Empty: none.
	Request string
	// Make derives the set and the overrides from the newest ones. It is called again after a concurrent change;
	// its error is returned by Do.
	Make func(Snapshot) (*policyfile.Set, []Override, error)
	// Urgent: the change does not wait for one that is being made and is not urgent.
	Urgent bool
}

var (
	// ErrUnknown reports that it is unknown whether a change was written. Repeating the same request finds out.
	ErrUnknown = errors.New("it is unknown whether the change was written: repeat the request with the same request id")
	// ErrRequestUsed reports that a request id was used for another change.
	ErrRequestUsed = errors.New("the request id was used for another change: choose a new one")
)

// OpenStore starts following a policies topic, with a reader of its own; write appends to it, durably.
func OpenStore(topic eventlog.Topic, write func(ctx context.Context, payload []byte) error, now func() time.Time) (*Store, error) {
	log, err := Open(topic)
	if err != nil {
		return nil, err
	}
	return NewStore(log, write, now), nil
}

// NewStore uses a Log, which belongs to the store from then on; write appends to its topic, durably.
func NewStore(log *Log, write func(ctx context.Context, payload []byte) error, now func() time.Time) *Store {
	return &Store{
		write: write, now: now, log: log, requests: map[string]*Version{},
		newest:   Snapshot{Set: policyfile.Empty(), Base: policyfile.Empty(), Since: map[policyfile.ID]uint64{}},
		changing: make(slot, 1), overriding: make(slot, 1), reading: make(slot, 1),
	}
}

// Close closes the reader.
func (s *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.reading.acquire(ctx); err != nil {
		return err
	}
	defer s.reading.release()
	return s.log.Close()
}

// closeTimeout bounds how long Close waits for a read that hangs.
const closeTimeout = 5 * time.Second

// Newest returns the newest usable generation, as of the end of the log at the time of the call.
func (s *Store) Newest(ctx context.Context) (Snapshot, error) {
	return synced(ctx, s, func(err error) (Snapshot, error) { return s.lend(), err })
}

// lend returns the newest generation to somebody who keeps it.
func (s *Store) lend() Snapshot {
	s.lent = true
	return s.newest
}

// At returns an effective and usable generation.
func (s *Store) At(ctx context.Context, generation uint64) (Snapshot, error) {
	if generation == 0 {
		return Snapshot{Set: policyfile.Empty(), Base: policyfile.Empty()}, nil
	}
	var text *Entry
	snap, err := synced(ctx, s, func(err error) (snap Snapshot, _ error) {
		if err != nil {
			return Snapshot{}, err
		}
		at, ok := slices.BinarySearchFunc(s.history, generation, func(v *Version, n uint64) int { return cmp.Compare(v.Number, n) })
		if !ok {
			return Snapshot{}, fmt.Errorf("%w: %d; the newest is %d", ErrNoGeneration, generation, s.newest.Generation())
		}
		if generation == s.newest.Generation() {
			return s.lend(), nil
		}
		snap = Snapshot{Version: s.history[at], Set: s.newest.Set, Since: map[policyfile.ID]uint64{}}
		for _, before := range s.history[:at+1] {
			follow(snap.Since, before)
		}
		text, err = s.entry(ctx, generation)
		return snap, errors.Join(err, s.log.Rest())
	})
	if err != nil || text == nil {
		return snap, err
	}
	snap.Set, snap.Base, err = text.sets(snap.Set)
	return snap, err
}

// entry reads an effective generation with its text.
func (s *Store) entry(ctx context.Context, generation uint64) (*Entry, error) {
	for {
		e, err := s.log.entry(generation)
		if e != nil || err != nil {
			return e, err
		}
		select {
		case <-s.log.Changed():
		case <-ctx.Done():
			return nil, fmt.Errorf("read policy generation %d: %w", generation, ctx.Err())
		}
	}
}

// ErrNoGeneration reports that a generation does not exist, or is not effective.
var ErrNoGeneration = errors.New("generation does not exist")

// History lists the effective generations, newest first.
func (s *Store) History(ctx context.Context) ([]*Version, error) {
	all, err := synced(ctx, s, func(err error) ([]*Version, error) { return slices.Clone(s.history), err })
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
	slot := s.changing
	if e.Urgent {
		slot = s.overriding
	}
	if err := slot.acquire(ctx); err != nil {
		return Outcome{}, err
	}
	a := &attempt{slot: slot, edit: &e, request: e.Request}
	defer a.end()
	if a.request == "" {
		a.request = "-" + randomName()
	}
	for range maxRaces {
		v, err := s.once(ctx, a)
		if v != nil || err != nil {
			return Outcome{v, v != nil && v.Request == a.request}, err
		}
	}
	return Outcome{}, fmt.Errorf("superseded by %d concurrent changes: try again", maxRaces)
}

// attempt is a change that is being made. Its slot is held until it ends, and until an append that it left behind ends.
type attempt struct {
	slot      slot
	edit      *Edit
	request   string
	abandoned <-chan struct{} // closed when the append that was left behind has ended; nil: no append was
}

func (a *attempt) end() {
	if a.abandoned == nil {
		a.slot.release()
		return
	}
	go func() {
		<-a.abandoned
		a.slot.release()
	}()
}

// append writes a message, and waits for that until the context ends.
func (s *Store) append(ctx context.Context, a *attempt, payload []byte) error {
	done, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		done <- s.write(ctx, payload)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		a.abandoned = ended
		return fmt.Errorf("write policies: %w", ctx.Err())
	}
}

// base is what a change is based on.
type base struct {
	newest Snapshot
	made   *Version // the change has been made before
}

// begin returns what a change is to be based on.
func (s *Store) begin(ctx context.Context, request string) (base, error) {
	return synced(ctx, s, func(err error) (base, error) {
		if err != nil {
			return base{}, err
		}
		if v, err := s.made(request); v != nil || err != nil {
			return base{made: v}, err
		}
		// Not what the log holds: another follower may have read on meanwhile.
		if n := len(s.history); n > 0 && s.history[n-1].Err != nil {
			return base{}, fmt.Errorf("%w: this program does not understand generation %d: upgrade it", ErrUnusable, s.history[n-1].Number)
		}
		return base{newest: s.lend()}, nil
	})
}

// once tries to make a change. It returns neither a version nor an error if a concurrent change superseded it.
func (s *Store) once(ctx context.Context, a *attempt) (*Version, error) {
	on, err := s.begin(ctx, a.request)
	if on.made != nil || err != nil {
		return on.made, err
	}
	set, overrides, err := a.edit.Make(on.newest)
	if err != nil {
		return nil, err
	}
	if set.Digest() == on.newest.Base.Digest() && slices.Equal(overrides, on.newest.ActiveOverrides()) {
		if on.newest.Version == nil {
			return &Version{Entry: &Entry{Digest: set.Digest()}}, nil
		}
		return on.newest.Version, nil
	}
	madeOf := on.newest.Generation()
	payload, err := Encode(&Proposal{
		Set: set, Overrides: overrides, MadeOf: &madeOf, Author: a.edit.Author, Reason: a.edit.Reason, Request: a.request, Time: s.now().UnixNano(),
	})
	if err != nil {
		return nil, err
	}
	writeErr := s.append(ctx, a, payload)
	v, err := synced(ctx, s, func(err error) (*Version, error) {
		if err != nil {
			return nil, err
		}
		return s.made(a.request)
	})
	switch {
	case v != nil, errors.Is(err, ErrRequestUsed):
		return v, err // whatever the error of the write
	case err != nil, writeErr != nil:
		return nil, errors.Join(ErrUnknown, writeErr, err)
	}
	return nil, nil
}

// made returns the generation that a request made; nil: it made no generation yet.
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
		ended, err := s.log.AtEnd()
		if err != nil {
			return err
		}
		if ended {
			break
		}
		select {
		case <-s.log.Changed():
		case <-ctx.Done():
			return fmt.Errorf("read the policies log to its end: %w", ctx.Err())
		}
	}
	for _, e := range s.log.Entries(s.seen) {
		if err := s.add(ctx, e); err != nil {
			return err
		}
	}
	return s.log.Rest()
}

// add adds a generation to the history.
func (s *Store) add(ctx context.Context, e *Entry) error {
	v := &Version{Entry: e}
	next := Snapshot{Version: v, Since: s.newest.Since}
	if next.Set, next.Base, v.Err = s.setsOf(ctx, e.Number); v.Err != nil && !errors.Is(v.Err, ErrUnusable) {
		return v.Err
	}
	s.seen, s.history = e.Number, append(s.history, v)
	if e.Request != "" && s.requests[nameOf(e.Request)] == nil {
		s.requests[nameOf(e.Request)] = v
	}
	if v.Err != nil {
		return nil
	}
	v.Changes = Differences(s.newest.Base, next.Base)
	for i := range v.Changes { // a name that is part of a text would keep all of it
		v.Changes[i].Name = strings.Clone(v.Changes[i].Name)
	}
	if s.lent && len(v.Changes) > 0 {
		next.Since, s.lent = maps.Clone(next.Since), false
	}
	follow(next.Since, v)
	s.newest = next
	return nil
}

// setsOf returns the sets of a generation; for the newest one, the set that the log has.
func (s *Store) setsOf(ctx context.Context, generation uint64) (set, base *policyfile.Set, err error) {
	e, err := s.entry(ctx, generation)
	if err != nil {
		return nil, nil, err
	}
	held := s.newest.Set
	if n, set := s.log.Newest(); n == generation {
		held = set
	}
	return e.sets(held)
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
