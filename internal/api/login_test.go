package api_test

import (
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/test/issuer"
)

// door is a page behind the sign-in, which says who asks.
type door struct {
	*httptest.Server
	*world
	issuer *issuer.Issuer
	ahead  atomic.Int64 // of the clock
}

func newDoor(t *testing.T, change ...func(*api.Auth)) *door {
	t.Helper()
	d := &door{issuer: issuer.New(t, time.Now)}
	auth := &api.Auth{OIDC: &api.OIDC{Issuer: d.issuer.URL, Audience: "refloat", Login: &api.Login{}}, Permissions: everybody()}
	d.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, api.SignInPath) {
			d.service.SignIn(w, r)
			return
		}
		_, who, err := d.service.Admit(r)
		if code, message, ok := api.Refusal(err); ok {
			http.Error(w, message, code)
			return
		}
		fmt.Fprintf(w, "%s of %v", who, who.Groups)
	}))
	d.Start()
	t.Cleanup(d.Close)
	auth.OIDC.Login.PageURL = d.URL
	for _, c := range change {
		c(auth)
	}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	d.world = newWorld(t, func(s *api.Service) {
		s.Auth = auth
		s.Now = func() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())) }
	})
	return d
}

// browser follows redirects, and has cookies.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

func get(t *testing.T, c *http.Client, address string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// TestSignInOnPage: whoever the identity provider lets in has a session, with the groups that have permissions, until it ends or
// is ended.
func TestSignInOnPage(t *testing.T) {
	t.Parallel()
	d := newDoor(t, func(a *api.Auth) {
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte("client-secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		a.OIDC.Login.ClientSecretFile, a.OIDC.Login.ClientID, a.OIDC.UsernameClaim = secret, "page", "email"
	})
	d.issuer.Clients["page"] = "client-secret"
	d.issuer.Claims = map[string]any{"email": "ann@example.org", "groups": []string{"ops", "cooks"}}
	b := browser(t)
	if resp, _ := get(t, b, d.URL+"/jobs"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a session: %d", resp.StatusCode)
	}
	resp, body := get(t, b, d.URL+"/auth/login?to="+url.QueryEscape("/jobs?queue=ml"))
	if body != "ann@example.org of [ops]" || resp.Request.URL.RequestURI() != "/jobs?queue=ml" {
		t.Fatalf("%s: %d %s", resp.Request.URL, resp.StatusCode, body)
	}
	at, _ := url.Parse(d.URL)
	var kept *http.Cookie
	for _, c := range b.Jar.Cookies(at) {
		if strings.HasSuffix(c.Name, "session") {
			kept = c
		} else {
			t.Errorf("the cookie %s is left", c.Name)
		}
		if strings.Contains(c.Value, "ann") {
			t.Errorf("the cookie can be read: %s", c.Value)
		}
	}
	with := func(value string) string {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", d.URL+"/jobs", nil)
		r.AddCookie(&http.Cookie{Name: kept.Name, Value: value})
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.Status[:3]
	}
	flip := []byte(kept.Value)
	flip[len(flip)/2] ^= 1
	other := newDoor(t)
	elsewhere := browser(t)
	get(t, elsewhere, other.URL+"/auth/login")
	to, _ := url.Parse(other.URL)
	for what, value := range map[string]string{"changed": string(flip), "short": "AAAA", "empty": "", "no base64": "***", "of another process": elsewhere.Jar.Cookies(to)[0].Value, "cut": kept.Value[:len(kept.Value)-4]} {
		if got := with(value); got != "401" {
			t.Errorf("a cookie that is %s: %s", what, got)
		}
	}
	if got := with(kept.Value); got != "200" {
		t.Errorf("the cookie: %s", got)
	}
	if code, _ := d.rest("GET", "/refloat/v1/resources", "", "Cookie", kept.Name+"="+kept.Value); code != http.StatusUnauthorized {
		t.Errorf("the API takes a session: %d", code)
	}
	// Sign-out needs a form of this page.
	if resp, _ := get(t, b, d.URL+"/auth/logout"); resp.StatusCode != http.StatusOK || with(kept.Value) != "200" {
		t.Errorf("a link signs out: %d", resp.StatusCode)
	}
	r, _ := http.NewRequestWithContext(t.Context(), "POST", d.URL+"/auth/logout", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp, err := b.Do(r); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("another site signs out: %v, %v", resp.StatusCode, err)
	}
	r, _ = http.NewRequestWithContext(t.Context(), "POST", d.URL+"/auth/logout", nil)
	if resp, err := b.Do(r); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK || len(b.Jar.Cookies(at)) != 0 {
		t.Errorf("signing out: %v, %v, %v", resp.StatusCode, err, b.Jar.Cookies(at))
	}
	d.ahead.Store(int64(9 * time.Hour))
	if got := with(kept.Value); got != "401" {
		t.Errorf("a session of yesterday: %s", got)
	}
	if text := d.logged.String(); strings.Contains(text, "client-secret") || strings.Contains(text, "code-") || strings.Contains(text, "eyJ") {
		t.Errorf("the log has secrets: %s", text)
	}
}

// TestCookieAttributes: no script reads a session, and no other host gets it.
func TestCookieAttributes(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"http://127.0.0.1:1", "https://refloat.example.org/"} {
		i := issuer.New(t, time.Now)
		auth := &api.Auth{OIDC: &api.OIDC{Issuer: i.URL, Audience: "refloat", Login: &api.Login{PageURL: page}}}
		if err := auth.Check(); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		(&api.Service{Auth: auth, Now: time.Now}).SignIn(w, httptest.NewRequestWithContext(t.Context(), "GET", "/auth/login", nil))
		c := w.Result().Cookies()[0]
		secure := strings.HasPrefix(page, "https")
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure != secure || strings.HasPrefix(c.Name, "__Host-") != secure || c.Domain != "" || c.Path != "/" || c.MaxAge != 600 {
			t.Errorf("%s: %+v", page, c)
		}
		to := w.Result().Header.Get("Location")
		if !strings.Contains(to, "code_challenge_method=S256") || !strings.Contains(to, "nonce=") || !strings.Contains(to, "state=") || !strings.Contains(to, url.QueryEscape(strings.TrimSuffix(page, "/")+"/auth/callback")) {
			t.Errorf("%s: %s", page, to)
		}
	}
}

// TestCallbackRefuses: a callback that this browser did not begin, or that is not what was asked for, lets nobody in.
func TestCallbackRefuses(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	noRedirects := func(b *http.Client) *http.Client {
		return &http.Client{Jar: b.Jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	begin := func(b *http.Client) string { // the address to which the issuer sends the browser
		resp, _ := get(t, noRedirects(b), d.URL+"/auth/login")
		resp, _ = get(t, noRedirects(b), resp.Header.Get("Location"))
		return resp.Header.Get("Location")
	}
	set := func(at, name, value string) string {
		u, _ := url.Parse(at)
		q := u.Query()
		q.Set(name, value)
		u.RawQuery = q.Encode()
		return u.String()
	}
	for _, c := range []struct {
		what   string
		code   int
		before func()
		change func(string) string
	}{
		{"another state", 400, nil, func(at string) string { return set(at, "state", "x") }},
		{"no state", 400, nil, func(at string) string { return set(at, "state", "") }},
		{"another code", 503, nil, func(at string) string { return set(at, "code", "x") }},
		{"no code", 403, nil, func(at string) string { return set(at, "code", "") }},
		{"another nonce", 401, func() { d.issuer.Nonce = "another" }, nil},
		{"the user refuses", 403, func() { d.issuer.Refuses = "access_denied" }, nil},
		{"no user name", 401, func() { d.issuer.Claims = map[string]any{"sub": ""} }, nil},
		{"too late", 400, func() { d.ahead.Store(int64(time.Hour)) }, nil},
		{"expired", 401, func() { d.issuer.Lasts = -time.Hour }, nil},
	} {
		if c.before != nil {
			d.issuer.Lock()
			if c.what != "too late" {
				c.before()
			}
			d.issuer.Unlock()
		}
		b := browser(t)
		at := begin(b)
		if c.what == "too late" {
			c.before()
		}
		if c.change != nil {
			at = c.change(at)
		}
		resp, body := get(t, noRedirects(b), at)
		if resp.StatusCode != c.code || strings.Contains(body, "secret-of-the-issuer") {
			t.Errorf("%s: %d, want %d: %s", c.what, resp.StatusCode, c.code, body)
		}
		d.issuer.Lock()
		d.issuer.Claims, d.issuer.Refuses, d.issuer.Nonce, d.issuer.Lasts = nil, "", "", time.Hour
		d.issuer.Unlock()
		d.ahead.Store(0)
	}
	at := begin(browser(t))
	if resp, body := get(t, noRedirects(browser(t)), at); resp.StatusCode != 400 {
		t.Errorf("in another browser: %d %s", resp.StatusCode, body)
	}
	b := browser(t)
	at = begin(b)
	if resp, _ := get(t, noRedirects(b), at); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("at last: %d", resp.StatusCode)
	}
	if resp, _ := get(t, noRedirects(b), at); resp.StatusCode != 400 {
		t.Errorf("a second time: %d", resp.StatusCode)
	}
	for to, want := range map[string]string{
		"/jobs?queue=a&x=%2F": "/jobs?queue=a&x=%2F", "": "/", "https://evil.example": "/", "//evil.example": "/", "/\\evil.example": "/", "/%5Cevil.example": "/",
		"javascript:alert(1)": "/", "evil.example": "/", "/\tx": "/", "/%2F/evil.example": "/", "http:/evil.example": "/", "/auth/logout": "/", "/..//evil.example": "/..//evil.example",
	} {
		resp, body := get(t, browser(t), d.URL+"/auth/login?to="+url.QueryEscape(to))
		if resp.Request.URL.Host != strings.TrimPrefix(d.URL, "http://") || resp.Request.URL.RequestURI() != want && want == "/" {
			t.Errorf("to %q: %s %s", to, resp.Request.URL, body)
		}
	}
	if text := d.logged.String(); strings.Contains(text, "secret-of-the-issuer") {
		t.Errorf("the log has what the issuer said: %s", text)
	}
}

// TestTokens: a token is accepted only as the issuer made it for us, and none makes the server fail.
func TestTokens(t *testing.T) {
	t.Parallel()
	d := newDoor(t, func(a *api.Auth) { a.OIDC.Login.CLIClientID = "refloat-cli" })
	ask := func(token string) error {
		_, err := d.service.Auth.Who(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token)))
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(d.issuer.Public().(*ecdsa.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	hmacToken := func(key []byte) string {
		body, _ := json.Marshal(map[string]any{"iss": d.issuer.URL, "aud": "refloat", "sub": "u-1", "exp": time.Now().Add(time.Hour).Unix()})
		enc := base64.RawURLEncoding
		text := enc.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + enc.EncodeToString(body)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return text + "." + enc.EncodeToString(mac.Sum(nil))
	}
	none := plainToken(`{"alg":"none"}`, fmt.Sprintf(`{"iss": %q, "aud": "refloat", "sub": "u-1", "exp": %d}`, d.issuer.URL, time.Now().Add(time.Hour).Unix()))
	is := func(claims map[string]any) string { return d.issuer.Sign(claims) }
	now := time.Now()
	for _, c := range []struct {
		what, token string
		ok          bool
	}{
		{"the usual", is(nil), true},
		{"of refloatctl", is(map[string]any{"aud": "refloat-cli"}), true},
		{"two audiences", is(map[string]any{"aud": []string{"other", "refloat"}}), true},
		{"another audience", is(map[string]any{"aud": "other"}), false},
		{"an audience with ours as its beginning", is(map[string]any{"aud": "refloat-other"}), false},
		{"no audience", is(map[string]any{"aud": nil}), false},
		{"another issuer", is(map[string]any{"iss": "https://login.example.org"}), false},
		{"expired", is(map[string]any{"exp": now.Add(-time.Minute).Unix()}), false},
		{"without an end", is(map[string]any{"exp": nil}), false},
		{"not yet valid", is(map[string]any{"nbf": now.Add(time.Hour).Unix()}), false},
		{"alg none", none, false},
		{"HS256 with the public key, PEM", hmacToken(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})), false},
		{"HS256 with the public key, DER", hmacToken(public), false},
		{"a subject of another type", is(map[string]any{"sub": 7}), false},
		{"no subject", is(map[string]any{"sub": nil}), false},
		{"groups that are a text", is(map[string]any{"groups": "ops"}), true},
		{"groups that are an object", is(map[string]any{"groups": map[string]any{"ops": true}}), true},
		{"groups of other types", is(map[string]any{"groups": []any{nil, 1.5, []any{"ops"}, map[string]any{}, true}}), true},
		{"an end of another type", is(map[string]any{"exp": "never"}), false},
		{"an end beyond all times", is(map[string]any{"exp": 1e300}), false},
		{"no token", "a.b.c", false},
		{"dots", "....", false},
	} {
		if err := ask(c.token); (err == nil) != c.ok || err != nil && len(c.token) > 8 && strings.Contains(err.Error(), c.token[:8]) {
			t.Errorf("%s: %v, want %t", c.what, err, c.ok)
		}
	}
	old := is(nil)
	d.issuer.Rotate(t)
	if err := ask(is(nil)); err != nil {
		t.Errorf("after the key was rotated: %v", err)
	}
	if err := ask(old); err == nil {
		t.Error("a token of the key before")
	}
}

// TestUnverifiedEmail: an address that the identity provider has not verified names nobody.
func TestUnverifiedEmail(t *testing.T) {
	t.Parallel()
	d := newDoor(t, func(a *api.Auth) { a.OIDC.UsernameClaim = "email" })
	for verified, want := range map[any]bool{true: true, false: false, nil: true, "no": true} {
		_, err := d.service.Auth.Who(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+d.issuer.Sign(map[string]any{"email": "a@example.org", "email_verified": verified}))))
		if (err == nil) != want {
			t.Errorf("email_verified %v: %v", verified, err)
		}
	}
}

