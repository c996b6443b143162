package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/refloat/refloat/internal/jobdb/sqlite"
)

// TestCloseAfterOther: the last connection closes after another one wrote, so its checkpoint begins with an old view of
// the write-ahead log. The driver's own VFS panics there.
func TestCloseAfterOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	twice := [2]*sqlite.DB{}
	for i := range twice {
		var err error
		if twice[i], err = sqlite.Open(t.Context(), path, sqlite.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	last, other := twice[0], twice[1]
	commit(t, last, 1)
	commit(t, other, 2)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	commit(t, open(t, path), 3)
}
