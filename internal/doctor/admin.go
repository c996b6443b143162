package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// The classes of errors.
var (
	// ErrUnreachable: the admin API does not respond, or rejects our credentials.
	ErrUnreachable = errors.New("admin API is unreachable")
	// ErrDenied: we are not authorized.
	ErrDenied = errors.New("permission denied")
	// ErrNotFound: the object does not exist.
	ErrNotFound = errors.New("does not exist")
)

const (
	requestTimeout = 30 * time.Second
	maxAnswerBytes = 64 << 20
)

// Admin is a client of a cluster's admin API. (The client library cannot query
// effective policies, and reads unset ones as numbers.)
type Admin struct {
	base string
	http *http.Client
}

// NewAdmin returns a client with the credentials of c.
func NewAdmin(c pulsarlog.Config) (*Admin, error) {
	if c.AdminURL == "" {
		return nil, pulsarlog.ErrNoAdmin
	}
	transport, err := c.Transport()
	if err != nil {
		return nil, err
	}
	return &Admin{
		base: strings.TrimRight(c.AdminURL, "/") + "/admin/v2/",
		http: &http.Client{Transport: transport, Timeout: requestTimeout},
	}, nil
}

// answer sends a GET request and decodes the JSON response.
func answer[T any](ctx context.Context, a *Admin, path string) Fact[T] {
	var f Fact[T]
	body, err := a.do(ctx, http.MethodGet, path, nil)
	if err == nil && len(body) > 0 { // an empty body: not set
		if err = json.Unmarshal(body, &f.Value); err != nil {
			err = fmt.Errorf("GET %s: %w", path, err)
		}
	}
	f.Err = err
	return f
}

// text sends a GET request for plain text.
func (a *Admin) text(ctx context.Context, path string) Fact[string] {
	body, err := a.do(ctx, http.MethodGet, path, nil)
	return Fact[string]{Value: strings.Trim(strings.TrimSpace(string(body)), `"`), Err: err}
}

// do sends one request, with in as JSON.
func (a *Admin) do(ctx context.Context, method, path string, in any) ([]byte, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, a.base+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/plain;q=0.9")
	resp, err := a.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, fmt.Errorf("%w: %s %s: %w", ErrUnreachable, method, path, err)
	}
	if resp.StatusCode < 300 {
		return out, nil
	}
	var problem struct{ Reason string }
	if json.Unmarshal(out, &problem) != nil || problem.Reason == "" {
		problem.Reason = http.StatusText(resp.StatusCode)
	}
	return nil, &statusError{code: resp.StatusCode, text: fmt.Sprintf("%s %s: %d: %s", method, path, resp.StatusCode, problem.Reason)}
}

// statusError is a response with an error status.
type statusError struct {
	code int
	text string
}

// Error returns the request and the broker's reason.
func (e *statusError) Error() string { return e.text }

// Unwrap returns the error's class.
func (e *statusError) Unwrap() error {
	switch e.code {
	case http.StatusUnauthorized, http.StatusForbidden: // brokers use 401 for both
		return ErrDenied
	case http.StatusNotFound:
		return ErrNotFound
	}
	return nil
}

func statusOf(err error) int {
	if e := new(statusError); errors.As(err, &e) {
		return e.code
	}
	return 0
}
