package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
)

// JobDB is a job database open for writing.
type JobDB interface {
	jobdb.Store
	Close() error
}

// JobDBReader is a job database open for reading.
type JobDBReader interface {
	View(ctx context.Context, read func(jobdb.Queries) error) error
	Close() error
}

// OpenJobDB opens a job database for writing, by its URL: sqlite:///path/to/file
// or postgres://user@host:5432/database.
func OpenJobDB(ctx context.Context, at string) (JobDB, error) {
	return openJobDB(ctx, at, sqlite.Options{})
}

func openJobDB(ctx context.Context, at string, opt sqlite.Options) (JobDB, error) {
	if isPostgres(at) {
		db, err := postgres.Open(ctx, at, postgres.Options{})
		if err != nil {
			return nil, err // not db: a nil pointer would make a non-nil interface
		}
		return db, nil
	}
	path, err := sqlitePath(at)
	if err != nil {
		return nil, err
	}
	db, err := sqlite.Open(ctx, path, opt)
	if err != nil {
		return nil, err
	}
	return db, nil
}

// ReadJobDB opens a job database for reading.
func ReadJobDB(ctx context.Context, at string) (JobDBReader, error) {
	if isPostgres(at) {
		db, err := postgres.OpenReader(ctx, at)
		if err != nil {
			return nil, err
		}
		return db, nil
	}
	path, err := sqlitePath(at)
	if err != nil {
		return nil, err
	}
	db, err := sqlite.OpenReader(ctx, path)
	if err != nil {
		return nil, err
	}
	return db, nil
}

func isPostgres(at string) bool {
	return strings.HasPrefix(at, "postgres://") || strings.HasPrefix(at, "postgresql://")
}

const jobDBForms = "give sqlite:///path/to/jobs.sqlite or postgres://user@host:5432/database"

func sqlitePath(at string) (string, error) {
	if path, ok := strings.CutPrefix(at, "sqlite://"); ok && path != "" {
		return path, nil
	}
	u, err := url.Parse(at)
	if err != nil || u.Opaque != "" || u.Scheme == "" { // do not repeat the value: it may be a password
		return "", errors.New("job database: want a URL: " + jobDBForms)
	}
	u.RawQuery, u.Fragment = "", ""
	return "", fmt.Errorf("job database %s: %s", u.Redacted(), jobDBForms)
}

func (n *node) jobDB() string {
	if n.JobDB != "" {
		return n.JobDB
	}
	return n.Data.JobDBURL()
}

// JobDBURL is the URL of the embedded job database.
func (d Dir) JobDBURL() string { return "sqlite://" + d.JobDB() }
