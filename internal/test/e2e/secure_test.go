package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/test/certtest"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

// secured is a broker with TLS, authentication and authorisation. Whoever shows no identity may do everything, so that
// the test can set things up.
type secured struct {
	*pulsartest.Broker
	t          *testing.T
	url, admin string // with TLS
	dir        string // of all files below
	ca         *certtest.CA
	roots      string // file with the authorities that our programs trust
	issuer     *issuer
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	free, err := pulsartest.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	s := &secured{t: t, dir: t.TempDir(), ca: certtest.New(t, "authority"), issuer: newIssuer(t)}
	s.roots = certtest.File(t, s.file("ca.crt"), s.ca)
	s.serve(s.ca)
	s.Broker = pulsartest.Start(t, pulsartest.Options{Way: pulsartest.Process, Settings: map[string]string{
		"brokerServicePortTls":              fmt.Sprint(free[0]),
		"webServicePortTls":                 fmt.Sprint(free[1]),
		"tlsCertificateFilePath":            s.file("broker.crt"),
		"tlsKeyFilePath":                    s.file("broker.key"),
		"tlsTrustCertsFilePath":             s.roots,
		"tlsCertRefreshCheckDurationSec":    "1",
		"authenticationEnabled":             "true",
		"authenticationProviders":           "org.apache.pulsar.broker.authentication.AuthenticationProviderToken,org.apache.pulsar.broker.authentication.AuthenticationProviderTls",
		"authenticationRefreshCheckSeconds": "1",
		"tokenPublicKey":                    s.issuer.publicKey(t),
		"tokenAudienceClaim":                "aud",
		"tokenAudience":                     audience,
		"anonymousUserRole":                 "nobody",
		"authorizationEnabled":              "true",
		"superUserRoles":                    "nobody",
	}})
	s.url, s.admin = fmt.Sprintf("pulsar+ssl://127.0.0.1:%d", free[0]), fmt.Sprintf("https://127.0.0.1:%d", free[1])
	return s
}

func (s *secured) file(name string) string { return filepath.Join(s.dir, name) }

// write writes a file of credentials and returns its name.
func (s *secured) write(name, content string) string {
	s.t.Helper()
	certtest.Write(s.t, s.file(name), []byte(content))
	return s.file(name)
}

// serve gives the broker a new certificate.
func (s *secured) serve(ca *certtest.CA) {
	s.t.Helper()
	ca.Issue(s.t, s.file("broker"), "broker", time.Now().Add(time.Hour), "127.0.0.1")
}

// flags are those of a program that uses TLS.
func (s *secured) flags(more ...string) []string {
	return append([]string{"--pulsar", s.url, "--pulsar-admin", s.admin, "--pulsar-tls-ca", s.roots}, more...)
}

// The three ways to authenticate, each as the role of that name.
func (s *secured) token(role string, until time.Time) []string {
	return []string{"--pulsar-token-file", s.write(role+".token", s.issuer.sign(role, until)+"\n")}
}

func (s *secured) mutual(role string, ca *certtest.CA, until time.Time) []string {
	p := ca.Issue(s.t, s.file(role), role, until)
	return []string{"--pulsar-tls-cert", p.Cert, "--pulsar-tls-key", p.Key}
}

func (s *secured) oauth2(role, secret string) []string {
	key := s.write(role+".json", fmt.Sprintf(`{"type":"client_credentials","client_id":%q,"client_secret":%q}`, role, secret))
	return []string{"--pulsar-oauth2-issuer", s.issuer.URL, "--pulsar-oauth2-audience", audience, "--pulsar-oauth2-key-file", key}
}

// turnedAway starts an evaluator that must say why it does not work, in words that name the setting, and without a
// secret.
func (w *world) turnedAway(name string, flags []string, says, secret string) {
	w.t.Helper()
	p, err := w.Evaluator(name, nil, flags...)
	w.must(err)
	w.processes = append(w.processes, p)
	w.until("the evaluator says no", func() bool {
		return p.Ended() || strings.Contains(p.Text(), says) && (strings.Contains(p.Text(), "partition refused") || strings.Contains(p.Text(), "not working"))
	})
	if !strings.Contains(p.Text(), says) {
		w.t.Errorf("it does not say %q:\n%s", says, p.Tail())
	}
	if secret != "" && strings.Contains(p.Text(), secret) {
		w.t.Error("it prints its secret")
	}
	for line := range strings.Lines(p.Text()) {
		if strings.Contains(line, says) {
			w.t.Log(strings.TrimSpace(line))
			break
		}
	}
	p.Kill()
}

