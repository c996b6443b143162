package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/admin/auth"

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
	transport := http.DefaultTransport.(*http.Transport).Clone()
	config, err := tlsConfig(c)
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = config
	a := &Admin{
		base: strings.TrimRight(c.AdminURL, "/") + "/admin/v2/",
		http: &http.Client{Transport: transport, Timeout: requestTimeout, CheckRedirect: sameIdentity},
	}
	switch o := c.Auth.OAuth2; {
	case c.Auth.Token != "":
		a.http.Transport = bearer{transport, func() (string, error) { return c.Auth.Token, nil }}
	case c.Auth.TokenFile != "":
		a.http.Transport = bearer{transport, func() (string, error) {
			b, err := os.ReadFile(c.Auth.TokenFile)
			return strings.TrimSpace(string(b)), err
		}}
	case o != pulsarlog.OAuth2{}:
		p, err := auth.NewAuthenticationOAuth2WithParams(o.Issuer, o.ClientID, o.Audience, o.KeyFile, transport)
		if err != nil {
			return nil, fmt.Errorf("OAuth2: %w", err)
		}
		a.http.Transport = p
	}
	return a, nil
}

func tlsConfig(c pulsarlog.Config) (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: c.TLS.AllowInsecure} //nolint:gosec // on request
	if c.TLS.CAFile != "" {
		pem, err := os.ReadFile(c.TLS.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read trusted certificates: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s contains no PEM certificate", c.TLS.CAFile)
		}
	}
	if c.TLS.NoHostnameCheck && !c.TLS.AllowInsecure {
		config.InsecureSkipVerify = true // VerifyConnection checks everything except the host name
		config.VerifyConnection = func(s tls.ConnectionState) error {
			rest := x509.NewCertPool()
			for _, cert := range s.PeerCertificates[1:] {
				rest.AddCert(cert)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: config.RootCAs, Intermediates: rest})
			return err
		}
	}
	if c.Auth.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(c.Auth.CertFile, c.Auth.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

// bearer sends a token with each request.
type bearer struct {
	next  http.RoundTripper
	token func() (string, error)
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.token()
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.next.RoundTrip(r)
}

// sameIdentity follows redirects of the brokers to the owner of a topic, but not from
// TLS to plain HTTP, since the token is sent along.
func sameIdentity(r *http.Request, via []*http.Request) error {
	if len(via) > 10 {
		return errors.New("too many redirects")
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return fmt.Errorf("redirected from TLS to %s", r.URL.Host)
	}
	return nil
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
