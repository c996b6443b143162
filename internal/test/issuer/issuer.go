// Package issuer is a small OpenID Connect provider for tests: discovery, keys with rotation, the authorisation code with PKCE,
// the device flow, and refresh tokens. Whoever asks it to sign in is let in at once, as the claims say that are set.
//
// It checks what a provider must: client, redirect address, challenge, and that a code is used once.
package issuer

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
)

// Issuer is a running provider. Fields may be changed under Lock.
type Issuer struct {
	sync.Mutex
	*httptest.Server
	Clients   map[string]string // secrets by client; "": it has none
	Redirects []string          // addresses, beside those of loopback
	Claims    map[string]any    // of the tokens, in the place of defaults
	Refuses   string            // an error of OAuth2, in the place of a code
	Nonce     string            // of tokens, in the place of that of the request
	Device    bool              // it has the device flow
	Pending   int               // how often a device is told to wait
	Lasts     time.Duration     // of a token
	NoRefresh bool              // refresh tokens are no longer valid
	Revokes   bool              // it has an address at which they are revoked

	now   func() time.Time
	key   *ecdsa.PrivateKey
	keyID string
	codes map[string]url.Values // the requests, by their codes
}

// New starts an issuer, which ends with the test.
func New(t testing.TB, now func() time.Time) *Issuer {
	t.Helper()
	i := &Issuer{now: now, Clients: map[string]string{"refloat": ""}, Lasts: time.Hour, codes: map[string]url.Values{}}
	i.Rotate(t)
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

// Rotate replaces the key.
func (i *Issuer) Rotate(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.Lock()
	defer i.Unlock()
	i.key, i.keyID = key, rand.Text()
}

// Public is the key that tokens are verified with.
func (i *Issuer) Public() crypto.PublicKey {
	i.Lock()
	defer i.Unlock()
	return i.key.Public()
}

// Sign signs a token with some claims in the place of the usual ones; nil removes one.
func (i *Issuer) Sign(changes map[string]any) string {
	i.Lock()
	defer i.Unlock()
	return i.sign(changes)
}

func (i *Issuer) sign(changes map[string]any) string {
	claims := map[string]any{"iss": i.URL, "aud": "refloat", "sub": "u-1", "exp": i.now().Add(i.Lasts).Unix(), "iat": i.now().Unix(), "groups": []string{"ops"}}
	maps.Copy(claims, i.Claims)
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	text, _ := json.Marshal(claims) // plain values
	return oidctest.SignIDToken(i.key, i.keyID, oidc.ES256, string(text))
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.Lock()
	defer i.Unlock()
	say := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	refuse := func(code string) {
		say(http.StatusBadRequest, map[string]string{"error": code, "error_description": "secret-of-the-issuer"})
	}
	_ = r.ParseForm()
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		about := map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{oidc.ES256, "none", "HS256"}, // which nobody may use
		}
		if i.Device {
			about["device_authorization_endpoint"] = i.URL + "/device"
		}
		if i.Revokes {
			about["revocation_endpoint"] = i.URL + "/revoke"
		}
		say(http.StatusOK, about)
	case "/revoke":
		_, known := i.Clients[r.Form.Get("client_id")]
		if !i.Revokes || !known {
			refuse("invalid_client")
			return
		}
		i.NoRefresh = i.NoRefresh || r.Form.Get("token") == "refresh-of-ann"
		w.WriteHeader(http.StatusOK) // whatever the token is (RFC 7009, section 2.2)
	case "/keys":
		point, err := i.key.PublicKey.Bytes() // 4, and two numbers of 32 bytes
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		enc := base64.RawURLEncoding
		say(http.StatusOK, map[string]any{"keys": []map[string]string{{
			"kty": "EC", "crv": "P-256", "x": enc.EncodeToString(point[1:33]), "y": enc.EncodeToString(point[33:]), "kid": i.keyID, "alg": oidc.ES256, "use": "sig",
		}}})
	case "/authorize":
		to, err := url.Parse(r.Form.Get("redirect_uri"))
		_, known := i.Clients[r.Form.Get("client_id")]
		if err != nil || !known || to.Hostname() != "127.0.0.1" && !slices.Contains(i.Redirects, to.String()) {
			http.Error(w, "unknown client or redirect address", http.StatusBadRequest)
			return
		}
		answer := url.Values{"state": {r.Form.Get("state")}}
		switch {
		case i.Refuses != "":
			answer.Set("error", i.Refuses)
		case r.Form.Get("code_challenge_method") != "S256":
			answer.Set("error", "invalid_request")
		default:
			answer.Set("code", i.code(r.Form))
		}
		to.RawQuery = answer.Encode()
		http.Redirect(w, r, to.String(), http.StatusFound)
	case "/device":
		if !i.Device {
			refuse("unauthorized_client")
			return
		}
		say(http.StatusOK, map[string]any{"device_code": i.code(r.Form), "user_code": "ABCD-EFGH", "verification_uri": i.URL + "/activate", "expires_in": 60, "interval": 1})
	case "/token":
		i.token(r, say, refuse)
	default:
		http.NotFound(w, r)
	}
}

func (i *Issuer) code(of url.Values) string {
	code := "code-" + rand.Text()
	i.codes[code] = of
	return code
}

func (i *Issuer) token(r *http.Request, say func(int, any), refuse func(string)) {
	client, secret, basic := r.BasicAuth()
	if !basic {
		client, secret = r.Form.Get("client_id"), r.Form.Get("client_secret")
	}
	if want, known := i.Clients[client]; !known || want != secret {
		refuse("invalid_client")
		return
	}
	claims := map[string]any{"aud": client}
	switch r.Form.Get("grant_type") {
	case "authorization_code":
		asked, ok := i.codes[r.Form.Get("code")]
		delete(i.codes, r.Form.Get("code"))
		sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		if !ok || asked.Get("redirect_uri") != r.Form.Get("redirect_uri") || asked.Get("client_id") != client || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
			refuse("invalid_grant")
			return
		}
		if nonce := asked.Get("nonce"); nonce != "" {
			claims["nonce"] = cmp.Or(i.Nonce, nonce)
		}
	case "urn:ietf:params:oauth:grant-type:device_code":
		if _, ok := i.codes[r.Form.Get("device_code")]; !ok {
			refuse("expired_token")
			return
		}
		if i.Pending--; i.Pending >= 0 {
			refuse("authorization_pending")
			return
		}
		if i.Refuses != "" {
			refuse(i.Refuses)
			return
		}
		delete(i.codes, r.Form.Get("device_code"))
	case "refresh_token":
		if i.NoRefresh || r.Form.Get("refresh_token") != "refresh-of-ann" {
			refuse("invalid_grant")
			return
		}
	default:
		refuse("unsupported_grant_type")
		return
	}
	say(http.StatusOK, map[string]any{"access_token": "access-of-ann", "token_type": "Bearer", "expires_in": int(i.Lasts.Seconds()), "refresh_token": "refresh-of-ann", "id_token": i.sign(claims)})
}