// TestIssuerAway: settings are valid while the issuer does not answer; nobody is let in until it does, and then everybody.
func TestIssuerAway(t *testing.T) {
	t.Parallel()
	i := issuer.New(t, time.Now)
	address := i.Listener.Addr().String()
	issuerURL := i.URL
	i.Close()
	auth := &api.Auth{OIDC: &api.OIDC{Issuer: issuerURL, Audience: "refloat", Login: &api.Login{PageURL: "http://127.0.0.1:1"}}, Permissions: everybody()}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(s *api.Service) { s.Auth = auth })
	token := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+i.Sign(nil)))
	_, err := auth.Who(token)
	w.refused(err, codes.Unavailable, "identity provider")
	rec := httptest.NewRecorder()
	w.service.SignIn(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/auth/login", nil))
	if rec.Code != http.StatusServiceUnavailable || !strings.Contains(rec.Body.String(), "does not answer now") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("its port is taken: %v", err)
	}
	server := &http.Server{Handler: i, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	if _, err := auth.Who(token); err != nil {
		t.Errorf("when it answers: %v", err)
	}
}

// TestLoginSettings: what is wrong with the settings of sign-in is said, without what is secret.
func TestLoginSettings(t *testing.T) {
	t.Parallel()
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("too-short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    *api.OIDC
		want string
	}{
		{&api.OIDC{Issuer: "http://login.example.org"}, "oidc.issuer: want https"},
		{&api.OIDC{Issuer: "login.example.org"}, "oidc.issuer: want an address"},
		{&api.OIDC{Issuer: "https://user:pw@login.example.org"}, "oidc.issuer: want an address"},
		{&api.OIDC{Login: &api.Login{PageURL: "http://refloat.example.org"}}, "oidc.login.pageURL: want https"},
		{&api.OIDC{Login: &api.Login{PageURL: "https://refloat.example.org/refloat"}}, "oidc.login.pageURL: want no path"},
		{&api.OIDC{Login: &api.Login{SessionKeyFile: short}}, "oidc.login.sessionKeyFile: want at least 32 bytes"},
		{&api.OIDC{Login: &api.Login{SessionKeyFile: short + "x"}}, "oidc.login.sessionKeyFile: open"},
		{&api.OIDC{Login: &api.Login{ClientSecretFile: "/dev/null"}}, "oidc.login.clientSecretFile: the file is empty"},
	} {
		if c.o.Issuer == "" {
			c.o.Issuer = "https://login.example.org"
		}
		c.o.Audience = "refloat"
		if err := (&api.Auth{OIDC: c.o}).Check(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "too-short") || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
