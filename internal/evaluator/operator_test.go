package evaluator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/test/model"
)

// changed is events after something was done to it.
type changed struct {
	eventlog.Topic
	begin      eventlog.Position // messages up to here are gone
	partitions int
}

func (c changed) Partitions() int { return c.partitions }

func (c changed) Beginning(int) (eventlog.Position, error) { return c.begin, nil }

// Open cannot tell what stood before its first message, as Pulsar cannot.
func (c changed) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	if after == eventlog.Start {
		after = c.begin
	}
	if after.Compare(c.begin) < 0 {
		return nil, eventlog.ErrTrimmed
	}
	return c.Topic.Open(p, after)
}

// owned runs an owner on changed events until it has nothing to do.
func (m *machine) owned(events eventlog.Topic, c evaluator.Config) error {
	policies, err := policylog.Open(m.w.policies)
	if err != nil {
		return err
	}
	c.Store, c.Events, c.Decisions, c.Policies, c.Random = m.cfg.Store, events, m.w.decisions, policies, seeded{m.w.rng}
	if c.Publisher == nil {
		c.Publisher = m.w.decisions.Publisher(0)
	}
	m.owner = evaluator.NewOwner(c)
	return m.drain()
}

// ownedOn runs an owner on a changed decision log until it has nothing to do.
func (m *machine) ownedOn(decisions eventlog.Topic) error {
	policies, err := policylog.Open(m.w.policies)
	if err != nil {
		return err
	}
	c := m.cfg
	c.Events, c.Decisions, c.Policies, c.Random = m.w.events, decisions, policies, seeded{m.w.rng}
	c.Publisher = m.w.decisions.Publisher(0)
	m.owner = evaluator.NewOwner(c)
	return m.drain()
}

// positions are those of all events.
func (w *world) positions() []eventlog.Position {
	w.t.Helper()
	r, err := w.events.Open(0, eventlog.Start)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []eventlog.Position
	for buf := make([]eventlog.Message, 10); ; {
		n, err := r.Read(buf)
		if err != nil {
			w.t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		for _, m := range buf[:n] {
			all = append(all, m.Position)
		}
	}
}

func someHistory(t *testing.T, messages int) model.History {
	t.Helper()
	for seed := uint64(1); ; seed++ {
		if h := model.Generate(seed, model.Options{}); len(h.Messages) >= messages {
			return h
		}
	}
}

// TestAcceptHistory: where events do not reach back, an operator must say where to
// go on, and that stands in the chain.
func TestAcceptHistory(t *testing.T) {
	t.Parallel()
	h := someHistory(t, 30)
	for _, answered := range []int{0, 10} { // by a chain, before the rest is gone
		w := newWorld(t, 1)
		w.publish(h.YAML())
		w.append(h.Messages[:answered])
		m := w.start("state", evaluator.Config{})
		if answered > 0 {
			if err := m.drain(); err != nil {
				t.Fatal(err)
			}
		}
		w.append(h.Messages[answered:])
		at := w.positions()
		cut := changed{Topic: w.events, begin: at[20], partitions: 1}
		claims := w.claims()
		err := m.owned(cut, evaluator.Config{})
		if !errors.Is(err, evaluator.ErrHistory) || !strings.Contains(err.Error(), "--accept-history-from") {
			t.Fatalf("%d answered: %v, want ErrHistory with what to do", answered, err)
		}
		if n := w.claims(); n != claims {
			t.Fatalf("%d answered: refused, but claimed", answered)
		}
		early := at[15]
		if err := m.owned(cut, evaluator.Config{AcceptHistory: &early}); !errors.Is(err, evaluator.ErrHistory) {
			t.Fatalf("%d answered: a position that is gone: %v, want ErrHistory", answered, err)
		}
		from := []eventlog.Position{eventlog.Start, at[22]}[answered/10]
		if err := m.owned(cut, evaluator.Config{AcceptHistory: &from, AcceptedBy: "olga"}); err != nil {
			t.Fatalf("%d answered, accepted from %v: %v", answered, from, err)
		}
		v, err := audit.Verify(context.Background(), audit.Logs{Events: cut, Decisions: w.decisions, Policies: w.policies}, 0)
		if answered == 0 {
			if want := uint64(len(at) - 21); err != nil || v.Messages != want || v.Waiting != 0 {
				t.Fatalf("Verify = %+v, %v; want %d messages", v, err, want)
			}
		} else if !errors.Is(err, chain.ErrMissing) && !errors.Is(err, eventlog.ErrTrimmed) {
			t.Fatalf("Verify over events that are gone = %v", err)
		}
		if got := w.acceptances(); !slices.Equal(got, []string{"olga"}) {
			t.Fatalf("%d answered: the chain says that %q accepted", answered, got)
		}
		// It is said once: the next owner needs no word.
		if err := m.owned(cut, evaluator.Config{}); err != nil {
			t.Fatalf("%d answered: next owner: %v", answered, err)
		}
		// Whoever starts from nothing, with the word, goes the way that the chain says.
		if answered == 0 {
			again := w.start("other", evaluator.Config{})
			if err := again.owned(cut, evaluator.Config{}); err != nil {
				t.Fatalf("from nothing: %v", err)
			}
			again.stop()
		}
		m.stop()
	}
}

// nothingLeft is events of which nothing is left. As Pulsar does, it tells from where its next
// message will be, but not where its last one was.
type nothingLeft struct {
	eventlog.Topic                   // holds nothing
	begin          eventlog.Position // everything up to here is gone
}

func (e nothingLeft) Beginning(int) (eventlog.Position, error) { return e.begin, nil }

func (e nothingLeft) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	if after != eventlog.Start && after.Compare(e.begin) < 0 {
		return nil, eventlog.ErrTrimmed
	}
	return e.Topic.Open(p, eventlog.Start)
}

