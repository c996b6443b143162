package doctor

import (
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// Fact is the result of one query: its value, or why it is unknown.
type Fact[T any] struct {
	Value T
	Err   error
}

// Known reports whether the value is known.
func (f Fact[T]) Known() bool { return f.Err == nil }

// Facts are what Gather found out about a deployment.
type Facts struct {
	Service    Fact[string]            // the service URL, when the client reached it
	Version    Fact[string]            // the broker's
	Broker     Fact[map[string]string] // configuration of the broker that was asked
	Standalone bool                    // the broker is a `pulsar standalone`
	Bookie     Fact[map[string]string] // configuration of the bookie that was asked

	Events, Decisions, Policies Topic

	Archive *Archived // nil: no archive was given
	// RolledBack is when the job database was rolled back to Armada's ingester; zero: it was not, or none was given.
	RolledBack time.Time
}

// Archived is how far an archive reaches, by partition. Partitions without a range are omitted.
type Archived struct {
	Dir               string
	Age               time.Duration // of its last range
	Events, Decisions map[int]eventlog.Position
}

// Topic is what Gather found out about a topic. Policies are the effective ones.
type Topic struct {
	Name       string    // full name
	Partitions Fact[int] // 0: it is not partitioned
	Retention  Fact[Retention]
	TTL        Fact[int] // seconds; 0: none
	Quotas     Fact[map[string]Quota]
	Compaction Fact[int64] // threshold in bytes; 0: never
	Offload    Fact[Offload]
	Inactive   Fact[Inactive]
	MarkDelete Fact[Persistence]
	MaxMessage Fact[int64]     // bytes; 0: the broker's limit
	Stats      Fact[[]Stats]   // by partition
	Ledgers    Fact[[]Ledgers] // by partition
	Claims     []Fact[*Claim]  // of decisions, by partition; nil for other topics
	// Beginnings are the positions before the first messages of events, by partition; nil for other topics.
	Beginnings []Fact[eventlog.Position]
}

// Retention is how long acknowledged messages are kept; -1 is for ever.
type Retention struct {
	Minutes int64 `json:"retentionTimeInMinutes"`
	MB      int64 `json:"retentionSizeInMB"`
}

// Infinite reports whether nothing is ever deleted.
func (r Retention) Infinite() bool { return r.Minutes < 0 && r.MB < 0 }

// None reports whether acknowledged messages may be deleted at once.
func (r Retention) None() bool { return r.Minutes == 0 || r.MB == 0 }

// Quota is a limit on the backlog; not positive: none.
type Quota struct {
	Bytes   int64  `json:"limitSize"`
	Seconds int64  `json:"limitTime"`
	Policy  string `json:"policy"`
}

// Names of policies and kinds of quotas.
const (
	quotaBySize   = "destination_storage"
	quotaByAge    = "message_age"
	quotaEviction = "consumer_backlog_eviction"
)

// Offload is when ledgers are copied to a second storage; negative: never.
type Offload struct {
	Driver  string `json:"managedLedgerOffloadDriver"` // empty: there is no such storage
	Bytes   int64  `json:"managedLedgerOffloadThresholdInBytes"`
	Seconds int64  `json:"managedLedgerOffloadThresholdInSeconds"`
	Lag     *int64 `json:"managedLedgerOffloadDeletionLagInMillis"` // from then on, the bookies delete theirs; nil: never
}

// Inactive is the policy for topics that nobody uses.
type Inactive struct {
	Mode    string `json:"inactiveTopicDeleteMode"`
	Seconds int    `json:"maxInactiveDurationSeconds"`
	Delete  bool   `json:"deleteWhileInactive"`
}

const deleteCaughtUp = "delete_when_subscriptions_caught_up"

// Persistence is how a topic is stored.
type Persistence struct {
	MarkDeleteRate float64 `json:"managedLedgerMaxMarkDeleteRate"`
	AckQuorum      int     `json:"bookkeeperAckQuorum"`
}

// Stats are the publishers and subscriptions of a partition.
type Stats struct {
	Publishers    []Publisher             `json:"publishers"`
	Subscriptions map[string]Subscription `json:"subscriptions"`
	Deduplication string                  `json:"deduplicationStatus"`
	Missing       bool                    `json:"-"` // the broker does not have this partition
}

// Publisher is a connected producer.
type Publisher struct {
	Name     string            `json:"producerName"`
	Mode     string            `json:"accessMode"`
	Address  string            `json:"address"`
	Since    string            `json:"connectedSince"`
	Metadata map[string]string `json:"metadata"`
}

// instance is the process that the producer belongs to, by its own metadata; empty:
// unknown.
func (p Publisher) instance() string { return p.Metadata[pulsarlog.InstanceProperty] }

const modeExclusive = "Exclusive"

// Subscription is a durable cursor with its consumers.
type Subscription struct {
	Type      string     `json:"type"`
	Active    string     `json:"activeConsumerName"`
	Backlog   int64      `json:"msgBacklog"`
	Durable   bool       `json:"isDurable"`
	Consumers []Consumer `json:"consumers"`
}

// Consumer is a connected consumer.
type Consumer struct {
	Name    string `json:"consumerName"`
	Address string `json:"address"`
	Since   string `json:"connectedSince"`
}

// active returns the subscription's active consumer.
func (s Subscription) active() (Consumer, bool) {
	for _, c := range s.Consumers {
		if c.Name == s.Active && s.Active != "" {
			return c, true
		}
	}
	return Consumer{}, false
}

// Ledgers describes how a partition is stored.
type Ledgers struct {
	Ledgers        []Ledger `json:"ledgers"`
	CurrentEntries int64    `json:"currentLedgerEntries"`
	Compacted      ledgerID `json:"compactedLedger"` // -1: never
}

// Ledger is one ledger. The open one reports 0 entries.
type Ledger struct {
	ID      int64 `json:"ledgerId"`
	Entries int64 `json:"entries"`
}

type ledgerID struct {
	ID int64 `json:"ledgerId"`
}

// Claim is the last owner's claim in a partition of decisions.
type Claim struct {
	Epoch      uint64
	Partitions int // of events at that time; 0: unknown
	Time       time.Time
	// Answered is the position in events up to which the last envelope decides.
	Answered eventlog.Position
}

// The subscriptions that evaluators and ingesters share.
const (
	EvaluatorSubscription = "refloat-evaluator" // on events
	IngesterSubscription  = "refloat-ingester"  // on decisions, and on events for what is not in the job database yet
)
