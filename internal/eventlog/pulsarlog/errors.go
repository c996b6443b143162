package pulsarlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
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
func (k *Cluster) adminClassed(err error) error {
	var e rest.Error
	switch {
	case errors.Is(err, ErrDenied), errors.Is(err, eventlog.ErrTransient):
		return fmt.Errorf("admin API: %w", err)
	case !errors.As(err, &e):
		return fmt.Errorf("admin API: %w: %w", eventlog.ErrTransient, err)
	case e.Code == 401 || e.Code == 403: // brokers use 401 for both
		return fmt.Errorf("admin API: %w: %w: %s", ErrDenied, err, k.cfg.grant())
	case e.Code == 404:
		return fmt.Errorf("admin API: %w: %w", ErrGone, err)
	case e.Code >= 500:
		return fmt.Errorf("admin API: %w: %w", eventlog.ErrTransient, err)
	}
	return fmt.Errorf("admin API: %w", err)
}

// refusal returns the error for a refusal.
func (c *Config) refusal(why refusal, reason error) error {
	switch why {
	case refusedUs:
		return fmt.Errorf("%w (%w): check %s", ErrDenied, reason, c.credentials())
	case refusedThem:
		return fmt.Errorf("%w: the broker's certificate is not trusted (%w): check %s, and the host of %s",
			eventlog.ErrTransient, reason, c.named("TLS.CAFile", c.TLS.CAFile), c.name("ServiceURL"))
	case noIdentity:
		return fmt.Errorf("%w: no credentials to authenticate with (%w)", eventlog.ErrTransient, reason)
	case notRefused:
	}
	return fmt.Errorf("%w: %w", eventlog.ErrTransient, reason)
}

// credentials names the setting by which we authenticate.
func (c *Config) credentials() string {
	switch a := c.Auth; {
	case a.Token != "":
		return c.name("Auth.Token")
	case a.OAuth2 != OAuth2{}:
		return c.named("Auth.OAuth2.KeyFile", a.OAuth2.KeyFile)
	case a.CertFile != "":
		return c.named("Auth.CertFile", a.CertFile)
	case a.TokenFile != "":
		return c.named("Auth.TokenFile", a.TokenFile)
	}
	return c.name("Auth.TokenFile") + ", or another way to authenticate"
}

// grant says what to do about a missing permission.
func (c *Config) grant() string {
	return "the role of " + c.credentials() + " needs this permission"
}

// named is a setting with its value, which is no secret.
func (c *Config) named(field, value string) string {
	return strings.TrimSpace(c.name(field) + " " + value)
}

// spoken holds what the client last reported in its log. A refused connection, and the
// reason why one fails, are reported nowhere else.
type spoken struct {
	mu      sync.Mutex
	text    string
	at      time.Time
	refusal error         // of the last connection that was refused
	refused chan struct{} // closed, and replaced, when that happens
}

// hear takes a line of the client's log, and the error that belongs to it.
func (k *Cluster) hear(text, reason string) {
	if reason != "" {
		text += ": " + reason
	}
	why := refused(text)
	if why == refusedUs {
		k.identity.forget()
	}
	s := &k.reported
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.at = text, time.Now()
	if why != notRefused {
		s.refusal = k.cfg.refusal(why, errors.New(text))
		close(s.refused)
		s.refused = make(chan struct{})
	}
}

func (s *spoken) watch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

func (s *spoken) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal
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
	begun, refused := time.Now(), k.reported.watch()
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
		err := classed(r.err)
		if errors.Is(err, ErrDenied) {
			err = fmt.Errorf("%w: %s", err, k.cfg.grant())
		}
		return r.value, err
	case <-refused:
		close(gone)
		return none, k.reported.why()
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
