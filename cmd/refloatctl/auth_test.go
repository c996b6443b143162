package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// authority makes a certificate authority, and a certificate of this machine signed
// by it: three PEM files.
func authority(t *testing.T, dir string) (ca, cert, key string) {
	t.Helper()
	file := func(name, kind string, raw []byte, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return writeFile(t, dir, name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})))
	}
	newKey := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	caKey, hostKey, until := newKey(), newKey(), time.Now().Add(time.Hour)
	root := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: until, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	host := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	raw, err := x509.CreateCertificate(rand.Reader, root, root, caKey.Public(), caKey)
	ca = file("ca.pem", "CERTIFICATE", raw, err)
	raw, err = x509.CreateCertificate(rand.Reader, host, root, hostKey.Public(), caKey)
	cert = file("cert.pem", "CERTIFICATE", raw, err)
	raw, err = x509.MarshalPKCS8PrivateKey(hostKey)
	return ca, cert, file("key.pem", "PRIVATE KEY", raw, err)
}

// Commands over TLS to a server where people sign in: with a password, with a token,
// with none and with the wrong one; and no secret is printed or logged.
func TestSigningIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, cert, key := authority(t, dir)
	other, _, _ := authority(t, filepath.Join(dir, "other"))
	const password, token = "the-password-of-ann", "the-token-of-ci"
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(token))
	auth := writeFile(t, dir, "auth.yaml", fmt.Sprintf(`
basic: {ann: {passwordHash: %q, groups: [ops]}}
tokens: {ci: {sha256: %q, groups: [pipeline]}}
permissionGroupMapping:
  create_retry_policy: [ops, pipeline]
  bind_retry_policies: [ops, pipeline]
  set_retry_settings: [ops, pipeline]
  kill_retries: [ops]
  pause_retries: [ops]
  shadow_retries: [ops, pipeline]
`, hash, hex.EncodeToString(sum[:])))
	data := filepath.Join(dir, "data")
	p, _ := served(t, data, "--api-auth", auth, "--api-tls-cert", cert, "--api-tls-key", key)
	tokenFile := writeFile(t, dir, "token", token+"\n")

	var logged strings.Builder
	at := func(env []string, args ...string) result {
		t.Helper()
		r := ctlIn(t, env, append(slices.Clone(args), "--data", data)...)
		logged.WriteString(r.out + r.err)
		return r
	}
	trusted := []string{"--server-ca", ca}
	with := func(args ...string) []string { return append(args, trusted...) }
	ann := []string{"REFLOAT_PASSWORD=" + password, "REFLOAT_USER=ann"}

	at(ann, with("apply", "-f", testPolicies, "--reason", "first")...).exits(t, exitFine).prints(t, "RetryPolicy infra created")
	at(nil, with("get", "policies", "--token-file", tokenFile)...).exits(t, exitFine).prints(t, "infra")
	at([]string{"REFLOAT_TOKEN=" + token, "REFLOAT_SERVER_CA=" + ca}, "history").exits(t, exitFine).prints(t, "ann", "first")
	at(nil, with("kill", "retries", "--all", "--reason", "x", "--token-file", tokenFile)...).exits(t, exitEnvironment).prints(t, "ci lacks the permission for this request: it needs one of [kill_retries pause_retries avoid_nodes]")
	at([]string{"REFLOAT_PASSWORD=" + password}, with("kill", "retries", "--all", "--reason", "x", "--user", "ann")...).exits(t, exitFine).prints(t, "by ann (x)")

	// Rejected credentials.
	at(nil, with("get", "policies")...).exits(t, exitEnvironment).prints(t, "authentication required")
	at([]string{"REFLOAT_PASSWORD=wrong-" + password}, with("get", "policies", "--user", "ann")...).exits(t, exitEnvironment).prints(t, "unknown user, or wrong credentials")
	at([]string{"REFLOAT_TOKEN=wrong-" + token}, with("apply", "-f", testPolicies)...).exits(t, exitEnvironment).prints(t, "unknown user, or wrong credentials")
	at(ann, "get", "policies").exits(t, exitEnvironment)                                                // no TLS
	at(ann, "get", "policies", "--server-ca", other).exits(t, exitEnvironment).prints(t, "certificate") // another server's certificate
	at(ann, "get", "policies", "--server-ca", tokenFile).exits(t, exitUsage).prints(t, "the file contains no certificate")

	// Conflicting or invalid flags.
	at(ann, with("get", "policies", "--token-file", tokenFile)...).exits(t, exitUsage).prints(t, "both a token")
	at(nil, with("get", "policies", "--user", "ann")...).exits(t, exitUsage).prints(t, "give the password in REFLOAT_PASSWORD")
	at(nil, with("get", "policies", "--token-file", writeFile(t, dir, "empty", "\n"))...).exits(t, exitUsage).prints(t, "the file is empty")
	at(nil, with("get", "policies", "--token-file", writeFile(t, dir, "lines", token+"\n"+token))...).exits(t, exitUsage).prints(t, "give a single token")
	at(nil, with("get", "policies", "--token-file", filepath.Join(dir, "none"))...).exits(t, exitUsage).prints(t, "--token-file")
	p.ends(t)

	log := p.err.text() + p.out.text()
	for _, secret := range []string{password, token, string(hash), hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString([]byte("ann:" + password))} {
		if strings.Contains(logged.String(), secret) || strings.Contains(log, secret) {
			t.Errorf("%q is printed or logged", secret)
		}
	}
	if !strings.Contains(log, "serving the page and the policy API") {
		t.Errorf("the log: %s", log)
	}
}

// TestOtherMachines checks that connections to other machines use TLS unless that is switched off, and that other
// machines are not served without authentication.
func TestOtherMachines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := func(args ...string) result {
		return ctl(t, append([]string{"up", "--data", filepath.Join(dir, "data"), "--exit-when-drained"}, args...)...)
	}
	up("--api", "0.0.0.0:0").exits(t, exitUsage).prints(t, "set permissions with --api-auth FILE")
	auth := writeFile(t, dir, "auth.yaml", "tokens: {ci: {sha256: "+strings.Repeat("ab", 32)+"}}\n")
	up("--api", "0.0.0.0:0", "--api-auth", auth).exits(t, exitUsage).prints(t, "unencrypted")
	up("--api", "127.0.0.1:0", "--api-auth", writeFile(t, dir, "typo.yaml", "tokns: {}\n")).exits(t, exitUsage).prints(t, "line 1: tokns: unknown field: did you mean tokens?")

	// Plain gRPC is spoken with a server that is not loopback's by its name only where
	// it is asked for: "0.0.0.0" is this machine all the same.
	p, at := served(t, filepath.Join(dir, "plain"))
	at("apply", "-f", testPolicies).exits(t, exitFine)
	_, port, _ := strings.Cut(regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(p.err.text())[1], ":")
	ctl(t, "get", "policies", "--server", "0.0.0.0:"+port, "--timeout", "5s").exits(t, exitEnvironment)
	ctl(t, "get", "policies", "--server", "0.0.0.0:"+port, "--server-plaintext").exits(t, exitFine).prints(t, "infra")
	p.ends(t)
}
