package sink_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
)

// bare writes rows by the driver alone: multi-row upserts, 64 rows a statement,
// prepared once, the values at hand, one transaction per batch.
type bare struct {
	b       *testing.B
	db      *sql.DB // to read from
	columns map[string][]string
	batches [][]bareRow
}

type bareRow struct {
	table  string
	values []any
}

// The keys that rows are replaced under.
var bareKeys = map[string][]string{"jobs": {"job_id", "partition"}, "runs": {"job_id", "run_id", "partition"}, "decisions": {"partition", "number"}}

func (w *bare) reading(path string) *bare {
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	if err != nil {
		w.b.Fatal(err)
	}
	w.b.Cleanup(func() { _ = db.Close() })
	w.db, w.columns = db, map[string][]string{}
	return w
}

// note reads back the rows of a transaction.
func (w *bare) note(c *jobdb.Changes) {
	var batch []bareRow
	for _, j := range c.Jobs {
		batch = append(batch, w.read("jobs", "job_id = ?", j.JobID))
	}
	for _, r := range c.Runs {
		batch = append(batch, w.read("runs", "job_id = ? AND run_id = ?", r.JobID, r.RunID))
	}
	for _, d := range c.Decisions {
		batch = append(batch, w.read("decisions", "number = ?", int64(d.Number)))
	}
	w.batches = append(w.batches, batch)
}

func (w *bare) read(table, where string, args ...any) bareRow {
	if w.columns[table] == nil { // those that are not generated
		var names string
		if err := w.db.QueryRow("SELECT group_concat(name) FROM pragma_table_info(?)", table).Scan(&names); err != nil {
			w.b.Fatal(err)
		}
		w.columns[table] = strings.Split(names, ",")
	}
	values, targets := make([]any, len(w.columns[table])), make([]any, len(w.columns[table]))
	for i := range values {
		targets[i] = &values[i]
	}
	if err := w.db.QueryRow("SELECT "+strings.Join(w.columns[table], ", ")+" FROM "+table+" WHERE "+where, args...).Scan(targets...); err != nil {
		w.b.Fatal("a row that was written is not there: ", err)
	}
	return bareRow{table: table, values: values}
}

// write writes all batches into a new database of the same schema.
func (w *bare) write() time.Duration {
	path := filepath.Join(w.b.TempDir(), "jobs.db")
	made, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err == nil {
		err = made.Close()
	}
	if err != nil {
		w.b.Fatal(err)
	}
	db, err := sql.Open("sqlite3", "file:"+path+"?_pragma=synchronous(FULL)&_pragma=cache_size(-65536)&_pragma=wal_autocheckpoint(4000)&_txlock=immediate")
	if err != nil {
		w.b.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(context.Background())
	if err != nil {
		w.b.Fatal(err)
	}
	defer conn.Close()
	stmts := map[string]*sql.Stmt{}
	start := time.Now()
	for _, batch := range w.batches {
		w.exec(conn, stmts, "BEGIN IMMEDIATE", nil)
		for len(batch) > 0 {
			n := 64
			for n > len(batch) || batch[n-1].table != batch[0].table {
				n /= 2
			}
			w.insert(conn, stmts, batch[:n])
			batch = batch[n:]
		}
		w.exec(conn, stmts, "COMMIT", nil)
	}
	return time.Since(start)
}

func (w *bare) insert(conn *sql.Conn, stmts map[string]*sql.Stmt, rows []bareRow) {
	table := rows[0].table
	args := make([]any, 0, len(rows)*len(rows[0].values))
	for _, r := range rows {
		args = append(args, r.values...)
	}
	key := table + strings.Repeat("+", len(rows))
	if stmts[key] == nil {
		stmts[key] = w.prepare(conn, w.upsert(table, len(rows)))
	}
	w.exec(conn, stmts, key, args)
}

func (w *bare) prepare(conn *sql.Conn, query string) *sql.Stmt {
	s, err := conn.PrepareContext(context.Background(), query)
	if err != nil {
		w.b.Fatal(err)
	}
	return s
}

func (w *bare) exec(conn *sql.Conn, stmts map[string]*sql.Stmt, key string, args []any) {
	if stmts[key] == nil {
		stmts[key] = w.prepare(conn, key)
	}
	if _, err := stmts[key].Exec(args...); err != nil {
		w.b.Fatal(err)
	}
}

func (w *bare) upsert(table string, n int) string {
	var set []string
	for _, c := range w.columns[table] {
		if !slices.Contains(bareKeys[table], c) {
			set = append(set, c+" = excluded."+c)
		}
	}
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(w.columns[table])), ", ") + ")"
	return "INSERT INTO " + table + " (" + strings.Join(w.columns[table], ", ") + ") VALUES " + strings.TrimSuffix(strings.Repeat(row+", ", n), ", ") +
		" ON CONFLICT (" + strings.Join(bareKeys[table], ", ") + ") DO UPDATE SET " + strings.Join(set, ", ")
}
