package app

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/time/rate"

	"github.com/refloat/refloat/internal/projection"
)

// TestScrubUnfinishedTable: a table that is still being written is not damaged; one
// that stays cut off is.
func TestScrubUnfinishedTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := pebble.Open(dir, &pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("key"), make([]byte, 4096), pebble.Sync), db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no table was written: %v", err)
	}
	whole, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	metrics, path := NewMetrics(time.Now), filepath.Join(t.TempDir(), "000007.sst")
	s := &scrubber{
		node:  &node{Config: Config{Now: time.Now}, metrics: metrics},
		limit: rate.NewLimiter(rate.Inf, 1<<20), done: map[string]string{}, kept: time.Now(),
	}
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(whole[:len(whole)/2])
	checked := make(chan error, 1)
	go func() { checked <- s.table(t.Context(), path) }()
	write(whole)
	if err := <-checked; err != nil {
		t.Errorf("a table that was being written: %v", err)
	}
	write(whole[:len(whole)/2])
	if err := s.table(t.Context(), path); !errors.Is(err, projection.ErrCorrupt) {
		t.Errorf("a table that was cut off: %v, want %v", err, projection.ErrCorrupt)
	}
}
