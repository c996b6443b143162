package api_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
)

const (
	password = "correct-horse-battery"
	ciToken  = "token-of-the-pipeline"
)

func hashed(t *testing.T, cost int) string {
	t.Helper()
	b, err := bcrypt.GenerateFromPassword([]byte(password), cost)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func digestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func basicHeader(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// everybody grants all permissions to the group ops.
func everybody() map[api.Verb][]string {
	all := map[api.Verb][]string{}
	for _, v := range api.Verbs() {
		all[v] = []string{"ops"}
	}
	return all
}

// provider is an identity provider with one key.
type provider struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	asked atomic.Int64 // for its keys
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{key: newKey(t)}
	server := &oidctest.Server{
		PublicKeys: []oidctest.PublicKey{{PublicKey: p.key.Public(), KeyID: "one", Algorithm: oidc.ES256}},
		Algorithms: []string{oidc.ES256},
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			p.asked.Add(1)
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	server.SetIssuer(p.URL)
	return p
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// claims are those of ann, with others in the place of some.
func (p *provider) claims(changes string) string {
	return fmt.Sprintf(`{"iss": %q, "aud": "refloat", "sub": "u-1", "exp": %d, "email": "ann@example.org", "groups": ["ops", 7]%s}`,
		p.URL, time.Now().Add(time.Hour).Unix(), changes)
}

func (p *provider) sign(claims string) string {
	return oidctest.SignIDToken(p.key, "one", oidc.ES256, claims)
}

// plainToken is an unsigned token.
func plainToken(header, claims string) string {
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(header)) + "." + enc.EncodeToString([]byte(claims)) + "."
}

// TestSignIn checks who can authenticate, over gRPC and REST, and that no response and no log contains a secret.
func TestSignIn(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	hash := hashed(t, bcrypt.MinCost)
	auth := &api.Auth{
		Basic:       map[string]api.BasicUser{"ann": {PasswordHash: "$2y" + strings.TrimPrefix(hash, "$2a"), Groups: []string{"ops"}}},
		Tokens:      map[string]api.Token{"ci": {SHA256: digestOf(ciToken), Groups: []string{"ops"}}},
		OIDC:        &api.OIDC{Issuer: p.URL, Audience: "refloat", UsernameClaim: "email"},
		Permissions: everybody(),
	}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(s *api.Service) {
		s.Auth = auth
		s.Source = func() *pb.Source { panic("a bug") }
	})
	secrets := []string{password, ciToken, hash[7:], digestOf(ciToken), "Bearer ", "Basic "}
	var logged strings.Builder
	good := p.sign(p.claims(""))
	for i, c := range []struct {
		what, header, author string
	}{
		{"nothing", "", ""},
		{"a scheme alone", "Bearer", ""},
		{"another scheme", "Digest " + ciToken, ""},
		{"a password", basicHeader("ann", password), "ann"},
		{"a password, lower case", "basic" + strings.TrimPrefix(basicHeader("ann", password), "Basic"), "ann"},
		{"a wrong password", basicHeader("ann", password+"!"), ""},
		{"no password", basicHeader("ann", ""), ""},
		{"nobody's password", basicHeader("bob", password), ""},
		{"the password of the decoy", basicHeader("bob", "nobody"), ""},
		{"no base64", "Basic " + password, ""},
		{"a token", "Bearer " + ciToken, "ci"},
		{"a wrong token", "Bearer " + ciToken + "!", ""},
		{"a hash for a token", "Bearer " + digestOf(ciToken), ""},
		{"an empty token", "Bearer ", ""},
		{"OIDC", "Bearer " + good, "ann@example.org"},
		{"expired", "Bearer " + p.sign(p.claims(`, "exp": 1600000000`)), ""},
		{"never expires", "Bearer " + p.sign(strings.Replace(p.claims(""), `"exp"`, `"x"`, 1)), ""},
		{"not yet", "Bearer " + p.sign(p.claims(`, "nbf": 33000000000`)), ""},
		{"another audience", "Bearer " + p.sign(p.claims(`, "aud": "other"`)), ""},
		{"no audience", "Bearer " + p.sign(strings.Replace(p.claims(""), `"aud"`, `"x"`, 1)), ""},
		{"another issuer", "Bearer " + p.sign(p.claims(`, "iss": "https://evil.example.org"`)), ""},
		{"another key", "Bearer " + oidctest.SignIDToken(newKey(t), "one", oidc.ES256, p.claims("")), ""},
		{"another algorithm", "Bearer " + plainToken(`{"alg":"HS256","kid":"one"}`, p.claims("")) + "AAAA", ""},
		{"no algorithm", "Bearer " + plainToken(`{"alg":"none"}`, p.claims("")), ""},
		{"a broken signature", "Bearer " + good[:len(good)-6] + "AAAAAA", ""},
		{"no e-mail", "Bearer " + p.sign(p.claims(`, "email": ""`)), ""},
		{"an e-mail that is a number", "Bearer " + p.sign(p.claims(`, "email": 7`)), ""},
		{"a name with line ends", "Bearer " + p.sign(p.claims(`, "email": "a\nb\u001b"`)), "ab"},
		{"no claims", "Bearer " + p.sign(`[]`), ""},
	} {
		_, secret, _ := strings.Cut(c.header, " ")
		if len(secret) > 10 {
			secrets = append(secrets, secret)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "refloat-user", "somebody else")
		headers := []string{"Refloat-User", "somebody else"}
		if c.header != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", c.header)
			headers = append(headers, "Authorization", c.header)
		}
		_, errRead := w.History(ctx, &pb.HistoryRequest{})
		_, errWrite := w.Create(ctx, &pb.CreateRequest{Document: w.queue(fmt.Sprintf("q%d", i), "")})
		codeRead, bodyRead := w.rest("GET", "/refloat/v1/history", "", headers...)
		codeWrite, bodyWrite := w.rest("POST", "/refloat/v1/resources", fmt.Sprintf(`{"kind": "Queue", "name": "r%d"}`, i), headers...)
		fmt.Fprintln(&logged, errRead, errWrite, bodyRead, bodyWrite)
		if c.author == "" {
			w.refused(errRead, codes.Unauthenticated)
			w.refused(errWrite, codes.Unauthenticated)
			unread, _ := w.rest("POST", "/refloat/v1/resources", `{"no JSON`, headers...) // a body is not read before
			if codeRead != 401 || codeWrite != 401 || unread != 401 {
				t.Errorf("%s: over REST %d, %d, %d", c.what, codeRead, codeWrite, unread)
			}
			continue
		}
		if errRead != nil || errWrite != nil || codeRead != 200 || codeWrite != 200 {
			t.Errorf("%s: %v, %v; over REST %d, %d %s", c.what, errRead, errWrite, codeRead, codeWrite, bodyWrite)
			continue
		}
		h, err := w.History(ctx, &pb.HistoryRequest{Limit: 2})
		if err != nil || len(h.Generations) != 2 || h.Generations[0].Author != c.author || h.Generations[1].Author != c.author {
			t.Errorf("%s: history %v, %v; want %q", c.what, h, err, c.author)
		}
		// A panic does not end the server, and reveals no header.
		if code, body := w.rest("GET", "/refloat/v1/status", "", headers...); code != 500 || !strings.Contains(body, "the server failed on this request") {
			t.Errorf("a panic over REST: %d %s", code, body)
		}
		_, err = w.Status(ctx, &pb.StatusRequest{})
		w.refused(err, codes.Internal, "the server failed on this request")
		fmt.Fprintln(&logged, err)
	}
	if log := w.logged.String(); !strings.Contains(log, "a bug") {
		t.Errorf("the panic is not in the log: %s", log)
	}
	for _, s := range secrets {
		if strings.Contains(logged.String(), s) || strings.Contains(w.logged.String(), s) {
			t.Errorf("%q is told or logged", s)
		}
	}
}

