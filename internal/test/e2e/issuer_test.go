package e2e

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// issuer is a small identity provider: it signs tokens, and answers the client-credentials flow of OAuth2.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu      sync.Mutex
	secrets map[string]string // client id → its secret now
	life    time.Duration     // of a token from the flow
	issued  int               // by the flow
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, secrets: map[string]string{}, life: time.Hour}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"issuer": i.URL, "token_endpoint": i.URL + "/token"})
	})
	mux.HandleFunc("POST /token", i.grant)
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) grant(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	id := r.FormValue("client_id")
	if secret, known := i.secrets[id]; !known || r.FormValue("client_secret") != secret || r.FormValue("audience") != audience {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client", "error_description": "unknown client or wrong secret"})
		return
	}
	i.issued++
	answer(w, http.StatusOK, map[string]any{"access_token": i.sign(id, time.Now().Add(i.life)), "token_type": "Bearer", "expires_in": int(i.life.Seconds())})
}

// set sets a client's secret.
func (i *issuer) set(id, secret string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.secrets[id] = secret
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

const audience = "urn:pulsar:test"

// sign returns a token that says who somebody is, until a time.
func (i *issuer) sign(who string, until time.Time) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"RS256"}`)) + "." + encode(fmt.Appendf(nil, `{"sub":%q,"aud":%q,"exp":%d}`, who, audience, until.Unix()))
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err) // the key fits
	}
	return signed + "." + encode(signature)
}

// publicKey is the key as the broker takes it.
func (i *issuer) publicKey(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return "data:;base64," + base64.StdEncoding.EncodeToString(der)
}
