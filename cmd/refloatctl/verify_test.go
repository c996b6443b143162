package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit/report"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/checkpoint/storage"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/projection"
)

// TestVerifyIncomplete: messages that the decision log does not answer were not
// verified, which is a finding unless the evaluator may still be at work.
func TestVerifyIncomplete(t *testing.T) {
	t.Parallel()
	data := drainedCopy(t)
	decisions := app.Dir(data).Decisions()
	if err := os.RemoveAll(decisions); err != nil {
		t.Fatal(err)
	}
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: decisions, Partitions: 3, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	ctl(t, "verify", "--data", data).exits(t, exitFinding).prints(t, "not verified: the decision log does not answer 2298 messages")
	ctl(t, "verify", "--data", data, "--allow-waiting").exits(t, exitFine)
}

// TestVerifyReport: a report is signed, handed on, and later compared with the logs, which
// somebody wrote anew with all checksums.
func TestVerifyReport(t *testing.T) {
	t.Parallel()
	data, dir := drainedCopy(t), t.TempDir()
	private, public := newKeys(t, dir)
	r := jsonLine(t, inProcess(t, "verify", "--data", data, "-o", "json").exits(t, exitFine).out)
	if r["verified"] != true || len(r["partitions"].([]any)) != partitions || len(r["policies"].([]any)) != 1 {
		t.Errorf("%v", r)
	}
	logs := []string{"--log", app.Dir(data).Events(), "--decisions", app.Dir(data).Decisions()}
	inProcess(t, append([]string{"verify"}, logs...)...).exits(t, exitFine).prints(t, "byte for byte")
	text := inProcess(t, "verify", "--data", data, "--sign", private).exits(t, exitFine).out
	file := writeFile(t, dir, "report.json", text)
	by := func(key string, more ...string) result {
		return inProcess(t, append([]string{"verify", "--check-signature", file, "--public-key", key}, more...)...)
	}
	check := func(more ...string) result { return by(public, more...) }
	signed := check().exits(t, exitFine).prints(t, "signed with the key SHA256:")
	fingerprint := regexp.MustCompile(`SHA256:\S+`).FindString(signed.out)
	by(fingerprint).exits(t, exitFine).prints(t, fingerprint)
	check("--data", data).exits(t, exitFine).prints(t, "the logs still have all")
	_, stranger := newKeys(t, t.TempDir())
	by(stranger).exits(t, exitFinding).prints(t, "signed with another key: "+fingerprint+", not SHA256:")
	by("SHA256:another").exits(t, exitFinding).prints(t, "signed with another key: "+fingerprint+", not SHA256:another")

	for _, more := range [][]string{nil, {"--data", data}} {
		unknown := inProcess(t, append([]string{"verify", "--check-signature", file}, more...)...).exits(t, exitFinding).prints(t, "signed by an unknown key: "+fingerprint, "--public-key")
		if strings.Contains(unknown.out, "the logs") {
			t.Errorf("logs are compared with a report of anybody: %s", unknown.out)
		}
	}

	// A decision is changed, and all links are as they should be.
	forged(t, data, func(_ int, e *chain.Envelope) bool {
		for i, raw := range e.Records {
			r, err := chain.DecodeRecord(raw)
			if d, ok := r.(*chain.Decision); ok && err == nil && d.Number == 3 {
				d.Rule += "x"
				e.Records[i] = chain.AppendRecord(nil, d)
			}
		}
		return true
	})
	check("--data", data).exits(t, exitFinding).prints(t, "the logs have changed since: partition 0: ")
	writeFile(t, dir, "report.json", strings.Replace(text, `"messages":`, `"messages":1`, 1))
	check().exits(t, exitFinding).prints(t, "not signed: the signature does not fit")
}

// newKeys writes a private and a public key.
func newKeys(t *testing.T, dir string) (private, public string) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return writeFile(t, dir, name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	a, err := x509.MarshalPKCS8PrivateKey(priv)
	private = write("key.pem", "PRIVATE KEY", a, err)
	b, err := x509.MarshalPKIXPublicKey(pub)
	return private, write("key.pub", "PUBLIC KEY", b, err)
}

// TestVerifyUsage: mistakes in the command line.
func TestVerifyUsage(t *testing.T) {
	t.Parallel()
	key, _ := newKeys(t, t.TempDir())
	for _, c := range []struct{ args, want string }{
		{"verify", "--data DIR is required"},
		{"verify --log x", "--log and --decisions belong together"},
		{"verify --log x --decisions y --data z", "give only one"},
		{"verify --sign a --check-signature b", "give only one"},
		{"verify --data x --public-key y", "--public-key needs --check-signature"},
		{"verify --data x -o yaml", `-o "yaml"`},
		{"verify --data x --parallel 0", "--parallel 0"},
		{"verify --check-signature x --public-key z --checkpoints y", "omit --checkpoints"},
		{"verify --data x --sign " + filepath.Join(examplesDir, "batch.yaml"), "want a private key in PEM"},
	} {
		if r := ctl(t, strings.Fields(c.args)...); r.code != exitUsage && !strings.Contains(r.err, "no such file") || !strings.Contains(r.err, c.want) && r.code == exitUsage {
			t.Errorf("%s: %d %s", c.args, r.code, r.err)
		}
	}
	ctl(t, "verify", "--data", t.TempDir()).exits(t, exitEnvironment)
	ctl(t, "verify", "--data", t.TempDir(), "--sign", key+"x").exits(t, exitEnvironment)
	ctl(t, "verify", "--check-signature", key+"x", "--public-key", "SHA256:x").exits(t, exitEnvironment)
}

