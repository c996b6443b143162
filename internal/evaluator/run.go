package evaluator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
)

// Loop keeps one partition owned until its context ends.
type Loop struct {
	Config Config
	// Publisher takes the right to publish to the partition's decisions.
	Publisher func() (eventlog.Publisher, error)
	Now       func() time.Time
	// BackOff is how long to wait after the n-th loss in a row, from 1.
	BackOff func(n int) time.Duration
	// DrainTimeout bounds how long published envelopes are waited for at the end.
	DrainTimeout time.Duration
	Log          *slog.Logger
}

// Run owns the partition again and again: a loss costs a back-off, not the
// process. It returns nil when ctx ends, and any error that is not a loss.
func (l *Loop) Run(ctx context.Context) error {
	for losses := 1; ; losses++ {
		wasLive, err := l.own(ctx)
		if ctx.Err() != nil && (err == nil || isLoss(err)) {
			return nil
		}
		if !isLoss(err) {
			return err
		}
		if wasLive {
			losses = 1
		}
		l.Log.Warn("partition lost", slog.Int("partition", l.Config.Partition), slog.Any("error", err))
		select {
		case <-time.After(l.BackOff(losses)):
		case <-ctx.Done():
			return nil
		}
	}
}

func isLoss(err error) bool {
	return errors.Is(err, ErrLost) || errors.Is(err, eventlog.ErrFenced) || errors.Is(err, eventlog.ErrTransient)
}

// own is one life of an owner, from taking the publisher to losing it.
func (l *Loop) own(ctx context.Context) (wasLive bool, err error) {
	pub, err := l.Publisher()
	if err != nil {
		return false, err
	}
	cfg := l.Config
	cfg.Publisher = pub
	o := NewOwner(cfg)
	defer func() { err = errors.Join(err, o.Close(), pub.Close()) }()
	done := ctx.Done()
	var deadline <-chan time.Time
	for {
		progress, err := o.Advance(l.Now().UnixNano())
		wasLive = wasLive || o.phase == running
		switch {
		case err != nil:
			return wasLive, err
		case done == nil && (o.Drained() || !wasLive):
			return wasLive, nil
		case progress && ctx.Err() == nil:
			continue
		case progress && done == nil:
			continue
		}
		changed := o.Changed()
		select {
		case <-changed[0]:
		case <-changed[1]:
		case <-changed[2]:
		case <-time.After(idleCheck):
		case <-done:
			o.Drain()
			done, deadline = nil, time.After(l.DrainTimeout)
		case <-deadline:
			return wasLive, nil
		}
	}
}

// idleCheck is how often an owner with nothing to do looks at its patience.
const idleCheck = time.Second
