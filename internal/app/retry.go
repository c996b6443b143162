package app

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// retry calls work until it succeeds, ctx ends, or it fails with an error that retrying cannot cure. It waits
// between two calls: first, then longer and longer up to last, with jitter. When ctx ends it returns the cause,
// whatever error the end of ctx made of work.
func retry[T any](ctx context.Context, first, last time.Duration, curable func(error) bool, failed func(error), work func() (T, error)) (T, error) {
	attempt := func() (T, error) {
		result, err := work()
		if err != nil && ctx.Err() == nil && !curable(err) {
			err = backoff.Permanent(err)
		}
		return result, err
	}
	return backoff.Retry(ctx, attempt, backoff.WithBackOff(delays(first, last)), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, _ time.Duration) { failed(err) }))
}

func delays(first, last time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = first, last
	return b
}

// randomBackOff returns a random delay that grows with each consecutive loss, up to 10 s.
func randomBackOff() func(losses int) time.Duration {
	b := delays(50*time.Millisecond, 10*time.Second)
	return func(losses int) time.Duration {
		if losses == 1 {
			b.Reset()
		}
		return b.NextBackOff()
	}
}

// every yields at once, and then after each interval until ctx ends.
func every(ctx context.Context, interval time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for yield() {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}
}
