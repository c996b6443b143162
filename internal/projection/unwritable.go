package projection

import (
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// watchedFS calls unwritable with the first error of a write to a disk that takes no more.
// Pebble holds a lock when it finds that it cannot write, so that not even a panic gets out
// in order: unwritable must end the process before Pebble sees the error.
type watchedFS struct {
	vfs.FS
	unwritable func(error)
}

// diskErrors are those of a disk that is full, broken or read-only, or of a used-up quota.
var diskErrors = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS}

func (w *watchedFS) check(err error) error {
	if err != nil && slices.ContainsFunc(diskErrors, func(class error) bool { return errors.Is(err, class) }) {
		w.unwritable(err)
	}
	return err
}

func (w *watchedFS) watched(f vfs.File, err error) (vfs.File, error) {
	if err := w.check(err); err != nil {
		return f, err
	}
	return &watchedFile{f, w}, nil
}

// Create implements vfs.FS.
func (w *watchedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return w.watched(w.FS.Create(name, c))
}

// OpenReadWrite implements vfs.FS.
func (w *watchedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return w.watched(w.FS.OpenReadWrite(name, c, opts...))
}

// ReuseForWrite implements vfs.FS.
func (w *watchedFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return w.watched(w.FS.ReuseForWrite(from, to, c))
}

// OpenDir implements vfs.FS. Directories are synced.
func (w *watchedFS) OpenDir(name string) (vfs.File, error) { return w.watched(w.FS.OpenDir(name)) }

// Link implements vfs.FS.
func (w *watchedFS) Link(from, to string) error { return w.check(w.FS.Link(from, to)) }

// Rename implements vfs.FS.
func (w *watchedFS) Rename(from, to string) error { return w.check(w.FS.Rename(from, to)) }

// Remove implements vfs.FS.
func (w *watchedFS) Remove(name string) error { return w.check(w.FS.Remove(name)) }

// MkdirAll implements vfs.FS.
func (w *watchedFS) MkdirAll(dir string, perm os.FileMode) error {
	return w.check(w.FS.MkdirAll(dir, perm))
}

// Unwrap implements vfs.FS.
func (w *watchedFS) Unwrap() vfs.FS { return w.FS }

type watchedFile struct {
	vfs.File
	fs *watchedFS
}

// Write implements vfs.File.
func (f *watchedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.fs.check(err)
}

// WriteAt implements vfs.File.
func (f *watchedFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	return n, f.fs.check(err)
}

// Preallocate implements vfs.File.
func (f *watchedFile) Preallocate(at, n int64) error { return f.fs.check(f.File.Preallocate(at, n)) }

// Sync implements vfs.File.
func (f *watchedFile) Sync() error { return f.fs.check(f.File.Sync()) }

// SyncData implements vfs.File.
func (f *watchedFile) SyncData() error { return f.fs.check(f.File.SyncData()) }

// SyncTo implements vfs.File.
func (f *watchedFile) SyncTo(n int64) (bool, error) {
	full, err := f.File.SyncTo(n)
	return full, f.fs.check(err)
}
