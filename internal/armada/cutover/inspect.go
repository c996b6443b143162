package cutover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"

	"github.com/refloat/refloat/internal/doctor"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/plural"
)

// Inspect queries the broker and the database. It changes nothing.
func (s *Site) Inspect(ctx context.Context) (_ *State, err error) {
	l, err := s.open(s.Events)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	state := &State{Subscription: s.Subscription}
	if state.Partitions, err = l.partitions(ctx); err != nil {
		return nil, err
	}
	if state.Decisions, err = l.decisions(ctx, state); err != nil {
		return nil, err
	}
	c, err := s.openControl()
	if err != nil {
		return nil, err
	}
	if c != nil {
		defer func() { err = errors.Join(err, c.Close()) }()
		if state.Control, err = c.controlPartitions(ctx); err != nil {
			return nil, err
		}
	}
	db, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	err = db.inspect(ctx, state)
	if err = errors.Join(err, db.close()); err != nil {
		return nil, err
	}
	if err := l.positions(ctx, state.Partitions); err != nil || c == nil {
		return state, err
	}
	return state, c.positions(ctx, state.Control)
}

// inspector queries the broker about one topic.
type inspector struct {
	*Site
	topic   *pulsarlog.Topic
	admin   pulsaradmin.Client
	control bool
}

func (s *Site) open(name string) (*inspector, error) {
	admin, err := s.Cluster.Admin()
	if err != nil {
		return nil, err
	}
	topic, err := s.Cluster.Open(name)
	if err != nil {
		return nil, err
	}
	return &inspector{Site: s, topic: topic, admin: admin, control: name == s.Control}, nil
}

// openControl opens the control-plane topic. It returns nil if there is none.
func (s *Site) openControl() (*inspector, error) {
	if s.Control == "" {
		return nil, nil
	}
	l, err := s.open(s.Control)
	if errors.Is(err, pulsarlog.ErrGone) {
		return nil, nil
	}
	return l, err
}

// inspectors are the inspectors of both topics; control may be nil.
type inspectors struct{ events, control *inspector }

func (s *Site) inspectors(state *State) (of inspectors, err error) {
	if of.events, err = s.open(s.Events); err == nil && len(state.Control) > 0 {
		if of.control, err = s.open(s.Control); err != nil {
			err = errors.Join(err, of.events.Close())
		}
	}
	return of, err
}

func (of inspectors) topic(p *Partition) *inspector {
	if p.Control {
		return of.control
	}
	return of.events
}

// Close closes the topics.
func (of inspectors) Close() error {
	err := of.events.Close()
	if of.control != nil {
		err = errors.Join(err, of.control.Close())
	}
	return err
}

// Close closes the topic.
func (l *inspector) Close() error { return l.topic.Close() }

// partitions looks at all partitions, except for our positions.
func (l *inspector) partitions(ctx context.Context) ([]Partition, error) {
	all := make([]Partition, l.topic.Partitions())
	for p := range all {
		all[p].Number = p
		if err := l.partition(ctx, &all[p]); err != nil {
			return nil, fmt.Errorf("inspect partition %d of %s: %w", p, l.topic.Name(), err)
		}
	}
	return all, nil
}

// controlPartitions looks at the control-plane topic, on which our ingesters have their
// own subscription.
func (l *inspector) controlPartitions(ctx context.Context) ([]Partition, error) {
	all, err := l.partitions(ctx)
	if err != nil {
		return nil, err
	}
	for p := range all {
		stats, err := l.stats(ctx, l.topic.PartitionName(p))
		if err != nil {
			return nil, err
		}
		all[p].Control, all[p].Ingesters = true, consumers(stats.Subscriptions[doctor.IngesterSubscription])
	}
	return all, nil
}

// positions locates our positions in the topic.
func (l *inspector) positions(ctx context.Context, all []Partition) error {
	for p := range all {
		if err := l.position(ctx, &all[p]); err != nil {
			return fmt.Errorf("inspect partition %d of %s: %w", p, l.topic.Name(), err)
		}
	}
	return nil
}

