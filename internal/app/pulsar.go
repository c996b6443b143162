package app

import (
	"context"
	"errors"
	"log/slog"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/placement"
)

// Pulsar names the cluster and the topics of a node.
type Pulsar struct {
	Cluster                     pulsarlog.Config
	Events, Decisions, Policies string // topics, short or full names
	Control                     string // Armada's control-plane topic, for an ingester; empty: not followed
}

// OpenPulsar opens the topics of a deployment. When ctx ends, no call waits for the broker any more.
func OpenPulsar(ctx context.Context, c Pulsar, instance string, log *slog.Logger) (*Backend, error) {
	c.Cluster.Instance = instance
	cluster, err := pulsarlog.Connect(ctx, c.Cluster)
	if err != nil {
		return nil, err
	}
	b, err := openTopics(cluster, c, instance, log)
	if err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	return b, nil
}

func openTopics(cluster *pulsarlog.Cluster, c Pulsar, instance string, log *slog.Logger) (*Backend, error) {
	events, decisions, policies, err := openThree(cluster, c)
	if err != nil {
		return nil, err
	}
	lease := func(group Group, topic *pulsarlog.Topic, p int) (Lease, error) {
		return placement.Acquire(placement.Config{Client: cluster.Client(), Subscription: string(group), Instance: instance, Log: log}, topic.PartitionName(p), p)
	}
	copies := &copier{open: func() appender { return events.Appender() }}
	b := &Backend{
		Copies: copies.publish,
		Events: events, Decisions: decisions, Policies: policies,
		Publisher: func(ctx context.Context, p int) (eventlog.Publisher, error) { return decisions.Publisher(ctx, p) },
		AppendPolicies: func(ctx context.Context, payload []byte) error {
			a := policies.Appender()
			return errors.Join(a.AppendSync(ctx, 0, []eventlog.Message{{Payload: payload}}), a.Close())
		},
		Lease: func(group Group, p int) (Lease, error) {
			topic := events
			if group == Ingesters {
				topic = decisions
			}
			return lease(group, topic, p)
		},
		Retain:  func(p int) (Lease, error) { return lease(Ingesters, events, p) },
		Recount: events.Recount,
		Behind: func(topic eventlog.Topic, p int, after eventlog.Position) (int64, error) {
			return topic.(*pulsarlog.Topic).Behind(p, after)
		},
		Close: cluster.Close,
	}
	if c.Cluster.AdminURL != "" {
		b.Acknowledged = func(p int) (eventlog.Position, error) { return events.Acknowledged(p, string(Evaluators)) }
	}
	if c.Control != "" {
		b.Control = func() (ControlTopic, error) {
			topic, err := cluster.Open(c.Control)
			if err != nil {
				return nil, err
			}
			return placedTopic{topic, func(p int) (Lease, error) { return lease(Ingesters, topic, p) }}, nil
		}
	}
	return b, nil
}

// placedTopic is a topic whose partitions several processes share.
type placedTopic struct {
	*pulsarlog.Topic
	lease func(partition int) (Lease, error)
}

// Lease claims a partition.
func (t placedTopic) Lease(partition int) (Lease, error) { return t.lease(partition) }

var _ Lease = (*placement.Lease)(nil)
