// Package pgerror classifies errors of PostgreSQL: whether a retry may help, and if
// not, what is wrong. Packages that write to PostgreSQL use it to wrap errors in
// their own sentinels.
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
	Unknown     Class = iota // none of the others, or cancelled by the caller
	Unavailable              // locked, unreachable or full: a retry may help
	ReadOnly                 // this server accepts no writes now; it, or its replacement, may later
	Denied                   // it denies this user access, or this operation
	Missing                  // no such database, schema, table, column or type
	Refused                  // it rejects these values, now and later
)

var names = [...]string{"Unknown", "Unavailable", "ReadOnly", "Denied", "Missing", "Refused"}

// String returns the class's name.
func (c Class) String() string { return names[c] }

// unreachable is the state of a database about which nothing else is known.
const unreachable = "unreachable"

// codes are PostgreSQL's error codes, or prefixes of them, the longer ones first.
// Transient ones have a state, in one word.
var codes = []struct {
	prefix string
	class  Class
	state  string
}{
	{"08", Unavailable, unreachable},    // connection
	{"25P03", Unavailable, "slow"},      // idle in a transaction for too long
	{"25P04", Unavailable, "slow"},      // a transaction took too long
	{"40", Unavailable, "locked"},       // deadlock, serialization
	{"53100", Unavailable, "disk_full"}, // or its quota is exceeded
	{"53200", Unavailable, "out_of_memory"},
	{"53300", Unavailable, "too_many_connections"},
	{"53", Unavailable, "out_of_resources"},
	{"55P03", Unavailable, "locked"},  // lock timeout
	{"55006", Unavailable, "locked"},  // object in use
	{"57P0", Unavailable, "starting"}, // or shutting down
	{"57", Unavailable, "slow"},       // cancelled, mostly by a timeout
	{"58", Unavailable, "io_error"},
	{"25006", ReadOnly, "read_only"},
	{"28", Denied, ""},    // no such user, wrong password, or a host that is not allowed
	{"42501", Denied, ""}, // no privilege
	{"3D000", Missing, ""},
	{"3F000", Missing, ""}, // schema
	{"42P01", Missing, ""}, // table
	{"42703", Missing, ""}, // column
	{"42704", Missing, ""}, // type
	{"22", Refused, ""},    // data
	{"23", Refused, ""},    // constraints
	{"54", Refused, ""},    // limits
}

func lookup(code string) (class Class, state string) {
	for _, c := range codes {
		if strings.HasPrefix(code, c.prefix) {
			return c.class, c.state
		}
	}
	return Unknown, ""
}

// State names in one word why a database is Unavailable or ReadOnly: one of a few
// values, for metrics.
func State(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		if _, state := lookup(pg.Code); state != "" {
			return state
		}
	}
	return unreachable
}

// Advice says what to do about an error that does not go away by waiting, as far as its
// code tells; empty: nothing is known.
func Advice(err error) string {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	switch code := pg.Code; {
	case strings.HasPrefix(code, "28"):
		return "check the user, its password (PGPASSWORD, ~/.pgpass or the URL) and the server's pg_hba.conf"
	case code == "42501":
		return "grant this user USAGE and CREATE on the schema, and the right to read and write the tables in it"
	case code == "26000" || code == "42P05": // a prepared statement does not exist, or exists already
		return "a connection pooler gives each transaction another session: add default_query_exec_mode=exec to the URL"
	case code == "3D000":
		return "create the database with ENCODING 'UTF8', or pass another one in the URL"
	}
	return ""
}

// Of classifies an error. If its connection is known and turns out to be closed, the
// class is Unavailable. A cancelled context comes from the caller and has no class.
func Of(err error, conn *pgx.Conn) Class {
	if err == nil {
		return Unknown
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		class, _ := lookup(pg.Code)
		return class
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
