package app_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/refloat/refloat/internal/test/pgtest"
)

// TestFullDisk: a server whose disk is full is waited for until there is room.
// The disk is one in memory, which only root can make.
func TestFullDisk(t *testing.T) { //nolint:paralleltest // sets TMPDIR
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=192m,mode=755")
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EPERM) {
		t.Skipf("SKIP: only root can make a small disk: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", disk, err)
		}
	})
	for up := disk; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil { // the server has a user of its own
			t.Fatal(err)
		}
	}
	temp := os.TempDir()
	t.Setenv("TMPDIR", disk)
	server := pgtest.Start(t, false)
	t.Setenv("TMPDIR", temp)
	at := server.Database(t)
	ballast := filepath.Join(disk, "ballast")
	l := begin(t, at, func() { fill(t, ballast) })
	l.await("state=disk_full")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	l.drained()
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	f, err := os.Create(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	for size := 1 << 20; size >= 1<<10; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}