// TestProviderAway checks that an unavailable provider affects no user whose key is known, that others get an
// error that says so, and that invented keys do not cause repeated requests.
func TestProviderAway(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	auth := &api.Auth{OIDC: &api.OIDC{Issuer: p.URL, Audience: "refloat"}, Permissions: everybody()}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	ask := func(token string) (api.Principal, error) {
		return auth.Who(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token)))
	}
	if who, err := ask(p.sign(p.claims(""))); err != nil || who.Name != "u-1" || !slices.Equal(who.Groups, []string{"ops"}) {
		t.Fatalf("%+v, %v", who, err)
	}
	invented := oidctest.SignIDToken(newKey(t), "two", oidc.ES256, p.claims(""))
	for range 50 {
		if _, err := ask(invented); err == nil {
			t.Fatal("let in")
		}
	}
	if n := p.asked.Load(); n > 10 {
		t.Errorf("asked %d times for its keys", n)
	}
	p.Close()
	if _, err := ask(p.sign(p.claims(""))); err != nil {
		t.Errorf("with a key that is known: %v", err)
	}
	p = newProvider(t)
	auth = &api.Auth{OIDC: &api.OIDC{Issuer: p.URL, Audience: "refloat"}, Permissions: everybody()}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	p.Close()
	w := &world{T: t}
	for range 10 {
		_, err := ask(p.sign(p.claims("")))
		w.refused(err, codes.Unavailable, "identity provider")
	}
}

