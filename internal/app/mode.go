package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/suggest"
)

// IngestModes lists the modes of an ingester, the default first.
func IngestModes() []string { return []string{"direct", "holdback", "passthrough", "observe"} }

// CheckIngestMode returns an error for an unknown mode; empty is the default.
func CheckIngestMode(name string) error {
	if name == "" || slices.Contains(IngestModes(), name) {
		return nil
	}
	return suggest.Unknown("mode", name, IngestModes()...)
}

// mirrorMode returns what an ingester's mode does to Armada's tables, and whether it requires them.
func mirrorMode(name string) (mode writer.Mode, must bool, err error) {
	switch name {
	case "", "direct":
		return writer.Direct, false, nil
	case "holdback":
		return writer.HoldBack, true, nil
	case "passthrough":
		return writer.Passthrough, true, nil
	}
	return 0, false, CheckIngestMode(name)
}

// mirrors returns the writer of Armada's tables for each partition, or nil if the job database has none or the
// mode leaves them alone.
func (n *node) mirrors(ctx context.Context, db JobDB) (func(partition int) sink.Mirror, error) {
	if n.IngestMode == "observe" {
		return nil, nil
	}
	mode, must, err := mirrorMode(n.IngestMode)
	if err != nil {
		return nil, err
	}
	if err := checkArmada(ctx, db); errors.Is(err, pgstore.ErrForeign) && !must {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("mode %s writes Armada's scheduler database: %w", n.IngestMode, err)
	}
	n.Log.Info("writing Armada's tables", slog.String("mode", n.IngestMode))
	copies := n.backend.Copies
	if mode == writer.Passthrough {
		copies = nil
	}
	return func(partition int) sink.Mirror {
		return writer.New(writer.Config{Partition: partition, Mode: mode, NodeLabel: n.NodeLabel, Copies: copies, Slack: n.terminationSlack, Hooks: writer.Hooks{
			Parked: func(p int, at eventlog.Position, f schedulerdb.Finding) {
				n.metrics.notMirrored.WithLabelValues(f.Kind.String()).Inc()
				n.Log.Warn("not written to Armada's tables", slog.Int("partition", p), slog.String("message", at.String()), slog.Int("event", f.Event),
					slog.String("kind", f.Kind.String()), slog.String("reason", f.Reason))
			},
			NotCopied: func(p int, err error) {
				n.metrics.notMirrored.WithLabelValues("NotCopied").Inc()
				n.Log.Warn("decision not copied to events", slog.Int("partition", p), slog.Any("error", err))
			},
			Unable: func(p int, err error) {
				n.metrics.notMirrored.WithLabelValues("Unable").Inc()
				n.Log.Error("retry not written to Armada's tables", slog.Int("partition", p), slog.Any("error", err))
			},
		}})
	}, nil
}

// terminationSlack returns the setting of the newest policy generation. It fails until the policies were read to
// their end once; later, a generation that cannot be read does not stop the ingester.
func (n *node) terminationSlack() (time.Duration, error) {
	if !n.slackRead.Load() {
		ended, err := n.policyLog.AtEnd()
		if err == nil && !ended {
			err = fmt.Errorf("%w: the policies are not read to their end yet", eventlog.ErrTransient)
		}
		if err != nil {
			return 0, err
		}
		n.slackRead.Store(true)
	}
	if err := n.policyLog.Refresh(); err != nil {
		n.Log.Warn("policies cannot be read: the termination slack stays as it was", slog.Any("error", err))
	}
	_, set := n.policyLog.Newest()
	return set.TerminationSlack(), nil
}

// checkArmada returns nil if a job database is also an Armada scheduler database of a known version.
func checkArmada(ctx context.Context, db JobDB) (err error) {
	tx, err := db.Begin(ctx, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	pg, ok := tx.(interface{ Conn() pgx.Tx })
	if !ok {
		return fmt.Errorf("%w: it is not in PostgreSQL; give --job-db postgres://…", pgstore.ErrForeign)
	}
	return pgstore.Check(ctx, pg.Conn())
}

// copier publishes to events, one batch at a time. It opens a new publisher after an error, since the old one may
// be unusable.
type copier struct {
	open func() appender

	mu      sync.Mutex
	current appender
}

type appender interface {
	AppendSync(ctx context.Context, partition int, msgs []eventlog.Message) error
	Close() error
}

func (c *copier) publish(ctx context.Context, partition int, msgs []eventlog.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		c.current = c.open()
	}
	err := c.current.AppendSync(ctx, partition, msgs)
	if err != nil {
		err = errors.Join(err, c.current.Close())
		c.current = nil
	}
	return err
}
