package postgres

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/pgerror"
)

// address names a database in errors, without user and password.
type address string

func addressOf(c *pgconn.Config) address {
	host := c.Host
	if !strings.HasPrefix(host, "/") { // a directory, for a socket in it
		host = fmt.Sprintf("%s:%d", host, c.Port)
	}
	return address(fmt.Sprintf("%s/%s", host, c.Database))
}

// classify adds the database and the class to an error.
func (p address) classify(err error, conn *pgx.Conn) error {
	if err == nil {
		return nil
	}
	if advice := pgerror.Advice(err); advice != "" {
		err = fmt.Errorf("%w: %s", err, advice)
	}
	if class := Class(err, conn); class != nil {
		err = fmt.Errorf("%w: %w", class, err)
	}
	return fmt.Errorf("job database %s: %w", p, err)
}

// Class returns the class of an error among those of package jobdb, or nil. Packages
// that write in a transaction (Tx.Conn) classify their errors with it.
func Class(err error, conn *pgx.Conn) error {
	switch pgerror.Of(err, conn) {
	case pgerror.Unavailable:
		return jobdb.ErrUnavailable
	case pgerror.ReadOnly:
		return errReadOnlyNow
	case pgerror.Denied:
		return jobdb.ErrDenied
	case pgerror.Missing:
		return jobdb.ErrForeign
	case pgerror.Unknown, pgerror.Refused:
	}
	return nil
}

// errReadOnlyNow: a standby, or a server that was switched to read-only.
var errReadOnlyNow = fmt.Errorf("%w: %w", jobdb.ErrUnavailable, jobdb.ErrReadOnly)

// failed is address.classify. If the server accepts no writes, it first closes all
// connections, which would otherwise stay with this server after a failover.
func (d *DB) failed(err error, conn *pgx.Conn) error {
	if pgerror.Of(err, conn) == pgerror.ReadOnly {
		d.pool.Reset()
	}
	return d.address.classify(err, conn)
}

// redacted is a URL without its password and its parameters, which may hold another
// password.
func redacted(at string) string {
	u, err := url.Parse(at)
	if err != nil {
		return "postgres://…"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}
