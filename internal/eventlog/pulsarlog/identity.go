package pulsarlog

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/apache/pulsar-client-go/oauth2"
	"github.com/apache/pulsar-client-go/oauth2/cache"
	"github.com/apache/pulsar-client-go/pulsar/auth"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/admin"
	adminauth "github.com/apache/pulsar-client-go/pulsaradmin/pkg/admin/auth"
)

// identity is who we are to a cluster, for connections to brokers and for the admin API.
type identity struct {
	provider auth.Provider          // for the client; nil: nobody
	token    func() (string, error) // nil: we show none
	forget   func()                 // the cluster refused the token: the next one must be new
}

// identity creates the identity. It connects to nothing.
func (c *Config) identity() (*identity, error) {
	i := &identity{forget: func() {}}
	switch a := c.Auth; {
	case a.Token != "":
		i.token = func() (string, error) { return a.Token, nil }
	case a.TokenFile != "":
		i.token = c.readToken
	case a.OAuth2 != OAuth2{}:
		source, err := c.oauth2()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name("Auth.OAuth2.KeyFile"), err)
		}
		i.forget = func() { _ = source.InvalidateToken() } // it only returns nil
		i.token = func() (string, error) {
			t, err := source.Token()
			if err != nil {
				return "", fmt.Errorf("get a token from %s %s with %s %s: %w",
					c.name("Auth.OAuth2.Issuer"), a.OAuth2.Issuer, c.name("Auth.OAuth2.KeyFile"), a.OAuth2.KeyFile, err)
			}
			return t.AccessToken, nil
		}
	case a.CertFile != "":
		i.provider = auth.NewAuthenticationFromTLSCertSupplier(c.clientCertificate)
	}
	if i.token != nil {
		i.provider = lazy{auth.NewAuthenticationTokenFromSupplier(i.token)}
	}
	return i, nil
}

// lazy is a provider that is not asked for a token before it is needed.
type lazy struct{ auth.Provider }

// Init implements auth.Provider.
func (lazy) Init() error { return nil }

func (c *Config) oauth2() (cache.CachingTokenSource, error) {
	o := c.Auth.OAuth2
	flow, err := oauth2.NewDefaultClientCredentialsFlow(oauth2.ClientCredentialsFlowOptions{
		KeyFile: o.KeyFile, IssuerURL: o.Issuer, AdditionalScopes: strings.Fields(o.Scope),
	})
	if err != nil {
		return nil, err
	}
	return cache.NewDefaultTokenCache(o.Audience, flow)
}

func (c *Config) readToken() (string, error) {
	name := c.name("Auth.TokenFile")
	text, err := os.ReadFile(c.Auth.TokenFile)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s %s: the file is empty", name, c.Auth.TokenFile)
	}
	return token, nil
}

func (c *Config) clientCertificate() (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(c.Auth.CertFile, c.Auth.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s %s and %s %s: %w", c.name("Auth.CertFile"), c.Auth.CertFile, c.name("Auth.KeyFile"), c.Auth.KeyFile, err)
	}
	return &cert, nil
}

// roots returns the certificates to trust; nil: the system's.
func (c *Config) roots() (*x509.CertPool, error) {
	if c.TLS.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.TLS.CAFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name("TLS.CAFile"), err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s %s contains no PEM certificate", c.name("TLS.CAFile"), c.TLS.CAFile)
	}
	return pool, nil
}

// tlsConfig returns what to trust now, and the certificate that the file holds at each handshake.
func (c *Config) tlsConfig() (*tls.Config, error) {
	roots, err := c.roots()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, InsecureSkipVerify: c.TLS.AllowInsecure} //nolint:gosec // on request
	if c.Auth.CertFile != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.clientCertificate() }
	}
	if c.TLS.NoHostnameCheck && !c.TLS.AllowInsecure {
		config.InsecureSkipVerify = true // verifyChain checks everything except the host name
		config.VerifyConnection = c.verifyChain
	}
	return config, nil
}

func (c *Config) verifyChain(s tls.ConnectionState) error {
	roots, err := c.roots()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, cert := range s.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	if _, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// Transport returns the transport for requests to the admin API. It reads files again as [Auth] and [TLS] say.
func (c Config) Transport() (http.RoundTripper, error) {
	i, err := c.identity()
	if err = errors.Join(err, c.checkAuth(), c.checkTLS()); err != nil {
		return nil, err
	}
	return c.transport(i), nil
}

func (c *Config) transport(i *identity) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := c.tlsConfig()
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	}
	return &requester{c, i, t}
}

// requester sends requests to the admin API as who we are.
type requester struct {
	config *Config
	*identity
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. Brokers may redirect a request to the owner of a topic; the token goes along,
// but never from TLS to plain HTTP.
func (q *requester) RoundTrip(r *http.Request) (*http.Response, error) {
	if q.token != nil {
		if r.URL.Scheme != "https" && strings.HasPrefix(q.config.AdminURL, "https://") {
			return nil, fmt.Errorf("redirected from TLS to %s", r.URL.Host)
		}
		token, err := q.token()
		if err != nil {
			return nil, q.config.refusal(noIdentity, err)
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := q.next.RoundTrip(r)
	switch {
	case err != nil && refused(err.Error()) != notRefused:
		return nil, q.config.refusal(refused(err.Error()), err)
	case err == nil && resp.StatusCode == http.StatusUnauthorized:
		q.forget()
	}
	return resp, err
}

// admin creates the client of the admin API. The library's own transports read files only once.
func (c *Config) admin(i *identity) (pulsaradmin.Client, error) {
	return admin.NewPulsarClientWithAuthProvider(&pulsaradmin.Config{WebServiceURL: c.AdminURL}, adminauth.NewDefaultProvider(c.transport(i)))
}
