package pulsarlog

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/test/certtest"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("s3cr3t, and not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ca := certtest.New(t, "ca")
	roots, pair := certtest.File(t, filepath.Join(dir, "ca.crt"), ca), ca.Issue(t, filepath.Join(dir, "me"), "me", time.Now().Add(time.Hour))
	const url, secure = "pulsar://127.0.0.1:6650", "pulsar+ssl://127.0.0.1:6651"
	for _, c := range []struct {
		name   string
		config Config
		want   string // in the error; empty: none
	}{
		{"least", Config{ServiceURL: url}, ""},
		{"several brokers", Config{ServiceURL: "pulsar://a:6650,b:6650"}, ""},
		{"admin", Config{ServiceURL: url, AdminURL: "http://127.0.0.1:8080"}, ""},
		{"token", Config{ServiceURL: url, AdminURL: "http://127.0.0.1:8080", Auth: Auth{Token: "s3cr3t"}}, ""},
		{"token file", Config{ServiceURL: url, Auth: Auth{TokenFile: file}}, ""},
		{"TLS", Config{ServiceURL: secure, TLS: TLS{CAFile: roots}}, ""},
		{"no URL", Config{}, "ServiceURL URL is required"},
		{"no scheme", Config{ServiceURL: "s3cr3t:6650"}, "ServiceURL: want pulsar://host:port"},
		{"HTTP", Config{ServiceURL: "http://s3cr3t"}, "or pulsar+ssl://host:port"},
		{"no host", Config{ServiceURL: "pulsar://"}, "ServiceURL: want pulsar://host:port"},
		{"password", Config{ServiceURL: "pulsar://me:s3cr3t@host:6650"}, "use Auth.TokenFile"},
		{"admin scheme", Config{ServiceURL: url, AdminURL: "pulsar://s3cr3t"}, "AdminURL: want http://host:port"},
		{"tenant", Config{ServiceURL: url, Tenant: "public/default"}, "Tenant"},
		{"namespace", Config{ServiceURL: url, Namespace: "public/default"}, "Namespace"},
		{"negative", Config{ServiceURL: url, KeepAlive: -1}, "KeepAlive"},
		{"in flight", Config{ServiceURL: url, InFlight: 1000}, "InFlight is 1000, want 1 to 128"},
		{"two ways", Config{ServiceURL: url, Auth: Auth{Token: "s3cr3t", TokenFile: file}}, "Auth.Token and Auth.TokenFile: give only one way"},
		{"token file missing", Config{ServiceURL: url, Auth: Auth{TokenFile: file + "x"}}, "Auth.TokenFile: open "},
		{"no key", Config{ServiceURL: secure, Auth: Auth{CertFile: file}}, "Auth.CertFile and Auth.KeyFile: give both"},
		{"no certificate", Config{ServiceURL: secure, Auth: Auth{KeyFile: file}}, "Auth.CertFile and Auth.KeyFile: give both"},
		{"mTLS without TLS", Config{ServiceURL: url, Auth: Auth{CertFile: pair.Cert, KeyFile: pair.Key}}, "pulsar+ssl://"},
		{"CA without TLS", Config{ServiceURL: url, TLS: TLS{CAFile: file}}, "pulsar+ssl://"},
		{"CA missing", Config{ServiceURL: secure, TLS: TLS{CAFile: file + "x"}}, "TLS.CAFile: open "},
		{"OAuth2 without issuer", Config{ServiceURL: url, Auth: Auth{OAuth2: OAuth2{KeyFile: file}}}, "OAuth2 needs both Auth.OAuth2.Issuer"},
		{"OAuth2 without key", Config{ServiceURL: url, Auth: Auth{OAuth2: OAuth2{Issuer: "https://issuer"}}}, "OAuth2 needs both Auth.OAuth2.Issuer"},
		{"OAuth2 with another file", Config{ServiceURL: url, Auth: Auth{OAuth2: OAuth2{Issuer: "https://issuer", KeyFile: file}}}, "is not JSON"},
		{"OAuth2 with a secret", Config{ServiceURL: url, Auth: Auth{OAuth2: OAuth2{Issuer: "https://issuer", KeyFile: "data:application/json,s3cr3t"}}}, "Auth.OAuth2.KeyFile: want the name of a file"},
		{"mutual TLS", Config{ServiceURL: secure, Auth: Auth{CertFile: pair.Cert, KeyFile: pair.Key}, TLS: TLS{CAFile: roots, NoHostnameCheck: true}}, ""},
		{"CA without certificates", Config{ServiceURL: secure, TLS: TLS{CAFile: file}}, "contains no PEM certificate"},
		{"another's key", Config{ServiceURL: secure, Auth: Auth{CertFile: pair.Cert, KeyFile: file}}, "Auth.KeyFile "},
		{"called by others", Config{ServiceURL: url, Auth: Auth{TokenFile: file + "x"}, Settings: map[string]string{"Auth.TokenFile": "--token"}}, "--token: open "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k, err := Connect(t.Context(), c.config)
			if err == nil {
				if err := k.Close(); err != nil {
					t.Error(err)
				}
			}
			switch {
			case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("Connect: %v, want %q", err, c.want)
			case err != nil && strings.Contains(err.Error(), "s3cr3t"):
				t.Errorf("Connect: %v, which tells a secret", err)
			}
		})
	}
}

func TestTopicName(t *testing.T) {
	t.Parallel()
	k, err := Connect(t.Context(), Config{ServiceURL: "pulsar://127.0.0.1:6650", Tenant: "ten", Namespace: "ns"})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for name, want := range map[string]string{
		"events":                   "persistent://ten/ns/events",
		"events-partition-3":       "persistent://ten/ns/events-partition-3",
		"a/b/c":                    "persistent://a/b/c",
		"persistent://a/b/c":       "persistent://a/b/c",
		"non-persistent://a/b/c-1": "non-persistent://a/b/c-1",
	} {
		if got := k.TopicName(name); got != want {
			t.Errorf("TopicName(%q) = %q, want %q", name, got, want)
		}
	}
	if _, err := k.Admin(); err == nil {
		t.Error("Admin() without AdminURL gave no error")
	}
}

// A broker that is not there is told within the operation timeout, with the
// client's warnings in the log.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	k, err := Connect(t.Context(), Config{
		ServiceURL: "pulsar://127.0.0.1:1", OperationTimeout: time.Second, Auth: Auth{Token: "s3cr3t"},
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	_, err = k.Open("log")
	if took := time.Since(begun); err == nil || took > defaultOperationTimeout {
		t.Errorf("Open: %v after %v", err, took)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "level=ERROR") && !strings.Contains(text, "level=WARN") ||
		strings.Contains(text, "s3cr3t") || strings.Contains(text, "level=DEBUG") {
		t.Errorf("the log is\n%s", text)
	}
}
