package armadabox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// ErrMissing says that this machine lacks a part; the message says which.
var ErrMissing = errors.New("no real Armada here")

// Box is the unpacked file and the configuration that came with it.
type Box struct {
	Dir     string // with config/ and overrides/
	Program string // called as server, scheduler, …, by its first argument
	Redis   string // the program redis-server
}

// Find finds the box, checks its sum and unpacks it unless the cache has it.
func Find() (Box, error) {
	dir, err := directory()
	if err != nil {
		return Box{}, err
	}
	packed, err := os.ReadFile(filepath.Join(dir, "armadabox.zst"))
	if err != nil {
		return Box{}, fmt.Errorf("%w: set ARMADA_BOX to the directory that holds armadabox.zst: %w", ErrMissing, err)
	}
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		return Box{}, fmt.Errorf("%w: install redis-server: %w", ErrMissing, err)
	}
	sum := sha256.Sum256(packed)
	if err := check(dir, hex.EncodeToString(sum[:])); err != nil {
		return Box{}, err
	}
	program, err := unpack(packed, hex.EncodeToString(sum[:]))
	return Box{Dir: dir, Program: program, Redis: redis}, err
}

// For finds the box for a test, or ends the test.
func For(t testing.TB) Box {
	t.Helper()
	box, err := Find()
	switch {
	case err == nil:
		return box
	case errors.Is(err, ErrMissing) && !required():
		t.Skip("SKIP: ", err)
	}
	t.Fatal(err)
	return Box{}
}

const none = "none"

// required says whether a missing part is a failure.
func required() bool {
	given := os.Getenv("ARMADA_BOX")
	return os.Getenv("REQUIRE_INTEGRATION") == "1" && given != "" && given != none
}

// Long says whether the long tier was asked for.
func Long() bool { return os.Getenv("ARMADA_LONG") == "1" }

func directory() (string, error) {
	switch given := os.Getenv("ARMADA_BOX"); given {
	case none:
		return "", fmt.Errorf("%w: ARMADA_BOX=%s", ErrMissing, none)
	case "":
	default:
		return filepath.Abs(given)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(root), "shared", "armada"), nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no go.mod in %s or above", dir)
		}
	}
}

// check compares the sum with the one in the file SHA256.
func check(dir, sum string) error {
	text, err := os.ReadFile(filepath.Join(dir, "SHA256"))
	if err != nil {
		return fmt.Errorf("read the sum of armadabox.zst: %w", err)
	}
	if want, _, _ := strings.Cut(string(text), " "); want != sum {
		return fmt.Errorf("%s has the SHA256 %s, and its file SHA256 says %s: copy it again", filepath.Join(dir, "armadabox.zst"), sum, want)
	}
	return nil
}

// unpack returns the program in the user's cache, under the sum of the packed file.
func unpack(packed []byte, sum string) (_ string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	at := filepath.Join(cache, "refloat", "armadabox-"+sum)
	if _, err := os.Stat(at); err == nil {
		return at, nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return "", err
	}
	z, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("unpack armadabox.zst: %w", err)
	}
	defer z.Close()
	part, err := os.CreateTemp(filepath.Dir(at), "armadabox-*")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(part, z)
	err = errors.Join(err, part.Chmod(0o755), part.Close())
	if err == nil {
		err = os.Rename(part.Name(), at)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("unpack armadabox.zst: %w", err), os.Remove(part.Name()))
	}
	return at, nil
}
