package filelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
)

const (
	metaName  = "META"
	metaMagic = "\x01rfltlog"
	metaBytes = 16
)

func encodeMeta(partitions int) []byte {
	b := make([]byte, metaBytes)
	copy(b, metaMagic)
	le.PutUint32(b[8:], uint32(partitions))
	le.PutUint32(b[12:], checksum(b[:12]))
	return b
}

func parseMeta(b []byte) (partitions int, ok bool) {
	if len(b) != metaBytes || string(b[:8]) != metaMagic || le.Uint32(b[12:]) != checksum(b[:12]) {
		return 0, false
	}
	n := le.Uint32(b[8:])
	return int(n), n >= 1 && n <= maxPartitions
}

// Exists reports whether a directory holds a log, damaged or not.
func Exists(files vfs.FS, dir string) bool {
	_, err := files.Stat(files.PathJoin(dir, metaName))
	return err == nil
}

// readMeta returns the partition count of the log in the directory; fs.ErrNotExist if
// there is none.
func readMeta(c Config) (int, error) {
	path := c.FS.PathJoin(c.Dir, metaName)
	f, err := c.FS.Open(path)
	if err != nil {
		return 0, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, metaBytes+1)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	partitions, ok := parseMeta(b[:n])
	if !ok {
		return 0, fmt.Errorf("%s is damaged (restore it from a copy; it holds only the partition count): %w", path, eventlog.ErrCorrupt)
	}
	return partitions, nil
}

// create creates the directories and files of an empty log. META comes last, so a
// partially created log does not count as one, and create may run again. The caller
// syncs META's name.
func create(c Config) error {
	if c.Partitions == 0 {
		return fmt.Errorf("create log %s: the partition count is required", c.Dir)
	}
	for id := range c.Partitions {
		if err := createPartition(c, id); err != nil {
			return fmt.Errorf("create partition %d: %w", id, err)
		}
	}
	if err := syncDir(c.FS, c.Dir); err != nil {
		return err
	}
	if err := syncAncestors(c.FS, c.Dir); err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	temporary := c.FS.PathJoin(c.Dir, metaName+".new")
	if err := createFile(c.FS, temporary, encodeMeta(c.Partitions)); err != nil {
		return err
	}
	if err := c.FS.Rename(temporary, c.FS.PathJoin(c.Dir, metaName)); err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	return nil
}

func createPartition(c Config, id int) error {
	dir := partitionDir(c, id)
	if err := c.FS.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	segments, err := (&partition{fs: c.FS, dir: dir}).segments()
	if err != nil {
		return err
	}
	if len(segments) > 0 {
		return fmt.Errorf("%s has segments, but the log has no %s (restore it from a copy): %w", dir, metaName, eventlog.ErrCorrupt)
	}
	slot := emptyMark().encode(id)
	content := make([]byte, slotDistance+slotBytes)
	copy(content, slot)
	copy(content[slotDistance:], slot)
	if err := createFile(c.FS, c.FS.PathJoin(dir, syncedName), content); err != nil {
		return err
	}
	return syncDir(c.FS, dir)
}

// createFile writes a new file and syncs it.
func createFile(files vfs.FS, path string, content []byte) error {
	f, err := files.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

func syncDir(files vfs.FS, path string) error {
	d, err := files.OpenDir(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}

// syncAncestors makes the entries of the directory and of its ancestors durable, which
// MkdirAll may have created. It stops at a directory that we may not open.
func syncAncestors(files vfs.FS, dir string) error {
	for {
		up := files.PathDir(dir)
		if up == dir {
			return nil
		}
		if err := syncDir(files, up); errors.Is(err, fs.ErrPermission) {
			return nil
		} else if err != nil {
			return err
		}
		dir = up
	}
}
