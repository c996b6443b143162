package jobdb_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/jobdb/table"
	"github.com/refloat/refloat/internal/test/jobdbtest"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// measured is what one question costs at one size.
type measured struct {
	cost float64 // in SQLite milliseconds of processor time, in PostgreSQL pages that were looked at
	rows int     // that the answer has, or counts
}

// asker asks a database, and measures what that costs.
type asker interface {
	ask(t *testing.T, question func(jobdb.Queries) (rows int, err error)) measured
	close() error
}

// TestScale measures every list with every filter in every order, and counts, over as many decisions as each number in the
// variable DECISIONS says, in the databases of the variable JOBDB (sqlite postgres). It prints, of each filter, the order in
// which a page of 50 rows costs most, and how much more it costs in the next size.
func TestScale(t *testing.T) {
	sizes := strings.Fields(os.Getenv("DECISIONS"))
	if len(sizes) == 0 {
		t.Skip("DECISIONS is not set")
	}
	for kind := range strings.FieldsSeq(cmp.Or(os.Getenv("JOBDB"), "sqlite postgres")) {
		pages, lists := map[string][]measured{}, map[string][]measured{}
		for _, size := range sizes {
			n, err := strconv.Atoi(size)
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			db := filled(t, kind, n)
			t.Logf("%s: %d decisions are written in %v", kind, n, time.Since(begun).Round(time.Second))
			measurePages(t, db, n, pages)
			measureLists(t, db, n, lists)
			if err := db.close(); err != nil {
				t.Fatal(err)
			}
		}
		unit := map[string]string{"sqlite": "milliseconds of processor time", "postgres": "pages of 8 kB that are looked at"}[kind]
		printTable(kind+": a page of 50 rows, in "+unit, sizes, pages, func(m measured) float64 { return m.cost })
		printTable(kind+": whole lists and counts, for 1,000 rows that they have, in "+unit, sizes, lists, func(m measured) float64 {
			return 1000 * m.cost / float64(max(1, m.rows))
		})
	}
}

