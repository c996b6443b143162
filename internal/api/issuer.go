package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// OIDC configures an identity provider, and the claims that hold user name and groups.
type OIDC struct {
	Issuer        string `json:"issuer"`
	Audience      string `json:"audience"`
	UsernameClaim string `json:"usernameClaim"` // default sub
	GroupsClaim   string `json:"groupsClaim"`   // default groups
	Login         *Login `json:"login"`         // nil: people cannot sign in here; a client brings its token

	mu       sync.Mutex // of who asks for the provider's description
	client   *http.Client
	provider atomic.Pointer[oidc.Provider] // nil: it has not answered yet
}

func (o *OIDC) check() error {
	if o.Issuer == "" || o.Audience == "" {
		return errors.New("oidc: issuer and audience are required")
	}
	if err := secureURL(o.Issuer); err != nil {
		return fmt.Errorf("oidc.issuer: %w", err)
	}
	o.client = &http.Client{Timeout: providerTimeout, Transport: &throttled{limit: rate.NewLimiter(1, 5)}}
	if o.Login == nil {
		return nil
	}
	return o.Login.check(o)
}

// secureURL rejects an address at which anybody in between could answer.
func secureURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "":
		return errors.New("want an address such as https://login.example.org")
	case u.Scheme == "https", u.Scheme == "http" && OnLoopback(net.JoinHostPort(u.Hostname(), "0")):
		return nil
	}
	return errors.New("want https, except on this machine: anybody in between could sign in as anybody")
}

// at returns the identity provider, which is asked to describe itself until it has.
func (o *OIDC) at(ctx context.Context) (*oidc.Provider, error) {
	if p := o.provider.Load(); p != nil {
		return p, nil
	}
	if !o.mu.TryLock() {
		return nil, errors.New("another request is asking the identity provider")
	}
	defer o.mu.Unlock()
	p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), o.client), o.Issuer)
	if err != nil {
		return nil, err
	}
	o.provider.Store(p)
	return p, nil
}

// retryProvider is how often Await asks a provider that does not answer.
const retryProvider = 10 * time.Second

// Await asks the identity provider until it answers, and logs that it does not. Nobody who needs it can sign in before.
func (o *OIDC) Await(ctx context.Context, log *slog.Logger) error {
	failed := false
	for {
		_, err := o.at(ctx)
		switch {
		case err == nil && failed:
			log.Info("the identity provider answers", slog.String("issuer", o.Issuer))
			return nil
		case err == nil:
			return nil
		case !failed:
			failed = true
			log.Warn("the identity provider cannot be used: nobody can sign in with it until it answers", slog.String("issuer", o.Issuer), slog.Any("error", err))
		}
		select {
		case <-time.After(retryProvider):
		case <-ctx.Done():
			return nil
		}
	}
}

// verify verifies a token that is for one of these clients.
func (o *OIDC) verify(ctx context.Context, token string, configs ...*oidc.Config) (id *oidc.IDToken, err error) {
	provider, err := o.at(ctx)
	if err != nil {
		return nil, errNoProvider
	}
	for _, c := range configs {
		if id, err = provider.Verifier(c).Verify(ctx, token); err == nil {
			return id, nil
		}
		if strings.Contains(err.Error(), "fetching keys") && !strings.Contains(err.Error(), errAskedBefore.Error()) { // go-oidc has no error types
			return nil, errNoProvider
		}
	}
	return nil, err
}

// caller returns who a verified token is of.
func (o *OIDC) caller(id *oidc.IDToken) (Principal, error) {
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return Principal{}, errNoEntry
	}
	name := id.Subject
	if o.UsernameClaim != "" {
		name, _ = claims[o.UsernameClaim].(string)
	}
	if verified, ok := claims["email_verified"].(bool); o.UsernameClaim == "email" && ok && !verified {
		return Principal{}, errNoEntry // anybody could have typed it
	}
	p := Principal{Name: nameFor(name), Verified: true}
	if p.Name == "" {
		return Principal{}, errNoEntry
	}
	groups, _ := claims[cmp.Or(o.GroupsClaim, "groups")].([]any)
	for _, g := range groups {
		if g, ok := g.(string); ok {
			p.Groups = append(p.Groups, g)
		}
	}
	return p, nil
}

// mentioned returns those of groups that have a permission.
func (a *Auth) mentioned(groups []string) []string {
	has := func(g string) bool {
		for _, of := range a.Permissions {
			if slices.Contains(of, g) {
				return true
			}
		}
		for _, q := range a.Queues {
			if slices.Contains(slices.Concat(q.View, q.Override, q.Kill, q.Apply), g) {
				return true
			}
		}
		return false
	}
	return slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return !has(g) })
}

// providerTimeout is the timeout of a request to the identity provider.
const providerTimeout = 10 * time.Second

// throttled limits how often the identity provider is asked for its keys: each token with an invented key id would
// cause a request.
type throttled struct {
	limit  *rate.Limiter
	failed atomic.Bool // the last request failed
}

var errAskedBefore = errors.New("the identity provider was asked for its keys a moment ago")

// RoundTrip implements http.RoundTripper.
func (s *throttled) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case s.limit.Allow():
	case s.failed.Load():
		return nil, errors.New("the identity provider did not answer a moment ago")
	default:
		return nil, errAskedBefore
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	s.failed.Store(err != nil)
	return resp, err
}

var errNoProvider = status.Error(codes.Unavailable, "cannot get the keys of the identity provider now: try again")
