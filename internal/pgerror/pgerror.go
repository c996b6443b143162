// Package pgerror says of what class an error of PostgreSQL is: whether trying
// again may help, and if not, what is wrong. Those who write to PostgreSQL wrap
// errors with sentinels of their own by it.
package pgerror

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Class is a class of errors.
type Class int

// The classes of errors.
const (
	Unknown     Class = iota // none of the others, or an end that the caller asked for
	Unavailable              // locked or out of reach, or no room: trying again may help
	ReadOnly                 // it cannot be written, or not by this user
	Missing                  // no such database, schema, table, column or type
	Refused                  // it does not take these values, now or later
)

var names = [...]string{"Unknown", "Unavailable", "ReadOnly", "Missing", "Refused"}

// String is the class's name.
func (c Class) String() string { return names[c] }

// codes are PostgreSQL's error codes, or what they begin with.
var codes = []struct {
	prefix string
	class  Class
}{
	{"08", Unavailable},    // connection
	{"25P03", Unavailable}, // idle in a transaction for too long
	{"25P04", Unavailable}, // a transaction took too long
	{"40", Unavailable},    // deadlock, serialization
	{"53", Unavailable},    // disk, memory, connections
	{"55P03", Unavailable}, // lock timeout
	{"55006", Unavailable}, // object in use
	{"57", Unavailable},    // shutting down, starting up, cancelled
	{"58", Unavailable},    // input and output
	{"25006", ReadOnly},
	{"42501", ReadOnly}, // no privilege
	{"3D000", Missing},  // database
	{"3F000", Missing},  // schema
	{"42P01", Missing},  // table
	{"42703", Missing},  // column
	{"42704", Missing},  // type
	{"22", Refused},     // data
	{"23", Refused},     // constraints
	{"54", Refused},     // limits
}

// Of classifies an error. Where its connection is known and turns out to be
// closed, whatever went wrong on it is that. A cancelled context is the caller's
// own doing and has no class.
func Of(err error, conn *pgx.Conn) Class {
	if err == nil {
		return Unknown
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, c := range codes {
			if strings.HasPrefix(pg.Code, c.prefix) {
				return c.class
			}
		}
		return Unknown
	}
	var network net.Error
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, context.Canceled):
	case conn != nil && conn.IsClosed(), errors.As(err, &connect), errors.As(err, &network), errors.Is(err, net.ErrClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), pgconn.SafeToRetry(err):
		return Unavailable
	}
	return Unknown
}
