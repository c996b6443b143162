package projection

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// NoteDamage keeps the first damage that was found, for the next call to return.
func (s *Store) NoteDamage(err error) {
	wrapped := err
	if !errors.Is(err, ErrCorrupt) {
		wrapped = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	s.damaged.CompareAndSwap(nil, &wrapped)
}

// Whole returns the damage that was found in the store, or nil.
func (s *Store) Whole() error {
	if err := s.damaged.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *Store) classify(err error) error {
	if pebble.IsCorruptionError(err) {
		s.NoteDamage(err)
	}
	if noted := s.Whole(); noted != nil {
		return noted
	}
	return err
}

// background handles errors of a flush or a compaction, which Pebble would otherwise
// retry at once and forever. Damage is for the next caller.
func (s *Store) background(err error) {
	if pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) {
		s.NoteDamage(err)
		return
	}
	s.end(fmt.Errorf("background error: %w", err))
}

// openError returns ErrCorrupt if the files of a store are damaged. Pebble has no class
// for data that it cannot interpret, so this is every error that the operating system did
// not return.
func openError(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != syscall.ENOENT || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

const (
	manifestMarker = "marker.manifest."
	markName       = "MANIFEST.size"
)

// markManifest records the size of the list of the store's files, which Pebble does not:
// a list that was cut off between two records would pass for an older one. The file is not
// synced: its content was true before it was written.
func (s *Store) markManifest(files vfs.FS, dir string) {
	path, _ := s.manifest.Load().(string)
	info, err := files.Stat(path)
	if err != nil {
		return
	}
	f, err := files.Create(files.PathJoin(dir, markName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(f, "%s %d\n", files.PathBase(path), info.Size())
	_ = f.Close()
}

// checkManifest returns ErrCorrupt if the list of a store's files is damaged. Pebble
// reads it up to the first incomplete record, which may yield an old list without later
// flushes.
func checkManifest(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	manifest, iteration, holds := "", int64(-1), false
	for _, name := range names {
		holds = holds || strings.HasSuffix(name, ".sst") || strings.HasPrefix(name, "MANIFEST-")
		rest, ok := strings.CutPrefix(name, manifestMarker)
		n, target, _ := strings.Cut(rest, ".")
		if i, err := strconv.ParseInt(n, 10, 64); ok && err == nil && i > iteration {
			manifest, iteration = target, i
		}
	}
	if manifest == "" {
		if holds {
			return fmt.Errorf("%w: nothing names the current MANIFEST", ErrCorrupt)
		}
		return nil
	}
	return errors.Join(checkEdits(files, files.PathJoin(dir, manifest)), checkMark(files, dir, manifest))
}

// checkEdits reads all records of a MANIFEST.
func checkEdits(files vfs.FS, path string) error {
	f, err := files.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	defer f.Close()
	for records := record.NewReader(f, 0); ; {
		r, err := records.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
		}
	}
}

// checkMark compares the MANIFEST's size with the one that markManifest recorded.
func checkMark(files vfs.FS, dir, manifest string) error {
	f, err := files.Open(files.PathJoin(dir, markName))
	if err != nil {
		return nil //nolint:nilerr // there is none, as in a checkpoint
	}
	defer f.Close()
	var name string
	var size int64
	if n, err := fmt.Fscanf(f, "%s %d\n", &name, &size); err != nil || n != 2 || name != manifest {
		return nil //nolint:nilerr // torn, or of an older one
	}
	info, err := files.Stat(files.PathJoin(dir, manifest))
	if err == nil && info.Size() >= size {
		return nil
	}
	return fmt.Errorf("%w: %s ends before byte %d, up to which it was written", ErrCorrupt, manifest, size)
}
