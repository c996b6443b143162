package api

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Login configures how people sign in: on the page, by the authorisation code of the identity provider with PKCE (RFC 7636), and
// with `refloatctl login`.
type Login struct {
	// PageURL is the address of the page, as browsers have it; "": nobody signs in there.
	PageURL string `json:"pageURL"`
	// ClientID is the page's at the identity provider; default: the audience.
	ClientID string `json:"clientID"`
	// ClientSecretFile has the client's secret; "": it has none.
	ClientSecretFile string `json:"clientSecretFile"`
	// SessionKeyFile has the key of sessions, at least 32 bytes, for all processes behind one address; "": each process makes one.
	SessionKeyFile string   `json:"sessionKeyFile"`
	Scopes         []string `json:"scopes"` // beside openid; default profile and email
	// CLIClientID is that of refloatctl, a client without a secret, whose tokens are accepted too; default: the audience.
	CLIClientID string `json:"cliClientID"`

	secret string
	seal   cipher.AEAD
	client *http.Client
}

const (
	sessionLasts = 8 * time.Hour
	signInLasts  = 10 * time.Minute
	sessionKey   = 32 // bytes, at least
	// maxCookie limits a cookie, as browsers do.
	maxCookie = 4000
)

// SignInPath begins the paths at which people sign in and out.
const SignInPath = "/auth/"

func (l *Login) check(o *OIDC) (err error) {
	if l.PageURL != "" {
		if err := secureURL(l.PageURL); err != nil {
			return fmt.Errorf("oidc.login.pageURL: %w", err)
		}
		if u, _ := url.Parse(l.PageURL); u.Path != "" && u.Path != "/" {
			return errors.New("oidc.login.pageURL: want no path: the page needs a host name of its own")
		}
		l.PageURL = strings.TrimSuffix(l.PageURL, "/")
	}
	l.ClientID, l.CLIClientID = cmp.Or(l.ClientID, o.Audience), cmp.Or(l.CLIClientID, o.Audience)
	if len(l.Scopes) == 0 {
		l.Scopes = []string{"profile", "email"}
	}
	if l.ClientSecretFile != "" {
		text, err := os.ReadFile(l.ClientSecretFile)
		if err != nil {
			return fmt.Errorf("oidc.login.clientSecretFile: %w", err)
		}
		if l.secret = strings.TrimSpace(string(text)); l.secret == "" {
			return errors.New("oidc.login.clientSecretFile: the file is empty")
		}
	}
	key := []byte(rand.Text() + rand.Text())
	if l.SessionKeyFile != "" {
		if key, err = os.ReadFile(l.SessionKeyFile); err != nil {
			return fmt.Errorf("oidc.login.sessionKeyFile: %w", err)
		}
		if len(strings.TrimSpace(string(key))) < sessionKey {
			return fmt.Errorf("oidc.login.sessionKeyFile: want at least %d bytes: make it with `openssl rand -hex %d`", sessionKey, sessionKey)
		}
	}
	sum := sha256.Sum256(key)
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return fmt.Errorf("oidc.login: %w", err)
	}
	if l.seal, err = cipher.NewGCM(block); err != nil {
		return fmt.Errorf("oidc.login: %w", err)
	}
	l.client = &http.Client{Timeout: providerTimeout, Transport: &throttled{limit: rate.NewLimiter(10, 20)}}
	return nil
}

// OnPage reports whether people sign in on the page.
func (a *Auth) OnPage() bool {
	return a != nil && a.OIDC != nil && a.OIDC.Login != nil && a.OIDC.Login.PageURL != ""
}

func (l *Login) secure() bool { return strings.HasPrefix(l.PageURL, "https:") }

// cookieName of https is one that no other host and no unencrypted connection can set (RFC 6265bis, section 4.1.3.2).
func (l *Login) cookieName(of string) string {
	if l.secure() {
		return "__Host-refloat-" + of
	}
	return "refloat-" + of
}

// The cookies.
const (
	ofSession = "session"
	ofSignIn  = "signin"
)

// session is what a browser keeps of who signed in.
type session struct {
	Name   string   `json:"n"`
	Groups []string `json:"g"`
	Ends   int64    `json:"e"` // Unix seconds
}

