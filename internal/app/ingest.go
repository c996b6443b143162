package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/sink"
)

func (n *node) ingest(ctx context.Context) (err error) {
	away := n.newOutage()
	db, mirrors, err := n.openForIngest(ctx, away)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	seats := make([]Seat, n.backend.Events.Partitions())
	hooks := n.metrics.ingester(n.Now)
	committed := hooks.Committed
	hooks.Committed = func(b sink.Batch) {
		committed(b)
		if seat := seats[b.Partition]; seat != nil {
			refuse(n.metrics.notWritten, b.Partition, nil)
			seat.Acknowledge(b.Place.Decisions)
		}
	}
	hooks.Retry, hooks.Recovered = n.metrics.retried(n.Log, away), away.back
	hooks.Released = n.metrics.releasedFrom(n.Log)
	w, err := sink.New(sink.Config{
		Events: n.backend.Events, Decisions: n.backend.Decisions, DB: db, Hooks: hooks, ReleaseAfter: n.ReleaseAfter, Now: n.Now,
		Mirror: mirrors,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	var followControl func(ctx context.Context) error
	if mirrors != nil {
		if followControl, err = n.control(ctx, db); err != nil {
			return err
		}
	}
	if n.backend.Seat == nil {
		return w.Run(ctx)
	}
	for p := range seats {
		if seats[p], err = n.backend.Seat(Ingesters, p); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, seats[p].Close()) }()
	}
	group, ctx := errgroup.WithContext(ctx)
	if followControl != nil {
		group.Go(func() error { return followControl(ctx) })
	}
	for p, seat := range seats {
		group.Go(func() error { return n.ingestWhilePlaced(ctx, w, p, seat, away) })
	}
	return group.Wait()
}

// ingestWhilePlaced writes a partition as long as it is placed here. Who else
// writes it meanwhile is told by the job database.
func (n *node) ingestWhilePlaced(ctx context.Context, w *sink.Writer, partition int, seat Seat, away *outage) error {
	for ctx.Err() == nil {
		if !seat.Active() {
			refuse(n.metrics.notWritten, partition, nil)
			select {
			case <-seat.Changed():
			case <-ctx.Done():
			}
			continue
		}
		turn, over := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- w.RunPartition(turn, partition) }()
		n.metrics.ingesting(partition, true)
		err := awaitTurnEnd(turn, seat, done, over)
		n.metrics.ingesting(partition, false)
		away.left(partition)
		if err != nil {
			if !waitsForPerson(err) {
				return err
			}
			n.refuseToIngest(ctx, partition, seat, err)
		}
	}
	return nil
}

// waitsForPerson: a log of this partition is not what the job database follows
// from, and only a person can say how to go on. The other partitions go on.
func waitsForPerson(err error) bool {
	return errors.Is(err, chain.ErrMissing) || errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, eventlog.ErrCorrupt)
}

// refuseToIngest lets the partition be for a while, or until it is placed elsewhere.
func (n *node) refuseToIngest(ctx context.Context, partition int, seat Seat, err error) {
	refuse(n.metrics.notWritten, partition, err)
	n.Log.Error("partition is not ingested: see docs/runbook.md", slog.Int("partition", partition), slog.Any("error", err))
	again := time.NewTimer(refusedWait)
	defer again.Stop()
	select {
	case <-again.C:
	case <-seat.Changed():
	case <-ctx.Done():
	}
}

func awaitTurnEnd(ctx context.Context, seat Seat, done <-chan error, over context.CancelFunc) error {
	defer over()
	for {
		select {
		case err := <-done:
			return err
		case <-seat.Changed():
			if !seat.Active() {
				over()
				return <-done
			}
		case <-ctx.Done():
			return <-done
		}
	}
}