// filled is a job database with so many decisions.
func filled(t *testing.T, kind string, decisions int) asker {
	t.Helper()
	ctx := t.Context()
	if kind == "postgres" {
		at := pgtest.Database(t)
		db, err := postgres.Open(ctx, at, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		jobdbtest.Fill(t, db, decisions)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, "VACUUM ANALYZE"); err != nil { // as autovacuum does
			t.Fatal(err)
		}
		return &pages{conn: conn}
	}
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	jobdbtest.Fill(t, db, decisions)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := sqlite.OpenReader(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	return processor{reader}
}

// processor measures the time of the processor.
type processor struct{ jobdb.Reader }

func (p processor) close() error { return p.Close() }

// ask takes the least of three times, or the first if that is long.
func (p processor) ask(t *testing.T, question func(jobdb.Queries) (int, error)) (m measured) {
	t.Helper()
	m.cost = math.Inf(1)
	for range 3 {
		begun := cpu(t)
		if err := p.View(t.Context(), func(q jobdb.Queries) (err error) {
			m.rows, err = question(q)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if m.cost = min(m.cost, cpu(t)-begun); m.cost > 1000 {
			break
		}
	}
	return m
}

// cpu is the processor time of this process, in milliseconds.
func cpu(t *testing.T) float64 {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e6
}

// pages measures how many pages PostgreSQL looks at, in memory or on disk. It is a Source that runs each query with EXPLAIN,
// and finds as many empty rows as that says.
type pages struct {
	conn    *pgx.Conn
	ctx     context.Context
	scanned float64
}

func (p *pages) close() error { return p.conn.Close(context.Background()) }

func (p *pages) ask(t *testing.T, question func(jobdb.Queries) (int, error)) (m measured) {
	t.Helper()
	p.ctx, p.scanned = t.Context(), 0
	var err error
	if m.rows, err = question(table.Queries{Source: p}); err != nil {
		t.Fatal(err)
	}
	m.cost = p.scanned
	return m
}

// Find implements table.Source.
func (p *pages) Find(q table.Query, fields func() []any, found func() error) error {
	query := q.SQL("refloat_", "")
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(n), 1)
	}
	var raw []byte
	if _, err := p.conn.Exec(p.ctx, fmt.Sprintf("SET enable_seqscan TO %v; SET enable_bitmapscan TO %[1]v", !q.Index)); err != nil {
		return err
	}
	if err := p.conn.QueryRow(p.ctx, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "+query, q.Args...).Scan(&raw); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	var plans []struct {
		Plan struct {
			Rows float64 `json:"Actual Rows"`
			Hit  float64 `json:"Shared Hit Blocks"`
			Read float64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(raw, &plans); err != nil {
		return err
	}
	p.scanned += plans[0].Plan.Hit + plans[0].Plan.Read
	if !q.Rows { // places and counts
		rows, err := p.conn.Query(p.ctx, query, q.Args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := errors.Join(rows.Scan(fields()...), found()); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	for range int(plans[0].Plan.Rows) {
		fields()
		if err := found(); err != nil {
			return err
		}
	}
	return nil
}

func measurePages(t *testing.T, db asker, decisions int, into map[string][]measured) {
	t.Helper()
	filters := append([]jobdbtest.Filter{{Field: "no filter", Set: func(string, *jobdb.Criteria) {}}}, jobdbtest.Filters(t, decisions)...)
	for list, sorts := range jobdbtest.Lists {
		for _, f := range filters {
			if !applies(list, f.Field) {
				continue
			}
			for _, sort := range sorts {
				for _, down := range []bool{false, true} {
					var c jobdb.Criteria
					f.Set(list, &c)
					p := jobdb.Page{Sort: sort, Descending: down, Limit: 50}
					order := map[bool]string{true: "-"}[down] + sort
					key := fmt.Sprintf("%s | %s | %s", list, strings.TrimSpace(f.Field+" "+f.Value), order)
					into[key] = append(into[key], db.ask(t, func(q jobdb.Queries) (int, error) {
						n, _, err := jobdbtest.List(q, list, &c, p)
						return n, err
					}))
				}
			}
		}
	}
}

// applies reports whether a filter has an effect on a list.
func applies(list, field string) bool {
	switch list {
	case "runs":
		return field != "Waiting" && field != "EndedSince"
	case "decisions":
		return field != "States" && field != "Waiting" && field != "EndedSince"
	case "groups":
		return slices.Contains([]string{"no filter", "Queue", "JobSet", "Group", "States", "Policy", "Rule"}, field)
	}
	return true
}

func measureLists(t *testing.T, db asker, decisions int, into map[string][]measured) {
	t.Helper()
	for _, f := range jobdbtest.Filters(t, decisions) {
		var c jobdb.Criteria
		f.Set("jobs", &c)
		add := func(what string, question func(jobdb.Queries) (int, error)) {
			key := what + " | " + f.Field + " " + f.Value
			into[key] = append(into[key], db.ask(t, question))
		}
		for list := range jobdbtest.Lists {
			if field := f.Field; applies(list, field) && (field == "Rule" || field == "Queue" || field == "Node" || field == "JobSet") && list != "groups" {
				add(list, func(q jobdb.Queries) (int, error) {
					n, _, err := jobdbtest.List(q, list, &c, jobdb.Page{})
					return n, err
				})
			}
		}
		if applies("decisions", f.Field) {
			add("counts of decisions", func(q jobdb.Queries) (n int, err error) {
				counts, err := q.CountDecisions(&c)
				for i := range counts {
					n += int(counts[i].Count)
				}
				return n, err
			})
			add("top by node", func(q jobdb.Queries) (n int, err error) {
				top, err := q.Top("node", &c, 0, true)
				for i := range top {
					n += int(top[i].Retries + top[i].Failures)
				}
				return n, err
			})
		}
		if applies("jobs", f.Field) {
			add("count of jobs", func(q jobdb.Queries) (int, error) {
				n, err := q.CountJobs(&c)
				return int(n), err
			})
		}
	}
}

// printTable prints a table. Of questions that differ in their last part only, it has the one that costs most.
func printTable(title string, sizes []string, all map[string][]measured, number func(measured) float64) {
	fmt.Printf("\n%s\n\n| what | by | dearest order |", title)
	for i, size := range sizes {
		fmt.Printf(" %s |", size)
		if i > 0 {
			fmt.Print(" growth |")
		}
	}
	fmt.Println(" rows |")
	dearest := map[string]string{}
	for key, m := range all {
		what := key
		if parts := strings.Split(key, " | "); len(parts) == 3 {
			what = parts[0] + " | " + parts[1]
		}
		if was, ok := dearest[what]; !ok || all[was][len(sizes)-1].cost < m[len(sizes)-1].cost {
			dearest[what] = key
		}
	}
	keys := make([]string, 0, len(dearest))
	for what := range dearest {
		keys = append(keys, what)
	}
	slices.Sort(keys)
	for _, what := range keys {
		key := dearest[what]
		if strings.Count(key, " | ") == 1 {
			key += " | "
		}
		fmt.Printf("| %s |", key)
		for i, m := range all[dearest[what]] {
			fmt.Printf(" %.3g |", number(m))
			if i > 0 {
				fmt.Printf(" %.1f |", number(m)/max(0.001, number(all[dearest[what]][i-1])))
			}
		}
		fmt.Printf(" %d |\n", all[dearest[what]][len(sizes)-1].rows)
	}
}
