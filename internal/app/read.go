package app

import (
	"fmt"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// ReadPulsar opens the topics of a deployment as audits read them: to where they
// end. They are open as long as the cluster is.
func ReadPulsar(cluster *pulsarlog.Cluster, c Pulsar) (audit.Logs, error) {
	events, decisions, policies, err := openThree(cluster, c)
	if err != nil {
		return audit.Logs{}, err
	}
	ctx := cluster.Context()
	return audit.Logs{Events: eventlog.ToEnd(ctx, events), Decisions: eventlog.ToEnd(ctx, decisions), Policies: eventlog.ToEnd(ctx, policies)}, nil
}

// ReadTopic opens one of them likewise.
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
		return nil, nil, nil, fmt.Errorf("%s has %d partitions and %s has %d: they must be equal; `refloatctl doctor` says how to go on", c.Events, e, c.Decisions, d)
	}
	return events, decisions, policies, nil
}

// openOurs opens a topic that we make.
func openOurs(cluster *pulsarlog.Cluster, name string) (*pulsarlog.Topic, error) {
	topic, err := cluster.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w (`refloatctl topics create` makes it)", err)
	}
	return topic, nil
}