// decisions finds our connected ingesters. problem says why the topic cannot be
// followed, for example because it does not exist.
func (l *inspector) decisions(ctx context.Context, state *State) (problem, err error) {
	topic, err := l.Cluster.Open(l.Decisions)
	if errors.Is(err, pulsarlog.ErrGone) {
		return err, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, topic.Close()) }()
	if n := topic.Partitions(); n != len(state.Partitions) {
		return fmt.Errorf("%s has %s, but %s has %d", topic.Name(), plural.Of(n, "partition"), l.topic.Name(), len(state.Partitions)), nil
	}
	for p := range state.Partitions {
		stats, err := l.stats(ctx, topic.PartitionName(p))
		if err != nil {
			return nil, err
		}
		state.Partitions[p].Ingesters = consumers(stats.Subscriptions[doctor.IngesterSubscription])
	}
	return nil, nil
}

func (l *inspector) stats(ctx context.Context, topic string) (utils.TopicStats, error) {
	name, err := utils.GetTopicName(topic)
	if err != nil {
		return utils.TopicStats{}, err
	}
	stats, err := l.admin.Topics().GetStatsWithContext(ctx, *name)
	if err != nil {
		return stats, fmt.Errorf("read the statistics of %s from the admin API: %w", topic, err)
	}
	return stats, nil
}

func consumers(s utils.SubscriptionStats) []string {
	var names []string
	for _, c := range s.Consumers {
		names = append(names, c.ConsumerName)
	}
	slices.Sort(names)
	return names
}

// partition looks at one partition, except for our position, which is in the database.
func (l *inspector) partition(ctx context.Context, p *Partition) error {
	err := l.whileHeld(ctx, p.Number, func(c Cursor, ledgers []ledger) (err error) {
		p.Cursor, p.Applied = c, Position{}
		if !c.Missing {
			p.Applied, err = l.canonical(ctx, ledgers, p.Number, c.MarkDelete)
		}
		return err
	})
	if err != nil {
		return err
	}
	return l.first(ctx, p)
}

// whileHeld calls a function with Armada's subscription and the topic's ledgers, and again if the broker has deleted
// a ledger that the function was to read.
func (l *inspector) whileHeld(ctx context.Context, p int, call func(Cursor, []ledger) error) error {
	var err error
	for first := int64(-1); ; {
		var c Cursor
		ledgers, cursorErr := l.cursor(ctx, p, &c)
		if cursorErr != nil {
			return cursorErr
		}
		if err != nil && len(ledgers) > 0 && ledgers[0].id == first {
			return err
		}
		if err = call(c, ledgers); !errors.Is(err, eventlog.ErrTrimmed) || len(ledgers) == 0 {
			return err
		}
		first = ledgers[0].id
	}
}

// ledger is a ledger that the topic holds.
type ledger struct{ id, entries int64 }

// cursor reads Armada's subscription and the topic's ledgers.
func (l *inspector) cursor(ctx context.Context, p int, c *Cursor) ([]ledger, error) {
	topic := l.topic.PartitionName(p)
	stats, err := l.stats(ctx, topic)
	if err != nil {
		return nil, err
	}
	name, err := utils.GetTopicName(topic)
	if err != nil {
		return nil, err
	}
	internal, err := l.admin.Topics().GetInternalStatsWithContext(ctx, *name)
	if err != nil {
		return nil, fmt.Errorf("read the cursors of %s from the admin API: %w", topic, err)
	}
	subscription, there := stats.Subscriptions[l.Subscription]
	cursor, alsoThere := internal.Cursors[l.Subscription]
	*c = Cursor{Missing: !there || !alsoThere}
	if !c.Missing {
		c.MarkDelete, c.Backlog, c.Consumers = cursor.MarkDeletePosition, subscription.MsgBacklog, consumers(subscription)
		if holes := strings.Trim(cursor.IndividuallyDeletedMessages, "[] "); holes != "" {
			c.Holes = cursor.IndividuallyDeletedMessages
		}
	}
	var ledgers []ledger
	for i, h := range internal.Ledgers {
		entries := h.Entries
		if i == len(internal.Ledgers)-1 { // the open ledger: its count is elsewhere
			entries = max(entries, internal.CurrentLedgerEntries)
		}
		ledgers = append(ledgers, ledger{h.LedgerID, entries})
	}
	return ledgers, nil
}

