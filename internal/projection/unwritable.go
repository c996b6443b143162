package projection

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// watchedFS is a vfs.FS that calls unwritable with the first error of a write that leaves the store no way to go on: of a disk that
// takes no more, or of a file in the store's directory that cannot be made, renamed or removed, whatever the reason.
// Pebble would panic, or try again at once and forever. It holds a lock when it finds that it cannot write, so that
// not even a panic gets out in order: unwritable must end the process before Pebble sees the error.
type watchedFS struct {
	vfs.FS
	dir        string
	unwritable func(error)
}

// diskErrors are those of a disk that is full, broken or read-only, or of a used-up quota.
var diskErrors = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS}

// check handles the result of a write to an open file.
func (w *watchedFS) check(err error) error {
	if err != nil && slices.ContainsFunc(diskErrors, func(class error) bool { return errors.Is(err, class) }) {
		w.unwritable(err)
	}
	return err
}

// checkName handles the result of an operation on the file name. A checkpoint's files are elsewhere: it may fail.
func (w *watchedFS) checkName(name string, err error) error {
	own := name == w.dir || w.PathDir(name) == w.dir
	if err != nil && own && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		w.unwritable(err)
	}
	return w.check(err)
}

func (w *watchedFS) watched(name string, f vfs.File, err error) (vfs.File, error) {
	if err := w.checkName(name, err); err != nil {
		return f, err
	}
	return &watchedFile{f, w}, nil
}

func (w *watchedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, c)
	return w.watched(name, f, err)
}

func (w *watchedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := w.FS.OpenReadWrite(name, c, opts...)
	return w.watched(name, f, err)
}

func (w *watchedFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.ReuseForWrite(from, to, c)
	return w.watched(to, f, err)
}

// OpenDir implements vfs.FS. Directories are synced.
func (w *watchedFS) OpenDir(name string) (vfs.File, error) {
	f, err := w.FS.OpenDir(name)
	return w.watched(name, f, err)
}

func (w *watchedFS) Link(from, to string) error { return w.check(w.FS.Link(from, to)) }

func (w *watchedFS) Rename(from, to string) error { return w.checkName(to, w.FS.Rename(from, to)) }

func (w *watchedFS) Remove(name string) error { return w.checkName(name, w.FS.Remove(name)) }

func (w *watchedFS) MkdirAll(dir string, perm os.FileMode) error {
	return w.checkName(dir, w.FS.MkdirAll(dir, perm))
}

func (w *watchedFS) Unwrap() vfs.FS { return w.FS }

type watchedFile struct {
	vfs.File
	fs *watchedFS
}

func (f *watchedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.fs.check(err)
}

func (f *watchedFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	return n, f.fs.check(err)
}

func (f *watchedFile) Preallocate(at, n int64) error { return f.fs.check(f.File.Preallocate(at, n)) }

func (f *watchedFile) Sync() error { return f.fs.check(f.File.Sync()) }

func (f *watchedFile) SyncData() error { return f.fs.check(f.File.SyncData()) }

func (f *watchedFile) SyncTo(n int64) (bool, error) {
	full, err := f.File.SyncTo(n)
	return full, f.fs.check(err)
}
