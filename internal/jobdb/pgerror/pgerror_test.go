package pgerror_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refloat/refloat/internal/jobdb/pgerror"
)

func TestOf(t *testing.T) {
	t.Parallel()
	code := func(code string) error { return fmt.Errorf("write: %w", &pgconn.PgError{Code: code}) }
	for name, tt := range map[string]struct {
		err  error
		want pgerror.Class
	}{
		"none":                    {nil, pgerror.Unknown},
		"terminated":              {code("57P01"), pgerror.Unavailable},
		"starting up":             {code("57P03"), pgerror.Unavailable},
		"full disk":               {code("53100"), pgerror.Unavailable},
		"too many connections":    {code("53300"), pgerror.Unavailable},
		"deadlock":                {code("40P01"), pgerror.Unavailable},
		"lock timeout":            {code("55P03"), pgerror.Unavailable},
		"idle for too long":       {code("25P03"), pgerror.Unavailable},
		"read-only transaction":   {code("25006"), pgerror.ReadOnly},
		"no privilege":            {code("42501"), pgerror.Denied},
		"no database":             {code("3D000"), pgerror.Missing},
		"no table":                {code("42P01"), pgerror.Missing},
		"bad text":                {code("22021"), pgerror.Refused},
		"there already":           {code("23505"), pgerror.Refused},
		"syntax":                  {code("42601"), pgerror.Unknown},
		"failed transaction":      {code("25P02"), pgerror.Unknown},
		"cut":                     {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), pgerror.Unavailable},
		"network":                 {&net.OpError{Op: "read", Err: errors.New("reset")}, pgerror.Unavailable},
		"deadline":                {context.DeadlineExceeded, pgerror.Unavailable},
		"cancelled":               {fmt.Errorf("wait: %w", context.Canceled), pgerror.Unknown},
		"cancelled on the way":    {errors.Join(io.EOF, context.Canceled), pgerror.Unknown},
		"something else":          {errors.New("x"), pgerror.Unknown},
		"connect":                 {&pgconn.ConnectError{Config: &pgconn.Config{}}, pgerror.Unavailable},
		"connect, wrong password": {fmt.Errorf("connect: %w", errors.Join(&pgconn.ConnectError{Config: &pgconn.Config{}}, code("28P01"))), pgerror.Denied},
	} {
		if got := pgerror.Of(tt.err, nil); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestState: transient errors have a state, and permanent ones have advice if their
// code allows it.
func TestState(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"57P01": "starting", "57P03": "starting", "57014": "slow", "53300": "too_many_connections", "53100": "disk_full", "53200": "out_of_memory",
		"53000": "out_of_resources", "25006": "read_only", "55P03": "locked", "40001": "locked", "08006": "unreachable", "58030": "io_error",
	} {
		err := fmt.Errorf("write: %w", &pgconn.PgError{Code: code})
		if got := pgerror.State(err); got != want || pgerror.Advice(err) != "" {
			t.Errorf("%s: %q, advice %q; want %q and none", code, got, pgerror.Advice(err), want)
		}
	}
	if got := pgerror.State(io.ErrUnexpectedEOF); got != "unreachable" {
		t.Errorf("a cut connection: %q", got)
	}
	for code, want := range map[string]string{"28P01": "PGPASSWORD", "28000": "pg_hba.conf", "42501": "grant", "3D000": "create the database"} {
		if got := pgerror.Advice(&pgconn.PgError{Code: code}); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", code, got, want)
		}
	}
}
