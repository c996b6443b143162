package main

import (
	"context"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/jobdb"
)

// jobSource is where a command finds a data directory and the job database that
// follows from its logs.
type jobSource struct {
	data  string
	jobDB string // URL; empty: SQLite in the data directory
}

const jobDBHelp = "job database: sqlite:///path or postgres://user@host:5432/database, best with the password in PGPASSWORD or ~/.pgpass (default: in the data directory)"

func (s *jobSource) bindJobDB(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.jobDB, "job-db", "", jobDBHelp)
	settings.Secret(cmd, "job-db")
}

func (s jobSource) url() string {
	if s.jobDB != "" {
		return s.jobDB
	}
	return app.Dir(s.data).JobDBURL()
}

// String is the source as flags. It shows no password.
func (s jobSource) String() string {
	flags := ""
	if s.data != "" {
		flags = "--data " + s.data
	}
	if s.jobDB == "" {
		return flags
	}
	if flags != "" {
		flags += " "
	}
	u, err := url.Parse(s.jobDB)
	if err != nil {
		return flags + "--job-db …"
	}
	q := u.Query()
	for _, name := range []string{"password", "sslpassword"} {
		if q.Has(name) {
			q.Set(name, "xxxxx")
			u.RawQuery = q.Encode()
		}
	}
	return flags + "--job-db " + u.Redacted()
}

func (s jobSource) viewJobs(ctx context.Context, read func(jobdb.Queries) error) error {
	r, err := app.ReadJobDB(ctx, s.url())
	if err != nil {
		return err
	}
	defer r.Close()
	return r.View(ctx, read)
}
