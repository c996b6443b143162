package sink

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/refloat/refloat/internal/jobdb"
)

// Run writes rows until ctx ends, and then returns nil. Each partition has its own loop,
// so a waiting partition does not delay others. Errors that a retry may fix are retried
// with growing delays; any other error ends Run.
func (w *Writer) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range w.parts {
		group.Go(func() error { return w.run(ctx, p) })
	}
	return group.Wait()
}

// RunPartition writes the rows of one partition until ctx ends, as Run does.
func (w *Writer) RunPartition(ctx context.Context, partition int) error {
	return w.run(ctx, w.parts[partition])
}

func (w *Writer) run(ctx context.Context, p *part) error {
	loop := jobdb.Loop{
		Advance: func(ctx context.Context) (bool, error) { return w.Advance(ctx, p.number) },
		Await:   func(ctx context.Context) { w.await(ctx, p) },
	}
	if retry := w.cfg.Hooks.Retry; retry != nil {
		loop.Retry = func(err error) { retry(p.number, err) }
	}
	if recovered := w.cfg.Hooks.Recovered; recovered != nil {
		loop.Recovered = func() { recovered(p.number) }
	}
	return loop.Run(ctx)
}

// wakeAt returns when a release, the mirror or pruning may be due; zero: none of them.
func (w *Writer) wakeAt(p *part) (at time.Time) {
	if w.cfg.ReleaseAfter > 0 {
		at = p.releaseCheck
	}
	if p.mirror != nil {
		if due := p.mirror.Due(); at.IsZero() || !due.IsZero() && due.Before(at) {
			at = due
		}
	}
	if w.cfg.Retain.Prunes() && (at.IsZero() || p.prune.at.Before(at)) {
		at = p.prune.at
	}
	return at
}

// await waits until there may be more to read, or something is due.
func (w *Writer) await(ctx context.Context, p *part) {
	events, decisions := p.follower.Changed()
	var due <-chan time.Time
	if at := w.wakeAt(p); !at.IsZero() {
		t := time.NewTimer(at.Sub(w.cfg.Now()))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
	case <-events:
	case <-decisions:
	case <-due:
	}
}
