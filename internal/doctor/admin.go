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

// Errors by class.
var (
	// ErrUnreachable: the admin API gives no answer, or does not know us.
	ErrUnreachable = errors.New("admin API is not reachable")
	// ErrDenied: we may not ask or do this.
	ErrDenied = errors.New("not allowed")
	// ErrNotThere: there is no such thing.
	ErrNotThere = errors.New("does not exist")
)

const (
	requestTimeout = 30 * time.Second
	maxAnswerBytes = 64 << 20
)

// Admin asks the admin API of a cluster. (The client library's own has no way to
// ask for policies in force, and takes what is not set for a number.)
type Admin struct {
	base string
	http *http.Client
}

// NewAdmin makes the client, which shows the broker the identity of c.
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
	config := &tls.Config{InsecureSkipVerify: c.TLS.AllowInsecure} //nolint:gosec // as asked
	if c.TLS.CAFile != "" {
		pem, err := os.ReadFile(c.TLS.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read certificates to trust: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", c.TLS.CAFile)
		}
	}
	if c.TLS.NoHostnameCheck && !c.TLS.AllowInsecure {
		config.InsecureSkipVerify = true // and all but the host name is checked here
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

// bearer shows a token with each request.
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

// sameIdentity follows the brokers' redirections to the one that owns a topic,
// but does not leave TLS for them: the token goes along.
func sameIdentity(r *http.Request, via []*http.Request) error {
	if len(via) > 10 {
		return errors.New("too many redirections")
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return fmt.Errorf("redirected from TLS to %s", r.URL.Host)
	}
	return nil
}

// answer asks for something and reads it as JSON.
func answer[T any](ctx context.Context, a *Admin, path string) Fact[T] {
	var f Fact[T]
	body, err := a.do(ctx, http.MethodGet, path, nil)
	if err == nil && len(body) > 0 { // nothing: it is not set
		if err = json.Unmarshal(body, &f.Value); err != nil {
			err = fmt.Errorf("GET %s: %w", path, err)
		}
	}
	f.Err = err
	return f
}

// text asks for something that is no JSON.
func (a *Admin) text(ctx context.Context, path string) Fact[string] {
	body, err := a.do(ctx, http.MethodGet, path, nil)
	return Fact[string]{Value: strings.Trim(strings.TrimSpace(string(body)), `"`), Err: err}
}

// do makes one request, with in as its JSON.
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
	var said struct{ Reason string }
	if json.Unmarshal(out, &said) != nil || said.Reason == "" {
		said.Reason = http.StatusText(resp.StatusCode)
	}
	return nil, &statusError{code: resp.StatusCode, text: fmt.Sprintf("%s %s: %d: %s", method, path, resp.StatusCode, said.Reason)}
}

// statusError is an answer that is none of success.
type statusError struct {
	code int
	text string
}

// Error is what was asked and what the broker said.
func (e *statusError) Error() string { return e.text }

// Unwrap gives the answer its class.
func (e *statusError) Unwrap() error {
	switch e.code {
	case http.StatusUnauthorized, http.StatusForbidden: // brokers use the former for both
		return ErrDenied
	case http.StatusNotFound:
		return ErrNotThere
	}
	return nil
}

func statusOf(err error) int {
	if e := new(statusError); errors.As(err, &e) {
		return e.code
	}
	return 0
}
