package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/refloat/refloat/internal/test/jobdbtest"
)

// TestNoTempDir: a container with a read-only root file system has no directory for temporary files.
func TestNoTempDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.sqlite")
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	jobdbtest.Fill(t, open(t, path), 3_000)
}