// An unknown name takes as long as a wrong password, whatever the cost of the user's hash, and however often it is tried.
func TestNamesNotRevealedByTime(t *testing.T) {
	t.Parallel()
	auth := &api.Auth{Basic: map[string]api.BasicUser{"ann": {PasswordHash: hashed(t, 10)}, "cheap": {PasswordHash: hashed(t, 5)}}}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	best := map[[2]string]time.Duration{}
	logins := [][2]string{{"ann", "wrong"}, {"bob", "wrong"}, {"bob", "nobody"}, {"cheap", "wrong"}}
	apart := func() bool {
		for _, took := range best {
			if known := best[logins[0]]; took*5 < known || known*5 < took {
				return true
			}
		}
		return false
	}
	// Alternately, so that whatever else the machine does delays all. A shortest time only gets closer to what is necessary.
	for n := 0; n < 6 || n < 60 && apart(); n++ {
		for _, login := range logins {
			begin := time.Now()
			if _, err := auth.Who(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", basicHeader(login[0], login[1])))); err == nil {
				t.Fatal("let in")
			}
			if took := time.Since(begin); best[login] == 0 || took < best[login] {
				best[login] = took
			}
		}
	}
	if apart() {
		t.Errorf("the shortest times of logins that are refused: %v", best)
	}
}

// What is wrong with a configuration is said by its place.
func TestAuthCheck(t *testing.T) {
	t.Parallel()
	good := hashed(t, bcrypt.MinCost)
	token := map[string]api.Token{"ci": {SHA256: digestOf(ciToken)}}
	for _, c := range []struct {
		auth api.Auth
		want string
	}{
		{api.Auth{}, "no user could authenticate"},
		{api.Auth{Basic: map[string]api.BasicUser{"ann": {PasswordHash: password}}}, "basic.ann.passwordHash: not a bcrypt hash"},
		{api.Auth{Basic: map[string]api.BasicUser{"a:b": {PasswordHash: good}}}, "contain a colon"},
		{api.Auth{Basic: map[string]api.BasicUser{"": {PasswordHash: good}}}, "must not be empty"},
		{api.Auth{Basic: map[string]api.BasicUser{"ann": {PasswordHash: "$2a$31" + good[6:]}}}, "cost 31"},
		{api.Auth{Basic: map[string]api.BasicUser{"ann": {PasswordHash: "$2a$13" + good[6:]}}}, "cost 13"},
		{api.Auth{Tokens: map[string]api.Token{"ci": {SHA256: ciToken}}}, "tokens.ci.sha256: not a SHA-256"},
		{api.Auth{Tokens: map[string]api.Token{"ci": {SHA256: digestOf("")}}}, "the hash of an empty token"},
		{api.Auth{Tokens: map[string]api.Token{"": {SHA256: digestOf(ciToken)}}}, "needs a name"},
		{api.Auth{Tokens: token, Permissions: map[api.Verb][]string{"kill_retrie": nil}}, "did you mean kill_retries?"},
		{api.Auth{Tokens: token, Permissions: map[api.Verb][]string{"submit_jobs": nil}}, "unknown permission: use [create_retry_policy"},
		{api.Auth{OIDC: &api.OIDC{Issuer: "https://example.org"}}, "issuer and audience are required"},
	} {
		err := c.auth.Check()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), password) || strings.Contains(err.Error(), ciToken) {
			t.Errorf("%v; want %q", err, c.want)
		}
	}
}

