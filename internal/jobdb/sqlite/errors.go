package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/refloat/refloat/internal/jobdb"
)

// classify adds the file and the class to an error.
func classify(path string, err error) error {
	if err == nil {
		return nil
	}
	var class error
	var code sqlite3.ExtendedErrorCode
	if !errors.As(err, &code) {
		return fmt.Errorf("job database %s: %w", path, err)
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), code.Code() == sqlite3.FULL, code == sqlite3.IOERR_SHMSIZE,
		code == sqlite3.IOERR_WRITE, code == sqlite3.IOERR_TRUNCATE: // the driver does not say why
		class = fmt.Errorf("%w: write failed, the disk may be full", jobdb.ErrUnavailable)
	case code.Code() == sqlite3.BUSY, code.Code() == sqlite3.LOCKED:
		class = fmt.Errorf("%w: another process holds its lock", jobdb.ErrUnavailable)
	case code.Code() == sqlite3.READONLY:
		class = jobdb.ErrReadOnly
	case code == sqlite3.IOERR_DATA:
		class = fmt.Errorf("%w: a page does not match its checksum", jobdb.ErrDamaged)
	case code == sqlite3.IOERR_SHORT_READ, code.Code() == sqlite3.CORRUPT, code.Code() == sqlite3.NOTADB && hasOurMark(path):
		class = jobdb.ErrDamaged
	case code.Code() == sqlite3.NOTADB:
		class = jobdb.ErrForeign
	}
	if class == nil {
		return fmt.Errorf("job database %s: %w", path, err)
	}
	return fmt.Errorf("job database %s: %w: %w", path, class, err)
}

// applicationIDOffset is the offset of the application id in a database file.
const applicationIDOffset = 68

// hasOurMark reports whether a file that SQLite does not recognise as a database has
// our application id in its header.
func hasOurMark(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var id [4]byte
	if _, err := f.ReadAt(id[:], applicationIDOffset); err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	return string(id[:]) == "RFLT"
}
