package pgstore

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/jobdb/pgerror"
)

// Errors by class; what is returned wraps them with what PostgreSQL said.
var (
	// ErrUnavailable: the database is locked or out of reach; trying again may help.
	ErrUnavailable = errors.New("scheduler database is not available now")
	// ErrForeign: this is no scheduler database of Armada's.
	ErrForeign = errors.New("not Armada's scheduler database")
	// ErrNewer: a newer Armada made the tables.
	ErrNewer = errors.New("scheduler database has a newer schema")
	// ErrOlder: Armada's migrations must run first.
	ErrOlder = errors.New("scheduler database has an older schema")
	// ErrReadOnly: it cannot be written, or not by this user.
	ErrReadOnly = errors.New("scheduler database is read-only, or this user may not write it")
	// ErrRefused: PostgreSQL does not take these values, now or later.
	ErrRefused = errors.New("scheduler database refuses the values")
)

// classify says what was being done, and wraps the class of an error. An error of
// the caller's context stays what it is.
func classify(doing string, err error, conn *pgx.Conn) error {
	var class error
	switch pgerror.Of(err, conn) {
	case pgerror.Unavailable:
		class = ErrUnavailable
	case pgerror.ReadOnly, pgerror.Denied:
		class = ErrReadOnly
	case pgerror.Missing:
		class = ErrForeign
	case pgerror.Refused:
		class = ErrRefused
	case pgerror.Unknown:
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, class, err)
}
