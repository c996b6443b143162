package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// smallDisk is a file system of its own in memory.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	disk := t.TempDir()
	err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size="+size+",mode=755")
	if errors.Is(err, os.ErrPermission) {
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
	return disk
}

// fillDisk writes a file until no block is left but for some.
func fillDisk(t *testing.T, path string, leave int64) {
	t.Helper()
	var free syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(path), &free); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := int64(free.Bavail)*free.Bsize - leave; n > 0 {
		if err := syscall.Fallocate(int(f.Fd()), 0, 0, n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk: whatever finds the disk full first, the log, the state or the job
// database, `up` ends with 3 and says what to do, or waits; with room again it ends
// as if the disk had never been full.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{"all": "", "state": "state", "logs": "logs", "job database": "jobs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, leave := range []int64{0, 64 << 10, 200 << 10, 500 << 10} {
				if part != "jobs" || leave < 100<<10 { // it needs no more
					fullDisk(t, part, leave)
				}
			}
		})
	}
}

func fullDisk(t *testing.T, part string, leave int64) {
	t.Helper()
	// Three partitions' states take 53 MB from the start, for Pebble allocates its write-ahead logs beforehand; SQLite's
	// may grow to 16 MB.
	disk := smallDisk(t, "128m")
	data, more := t.TempDir(), []string(nil)
	switch part {
	case "":
		data = filepath.Join(disk, "data")
	case "jobs":
		more = []string{"--job-db", "sqlite://" + filepath.Join(disk, "jobs.sqlite")}
	default:
		if err := os.Symlink(disk, filepath.Join(data, part)); err != nil {
			t.Fatal(err)
		}
	}
	ballast := filepath.Join(disk, "ballast")
	up := append([]string{"up", "--data", data, "--policies", "../../examples/policies", "--exit-when-drained"}, more...)
	ctl(t, append(up, "--partitions", "3", "--feed", damageFeed)...).exits(t, 0)
	fillDisk(t, ballast, leave)
	p := start(t, append(up, "--feed", "../../testdata/recordings/plain.jsonl.gz")...)
	if part == "jobs" {
		p.err.await(t, "job database is unavailable")
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		p.exits(t, 0)
		ctl(t, append([]string{"jobdb", "verify", "--data", data}, more...)...).exits(t, 0)
		return
	}
	<-p.done
	switch code := p.cmd.ProcessState.ExitCode(); {
	case code == 0 && leave > 0: // that was enough
	case code != exitEnvironment || !strings.Contains(p.err.text(), "the disk is full: free space and restart"):
		t.Errorf("%s, %d bytes free: exit code %d\n%s", part, leave, code, tailOf(p.err.text()))
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	ctl(t, append(up, "--feed", "../../testdata/recordings/plain.jsonl.gz")...).exits(t, 0)
	rowsFollow(t, data)
	rowsComplete(t, data)
	ctl(t, "replay", "--verify", "--data", data).exits(t, 0)
}
