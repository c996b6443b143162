package postgres

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/pgerror"
)

// place names a database in errors, without user and password.
type place string

func placeOf(c *pgconn.Config) place {
	host := c.Host
	if !strings.HasPrefix(host, "/") { // a directory, for a socket in it
		host = fmt.Sprintf("%s:%d", host, c.Port)
	}
	return place(fmt.Sprintf("%s/%s", host, c.Database))
}

// classify names the database and the class of an error.
func (p place) classify(err error, conn *pgx.Conn) error {
	if err == nil {
		return nil
	}
	var class error
	switch pgerror.Of(err, conn) {
	case pgerror.Unavailable:
		class = jobdb.ErrUnavailable
	case pgerror.ReadOnly:
		class = jobdb.ErrReadOnly
	case pgerror.Missing:
		class = jobdb.ErrForeign
	case pgerror.Unknown, pgerror.Refused:
		return fmt.Errorf("job database %s: %w", p, err)
	}
	return fmt.Errorf("job database %s: %w: %w", p, class, err)
}

// redacted is a URL without its password and its settings, which may hold another.
func redacted(at string) string {
	u, err := url.Parse(at)
	if err != nil {
		return "postgres://…"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}
