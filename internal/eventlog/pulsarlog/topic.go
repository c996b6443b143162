package pulsarlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"

	"github.com/refloat/refloat/internal/eventlog"
)

// Topic is one topic: a partitioned one, one partition of it, or one without
// partitions, which is treated as one partition. It is safe for concurrent use.
type Topic struct {
	cluster     *Cluster
	name        string // full name
	partitioned bool
	parts       []*partition
}

var _ eventlog.Topic = (*Topic)(nil)

type partition struct {
	name string // full name
	id   int    // in its topic; for the client's message ids

	seenMu sync.Mutex
	seen   eventlog.Position // the last message that a reader returned, or the last end

	empty sync.Map // entryID → publish time: entries that are empty messages

	probeMu sync.Mutex
	probe   *source // used to find the end; nil until needed
}

// Open opens an existing topic. A name may be short: see [Cluster.TopicName].
//
// Only the admin API can tell whether a topic without partitions exists; without an
// AdminURL, a broker that may create topics creates a missing one.
func (k *Cluster) Open(name string) (*Topic, error) {
	full := k.TopicName(name)
	if !strings.HasPrefix(full, "persistent://") {
		return nil, fmt.Errorf("pulsarlog: topic %s is not persistent: use a persistent:// topic", full)
	}
	t := &Topic{cluster: k, name: full}
	n, partitioned, err := t.count()
	if err != nil {
		return nil, fmt.Errorf("pulsarlog: open topic %s: %w", full, err)
	}
	t.partitioned = partitioned
	for id := range n {
		p := &partition{name: full, id: id, seen: eventlog.Start}
		if partitioned {
			p.name = full + partitionInfix + strconv.Itoa(id)
		}
		t.parts = append(t.parts, p)
	}
	return t, nil
}

const partitionInfix = "-partition-"

// count returns the broker's number of partitions.
func (t *Topic) count() (n int, partitioned bool, err error) {
	k := t.cluster
	names, err := bounded(k.ctx, k, k.cfg.OperationTimeout, func() ([]string, error) { return k.client.TopicPartitions(t.name) }, nil)
	if err != nil {
		return 0, false, err
	}
	if len(names) > 1 || len(names) == 1 && names[0] == t.name+partitionInfix+"0" {
		return len(names), true, nil
	}
	// To the client, unpartitioned and missing topics look the same.
	if k.admin == nil {
		return 1, false, nil
	}
	if name, err := utils.GetTopicName(t.name); err != nil {
		return 0, false, err
	} else if err := k.ask(*name); err != nil {
		if err = k.adminClassed(err); errors.Is(err, ErrGone) {
			return 0, false, err
		}
		if k.ctx.Err() != nil {
			return 0, false, k.ctx.Err()
		}
		// A client that may read a topic need not have access to the admin API.
		k.cfg.Log.Warn("cannot query whether the topic exists", slog.String("topic", t.name), slog.Any("error", err))
	}
	return 1, false, nil
}

// ask asks the admin API whether a topic exists.
func (k *Cluster) ask(name utils.TopicName) error {
	ctx, cancel := context.WithTimeout(k.ctx, k.cfg.OperationTimeout)
	defer cancel()
	_, err := k.admin.Topics().GetMetadataWithContext(ctx, name)
	return err
}

// Name returns the topic's full name.
func (t *Topic) Name() string { return t.name }

// Partitions returns the number of partitions when the topic was opened.
func (t *Topic) Partitions() int { return len(t.parts) }

// Recount returns the broker's current number of partitions. Readers and publishers of
// this Topic keep the number with which it was opened.
func (t *Topic) Recount() (int, error) {
	n, partitioned, err := t.count()
	if err == nil && partitioned != t.partitioned {
		err = t.changed()
	}
	if err != nil {
		return 0, fmt.Errorf("pulsarlog: count partitions of %s: %w", t.name, err)
	}
	return n, nil
}

// changed returns the error for a topic that has changed since it was opened.
func (t *Topic) changed() error {
	if t.partitioned {
		return fmt.Errorf("%w: it had %d partitions and has none now", ErrGone, len(t.parts))
	}
	return fmt.Errorf("%w: it had no partitions and is partitioned now", ErrGone)
}

// partition checks that a partition exists now.
func (t *Topic) partition(p int) (*partition, error) {
	if p < 0 || p >= len(t.parts) {
		return nil, fmt.Errorf("partition %d does not exist: the topic has %d", p, len(t.parts))
	}
	n, partitioned, err := t.count()
	switch {
	case err != nil:
		return nil, err
	case partitioned != t.partitioned:
		return nil, t.changed()
	case p >= n:
		return nil, fmt.Errorf("%w: it had %d partitions and has %d", ErrGone, len(t.parts), n)
	}
	return t.parts[p], nil
}

func (t *Topic) fail(verb string, p int, err error) error {
	return fmt.Errorf("pulsarlog: %s partition %d of %s: %w", verb, p, t.name, err)
}

// End returns the position of the last message that the broker has, as a reader returns
// it: for a batch, that of its last message. It is [eventlog.Start] if the partition is
// empty. It never goes back behind an end that this Topic has returned or one of its
// readers has reached, even if the broker deletes those messages.
func (t *Topic) End(p int) (eventlog.Position, error) {
	if p < 0 || p >= len(t.parts) {
		return eventlog.Position{}, t.fail("end of", p, fmt.Errorf("no such partition: the topic has %d", len(t.parts)))
	}
	part := t.parts[p]
	part.probeMu.Lock()
	defer part.probeMu.Unlock()
	end, err := t.askEnd(part)
	if errors.Is(err, eventlog.ErrTransient) && part.probe != nil {
		// The probe's connection may be an old one.
		part.dropProbe()
		end, err = t.askEnd(part)
	}
	if err != nil {
		part.dropProbe()
		return eventlog.Position{}, t.fail("end of", p, err)
	}
	return part.reached(end), nil
}