// asking is an RPC, over gRPC and over REST, and what it needs.
type asking struct {
	what  string
	verbs []api.Verb
	call  func(ctx context.Context) error
	rest  [3]string // method, path and body
}

func (w *world) askings() []asking {
	dry := "?dry_run=true&reason=x"
	armada := func() pb.RetryPolicyServiceClient { return pb.NewRetryPolicyServiceClient(w.conn) }
	limit := uint32(0) // so that each put changes something
	flat := func(name string) *pb.RetryPolicy {
		limit++
		return &pb.RetryPolicy{Name: name, RetryLimit: limit, DefaultAction: 1}
	}
	flatText := func(name string) string {
		limit++
		return fmt.Sprintf(`{"name": %q, "retryLimit": %d, "defaultAction": 1}`, name, limit)
	}
	created := 0
	fresh := func() string { created++; return fmt.Sprintf("new-%d", created) }
	policyText := `{"apiVersion": "armadaproject.io/v1", "kind": "RetryPolicy", "metadata": {"name": "NAME"}, "spec": {"retryLimit": 9}}`
	groupText := `{"apiVersion": "refloat.github.io/v1", "kind": "GroupPolicy", "metadata": {"name": "NAME"}, "spec": {"maxRestarts": 9}}`
	until := timestamppb.New(noon.Add(time.Hour))
	return []asking{
		{"list", nil, func(ctx context.Context) error { _, err := w.List(ctx, &pb.ListRequest{}); return err }, [3]string{"GET", "/refloat/v1/resources", ""}},
		{"get", nil, func(ctx context.Context) error {
			_, err := w.Get(ctx, &pb.GetRequest{Kind: "Queue", Name: "ml"})
			return err
		}, [3]string{"GET", "/refloat/v1/resources/Queue/ml", ""}},
		{"history", nil, func(ctx context.Context) error { _, err := w.History(ctx, &pb.HistoryRequest{}); return err }, [3]string{"GET", "/refloat/v1/history", ""}},
		{"status", nil, func(ctx context.Context) error { _, err := w.Status(ctx, &pb.StatusRequest{}); return err }, [3]string{"GET", "/refloat/v1/status", ""}},
		{"Armada's get", nil, func(ctx context.Context) error {
			_, err := armada().GetRetryPolicy(ctx, &pb.RetryPolicyGetRequest{Name: "flat"})
			return err
		}, [3]string{"GET", "/v1/retry-policy/flat", ""}},
		{"Armada's list", nil, func(ctx context.Context) error {
			_, err := armada().GetRetryPolicies(ctx, &pb.RetryPolicyListRequest{})
			return err
		}, [3]string{"GET", "/v1/retry-policies", ""}},
		{"create a policy", []api.Verb{api.CreateRetryPolicy}, func(ctx context.Context) error {
			_, err := w.Create(ctx, &pb.CreateRequest{Document: w.policy("x", ""), DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/resources" + dry, strings.Replace(policyText, "NAME", "x", 1)}},
		{"update a policy", []api.Verb{api.UpdateRetryPolicy}, func(ctx context.Context) error {
			_, err := w.Update(ctx, &pb.UpdateRequest{Document: w.policy("infra", `"retryLimit": 9`), Generation: 1, DryRun: true})
			return err
		}, [3]string{"PUT", "/refloat/v1/resources" + dry + "&generation=1", strings.Replace(policyText, "NAME", "infra", 1)}},
		{"delete a policy", []api.Verb{api.DeleteRetryPolicy}, func(ctx context.Context) error {
			_, err := w.Delete(ctx, &pb.DeleteRequest{Kind: "RetryPolicy", Name: "infra", DryRun: true})
			return err
		}, [3]string{"DELETE", "/refloat/v1/resources/RetryPolicy/infra" + dry, ""}},
		{"create a group policy", []api.Verb{api.CreateRetryPolicy}, func(ctx context.Context) error {
			_, err := w.Create(ctx, &pb.CreateRequest{Document: w.doc(strings.Replace(groupText, "NAME", "x", 1)), DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/resources" + dry, strings.Replace(groupText, "NAME", "x", 1)}},
		{"update a group policy", []api.Verb{api.UpdateRetryPolicy}, func(ctx context.Context) error {
			_, err := w.Update(ctx, &pb.UpdateRequest{Document: w.doc(strings.Replace(groupText, "NAME", "gang", 1)), Generation: 2, DryRun: true})
			return err
		}, [3]string{"PUT", "/refloat/v1/resources" + dry + "&generation=2", strings.Replace(groupText, "NAME", "gang", 1)}},
		{"delete a group policy", []api.Verb{api.DeleteRetryPolicy}, func(ctx context.Context) error {
			_, err := w.Delete(ctx, &pb.DeleteRequest{Kind: "GroupPolicy", Name: "gang", DryRun: true})
			return err
		}, [3]string{"DELETE", "/refloat/v1/resources/GroupPolicy/gang" + dry, ""}},
		{"create a queue", []api.Verb{api.BindRetryPolicies}, func(ctx context.Context) error {
			_, err := w.Create(ctx, &pb.CreateRequest{Document: w.queue("x", ""), DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/resources" + dry, `{"kind": "Queue", "name": "x"}`}},
		{"delete a queue", []api.Verb{api.BindRetryPolicies}, func(ctx context.Context) error {
			_, err := w.Delete(ctx, &pb.DeleteRequest{Kind: "Queue", Name: "ml", DryRun: true})
			return err
		}, [3]string{"DELETE", "/refloat/v1/resources/Queue/ml" + dry, ""}},
		{"change the settings", []api.Verb{api.SetRetrySettings}, func(ctx context.Context) error {
			_, err := w.Create(ctx, &pb.CreateRequest{Document: w.doc(`{"kind": "RetrySettings", "spec": {"globalMaxRetries": 3}}`), DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/resources" + dry, `{"kind": "RetrySettings", "spec": {"globalMaxRetries": 3}}`}},
		{"apply", []api.Verb{api.CreateRetryPolicy, api.BindRetryPolicies}, func(ctx context.Context) error {
			_, err := w.Apply(ctx, &pb.ApplyRequest{Documents: docsIn(w.policy("x", ""), w.queue("ml", `, "retryPolicies": ["x"]`)), DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/apply", `{"documents": [` + strings.Replace(policyText, "NAME", "x", 1) + `, {"kind": "Queue", "name": "ml", "retryPolicies": ["x"]}], "dryRun": true}`}},
		{"put a queue into shadow", []api.Verb{api.BindRetryPolicies, api.ShadowRetries}, func(ctx context.Context) error {
			_, err := w.Apply(ctx, &pb.ApplyRequest{Documents: docsIn(w.queue("ml", `, "mode": "Shadow"`)), DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/apply", `{"documents": [{"kind": "Queue", "name": "ml", "mode": "Shadow"}], "dryRun": true}`}},
		{"create a killed queue", []api.Verb{api.BindRetryPolicies, api.KillRetries}, func(ctx context.Context) error {
			_, err := w.Create(ctx, &pb.CreateRequest{Document: w.queue("x", `, "killed": true`), DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/resources" + dry, `{"kind": "Queue", "name": "x", "killed": true}`}},
		{"create a paused queue", []api.Verb{api.BindRetryPolicies, api.PauseRetries}, func(ctx context.Context) error {
			_, err := w.Create(ctx, &pb.CreateRequest{Document: w.queue("x", `, "pausedUntil": "2026-12-01T06:00:00Z"`), DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/resources" + dry, `{"kind": "Queue", "name": "x", "pausedUntil": "2026-12-01T06:00:00Z"}`}},
		{"kill by the settings", []api.Verb{api.SetRetrySettings, api.KillRetries}, func(ctx context.Context) error {
			_, err := w.Create(ctx, &pb.CreateRequest{Document: w.doc(`{"kind": "RetrySettings", "spec": {"globalMaxRetries": 0}}`), DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/resources" + dry, `{"kind": "RetrySettings", "spec": {"enabled": false}}`}},
		{"pause and shadow by the settings", []api.Verb{api.SetRetrySettings, api.PauseRetries, api.ShadowRetries}, func(ctx context.Context) error {
			_, err := w.Create(ctx, &pb.CreateRequest{Document: w.doc(`{"kind": "RetrySettings", "spec": {"mode": "Shadow", "pausedUntil": "2026-12-01T06:00:00Z"}}`), DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/resources" + dry, `{"kind": "RetrySettings", "spec": {"mode": "Shadow", "pausedUntil": "2026-12-01T06:00:00Z"}}`}},
		{"prune", []api.Verb{api.DeleteRetryPolicy, api.BindRetryPolicies}, func(ctx context.Context) error {
			_, err := w.Apply(ctx, &pb.ApplyRequest{Documents: docsIn(w.queue("ml", "")), Prune: true, AllowEmpty: true, DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/apply", `{"documents": [{"kind": "Queue", "name": "ml"}], "prune": true, "allowEmpty": true, "dryRun": true}`}},
		{"roll back", []api.Verb{api.DeleteRetryPolicy, api.BindRetryPolicies}, func(ctx context.Context) error {
			_, err := w.RollBack(ctx, &pb.RollBackRequest{To: 1, DryRun: true})
			return err
		}, [3]string{"POST", "/refloat/v1/rollback", `{"to": 1, "dryRun": true}`}},
		{"kill", []api.Verb{api.KillRetries}, func(ctx context.Context) error {
			_, err := w.Brake(ctx, &pb.BrakeRequest{All: true, Kill: true, Reason: "x"})
			return err
		}, [3]string{"POST", "/refloat/v1/brakes", `{"all": true, "kill": true, "reason": "x"}`}},
		{"pause", []api.Verb{api.PauseRetries}, func(ctx context.Context) error {
			_, err := w.Brake(ctx, &pb.BrakeRequest{All: true, PausedUntil: until, Reason: "x"})
			return err
		}, [3]string{"POST", "/refloat/v1/brakes", `{"all": true, "pausedUntil": "2026-11-21T13:00:00Z", "reason": "x"}`}},
		{"kill and pause", []api.Verb{api.KillRetries, api.PauseRetries}, func(ctx context.Context) error {
			_, err := w.Brake(ctx, &pb.BrakeRequest{All: true, Kill: true, PausedUntil: until, Reason: "x"})
			return err
		}, [3]string{"POST", "/refloat/v1/brakes", `{"all": true, "kill": true, "pausedUntil": "2026-11-21T13:00:00Z", "reason": "x"}`}},
		{"avoid a node", []api.Verb{api.AvoidNodes}, func(ctx context.Context) error {
			_, err := w.Brake(ctx, &pb.BrakeRequest{Node: "n", AvoidedUntil: until, Reason: "x"})
			return err
		}, [3]string{"POST", "/refloat/v1/brakes", `{"node": "n", "avoidedUntil": "2026-11-21T13:00:00Z", "reason": "x"}`}},
		{"release", []api.Verb{api.KillRetries, api.PauseRetries}, func(ctx context.Context) error {
			_, err := w.Release(ctx, &pb.ReleaseRequest{All: true, Reason: "x"})
			return err
		}, [3]string{"POST", "/refloat/v1/brakes:release", `{"all": true, "reason": "x"}`}},
		{"Armada's create", []api.Verb{api.CreateRetryPolicy}, func(ctx context.Context) error {
			_, err := armada().CreateRetryPolicy(ctx, flat(fresh()))
			return err
		}, [3]string{"POST", "/v1/retry-policy", flatText("rest-1")}},
		{"Armada's create of one that is there", []api.Verb{api.CreateRetryPolicy}, func(ctx context.Context) error {
			_, err := armada().CreateRetryPolicy(ctx, flat("flat"))
			return err
		}, [3]string{"POST", "/v1/retry-policy", flatText("flat")}},
		{"Armada's update", []api.Verb{api.UpdateRetryPolicy}, func(ctx context.Context) error {
			_, err := armada().UpdateRetryPolicy(ctx, flat("flat"))
			return err
		}, [3]string{"PUT", "/v1/retry-policy/flat", flatText("flat")}},
		{"Armada's delete, with what it detaches", []api.Verb{api.DeleteRetryPolicy}, func(ctx context.Context) error {
			_, err := armada().DeleteRetryPolicy(ctx, &pb.RetryPolicyDeleteRequest{Name: "bound"})
			return err
		}, [3]string{"DELETE", "/v1/retry-policy/bound-too", ""}},
	}
}

func docsIn[T any](docs ...T) []T { return docs }

// TestPermissions checks the verbs that each RPC needs, over gRPC and REST. Reading needs only authentication.
func TestPermissions(t *testing.T) {
	t.Parallel()
	auth := &api.Auth{Tokens: map[string]api.Token{"reader": {SHA256: digestOf("reader")}}, Permissions: map[api.Verb][]string{}}
	for _, v := range api.Verbs() {
		auth.Permissions[v] = []string{string(v)} // a group for each
	}
	w := newWorld(t, func(s *api.Service) { s.Auth = auth })
	all := w.askings()
	token := func(name string, verbs []api.Verb) string {
		var groups []string
		for _, v := range verbs {
			groups = append(groups, string(v))
		}
		auth.Tokens[name] = api.Token{SHA256: digestOf(name), Groups: groups}
		return "Bearer " + name
	}
	lacking := func(verbs ...api.Verb) []api.Verb {
		return slices.DeleteFunc(api.Verbs(), func(v api.Verb) bool { return slices.Contains(verbs, v) })
	}
	root := metadata.AppendToOutgoingContext(t.Context(), "authorization", token("root", api.Verbs()))
	for i, a := range all {
		token(fmt.Sprint("only ", i), a.verbs)
		for k, v := range a.verbs {
			token(fmt.Sprintf("but %d %d", i, k), lacking(v))
		}
	}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	docs := docsIn(w.policy("infra", ""), w.policy("flat", `"retryLimit": 0, "defaultAction": "Fail"`), w.policy("bound", ""), w.policy("bound-too", ""),
		w.queue("other", `, "retryPolicies": ["bound", "bound-too"]`), w.group("gang", ""))
	if _, err := w.Create(root, &pb.CreateRequest{Document: docs[0]}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Apply(root, &pb.ApplyRequest{Documents: append(docs, w.queue("ml", ""))}); err != nil {
		t.Fatal(err)
	}
	for i, a := range all {
		status := func(header string) int {
			t.Helper()
			headers := []string{"Authorization", header}
			code, body := w.rest(a.rest[0], a.rest[1], a.rest[2], headers[:2*min(1, len(header))]...)
			if code >= 500 || code == 400 || code == 404 {
				t.Errorf("%s over REST: %d %s", a.what, code, body)
			}
			return code
		}
		rpc := func(header string) error {
			if header == "" {
				return a.call(t.Context())
			}
			return a.call(metadata.AppendToOutgoingContext(t.Context(), "authorization", header))
		}
		w.refused(rpc(""), codes.Unauthenticated, "authentication required")
		if code := status(""); code != http.StatusUnauthorized {
			t.Errorf("%s without credentials over REST: %d", a.what, code)
		}
		if len(a.verbs) > 0 {
			w.refused(rpc("Bearer reader"), codes.PermissionDenied, "reader lacks the permission")
		}
		for k, v := range a.verbs {
			but := fmt.Sprintf("Bearer but %d %d", i, k)
			w.refused(rpc(but), codes.PermissionDenied, string(v))
			if code := status(but); code != http.StatusForbidden {
				t.Errorf("%s without %s over REST: %d", a.what, v, code)
			}
		}
		only := fmt.Sprint("Bearer only ", i)
		if err := rpc(only); err != nil {
			t.Errorf("%s with %v: %v", a.what, a.verbs, err)
		}
		if code := status(only); code != http.StatusOK {
			t.Errorf("%s with %v over REST: %d", a.what, a.verbs, code)
		}
	}
}

// TestBrowsers checks that without authentication, web pages in a browser on this machine can change nothing,
// neither by address nor by DNS rebinding.
func TestBrowsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := `{"all": true, "kill": true, "reason": "x"}`
	for _, c := range []struct {
		headers []string
		code    int
	}{
		{nil, 200},
		{[]string{"Host", "localhost:7468"}, 200},
		{[]string{"Host", "[::1]:7468"}, 200},
		{[]string{"Host", "localhost"}, 200},
		{[]string{"Host", "evil.example.org:7468"}, 403},
		{[]string{"Host", "127.0.0.1.evil.example.org"}, 403},
		{[]string{"Origin", "https://evil.example.org"}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Sec-Fetch-Site", "same-origin"}, 200},
		{[]string{"Content-Type", "application/x-www-form-urlencoded"}, 200},
	} {
		if code, text := w.rest("POST", "/refloat/v1/brakes", body, c.headers...); code != c.code {
			t.Errorf("%q: %d %s", c.headers, code, text)
		}
	}
	for _, c := range []struct {
		headers []string
		code    int
	}{
		{[]string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, 200},
		{[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
		{[]string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "empty"}, 403},
	} {
		if code, text := w.rest("GET", "/refloat/v1/status", "", c.headers...); code != c.code {
			t.Errorf("GET with %q: %d %s", c.headers, code, text)
		}
	}
	if code, _ := w.rest("POST", "/refloat/v1/status", "", "Content-Type", "application/x-www-form-urlencoded", "X-HTTP-Method-Override", "GET"); code != 405 {
		t.Errorf("a form is read as a GET: %d", code)
	}
}

// TestWritesOfStrangers checks that unauthenticated callers do not use up the write limit, and that reading is not
// limited.
func TestWritesOfStrangers(t *testing.T) {
	t.Parallel()
	auth := &api.Auth{Tokens: map[string]api.Token{"ci": {SHA256: digestOf(ciToken), Groups: []string{"ops"}}}, Permissions: everybody()}
	w := newWorld(t, func(s *api.Service) { s.Auth, s.Writes = auth, rate.NewLimiter(1, 1) })
	known := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+ciToken)
	for range 5 {
		_, err := w.Create(t.Context(), &pb.CreateRequest{Document: w.queue("a", "")})
		w.refused(err, codes.Unauthenticated)
		if _, err := w.List(known, &pb.ListRequest{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.Create(known, &pb.CreateRequest{Document: w.queue("a", "")}); err != nil {
		t.Error(err)
	}
	_, err := w.Create(known, &pb.CreateRequest{Document: w.queue("b", "")})
	w.refused(err, codes.ResourceExhausted)
}

// A name that a client gives is shown as the history can hold it.
func TestGivenNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, c := range []struct{ given, want string }{
		{"ann", "ann (not verified)"},
		{"", "anonymous (not verified)"},
		{strings.Repeat("é", 80), strings.Repeat("é", 50) + " (not verified)"},
		{"a" + strings.Repeat("é", 80), "a" + strings.Repeat("é", 49) + " (not verified)"},
		{"a\xffb", "a\ufffdb (not verified)"},
	} {
		if code, body := w.rest("POST", "/refloat/v1/resources", fmt.Sprintf(`{"kind": "Queue", "name": "q%d"}`, i), "Refloat-User", c.given); code != 200 {
			t.Errorf("%q: %d %s", c.given, code, body)
		}
		h, err := w.History(t.Context(), &pb.HistoryRequest{Limit: 1})
		if err != nil || h.Generations[0].Author != c.want {
			t.Errorf("%q: %v, %v", c.given, h, err)
		}
	}
}

// TestGuardsName: nobody can make an override that the guard would take for its own, and end.
func TestGuardsName(t *testing.T) {
	t.Parallel()
	auth := &api.Auth{Tokens: map[string]api.Token{"guard": {SHA256: digestOf(ciToken), Groups: []string{"ops"}}}, Permissions: everybody()}
	w := newWorld(t, func(s *api.Service) { s.Auth = auth })
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+ciToken)
	_, err := w.Create(ctx, &pb.CreateRequest{Document: w.queue("ml", "")})
	w.refused(err, codes.PermissionDenied, `the name "guard" is the guard's own`)
}
