package pulsarlog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

func (c Config) withDefaults() (Config, error) {
	c.Tenant = cmp.Or(c.Tenant, "public")
	c.Namespace = cmp.Or(c.Namespace, "default")
	c.KeepAlive = cmp.Or(c.KeepAlive, defaultKeepAlive)
	c.ConnectionTimeout = cmp.Or(c.ConnectionTimeout, defaultConnectionTimeout)
	c.OperationTimeout = cmp.Or(c.OperationTimeout, defaultOperationTimeout)
	c.ReconnectFor = cmp.Or(c.ReconnectFor, defaultReconnectFor)
	c.MaxConnections = cmp.Or(c.MaxConnections, defaultMaxConnections)
	c.ReceiverQueue = cmp.Or(c.ReceiverQueue, defaultReceiverQueue)
	c.InFlight = cmp.Or(c.InFlight, defaultInFlight)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, c.Check()
}

// Check finds mistakes that the client would report later, or not at all.
func (c Config) Check() error {
	return errors.Join(c.checkAddresses(), c.checkLimits(), c.checkAuth(), c.checkTLS())
}

// name returns how errors call a field.
func (c *Config) name(field string) string {
	if name, ok := c.Settings[field]; ok {
		return name
	}
	return field
}

func (c *Config) checkAddresses() error {
	errs := []error{c.checkURL("ServiceURL", c.ServiceURL, "pulsar", "pulsar+ssl", "pulsar://host:6650")}
	if c.AdminURL != "" {
		errs = append(errs, c.checkURL("AdminURL", c.AdminURL, "http", "https", "http://host:8080"))
	}
	for _, f := range []struct{ field, value string }{{"Tenant", c.Tenant}, {"Namespace", c.Namespace}} {
		if strings.ContainsAny(f.value, "/: ") {
			errs = append(errs, fmt.Errorf("%s %q: want a plain name; tenant and namespace are two settings", c.name(f.field), f.value))
		}
	}
	return errors.Join(errs...)
}

// checkURL does not repeat the value, which may contain a password by mistake.
func (c *Config) checkURL(field, value, plain, secure, example string) error {
	name := c.name(field)
	scheme, rest, _ := strings.Cut(value, "://")
	switch {
	case value == "":
		return fmt.Errorf("%s URL is required, such as %s", name, example)
	case scheme != plain && scheme != secure || strings.Trim(rest, "/") == "":
		return fmt.Errorf("%s: want %s://host:port or %s://host:port, such as %s", name, plain, secure, example)
	case strings.Contains(rest, "@"):
		return fmt.Errorf("%s contains a user name or a password: remove it, and use %s or another way to authenticate", name, c.name("Auth.TokenFile"))
	}
	return nil
}

func (c *Config) checkLimits() error {
	switch {
	case c.KeepAlive < 0, c.ConnectionTimeout < 0, c.OperationTimeout < 0, c.ReconnectFor < 0:
		return errors.New("KeepAlive, ConnectionTimeout, OperationTimeout and ReconnectFor must not be negative: omit them to use the defaults")
	case c.MaxConnections < 0 || c.ReceiverQueue < 0:
		return errors.New("MaxConnections and ReceiverQueue must not be negative: omit them to use the defaults")
	case c.InFlight < 0 || c.InFlight > maxPending/2:
		return fmt.Errorf("InFlight is %d, want 1 to %d", c.InFlight, maxPending/2)
	}
	return nil
}

func (c *Config) checkAuth() error {
	a, o := c.Auth, c.Auth.OAuth2
	var ways []string
	for _, w := range []struct {
		field string
		on    bool
	}{
		{"Auth.Token", a.Token != ""},
		{"Auth.TokenFile", a.TokenFile != ""},
		{"Auth.OAuth2.Issuer", o != OAuth2{}},
		{"Auth.CertFile", a.CertFile != "" || a.KeyFile != ""},
	} {
		if w.on {
			ways = append(ways, c.name(w.field))
		}
	}
	switch {
	case len(ways) > 1:
		return fmt.Errorf("%s: give only one way to authenticate", strings.Join(ways, " and "))
	case (a.CertFile == "") != (a.KeyFile == ""):
		return fmt.Errorf("%s and %s: give both", c.name("Auth.CertFile"), c.name("Auth.KeyFile"))
	case o != OAuth2{} && (o.Issuer == "" || o.KeyFile == ""):
		return fmt.Errorf("OAuth2 needs both %s URL and %s FILE", c.name("Auth.OAuth2.Issuer"), c.name("Auth.OAuth2.KeyFile"))
	case a.TokenFile != "":
		_, err := c.readToken()
		return err
	case a.CertFile != "":
		_, err := c.clientCertificate()
		return err
	}
	return c.checkOAuth2Key()
}

// checkOAuth2Key reads the file, which the client does only when it connects.
func (c *Config) checkOAuth2Key() error {
	file := c.Auth.OAuth2.KeyFile
	if file == "" {
		return nil
	}
	if strings.HasPrefix(file, "data:") {
		return fmt.Errorf("%s: want the name of a file, not the secret itself", c.name("Auth.OAuth2.KeyFile"))
	}
	text, err := os.ReadFile(strings.TrimPrefix(file, "file://"))
	if err != nil {
		return fmt.Errorf("%s: %w", c.name("Auth.OAuth2.KeyFile"), err)
	}
	if !json.Valid(text) {
		return fmt.Errorf("%s %s is not JSON: use the file with client id and secret from the identity provider", c.name("Auth.OAuth2.KeyFile"), file)
	}
	return nil
}

func (c *Config) checkTLS() error {
	secure, url := strings.HasPrefix(c.ServiceURL, "pulsar+ssl://"), c.name("ServiceURL")
	switch {
	case c.TLS != TLS{} && !secure && !strings.HasPrefix(c.AdminURL, "https://"):
		return fmt.Errorf("%s does not use TLS: use pulsar+ssl:// and the TLS port, or remove the settings of TLS", url)
	case c.Auth.CertFile != "" && !secure:
		return fmt.Errorf("%s needs TLS: use %s pulsar+ssl:// and the TLS port", c.name("Auth.CertFile"), url)
	}
	_, err := c.roots()
	return err
}
