package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/spf13/cobra"
	"golang.org/x/oauth2"

	"github.com/refloat/refloat/internal/api"
)

// login is what is kept of a sign-in, for one server.
type login struct {
	Server   string    `json:"server"`
	Issuer   string    `json:"issuer"`
	ClientID string    `json:"clientId"`
	Token    string    `json:"idToken"`
	Refresh  string    `json:"refreshToken,omitempty"`
	Expires  time.Time `json:"expires"`
}

// issuerTimeout is the timeout of a request to an identity provider.
const issuerTimeout = 10 * time.Second

func newLogin() *cobra.Command {
	c := &client{}
	var device bool
	cmd := &cobra.Command{
		Use:   "login --server HOST:PORT",
		Short: "Sign in at the identity provider of a server",
		Long: `Signs in with a browser, which may be on another machine with --device, and keeps the tokens in a file that only you can
read. Commands with the same --server then act for you, until you run refloatctl logout or the identity provider ends it.`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := c.only()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(oidc.ClientContext(cmd.Context(), &http.Client{Timeout: issuerTimeout}), 10*time.Minute)
			defer cancel()
			about, err := c.loginConfig(ctx, server)
			if err != nil {
				return err
			}
			provider, err := oidc.NewProvider(ctx, about.Issuer)
			if err != nil {
				return fmt.Errorf("the identity provider %s: %w", about.Issuer, err)
			}
			how := browserLogin
			if device {
				how = deviceLogin
			}
			tokens, nonce, err := how(ctx, cmd.ErrOrStderr(), &oauth2.Config{ClientID: about.ClientID, Endpoint: provider.Endpoint(), Scopes: about.Scopes})
			if err != nil {
				return fmt.Errorf("sign in at %s: %w", about.Issuer, tokenError(err))
			}
			l := &login{Server: server, Issuer: about.Issuer, ClientID: about.ClientID}
			if err := l.take(ctx, provider, tokens, nonce); err != nil {
				return err
			}
			if err := l.save(); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "signed in to %s until %s\n", server, l.Expires.Format(time.RFC3339))
			return nil
		},
	}
	c.bindServer(cmd)
	cmd.Flags().BoolVar(&device, "device", false, "sign in with a code on another machine (RFC 8628)")
	return cmd
}

func newLogout() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:   "logout --server HOST:PORT",
		Short: "Revoke and delete the tokens of refloatctl login",
		Args:  noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := c.only()
			if err != nil {
				return err
			}
			file, err := loginFile(server)
			if err != nil {
				return err
			}
			l, readErr := readLogin(file, server)
			switch err := os.Remove(file); {
			case errors.Is(err, os.ErrNotExist):
				fmt.Fprintf(cmd.OutOrStdout(), "nobody was signed in to %s\n", server)
				return nil
			case err != nil:
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "signed out of %s\n", server)
			if readErr == nil {
				readErr = l.revoke(cmd.Context())
			}
			if readErr != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "the tokens are deleted here, but a copy of them is valid until the identity provider ends them: %v\n", readErr)
			}
			return nil
		},
	}
	c.bindServer(cmd)
	return cmd
}

// only returns the single server that is named.
func (c *client) only() (string, error) {
	all := c.servers()
	if _, _, err := net.SplitHostPort(all[0]); err != nil || len(all) != 1 {
		return "", usageError{fmt.Errorf("--server %q: want one HOST:PORT, such as refloat.example.org:443", c.server)}
	}
	return all[0], nil
}

// loginConfig asks a server where its users sign in.
func (c *client) loginConfig(ctx context.Context, server string) (about api.LoginConfig, err error) {
	config, err := c.tls(server)
	if err != nil {
		return about, usageError{err}
	}
	address := "http://" + server
	if config != nil {
		address = "https://" + server
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+api.SignInPath+"config", nil)
	if err != nil {
		return about, usageError{err}
	}
	transport := &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: c.timeout}).Do(r)
	if err != nil {
		return about, fmt.Errorf("ask %s where to sign in: %w", server, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	switch {
	case err != nil:
		return about, fmt.Errorf("ask %s where to sign in: %w", server, err)
	case resp.StatusCode == http.StatusNotFound:
		return about, fmt.Errorf("%s has no sign-in: its --api-auth has no oidc.login; use --token-file or --user", server)
	case resp.StatusCode != http.StatusOK || json.Unmarshal(text, &about) != nil || about.ClientID == "":
		return about, fmt.Errorf("ask %s where to sign in: status %d, and no answer that this refloatctl understands", server, resp.StatusCode)
	}
	if u, err := url.Parse(about.Issuer); err != nil || u.Scheme != "https" && !api.OnLoopback(net.JoinHostPort(u.Hostname(), "0")) {
		return about, fmt.Errorf("%s names the identity provider %q: want https, as anybody in between could read the tokens", server, about.Issuer)
	}
	return about, nil
}

// browserLogin signs in with a browser on this machine, by an authorisation code with PKCE.
func browserLogin(ctx context.Context, out io.Writer, client *oauth2.Config) (*oauth2.Token, string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	client.RedirectURL = "http://" + l.Addr().String() + "/callback"
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	type answer struct{ code, refused string }
	answers := make(chan answer, 1)
	server := &http.Server{ReadHeaderTimeout: issuerTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/callback" || q.Get("state") != state {
			http.NotFound(w, r) // of somebody else
			return
		}
		fmt.Fprintln(w, "You can close this window, and return to refloatctl.")
		select {
		case answers <- answer{q.Get("code"), q.Get("error")}:
		default:
		}
	})}
	go func() { _ = server.Serve(l) }()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // the browser gets its answer
	}()
	fmt.Fprintf(out, "Open this address in a browser on this machine (on another one, use --device):\n\n%s\n\n", client.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)))
	select {
	case <-ctx.Done():
		return nil, "", fmt.Errorf("nobody signed in: %w", ctx.Err())
	case a := <-answers:
		if a.code == "" {
			return nil, "", fmt.Errorf("it let nobody in (%.100q)", a.refused)
		}
		tokens, err := client.Exchange(ctx, a.code, oauth2.VerifierOption(verifier))
		return tokens, nonce, err
	}
}

