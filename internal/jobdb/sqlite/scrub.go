package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/refloat/refloat/internal/jobdb"
)

// Scrub verifies the checksums of a database's pages, from the given page on, and its
// write-ahead log. It calls read after each chunk, with the next page and the number of
// bytes read; an error from read ends the scrub. A writer may run meanwhile. Damage is
// jobdb.ErrDamaged.
func Scrub(path string, page int64, read func(next int64, n int) error) error {
	if err := checkFiles(path); err != nil {
		return classify(path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("scrub job database: %w", err)
	}
	defer f.Close()
	var header [24]byte
	if _, err := f.ReadAt(header[:], 0); errors.Is(err, io.EOF) {
		return nil // nothing has been written yet
	} else if err != nil {
		return classify(path, err)
	}
	size := int64(binary.BigEndian.Uint16(header[16:]))
	if size == 1 {
		size = 65536
	}
	if size < 512 || size&(size-1) != 0 {
		return classify(path, fmt.Errorf("%w: its header has an invalid page size of %d bytes", jobdb.ErrDamaged, size))
	}
	if header[20] != 8 { // not migrated yet, or a damaged header
		size, page = 4096, 0
	}
	buf := make([]byte, size)
	for ; ; page++ {
		n, err := f.ReadAt(buf, page*size)
		if errors.Is(err, io.EOF) && n < len(buf) {
			return nil
		}
		if err != nil {
			return classify(path, err)
		}
		if !pageWhole(buf) {
			if err := readAgain(f, buf, page, read); err != nil {
				return classify(path, err)
			}
		}
		if err := read(page+1, len(buf)); err != nil {
			return err
		}
	}
}

// readAgain reads a page again whose checksum did not match: a checkpoint may have been
// writing it. Calls of read let time pass.
func readAgain(f io.ReaderAt, buf []byte, page int64, read func(next int64, n int) error) error {
	for range 20 {
		if err := read(page, 64*len(buf)); err != nil {
			return err
		}
		if _, err := f.ReadAt(buf, page*int64(len(buf))); err != nil || pageWhole(buf) {
			return err
		}
	}
	return fmt.Errorf("%w: page %d does not match its checksum", jobdb.ErrDamaged, page+1)
}

// pageWhole verifies the checksum at the end of a page, as SQLite's checksum VFS
// computes it.
func pageWhole(page []byte) bool {
	var sum [2]uint32
	end := len(page) - 8
	addChecksum(&sum, binary.LittleEndian, page[:end])
	return sum[0] == binary.LittleEndian.Uint32(page[end:]) && sum[1] == binary.LittleEndian.Uint32(page[end+4:])
}
