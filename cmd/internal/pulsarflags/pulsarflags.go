// Package pulsarflags defines the flags of all commands that use Apache Pulsar: how to reach the cluster, how to
// authenticate, and which topics to use.
//
// Invariant: no secret is ever printed, neither by --print-config nor in an error.
package pulsarflags

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// Flags holds the values of the flags.
type Flags struct {
	Events, Decisions, Policies string // topics, short or full names

	url, admin, tenant, namespace string
	auth                          pulsarlog.Auth
	tls                           pulsarlog.TLS
}

// URL is the flag that names the cluster. The names of all other flags begin with it.
const URL = "pulsar"

// Other flags that errors name.
const (
	flagAdmin     = "pulsar-admin"
	flagTenant    = "pulsar-tenant"
	flagNamespace = "pulsar-namespace"
	flagToken     = "pulsar-token"
	flagTokenFile = "pulsar-token-file"
	flagCA        = "pulsar-tls-ca"
	flagCert      = "pulsar-tls-cert"
	flagKey       = "pulsar-tls-key"
	flagIssuer    = "pulsar-oauth2-issuer"
	flagOAuthKey  = "pulsar-oauth2-key-file"
)

// Bind adds the flags to a command.
func Bind(cmd *cobra.Command) *Flags {
	f := BindCluster(cmd)
	set := cmd.Flags()
	set.StringVar(&f.Events, "pulsar-events", "events", "topic of Armada's events: name, tenant/namespace/name, or full")
	set.StringVar(&f.Decisions, "pulsar-decisions", "decisions", "topic of the decision log")
	set.StringVar(&f.Policies, "pulsar-policies", "policies", "topic of the policies log")
	return f
}

// BindCluster adds all flags except those that name topics.
func BindCluster(cmd *cobra.Command) *Flags {
	f := &Flags{}
	set := cmd.Flags()
	set.StringVar(&f.url, URL, "", "Pulsar cluster, as pulsar://host:6650 or pulsar+ssl://host:6651")
	set.StringVar(&f.admin, flagAdmin, "", "admin API of the cluster, as http://host:8080 or https://host:8443")
	set.StringVar(&f.tenant, flagTenant, "public", "tenant of topics given by name")
	set.StringVar(&f.namespace, flagNamespace, "default", "namespace of topics given by name")
	set.StringVar(&f.auth.Token, flagToken, "", "authentication token; other users of this machine can see flags, so prefer REFLOAT_PULSAR_TOKEN or --pulsar-token-file")
	set.StringVar(&f.auth.TokenFile, flagTokenFile, "", "file with the authentication token, read for each connection")
	set.StringVar(&f.tls.CAFile, flagCA, "", "file with the CA certificates to trust (default: the system's)")
	set.StringVar(&f.auth.CertFile, flagCert, "", "client certificate to authenticate with")
	set.StringVar(&f.auth.KeyFile, flagKey, "", "private key of the client certificate")
	set.BoolVar(&f.tls.AllowInsecure, "pulsar-tls-insecure", false, "accept any certificate, for tests")
	set.BoolVar(&f.tls.NoHostnameCheck, "pulsar-tls-no-hostname-check", false, "accept a trusted certificate of another host")
	set.StringVar(&f.auth.OAuth2.Issuer, flagIssuer, "", "URL of the OAuth2 identity provider (client credentials)")
	set.StringVar(&f.auth.OAuth2.KeyFile, flagOAuthKey, "", "JSON file with the OAuth2 client id and secret")
	set.StringVar(&f.auth.OAuth2.Audience, "pulsar-oauth2-audience", "", "OAuth2 audience of the cluster")
	set.StringVar(&f.auth.OAuth2.Scope, "pulsar-oauth2-scope", "", "OAuth2 scopes to request")
	set.StringVar(&f.auth.OAuth2.ClientID, "pulsar-oauth2-client-id", "", "OAuth2 client id (default: the key file's)")
	settings.Secret(cmd, flagToken)
	return f
}

// Given reports whether the flags name a cluster.
func (f *Flags) Given() bool { return f.url != "" }

