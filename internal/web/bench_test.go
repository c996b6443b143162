package web_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/jobdbtest"
	"github.com/refloat/refloat/internal/test/pgtest"
	"github.com/refloat/refloat/internal/web"
)

// BenchmarkFirstByte asks for pages over as many decisions as the variable DECISIONS
// says (100,000), in SQLite or, with JOBDB=postgres, in PostgreSQL, by turns with a bare
// handler that reads the same rows through jobdb.Queries. It reports the median times until the answer begins, and the
// median of their ratios.
func BenchmarkFirstByte(b *testing.B) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("DECISIONS"), "100000"))
	if err != nil {
		b.Fatal(err)
	}
	reader := manyDecisions(b, n)
	page := newSmall(b, func(c *web.Config) { c.Query.Jobs = reader.View })
	counts := func(q jobdb.Queries, _ func(string)) error { _, err := q.Counted(nil); return err }
	decisions := func(rows int, c jobdb.Criteria) bareRead {
		return func(q jobdb.Queries, put func(string)) error {
			_, err := q.DecisionList(&c, jobdb.Page{Sort: "time", Descending: true, Limit: rows}, func(d *jobdb.Decision) error { put(d.JobID); return nil })
			return err
		}
	}
	jobs := func(sort string, c jobdb.Criteria) bareRead {
		return func(q jobdb.Queries, put func(string)) error {
			_, err := q.JobList(&c, jobdb.Page{Sort: sort, Descending: true, Limit: pageRows}, func(j *jobdb.Job) error { put(j.JobID); return nil })
			return err
		}
	}
	for _, x := range []struct {
		name, path string
		read       []bareRead
	}{
		{"start", "/", []bareRead{counts, decisions(12, jobdb.Criteria{})}},
		{"decisions", "/decisions", []bareRead{decisions(pageRows, jobdb.Criteria{})}},
		{"decisions of a queue", "/decisions?queue=queue3", []bareRead{decisions(pageRows, jobdb.Criteria{Queue: "queue3"})}},
		{"decisions of a rule", "/decisions?policy=p&rule=rule1", []bareRead{decisions(pageRows, jobdb.Criteria{Policy: "p", Rule: "rule1"})}},
		{"decisions of a code", "/decisions?code=RuleFail", []bareRead{decisions(pageRows, jobdb.Criteria{Codes: []policy.Code{policy.RuleFail}})}},
		{"jobs", "/jobs?sort=-submitted", []bareRead{jobs("submitted", jobdb.Criteria{})}},
		{"jobs by runs", "/jobs?sort=-runs", []bareRead{jobs("runs", jobdb.Criteria{})}},
		{"jobs of a queue by end", "/jobs?queue=queue3&sort=-ended", []bareRead{jobs("ended", jobdb.Criteria{Queue: "queue3"})}},
		{"runs", "/runs?sort=-leased", []bareRead{func(q jobdb.Queries, put func(string)) error {
			_, err := q.RunList(&jobdb.Criteria{}, jobdb.Page{Sort: "leased", Descending: true, Limit: pageRows}, func(r *jobdb.Run) error { put(r.RunID); return nil })
			return err
		}}},
		{"runs of a node, with its chart", "/runs?node=node7", []bareRead{func(q jobdb.Queries, put func(string)) error {
			_, err := q.RunList(&jobdb.Criteria{Node: "node7"}, jobdb.Page{Sort: "leased", Descending: true, Limit: pageRows}, func(r *jobdb.Run) error { put(r.RunID); return nil })
			return err
		}}},
	} {
		bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, read := range x.read {
				if err := reader.View(r.Context(), func(q jobdb.Queries) error {
					return read(q, func(id string) { _, _ = fmt.Fprintln(w, id) })
				}); err != nil {
					panic(err)
				}
			}
		}))
		b.Run(x.name, func(b *testing.B) {
			var pages, bares, ratios []float64
			for b.Loop() {
				a, c := firstByte(b, page.URL+x.path), firstByte(b, bare.URL)
				pages, bares, ratios = append(pages, a), append(bares, c), append(ratios, a/c)
			}
			for unit, of := range map[string][]float64{"page-ms": pages, "bare-ms": bares, "ratio": ratios} {
				slices.Sort(of)
				b.ReportMetric(of[len(of)/2], unit)
			}
		})
		bare.Close()
	}
}

