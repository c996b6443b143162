package policylog_test

import (
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

func (w *world) propose(set *policyfile.Set) {
	w.Helper()
	payload, err := policylog.Encode(&policylog.Proposal{Set: set})
	if err == nil {
		err = w.append(w.Context(), payload)
	}
	if err != nil {
		w.Fatal(err)
	}
}

func emptyWith(t *testing.T, queue string) *policyfile.Set {
	t.Helper()
	set, _, err := policyfile.Empty().With(policyfile.File{Name: "test", Data: []byte("{kind: Queue, name: " + queue + "}")})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// One message wakes every follower of a process, though they have one reader, and whoever reads it first.
func TestSharedWakesAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shared := policylog.NewShared(w.log)
	defer shared.Close()
	logs := []*policylog.Log{shared.Follow(), shared.Follow(), shared.Follow()}
	if err := logs[0].Refresh(); err != nil { // opens the reader
		t.Fatal(err)
	}
	for n := range uint64(3) {
		w.propose(emptyWith(t, string(rune('a'+n))))
		for i, log := range logs { // the first one reads it, and the others are woken nevertheless
			for limit, woken := time.After(time.Minute), false; !woken; {
				select {
				case <-log.Changed():
				case <-limit:
					t.Fatalf("follower %d was not woken for generation %d", i, n+1)
				}
				if err := log.Refresh(); err != nil {
					t.Fatal(err)
				}
				got, _ := log.Newest()
				woken = got == n+1
			}
		}
	}
	for _, log := range logs {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

// If the newest generations are unusable, the one before them is read again, though its text was dropped.
func TestUnusableAfterMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	set := emptyWith(t, "a")
	w.propose(set)
	for n := range uint64(20) { // more than are read at a time
		if err := w.append(t.Context(), foreign(t, n+1)); err != nil {
			t.Fatal(err)
		}
	}
	log, err := policylog.Open(w.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	reported := 0
	log.OnUnusable = func(uint64, error) { reported++ }
	if ended, err := log.AtEnd(); !ended || err != nil {
		t.Fatalf("AtEnd = %t, %v", ended, err)
	}
	if n, got := log.Newest(); n != 1 || got.Digest() != set.Digest() || reported != 20 {
		t.Errorf("the newest usable generation is %d, and %d unusable ones were reported", n, reported)
	}
}

// A change is made though another follower of the process reads on while it is being prepared: what is wrong with it is
// that it is superseded, and it is tried again.
func TestChangeWhileOthersRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.propose(emptyWith(t, name))
	}
	topic := &reopened{Topic: w.log}
	shared := policylog.NewShared(topic)
	defer shared.Close()
	other := shared.Follow()
	defer other.Close()
	store := policylog.NewStore(shared.Follow(), w.append, time.Now)
	defer store.Close()
	topic.again = func() { // generation 1 is read again: generation 2 was the newest when the store read to the end
		w.propose(emptyWith(t, "c"))
		if err := other.Refresh(); err != nil {
			t.Error(err)
		}
	}
	v, err := store.Do(t.Context(), policylog.Edit{Make: putting("d", "")})
	if err != nil || !v.Made {
		t.Fatalf("Do = %v, %v", v, err)
	}
	now, err := store.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"c", "d"} {
		if _, ok := now.Set.Body(queue(name)); !ok {
			t.Errorf("generation %d has no queue %s", now.Generation(), name)
		}
	}
	if topic.opened < 2 {
		t.Error("no generation was read again")
	}
}

// reopened is a topic that calls again once, when it is opened for the second time.
type reopened struct {
	eventlog.Topic
	opened int
	again  func()
}

func (r *reopened) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	if r.opened++; r.opened == 2 {
		r.again()
	}
	return r.Topic.Open(p, after)
}
