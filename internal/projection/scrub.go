package projection

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Tables lists the table files of a store by name; it is empty if there is no store.
func Tables(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".sst") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// CheckTable verifies the checksum of each block of a table file. It calls read with the
// number of bytes before each read; an error of read ends the check. Damage is ErrCorrupt.
func CheckTable(path string, read func(n int) error) error {
	f, err := vfs.Default.Open(path)
	if err != nil {
		return fmt.Errorf("check table: %w", err)
	}
	readable, err := sstable.NewSimpleReadable(pacedFile{f, read})
	if err != nil {
		return errors.Join(fmt.Errorf("check table %s: %w", path, err), f.Close())
	}
	r, err := sstable.NewReader(context.Background(), readable, sstable.ReaderOptions{})
	if err != nil {
		return errors.Join(tableError(path, err), readable.Close())
	}
	return errors.Join(tableError(path, r.ValidateBlockChecksums()), r.Close())
}

func tableError(path string, err error) error {
	if err == nil {
		return nil
	}
	if pebble.IsCorruptionError(err) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return fmt.Errorf("check table %s: %w", path, err)
}

// pacedFile is a file that is read no faster than read permits.
type pacedFile struct {
	vfs.File
	read func(n int) error
}

func (p pacedFile) ReadAt(b []byte, off int64) (int, error) {
	if err := p.read(len(b)); err != nil {
		return 0, err
	}
	return p.File.ReadAt(b, off)
}
