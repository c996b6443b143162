package app

import (
	"context"

	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// Backend gives access to a node's logs, and shares their partitions with other processes.
type Backend struct {
	Events, Decisions, Policies eventlog.Topic
	// Publisher takes the exclusive right to publish to a partition of decisions.
	Publisher func(ctx context.Context, partition int) (eventlog.Publisher, error)
	// AppendPolicies appends a message to the policies log, durably.
	AppendPolicies func(ctx context.Context, payload []byte) error
	// Copies publishes to events, durably, for Armada's other readers; nil: this backend does not write that log.
	Copies func(ctx context.Context, partition int, msgs []eventlog.Message) error
	// Control opens Armada's control-plane topic, on which operators send requests about jobs and executors; nil:
	// the backend has none.
	Control func() (ControlTopic, error)
	// Lease claims a partition of the log that a group follows; nil: every partition belongs to this process.
	Lease func(group Group, partition int) (Lease, error)
	// Retain keeps events that ingesters still need from being deleted, up to what they acknowledge. It works
	// whether or not it is active. It is set if Lease is.
	Retain func(partition int) (Lease, error)
	// Recount returns how many partitions events has now; nil: the number never changes.
	Recount func() (int, error)
	// Behind returns about how many messages of a partition follow a position; nil: unknown.
	Behind func(topic eventlog.Topic, partition int, after eventlog.Position) (int64, error)
	// Acknowledged returns how far evaluators acknowledged a partition of events; Start: nothing yet; nil:
	// unknown.
	Acknowledged func(partition int) (eventlog.Position, error)
	Close        func() error
}

// ControlTopic is Armada's control-plane topic, whose partitions processes share.
type ControlTopic interface {
	eventlog.Topic
	Lease(partition int) (Lease, error)
	Close() error
}

// Group is the set of processes that share partitions for one kind of work.
type Group string

// The groups. Their names are those of the subscriptions.
const (
	Evaluators Group = "refloat-evaluator" // on events
	Ingesters  Group = "refloat-ingester"  // on decisions, on events, and on control-plane
)

// Lease is a process's lease on one partition.
type Lease interface {
	evaluator.Placement
	// Acknowledge reports that nothing up to a position is needed any more. It does not wait, and the caller does
	// not depend on its success.
	Acknowledge(upTo eventlog.Position)
	// Err returns why the lease cannot be had now; nil if it is held here or by another process.
	Err() error
	Close() error
}

// FeedLog is an events log to which a feed writes.
type FeedLog interface {
	eventlog.Topic
	Append(partition int, msgs []eventlog.Message) error
	Flush(ctx context.Context) error
}

// Backend returns a data directory's logs as a backend: one machine, one deciding process.
func (l *Logs) Backend() *Backend {
	return &Backend{
		Events: l.Events, Decisions: l.Decisions, Policies: l.Policies,
		Publisher: func(_ context.Context, p int) (eventlog.Publisher, error) { return l.Decisions.Publisher(p), nil },
		AppendPolicies: func(ctx context.Context, payload []byte) error {
			return l.Policies.AppendSync(ctx, 0, []eventlog.Message{{Payload: payload}})
		},
		Close: l.Close,
	}
}

var _ FeedLog = (*filelog.Log)(nil)
