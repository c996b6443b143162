package sqlite

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/test/jobdbtest"
)

// BenchmarkWrite writes as many jobs with a failed run and a decision as the variable DECISIONS says (20,000), 200 in a transaction. It
// reports the processor time and the bytes that each takes.
func BenchmarkWrite(b *testing.B) {
	const atOnce = 200
	n, err := strconv.Atoi(cmp.Or(os.Getenv("DECISIONS"), "20000"))
	if err != nil {
		b.Fatal(err)
	}
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	for b.Loop() {
		path := filepath.Join(b.TempDir(), "jobs.db")
		db, err := Open(b.Context(), path, Options{})
		if err != nil {
			b.Fatal(err)
		}
		before := used()
		for first := 0; first < n; first += atOnce {
			tx, err := db.Begin(b.Context(), 0)
			if err != nil {
				b.Fatal(err)
			}
			from, c := tx.Positions(), &jobdb.Changes{}
			to := from
			to.Chain.Seq++
			to.Chain.InTo = eventlog.Position{Ledger: 1, Entry: int64(to.Chain.Seq)}
			for i := first; i < min(n, first+atOnce); i++ {
				jobdbtest.AddDecided(c, to.Chain.Seq, i)
			}
			if err := tx.Write(b.Context(), c); err != nil {
				b.Fatal(err)
			}
			if err := tx.Commit(b.Context(), from, to); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(used()-before)/float64(n)/1000, "cpu-µs/job")
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
		file, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(file.Size())/float64(n), "B/job")
		b.ReportMetric(0, "ns/op")
	}
}
