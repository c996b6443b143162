package app

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
)

// stopping records what stops, in order.
type stopping struct {
	mu    sync.Mutex
	order []string
}

func (s *stopping) note(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = append(s.order, name)
}

// TestPartsStopInReverse: a resource is closed after everything that was started later has ended.
func TestPartsStopInReverse(t *testing.T) {
	t.Parallel()
	failure := errors.New("broken")
	closing := errors.New("not closed")
	for name, tt := range map[string]struct {
		started error
		work    func(ctx context.Context, cancel func()) error // of the last part
		want    error
	}{
		"a part fails":           {work: func(context.Context, func()) error { return failure }, want: failure},
		"the start fails":        {started: failure, work: func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }, want: failure},
		"the context ends":       {work: func(ctx context.Context, cancel func()) error { cancel(); <-ctx.Done(); return ctx.Err() }},
		"a part ends all":        {work: func(context.Context, func()) error { return errEnded }},
		"it fails while it ends": {work: func(ctx context.Context, cancel func()) error { cancel(); <-ctx.Done(); return failure }, want: failure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var s stopping
			part := func(name string) func(context.Context) error {
				return func(ctx context.Context) error { <-ctx.Done(); s.note(name); return nil }
			}
			p := newParts(ctx)
			p.closes("a", func() error { s.note("a closed"); return closing })
			p.run("b", part("b"))
			p.closes("c", func() error { s.note("c closed"); return nil })
			p.run("d", func(ctx context.Context) error {
				return tt.work(ctx, func() { cancel(errors.New("interrupted")) })
			})
			err := p.wait(tt.started)
			if !errors.Is(err, closing) || tt.want != nil && !errors.Is(err, tt.want) || tt.want == nil && errors.Is(err, failure) {
				t.Errorf("error %v, want %v and %v", err, tt.want, closing)
			}
			var closed []string
			for _, name := range s.order {
				if name != "b" {
					closed = append(closed, name)
				}
			}
			if want := []string{"c closed", "a closed"}; !reflect.DeepEqual(closed, want) || s.order[len(s.order)-1] != "a closed" {
				t.Errorf("stopped %v, want c closed before a closed, and that last", s.order)
			}
		})
	}
}
