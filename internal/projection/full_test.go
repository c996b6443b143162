package projection

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// fatal is a logger whose Fatalf never returns, and leaves the store as it is, as
// the end of the process would.
type fatal struct {
	reported chan error
	logged   chan string
}

func (fatal) Infof(string, ...any) {}

func (f fatal) Errorf(format string, args ...any) {
	select {
	case f.logged <- fmt.Sprintf(format, args...):
	default:
	}
}

func (f fatal) Fatalf(format string, args ...any) {
	err := fmt.Errorf("%s: no error of a class", fmt.Sprintf(format, args...))
	for _, a := range args {
		if cause, ok := a.(error); ok {
			err = cause
		}
	}
	select {
	case f.reported <- err:
	default:
	}
	select {}
}

// TestFullDisk: the disk is full, broken or read-only, or the quota is used up, from the
// n-th write or sync on; or no file can be created any more. The store
// returns an error or ends the process, both for that reason, and what was synced before
// is there when there is room again. It never reports the error more than once.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	write := []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFilePreallocate, errorfs.OpMkdirAll, errorfs.OpReuseForWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}
	create := []errorfs.OpKind{errorfs.OpCreate, errorfs.OpMkdirAll, errorfs.OpReuseForWrite, errorfs.OpLink, errorfs.OpRename, errorfs.OpRemove}
	for _, c := range []struct {
		cause syscall.Errno
		step  int64
		fails []errorfs.OpKind
	}{
		{syscall.ENOSPC, 1, write},
		{syscall.EDQUOT, 5, write},
		{syscall.EIO, 7, write},
		{syscall.EROFS, 7, write},
		{syscall.EACCES, 1, create},
		{syscall.EPERM, 3, create},
		{syscall.EMFILE, 3, create},
	} {
		t.Run(c.cause.Error(), func(t *testing.T) {
			t.Parallel()
			fillDisk(t, c.cause, c.step, c.fails)
		})
	}
}

func fillDisk(t *testing.T, cause syscall.Errno, step int64, fails []errorfs.OpKind) {
	t.Helper()
	ended := 0 // by Fatalf
	for n := int64(0); ; n += step {
		disk := vfs.NewCrashableMem()
		var left atomic.Int64
		left.Store(n)
		full := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if slices.Contains(fails, op.Kind) && left.Add(-1) < 0 {
				return cause
			}
			return nil
		}))
		f := fatal{reported: make(chan error, 1), logged: make(chan string, 1)}
		var synced atomic.Int64
		done := make(chan error, 1)
		go func() {
			err := errors.New("the process ended")
			defer func() { done <- err }()
			err = fillStore(full, f, &synced)
		}()
		var err error
		select {
		case err = <-f.reported:
			ended++
		case err = <-done:
		case text := <-f.logged:
			t.Fatalf("after %d writes, the store logs an error and goes on: %s", n, text)
		}
		if err == nil {
			if n < 10 {
				t.Fatalf("%d writes are enough", n)
			}
			t.Logf("%d writes, %d of them ended the process", n, ended)
			return
		}
		if !errors.Is(err, cause) {
			t.Errorf("full after %d writes: %v", n, err)
		}
		s, err := OpenStore(StoreConfig{FS: disk.CrashClone(vfs.CrashCloneCfg{}), Dir: "state", Logger: quiet{}})
		if err != nil {
			t.Fatalf("full after %d writes, with room again: %v", n, err)
		}
		meta, err := s.Meta()
		came, _ := strconv.ParseInt(string(meta), 10, 64)
		if err != nil || came < synced.Load() {
			t.Errorf("full after %d writes: the state came to %q, %v, and %d were synced", n, meta, err, synced.Load())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// fillStore commits until the write-ahead log was begun anew, takes a checkpoint on the
// way, and counts the commits that were synced.
func fillStore(files vfs.FS, logger fatal, synced *atomic.Int64) error {
	s, err := OpenStore(StoreConfig{FS: files, Dir: "state", Logger: logger})
	if err != nil {
		return err
	}
	for n := int64(1); n <= 24; n++ {
		b := s.NewBatch()
		if err := b.Set(fmt.Appendf(nil, "key %d", n), make([]byte, 100<<10)); err != nil {
			return err
		}
		if err := s.Commit(b, fmt.Append(nil, n)); err != nil {
			return err
		}
		if err := s.Sync(); err != nil {
			return err
		}
		synced.Store(n)
		if n == 12 {
			if err := s.Checkpoint("checkpoint"); err != nil {
				return err
			}
		}
	}
	return s.Close()
}
