package sqlite

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"

	"github.com/refloat/refloat/internal/jobdb"
)

// SQLite's primary result codes that callers tell apart.
const (
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

// classify names the file and the class of an error.
func classify(path string, err error) error {
	if err == nil {
		return nil
	}
	var serr *sqlite.Error
	if !errors.As(err, &serr) {
		return fmt.Errorf("job database %s: %w", path, err)
	}
	var class error
	switch serr.Code() & 0xff {
	case codeBusy, codeLocked:
		class = fmt.Errorf("%w: another process holds its lock", jobdb.ErrUnavailable)
	case codeFull:
		class = fmt.Errorf("%w: the disk is full", jobdb.ErrUnavailable)
	case codeReadOnly:
		class = jobdb.ErrReadOnly
	case codeNotADB:
		class = jobdb.ErrForeign
	default:
		return fmt.Errorf("job database %s: %w", path, err)
	}
	return fmt.Errorf("job database %s: %w: %w", path, class, err)
}
