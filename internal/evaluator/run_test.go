package evaluator_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
)

// TestLossesBackOff: an owner that loses its partition as soon as it decides waits longer each time; one that had
// decided for a while begins anew with the shortest wait.
func TestLossesBackOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		life time.Duration // that passes between two looks at the clock
		want []int
	}{
		"at once":       {0, []int{1, 2, 3, 4, 5}},
		"after a while": {10 * time.Second, []int{1, 1, 1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.feed(model.Generate(1, model.Options{}))
			decisions, err := filelog.Open(filelog.Config{FS: w.fs, Dir: "committed at once", Partitions: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer decisions.Close()
			ctx, stop := context.WithCancel(t.Context())
			var losses []int
			store, now := projection.NewMemory(), time.Unix(1_000_000, 0)
			l := evaluator.Loop{
				Config: evaluator.Config{
					Events: w.events, Decisions: decisions, Random: seeded{w.rng},
					Hooks: evaluator.Hooks{Point: func(point string) error {
						if point == evaluator.PointReceived { // it is live
							return fmt.Errorf("%w: as a test wants it", eventlog.ErrTransient)
						}
						return nil
					}},
				},
				Acquire: func(context.Context) (*evaluator.Ownership, error) {
					policies, err := policylog.Open(w.policies)
					if err != nil {
						return nil, err
					}
					return &evaluator.Ownership{Store: store, Policies: policies, Publisher: decisions.Publisher(0), Close: policies.Close}, nil
				},
				Now: func() time.Time { now = now.Add(c.life); return now },
				BackOff: func(n int) time.Duration {
					if losses = append(losses, n); len(losses) == len(c.want) {
						stop()
					}
					return 0
				},
				Log: slog.New(slog.DiscardHandler),
			}
			if err := l.Run(ctx); err != nil || !slices.Equal(losses, c.want) {
				t.Errorf("losses are counted as %v, want %v; Run = %v", losses, c.want, err)
			}
		})
	}
}
