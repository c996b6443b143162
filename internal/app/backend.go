package app

import (
	"context"

	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// Backend is where a node's logs are, and how it shares their partitions with
// other processes.
type Backend struct {
	Events, Decisions, Policies eventlog.Topic
	// Publisher takes the right to publish to a partition of decisions.
	Publisher func(ctx context.Context, partition int) (eventlog.Publisher, error)
	// AppendPolicies appends a message to the policies log, durably.
	AppendPolicies func(ctx context.Context, payload []byte) error
	// Copies publishes to events, durably, as the rest of Armada reads it; nil: that
	// log is not ours to write.
	Copies func(ctx context.Context, partition int, msgs []eventlog.Message) error
	// Control opens Armada's control-plane topic, by which operators ask for jobs and
	// executors; nil: there is none here.
	Control func() (ControlTopic, error)
	// Seat takes part in placing a partition of the log that a group follows;
	// nil: all partitions are ours.
	Seat func(group Group, partition int) (Seat, error)
	// Hold keeps what ingesters need of a partition of events from being deleted, up to
	// what they acknowledge. That it is active does not matter. It is there where Seat is.
	Hold func(partition int) (Seat, error)
	// Recount asks how many partitions events has now; nil: they never change.
	Recount func() (int, error)
	// Behind is about how many messages of a partition come after a position;
	// nil: it cannot be told.
	Behind func(topic eventlog.Topic, partition int, after eventlog.Position) (int64, error)
	// Acknowledged is how far evaluators acknowledged a partition of events; Start: not
	// at all; nil: it cannot be told.
	Acknowledged func(partition int) (eventlog.Position, error)
	Close        func() error
}

// ControlTopic is Armada's control-plane topic, whose partitions processes share.
type ControlTopic interface {
	eventlog.Topic
	Seat(partition int) (Seat, error)
	Close() error
}

// Group is the processes that share partitions for one kind of work.
type Group string

// The groups. Their names are those of the subscriptions.
const (
	Evaluators Group = "refloat-evaluator" // on events
	Ingesters  Group = "refloat-ingester"  // on decisions, on events, and on control-plane
)

// Seat is a place in a group for one partition.
type Seat interface {
	evaluator.Placement
	// Acknowledge says that nothing up to a position is needed any more. It does not
	// wait, and that it succeeds does not matter to the caller.
	Acknowledge(upTo eventlog.Position)
	// Err is why the seat cannot be had now; nil: it is, or somebody else has it.
	Err() error
	Close() error
}

// FeedLog is an events log as a feed writes it.
type FeedLog interface {
	eventlog.Topic
	Append(partition int, msgs []eventlog.Message) error
	Flush(ctx context.Context) error
}

// Backend is a data directory's logs: one machine, one process that decides.
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
