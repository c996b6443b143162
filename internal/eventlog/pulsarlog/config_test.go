package pulsarlog

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("s3cr3t, and not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
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
		{"TLS", Config{ServiceURL: secure, TLS: TLS{CAFile: file}}, ""},
		{"no URL", Config{}, "ServiceURL is required"},
		{"no scheme", Config{ServiceURL: "s3cr3t:6650"}, "ServiceURL has an unsupported scheme"},
		{"HTTP", Config{ServiceURL: "http://s3cr3t"}, "want pulsar:// or pulsar+ssl://"},
		{"no host", Config{ServiceURL: "pulsar://"}, "ServiceURL has no host"},
		{"password", Config{ServiceURL: "pulsar://me:s3cr3t@host:6650"}, "use Auth"},
		{"admin scheme", Config{ServiceURL: url, AdminURL: "pulsar://s3cr3t"}, "AdminURL has an unsupported scheme"},
		{"tenant", Config{ServiceURL: url, Tenant: "public/default"}, "Tenant"},
		{"namespace", Config{ServiceURL: url, Namespace: "public/default"}, "Namespace"},
		{"negative", Config{ServiceURL: url, KeepAlive: -1}, "KeepAlive"},
		{"in flight", Config{ServiceURL: url, InFlight: 1000}, "InFlight is 1000, want 1 to 128"},
		{"two ways", Config{ServiceURL: url, Auth: Auth{Token: "s3cr3t", TokenFile: file}}, "keep one"},
		{"token file missing", Config{ServiceURL: url, Auth: Auth{TokenFile: file + "x"}}, "Auth.TokenFile: open "},
		{"no key", Config{ServiceURL: secure, Auth: Auth{CertFile: file}}, "Auth.KeyFile is required"},
		{"no certificate", Config{ServiceURL: secure, Auth: Auth{KeyFile: file}}, "Auth.CertFile is required"},
		{"mTLS without TLS", Config{ServiceURL: url, Auth: Auth{CertFile: file, KeyFile: file}}, "pulsar+ssl://"},
		{"CA without TLS", Config{ServiceURL: url, TLS: TLS{CAFile: file}}, "pulsar+ssl://"},
		{"CA missing", Config{ServiceURL: secure, TLS: TLS{CAFile: file + "x"}}, "TLS.CAFile: open "},
		{"OAuth2 without issuer", Config{ServiceURL: url, Auth: Auth{OAuth2: OAuth2{KeyFile: file}}}, "Auth.OAuth2.Issuer is required"},
		{"OAuth2 without key", Config{ServiceURL: url, Auth: Auth{OAuth2: OAuth2{Issuer: "https://issuer"}}}, "Auth.OAuth2.KeyFile is required"},
		{"OAuth2 with another file", Config{ServiceURL: url, Auth: Auth{OAuth2: OAuth2{Issuer: "https://issuer", KeyFile: file}}}, "Auth.OAuth2.KeyFile is not JSON"},
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
	if took := time.Since(begun); err == nil || took > 3*time.Second {
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
