package node

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
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

// OpenJobDB opens a job database for writing, by its URL: sqlite:///path/to/file.
func OpenJobDB(ctx context.Context, at string) (JobDB, error) {
	path, err := sqlitePath(at)
	if err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, path, sqlite.Options{})
}

// ReadJobDB opens a job database for reading.
func ReadJobDB(ctx context.Context, at string) (JobDBReader, error) {
	path, err := sqlitePath(at)
	if err != nil {
		return nil, err
	}
	return sqlite.OpenReader(ctx, path)
}

func sqlitePath(at string) (string, error) {
	if path, ok := strings.CutPrefix(at, "sqlite://"); ok && path != "" {
		return path, nil
	}
	u, err := url.Parse(at)
	if err != nil {
		return "", fmt.Errorf("job database: no URL: give sqlite:///path/to/jobs.sqlite")
	}
	return "", fmt.Errorf("job database %s: give sqlite:///path/to/jobs.sqlite", u.Redacted())
}

func (n *node) jobDB() string {
	if n.JobDB != "" {
		return n.JobDB
	}
	return "sqlite://" + n.Data.JobDB()
}