// canonical converts a mark-delete position, ledger:entry, into the position of the
// last message of that entry, or of the previous entry if there is no such entry: entry
// -1 is the position before a ledger. If the ledger was deleted since, the result is
// the position before the next ledger.
func (l *inspector) canonical(ctx context.Context, ledgers []ledger, p int, markDelete string) (Position, error) {
	var at ledger
	var entry int64
	if _, err := fmt.Sscanf(markDelete, "%d:%d", &at.id, &entry); err != nil {
		return Position{}, fmt.Errorf("cursor position %q is not of the form ledger:entry", markDelete)
	}
	i := slices.IndexFunc(ledgers, func(held ledger) bool { return held.id >= at.id })
	if i < 0 {
		return Position{Gone: true, Why: fmt.Errorf("no ledger of the topic holds position %s", markDelete)}, nil
	}
	deleted := ledgers[i].id != at.id
	if deleted {
		entry = -1
	}
	if entry >= ledgers[i].entries {
		return Position{Gone: true, Why: fmt.Errorf("position %s is past the end of its ledger, which has %d entries", markDelete, ledgers[i].entries)}, nil
	}
	for entry < 0 && i > 0 {
		i--
		entry = ledgers[i].entries - 1
	}
	if entry < 0 {
		at, err := l.before(p)
		return Position{At: at, Deleted: deleted}, err
	}
	last, err := l.lastIn(ctx, p, ledgers[i].id, entry)
	return Position{At: last, Deleted: deleted}, err
}

// before returns the position before everything that the topic holds.
func (l *inspector) before(p int) (eventlog.Position, error) {
	at, err := l.topic.Beginning(p)
	if err != nil || at == eventlog.Start {
		return at, err
	}
	if l.control { // its followers start there, even if messages were deleted
		if end, err := l.topic.End(p); err != nil || end == eventlog.Start {
			return end, err
		}
	}
	return at, nil
}

// lastIn returns the last message of an entry, which may be a batch.
func (l *inspector) lastIn(ctx context.Context, p int, ledger, entry int64) (last eventlog.Position, err error) {
	r, err := eventlog.ToEnd(ctx, l.topic).Open(p, eventlog.Position{Ledger: ledger, Entry: entry, Batch: -1})
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	last = eventlog.Position{Ledger: ledger, Entry: entry} // also if the entry is a marker of the broker without messages
	chunk := make([]eventlog.Message, 256)
	for {
		n, err := r.Read(chunk)
		for _, m := range chunk[:n] {
			if m.Position.Ledger != ledger || m.Position.Entry != entry {
				return last, nil
			}
			last = m.Position
		}
		if n == 0 || err != nil {
			return last, err
		}
	}
}

// first reads the first message.
func (l *inspector) first(ctx context.Context, p *Partition) (err error) {
	r, at, err := eventlog.OpenHeld(eventlog.ToEnd(ctx, l.topic), p.Number)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	p.Whole = at == eventlog.Start
	var one [1]eventlog.Message
	if n, err := r.Read(one[:]); n == 0 || err != nil {
		return err
	}
	p.First = one[0].Publish
	return nil
}

// position locates our position in the topic.
func (l *inspector) position(ctx context.Context, p *Partition) error {
	if p.Positions == nil {
		return nil
	}
	at := p.Positions.Events
	if at == eventlog.Start {
		var err error
		p.EventsAt.At, err = l.before(p.Number)
		return err
	}
	entry := at.Entry
	if at.Batch < 0 { // the position before the entry
		entry--
	}
	err := l.whileHeld(ctx, p.Number, func(_ Cursor, ledgers []ledger) (err error) {
		p.EventsAt, err = l.canonical(ctx, ledgers, p.Number, fmt.Sprintf("%d:%d", at.Ledger, entry))
		return err
	})
	switch {
	case err != nil || p.EventsAt.Why != nil:
	case p.EventsAt.Deleted: // it is not a cursor: messages may be missing
		p.EventsAt.Gone, p.EventsAt.Why = true, fmt.Errorf("the topic no longer holds position %v", at)
	case at.Batch >= 0 && at != p.EventsAt.At:
		p.EventsAt.Why = fmt.Errorf("position %v is in the middle of a batch that ends at %v", at, p.EventsAt.At)
	}
	return err
}
