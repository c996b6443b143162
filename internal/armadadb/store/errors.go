package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
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
	// ErrReadOnly: it cannot be written.
	ErrReadOnly = errors.New("scheduler database is read-only")
	// ErrRefused: PostgreSQL does not take these values, now or later.
	ErrRefused = errors.New("scheduler database refuses the values")
)

// classes are PostgreSQL's error codes, or what they begin with.
var classes = []struct {
	code  string
	class error
}{
	{"08", ErrUnavailable},    // connection
	{"40", ErrUnavailable},    // deadlock, serialization
	{"53", ErrUnavailable},    // disk, memory, connections
	{"55P03", ErrUnavailable}, // lock timeout
	{"55006", ErrUnavailable}, // object in use
	{"57", ErrUnavailable},    // shutting down, starting up, cancelled
	{"58", ErrUnavailable},    // input and output
	{"25006", ErrReadOnly},
	{"42501", ErrReadOnly}, // no privilege
	{"3D000", ErrForeign},  // no such database
	{"3F000", ErrForeign},  // no such schema
	{"42P01", ErrForeign},  // no such table
	{"42703", ErrForeign},  // no such column
	{"42704", ErrForeign},  // no such type
	{"22", ErrRefused},     // data
	{"23", ErrRefused},     // constraints
	{"54", ErrRefused},     // limits
}

// classify says what was being done, and wraps the class of an error. An error of
// the caller's context stays what it is.
func classify(doing string, err error) error {
	if err == nil {
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, c := range classes {
			if strings.HasPrefix(pg.Code, c.code) {
				return fmt.Errorf("%s: %w: %w", doing, c.class, err)
			}
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	var network net.Error
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, context.Canceled):
	case errors.As(err, &connect), errors.As(err, &network), errors.Is(err, net.ErrClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errClosed), pgconn.SafeToRetry(err):
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// errClosed: the connection broke before.
var errClosed = errors.New("the connection is closed")
