package app

import (
	"fmt"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/plural"
)

// ReadPulsar opens the topics of a deployment for audits, up to their current ends. They stay open until the
// cluster is closed.
func ReadPulsar(cluster *pulsarlog.Cluster, c Pulsar) (audit.Logs, error) {
	events, decisions, policies, err := openThree(cluster, c)
	if err != nil {
		return audit.Logs{}, err
	}
	ctx := cluster.Context()
	return audit.Logs{Events: eventlog.ToEnd(ctx, events), Decisions: eventlog.ToEnd(ctx, decisions), Policies: eventlog.ToEnd(ctx, policies)}, nil
}

// ReadTopic opens a single topic in the same way.
func ReadTopic(cluster *pulsarlog.Cluster, name string) (eventlog.Topic, error) {
	topic, err := openOurs(cluster, name)
	if err != nil {
		return nil, err
	}
	return eventlog.ToEnd(cluster.Context(), topic), nil
}

// openThree opens the topics of a deployment.
func openThree(cluster *pulsarlog.Cluster, c Pulsar) (events, decisions, policies *pulsarlog.Topic, err error) {
	if events, err = cluster.Open(c.Events); err != nil {
		return nil, nil, nil, err
	}
	if decisions, err = openOurs(cluster, c.Decisions); err != nil {
		return nil, nil, nil, err
	}
	if policies, err = openOurs(cluster, c.Policies); err != nil {
		return nil, nil, nil, err
	}
	if e, d := events.Partitions(), decisions.Partitions(); e != d {
		return nil, nil, nil, fmt.Errorf("%s has %s and %s has %d: they must be equal; `refloatctl doctor` says what to do", c.Events, plural.Of(e, "partition"), c.Decisions, d)
	}
	return events, decisions, policies, nil
}

// openOurs opens a topic that Refloat creates.
func openOurs(cluster *pulsarlog.Cluster, name string) (*pulsarlog.Topic, error) {
	topic, err := cluster.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w (create it with `refloatctl topics create`)", err)
	}
	return topic, nil
}
