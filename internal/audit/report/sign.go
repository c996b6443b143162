package report

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
)

// Signed is a report with a signature.
type Signed struct {
	Report    Report    `json:"report"`
	Signature Signature `json:"signature"`
}

// Signature is a signature over the canonical JSON of a report.
type Signature struct {
	Algorithm string `json:"algorithm"` // Algorithm
	PublicKey []byte `json:"publicKey"` // PKIX, ASN.1 DER
	Value     []byte `json:"value"`
}

// Algorithm is the only algorithm of signatures.
const Algorithm = "ed25519"

// domain is signed before a report, so that a signature of one stands for nothing else.
const domain = Format + "\n"

// ErrSignature reports that a signature does not fit its report.
var ErrSignature = errors.New("the signature does not fit the report")

// Canonical returns the canonical JSON of a report: the keys of each object in order, no
// white space.
func (r *Report) Canonical() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return canonical(b)
}

func canonical(b []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // maps in order of their keys
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Sign signs a report.
func Sign(r *Report, key ed25519.PrivateKey) (*Signed, error) {
	b, err := r.Canonical()
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return &Signed{Report: *r, Signature: Signature{Algorithm, public, ed25519.Sign(key, append([]byte(domain), b...))}}, nil
}

// ReadSigned reads a signed report and checks its signature. It returns ErrSignature if
// that does not fit: the report was changed, or is not one.
func ReadSigned(b []byte) (*Signed, error) {
	s := &Signed{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		if !json.Valid(b) {
			err = errors.New("this is no signed report, as `refloatctl verify --sign` writes it")
		}
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	if d.More() {
		return nil, fmt.Errorf("%w: something follows it", ErrSignature)
	}
	read, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	// What was signed is what is here, and not what a lenient reader makes of it: no key
	// in another case, or twice.
	a, err1 := canonical(b)
	c, err2 := canonical(read)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	if !bytes.Equal(a, c) || repeatsKey(json.NewDecoder(bytes.NewReader(b))) {
		return nil, fmt.Errorf("%w: it is not written as this program writes reports", ErrSignature)
	}
	if s.Report.Report != Format || s.Signature.Algorithm != Algorithm {
		return nil, fmt.Errorf("%w: report %q, algorithm %q: this program knows %s and %s", ErrSignature, s.Report.Report, s.Signature.Algorithm, Format, Algorithm)
	}
	key, err := publicKey(s.Signature.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	text, err := s.Report.Canonical()
	if err != nil {
		return nil, err
	}
	if !ed25519.Verify(key, append([]byte(domain), text...), s.Signature.Value) {
		return nil, ErrSignature
	}
	return s, nil
}

// repeatsKey reports whether an object in the next value has a key twice.
func repeatsKey(d *json.Decoder) bool {
	open, err := d.Token()
	delim, ok := open.(json.Delim)
	if err != nil || !ok {
		return false
	}
	keys := map[json.Token]bool{}
	for d.More() {
		if delim == '{' {
			key, err := d.Token()
			if err != nil || keys[key] {
				return true
			}
			keys[key] = true
		}
		if repeatsKey(d) {
			return true
		}
	}
	_, err = d.Token()
	return err != nil
}

// Fingerprint names a public key (PKIX), as ssh-keygen names one.
func Fingerprint(public []byte) string {
	sum := sha256.Sum256(public)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// PrivateKey reads a private key: PEM, PKCS #8.
func PrivateKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("want a private key in PEM (PKCS #8), as `openssl genpkey -algorithm ed25519` writes it")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	if key, ok := key.(ed25519.PrivateKey); ok {
		return key, nil
	}
	return nil, fmt.Errorf("it is a key for another algorithm than %s", Algorithm)
}

// PublicKey reads a public key: PEM, PKIX. It returns its DER form.
func PublicKey(text []byte) ([]byte, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("want a public key in PEM, as `openssl pkey -pubout` writes it")
	}
	_, err := publicKey(block.Bytes)
	return block.Bytes, err
}

func publicKey(der []byte) (ed25519.PublicKey, error) {
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, err
	}
	if key, ok := key.(ed25519.PublicKey); ok {
		return key, nil
	}
	return nil, fmt.Errorf("it is a key for another algorithm than %s", Algorithm)
}
