package controlplane

import (
	"context"
	"errors"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// The delay between retries doubles from firstWait to lastWait.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 10 * time.Second
)

// Run applies messages until ctx ends, and then returns nil. It retries transient
// errors with a growing delay, and returns any other error.
func (f *Follower) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	wait := firstWait
	for ctx.Err() == nil {
		progress, err := f.Advance(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && !transient(err):
			return err
		case err != nil:
			if f.cfg.Hooks.Retry != nil {
				f.cfg.Hooks.Retry(f.cfg.Partition, err)
			}
			pause(ctx, wait)
			wait = min(2*wait, lastWait)
			continue
		case !progress:
			select {
			case <-ctx.Done():
			case <-f.reader.Changed():
			}
		}
		wait = firstWait
	}
	return nil
}

func transient(err error) bool {
	return errors.Is(err, jobdb.ErrUnavailable) || errors.Is(err, eventlog.ErrTransient)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
