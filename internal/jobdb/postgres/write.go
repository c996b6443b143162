package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// Tx is one transaction on one partition.
type Tx struct {
	db        *DB
	tx        pgx.Tx
	partition int
	positions jobdb.Positions
}

// Begin opens a transaction and locks the partition's row. Another transaction on the
// partition waits for the lock, at most Options.Wait.
func (d *DB) Begin(ctx context.Context, partition int) (jobdb.Tx, error) {
	tx, err := d.begin(ctx)
	if err != nil {
		return nil, d.failed(fmt.Errorf("begin: %w", err), nil)
	}
	t := &Tx{db: d, tx: tx, partition: partition}
	if err := t.lock(ctx); err != nil {
		return nil, errors.Join(t.failed("lock the partition's position", err), t.Rollback())
	}
	return t, nil
}

// BeginPlain opens a transaction on no partition, for other tables of the database. The
// caller ends it. Its errors are not classified.
func (d *DB) BeginPlain(ctx context.Context) (pgx.Tx, error) {
	tx, err := d.begin(ctx)
	if err != nil {
		return nil, d.address.classify(fmt.Errorf("begin: %w", err), nil)
	}
	return tx, nil
}

// lock reads and locks the partition's position, and inserts it if there is none. Of
// two concurrent inserts, one waits for the other.
func (t *Tx) lock(ctx context.Context) error {
	err := t.lockRow(ctx)
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	row := &jobdb.PartitionPositions{Partition: t.partition, Positions: jobdb.Beginning}
	columns, _ := arrays(&table.Positions, []*jobdb.PartitionPositions{row}, 1)
	if _, err := t.tx.Exec(ctx, insert(&table.Positions, columns)+" ON CONFLICT DO NOTHING", args(columns)...); err != nil {
		return err
	}
	return t.lockRow(ctx)
}

const lockQuery = " FROM refloat_positions WHERE partition = $1 FOR UPDATE"

func (t *Tx) lockRow(ctx context.Context) error {
	var row jobdb.PartitionPositions
	var version int
	var givenBack *int64
	query := "SELECT " + strings.Join(table.Positions.Columns, ", ") + ", given_back, (SELECT version FROM refloat_schema)" + lockQuery
	err := t.tx.QueryRow(ctx, query, t.partition).Scan(append(targets(table.Positions.Fields(&row, nil)), &givenBack, &version)...)
	switch {
	case err != nil:
	case version > len(migrations):
		err = newer(version)
	case givenBack != nil:
		err = fmt.Errorf("%w at %s: to take over again, stop Armada's ingester and run `refloatctl cutover start`",
			jobdb.ErrRolledBack, time.Unix(0, *givenBack).UTC().Format(time.RFC3339))
	}
	t.positions = row.Positions
	return err
}

// Positions implements [jobdb.Tx].
func (t *Tx) Positions() jobdb.Positions { return t.positions }

// Origin implements [jobdb.Tx].
func (t *Tx) Origin(ctx context.Context) (at eventlog.Position, err error) {
	err = t.tx.QueryRow(ctx, fmt.Sprintf(table.OriginQuery, "refloat_", "$1"), t.partition).Scan(&at.Ledger, &at.Entry, &at.Batch)
	if errors.Is(err, pgx.ErrNoRows) {
		return eventlog.Start, nil
	}
	return at, t.failed("read where the rows start", err)
}

// Conn returns the transaction, for writing other tables in it. Callers must not end
// it. Its errors are not classified.
func (t *Tx) Conn() pgx.Tx { return t.tx }

func (t *Tx) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return t.db.failed(fmt.Errorf("%s: %w", doing, err), t.tx.Conn())
}

// limit is the approximate number of bytes of rows in one statement; PostgreSQL itself
// accepts at most 1 GB.
const limit = 64 << 20

// Write implements [jobdb.Tx].
func (t *Tx) Write(ctx context.Context, c *jobdb.Changes) error { return t.Send(ctx, c)() }

