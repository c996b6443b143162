package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// Clock implements [jobdb.Pruning].
func (t *Tx) Clock(ctx context.Context) (c jobdb.Clock, err error) {
	err = t.tx.QueryRow(ctx, fmt.Sprintf(table.LastEndQuery, "refloat_", "$1"), t.partition).Scan(&c.LastEnd)
	if err == nil {
		err = t.tx.QueryRow(ctx, fmt.Sprintf(table.HorizonQuery, "refloat_", "$1"), t.partition).Scan(&c.HorizonMS)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return c, t.failed("read the last end of a job", err)
}

// noRetry holds for jobs without a pending retry.
const noRetry = "NOT EXISTS (SELECT FROM refloat_waits w WHERE w.partition = refloat_jobs.partition AND w.job_id = refloat_jobs.job_id)"

// Candidates implements [jobdb.Pruning].
func (t *Tx) Candidates(ctx context.Context, which jobdb.Candidates) ([]jobdb.Job, error) {
	q := table.Candidates(t.partition, which)
	q.Where = append(q.Where, noRetry)
	q.Alone("refloat_", which)
	args := make([]any, len(q.Args))
	for i, a := range q.Args {
		if text, ok := a.(string); ok {
			a, _ = key(text)
		}
		args[i] = a
	}
	var found []jobdb.Job
	rows, err := t.tx.Query(ctx, numbered("SELECT "+strings.Join(stored(q.Columns), ", ")+" FROM refloat_"+q.From+q.Conditions()+q.Rest), args...)
	if err == nil {
		err = collect(&table.Jobs, &found)(rows)
	}
	return found, t.failed("find jobs to prune", err)
}

// Delete implements [jobdb.Pruning].
func (t *Tx) Delete(ctx context.Context, jobs, groups []string) (rows int, err error) {
	const ofJobs = "job_id = ANY($1) AND partition = $2"
	b := &pgx.Batch{}
	uncounted := table.Uncounted("refloat_", ofJobs)
	for _, statement := range uncounted {
		b.Queue(statement, names(jobs), t.partition)
	}
	for _, name := range table.OfJobs {
		b.Queue("DELETE FROM refloat_"+name+" WHERE "+ofJobs, names(jobs), t.partition)
	}
	for _, name := range table.OfGroups {
		b.Queue("DELETE FROM refloat_"+name+" WHERE group_id = ANY($1) AND partition = $2 AND "+table.EmptyGroup("refloat_", name), names(groups), t.partition)
	}
	n := b.Len()
	results := t.tx.SendBatch(ctx, b)
	for i := range n {
		tag, failed := results.Exec()
		err = errors.Join(err, failed)
		if i >= len(uncounted) {
			rows += int(tag.RowsAffected())
		}
	}
	return rows, t.failed("delete jobs", errors.Join(err, results.Close()))
}