// BenchmarkViews asks for views that count or find, over as many decisions as the variable DECISIONS says, as
// BenchmarkFirstByte does. It reports the median and the 95th percentile of the time until the last byte.
func BenchmarkViews(b *testing.B) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("DECISIONS"), "100000"))
	if err != nil {
		b.Fatal(err)
	}
	reader := manyDecisions(b, n)
	page := newSmall(b, func(c *web.Config) { c.Query.Jobs = reader.View })
	for _, path := range []string{
		"/", "/decisions", "/decisions?category=none", "/jobs", "/jobs?queue=queue3&state=Failed", "/runs", "/runs?node=node7", "/groups", "/job?id=job00000000",
		"/explain?id=job00000000&run=0", "/jobs?queue=queue3&set=set&state=Failed&sort=-ended", "/queue?name=queue3", "/queue?name=queue3&since=2026-11-05T10:20:00Z",
		"/queue?name=queue3&set=set", "/queue?name=queue3&set=set&since=2026-11-05T10:20:00Z", "/queue?name=queue7&set=set7",
		"/top?by=queue", "/top?by=rule", "/top?by=node", "/top?by=set", "/top?by=category", "/top?by=queue&rule=rule1", "/top?by=queue&since=2026-11-05T10:20:00Z",
		"/top?by=node&since=2026-11-05T10:20:00Z", "/top?by=set&since=2026-11-05T10:20:00Z", "/top?by=category&since=2026-11-05T10:20:00Z&until=2026-11-08T20:10:00Z",
		"/top?by=set&rule=rule1", "/top?by=node&queue=queue3", "/top?by=node&rule=rule1", "/top?by=category&rule=rule1",
		"/search?q=queue3", "/search?q=job0000", "/search?q=nosuchthing", "/shadow", "/partitions", "/names?queue=q",
	} {
		b.Run(path, func(b *testing.B) {
			var took []float64
			for b.Loop() {
				begun := time.Now()
				resp, err := http.Get(page.URL + path)
				if err != nil {
					b.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.Body.Close() != nil {
					b.Fatal(err)
				}
				if resp.StatusCode != http.StatusOK {
					b.Skipf("%s: %.200s", resp.Status, body)
				}
				took = append(took, float64(time.Since(begun).Microseconds())/1000)
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "ms/view")
			b.ReportMetric(took[len(took)*95/100], "p95-ms")
		})
	}
}

// pageRows is the number of rows of a page's list.
const pageRows = 50

// bareRead reads rows, and puts out their ids.
type bareRead func(q jobdb.Queries, put func(string)) error

// firstByte is the time in milliseconds until an answer begins.
func firstByte(b *testing.B, url string) float64 {
	b.Helper()
	begun := time.Now()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	took := time.Since(begun)
	if resp.StatusCode != http.StatusOK {
		b.Fatalf("%s: %s", url, resp.Status)
	}
	_ = resp.Body.Close()
	return float64(took.Microseconds()) / 1000
}

// manyDecisions is a job database with n jobs, each with a run and a decision.
func manyDecisions(b *testing.B, n int) app.JobDBReader {
	b.Helper()
	ctx, at := context.Background(), "sqlite://"+filepath.Join(b.TempDir(), "jobs.db")
	if os.Getenv("JOBDB") == "postgres" {
		at = pgtest.Database(b)
	}
	db, err := app.OpenJobDB(ctx, at)
	if err != nil {
		b.Fatal(err)
	}
	const atOnce = 10_000
	for first := 0; first < n; first += atOnce {
		tx, err := db.Begin(ctx, 0)
		if err != nil {
			b.Fatal(err)
		}
		from := tx.Positions()
		to := from
		to.Chain.Seq++
		to.Chain.InTo = eventlog.Position{Ledger: 1, Entry: int64(to.Chain.Seq)}
		c := &jobdb.Changes{}
		for i := first; i < min(n, first+atOnce); i++ {
			jobdbtest.AddDecided(c, to.Chain.Seq, i)
		}
		if err := tx.Write(ctx, c); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(ctx, from, to); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	reader, err := app.ReadJobDB(ctx, at)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = reader.Close() })
	return reader
}
