package pulsarlog

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/test/certtest"
)

// TestTransportRotates replaces every file between two requests: the second one uses the new ones.
func TestTransportRotates(t *testing.T) {
	t.Parallel()
	dir, soon := t.TempDir(), time.Now().Add(time.Hour)
	file := func(name string) string { return filepath.Join(dir, name) }
	c := Config{
		ServiceURL: "pulsar+ssl://127.0.0.1:1", AdminURL: "https://127.0.0.1:1",
		TLS:  TLS{CAFile: file("ca.crt")},
		Auth: Auth{CertFile: file("me.crt"), KeyFile: file("me.key")},
	}
	var transport http.RoundTripper
	for _, name := range []string{"first", "second"} {
		ca := certtest.New(t, name)
		certtest.File(t, c.TLS.CAFile, ca)
		ca.Issue(t, file("me"), name, soon)
		serving := ca.Issue(t, file("broker"), "broker", soon, "127.0.0.1")
		if transport == nil {
			var err error
			if transport, err = c.Transport(); err != nil {
				t.Fatal(err)
			}
		}
		url := startTLS(t, c.TLS.CAFile, serving)
		if got := ask(t, transport, url); got != name+" " {
			t.Errorf("with the %s files the server sees %q", name, got)
		}
		bare := c
		bare.Auth = Auth{TokenFile: file("token")}
		certtest.Write(t, file("token"), []byte(name+"\n"))
		anonymous, err := bare.Transport()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := anonymous.RoundTrip(request(t, url)); err == nil || !strings.Contains(err.Error(), "denied by the broker") ||
			!strings.Contains(err.Error(), "check Auth.TokenFile "+file("token")) {
			t.Errorf("without a certificate: %v", err)
		}
	}
}

// TestTransportAnyHost: without a check of the host name, the authority is checked nevertheless.
func TestTransportAnyHost(t *testing.T) {
	t.Parallel()
	dir, soon := t.TempDir(), time.Now().Add(time.Hour)
	ca, other := certtest.New(t, "ca"), certtest.New(t, "other")
	roots, foreign := certtest.File(t, filepath.Join(dir, "ca.crt"), ca), certtest.File(t, filepath.Join(dir, "other.crt"), other)
	me := ca.Issue(t, filepath.Join(dir, "me"), "me", soon)
	url := startTLS(t, roots, ca.Issue(t, filepath.Join(dir, "broker"), "elsewhere", soon))
	for _, tt := range []struct {
		tls  TLS
		want string // in the error
	}{
		{TLS{CAFile: roots}, "the broker's certificate is not trusted"},
		{TLS{CAFile: roots, NoHostnameCheck: true}, ""},
		{TLS{CAFile: foreign, NoHostnameCheck: true}, "check TLS.CAFile " + foreign},
		{TLS{CAFile: foreign, AllowInsecure: true}, ""},
	} {
		c := Config{ServiceURL: "pulsar+ssl://127.0.0.1:1", AdminURL: "https://127.0.0.1:1", TLS: tt.tls, Auth: Auth{CertFile: me.Cert, KeyFile: me.Key}}
		transport, err := c.Transport()
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(request(t, url))
		if err == nil {
			_ = resp.Body.Close()
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.tls, err, tt.want)
		}
	}
}

// startTLS starts a server that demands a certificate, and answers with its name and the token.
func startTLS(t *testing.T, roots string, serving certtest.Pair) (url string) {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(roots)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.TLS.PeerCertificates[0].Subject.CommonName, r.Header.Get("Authorization"))
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func request(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ask(t *testing.T, transport http.RoundTripper, url string) string {
	t.Helper()
	resp, err := transport.RoundTrip(request(t, url))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