// Config returns the configuration, checked as far as possible without the cluster. Errors name the flags.
func (f *Flags) Config(log *slog.Logger) (pulsarlog.Config, error) {
	if err := errors.Join(f.checkAddresses(), f.checkNames(), f.checkIdentity(), f.checkTLS()); err != nil {
		return pulsarlog.Config{}, err
	}
	return pulsarlog.Config{
		ServiceURL: f.url, AdminURL: f.admin, Tenant: f.tenant, Namespace: f.namespace,
		Auth: f.auth, TLS: f.tls, Log: log,
	}, nil
}

// RequireAdmin returns an error if the admin API is not named.
func (f *Flags) RequireAdmin() error {
	if f.admin == "" {
		return fmt.Errorf("--%s URL is required: the admin address of the brokers, such as http://host:8080", flagAdmin)
	}
	return nil
}

func (f *Flags) checkAddresses() error {
	if f.url == "" {
		return fmt.Errorf("--%s URL is required: the Pulsar cluster, such as pulsar://host:6650", URL)
	}
	err := checkURL(URL, f.url, "pulsar", "pulsar+ssl", "pulsar://host:6650")
	if f.admin != "" {
		err = errors.Join(err, checkURL(flagAdmin, f.admin, "http", "https", "http://host:8080"))
	}
	return err
}

// checkURL does not repeat the value, which may contain a password by mistake.
func checkURL(flag, value, plain, secure, example string) error {
	scheme, rest, _ := strings.Cut(value, "://")
	switch {
	case scheme != plain && scheme != secure || strings.Trim(rest, "/") == "":
		return fmt.Errorf("--%s: want %s://host:port or %s://host:port, such as %s", flag, plain, secure, example)
	case strings.Contains(rest, "@"):
		return fmt.Errorf("--%s holds a user name or a password: remove it and authenticate with --%s or another flag", flag, flagTokenFile)
	}
	return nil
}

func (f *Flags) checkNames() error {
	var errs []error
	for _, n := range []struct{ flag, value string }{{flagTenant, f.tenant}, {flagNamespace, f.namespace}} {
		if n.value == "" || strings.ContainsAny(n.value, "/: ") {
			errs = append(errs, fmt.Errorf("--%s %q: want a plain name; tenant and namespace have flags of their own", n.flag, n.value))
		}
	}
	return errors.Join(errs...)
}

func (f *Flags) checkIdentity() error {
	var ways []string
	for _, w := range []struct {
		flag string
		on   bool
	}{
		{flagToken, f.auth.Token != ""},
		{flagTokenFile, f.auth.TokenFile != ""},
		{flagIssuer, f.auth.OAuth2 != pulsarlog.OAuth2{}},
		{flagCert, f.auth.CertFile != "" || f.auth.KeyFile != ""},
	} {
		if w.on {
			ways = append(ways, "--"+w.flag)
		}
	}
	switch {
	case len(ways) > 1:
		return fmt.Errorf("%s: give only one way to authenticate", strings.Join(ways, " and "))
	case (f.auth.CertFile == "") != (f.auth.KeyFile == ""):
		return fmt.Errorf("--%s and --%s: give both", flagCert, flagKey)
	case f.auth.OAuth2 != pulsarlog.OAuth2{} && (f.auth.OAuth2.Issuer == "" || f.auth.OAuth2.KeyFile == ""):
		return fmt.Errorf("OAuth2 needs both --%s URL and --%s FILE", flagIssuer, flagOAuthKey)
	}
	return errors.Join(
		readable(flagTokenFile, f.auth.TokenFile),
		readable(flagCert, f.auth.CertFile),
		readable(flagKey, f.auth.KeyFile),
		readable(flagOAuthKey, strings.TrimPrefix(f.auth.OAuth2.KeyFile, "file://")),
	)
}

func (f *Flags) checkTLS() error {
	client, admin := strings.HasPrefix(f.url, "pulsar+ssl://"), strings.HasPrefix(f.admin, "https://")
	switch {
	case f.tls != pulsarlog.TLS{} && !client && !admin:
		return fmt.Errorf("--%s does not use TLS: use pulsar+ssl:// and its port, or remove the --pulsar-tls flags", URL)
	case f.auth.CertFile != "" && !client:
		return fmt.Errorf("--%s needs TLS: use --%s pulsar+ssl:// and its port", flagCert, URL)
	}
	return readable(flagCA, f.tls.CAFile)
}

func readable(flag, path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return file.Close()
}