// TestVerifyFromCheckpoint: what comes after the newest checkpoints, from the states in
// them.
func TestVerifyFromCheckpoint(t *testing.T) {
	t.Parallel()
	data, vault := filepath.Join(t.TempDir(), "data"), "file://"+t.TempDir()
	up := func(recording string) {
		t.Helper()
		inProcess(t, "up", "--data", data, "--policies", examplesDir, "--feed", recordingFile(recording), "--exit-when-drained", "--quiet").exits(t, exitFine)
	}
	up("plain")
	takeCheckpoints(t, data, vault)
	first := jsonLine(t, inProcess(t, "verify", "--data", data, "-o", "json").exits(t, exitFine).out).number("decisions")
	inProcess(t, "verify", "--data", data, "--checkpoints", vault).exits(t, exitFine).
		prints(t, fmt.Sprintf("nothing was decided again; %d decisions before the checkpoints were not read", first), "0 messages in 0 envelopes, 0 decisions, ")
	up("retried")
	inProcess(t, "verify", "--data", data, "--checkpoints", vault).exits(t, exitFine).
		prints(t, "verified: deciding 2298 messages again gives the same ", fmt.Sprintf("; %d decisions before the checkpoints were not read", first))
	r := jsonLine(t, inProcess(t, "verify", "--data", data, "--checkpoints", vault, "-o", "json").exits(t, exitFine).out)
	whole := jsonLine(t, inProcess(t, "verify", "--data", data, "-o", "json").exits(t, exitFine).out)
	if got, want := r.number("decisions")+r.number("decisionsGiven"), whole.number("decisions"); got != want || r.number("decisionsGiven") != first {
		t.Errorf("%d decisions and %d given, want %d in all and %d given", r.number("decisions"), r.number("decisionsGiven"), want, first)
	}
	begun := 0
	for i, p := range r["partitions"].([]any) {
		p, all := object(p.(map[string]any)), object(whole["partitions"].([]any)[i].(map[string]any))
		if object(p["begin"].(map[string]any))["envelope"] != json.Number("0") {
			begun++
		}
		if p.text("runningHash") != all.text("runningHash") {
			t.Errorf("partition %d: running hash %s, from the beginning %s", i, p.text("runningHash"), all.text("runningHash"))
		}
	}
	if begun == 0 {
		t.Errorf("no partition began at a checkpoint: %v", r)
	}
}

// TestVerifiedText: what was decided again, and what was not.
func TestVerifiedText(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]report.Report{
		"verified: deciding 0 messages again gives the same 0 decisions, byte for byte":                                                                                                                           {},
		"verified: deciding 9 messages again gives the same 1 decision, byte for byte":                                                                                                                            {Messages: 9, Decisions: 1},
		"nothing was decided again; of 1874 decisions before a loss of the state, only the hashes were checked":                                                                                                   {Linked: 1874},
		"verified: deciding 1 message again gives the same 0 decisions, byte for byte; of 2 decisions before a loss of the state, only the hashes were checked; 3 decisions before the checkpoints were not read": {Messages: 1, Linked: 2, Given: 3},
	} {
		if got := text.Verified(&r); got != want {
			t.Errorf("%+v: %s, want %s", r, got, want)
		}
	}
}

// takeCheckpoints saves the states of a data directory as an evaluator does.
func takeCheckpoints(t *testing.T, data, url string) {
	t.Helper()
	store, err := storage.Open(t.Context(), url, storage.Environment{Getenv: os.Getenv, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	vault, err := checkpoint.New(checkpoint.Config{Storage: store, Scratch: t.TempDir(), Format: 1, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	for p := range partitions {
		state, err := projection.OpenStore(projection.StoreConfig{FS: vfs.Default, Dir: app.Dir(data).State(p), Logger: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		at, err := evaluator.PositionsIn(state)
		if err == nil {
			_, err = vault.Save(t.Context(), p, state.Checkpoint, checkpoint.At{
				Seq: at.Chain.Seq, Link: at.Chain.Link.String(), Events: at.Chain.InTo.String(), Decisions: at.Decisions.String(),
			})
		}
		if err := errors.Join(err, state.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
