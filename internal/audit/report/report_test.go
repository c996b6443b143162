package report_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/report"
)

func key(t *testing.T, seed byte) ed25519.PrivateKey {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	k, err := report.PrivateKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func example() *report.Report {
	return &report.Report{
		Report: report.Format, Verified: true, Created: "2026-11-22T20:00:00Z", Source: "data <x>", Messages: 1<<63 + 1,
		Partitions: []report.Partition{{
			Partition: 1, Verified: true, End: report.Point{Envelope: 9, Link: "ab"}, Records: map[string]uint64{"JobFailed": 2, "Parked": 1},
			Generations: []report.Activation{}, Semantics: []report.Activation{}, Ignored: map[string]uint64{},
		}},
		Policies: []report.PolicySet{{Generation: 1, Digest: "cd"}},
	}
}

func signed(t *testing.T, k ed25519.PrivateKey) []byte {
	t.Helper()
	s, err := report.Sign(example(), k)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSign: a signed report is read back, in whatever layout; with any byte changed, it is
// not.
func TestSign(t *testing.T) {
	t.Parallel()
	b := signed(t, key(t, 1))
	s, err := report.ReadSigned(b)
	if err != nil || s.Report.Partitions[0].End.Envelope != 9 || s.Report.Messages != 1<<63+1 {
		t.Fatalf("%+v, %v", s, err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, b, "", "  "); err != nil {
		t.Fatal(err)
	}
	if _, err := report.ReadSigned(pretty.Bytes()); err != nil {
		t.Errorf("indented: %v", err)
	}
	for i := range b {
		for _, bit := range []int{0, 5} {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			if got, err := report.ReadSigned(bad); err == nil && reflect.DeepEqual(got, s) {
				continue // a digit of an escape in another case
			} else if !errors.Is(err, report.ErrSignature) {
				t.Fatalf("bit %d of byte %d flipped: %v\n%s", bit, i, err, bad)
			}
		}
		if _, err := report.ReadSigned(b[:i]); !errors.Is(err, report.ErrSignature) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

// TestSignatureOfAnother: what lenient readers of JSON overlook.
func TestSignatureOfAnother(t *testing.T) {
	t.Parallel()
	b, other := string(signed(t, key(t, 1))), string(signed(t, key(t, 2)))
	_, signature, _ := strings.Cut(other, `"signature":`)
	report1, _, _ := strings.Cut(b, `"signature":`)
	if _, err := report.ReadSigned([]byte(report1 + `"signature":` + signature)); err != nil {
		t.Errorf("the same report, signed with another key: %v", err) // whose key it is, the caller compares
	}
	for name, bad := range map[string]string{
		"a key twice":           strings.Replace(b, `"verified":true`, `"verified":false,"verified":true`, 1),
		"a key in another case": strings.Replace(b, `"verified":true`, `"verified":true,"Verified":false`, 1),
		"an unknown key":        strings.Replace(b, `"verified":true`, `"verified":true,"note":"x"`, 1),
		"something behind it":   b + "{}",
		"another algorithm":     strings.Replace(b, `"algorithm":"ed25519"`, `"algorithm":"none"`, 1),
		"no signature":          strings.Replace(b, `"value":"`, `"value":"","x":"`, 1),
		"nothing":               "",
	} {
		if _, err := report.ReadSigned([]byte(bad)); !errors.Is(err, report.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		if _, err := report.PrivateKey([]byte(text)); err == nil {
			t.Errorf("%q is a private key", text)
		}
		if _, err := report.PublicKey([]byte(text)); err == nil {
			t.Errorf("%q is a public key", text)
		}
	}
	der, err := x509.MarshalPKIXPublicKey(key(t, 1).Public())
	if err != nil {
		t.Fatal(err)
	}
	got, err := report.PublicKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if err != nil || report.Fingerprint(got) != report.Fingerprint(der) || !strings.HasPrefix(report.Fingerprint(der), "SHA256:") {
		t.Errorf("%x, %v", got, err)
	}
}

// TestCompare names what logs no longer have.
func TestCompare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(p *report.Partition)
		want   string
	}{
		"the same":             {func(*report.Partition) {}, ""},
		"another chain":        {func(p *report.Partition) { p.End.Link = "xy" }, "partition 1: end: "},
		"other records":        {func(p *report.Partition) { p.RunningHash = "xy" }, "running hash"},
		"another count":        {func(p *report.Partition) { p.Records = map[string]uint64{"JobFailed": 3} }, "records"},
		"a difference":         {func(p *report.Partition) { p.Difference = &report.Difference{Kind: audit.RecordDropped} }, "record-dropped"},
		"another partition":    {func(p *report.Partition) { p.Partition = 2 }, "do not have it"},
		"waiting, and ignored": {func(p *report.Partition) { p.Waiting = 3; p.Ignored = map[string]uint64{"repeated": 1} }, ""},
		"from a checkpoint":    {func(p *report.Partition) { p.Begin.Envelope = 4; p.Messages = 3 }, ""},
	} {
		now := example()
		c.change(&now.Partitions[0])
		if got := strings.Join(report.Compare(example(), now), "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := example().Until(); len(got) != 1 || got[1] != 9 {
		t.Errorf("%v", got)
	}
}