// deviceLogin signs in with a browser anywhere.
func deviceLogin(ctx context.Context, out io.Writer, client *oauth2.Config) (*oauth2.Token, string, error) {
	if client.Endpoint.DeviceAuthURL == "" {
		return nil, "", errors.New("it has no device flow: sign in without --device")
	}
	code, err := client.DeviceAuth(ctx)
	if err != nil {
		return nil, "", err
	}
	fmt.Fprintf(out, "Open %s in any browser, and enter the code %s\n", code.VerificationURI, code.UserCode)
	tokens, err := client.DeviceAccessToken(ctx, code)
	return tokens, "", err
}

// tokenError shortens an error of a token request, whose text has the whole response.
func tokenError(err error) error {
	if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) {
		return fmt.Errorf("refused (%.100q)", refused.ErrorCode)
	}
	return err
}

// take verifies and keeps tokens.
func (l *login) take(ctx context.Context, p *oidc.Provider, tokens *oauth2.Token, nonce string) error {
	text, _ := tokens.Extra("id_token").(string)
	if text == "" {
		return fmt.Errorf("the identity provider %s gave no ID token", l.Issuer)
	}
	id, err := p.Verifier(&oidc.Config{ClientID: l.ClientID}).Verify(ctx, text)
	if err != nil || id.Nonce != nonce && nonce != "" {
		return fmt.Errorf("the token of the identity provider %s is not valid for %s", l.Issuer, l.ClientID)
	}
	l.Token, l.Expires = text, id.Expiry
	if tokens.RefreshToken != "" {
		l.Refresh = tokens.RefreshToken
	}
	return nil
}

// loginFile is where the tokens for a server are kept.
func loginFile(server string) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("where tokens are kept: %w", err)
	}
	return filepath.Join(dir, "refloat", "login", url.PathEscape(server)+".json"), nil
}

func readLogin(file, server string) (*login, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	l := &login{}
	if json.Unmarshal(text, l) != nil || l.Server != server || strings.ContainsFunc(l.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("%s is damaged: run refloatctl login --server %s", file, server)
	}
	return l, nil
}

// save replaces the file.
func (l *login) save() error {
	file, err := loginFile(l.Server)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("keep the tokens: %w", err)
	}
	return nil
}

// revoke has the identity provider end what new tokens are made with (RFC 7009).
func (l *login) revoke(ctx context.Context) error {
	if l.Refresh == "" {
		return nil
	}
	client := &http.Client{Timeout: issuerTimeout}
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, client), l.Issuer)
	if err != nil {
		return err
	}
	var about struct {
		Revocation string `json:"revocation_endpoint"`
	}
	if err := p.Claims(&about); err != nil || about.Revocation == "" {
		return errors.New("it has no revocation_endpoint")
	}
	form := url.Values{"token": {l.Refresh}, "token_type_hint": {"refresh_token"}, "client_id": {l.ClientID}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, about.Revocation, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it refused to revoke them: status %d", resp.StatusCode)
	}
	return nil
}

// early is how long before its end a token is refreshed.
const early = 30 * time.Second

// kept returns the token of a sign-in to a server, refreshed if need be; "": nobody signed in.
func kept(ctx context.Context, server string) (string, error) {
	file, err := loginFile(server)
	if err != nil {
		return "", nil //nolint:nilerr // without a home, nobody signed in
	}
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return "", fmt.Errorf("%s can be read by others: run chmod 600 on it, and sign in again, since they may have the tokens", file)
	}
	l, err := readLogin(file, server)
	if err != nil {
		return "", err
	}
	if time.Until(l.Expires) > early {
		return l.Token, nil
	}
	again := func(why string) error {
		return fmt.Errorf("your sign-in to %s %s: run refloatctl login --server %s", server, why, server)
	}
	if l.Refresh == "" {
		return "", again("has ended")
	}
	ctx = oidc.ClientContext(ctx, &http.Client{Timeout: issuerTimeout})
	p, err := oidc.NewProvider(ctx, l.Issuer)
	if err != nil {
		return "", fmt.Errorf("refresh your sign-in at %s: %w", l.Issuer, err)
	}
	tokens, err := (&oauth2.Config{ClientID: l.ClientID, Endpoint: p.Endpoint()}).TokenSource(ctx, &oauth2.Token{RefreshToken: l.Refresh}).Token()
	if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) {
		return "", again("has ended at the identity provider")
	}
	if err != nil {
		return "", fmt.Errorf("refresh your sign-in at %s: %w", l.Issuer, err)
	}
	if err := l.take(ctx, p, tokens, ""); err != nil {
		return "", err
	}
	return l.Token, l.save()
}
