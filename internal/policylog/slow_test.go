package policylog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// within fails the test if f does not end in time, and returns its error.
func within(t *testing.T, what string, f func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s waits for a slow append", what)
		return nil
	}
}

// TestSlowAppend checks that while an append hangs, reads and urgent changes work, and no call waits longer than
// its context. The abandoned append is found when it has ended.
func TestSlowAppend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hangs, resume := make(chan struct{}), make(chan struct{})
	slow := func(ctx context.Context, payload []byte) error {
		select {
		case hangs <- struct{}{}:
			<-resume // whatever ctx says
			return w.append(context.WithoutCancel(ctx), payload)
		default:
			return w.append(ctx, payload)
		}
	}
	s := w.store(slow)
	if _, err := s.Do(t.Context(), policylog.Edit{Author: "ann", Make: putting("before", "")}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	edit := policylog.Edit{Author: "ann", Request: "slow#1", Make: putting("slow", "")}
	go func() {
		_, err := s.Do(short, edit)
		first <- err
	}()
	<-hangs
	for what, read := range map[string]func(ctx context.Context) error{
		"Newest":  func(ctx context.Context) error { _, err := s.Newest(ctx); return err },
		"At":      func(ctx context.Context) error { _, err := s.At(ctx, 1); return err },
		"History": func(ctx context.Context) error { _, err := s.History(ctx); return err },
		"an urgent change": func(ctx context.Context) error {
			_, err := s.Do(ctx, policylog.Edit{Author: "ann", Urgent: true, Make: func(now policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
				return now.Base, []policylog.Override{{Override: policyfile.Override{Kill: true}, Author: "ann", Reason: "x"}}, nil
			}})
			return err
		},
	} {
		if err := within(t, what, read); err != nil {
			t.Errorf("%s while an append hangs: %v", what, err)
		}
	}
	cancel()
	if err := within(t, "the change", func(context.Context) error { return <-first }); !errors.Is(err, policylog.ErrUnknown) {
		t.Errorf("a change whose append hangs: %v", err)
	}
	err := within(t, "another change", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err := s.Do(ctx, policylog.Edit{Author: "ann", Make: putting("other", "")})
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another change while an append hangs: %v", err)
	}
	close(resume)
	made, err := s.Do(t.Context(), edit)
	if err != nil {
		t.Fatalf("the change once more: %v", err)
	}
	now, err := s.Newest(t.Context())
	if _, ok := now.Base.Body(queue("slow")); !ok || err != nil || len(now.ActiveOverrides()) != 1 || made.Number != now.Generation() {
		t.Errorf("generation %d, %v: slow %t, overrides %v", now.Generation(), err, ok, now.ActiveOverrides())
	}
}
