package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// Clock implements [jobdb.Pruning].
func (t *tx) Clock(ctx context.Context) (c jobdb.Clock, err error) {
	if err = t.one(ctx, fmt.Sprintf(table.LastEndQuery, "", "?"), &c.LastEnd); err == nil {
		err = t.one(ctx, fmt.Sprintf(table.HorizonQuery, "", "?"), &c.HorizonMS)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return c, classify(t.d.path, err)
}

// one reads one row of a query about the partition.
func (t *tx) one(ctx context.Context, query string, to any) error {
	s, err := t.d.stmt(ctx, stmtKey{what: query}, func() string { return query })
	if err != nil {
		return err
	}
	return s.QueryRowContext(ctx, t.partition).Scan(to)
}

// Candidates implements [jobdb.Pruning].
func (t *tx) Candidates(ctx context.Context, which jobdb.Candidates) ([]jobdb.Job, error) {
	q := table.Candidates(t.partition, which)
	query := "SELECT " + strings.Join(q.Columns, ", ") + " FROM " + q.From + q.Conditions() + q.Rest
	s, err := t.d.stmt(ctx, stmtKey{what: query}, func() string { return query })
	if err != nil {
		return nil, classify(t.d.path, err)
	}
	rows, err := s.QueryContext(ctx, q.Args...)
	if err != nil {
		return nil, classify(t.d.path, err)
	}
	var found []jobdb.Job
	err = each(rows, func() []any {
		found = append(found, jobdb.Job{})
		return table.Jobs.Fields(&found[len(found)-1], nil)
	}, func() error { return nil })
	return found, classify(t.d.path, err)
}

// Delete implements [jobdb.Pruning].
func (t *tx) Delete(ctx context.Context, jobs []string) (rows int, err error) {
	for n := maxChunk; len(jobs) > 0; {
		if n > len(jobs) {
			n /= 2
			continue
		}
		args := t.args[:0]
		for _, id := range jobs[:n] {
			args = append(args, id)
		}
		t.args = append(args, t.partition)
		for _, name := range table.OfJobs {
			deleted, err := t.delete(ctx, name, n)
			if err != nil {
				return rows, classify(t.d.path, fmt.Errorf("delete from %s: %w", name, err))
			}
			rows += deleted
		}
		jobs = jobs[n:]
	}
	return rows, nil
}

func (t *tx) delete(ctx context.Context, name string, n int) (int, error) {
	s, err := t.d.stmt(ctx, stmtKey{what: "delete " + name, n: n}, func() string { return deleteQuery(name, n) })
	if err != nil {
		return 0, err
	}
	done, err := s.ExecContext(ctx, t.args...)
	if err != nil {
		return 0, err
	}
	deleted, err := done.RowsAffected()
	return int(deleted), err
}

// deleteQuery deletes the rows of n jobs. The plus keeps SQLite from scanning all rows of
// the partition by another index.
func deleteQuery(name string, n int) string {
	return fmt.Sprintf("DELETE FROM %s WHERE job_id IN (%s) AND +partition = ?", name, strings.TrimSuffix(strings.Repeat("?, ", n), ", "))
}
