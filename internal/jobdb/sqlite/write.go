package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// maxChunk is the maximum number of rows in one statement.
const maxChunk = 64

// tx is the only open transaction of a DB.
type tx struct {
	d         *DB
	partition int
	positions jobdb.Positions
	ended     bool
	args      []any
}

// Begin opens a transaction. There is only one at a time: others wait for it to end.
func (d *DB) Begin(ctx context.Context, partition int) (jobdb.Tx, error) {
	select {
	case d.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := d.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		<-d.busy
		return nil, classify(d.path, err)
	}
	t := &tx{d: d, partition: partition}
	if err := errors.Join(t.checkVersion(ctx), t.readPositions(ctx)); err != nil {
		return nil, errors.Join(classify(d.path, err), t.Rollback())
	}
	return t, nil
}

func (d *DB) exec(ctx context.Context, query string) error {
	s, err := d.stmt(ctx, stmtKey{what: query}, func() string { return query })
	if err != nil {
		return err
	}
	_, err = s.ExecContext(ctx)
	return err
}

// stmtKey identifies a statement: its purpose and its number of rows.
type stmtKey struct {
	what string
	n    int
}

// stmt prepares a statement once.
func (d *DB) stmt(ctx context.Context, key stmtKey, query func() string) (*sql.Stmt, error) {
	if s := d.stmts[key]; s != nil {
		return s, nil
	}
	s, err := d.conn.PrepareContext(ctx, query())
	if err == nil {
		d.stmts[key] = s
	}
	return s, err
}

// checkVersion refuses a database that a newer program has migrated since it was opened: what that keeps beside the rows, this one
// does not.
func (t *tx) checkVersion(ctx context.Context) error {
	s, err := t.d.stmt(ctx, stmtKey{what: "version"}, func() string { return "SELECT version FROM refloat_schema" })
	if err != nil {
		return err
	}
	var version int
	if err := s.QueryRowContext(ctx).Scan(&version); err != nil {
		return err
	}
	return known(version)
}

func (t *tx) readPositions(ctx context.Context) error {
	s, err := t.d.stmt(ctx, stmtKey{what: "positions"}, func() string {
		return "SELECT " + strings.Join(table.Positions.Columns, ", ") + " FROM " + table.Positions.Name + " WHERE partition = ?"
	})
	if err != nil {
		return err
	}
	var row jobdb.PartitionPositions
	err = s.QueryRowContext(ctx, t.partition).Scan(targets(table.Positions.Fields(&row, nil))...)
	if errors.Is(err, sql.ErrNoRows) {
		t.positions = jobdb.Beginning
		return nil
	}
	t.positions = row.Positions
	return err
}

// Positions implements [jobdb.Tx].
func (t *tx) Positions() jobdb.Positions { return t.positions }

// Origin implements [jobdb.Tx].
func (t *tx) Origin(ctx context.Context) (at eventlog.Position, err error) {
	s, err := t.d.stmt(ctx, stmtKey{what: "origin"}, func() string { return fmt.Sprintf(table.OriginQuery, "", "?") })
	if err == nil {
		err = s.QueryRowContext(ctx, t.partition).Scan(&at.Ledger, &at.Entry, &at.Batch)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return eventlog.Start, nil
	}
	return at, classify(t.d.path, err)
}

// Write implements [jobdb.Tx].
func (t *tx) Write(ctx context.Context, c *jobdb.Changes) error {
	err := errors.Join(
		t.recount(ctx, c.Recounted, "-"),
		write(ctx, t, &table.Jobs, c.Jobs),
		write(ctx, t, &table.Runs, c.Runs),
		t.recount(ctx, c.Recounted, ""),
		write(ctx, t, &table.Decisions, c.Decisions),
		write(ctx, t, &table.Counts, table.CountsOf(c)),
		write(ctx, t, &table.Days, table.DaysOf(c.Costs)),
		write(ctx, t, &table.NotDecided, c.NotDecided),
		write(ctx, t, &table.Ready, c.Ready),
		write(ctx, t, &table.Parked, c.Parked),
		write(ctx, t, &table.Activations, c.Activations),
		write(ctx, t, &table.Releases, c.Releases),
		write(ctx, t, &table.Groups, c.Groups),
		write(ctx, t, &table.Units, c.Units),
		write(ctx, t, &table.GroupRecords, c.GroupRecords),
	)
	return classify(t.d.path, err)
}

// recount counts what was decided on runs by their nodes and categories, or uncounts it.
func (t *tx) recount(ctx context.Context, runs []jobdb.RunKey, sign string) error {
	for _, r := range runs {
		for n, query := range table.Recounted("", sign, "job_id = ? AND run_id = ? AND +partition = ?") {
			s, err := t.d.stmt(ctx, stmtKey{what: "recount " + sign, n: n}, func() string { return query })
			if err == nil {
				_, err = s.ExecContext(ctx, r.JobID, r.RunID, t.partition)
			}
			if err != nil {
				return fmt.Errorf("count by node: %w", err)
			}
		}
	}
	return nil
}

// write writes rows in chunks of decreasing powers of two, so that few statements need
// to be prepared.
func write[T any](ctx context.Context, t *tx, tab *table.Of[T], rows []*T) error {
	for n := maxChunk; len(rows) > 0; {
		if n > len(rows) {
			n /= 2
			continue
		}
		args := t.args[:0]
		for _, r := range rows[:n] {
			from := len(args)
			args = tab.Fields(r, args)
			for i := from; i < len(args); i++ {
				args[i] = table.Plain(args[i])
			}
		}
		t.args = args
		s, err := t.d.stmt(ctx, stmtKey{what: "write " + tab.Name, n: n}, func() string { return insert(tab, n) })
		if err == nil {
			_, err = s.ExecContext(ctx, args...)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", tab.Name, err)
		}
		rows = rows[n:]
	}
	return nil
}

