package pulsarflags_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/test/certtest"
)

// config parses arguments as a command does.
func config(t *testing.T, args ...string) (f *pulsarflags.Flags, c pulsarlog.Config, err error) {
	t.Helper()
	cmd := &cobra.Command{Use: "test", SilenceErrors: true, SilenceUsage: true}
	f = pulsarflags.Bind(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		c, err = f.Config(nil)
		return err
	}
	cmd.SetArgs(args)
	return f, c, cmd.Execute()
}

func file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfig(t *testing.T) {
	t.Parallel()
	// One file is everything: authority, certificate, key, and token.
	path := file(t)
	pair := certtest.New(t, "ca").Issue(t, path, "me", time.Now().Add(time.Hour))
	cert, err := os.ReadFile(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	certtest.Write(t, path, append(cert, key...))
	oauth2 := filepath.Join(t.TempDir(), "oauth2.json")
	certtest.Write(t, oauth2, []byte(`{"client_id": "me", "client_secret": "s3cret"}`))
	for _, c := range []struct {
		name, args string
		want       pulsarlog.Config
	}{
		{"the least", "", pulsarlog.Config{ServiceURL: "pulsar://h:6650", Tenant: "public", Namespace: "default"}},
		{
			"token", "--pulsar-admin http://h:8080 --pulsar-tenant a --pulsar-namespace b --pulsar-token s3cret",
			pulsarlog.Config{ServiceURL: "pulsar://h:6650", AdminURL: "http://h:8080", Tenant: "a", Namespace: "b", Auth: pulsarlog.Auth{Token: "s3cret"}},
		},
		{
			"token file over TLS", "--pulsar pulsar+ssl://h:6651 --pulsar-token-file FILE --pulsar-tls-ca FILE --pulsar-tls-insecure --pulsar-tls-no-hostname-check",
			pulsarlog.Config{
				ServiceURL: "pulsar+ssl://h:6651", Tenant: "public", Namespace: "default", Auth: pulsarlog.Auth{TokenFile: path},
				TLS: pulsarlog.TLS{CAFile: path, AllowInsecure: true, NoHostnameCheck: true},
			},
		},
		{
			"certificate", "--pulsar pulsar+ssl://h:6651 --pulsar-tls-cert FILE --pulsar-tls-key FILE",
			pulsarlog.Config{ServiceURL: "pulsar+ssl://h:6651", Tenant: "public", Namespace: "default", Auth: pulsarlog.Auth{CertFile: path, KeyFile: path}},
		},
		{
			"OAuth2", "--pulsar-oauth2-issuer https://i --pulsar-oauth2-key-file KEYS --pulsar-oauth2-audience a --pulsar-oauth2-scope s",
			pulsarlog.Config{ServiceURL: "pulsar://h:6650", Tenant: "public", Namespace: "default", Auth: pulsarlog.Auth{
				OAuth2: pulsarlog.OAuth2{Issuer: "https://i", KeyFile: oauth2, Audience: "a", Scope: "s"},
			}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields("--pulsar pulsar://h:6650 " + strings.NewReplacer("FILE", path, "KEYS", oauth2).Replace(c.args))
			f, got, err := config(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(pulsarlog.Config{}, "Settings")); diff != "" {
				t.Error(diff)
			}
			if f.Events != "events" || f.Decisions != "decisions" || f.Policies != "policies" || !f.Given() {
				t.Errorf("flags are %+v", f)
			}
			// What passes here is no surprise to the log.
			cluster, err := pulsarlog.Connect(t.Context(), got)
			if err != nil {
				t.Fatalf("Connect: %v", err)
			}
			_ = cluster.Close()
		})
	}
	f, _, _ := config(t, "--pulsar-events", "a/b/c", "--pulsar-decisions", "d", "--pulsar-policies", "persistent://p/q/r")
	if f.Events != "a/b/c" || f.Decisions != "d" || f.Policies != "persistent://p/q/r" || f.Given() {
		t.Errorf("flags are %+v", f)
	}
}

// TestMistakes: each is named by its flag, and nothing secret is repeated.
func TestMistakes(t *testing.T) {
	t.Parallel()
	path := file(t)
	const at = "--pulsar pulsar://h:6650 "
	for _, c := range []struct{ name, args, want string }{
		{"no cluster", "", "--pulsar URL is required"},
		{"no scheme", "--pulsar h:6650", "--pulsar: want pulsar://host:port"},
		{"other scheme", "--pulsar http://h:6650", "--pulsar: want pulsar://host:port"},
		{"no host", "--pulsar pulsar://", "--pulsar: want pulsar://host:port"},
		{"password in the URL", "--pulsar pulsar://me:s3cret@h:6650", "--pulsar contains a user name or a password"},
		{"admin scheme", at + "--pulsar-admin pulsar://h:8080", "--pulsar-admin: want http://host:port"},
		{"password in the admin URL", at + "--pulsar-admin http://me:s3cret@h", "--pulsar-admin contains a user name or a password"},
		{"tenant with namespace", at + "--pulsar-tenant a/b", `--pulsar-tenant "a/b": want a plain name`},
		{"two identities", at + "--pulsar-token s3cret --pulsar-token-file FILE", "--pulsar-token and --pulsar-token-file: give only one way to authenticate"},
		{"no such token file", at + "--pulsar-token-file FILE-too", "--pulsar-token-file: open "},
		{"certificate without key", "--pulsar pulsar+ssl://h:1 --pulsar-tls-cert FILE", "--pulsar-tls-cert and --pulsar-tls-key: give both"},
		{"certificate without TLS", at + "--pulsar-tls-cert FILE --pulsar-tls-key FILE", "--pulsar-tls-cert needs TLS"},
		{"trust without TLS", at + "--pulsar-tls-ca FILE", "--pulsar does not use TLS"},
		{"no such certificates", "--pulsar pulsar+ssl://h:1 --pulsar-tls-ca FILE-too", "--pulsar-tls-ca: open "},
		{"half of OAuth2", at + "--pulsar-oauth2-issuer https://i", "OAuth2 needs both --pulsar-oauth2-issuer URL and --pulsar-oauth2-key-file FILE"},
		{"no such key file", at + "--pulsar-oauth2-issuer https://i --pulsar-oauth2-key-file FILE-too", "--pulsar-oauth2-key-file: open "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := config(t, strings.Fields(strings.ReplaceAll(c.args, "FILE", path))...)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("Config = %v, want %q in it and no secret", err, c.want)
			}
		})
	}
	f, _, _ := config(t)
	if err := f.RequireAdmin(); err == nil || !strings.Contains(err.Error(), "--pulsar-admin URL is required") {
		t.Errorf("RequireAdmin = %v", err)
	}
	if f, _, _ = config(t, "--pulsar-admin", "http://h"); f.RequireAdmin() != nil {
		t.Errorf("RequireAdmin = %v", f.RequireAdmin())
	}
}

// TestPrintConfig: --print-config has all flags, and not the token.
func TestPrintConfig(t *testing.T) {
	cmd := &cobra.Command{Use: "test", SilenceErrors: true, SilenceUsage: true}
	pulsarflags.Bind(cmd)
	settings.Bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return settings.Load(cmd) }
	var out bytes.Buffer
	cmd.SetOut(&out)
	t.Setenv("REFLOAT_PULSAR_TOKEN", "s3cret")
	cmd.SetArgs([]string{"--print-config", "--pulsar", "pulsar://me:s3cret@h"})
	if err := cmd.Execute(); !errors.Is(err, settings.ErrPrinted) {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "s3cret") {
		t.Errorf("a secret is printed:\n%s", &out)
	}
	for _, want := range []string{"# pulsar-token: (secret) # REFLOAT_PULSAR_TOKEN", "# pulsar: pulsar://me:(secret)@h # flag", "pulsar-decisions: decisions # default"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not printed:\n%s", want, &out)
		}
	}
}
