package sqlite

import (
	"path/filepath"
	"testing"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/refloat/refloat/internal/test/jobdbtest"
)

// TestCacheBytes: the pages that a writer keeps in memory follow its options, whatever it writes.
func TestCacheBytes(t *testing.T) {
	t.Parallel()
	cached := func(opt Options) (bytes int64) {
		db, err := Open(t.Context(), filepath.Join(t.TempDir(), "jobs.sqlite"), opt)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		jobdbtest.Fill(t, db, 3_000)
		err = raw(db.conn, func(c *sqlite3.Conn) error {
			bytes, _, err = c.Status(sqlite3.DBSTATUS_CACHE_USED, false)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	const limit = 1 << 20
	if got := cached(Options{CacheBytes: limit}); got > limit*5/4 {
		t.Errorf("with CacheBytes %d, the cache has %d bytes", limit, got)
	}
	if got := cached(Options{}); got < 2*limit {
		t.Errorf("by default, the cache has %d bytes: too few to show a limit", got)
	}
}
