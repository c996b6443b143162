package controlplane

import (
	"context"
	"errors"

	"github.com/refloat/refloat/internal/jobdb"
)

// Run applies messages until ctx ends, and then returns nil. It retries transient
// errors with a growing delay, and returns any other error.
func (f *Follower) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	loop := jobdb.Loop{Advance: f.Advance, Await: func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-f.reader.Changed():
		}
	}}
	if retry := f.cfg.Hooks.Retry; retry != nil {
		loop.Retry = func(err error) { retry(f.cfg.Partition, err) }
	}
	return loop.Run(ctx)
}
