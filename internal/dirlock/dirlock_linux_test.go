package dirlock

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestHolder: the holder of a lock is named.
func TestHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if held := Holder(dir, filepath.Join(dir, "LOCK")); held != "" {
		t.Errorf("Holder of a free directory = %q", held)
	}
	lock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if held := Holder(dir, filepath.Join(dir, "LOCK")); !strings.Contains(held, "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("Holder = %q, want this process", held)
	}
}

// TestHolding: two file systems have the same inodes, so the device counts too.
func TestHolding(t *testing.T) {
	t.Parallel()
	const locks = "1: FLOCK  ADVISORY  WRITE 2816 fe:00:811039 0 EOF\n2: POSIX  ADVISORY  WRITE 2846 103:02:794662 0 EOF\n"
	for _, c := range []struct {
		name string
		dev  uint64
		kind string
		node uint64
		want int
	}{
		{"it", 0xfe00, "FLOCK", 811039, 2816},
		{"a large major number", 0x103<<8 | 2, "POSIX", 794662, 2846},
		{"another device", 0xfe01, "FLOCK", 811039, 0},
		{"another kind", 0xfe00, "POSIX", 811039, 0},
		{"another file", 0xfe00, "FLOCK", 11039, 0},
	} {
		if got := holding(locks, map[string]string{lockedFile(c.dev, c.node): c.kind}); got != c.want {
			t.Errorf("%s: holding = %d, want %d", c.name, got, c.want)
		}
	}
}