// Send implements [jobdb.Sender]. It sends all statements in one batch.
func (t *Tx) Send(ctx context.Context, c *jobdb.Changes) (wait func() error) {
	b := &pgx.Batch{}
	t.recount(b, c.Recounted, "-")
	queue(b, &table.Jobs, c.Jobs)
	queue(b, &table.Runs, c.Runs)
	t.recount(b, c.Recounted, "")
	queue(b, &table.Decisions, c.Decisions)
	queue(b, &table.Counts, table.CountsOf(c))
	queue(b, &table.Days, table.DaysOf(c.Costs))
	queue(b, &table.NotDecided, c.NotDecided)
	queue(b, &table.Ready, c.Ready)
	queue(b, &table.Parked, c.Parked)
	queue(b, &table.Activations, c.Activations)
	queue(b, &table.Releases, c.Releases)
	queue(b, &table.Groups, c.Groups)
	queue(b, &table.Units, c.Units)
	queue(b, &table.GroupRecords, c.GroupRecords)
	if b.Len() == 0 {
		return func() error { return nil }
	}
	sent := t.tx.SendBatch(ctx, b)
	return func() error { return t.failed("write", sent.Close()) }
}

// recount counts what was decided on runs by their nodes and categories, or uncounts it.
func (t *Tx) recount(b *pgx.Batch, runs []jobdb.RunKey, sign string) {
	for _, r := range runs {
		key := names([]string{r.JobID, r.RunID})
		for _, query := range table.Recounted("refloat_", sign, "job_id = $1 AND run_id = $2 AND partition = $3") {
			b.Queue(query, key[0], key[1], t.partition)
		}
	}
}

func queue[T any](b *pgx.Batch, tab *table.Of[T], rows []*T) {
	for len(rows) > 0 {
		columns, n := arrays(tab, rows, limit)
		b.Queue(insert(tab, columns), args(columns)...)
		rows = rows[n:]
	}
}

func args(columns []array) []any {
	out := make([]any, len(columns))
	for i := range columns {
		out[i] = columns[i].arg()
	}
	return out
}

// Conditions of Load.
var (
	byIDs    = "partition = $1 AND job_id = ANY($2)"
	ofSets   = fmt.Sprintf("queue = k.a AND job_set = k.b AND known AND state NOT BETWEEN %d AND %d", jobdb.JobSucceeded, jobdb.JobCancelled)
	byGroup  = "partition = $1 AND group_id = ANY($2)"
	byUnit   = "partition = $1 AND unit_id = ANY($2)"
	byRunIDs = "job_id = k.a AND run_id = k.b"
	openRuns = fmt.Sprintf("%s AND state NOT IN (%d, %d)", byIDs, jobdb.RunSucceeded, jobdb.RunFailed)
)

// Load implements [jobdb.Tx].
func (t *Tx) Load(ctx context.Context, keys jobdb.Keys) (*jobdb.Found, error) {
	found := &jobdb.Found{}
	b := &pgx.Batch{}
	queues, sets := pairs(keys.Sets, func(k jobdb.SetKey) (string, string) { return k.Queue, k.JobSet })
	jobs, runs := pairs(keys.Runs, func(k jobdb.RunKey) (string, string) { return k.JobID, k.RunID })
	lookup(b, &table.Jobs, &found.Jobs, byIDs, t.partition, names(keys.Jobs))
	join(b, &table.Jobs, &found.Jobs, ofSets, t.partition, queues, sets)
	join(b, &table.Runs, &found.Runs, byRunIDs, t.partition, jobs, runs)
	lookup(b, &table.Runs, &found.Runs, openRuns, t.partition, names(keys.OpenRunsOf))
	lookup(b, &table.Groups, &found.Groups, byGroup, t.partition, names(keys.Groups))
	lookup(b, &table.Units, &found.Units, byUnit, t.partition, names(keys.Units))
	if b.Len() == 0 {
		return found, nil
	}
	return found, t.failed("load", t.tx.SendBatch(ctx, b).Close())
}

