package apiflags

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/bcrypt"
)

const secret = "a-secret-that-nobody-may-see"

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pair is a certificate and its key, in PEM files.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return write(t, "cert.pem", block("CERTIFICATE", raw)), write(t, "key.pem", block("PRIVATE KEY", rawKey))
}

// Others than this machine are served only where it is known who they are, and
// nobody else hears it.
func TestWhoIsServed(t *testing.T) {
	t.Parallel()
	cert, key := pair(t)
	auth := write(t, "auth.yaml", "tokens: {ci: {sha256: "+strings.Repeat("ab", 32)+", groups: [ops]}}\npermissionGroupMapping: {kill_retries: [ops]}\n")
	for _, c := range []struct {
		flags string
		want  string // "": it is served
	}{
		{"", ""},
		{"--api=", ""},
		{"--api 127.0.0.1:0", ""},
		{"--api [::1]:0", ""},
		{"--api localhost:0", ""},
		{"--api 127.9.9.9:0", ""},
		{"--api 127.0.0.1:0 --api-auth " + auth, ""},
		{"--api :0", "set permissions with --api-auth FILE"},
		{"--api 0.0.0.0:0", "set permissions with --api-auth FILE"},
		{"--api [::]:0", "set permissions with --api-auth FILE"},
		{"--api 10.0.0.1:7468", "set permissions with --api-auth FILE"},
		{"--api example.org:7468", "set permissions with --api-auth FILE"},
		{"--api 0.0.0.0:0 --api-plaintext", "set permissions with --api-auth FILE"},
		{"--api 0.0.0.0:0 --api-tls-cert " + cert + " --api-tls-key " + key, "set permissions with --api-auth FILE"},
		{"--api 0.0.0.0:0 --api-auth " + auth, "unencrypted: give --api-tls-cert and --api-tls-key"},
		{"--api 0.0.0.0:0 --api-plaintext --api-auth " + auth, ""},
		{"--api 0.0.0.0:0 --api-auth " + auth + " --api-tls-cert " + cert + " --api-tls-key " + key, ""},
		{"--api-tls-cert " + cert, "give both or neither"},
		{"--api-tls-key " + key, "give both or neither"},
		{"--api-tls-cert " + key + " --api-tls-key " + cert, "--api-tls-cert " + key},
		{"--api-tls-cert missing.pem --api-tls-key " + key, "missing.pem"},
		{"--api-auth missing.yaml", "missing.yaml"},
		{"--api-trusted-proxies 10.0.0.0/8,192.0.2.1,::1", ""},
		{"--lookout-url https://lookout.example.com/?job={job} --logs-url https://logs.example.com/{pod}", ""},
		{"--lookout-url javascript:{job}", `--lookout-url: "javascript:{job}": want an http or https address`},
		{"--logs-url https://logs.example.com/{pdo}", "--logs-url: placeholder"},
		{"--api-trusted-proxies 10.0.0.0/8,proxy.example", `--api-trusted-proxies: "proxy.example": want an address`},
	} {
		cmd := &cobra.Command{}
		f := BindServe(cmd, Default)
		if err := cmd.ParseFlags(strings.Fields(c.flags)); err != nil {
			t.Fatal(err)
		}
		a, err := f.API(t.Context())
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.flags, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.flags, err, c.want)
		case err == nil && (a.Auth != nil) != strings.Contains(c.flags, "--api-auth"):
			t.Errorf("%s: auth %v", c.flags, a.Auth)
		case err == nil && (a.TLS != nil) != strings.Contains(c.flags, "--api-tls"):
			t.Errorf("%s: TLS %v", c.flags, a.TLS)
		}
	}
}

// What is wrong in a file is said by its line and place, without what stands there.
func TestAuthFile(t *testing.T) {
	t.Parallel()
	hash, err := bcrypt.GenerateFromPassword([]byte(secret), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	good := "basic:\n  ann: {passwordHash: \"" + string(hash) + "\", groups: [ops]}\n"
	for _, c := range []struct{ text, want string }{
		{good + "permissionGroupMapping:\n  kill_retries: [ops, oncall]\n", ""},
		{"# who may what\n" + good, ""},
		{"", "the file is empty"},
		{"# nothing", "the file is empty"},
		{secret, "want a mapping"},
		{"[" + secret + "]", "want a mapping"},
		{"basic:\n", "line 1: basic: want a mapping"},
		{good + "basc: {}\n", "line 3: basc: unknown field: did you mean basic?"},
		{good + "x: {}\n", "line 3: x: unknown field: use one of basic, tokens, oidc, permissionGroupMapping, queuePermissions"},
		{"basic:\n  ann:\n    passwordHsh: " + secret + "\n", "line 3: basic.ann.passwordHsh: unknown field: did you mean passwordHash?"},
		{"basic:\n  ann:\n    passwordhash: " + secret + "\n", "line 3: basic.ann.passwordhash: unknown field: did you mean passwordHash?"},
		{"basic: {ann: {passwordHash: [" + secret + "]}}", "line 1: basic.ann.passwordHash: want a string"},
		{"basic: {ann: {passwordHash: " + secret + "}}", "basic.ann.passwordHash: not a bcrypt hash"},
		{"basic: {ann: {passwordHash: 12345678}}", "basic.ann.passwordHash: want a string, in quotes"},
		{"basic: {ann: " + secret + "}", "basic.ann: want a mapping"},
		{"basic: {7: {groups: [ops]}}", "basic.7: put the name in quotes"},
		{"tokens: {ci: {sha256: " + secret + "}}", "tokens.ci.sha256: not a SHA-256"},
		{"tokens: {ci: {sha256: " + strings.Repeat("12", 32) + "}}", "tokens.ci.sha256: want a string, in quotes"},
		{"tokens: {ci: {groups: ops}}", "tokens.ci.groups: want a list"},
		{"tokens: {ci: {groups: [[" + secret + "]]}}", "tokens.ci.groups[0]: want a string"},
		{good + "basic: {}\n", "line 3"},
		{good + "permissionGroupMapping: {kill_retrie: [ops]}\n", "permissionGroupMapping.kill_retrie: unknown permission: did you mean kill_retries?"},
		{"oidc: {issuer: https://example.org}\n", "oidc: issuer and audience are required"},
		{good + "queuePermissions: {ml: {view: [ops], overide: [ops]}}\n", "line 3: queuePermissions.ml.overide: unknown field: did you mean override?"},
		{good + "queuePermissions: {ml: [ops]}\n", "line 3: queuePermissions.ml: want a mapping"},
		{good + "queuePermissions: {ml: {view: ops}}\n", "line 3: queuePermissions.ml.view: want a list"},
		{good + "queuePermissions: {\"*\": {view: [ops]}}\n", "queuePermissions.*: there are no patterns"},
		{good + "queuePermissions: {\"\": {view: [ops]}}\n", "a queue needs a name"},
		{good + "queuePermission: {ml: {view: [ops]}}\n", "line 3: queuePermission: unknown field: did you mean queuePermissions?"},
		{"oidc: {isuer: https://example.org}\n", "oidc.isuer: unknown field: did you mean issuer?"},
		{"tokens: {ci: {sha256: \"" + secret + "\n", "line"},
		{"tokens: *" + secret, "invalid YAML"},
	} {
		a, err := readAuth(write(t, "auth.yaml", c.text))
		switch {
		case c.want == "" && (err != nil || len(a.Basic) != 1 || len(a.Basic["ann"].Groups) != 1):
			t.Errorf("%s: %v", c.text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		case err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), string(hash))):
			t.Errorf("%v shows a secret", err)
		}
	}
}
