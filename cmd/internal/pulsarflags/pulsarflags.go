// Package pulsarflags has the flags of all commands that use Apache Pulsar: how to
// reach the cluster, how to authenticate, and which topics to use.
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

// Flags are the values of the flags.
type Flags struct {
	Events, Decisions, Policies string // topics, short or full names

	url, admin, tenant, namespace string
	auth                          pulsarlog.Auth
	tls                           pulsarlog.TLS
}

// URL is the flag that names the cluster. The names of all others begin with it.
const URL = "pulsar"

// The other flags that errors name.
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
	set.StringVar(&f.Policies, "pulsar-policies", "policies", "topic of the policies")
	return f
}

// BindCluster adds the flags that name no topics.
func BindCluster(cmd *cobra.Command) *Flags {
	f := &Flags{}
	set := cmd.Flags()
	set.StringVar(&f.url, URL, "", "Pulsar cluster, as pulsar://host:6650 or pulsar+ssl://host:6651")
	set.StringVar(&f.admin, flagAdmin, "", "its admin API, as http://host:8080 or https://host:8443")
	set.StringVar(&f.tenant, flagTenant, "public", "tenant of topics given by name")
	set.StringVar(&f.namespace, flagNamespace, "default", "namespace of topics given by name")
	set.StringVar(&f.auth.Token, flagToken, "", "token that says who we are; others on this machine see flags, so rather REFLOAT_PULSAR_TOKEN or --pulsar-token-file")
	set.StringVar(&f.auth.TokenFile, flagTokenFile, "", "file with the token, read again when it is needed")
	set.StringVar(&f.tls.CAFile, flagCA, "", "file with the certificates to trust (default: the system's)")
	set.StringVar(&f.auth.CertFile, flagCert, "", "client certificate that says who we are")
	set.StringVar(&f.auth.KeyFile, flagKey, "", "its private key")
	set.BoolVar(&f.tls.AllowInsecure, "pulsar-tls-insecure", false, "take any certificate: for tests")
	set.BoolVar(&f.tls.NoHostnameCheck, "pulsar-tls-no-hostname-check", false, "take a trusted certificate of another host")
	set.StringVar(&f.auth.OAuth2.Issuer, flagIssuer, "", "identity provider (client credentials), a URL")
	set.StringVar(&f.auth.OAuth2.KeyFile, flagOAuthKey, "", "JSON file with client id and secret")
	set.StringVar(&f.auth.OAuth2.Audience, "pulsar-oauth2-audience", "", "audience of the cluster")
	set.StringVar(&f.auth.OAuth2.Scope, "pulsar-oauth2-scope", "", "scopes to ask for")
	set.StringVar(&f.auth.OAuth2.ClientID, "pulsar-oauth2-client-id", "", "client id (default: the key file's)")
	settings.Secret(cmd, flagToken)
	return f
}

// Given reports whether a cluster is named at all.
func (f *Flags) Given() bool { return f.url != "" }

// Config is what the flags say, checked as far as that goes without the
// cluster. Errors are about flags, and name them.
func (f *Flags) Config(log *slog.Logger) (pulsarlog.Config, error) {
	if err := errors.Join(f.checkAddresses(), f.checkNames(), f.checkIdentity(), f.checkTLS()); err != nil {
		return pulsarlog.Config{}, err
	}
	return pulsarlog.Config{
		ServiceURL: f.url, AdminURL: f.admin, Tenant: f.tenant, Namespace: f.namespace,
		Auth: f.auth, TLS: f.tls, Log: log,
	}, nil
}

// RequireAdmin is an error when the admin API is not named.
func (f *Flags) RequireAdmin() error {
	if f.admin == "" {
		return fmt.Errorf("--%s URL is required: the web address of the brokers, as http://host:8080", flagAdmin)
	}
	return nil
}

func (f *Flags) checkAddresses() error {
	if f.url == "" {
		return fmt.Errorf("--%s URL is required: the Pulsar cluster, as pulsar://host:6650", URL)
	}
	err := checkURL(URL, f.url, "pulsar", "pulsar+ssl", "pulsar://host:6650")
	if f.admin != "" {
		err = errors.Join(err, checkURL(flagAdmin, f.admin, "http", "https", "http://host:8080"))
	}
	return err
}

// checkURL does not repeat the value, which may hold a password by mistake.
func checkURL(flag, value, plain, secure, example string) error {
	scheme, rest, _ := strings.Cut(value, "://")
	switch {
	case scheme != plain && scheme != secure || strings.Trim(rest, "/") == "":
		return fmt.Errorf("--%s: want %s://host:port or %s://host:port, as %s", flag, plain, secure, example)
	case strings.Contains(rest, "@"):
		return fmt.Errorf("--%s holds a user name or a password: take it out; --%s and others say who we are", flag, flagTokenFile)
	}
	return nil
}

func (f *Flags) checkNames() error {
	var errs []error
	for _, n := range []struct{ flag, value string }{{flagTenant, f.tenant}, {flagNamespace, f.namespace}} {
		if n.value == "" || strings.ContainsAny(n.value, "/: ") {
			errs = append(errs, fmt.Errorf("--%s %q: want a plain name; tenant and namespace are two flags", n.flag, n.value))
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
		return fmt.Errorf("%s each say who we are: keep one", strings.Join(ways, " and "))
	case (f.auth.CertFile == "") != (f.auth.KeyFile == ""):
		return fmt.Errorf("--%s and --%s belong together: give both", flagCert, flagKey)
	case f.auth.OAuth2 != pulsarlog.OAuth2{} && (f.auth.OAuth2.Issuer == "" || f.auth.OAuth2.KeyFile == ""):
		return fmt.Errorf("OAuth2 takes --%s URL and --%s FILE", flagIssuer, flagOAuthKey)
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
		return fmt.Errorf("--%s is without TLS: write pulsar+ssl:// and its port, or leave the --pulsar-tls flags out", URL)
	case f.auth.CertFile != "" && !client:
		return fmt.Errorf("--%s is for TLS: write --%s pulsar+ssl:// and its port", flagCert, URL)
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
