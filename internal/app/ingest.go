package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

func ingesterOf(partition int) string { return fmt.Sprintf("ingester of partition %d", partition) }

// ingestLeases holds an ingester's claims on each partition: the lease, which is on decisions, and the hold that
// keeps events from being deleted before they are in the job database. Evaluators acknowledge events when they are
// decided, which may be long before.
type ingestLeases struct{ decisions, events []Lease }

func (s *ingestLeases) take(b *Backend) error {
	for p := range b.Events.Partitions() {
		lease, err := b.Lease(Ingesters, p)
		if err != nil {
			return err
		}
		s.decisions = append(s.decisions, lease)
		hold, err := b.Retain(p)
		if err != nil {
			return err
		}
		s.events = append(s.events, hold)
	}
	return nil
}

// acknowledge acknowledges what the job database has committed. Events without an answer in the chain are still
// needed, even if they were released to the job database.
func (s *ingestLeases) acknowledge(partition int, committed jobdb.Positions) {
	s.decisions[partition].Acknowledge(committed.Decisions)
	s.events[partition].Acknowledge(committed.Chain.InTo)
}

func (s *ingestLeases) watched(watch func(part string, lease Lease)) {
	for p := range s.events {
		watch(fmt.Sprintf("lease of partition %d of decisions", p), s.decisions[p])
		watch(fmt.Sprintf("hold on partition %d of events", p), s.events[p])
	}
}

func (s *ingestLeases) close() error {
	var group errgroup.Group // Open all in parallel: an unresponsive broker costs one timeout.
	for _, lease := range append(s.decisions, s.events...) {
		group.Go(lease.Close)
	}
	return group.Wait()
}

// ingestOnce writes one job database until ctx ends or the database is found damaged.
func (n *node) ingestOnce(ctx context.Context) (err error) {
	ctx, found := context.WithCancelCause(ctx)
	defer func() {
		if cause := context.Cause(ctx); errors.Is(cause, jobdb.ErrDamaged) && !errors.Is(err, errStuck) {
			err = cause
		}
		found(nil)
	}()
	if err := n.suspectJobDB.use(found); err != nil {
		return err
	}
	away := n.newOutage()
	db, mirrors, err := n.openForIngest(ctx, away)
	if err != nil {
		return err
	}
	p := newParts(ctx)
	p.closes("job database", db.Close)
	return p.wait(n.startIngest(p, db, mirrors, away))
}

// startIngest starts writing all partitions, and applying operator requests to Armada's tables.
func (n *node) startIngest(p *parts, db JobDB, mirrors func(int) sink.Mirror, away *outage) error {
	var leases ingestLeases
	hooks := n.metrics.ingester(n.Now)
	committed := hooks.Committed
	hooks.Committed = func(b sink.Batch) {
		committed(b)
		if leases.decisions != nil {
			refuse(n.metrics.notWritten, b.Partition, nil)
			leases.acknowledge(b.Partition, b.Positions)
		}
	}
	retried := n.metrics.retried(n.Log, away)
	hooks.Retry = func(p int, err error) {
		retried(p, err)
		n.metrics.health.report(ingesterOf(p), err)
	}
	hooks.Recovered = func(p int) {
		away.back(p)
		n.metrics.health.report(ingesterOf(p), nil)
	}
	hooks.Released = n.metrics.releasedFrom(n.Log)
	hooks.Pruned, hooks.Clamped = n.metrics.pruned, n.retainedLonger()
	w, err := sink.New(sink.Config{
		Events: n.backend.Events, Decisions: n.backend.Decisions, DB: db, Hooks: hooks, ReleaseAfter: n.ReleaseAfter, Now: n.Now,
		Mirror: mirrors, Retain: n.Retain.retention(mirrors != nil), KeepRows: n.memory.rows,
	})
	if err != nil {
		return err
	}
	p.closes("writer of the job database", w.Close)
	var followControl func(ctx context.Context) error
	if mirrors != nil {
		if followControl, err = n.control(p.ctx, db); err != nil {
			return err
		}
	}
	if n.backend.Lease == nil {
		p.run("ingester", w.Run)
		return nil
	}
	p.closes("leases of the ingester", leases.close)
	if err := leases.take(n.backend); err != nil {
		return err
	}
	leases.watched(func(part string, lease Lease) {
		p.run("watcher of the "+part, func(ctx context.Context) error { n.watch(ctx, part, lease); return nil })
	})
	if followControl != nil {
		p.run("follower of the control plane", followControl)
	}
	for partition, lease := range leases.decisions {
		p.run(ingesterOf(partition), func(ctx context.Context) error { return n.ingestWhilePlaced(ctx, w, partition, lease, away) })
	}
	return nil
}

// ingestWhilePlaced writes a partition while it is placed here. The job database detects any other writer.
func (n *node) ingestWhilePlaced(ctx context.Context, w *sink.Writer, partition int, lease Lease, away *outage) error {
	for ctx.Err() == nil {
		if !lease.Active() {
			refuse(n.metrics.notWritten, partition, nil)
			n.metrics.health.report(ingesterOf(partition), nil)
			select {
			case <-lease.Changed():
			case <-ctx.Done():
			}
			continue
		}
		n.metrics.ingesting(partition, true)
		// After a while without an error, the partition is reported as working again.
		works := time.AfterFunc(failingFor/2, func() { n.metrics.health.report(ingesterOf(partition), nil) })
		err := runWhileActive(ctx, lease, func(ctx context.Context) error { return w.RunPartition(ctx, partition) })
		works.Stop()
		n.metrics.ingesting(partition, false)
		away.handedBack(partition)
		if err != nil {
			if !waitsForPerson(err) && !mayRecover(err) {
				return err
			}
			n.refuseToIngest(ctx, partition, lease, err)
		}
	}
	return nil
}

// waitsForPerson reports whether only an operator can resolve an error: the job database does not follow from this
// log. Other partitions continue.
func waitsForPerson(err error) bool {
	return errors.Is(err, chain.ErrMissing) || errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, eventlog.ErrCorrupt)
}

// refuseToIngest pauses the partition for a while, or until it is placed elsewhere.
func (n *node) refuseToIngest(ctx context.Context, partition int, lease Lease, err error) {
	refuse(n.metrics.notWritten, partition, err)
	if waitsForPerson(err) {
		n.metrics.health.refused(ingesterOf(partition), err)
	} else {
		n.metrics.health.report(ingesterOf(partition), err)
	}
	n.Log.Error("partition is not ingested: see docs/operate.md", slog.Int("partition", partition), slog.Any("error", err))
	again := time.NewTimer(refusedWait)
	defer again.Stop()
	select {
	case <-again.C:
	case <-lease.Changed():
	case <-ctx.Done():
	}
}

// runWhileActive runs something while a lease is active.
func runWhileActive(ctx context.Context, lease Lease, run func(context.Context) error) error {
	turn, over := context.WithCancel(ctx)
	defer over()
	done := make(chan error, 1)
	go func() { done <- run(turn) }()
	for {
		select {
		case err := <-done:
			return err
		case <-lease.Changed():
			if !lease.Active() {
				over()
				return <-done
			}
		case <-ctx.Done():
			return <-done
		}
	}
}
