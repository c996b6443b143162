package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/refloat/refloat/internal/armada/controlplane"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/schedulerdb"
)

// controlWait is the interval between attempts while the topic is missing or an operator has to act.
const controlWait = time.Minute

// control returns the loop that applies Armada's control-plane topic, or nil if there is no such topic or the
// tables are not Armada's. Call it before the first write to those tables.
func (n *node) control(ctx context.Context, db JobDB) (run func(ctx context.Context) error, err error) {
	if n.backend.Control == nil {
		return nil, nil
	}
	plain, ok := db.(controlplane.DB)
	if !ok {
		return nil, nil
	}
	unavailable := func(err error) bool {
		return errors.Is(err, jobdb.ErrUnavailable) || errors.Is(err, eventlog.ErrTransient)
	}
	failed := func(err error) { n.Log.Warn("control-plane topic failed; retrying", slog.Any("error", err)) }
	begin := func() (ControlTopic, error) { return n.beginControl(ctx, plain) }
	topic, err := retry(ctx, time.Second, time.Second, unavailable, failed, begin)
	if err != nil && !errors.Is(err, controlplane.ErrTaken) && !errors.Is(err, jobdb.ErrRolledBack) {
		return nil, fmt.Errorf("follow the control-plane topic (--control-plane '' disables it here): %w", err)
	}
	return func(ctx context.Context) error {
		if err != nil { // An operator has to act; events are processed meanwhile.
			refused := func(err error) {
				refuse(n.metrics.notFollowed, 0, err)
				n.Log.Error("control-plane topic is not followed", slog.Any("error", err))
			}
			refused(err)
			_ = eventlog.Sleep(ctx, controlWait)
			always := func(error) bool { return true }
			again := func() (ControlTopic, error) { return n.beginControl(ctx, plain) }
			if topic, err = retry(ctx, controlWait, controlWait, always, refused, again); err != nil {
				return err
			}
		}
		return n.followControl(ctx, plain, topic)
	}, nil
}

// beginControl opens the topic, if it exists, and makes sure that its starting position is recorded.
func (n *node) beginControl(ctx context.Context, db controlplane.DB) (ControlTopic, error) {
	topic, err := n.openControl()
	if err == nil && topic != nil {
		if err = controlplane.Begin(ctx, db, topic); err != nil {
			closed := topic.Close()
			if topic = nil; errors.Is(err, pulsarlog.ErrGone) { // without the admin API, a missing topic shows only here
				err = closed
			}
		}
	}
	if err == nil && topic == nil {
		n.Log.Info("control-plane topic does not exist; it is followed as soon as it does")
		err = controlplane.Begin(ctx, db, nil)
	}
	return topic, err
}

// openControl returns nil if the topic does not exist.
func (n *node) openControl() (ControlTopic, error) {
	topic, err := n.backend.Control()
	if errors.Is(err, pulsarlog.ErrGone) {
		return nil, nil
	}
	return topic, err
}

// followControl follows the topic, as soon as it exists.
func (n *node) followControl(ctx context.Context, db controlplane.DB, topic ControlTopic) (err error) {
	for topic == nil && ctx.Err() == nil {
		_ = eventlog.Sleep(ctx, controlWait)
		if topic, err = n.openControl(); err != nil {
			n.Log.Warn("control-plane topic cannot be opened", slog.Any("error", err))
			topic = nil
		}
	}
	if topic == nil {
		return nil
	}
	n.Log.Info("following the control-plane topic", slog.Int("partitions", topic.Partitions()))
	p := newParts(ctx)
	p.closes("control-plane topic", topic.Close)
	return p.wait(n.startControl(p, db, topic))
}

func (n *node) startControl(p *parts, db controlplane.DB, topic ControlTopic) error {
	for partition := range topic.Partitions() {
		lease, err := topic.Lease(partition)
		if err != nil {
			return err
		}
		f := controlplane.New(controlplane.Config{Topic: topic, Partition: partition, DB: db, Hooks: n.controlHooks(lease)})
		p.run(fmt.Sprintf("follower of partition %d of the control plane", partition), func(ctx context.Context) error {
			n.followWhilePlaced(ctx, f, partition, lease)
			return lease.Close()
		})
	}
	return nil
}

func (n *node) followWhilePlaced(ctx context.Context, f *controlplane.Follower, partition int, lease Lease) {
	for ctx.Err() == nil {
		refuse(n.metrics.notFollowed, partition, nil)
		if !lease.Active() {
			select {
			case <-lease.Changed():
			case <-ctx.Done():
			}
			continue
		}
		err := runWhileActive(ctx, lease, f.Run)
		if err == nil {
			continue
		}
		// Whatever the error, events are still processed.
		refuse(n.metrics.notFollowed, partition, err)
		n.Log.Error("control-plane topic is not followed", slog.Int("partition", partition), slog.Any("error", err))
		_ = eventlog.Sleep(ctx, controlWait)
	}
}

func (n *node) controlHooks(lease Lease) controlplane.Hooks {
	return controlplane.Hooks{
		Applied: func(p int, at eventlog.Position, op schedulerdb.ControlOp, jobs int) {
			kind, attrs := controlKind(op)
			n.metrics.controlled.WithLabelValues(kind).Inc()
			n.Log.Info("operator request applied to Armada's tables", append([]any{
				slog.String("kind", kind), slog.Int("jobs", jobs), slog.Int("partition", p), slog.String("message", at.String()),
			}, attrs...)...)
		},
		Parked: func(p int, at eventlog.Position, f schedulerdb.Finding) {
			n.metrics.notMirrored.WithLabelValues(f.Kind.String()).Inc()
			n.Log.Warn("not written to Armada's tables", slog.String("topic", "control-plane"), slog.Int("partition", p), slog.String("message", at.String()),
				slog.String("kind", f.Kind.String()), slog.String("reason", f.Reason))
		},
		Committed: func(_ int, at eventlog.Position) { lease.Acknowledge(at) },
		Retry: func(p int, err error) {
			n.Log.Warn("control-plane topic failed; retrying", slog.Int("partition", p), slog.Any("error", err))
		},
	}
}

// controlKind names an operation and returns the attributes to log.
func controlKind(op schedulerdb.ControlOp) (kind string, attrs []any) {
	switch o := op.(type) {
	case *schedulerdb.SetExecutor:
		return "set executor", []any{slog.String("executor", o.Executor), slog.Bool("cordoned", o.Cordoned), slog.String("reason", o.Reason), slog.String("user", o.User)}
	case *schedulerdb.ForgetSettings:
		return "forget settings", []any{slog.String("executor", o.Executor)}
	case *schedulerdb.DeleteExecutor:
		return "delete executor", []any{slog.String("executor", o.Executor)}
	case *schedulerdb.Sweep:
		return o.String(), []any{slog.String("executor", o.Executor), slog.String("node", o.Node), slog.Any("queues", o.Queues)}
	}
	return "unknown", nil
}
