//go:build unix

package dirlock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Lock locks a directory until the closer is closed. It returns ErrHeld if another
// process, or this one, holds the lock.
func Lock(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, ErrHeld), f.Close())
	}
	return f, nil //nolint:nilerr // the file system locks no directories
}

// Holder names the process that holds the lock of a directory, or of a lock file in it,
// as far as the system tells; "": it does not. It opens neither: to close a file gives
// up the locks that this process has on it.
func Holder(dir, lockFile string) string {
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	kinds := map[string]string{} // by device and inode
	for path, kind := range map[string]string{dir: "FLOCK", lockFile: "POSIX"} {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			kinds[lockedFile(uint64(stat.Dev), stat.Ino)] = kind //nolint:unconvert // its type differs between systems
		}
	}
	if pid := holding(string(locks), kinds); pid > 0 {
		return describe(pid)
	}
	return ""
}

// holding returns the process that /proc/locks names as the holder of one of the files, with a lock of its kind.
func holding(locks string, kinds map[string]string) int {
	for line := range strings.Lines(locks) {
		// 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF
		fields := strings.Fields(line)
		if len(fields) < 6 || kinds[fields[5]] != fields[1] {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// lockedFile names a file as /proc/locks of Linux does: major and minor number of the device, and the inode.
func lockedFile(dev, inode uint64) string {
	major := dev>>8&0xfff | dev>>32&^0xfff
	minor := dev&0xff | dev>>12&^0xff
	return fmt.Sprintf("%02x:%02x:%d", major, minor, inode)
}