// signIn is what a browser keeps while somebody signs in.
type signIn struct {
	State    string `json:"s"`
	Nonce    string `json:"o"`
	Verifier string `json:"v"`
	To       string `json:"t"` // where it goes then
	Ends     int64  `json:"e"`
}

// set writes an encrypted cookie.
func (l *Login) set(w http.ResponseWriter, name string, value any, lasts time.Duration) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	nonce := make([]byte, l.seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	sealed := base64.RawURLEncoding.EncodeToString(l.seal.Seal(nonce, nonce, text, []byte(name)))
	if len(sealed) > maxCookie {
		return fmt.Errorf("a cookie of %d bytes is too large for browsers", len(sealed))
	}
	http.SetCookie(w, &http.Cookie{Name: l.cookieName(name), Value: sealed, Path: "/", MaxAge: int(lasts.Seconds()), HttpOnly: true, Secure: l.secure(), SameSite: http.SameSiteLaxMode})
	return nil
}

func (l *Login) clear(w http.ResponseWriter, name string) {
	http.SetCookie(w, &http.Cookie{Name: l.cookieName(name), Path: "/", MaxAge: -1, HttpOnly: true, Secure: l.secure(), SameSite: http.SameSiteLaxMode})
}

// get reads a cookie that set has written.
func (l *Login) get(r *http.Request, name string, to any) bool {
	c, err := r.Cookie(l.cookieName(name))
	if err != nil {
		return false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(sealed) < l.seal.NonceSize() {
		return false
	}
	text, err := l.seal.Open(nil, sealed[:l.seal.NonceSize()], sealed[l.seal.NonceSize():], []byte(name))
	return err == nil && json.Unmarshal(text, to) == nil
}

// bySession returns who signed in on the page.
func (s *Service) bySession(r *http.Request) (Principal, bool) {
	if !s.Auth.OnPage() || r.Header.Get("Authorization") != "" {
		return Principal{}, false
	}
	var is session
	if !s.Auth.OIDC.Login.get(r, ofSession, &is) || is.Name == "" || s.Now().Unix() >= is.Ends {
		return Principal{}, false
	}
	return Principal{Name: is.Name, Groups: is.Groups, Verified: true}, true
}

// SignIn serves SignInPath: how people sign in on the page and out, and what refloatctl login needs to know.
func (s *Service) SignIn(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // addresses here have codes
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'")
	if s.Auth == nil || s.Auth.OIDC == nil || s.Auth.OIDC.Login == nil || r.URL.Path != SignInPath+"config" && !s.Auth.OnPage() {
		http.Error(w, "nobody signs in here: the settings of --api-auth have no oidc.login with a pageURL", http.StatusNotFound)
		return
	}
	do := map[string]func(http.ResponseWriter, *http.Request) error{
		"GET config": s.loginConfig, "GET login": s.beginSignIn, "GET callback": s.endSignIn, "GET logout": s.signedOut, "POST logout": s.signOut,
	}[r.Method+" "+strings.TrimPrefix(r.URL.Path, SignInPath)]
	if do == nil {
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	if err := do(w, r); err != nil {
		code, message, ok := Refusal(err)
		if !ok {
			code, message = http.StatusInternalServerError, "signing in failed; see the server's log"
			if s.Log != nil {
				s.Log.Warn("signing in failed", slog.Any("error", err))
			}
		}
		http.Error(w, message, code)
	}
}

// LoginConfig is what refloatctl login needs to know; none of it is secret.
type LoginConfig struct {
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"clientId"`
	Scopes   []string `json:"scopes"`
}

func (s *Service) loginConfig(w http.ResponseWriter, _ *http.Request) error {
	o := s.Auth.OIDC
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(LoginConfig{o.Issuer, o.Login.CLIClientID, o.Login.scopes()})
}

func (l *Login) scopes() []string { return append([]string{oidc.ScopeOpenID}, l.Scopes...) }

// oauth returns the page's client at the identity provider.
func (o *OIDC) oauth(ctx context.Context) (*oauth2.Config, error) {
	p, err := o.at(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, "the identity provider does not answer now: try again in a moment")
	}
	return &oauth2.Config{ClientID: o.Login.ClientID, ClientSecret: o.Login.secret, Endpoint: p.Endpoint(), RedirectURL: o.Login.PageURL + SignInPath + "callback", Scopes: o.Login.scopes()}, nil
}

func (s *Service) beginSignIn(w http.ResponseWriter, r *http.Request) error {
	client, err := s.Auth.OIDC.oauth(r.Context())
	if err != nil {
		return err
	}
	flow := signIn{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: localPath(r.URL.Query().Get("to")), Ends: s.Now().Add(signInLasts).Unix()}
	if err := s.Auth.OIDC.Login.set(w, ofSignIn, flow, signInLasts); err != nil {
		return err
	}
	http.Redirect(w, r, client.AuthCodeURL(flow.State, oidc.Nonce(flow.Nonce), oauth2.S256ChallengeOption(flow.Verifier)), http.StatusSeeOther)
	return nil
}

// localPath returns an address on this page; others become that of the start page.
func localPath(to string) string {
	u, err := url.Parse(to)
	if err != nil || len(to) > 1500 || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(to, "//") || strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, SignInPath) || strings.ContainsAny(u.Path, "\\\r\n\t") {
		return "/"
	}
	return u.RequestURI()
}

var errStale = status.Error(codes.InvalidArgument, "this sign-in was not begun in this browser, or too long ago: open the page again")

func (s *Service) endSignIn(w http.ResponseWriter, r *http.Request) error {
	o, query := s.Auth.OIDC, r.URL.Query()
	var flow signIn
	ok := o.Login.get(r, ofSignIn, &flow)
	o.Login.clear(w, ofSignIn)
	if !ok || s.Now().Unix() >= flow.Ends || subtle.ConstantTimeCompare([]byte(flow.State), []byte(query.Get("state"))) != 1 {
		return errStale
	}
	if query.Get("code") == "" {
		return status.Errorf(codes.PermissionDenied, "the identity provider let nobody in (%q)", nameFor(query.Get("error")))
	}
	client, err := o.oauth(r.Context())
	if err != nil {
		return err
	}
	ctx := oidc.ClientContext(r.Context(), o.Login.client)
	tokens, err := client.Exchange(ctx, query.Get("code"), oauth2.VerifierOption(flow.Verifier))
	if err != nil {
		if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) { // its text has the whole response
			err = fmt.Errorf("status %d, %q", refused.Response.StatusCode, nameFor(refused.ErrorCode))
		} else {
			err = errors.New("no valid response")
		}
		if s.Log != nil {
			s.Log.Warn("the identity provider did not exchange the code of a sign-in", slog.Any("error", err))
		}
		return status.Error(codes.Unavailable, "the identity provider did not accept this sign-in; see the server's log")
	}
	text, _ := tokens.Extra("id_token").(string)
	id, err := o.verify(ctx, text, &oidc.Config{ClientID: o.Login.ClientID})
	if errors.Is(err, errNoProvider) {
		return err
	}
	if err != nil || subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(flow.Nonce)) != 1 {
		return errNoEntry
	}
	who, err := o.caller(id)
	if err != nil {
		return err
	}
	if err := o.Login.set(w, ofSession, session{Name: who.Name, Groups: s.Auth.mentioned(who.Groups), Ends: s.Now().Add(sessionLasts).Unix()}, sessionLasts); err != nil {
		return err
	}
	http.Redirect(w, r, flow.To, http.StatusSeeOther)
	return nil
}

func (s *Service) signOut(w http.ResponseWriter, r *http.Request) error {
	if new(http.CrossOriginProtection).Check(r) != nil || foreign(r) {
		return status.Error(codes.PermissionDenied, "pages of other origins may not sign anybody out")
	}
	s.Auth.OIDC.Login.clear(w, ofSession)
	http.Redirect(w, r, SignInPath+"logout", http.StatusSeeOther)
	return nil
}

func (s *Service) signedOut(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, err := w.Write([]byte(`<!doctype html><html lang="en"><title>Signed out · Refloat</title><h1>Signed out</h1><p>You may still be signed in at the identity provider.</p><p><a href="/auth/login">Sign in</a></p></html>`))
	return err
}
