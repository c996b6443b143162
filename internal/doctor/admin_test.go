package doctor

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// serve responds like the admin API.
func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

func admin(t *testing.T, c pulsarlog.Config) *Admin {
	t.Helper()
	a, err := NewAdmin(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAdminErrors(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var code int
		if _, err := fmt.Sscanf(strings.TrimPrefix(r.URL.Path, "/admin/v2/"), "%d", &code); err == nil {
			w.WriteHeader(code)
			fmt.Fprint(w, `{"reason":"because"}`)
			return
		}
		fmt.Fprint(w, map[string]string{"/admin/v2/no-json": "<html>", "/admin/v2/number": "7", "/admin/v2/text": "\"4.0.8\"\n"}[r.URL.Path])
	})
	a := admin(t, pulsarlog.Config{AdminURL: s.URL + "/"})
	for path, class := range map[string]error{"401": ErrDenied, "403": ErrDenied, "404": ErrNotFound} {
		if f := answer[int](t.Context(), a, path); !errors.Is(f.Err, class) || !strings.Contains(f.Err.Error(), "GET "+path+": "+path+": because") {
			t.Errorf("%s: %v", path, f.Err)
		}
	}
	if f := answer[int](t.Context(), a, "500"); f.Err == nil || errors.Is(f.Err, ErrUnreachable) || statusOf(f.Err) != 500 {
		t.Errorf("500: %v", f.Err)
	}
	if f := answer[int](t.Context(), a, "no-json"); f.Err == nil || !strings.Contains(f.Err.Error(), "GET no-json") {
		t.Errorf("no JSON: %v", f.Err)
	}
	if f := answer[int](t.Context(), a, "number"); f.Err != nil || f.Value != 7 {
		t.Errorf("number: %+v", f)
	}
	if f := answer[*int](t.Context(), a, "nothing"); f.Err != nil || f.Value != nil {
		t.Errorf("nothing: %+v", f)
	}
	if f := a.text(t.Context(), "text"); f.Err != nil || f.Value != "4.0.8" {
		t.Errorf("text: %+v", f)
	}
	s.Close()
	if f := a.text(t.Context(), "text"); !errors.Is(f.Err, ErrUnreachable) {
		t.Errorf("closed: %v", f.Err)
	}
	if _, err := NewAdmin(pulsarlog.Config{}); !errors.Is(err, pulsarlog.ErrNoAdmin) {
		t.Errorf("no address: %v", err)
	}
}

// TestAdminIdentity: credentials are sent with each request, and the token file is read
// again each time; no error contains a secret.
func TestAdminIdentity(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Authorization")) })
	a := admin(t, pulsarlog.Config{AdminURL: s.URL, Auth: pulsarlog.Auth{Token: "s3cret"}})
	if f := a.text(t.Context(), "x"); f.Value != "Bearer s3cret" {
		t.Errorf("token: %+v", f)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("none yet"), 0o600); err != nil {
		t.Fatal(err)
	}
	a = admin(t, pulsarlog.Config{AdminURL: s.URL, Auth: pulsarlog.Auth{TokenFile: file}})
	for _, token := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if f := a.text(t.Context(), "x"); f.Value != "Bearer "+token {
			t.Errorf("token file: %+v", f)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if f := a.text(t.Context(), "x"); !errors.Is(f.Err, os.ErrNotExist) {
		t.Errorf("no token file: %v", f.Err)
	}
	s.Close()
	a = admin(t, pulsarlog.Config{AdminURL: s.URL, Auth: pulsarlog.Auth{Token: "s3cret"}})
	if f := a.text(t.Context(), "x"); f.Err == nil || strings.Contains(f.Err.Error(), "s3cret") {
		t.Errorf("closed: %v", f.Err)
	}
}

func TestAdminTLS(t *testing.T) {
	t.Parallel()
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Authorization")) })
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/away") {
			http.Redirect(w, r, plain.URL+"/admin/v2/x", http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, "fine")
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // handshakes fail here
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	local := strings.Replace(s.URL, "127.0.0.1", "localhost", 1) // not in the certificate
	for _, c := range []struct {
		name string
		url  string
		tls  pulsarlog.TLS
		fine bool
	}{
		{"not trusted", s.URL, pulsarlog.TLS{}, false},
		{"trusted", s.URL, pulsarlog.TLS{CAFile: ca}, true},
		{"any", s.URL, pulsarlog.TLS{AllowInsecure: true}, true},
		{"another host", local, pulsarlog.TLS{CAFile: ca}, false},
		{"another host, allowed", local, pulsarlog.TLS{CAFile: ca, NoHostnameCheck: true}, true},
		{"another host, not trusted", local, pulsarlog.TLS{NoHostnameCheck: true}, false},
	} {
		a := admin(t, pulsarlog.Config{AdminURL: c.url, TLS: c.tls})
		if f := a.text(t.Context(), "x"); f.Known() != c.fine || !c.fine && !errors.Is(f.Err, ErrUnreachable) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
	a := admin(t, pulsarlog.Config{AdminURL: s.URL, TLS: pulsarlog.TLS{CAFile: ca}, Auth: pulsarlog.Auth{Token: "s3cret"}})
	if f := a.text(t.Context(), "away"); f.Err == nil || !strings.Contains(f.Err.Error(), "redirected from TLS") {
		t.Errorf("a redirection from TLS: %+v", f)
	}
	none := filepath.Join(t.TempDir(), "none.pem")
	if err := os.WriteFile(none, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewAdmin(pulsarlog.Config{AdminURL: s.URL, TLS: pulsarlog.TLS{CAFile: none}}); err == nil || !strings.Contains(err.Error(), "no PEM certificate") {
		t.Errorf("no certificates: %v", err)
	}
}

// TestGatherDenied: an admin API that denies everything yields facts that say so, and
// one that rejects our credentials is unreachable.
func TestGatherDenied(t *testing.T) {
	t.Parallel()
	code := http.StatusForbidden
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	cluster, err := pulsarlog.Connect(t.Context(), pulsarlog.Config{ServiceURL: "pulsar://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	d := Deployment{Admin: admin(t, pulsarlog.Config{AdminURL: s.URL}), Cluster: cluster, Events: "e", Decisions: "d", Policies: "p"}
	facts, err := Gather(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	found := Check(facts)
	if Worst(found) != Warn || len(found) < 5 {
		t.Errorf("found:\n%s", printed(found))
	}
	code = http.StatusUnauthorized
	if _, err := Gather(t.Context(), d); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "authentication failed") {
		t.Errorf("Gather = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Gather(ctx, d); err == nil {
		t.Error("Gather went on after its context")
	}
}