// TestDenied: a broker that does not know us, or does not allow us a topic, gets an error in words, and no decision is
// made.
func TestDenied(t *testing.T) {
	if testing.Short() {
		t.Skip("runs our programs on a real broker")
	}
	t.Parallel()
	s := newSecured(t)
	w := newWorldOn(t, s.Broker, 1)
	w.allow("refloat")
	soon, ago := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for _, tt := range []struct {
		name       string
		flags      []string
		says, file string
	}{
		{"expired", s.token("refloat", ago), "check --pulsar-token-file " + s.file("refloat.token"), "refloat.token"},
		{"not allowed", s.token("stranger", soon), "the role of --pulsar-token-file " + s.file("stranger.token") + " needs this permission", "stranger.token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			secret, err := os.ReadFile(s.file(tt.file))
			w.must(err)
			w.turnedAway(strings.ReplaceAll(tt.name, " ", ""), s.flags(tt.flags...), tt.says, strings.TrimSpace(string(secret)))
		})
	}
	w.live(1, w.evaluator("allowed", s.flags(s.token("refloat", soon)...)...))
	// make secure: all of these, or the one that SECURE names.
	for _, part := range []struct {
		name string
		run  func()
	}{{"permissions", s.permitted}, {"secrets", s.secrets}, {"rotation", s.rotation}} {
		if only := os.Getenv("SECURE"); only == "1" || only == part.name {
			part.run()
		}
	}
}

// allow grants a role everything that our programs do in a namespace.
func (w *world) allow(role string) {
	w.admin(http.MethodPost, "namespaces/"+w.Namespace+"/permissions/"+role, `["produce","consume"]`)
}

// secrets tries each way to authenticate with wrong and expired secrets.
func (s *secured) secrets() {
	w := newWorldOn(s.t, s.Broker, 1)
	w.allow("refloat")
	soon, ago := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	stranger, forger := certtest.New(s.t, "stranger"), newIssuer(s.t)
	s.issuer.set("refloat", "s3cret-of-refloat")
	forged := forger.sign("refloat", soon)
	closed := newIssuer(s.t)
	closed.Close()
	local := strings.Replace(s.url, "127.0.0.1", "localhost", 1) // the certificate is for the former
	for _, tt := range []struct {
		name         string
		flags        func() []string
		says, secret string
	}{
		{"forged", func() []string { return s.flags("--pulsar-token-file", s.write("forged", forged)) }, "denied by the broker", forged},
		{"emptied", func() []string { return s.flags("--pulsar-token-file", s.write("empty", "")) }, "--pulsar-token-file " + s.file("empty") + ": the file is empty", ""},
		{"absent", func() []string { return s.flags("--pulsar-token-file", s.file("absent")) }, "--pulsar-token-file: open " + s.file("absent"), ""},
		{"foreignbroker", func() []string {
			return append(s.flags(s.token("refloat", soon)...), "--pulsar-tls-ca", certtest.File(s.t, s.file("stranger.crt"), stranger))
		}, "the broker's certificate is not trusted", ""},
		{"otherhost", func() []string { return append(s.flags(s.token("refloat", soon)...), "--pulsar", local) }, "and the host of --pulsar", ""},
		{"foreigncert", func() []string { return s.flags(s.mutual("refloat", stranger, soon)...) }, "check --pulsar-tls-cert " + s.file("refloat.crt"), ""},
		{"expiredcert", func() []string { return s.flags(s.mutual("refloat", s.ca, ago)...) }, "check --pulsar-tls-cert " + s.file("refloat.crt"), ""},
		{"wrongsecret", func() []string { return s.flags(s.oauth2("refloat", "s3cret-of-old")...) }, "with --pulsar-oauth2-key-file " + s.file("refloat.json"), "s3cret-of-old"},
		{"noissuer", func() []string {
			return append(s.flags(s.oauth2("refloat", "s3cret-of-refloat")...), "--pulsar-oauth2-issuer", closed.URL)
		}, "get a token from --pulsar-oauth2-issuer " + closed.URL, "s3cret-of-refloat"},
	} {
		s.t.Run(tt.name, func(*testing.T) { w.turnedAway(tt.name, tt.flags(), tt.says, tt.secret) })
	}
	// A command says the same, of the admin API too.
	for _, flags := range [][]string{s.token("refloat", ago), s.mutual("refloat", stranger, soon), s.oauth2("refloat", "s3cret-of-old")} {
		out, err := w.alone(append([]string{"doctor", "--pulsar-namespace", w.namespace()}, s.flags(flags...)...)...)
		if err == nil || !strings.Contains(out, "--pulsar-") || strings.Contains(out, "s3cret") {
			s.t.Errorf("doctor with %v: %v\n%s", flags, err, out)
		}
		s.t.Logf("doctor: %s", lastLine(out))
	}
	// What must work does.
	for name, flags := range map[string][]string{
		"certificate": s.mutual("refloat", s.ca, soon), "client": s.oauth2("refloat", "s3cret-of-refloat"),
		"anyhost": append(s.token("refloat", soon), "--pulsar", local, "--pulsar-tls-no-hostname-check"),
	} {
		p := w.evaluator(name, s.flags(flags...)...)
		w.live(1, p)
		p.Kill()
	}
}

