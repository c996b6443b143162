package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/test/pulsartest"
)

const secret = "a secret of thirty-two bytes, or more than that"

// token says who somebody is, until a time.
func token(t *testing.T, who string, until time.Time, key string) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	claims, err := json.Marshal(map[string]any{"sub": who, "exp": until.Unix()})
	if err != nil {
		t.Fatal(err)
	}
	signed := encode([]byte(`{"alg":"HS256"}`)) + "." + encode(claims)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

// TestDenied: a broker that does not know us, or does not allow us a topic, gets
// an error in words, and no decision is made. Who shows no token may do all, so
// that the test can set things up.
func TestDenied(t *testing.T) {
	if testing.Short() {
		t.Skip("runs our programs on a real broker")
	}
	t.Parallel()
	broker := pulsartest.Start(t, pulsartest.Options{Settings: map[string]string{
		"authenticationEnabled":   "true",
		"authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
		"tokenSecretKey":          "data:;base64," + base64.StdEncoding.EncodeToString([]byte(secret)),
		"anonymousUserRole":       "nobody",
		"authorizationEnabled":    "true",
		"superUserRoles":          "nobody",
	}})
	w := newWorldOn(t, broker, 1)
	soon := time.Now().Add(time.Hour)
	w.admin(http.MethodPost, "namespaces/"+w.Namespace+"/permissions/refloat", `["produce","consume"]`)
	for _, tt := range []struct{ name, token, want string }{
		{"another key", token(t, "refloat", soon, strings.ToUpper(secret)), "denied by the broker"},
		{"expired", token(t, "refloat", time.Now().Add(-time.Hour), secret), "denied by the broker"},
		{"not allowed", token(t, "stranger", soon, secret), "denied by the broker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := w.Evaluator("a-"+tt.name[:3], nil, "--pulsar-token", tt.token)
			w.must(err)
			w.processes = append(w.processes, p)
			w.until("the evaluator says no", func() bool { return p.Ended() || strings.Contains(p.Text(), "partition refused") })
			if !strings.Contains(p.Text(), tt.want) {
				t.Errorf("it does not say %q:\n%s", tt.want, p.Tail())
			}
			if strings.Contains(p.Text(), tt.token) {
				t.Error("it prints its token")
			}
			t.Log(lastLine(p.Tail()))
			p.Kill()
		})
	}
	p := w.evaluator("allowed", "--pulsar-token", token(t, "refloat", soon, secret))
	w.live(1, p)
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
