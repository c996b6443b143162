package pulsarlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/rest"

	"github.com/refloat/refloat/internal/eventlog"
)

// classed adds a class to an error of the client, which passes the broker's codes on
// only as text.
func classed(err error) error {
	if err == nil || errors.Is(err, eventlog.ErrTransient) {
		return err
	}
	var class error
	switch {
	case has(err, codesDenied):
		class = ErrDenied
	case has(err, codesGone):
		class = ErrGone
	case has(err, codesFenced):
		class = eventlog.ErrFenced
	case has(err, codesPermanent):
		return err // a retry does not help, and there is no class for it
	default:
		class = eventlog.ErrTransient
	}
	return fmt.Errorf("%w: %w", class, err)
}

// adminClassed does the same for the admin API.
func adminClassed(err error) error {
	var e rest.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("admin API: %w: %w", eventlog.ErrTransient, err)
	}
	switch {
	case e.Code == 401 || e.Code == 403:
		return fmt.Errorf("admin API: %w: %w", ErrDenied, err)
	case e.Code == 404:
		return fmt.Errorf("admin API: %w: %w", ErrGone, err)
	case e.Code >= 500:
		return fmt.Errorf("admin API: %w: %w", eventlog.ErrTransient, err)
	}
	return fmt.Errorf("admin API: %w", err)
}

// spoken holds what the client last reported in its log. Failed authentication, and the
// reason why a connection fails, are reported nowhere else.
type spoken struct {
	mu     sync.Mutex
	text   string
	at     time.Time
	denied chan struct{} // closed, and replaced, when authentication fails
}

func (s *spoken) hear(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.at = text, time.Now()
	if refusesUs(text) {
		close(s.denied)
		s.denied = make(chan struct{})
	}
}

func (s *spoken) watch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.denied
}

// since returns what was logged after a time, in brackets.
func (s *spoken) since(t time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.Before(t) {
		return ""
	}
	return " (" + s.text + ")"
}

// bounded runs a call of the client, which may never return, for at most the limit and
// not beyond the life of the cluster. A later result is passed to late.
func bounded[T any](ctx context.Context, k *Cluster, limit time.Duration, call func() (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	begun, denied := time.Now(), k.reported.watch()
	done := make(chan result)
	gone := make(chan struct{})
	go func() {
		v, err := call()
		select {
		case done <- result{v, err}:
		case <-gone:
			if err == nil && late != nil {
				late(v)
			}
		}
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	var none T
	select {
	case r := <-done:
		return r.value, classed(r.err)
	case <-denied:
		close(gone)
		return none, fmt.Errorf("%w%s: check Auth", ErrDenied, k.reported.since(begun))
	case <-ctx.Done():
		close(gone)
		return none, ctx.Err()
	case <-k.ctx.Done():
		close(gone)
		return none, k.ctx.Err()
	case <-k.closed:
		close(gone)
		return none, fmt.Errorf("cluster: %w", fs.ErrClosed)
	case <-t.C:
		close(gone)
		return none, fmt.Errorf("no answer from the broker within %v%s: %w", limit, k.reported.since(begun), eventlog.ErrTransient)
	}
}
