package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var when = time.Unix(1_700_000_000, 0).UTC()

// built is a directory with what stands for programs, and a root with what is said about them.
func built(t *testing.T) (dir, root string) {
	t.Helper()
	dir, root = t.TempDir(), t.TempDir()
	for _, file := range append(in(dir, append([]string{"ready"}, programs...)), in(root, []string{"LICENSE", "CHANGELOG.md"})...) {
		if err := os.WriteFile(file, []byte(filepath.Base(file)+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir, root
}

// TestDebian: equal files give an equal package, which dpkg, where it is, can read.
func TestDebian(t *testing.T) {
	t.Parallel()
	var packages [2][]byte
	var file string
	for i := range packages {
		dir, root := built(t)
		file = filepath.Join(t.TempDir(), "refloat.deb")
		if err := debian(file, root, dir, "v0.1.0", "arm64", when); err != nil {
			t.Fatal(err)
		}
		var err error
		if packages[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packages[0], packages[1]) {
		t.Error("the same files give two packages")
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("no dpkg-deb here")
	}
	fields, err := exec.Command("dpkg-deb", "-f", file, "Package", "Version", "Architecture").Output()
	if want := "Package: refloat\nVersion: 0.1.0\nArchitecture: arm64\n"; err != nil || string(fields) != want {
		t.Errorf("fields %q, %v; want %q", fields, err, want)
	}
	list, err := exec.Command("dpkg-deb", "-c", file).Output()
	for _, want := range []string{"./usr/bin/evaluator\n", "./usr/bin/ingester\n", "./usr/bin/refloatctl\n", "./usr/share/doc/refloat/copyright\n"} {
		if err != nil || !strings.Contains(string(list), want) {
			t.Errorf("%v: no %q in\n%s", err, want, list)
		}
	}
}

func TestDebianVersion(t *testing.T) {
	t.Parallel()
	ascending := []string{"ab7c7e2-dirty", "v0.1.0-rc.1", "v0.1.0", "v0.1.0-3-gabcdef", "v0.1.1"}
	for i, version := range ascending[1:] {
		if _, err := exec.LookPath("dpkg"); err != nil {
			t.Skip("no dpkg here")
		}
		before, after := debianVersion(ascending[i]), debianVersion(version)
		if err := exec.Command("dpkg", "--compare-versions", before, "lt", after).Run(); err != nil {
			t.Errorf("%s is not before %s: %v", before, after, err)
		}
	}
}

// TestImage: equal programs give an equal layout, which is valid and has both platforms.
func TestImage(t *testing.T) {
	t.Parallel()
	var archives [2][]byte
	for i := range archives {
		made := newImages("v0.1.0", when)
		for _, arch := range []string{"amd64", "arm64"} {
			dir, _ := built(t)
			if err := made.add(dir, arch); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := made.write(file); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the same programs give two images")
	}
	dir := t.TempDir()
	for archive := tar.NewReader(bytes.NewReader(archives[0])); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		content, err2 := io.ReadAll(archive)
		file := filepath.Join(dir, h.Name)
		if err := errors.Join(err, err2, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v: want one image", manifest, err)
	}
	multi, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	platforms, err := multi.IndexManifest()
	if err != nil || len(platforms.Manifests) != 2 {
		t.Fatalf("%+v, %v: want two platforms", platforms, err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		image, err := multi.Image(platforms.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil || config.Architecture != arch || config.Config.User != "65532:65532" || !config.Created.Equal(when) {
			t.Errorf("%s: %+v, %v", arch, config, err)
		}
	}
}

// TestSign: a signature is that of the key, of the whole content, and the same each time.
func TestSign(t *testing.T) {
	public, secret, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	locked, err := minisign.EncryptKey("sesame", secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SIGN_PASSWORD", "sesame")
	dist, key, sums := t.TempDir(), filepath.Join(t.TempDir(), "key"), []byte("00  refloat.deb\n")
	if err := errors.Join(os.WriteFile(key, locked, 0o600), os.WriteFile(filepath.Join(dist, "SHA256SUMS"), sums, 0o600)); err != nil {
		t.Fatal(err)
	}
	var signatures [2][]byte
	for i := range signatures {
		if err := sign(dist, key); err != nil {
			t.Fatal(err)
		}
		if signatures[i], err = os.ReadFile(filepath.Join(dist, "SHA256SUMS.minisig")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(signatures[0], signatures[1]) {
		t.Error("the same content has two signatures")
	}
	if !minisign.Verify(public, sums, signatures[0]) {
		t.Error("the signature is not that of the key")
	}
	if minisign.Verify(public, append(sums, '\n'), signatures[0]) {
		t.Error("the signature is that of other content too")
	}
	t.Setenv("SIGN_PASSWORD", "wrong")
	if err := sign(dist, key); err == nil {
		t.Error("a wrong password opens the key")
	}
}
