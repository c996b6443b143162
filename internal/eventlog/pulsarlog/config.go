package pulsarlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/apache/pulsar-client-go/pulsaradmin"
)

func (c Config) withDefaults() (Config, error) {
	set := func(d *string, v string) {
		if *d == "" {
			*d = v
		}
	}
	set(&c.Tenant, "public")
	set(&c.Namespace, "default")
	if c.KeepAlive == 0 {
		c.KeepAlive = defaultKeepAlive
	}
	if c.ConnectionTimeout == 0 {
		c.ConnectionTimeout = defaultConnectionTimeout
	}
	if c.OperationTimeout == 0 {
		c.OperationTimeout = defaultOperationTimeout
	}
	if c.ReconnectFor == 0 {
		c.ReconnectFor = defaultReconnectFor
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = defaultMaxConnections
	}
	if c.ReceiverQueue == 0 {
		c.ReceiverQueue = defaultReceiverQueue
	}
	if c.InFlight == 0 {
		c.InFlight = defaultInFlight
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, c.check()
}

// check finds mistakes that the client would report later, or not at all.
func (c Config) check() error {
	if err := checkURL("ServiceURL", c.ServiceURL, "pulsar", "pulsar+ssl", "pulsar://host:6650"); err != nil {
		return err
	}
	if c.AdminURL != "" {
		if err := checkURL("AdminURL", c.AdminURL, "http", "https", "http://host:8080"); err != nil {
			return err
		}
	}
	for _, f := range []struct{ field, value string }{{"Tenant", c.Tenant}, {"Namespace", c.Namespace}} {
		if strings.ContainsAny(f.value, "/: ") {
			return fmt.Errorf("%s is %q, want a plain name: tenant and namespace are two fields", f.field, f.value)
		}
	}
	switch {
	case c.KeepAlive < 0, c.ConnectionTimeout < 0, c.OperationTimeout < 0, c.ReconnectFor < 0:
		return errors.New("KeepAlive, ConnectionTimeout, OperationTimeout and ReconnectFor must not be negative: omit them to use the defaults")
	case c.MaxConnections < 0 || c.ReceiverQueue < 0:
		return errors.New("MaxConnections and ReceiverQueue must not be negative: omit them to use the defaults")
	case c.InFlight < 0 || c.InFlight > maxPending/2:
		return fmt.Errorf("InFlight is %d, want 1 to %d", c.InFlight, maxPending/2)
	}
	if err := c.Auth.check(); err != nil {
		return err
	}
	return c.checkTLS()
}

func checkURL(field, value, plain, secure, example string) error {
	scheme, rest, ok := strings.Cut(value, "://")
	switch {
	case value == "":
		return fmt.Errorf("%s is required: for example %s", field, example)
	case !ok || scheme != plain && scheme != secure:
		// The value may contain a password by mistake: it is not printed.
		return fmt.Errorf("%s has an unsupported scheme, want %s:// or %s://, for example %s", field, plain, secure, example)
	case strings.Contains(rest, "@"):
		return fmt.Errorf("%s contains a user name or a password: remove it, and use Auth", field)
	case strings.Trim(rest, "/") == "":
		return fmt.Errorf("%s has no host, want for example %s", field, example)
	}
	return nil
}

func (a Auth) check() error {
	ways := 0
	for _, on := range []bool{a.Token != "", a.TokenFile != "", a.OAuth2 != OAuth2{}, a.CertFile != "" || a.KeyFile != ""} {
		if on {
			ways++
		}
	}
	o := a.OAuth2
	switch {
	case ways > 1:
		return errors.New("Auth has more than one of Token, TokenFile, OAuth2 and CertFile: keep one")
	case a.CertFile != "" && a.KeyFile == "":
		return errors.New("Auth.KeyFile is required: set it to the private key of Auth.CertFile")
	case a.KeyFile != "" && a.CertFile == "":
		return errors.New("Auth.CertFile is required: set it to the certificate of Auth.KeyFile")
	case o != OAuth2{} && o.Issuer == "":
		return errors.New("Auth.OAuth2.Issuer is required: set it to the URL of the identity provider")
	case o != OAuth2{} && o.KeyFile == "":
		return errors.New("Auth.OAuth2.KeyFile is required: set it to the JSON file with client id and secret")
	}
	return errors.Join(
		readable("Auth.TokenFile", a.TokenFile),
		readable("Auth.CertFile", a.CertFile),
		readable("Auth.KeyFile", a.KeyFile),
		o.checkKey(),
	)
}

// checkKey reads the file, which the client does only when it connects.
func (o OAuth2) checkKey() error {
	if o.KeyFile == "" || strings.HasPrefix(o.KeyFile, "data:") {
		return nil
	}
	text, err := os.ReadFile(strings.TrimPrefix(o.KeyFile, "file://"))
	if err != nil {
		return fmt.Errorf("Auth.OAuth2.KeyFile: %w", err)
	}
	if !json.Valid(text) {
		return errors.New("Auth.OAuth2.KeyFile is not JSON: use the file with client id and secret from the identity provider")
	}
	return nil
}

func (c Config) checkTLS() error {
	secure := strings.HasPrefix(c.ServiceURL, "pulsar+ssl://")
	adminSecure := strings.HasPrefix(c.AdminURL, "https://")
	switch {
	case c.TLS != TLS{} && !secure && !adminSecure:
		return errors.New("TLS is set, but ServiceURL does not use it: use pulsar+ssl:// and the TLS port, or remove TLS")
	case c.Auth.CertFile != "" && !secure:
		return errors.New("Auth.CertFile is set, but ServiceURL does not use TLS: use pulsar+ssl:// and the TLS port")
	}
	return readable("TLS.CAFile", c.TLS.CAFile)
}

func readable(field, path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return f.Close()
}

// newAdmin creates the client of the admin API with the same credentials.
func newAdmin(c Config) (pulsaradmin.Client, error) {
	a := &pulsaradmin.Config{
		WebServiceURL:                 c.AdminURL,
		TLSTrustCertsFilePath:         c.TLS.CAFile,
		TLSAllowInsecureConnection:    c.TLS.AllowInsecure,
		TLSEnableHostnameVerification: !c.TLS.NoHostnameCheck && !c.TLS.AllowInsecure,
		TLSCertFile:                   c.Auth.CertFile,
		TLSKeyFile:                    c.Auth.KeyFile,
		Token:                         c.Auth.Token,
		TokenFile:                     c.Auth.TokenFile,
	}
	if o := c.Auth.OAuth2; o != (OAuth2{}) {
		a.AuthPlugin = "oauth2"
		a.IssuerEndpoint, a.ClientID, a.Audience, a.KeyFile, a.Scope = o.Issuer, o.ClientID, o.Audience, o.KeyFile, o.Scope
	}
	return pulsaradmin.NewClient(a)
}
