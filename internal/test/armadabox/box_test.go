package armadabox_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/refloat/refloat/internal/test/armadabox"
)

// packed is a directory with a box, whose program prints something, and its sum.
func packed(t *testing.T) (dir, sum string) {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	box := z.EncodeAll([]byte("#!/bin/sh\necho called as $1\n"), nil)
	digest := sha256.Sum256(box)
	dir, sum = t.TempDir(), hex.EncodeToString(digest[:])
	write(t, filepath.Join(dir, "armadabox.zst"), box)
	write(t, filepath.Join(dir, "SHA256"), []byte(sum+"  armadabox.zst\n"))
	return dir, sum
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFind: the box is unpacked once, under its sum, and only if that is right.
func TestFind(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("SKIP: no redis-server in PATH")
	}
	dir, sum := packed(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("ARMADA_BOX", dir)
	for range 2 {
		box, err := armadabox.Find()
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(cache, "refloat", "armadabox-"+sum); box.Program != want || box.Dir != dir {
			t.Fatalf("found %+v, want the program %s", box, want)
		}
		out, err := exec.CommandContext(t.Context(), box.Program, "server").CombinedOutput()
		if err != nil || string(out) != "called as server\n" {
			t.Fatalf("the program prints %q, %v", out, err)
		}
	}
	write(t, filepath.Join(dir, "SHA256"), []byte("0000  armadabox.zst\n"))
	if _, err := armadabox.Find(); err == nil || errors.Is(err, armadabox.ErrMissing) || !strings.Contains(err.Error(), sum) {
		t.Errorf("with another sum: %v, want an error that names %s", err, sum)
	}
}

// TestMissing: where no box is, the error says what to do.
func TestMissing(t *testing.T) {
	for _, at := range []string{"none", t.TempDir()} {
		t.Setenv("ARMADA_BOX", at)
		if _, err := armadabox.Find(); !errors.Is(err, armadabox.ErrMissing) || !strings.Contains(err.Error(), "ARMADA_BOX") {
			t.Errorf("ARMADA_BOX=%s: %v, want ErrMissing", at, err)
		}
	}
}
