package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/refloat/refloat/internal/app"
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

// TestVerifyFullDisk: a verification that begins at checkpoints, and finds no room for their states, says so and leaves
// nothing behind.
func TestVerifyFullDisk(t *testing.T) {
	t.Parallel()
	data, vault := filepath.Join(t.TempDir(), "data"), "file://"+t.TempDir()
	ctl(t, "up", "--data", data, "--policies", "../../examples/policies", "--feed", damageFeed, "--exit-when-drained", "--quiet").exits(t, 0)
	takeCheckpoints(t, data, vault)
	inStore := 0 // full when the state was restored, and the store found no room
	for _, size := range []string{"16k", "20k", "24k", "28k", "32k"} {
		disk := smallDisk(t, size)
		r := ctlIn(t, []string{"TMPDIR=" + disk}, "verify", "--parallel", "1", "--data", data, "--checkpoints", vault)
		if r.code != exitFine {
			r.exits(t, exitEnvironment).prints(t, "no space left")
		}
		if strings.Contains(r.err, "the disk is full") {
			inStore++
		}
		if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", size, left, err)
		}
	}
	if inStore == 0 {
		t.Error("the store always had room")
	}
}

// TestUnwritableState: when no file can be made in the directory of a state, `up` ends with 3 and says why, once. Once
// that is corrected it goes on.
func TestUnwritableState(t *testing.T) {
	t.Parallel()
	begin := []string{binaryPath(t)}
	if os.Geteuid() == 0 { // root may write everywhere, unless it lacks the capability
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skipf("SKIP: root needs setpriv to lose a capability: %v", err)
		}
		begin = []string{"setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search", "--", begin[0]}
	}
	data := filepath.Join(t.TempDir(), "data")
	up := []string{"up", "--data", data, "--policies", "../../examples/policies", "--feed", damageFeed, "--partitions", "3", "--exit-when-drained"}
	ctl(t, up...).exits(t, 0)
	state := app.Dir(data).State(1)
	mode := func(mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(state, mode); err != nil {
			t.Fatal(err)
		}
	}
	mode(0o500)
	t.Cleanup(func() { mode(0o700) })
	refused := runIn(t, nil, begin, up...).exits(t, exitEnvironment).prints(t, "the state is not writable", state, "permission denied", "restart")
	if n := strings.Count(refused.err, "permission denied"); n != 1 {
		t.Errorf("%d lines say why:\n%s", n, tailOf(refused.err))
	}
	mode(0o700)
	runIn(t, nil, begin, up...).exits(t, 0)
	ctl(t, "verify", "--data", data).exits(t, 0)
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
	ctl(t, "verify", "--data", data).exits(t, 0)
}
