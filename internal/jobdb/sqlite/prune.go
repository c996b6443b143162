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
	q.Alone("", which)
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
func (t *tx) Delete(ctx context.Context, jobs, groups []string) (rows int, err error) {
	if _, err = t.deleteBy(ctx, table.Uncounted("", ofJobs), jobs, func(statement string, n int) string {
		return fmt.Sprintf(statement, marks(n))
	}); err != nil {
		return 0, err
	}
	rows, err = t.deleteBy(ctx, table.OfJobs, jobs, deleteQuery)
	if err != nil {
		return rows, err
	}
	more, err := t.deleteBy(ctx, table.OfGroups, groups, deleteGroupQuery)
	return rows + more, err
}

// deleteBy deletes the rows of ids from tables, or runs other queries about these ids.
func (t *tx) deleteBy(ctx context.Context, tables, jobs []string, query func(name string, n int) string) (rows int, err error) {
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
		for _, name := range tables {
			deleted, err := t.delete(ctx, query(name, n), n)
			if err != nil {
				return rows, classify(t.d.path, fmt.Errorf("delete from %s: %w", name, err))
			}
			rows += deleted
		}
		jobs = jobs[n:]
	}
	return rows, nil
}

func (t *tx) delete(ctx context.Context, query string, n int) (int, error) {
	s, err := t.d.stmt(ctx, stmtKey{what: query, n: n}, func() string { return query })
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

// ofJobs selects the rows of jobs. The plus keeps SQLite from scanning all rows of the partition by another index.
const ofJobs = "job_id IN (%s) AND +partition = ?"

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// deleteQuery deletes the rows of n jobs.
func deleteQuery(name string, n int) string {
	return fmt.Sprintf("DELETE FROM %s WHERE "+ofJobs, name, marks(n))
}

// deleteGroupQuery deletes the rows of n groups that have lost their last member.
func deleteGroupQuery(name string, n int) string {
	return fmt.Sprintf("DELETE FROM %s WHERE group_id IN (%s) AND +partition = ? AND %s", name, marks(n), table.EmptyGroup("", name))
}