func (t *Topic) askEnd(part *partition) (eventlog.Position, error) {
	if part.probe != nil && part.probe.reconnected() {
		part.dropProbe()
	}
	if part.probe == nil {
		if _, err := t.partition(part.id); err != nil {
			return eventlog.Position{}, err
		}
		s, err := t.cluster.newSource(part, pulsar.LatestMessageID(), 1)
		if err != nil {
			return eventlog.Position{}, err
		}
		part.probe = s
	}
	return part.probe.end()
}

func (p *partition) dropProbe() {
	if p.probe != nil {
		p.probe.close()
		p.probe = nil
	}
}

// reached records a position that the partition is known to reach, and returns the
// greatest one.
func (p *partition) reached(at eventlog.Position) eventlog.Position {
	p.seenMu.Lock()
	defer p.seenMu.Unlock()
	if at.Compare(p.seen) > 0 {
		p.seen = at
	}
	return p.seen
}

// Beginning is [eventlog.Start] only if one of these facts proves that no message ever
// preceded the first one held:
//
//   - The first message held has the broker's index 0. The broker numbers
//     messages if it has AppendIndexMetadataInterceptor among its
//     brokerEntryMetadataInterceptors and exposingBrokerEntryMetadataToClientEnabled.
//     (It must have done so since the topic was created: a broker that began to number
//     a topic in use, and then deleted the unnumbered messages, misleads us.)
//   - The managed ledger's metadata, from the admin API, were changed exactly as often
//     as there are ledgers in it: each change then added a ledger, and none was ever
//     removed. (An empty ledger that the broker replaces when it reloads a topic
//     invalidates this proof, although nothing is lost.)
//
// Otherwise it is the position just before the first message held. For an empty topic
// that is the position before the ledger that is open now, and, since only the admin
// API names it, an error without AdminURL.
func (t *Topic) Beginning(p int) (eventlog.Position, error) {
	at, err := t.beginning(p)
	if err != nil {
		return eventlog.Position{}, t.fail("beginning of", p, err)
	}
	return at, nil
}

func (t *Topic) beginning(p int) (eventlog.Position, error) {
	part, err := t.partition(p)
	if err != nil {
		return eventlog.Position{}, err
	}
	ledgers, adminErr := t.cluster.ledgers(part)
	if adminErr == nil && ledgers.whole {
		return eventlog.Start, nil
	}
	s, err := t.cluster.newSource(part, pulsar.EarliestMessageID(), 1)
	if err != nil {
		return eventlog.Position{}, err
	}
	defer s.close()
	end, err := s.end()
	if err != nil {
		return eventlog.Position{}, err
	}
	if end == eventlog.Start {
		if adminErr != nil {
			return eventlog.Position{}, fmt.Errorf("the partition is empty, and only the admin API can tell whether it always was: %w", adminErr)
		}
		return eventlog.Position{Ledger: ledgers.ids[len(ledgers.ids)-1], Entry: -1, Batch: -1}, nil
	}
	m, err := s.next(t.cluster.cfg.OperationTimeout)
	if err != nil {
		return eventlog.Position{}, err
	}
	if i := m.Index(); i != nil && *i == 0 {
		return eventlog.Start, nil
	}
	at := positionOf(m)
	at.Batch = -1
	return at, nil
}

// ledgers is what the admin API reports of a partition's managed ledger.
type ledgers struct {
	ids   []int64 // the current ones, at least one
	whole bool    // none was ever removed
}

func (k *Cluster) ledgers(p *partition) (ledgers, error) {
	if k.admin == nil {
		return ledgers{}, ErrNoAdmin
	}
	name, err := utils.GetTopicName(p.name)
	if err != nil {
		return ledgers{}, err
	}
	ctx, cancel := context.WithTimeout(k.ctx, k.cfg.OperationTimeout)
	defer cancel()
	info, err := k.admin.Topics().GetInternalInfoWithContext(ctx, *name)
	if err != nil {
		return ledgers{}, k.adminClassed(err)
	}
	l := ledgers{whole: info.Version == len(info.Ledgers)}
	for _, i := range info.Ledgers {
		l.ids = append(l.ids, i.LedgerID)
	}
	if len(l.ids) > 0 {
		return l, nil
	}
	// The ledger that is open now is not recorded yet; this request makes it so.
	stats, err := k.admin.Topics().GetInternalStatsWithContext(ctx, *name)
	if err != nil {
		return ledgers{}, k.adminClassed(err)
	}
	for _, i := range stats.Ledgers {
		l.ids = append(l.ids, i.LedgerID)
	}
	if len(l.ids) == 0 {
		return ledgers{}, fmt.Errorf("admin API: it reports no ledger: %w", eventlog.ErrTransient)
	}
	return l, nil
}

func (l ledgers) has(id int64) bool { return slices.Contains(l.ids, id) }

// Close releases what the Topic holds. Readers and publishers must be closed
// separately.
func (t *Topic) Close() error {
	for _, p := range t.parts {
		p.probeMu.Lock()
		p.dropProbe()
		p.probeMu.Unlock()
	}
	return nil
}