func names(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i], _ = key(s)
	}
	return out
}

func pairs[K any](keys []K, of func(K) (string, string)) (first, second []string) {
	for _, k := range keys {
		a, b := of(k)
		first, second = append(first, a), append(second, b)
	}
	return names(first), names(second)
}

// lookup queues a query for the rows that satisfy a condition over a list.
func lookup[T any](b *pgx.Batch, tab *table.Of[T], into *[]T, on string, partition int, list []string) {
	if len(list) == 0 {
		return
	}
	b.Queue("SELECT "+strings.Join(stored(tab.Columns), ", ")+" FROM refloat_"+tab.Name+" WHERE "+on, partition, list).Query(collect(tab, into))
}

// join queues a query for the rows that satisfy a condition over a pair k, pair by
// pair.
func join[T any](b *pgx.Batch, tab *table.Of[T], into *[]T, on string, partition int, first, second []string) {
	if len(first) == 0 {
		return
	}
	b.Queue("SELECT r.* FROM unnest($2::text[], $3::text[]) AS k (a, b) CROSS JOIN LATERAL (SELECT "+strings.Join(stored(tab.Columns), ", ")+
		" FROM refloat_"+tab.Name+" WHERE partition = $1 AND "+on+" OFFSET 0) AS r", partition, first, second).Query(collect(tab, into))
}

func collect[T any](tab *table.Of[T], into *[]T) func(pgx.Rows) error {
	var fields []any
	return func(rows pgx.Rows) error {
		return each(rows, tab.Columns, len(stored(tab.Columns)) > len(tab.Columns), func() []any {
			*into = append(*into, *new(T))
			fields = tab.Fields(&(*into)[len(*into)-1], fields[:0])
			return fields
		}, func() error { return nil })
	}
}

// each scans the rows of a query; long keys come last.
func each(rows pgx.Rows, columns []string, long bool, fields func() []any, found func() error) error {
	defer rows.Close()
	var keys string
	for rows.Next() {
		to := targets(fields())
		n := len(to)
		if long {
			to = append(to, &keys)
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		if long && keys != "" {
			if err := restore(keys, columns, to[:n]); err != nil {
				return err
			}
		}
		if err := found(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Commit implements [jobdb.Tx].
func (t *Tx) Commit(ctx context.Context, from, to jobdb.Positions) error {
	moved, err := t.move(ctx, from, to)
	if err == nil && !moved {
		err = jobdb.ErrMoved
	}
	if err != nil {
		return errors.Join(t.failed("move the position", err), t.Rollback())
	}
	if err := t.tx.Commit(ctx); err != nil { // the connection may be in use by another transaction by now
		return t.db.failed(fmt.Errorf("commit: %w", err), nil)
	}
	return nil
}

func (t *Tx) move(ctx context.Context, from, to jobdb.Positions) (bool, error) {
	m := table.Moved(t.partition, from, to)
	for i, c := range m.Set {
		m.Set[i] = fmt.Sprintf("%s = $%d", c, i+1)
	}
	for i, c := range m.When {
		m.When[i] = fmt.Sprintf("%s = $%d", c, len(m.Set)+i+1)
	}
	tag, err := t.tx.Exec(ctx, "UPDATE refloat_positions SET "+strings.Join(m.Set, ", ")+" WHERE "+strings.Join(m.When, " AND "), append(m.SetArgs, m.WhenArgs...)...)
	return tag.RowsAffected() == 1, err
}

// rollbackTimeout is the timeout of a rollback. After it, the connection is closed,
// which rolls back too.
const rollbackTimeout = 5 * time.Second

// Rollback implements [jobdb.Tx].
func (t *Tx) Rollback() error {
	// Use a context of its own: a cancelled transaction must still be rolled back.
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	err := t.tx.Rollback(ctx)
	if err == nil || errors.Is(err, pgx.ErrTxClosed) || t.tx.Conn().IsClosed() {
		return nil // closing its connection rolls it back
	}
	return t.failed("roll back", err)
}
