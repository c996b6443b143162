package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// View calls read with queries that all see one snapshot of the database. A visitor
// must not run another query from within.
func (r *Reader) View(ctx context.Context, read func(jobdb.Queries) error) error {
	t, err := r.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return r.address.classify(err, nil)
	}
	err = read(queries{table.Queries{Source: &source{ctx: ctx, address: r.address, tx: t}}})
	end, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	if closing := t.Rollback(end); closing != nil && !t.Conn().IsClosed() {
		err = errors.Join(err, r.address.classify(closing, nil))
	}
	return err
}

// queries are those of every job database, and those of a database with Armada's
// tables.
type queries struct{ table.Queries }

// IngestMode returns the mode in which an ingester writes Armada's tables beside a
// partition's rows; empty: no ingester does, or its mode is unknown.
func (q queries) IngestMode(partition int) (string, error) {
	s := q.Source.(*source)
	var mode string
	err := s.tx.QueryRow(s.ctx, "SELECT coalesce(mode, '') FROM refloat_mirror WHERE partition = $1", partition).Scan(&mode)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return mode, s.failed("mirror", err)
}

// InArmada reports whether Armada's tables still have a job: it prunes those that have ended.
func (q queries) InArmada(job string) (there bool, err error) {
	s := q.Source.(*source)
	err = s.tx.QueryRow(s.ctx, "SELECT EXISTS (SELECT FROM jobs WHERE job_id = $1)", escape(job)).Scan(&there)
	return there, s.failed("jobs", err)
}

// source lives as long as one View and carries its context.
type source struct {
	ctx     context.Context
	address address
	tx      pgx.Tx
}

// Find implements table.Source.
func (s *source) Find(q table.Query, fields func() []any, found func() error) error {
	names := q.Columns
	if q.Rows {
		q.Columns = stored(names)
	}
	b := &pgx.Batch{}
	if q.Index {
		onlyIndexes(b, "off")
	}
	var stopped error
	b.Queue(numbered(q.SQL("refloat_", "")), keys(q.Args)...).Query(func(rows pgx.Rows) error {
		return each(rows, names, len(q.Columns) > len(names), fields, func() error {
			stopped = found()
			return stopped
		})
	})
	if q.Index {
		onlyIndexes(b, "DEFAULT")
	}
	err := s.tx.SendBatch(s.ctx, b).Close()
	if stopped != nil {
		return stopped
	}
	return s.failed(q.From, err)
}

// onlyIndexes makes PostgreSQL read only from indexes, with the first row before it has found all. DEFAULT ends that.
func onlyIndexes(b *pgx.Batch, others string) {
	for _, way := range []string{"seqscan", "bitmapscan"} {
		b.Queue("SET LOCAL enable_" + way + " TO " + others)
	}
}

func (s *source) failed(from string, err error) error {
	if err == nil {
		return nil
	}
	return s.address.classify(fmt.Errorf("read %s: %w", from, err), s.tx.Conn())
}

// keys returns arguments as they are stored.
func keys(of []any) []any {
	args := slices.Clone(of)
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i], _ = key(text)
		}
	}
	return args
}

// numbered replaces each ? of a query with its number.
func numbered(query string) string {
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, ok := strings.Cut(query, "?")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}
