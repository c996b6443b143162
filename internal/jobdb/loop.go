package jobdb

import (
	"context"
	"errors"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
)

// Loop keeps a writer of a job database going.
type Loop struct {
	// Advance writes what there is to write; progress: there was something.
	Advance func(context.Context) (progress bool, err error)
	// Await waits until there may be more.
	Await func(context.Context)
	// Retry and Recovered are notified of an error that is retried, and of the first success after it; nil: nobody is.
	Retry     func(error)
	Recovered func()
}

// The delays between retries: doubled from the first to the last.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 10 * time.Second
)

// Run advances until ctx ends, and then returns nil. Errors that a retry may fix are retried with growing delays; any
// other error ends it.
func (l *Loop) Run(ctx context.Context) error {
	wait, failing := firstWait, false
	for ctx.Err() == nil {
		progress, err := l.Advance(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, eventlog.ErrTransient):
			return err
		case err != nil:
			failing = true
			if l.Retry != nil {
				l.Retry(err)
			}
			_ = eventlog.Sleep(ctx, wait)
			wait = min(2*wait, lastWait)
			continue
		}
		if failing && l.Recovered != nil {
			l.Recovered()
		}
		wait, failing = firstWait, false
		if !progress {
			l.Await(ctx)
		}
	}
	return nil
}
