package e2e

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/pgtest"
)

// TestPageOnACluster: the page and the API of one of two evaluators on a broker, with a job database in PostgreSQL, TLS,
// tokens, and a proxy in front that ends TLS itself.
func TestPageOnACluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	db := pgtest.Database(t)
	proxy := &httputil.ReverseProxy{}
	front := httptest.NewTLSServer(proxy)
	defer front.Close()
	cert, key := writeCertificate(w, front.TLS.Certificates[0])
	auth := filepath.Join(w.Dir, "auth.yaml")
	w.must(os.WriteFile(auth, fmt.Appendf(nil, "tokens:\n  ann: {sha256: \"%x\", groups: [ops]}\npermissionGroupMapping: {get_jobs: [ops], kill_retries: [ops], pause_retries: [ops]}\n", sha256.Sum256([]byte("secret"))), 0o600))
	flags := []string{"--api", "127.0.0.1:0", "--api-auth", auth, "--api-tls-cert", cert, "--api-tls-key", key, "--job-db", db}
	a, b := w.evaluator("a", flags...), w.evaluator("b", flags...)
	w.started(w.Ingester("one", "--job-db", db))
	w.live(3, a, b)
	w.feed("plain")

	server := address(w, "a")
	ask := func(args ...string) (string, error) {
		cmd := exec.CommandContext(w.ctx, w.Programs.Ctl, args...)
		cmd.Env = append(os.Environ(), "REFLOAT_TOKEN=secret")
		out, err := cmd.Output()
		return string(out), err
	}
	byServer := []string{"--server", server, "--server-ca", cert, "--timeout", "2m"}
	w.until("the server verifies all", func() bool {
		out, err := ask(append([]string{"verify"}, byServer...)...)
		return err == nil && strings.Contains(out, "byte for byte")
	})
	for _, args := range [][]string{{"get", "decisions", "-o", "json"}, {"get", "jobs", "-o", "json"}, {"top", "retries"}} {
		var got, want string
		w.until(fmt.Sprintf("%v of the server is that of its job database", args), func() bool { // which the ingester fills
			var err1, err2 error
			got, err1 = ask(append(args, byServer...)...)
			want, err2 = ask(append(args, "--job-db", db)...)
			return err1 == nil && err2 == nil && got == want && strings.Count(got, "\n") > 1
		})
	}
	if out, err := ask(append([]string{"get", "partitions"}, byServer...)...); err != nil || strings.Count(out, "\n") != 4 {
		t.Errorf("partitions: %v\n%s", err, out)
	}

	target := &url.URL{Scheme: "https", Host: server}
	roots := x509.NewCertPool()
	roots.AddCert(front.Certificate())
	proxy.Rewrite = func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	browser := front.Client()
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	send := func(method, path, form, origin string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(w.ctx, method, front.URL+path, strings.NewReader(form))
		w.must(err)
		r.SetBasicAuth("ann", "secret")
		if form != "" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", origin)
		}
		resp, err := browser.Do(r)
		w.must(err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		w.must(err)
		return resp.StatusCode, string(text)
	}
	found := func(pattern, in string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(in)
		if m == nil {
			t.Fatalf("no %s in\n%s", pattern, in)
		}
		return strings.ReplaceAll(m[1], "&amp;", "&")
	}
	_, failed := send(http.MethodGet, "/jobs?state=Failed", "", "")
	job := found(`href="(/job\?[^"]+)"`, failed)
	_, story := send(http.MethodGet, job, "", "")
	for path, want := range map[string]string{
		"/": "Newest decisions", "/decisions?code=RuleRetry": "RuleRetry", job: "failed for good", found(`href="(/explain\?[^"]+)"`, story): "Which rules were tried",
		"/top?by=queue": "genomics", "/queue?name=genomics": "Failed for good", "/policies": "infra", "/shadow": "Shadow", "/partitions": "this process", "/overrides": "Nothing is killed",
		"/whatif?" + url.Values{"set": {"settings.globalMaxRetries=1"}}.Encode(): "settings.globalMaxRetries=1</textarea>",
	} {
		if status, text := send(http.MethodGet, path, "", ""); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d, want %q in\n%s", path, status, want, text)
		}
	}
	if status, text := send(http.MethodPost, "/whatif", url.Values{"set": {"settings.globalMaxRetries=1"}}.Encode(), front.URL); status != http.StatusOK || !strings.Contains(text, "would be decided differently") {
		t.Errorf("a what-if: %d\n%s", status, text)
	}
	kill := url.Values{"do": {"kill"}, "queue": {"genomics"}, "reason": {"INC-7"}, "confirm": {"yes"}}.Encode()
	if status, text := send(http.MethodPost, "/overrides", kill, "https://elsewhere.example"); status != http.StatusForbidden {
		t.Errorf("a form from elsewhere: %d\n%s", status, text)
	}
	if status, text := send(http.MethodPost, "/overrides", kill, front.URL); status != http.StatusSeeOther {
		t.Errorf("kill: %d\n%s", status, text)
	}
	if _, text := send(http.MethodGet, "/overrides", "", ""); !strings.Contains(text, "INC-7") || !strings.Contains(text, "by ann") {
		t.Errorf("the page does not show who killed retries, and why:\n%s", text)
	}
}

// writeCertificate writes a server's certificate and its key.
func writeCertificate(w *world, c tls.Certificate) (cert, key string) {
	w.t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	w.must(err)
	cert, key = filepath.Join(w.Dir, "cert.pem"), filepath.Join(w.Dir, "key.pem")
	w.must(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), 0o600))
	w.must(os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return cert, key
}
