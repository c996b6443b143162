package filelog

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const windowBytes = 128 << 10

// window reads a file ahead in large chunks, which it takes from a memory; without one, the next read may overwrite
// what it has returned.
type window struct {
	file  vfs.File
	limit int64 // reads stop here
	from  *memory
	ahead int

	off int64 // where buf begins in the file
	buf []byte
}

// at returns n bytes at the offset. They must be below the limit; io.EOF means that the
// file is shorter than its limit.
func (w *window) at(off int64, n int) ([]byte, error) {
	if off+int64(n) > w.limit {
		return nil, io.EOF
	}
	if i := off - w.off; i >= 0 && i+int64(n) <= int64(len(w.buf)) {
		return w.buf[i : i+int64(n) : i+int64(n)], nil
	}
	size := int(min(max(int64(n), int64(w.ahead)), w.limit-off))
	var have []byte // the part of the new chunk that is in memory
	if i := off - w.off; i >= 0 && i < int64(len(w.buf)) {
		have = w.buf[i:]
	}
	var buf []byte
	switch {
	case w.from != nil:
		buf = w.from.take(size)
	case cap(w.buf) < size:
		buf = make([]byte, size)
	default:
		buf = w.buf[:size]
	}
	got := copy(buf, have)
	w.buf, w.off = buf[:0], off
	m, err := w.file.ReadAt(buf[got:], off+int64(got))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read: %w", err)
	}
	w.buf = buf[:got+m]
	if len(w.buf) < n {
		return nil, io.EOF
	}
	return w.buf[:n:n], nil
}
