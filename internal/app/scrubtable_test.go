package app

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/time/rate"

	"github.com/refloat/refloat/internal/jobdb"
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
	metrics, path := NewMetrics(time.Now, 10), filepath.Join(t.TempDir(), "000007.sst")
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

// TestScrubBeforeIngester: damage that is found before the ingester uses the job database shows in /readyz at once, and
// is there for the ingester.
func TestScrubBeforeIngester(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	c := Config{Data: Dir(t.TempDir()), Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)}
	db, err := OpenJobDB(t.Context(), c.Data.JobDBURL())
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(c.Data.JobDB())
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-100] ^= 4
	if err := os.WriteFile(c.Data.JobDB(), b, 0o600); err != nil {
		t.Fatal(err)
	}
	n := &node{Config: c, metrics: NewMetrics(c.Now, 10)}
	s := &scrubber{node: n, limit: rate.NewLimiter(rate.Inf, 1<<20), done: map[string]string{}, kept: now}
	if err := s.jobs(t.Context(), c.Data.JobDB()); err != nil {
		t.Fatal(err)
	}
	now = now.Add(failingFor)
	if lines, ready := n.metrics.health.failing(); ready || len(lines) != 1 || !strings.HasPrefix(lines[0], "job database: since ") {
		t.Errorf("/readyz with damage: ready %t, %q", ready, lines)
	}
	err = n.ingestOnce(t.Context())
	if !errors.Is(err, jobdb.ErrDamaged) {
		t.Fatalf("the ingester starts on a damaged database: %v", err)
	}
	if err := n.rebuildJobDB(t.Context(), err); err != nil {
		t.Fatal(err)
	}
	if lines, ready := n.metrics.health.failing(); !ready || len(lines) != 0 {
		t.Errorf("/readyz after it was set aside: ready %t, %q", ready, lines)
	}
	if err := n.suspectJobDB.use(func(error) {}); err != nil {
		t.Errorf("after it was set aside: %v", err)
	}
}