// TestAcceptEmptied: events that are all gone can be accepted as those of which some are
// left, whether the next one has been published yet or not.
func TestAcceptEmptied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	h := someHistory(t, 10)
	w.publish(h.YAML())
	w.append(h.Messages)
	m := w.start("state", evaluator.Config{})
	if err := m.drain(); err != nil {
		t.Fatal(err)
	}
	end, err := w.events.End(0)
	if err != nil {
		t.Fatal(err)
	}
	gone := nothingLeft{w.openLog("emptied"), eventlog.Position{Ledger: end.Ledger + 1, Entry: -1, Batch: -1}}
	claims := w.claims()
	err = m.owned(gone, evaluator.Config{})
	if !errors.Is(err, evaluator.ErrHistory) || !strings.Contains(err.Error(), "--accept-history-from") {
		t.Fatalf("%v, want ErrHistory with what to do", err)
	}
	if n := w.claims(); n != claims {
		t.Fatal("refused, but claimed")
	}
	from := eventlog.Start
	for _, c := range []evaluator.Config{{AcceptHistory: &from, AcceptedBy: "olga"}, {}} { // it is said once
		// drain measures against what was there.
		if err := m.owned(gone, c); !errors.Is(err, errStuck) || !m.owner.Drained() || m.owner.Positions().Chain.InTo != gone.begin {
			t.Fatalf("%+v: at %v, %v, want an owner at %v", c, m.owner.Positions().Chain.InTo, err, gone.begin)
		}
		if got := w.acceptances(); !slices.Equal(got, []string{"olga"}) {
			t.Fatalf("the chain says that %q accepted", got)
		}
	}
	m.stop()
}

// records are those of the accepted envelopes.
func (w *world) records() (all []chain.Record) {
	w.t.Helper()
	r, err := w.decisions.Open(0, eventlog.Start)
	if err != nil {
		w.t.Fatal(err)
	}
	end := chain.Beginning
	for buf := make([]eventlog.Message, 10); ; {
		n, err := r.Read(buf)
		if err != nil {
			w.t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		for _, m := range buf[:n] {
			acc, _, err := end.Offer(m.Payload)
			if err != nil {
				w.t.Fatal(err)
			}
			if acc != nil {
				end, all = acc.End, append(all, acc.Records...)
			}
		}
	}
}

func (w *world) claims() (n int) {
	for _, r := range w.records() {
		if _, ok := r.(*chain.OwnerClaim); ok {
			n++
		}
	}
	return n
}

func (w *world) acceptances() (by []string) {
	for _, r := range w.records() {
		if a, ok := r.(*chain.HistoryAccepted); ok {
			by = append(by, a.By)
		}
	}
	return by
}

// TestRepartitioned: another number of partitions is refused until an operator
// says to go on, once.
func TestRepartitioned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.feed(someHistory(t, 10))
	m := w.start("state", evaluator.Config{})
	if err := m.drain(); err != nil {
		t.Fatal(err)
	}
	grown := changed{Topic: w.events, begin: eventlog.Start, partitions: 4}
	claims := w.claims()
	err := m.owned(grown, evaluator.Config{AcceptPartitions: 3})
	if !errors.Is(err, evaluator.ErrRepartitioned) || !strings.Contains(err.Error(), "--accept-partitions 4") {
		t.Fatalf("%v, want ErrRepartitioned with what to do", err)
	}
	if n := w.claims(); n != claims {
		t.Fatal("refused, but claimed")
	}
	for _, accept := range []int{4, 0} {
		if err := m.owned(grown, evaluator.Config{AcceptPartitions: accept}); err != nil {
			t.Fatalf("--accept-partitions %d: %v", accept, err)
		}
	}
	w.verified()
	m.stop()
}