// Conditions of lookups other than by id.
var (
	onSets     = fmt.Sprintf("queue = k.a AND job_set = k.b AND known = 1 AND state NOT BETWEEN %d AND %d", jobdb.JobSucceeded, jobdb.JobCancelled)
	onOpenRuns = fmt.Sprintf("job_id = k.a AND state NOT IN (%d, %d)", jobdb.RunSucceeded, jobdb.RunFailed)
)

// Load implements [jobdb.Tx].
func (t *tx) Load(ctx context.Context, keys jobdb.Keys) (*jobdb.Found, error) {
	found := &jobdb.Found{}
	var sets, runs [][]any
	for _, k := range keys.Sets {
		sets = append(sets, []any{k.Queue, k.JobSet})
	}
	for _, k := range keys.Runs {
		runs = append(runs, []any{k.JobID, k.RunID})
	}
	err := errors.Join(
		load(ctx, t, &table.Jobs, lookup{keys: single(keys.Jobs), on: "job_id = k.a"}, &found.Jobs),
		load(ctx, t, &table.Jobs, lookup{keys: sets, on: onSets}, &found.Jobs),
		load(ctx, t, &table.Runs, lookup{keys: runs, on: "job_id = k.a AND run_id = k.b"}, &found.Runs),
		load(ctx, t, &table.Runs, lookup{keys: single(keys.OpenRunsOf), on: onOpenRuns}, &found.Runs),
		load(ctx, t, &table.Groups, lookup{keys: single(keys.Groups), on: "group_id = k.a"}, &found.Groups),
		load(ctx, t, &table.Units, lookup{keys: single(keys.Units), on: "unit_id = k.a"}, &found.Units),
	)
	return found, classify(t.d.path, err)
}

func single(list []string) [][]any {
	out := make([][]any, len(list))
	for i, s := range list {
		out[i] = []any{s}
	}
	return out
}

// lookup finds rows by keys: for each key k, those that satisfy the condition.
type lookup struct {
	keys [][]any // of one or two columns, a and b
	on   string
}

func load[T any](ctx context.Context, t *tx, tab *table.Of[T], l lookup, into *[]T) error {
	keys := l.keys
	for n := maxChunk; len(keys) > 0; {
		if n > len(keys) {
			n /= 2
			continue
		}
		if err := loadChunk(ctx, t, tab, lookup{keys: keys[:n], on: l.on}, into); err != nil {
			return fmt.Errorf("load %s: %w", tab.Name, err)
		}
		keys = keys[n:]
	}
	return nil
}

func loadChunk[T any](ctx context.Context, t *tx, tab *table.Of[T], l lookup, into *[]T) error {
	s, err := t.d.stmt(ctx, stmtKey{what: l.on, n: len(l.keys)}, func() string {
		names, one := "a", "(?), "
		if len(l.keys[0]) == 2 {
			names, one = "a, b", "(?, ?), "
		}
		return fmt.Sprintf("WITH k(%s) AS (VALUES %s) SELECT %s FROM k CROSS JOIN %s ON partition = ? AND %s", names,
			strings.TrimSuffix(strings.Repeat(one, len(l.keys)), ", "), strings.Join(tab.Columns, ", "), tab.Name, l.on)
	})
	if err != nil {
		return err
	}
	args := t.args[:0]
	for _, k := range l.keys {
		args = append(args, k...)
	}
	t.args = append(args, t.partition)
	rows, err := s.QueryContext(ctx, t.args...)
	if err != nil {
		return err
	}
	var fields []any
	return each(rows, func() []any {
		*into = append(*into, *new(T))
		fields = tab.Fields(&(*into)[len(*into)-1], fields[:0])
		return fields
	}, func() error { return nil })
}

// Commit implements [jobdb.Tx].
func (t *tx) Commit(ctx context.Context, from, to jobdb.Positions) error {
	moved, err := t.move(ctx, from, to)
	if err == nil && !moved {
		err = jobdb.ErrMoved
	}
	if err == nil {
		err = t.d.exec(ctx, "COMMIT")
	}
	if err != nil {
		return errors.Join(classify(t.d.path, err), t.Rollback())
	}
	t.end()
	return nil
}

func (t *tx) move(ctx context.Context, from, to jobdb.Positions) (bool, error) {
	m := table.Moved(t.partition, from, to)
	key, args := stmtKey{what: "move"}, append(m.SetArgs, m.WhenArgs...)
	query := func() string {
		return "UPDATE " + table.Positions.Name + " SET " + strings.Join(m.Set, " = ?, ") + " = ? WHERE " + strings.Join(m.When, " = ? AND ") + " = ?"
	}
	if from == jobdb.Beginning { // the partition has no row yet
		key, args = stmtKey{what: "first move"}, append([]any{int64(t.partition)}, m.SetArgs...)
		query = func() string { return insert(&table.Positions, 1) + " ON CONFLICT DO NOTHING" }
	}
	s, err := t.d.stmt(ctx, key, query)
	if err != nil {
		return false, err
	}
	res, err := s.ExecContext(ctx, args...)
	if err != nil {
		return false, fmt.Errorf("move the position: %w", err)
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// Rollback implements [jobdb.Tx].
func (t *tx) Rollback() error {
	if t.ended {
		return nil
	}
	defer t.end()
	// Use a context of its own: a cancelled transaction must still be rolled back. An
	// error may have rolled it back already.
	err := t.d.exec(context.Background(), "ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	return classify(t.d.path, err)
}

func (t *tx) end() {
	if !t.ended {
		t.ended = true
		<-t.d.busy
	}
}
