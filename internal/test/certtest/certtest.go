// Package certtest issues certificates for tests: authorities that sign, and files that servers and clients read.
package certtest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority of a test.
type CA struct {
	cert *x509.Certificate
	key  *rsa.PrivateKey
	pem  []byte
}

// Pair is a certificate with its key, in files.
type Pair struct{ Cert, Key string }

// New creates an authority, which does not expire.
func New(t testing.TB, name string) *CA {
	t.Helper()
	template := certificate(name, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	ca := &CA{cert: template, key: newKey(t)}
	ca.pem = ca.sign(t, template, ca.key)
	return ca
}

// File writes the certificates of authorities to a file, whose name it returns.
func File(t testing.TB, name string, authorities ...*CA) string {
	t.Helper()
	var all []byte
	for _, ca := range authorities {
		all = append(all, ca.pem...)
	}
	Write(t, name, all)
	return name
}

// Issue issues a certificate for a name, which is also its host name unless hosts are given. It writes the files
// prefix.crt and prefix.key, the latter in PKCS #8.
func (ca *CA) Issue(t testing.TB, prefix, name string, until time.Time, hosts ...string) Pair {
	t.Helper()
	template := certificate(name, until)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if len(hosts) == 0 {
		hosts = []string{name}
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key := newKey(t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := Pair{Cert: prefix + ".crt", Key: prefix + ".key"}
	Write(t, p.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	Write(t, p.Cert, ca.sign(t, template, key))
	return p
}

// Write replaces a file at once, as a secret that is mounted is replaced.
func Write(t testing.TB, name string, content []byte) {
	t.Helper()
	temporary := filepath.Join(filepath.Dir(name), "."+filepath.Base(name))
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, name); err != nil {
		t.Fatal(err)
	}
}

func (ca *CA) sign(t testing.TB, template *x509.Certificate, key *rsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func certificate(name string, until time.Time) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic(err) // rand.Reader does not fail
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: until,
	}
}

func newKey(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
