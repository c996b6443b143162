// Package pulsarflags defines the flags of all commands that use Apache Pulsar: how to reach the cluster, how to
// authenticate, and which topics to use.
//
// Invariant: no secret is ever printed, neither by --print-config nor in an error.
package pulsarflags

import (
	"fmt"
	"log/slog"

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

// ServiceURL is the cluster that the flags name; "": none.
func (f *Flags) ServiceURL() string { return f.url }

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
	set.StringVar(&f.auth.Token, flagToken, "", "authentication token; only as REFLOAT_PULSAR_TOKEN or in a settings file, because other users of this machine can see flags")
	set.StringVar(&f.auth.TokenFile, flagTokenFile, "", "file with the authentication token, read for each connection")
	set.StringVar(&f.tls.CAFile, flagCA, "", "file with the CA certificates to trust, read for each connection (default: the system's)")
	set.StringVar(&f.auth.CertFile, flagCert, "", "client certificate to authenticate with, read for each connection")
	set.StringVar(&f.auth.KeyFile, flagKey, "", "private key of the client certificate")
	set.BoolVar(&f.tls.AllowInsecure, "pulsar-tls-insecure", false, "accept any certificate, for tests")
	set.BoolVar(&f.tls.NoHostnameCheck, "pulsar-tls-no-hostname-check", false, "accept a trusted certificate of another host")
	set.StringVar(&f.auth.OAuth2.Issuer, flagIssuer, "", "URL of the OAuth2 identity provider (client credentials)")
	set.StringVar(&f.auth.OAuth2.KeyFile, flagOAuthKey, "", "JSON file with the OAuth2 client id and secret, read for each token")
	set.StringVar(&f.auth.OAuth2.Audience, "pulsar-oauth2-audience", "", "OAuth2 audience of the cluster")
	set.StringVar(&f.auth.OAuth2.Scope, "pulsar-oauth2-scope", "", "OAuth2 scopes to request")
	settings.NotOnCommandLine(cmd, flagToken)
	return f
}

// Given reports whether the flags name a cluster.
func (f *Flags) Given() bool { return f.url != "" }

// Config returns the configuration, checked as far as possible without the cluster. Errors name the flags.
func (f *Flags) Config(log *slog.Logger) (pulsarlog.Config, error) {
	c := pulsarlog.Config{
		ServiceURL: f.url, AdminURL: f.admin, Tenant: f.tenant, Namespace: f.namespace,
		Auth: f.auth, TLS: f.tls, Settings: flagOf, Log: log,
	}
	return c, c.Check()
}

// flagOf has the flag of each field of a pulsarlog.Config that errors name.
var flagOf = map[string]string{
	"ServiceURL":          "--" + URL,
	"AdminURL":            "--" + flagAdmin,
	"Tenant":              "--" + flagTenant,
	"Namespace":           "--" + flagNamespace,
	"Auth.Token":          "--" + flagToken,
	"Auth.TokenFile":      "--" + flagTokenFile,
	"Auth.CertFile":       "--" + flagCert,
	"Auth.KeyFile":        "--" + flagKey,
	"Auth.OAuth2.Issuer":  "--" + flagIssuer,
	"Auth.OAuth2.KeyFile": "--" + flagOAuthKey,
	"TLS.CAFile":          "--" + flagCA,
}

// RequireAdmin returns an error if the admin API is not named.
func (f *Flags) RequireAdmin() error {
	if f.admin == "" {
		return fmt.Errorf("--%s URL is required: the admin address of the brokers, such as http://host:8080", flagAdmin)
	}
	return nil
}