// rotation lets secrets expire, and replaces every file, under programs that run: they go on, without a restart.
func (s *secured) rotation() {
	const life = 15 * time.Second
	begun := time.Now()
	s.issuer.mu.Lock()
	s.issuer.life = life
	s.issuer.mu.Unlock()
	s.issuer.set("client", "s3cret-one")
	ways := map[string][]string{
		"bearer":      s.token("bearer", begun.Add(life)),
		"certificate": s.mutual("certificate", s.ca, begun.Add(life)),
		"client":      s.oauth2("client", "s3cret-one"),
	}
	worlds := map[string]*world{}
	evaluators := map[string]*Process{}
	for role, flags := range ways {
		w := newWorldOn(s.t, s.Broker, 3)
		w.allow(role)
		worlds[role], evaluators[role] = w, w.evaluator("a", s.flags(flags...)...)
		w.started(w.Ingester("i", s.flags(flags...)...))
		w.live(3, evaluators[role])
	}
	each := func(do func(w *world, evaluator *Process)) {
		for role, w := range worlds {
			do(w, evaluators[role])
		}
	}
	s.token("bearer", begun.Add(5*life))
	s.issuer.set("client", "s3cret-two")
	s.oauth2("client", "s3cret-two")
	worlds["client"].until("the first tokens have expired", func() bool { return time.Since(begun) > 2*life })
	each(func(w *world, _ *Process) { w.feed("plain") })
	each(func(w *world, evaluator *Process) {
		w.must(w.Settled(w.ctx))
		for _, said := range []string{"denied", "partition lost", "partition refused", "not working"} {
			if strings.Contains(evaluator.Text(), said) {
				s.t.Errorf("%q:\n%s", said, evaluator.Tail())
			}
		}
	})
	s.issuer.mu.Lock()
	s.t.Logf("the issuer has issued %d tokens", s.issuer.issued)
	s.issuer.mu.Unlock()

	// A token that nobody renews: an error, and again no restart once somebody does.
	w, evaluator := worlds["bearer"], evaluators["bearer"]
	w.until("it says that the token has expired", func() bool {
		return strings.Contains(evaluator.Text(), "denied by the broker") && strings.Contains(evaluator.Text(), "check --pulsar-token-file")
	})
	s.token("bearer", time.Now().Add(time.Hour))
	w.live(3, evaluator)

	// Another authority, and with it all certificates. The broker restarts, so that everybody shows theirs.
	other := certtest.New(s.t, "other authority")
	certtest.File(s.t, s.roots, other)
	s.mutual("certificate", other, time.Now().Add(time.Hour))
	s.serve(other)
	if err := s.Restart(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	each(func(w *world, _ *Process) { w.feed("retried") })
	each(func(w *world, _ *Process) { w.settledAndRight() })
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
