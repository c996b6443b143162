package evaluator

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policylog"
)

// Placement signals whether this process should own a partition. It saves cost and is
// not needed for safety: several owners at once are safe (protocol.md 10).
type Placement interface {
	// Active reports whether this process should own the partition now.
	Active() bool
	// Changed receives when that may have changed.
	Changed() <-chan struct{}
}

// A Placement that can StepBack leaves the partition to others for a while, if this
// process cannot own it.
type steppingBack interface{ StepBack(d time.Duration) }

// Ownership is the producer, the state and the policies that an owner has during one term
// of ownership.
type Ownership struct {
	Store     Store
	Policies  *policylog.Log
	Publisher eventlog.Publisher
	Synced    func(positions follow.Positions) error // Config.Synced
	Close     func() error                           // closes all of it
}

// Loop keeps one partition owned, as long as it is placed here.
type Loop struct {
	Config    Config    // except for what Ownership has
	Placement Placement // nil: the partition is always placed here
	// Acquire obtains what a life needs: first the exclusive producer, then the state.
	Acquire func(ctx context.Context) (*Ownership, error)
	// Refused, if set, is called with the reason if the partition cannot be owned until
	// an operator acts, and with nil when it can again; the loop checks every RefusedWait.
	// If it is not set, Run returns the error.
	Refused     func(err error)
	RefusedWait time.Duration
	// Lost, if set, is called with the reason if the partition is lost, and with nil when
	// it is owned again or is placed elsewhere.
	Lost func(err error)
	// Rebuild, if set, reports whether the next Acquire returns a different state than the
	// one that ended a life with an error, for example because that one is damaged.
	Rebuild func(err error) bool
	Now     func() time.Time
	// BackOff returns how long to wait after the n-th consecutive loss, from 1.
	BackOff func(n int) time.Duration
	// DrainTimeout limits how long to wait for published envelopes at the end.
	DrainTimeout time.Duration
	Log          *slog.Logger
}

// Standby is the phase between two lives, for Hooks.Phase.
const Standby = "standby"

// Run keeps owning the partition: a loss costs a back-off, not the process. It returns
// nil when ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	if l.Config.Fit == nil {
		l.Config.Fit = &Fit{}
	}
	refused := false
	for losses := 1; l.awaitTurn(ctx); losses++ {
		live, err := l.own(ctx)
		l.phase(Standby)
		wasLive := !live.IsZero()
		if wasLive && l.Now().Sub(live) >= steady {
			losses = 1
		}
		if refused && (wasLive || isLoss(err)) {
			refused = false
			l.Refused(nil)
		}
		wait := time.Duration(0)
		switch {
		case ctx.Err() != nil && (err == nil || isLoss(err) || errors.Is(err, context.Canceled)):
			return nil
		case err == nil: // placed elsewhere
			losses = 0
			l.lost(nil)
			continue
		case l.Rebuild != nil && l.Rebuild(err):
			continue
		case isLoss(err):
			wait = l.BackOff(losses)
			l.lost(err)
			l.Log.Warn("partition lost", slog.Int("partition", l.Config.Partition), slog.Any("error", err), slog.Duration("again_in", wait))
		case l.Refused == nil:
			return err
		default:
			refused, wait = true, l.RefusedWait
			l.Refused(err)
			if p, ok := l.Placement.(steppingBack); ok {
				p.StepBack(wait)
			}
			l.Log.Error("partition refused", slog.Int("partition", l.Config.Partition), slog.Any("error", err), slog.Duration("again_in", wait))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		if refused && !l.placedWithin(ctx, refusedGrace) {
			refused = false // someone else has it
			l.Refused(nil)
		}
	}
	return nil
}

// steady is how long an owner must have decided before its loss counts as the first one again. Each life costs a claim
// in the decision log and a line in the process's log, so lives that end at once must not follow each other quickly.
const steady = time.Second

// refusedGrace is how long a partition may take to come back after StepBack.
const refusedGrace = 10 * time.Second

func (l *Loop) placedWithin(ctx context.Context, d time.Duration) bool {
	for over := time.After(d); l.placedElsewhere(); {
		select {
		case <-l.Placement.Changed():
		case <-over:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// awaitTurn waits until the partition is placed here, and reports whether that happened
// before ctx ended.
func (l *Loop) awaitTurn(ctx context.Context) bool {
	for ctx.Err() == nil {
		if l.Placement == nil || l.Placement.Active() {
			return true
		}
		l.lost(nil)
		select {
		case <-l.Placement.Changed():
		case <-ctx.Done():
		}
	}
	return false
}

func (l *Loop) lost(err error) {
	if l.Lost != nil {
		l.Lost(err)
	}
}

func (l *Loop) placedElsewhere() bool { return l.Placement != nil && !l.Placement.Active() }

func (l *Loop) phase(name string) {
	if l.Config.Hooks.Phase != nil {
		l.Config.Hooks.Phase(name)
	}
}

func isLoss(err error) bool {
	return errors.Is(err, ErrLost) || errors.Is(err, eventlog.ErrFenced) || errors.Is(err, eventlog.ErrTransient)
}

// own is one life of an owner, from acquiring the publisher to losing it, or until ctx
// or placement ends it. It returns since when the owner decided; zero: it never did.
func (l *Loop) own(ctx context.Context) (live time.Time, err error) {
	h, err := l.Acquire(ctx)
	if err != nil {
		return live, err
	}
	cfg := l.Config
	cfg.Store, cfg.Policies, cfg.Publisher, cfg.Synced = h.Store, h.Policies, h.Publisher, h.Synced
	o := NewOwner(cfg)
	defer func() { err = errors.Join(err, o.Close(), h.Close()) }()
	var placed <-chan struct{}
	if l.Placement != nil {
		placed = l.Placement.Changed()
	}
	done := ctx.Done()
	draining := false
	var deadline <-chan time.Time
	for {
		if !draining && (ctx.Err() != nil || l.placedElsewhere()) {
			o.Drain()
			draining, done, deadline = true, nil, time.After(l.DrainTimeout)
		}
		progress, err := o.Advance(l.Now().UnixNano())
		if live.IsZero() && o.phase == running {
			live = l.Now()
			l.logOlder(o.proc.Progress.Semantics)
			l.lost(nil)
		}
		switch {
		case err != nil:
			return live, err
		case draining && (o.Drained() || live.IsZero()):
			return live, nil
		case progress:
			continue
		}
		changed, wait := o.Changed(), idleCheck
		if !o.Drained() {
			wait = cmp.Or(cfg.SaveEvery, wait)
		}
		select {
		case <-changed[0]:
		case <-changed[1]:
		case <-changed[2]:
		case <-placed:
		case <-time.After(wait):
			if o.Drained() && h.Synced != nil { // a checkpoint may be due even without new input
				if err := h.Synced(o.Positions()); err != nil {
					return live, err
				}
			}
		case <-done:
		case <-deadline:
			return live, nil
		}
	}
}

// logOlder logs that a partition is decided by an older version of the semantics than the
// newest that this program knows.
func (l *Loop) logOlder(version uint32) {
	if 0 < version && nextSemantics(version, l.Config.Semantics) < SemanticsVersion {
		l.Log.Info("decided by an older version of the semantics; when every evaluator and ingester is upgraded, start with --semantics",
			slog.Int("partition", l.Config.Partition), slog.Uint64("in_force", uint64(version)), slog.Uint64("newest", SemanticsVersion))
	}
}

// idleCheck is how often an idle owner checks its timeouts and its publisher.
const idleCheck = time.Second