// TestLogsGone: a state must not go on over logs that end before it.
func TestLogsGone(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{"events", "decisions"} {
		w := newWorld(t, 1)
		w.feed(someHistory(t, 10))
		m := w.start("state", evaluator.Config{})
		if err := m.drain(); err != nil {
			t.Fatal(err)
		}
		empty := w.openLog("empty")
		if gone == "events" {
			w.events = empty
		} else {
			w.decisions = empty
		}
		m.renew()
		if err := m.drain(); !errors.Is(err, chain.ErrMissing) || !strings.Contains(err.Error(), gone) {
			t.Fatalf("%s gone: %v, want ErrMissing", gone, err)
		}
		if end, _ := empty.End(0); end != eventlog.Start {
			t.Fatalf("%s gone: something was written", gone)
		}
		m.stop()
	}
}

// broken is a publisher that fails after some messages.
type broken struct {
	eventlog.Publisher
	left int
}

func (b *broken) Publish(payload []byte) error {
	b.left--
	if b.left < 0 {
		return nil // accepted, and lost
	}
	return b.Publisher.Publish(payload)
}

func (b *broken) Err() error {
	if b.left < 0 {
		return eventlog.ErrFenced
	}
	return nil
}

// TestPublisherFails: an owner whose publisher failed is lost at once, at its
// claim or later.
func TestPublisherFails(t *testing.T) {
	t.Parallel()
	for left := range 4 {
		w := newWorld(t, 1)
		w.feed(someHistory(t, 10))
		m := w.start("state", evaluator.Config{})
		err := m.owned(w.events, evaluator.Config{MaxMessages: 2, Publisher: &broken{Publisher: w.decisions.Publisher(0), left: left}})
		if !errors.Is(err, evaluator.ErrLost) || !errors.Is(err, eventlog.ErrFenced) {
			t.Fatalf("after %d: %v, want ErrLost for ErrFenced", left, err)
		}
		m.renew()
		if err := m.drain(); err != nil {
			t.Fatal(err)
		}
		w.verified()
		m.stop()
	}
}

// full is a publisher that has no room for every second message the first two times.
type full struct {
	eventlog.Publisher
	asked int
}

func (f *full) Publish(payload []byte) error {
	if f.asked++; f.asked%4 > 1 {
		return fmt.Errorf("3 messages have no receipt yet: %w", eventlog.ErrFull)
	}
	return f.Publisher.Publish(payload)
}

// TestPublisherIsFull: an owner whose publisher has no room asks again, and keeps the partition.
func TestPublisherIsFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.feed(someHistory(t, 30))
	p := &full{Publisher: w.decisions.Publisher(0)}
	m := w.start("state", evaluator.Config{MaxMessages: 2, Publisher: p})
	if err := m.drain(); err != nil || p.asked < 20 {
		t.Fatalf("asked %d times: %v", p.asked, err)
	}
	w.verified()
	m.stop()
}

// TestSynced: what Synced is told is durable in the store.
func TestSynced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.feed(someHistory(t, 30))
	m := w.start("state", evaluator.Config{})
	calls := 0
	err := m.owned(w.events, evaluator.Config{MaxMessages: 3, Synced: func(positions follow.Positions) error {
		calls++
		got, err := evaluator.PositionsIn(m.cfg.Store)
		if err == nil && got != positions {
			t.Errorf("told of %+v, the store is at %+v", positions, got)
		}
		return err
	}})
	if err != nil || calls < 3 {
		t.Fatalf("told %d times, %v", calls, err)
	}
	m.stop()
}

// TestSavedLater: until it saves, an owner is ahead of its store. One that begins with that store goes on all the same, and one
// that is drained saves the rest.
func TestSavedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	m := w.start("state", evaluator.Config{})
	h := someHistory(t, 30)
	w.publish(h.YAML())
	for life := range 2 {
		w.append(h.Messages[life*15 : life*15+15])
		w.now += int64(time.Hour) // for the first save
		told, committed := 0, 0
		err := m.owned(w.events, evaluator.Config{
			MaxMessages: 3, SaveEvery: time.Hour,
			Synced: func(follow.Positions) error { told++; return nil },
			Hooks:  evaluator.Hooks{Committed: func(evaluator.Commit) { committed++ }},
		})
		stored, damaged := evaluator.PositionsIn(m.cfg.Store)
		if !errors.Is(err, errStuck) || damaged != nil || told != 1 || committed < 3 || stored.Chain.Seq+uint64(committed) != m.owner.Positions().Chain.Seq {
			t.Fatalf("life %d: %v, %v, told %d times; the store is at envelope %d, %d were committed after it, up to %d",
				life, err, damaged, told, stored.Chain.Seq, committed, m.owner.Positions().Chain.Seq)
		}
	}
	m.owner.Drain()
	if _, err := m.owner.Advance(w.now); err != nil || !m.owner.Drained() {
		t.Fatalf("drained: %v, %v", m.owner.Drained(), err)
	}
	if stored, err := evaluator.PositionsIn(m.cfg.Store); err != nil || stored != m.owner.Positions() {
		t.Fatalf("the store is at %+v, the owner at %+v, %v", stored, m.owner.Positions(), err)
	}
	if v := w.verified(); v.Progress.Running != direct(t, w) {
		t.Error("the chain holds other records than its input gives")
	}
	m.stop()
}
