package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/table"
)

// View calls read with queries that all see one snapshot of the database.
func (r *Reader) View(ctx context.Context, read func(jobdb.Queries) error) error {
	t, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return classify(r.path, err)
	}
	q := table.Queries{Source: &source{ctx: ctx, path: r.path, tx: t}}
	err = read(q)
	if ended := t.Rollback(); err == nil { // some errors roll back themselves
		err = classify(r.path, ended)
	}
	return err
}

// source lives as long as one View and carries its context.
type source struct {
	ctx  context.Context
	path string
	tx   *sql.Tx
}

// hint before a column keeps SQLite from using its index.
const hint = "+"

// Find implements table.Source.
func (s *source) Find(q table.Query, fields func() []any, found func() error) error {
	rows, err := s.tx.QueryContext(s.ctx, q.SQL("", hint), q.Args...)
	if err != nil {
		return classify(s.path, fmt.Errorf("read %s: %w", q.From, s.ended(err)))
	}
	var stopped error
	err = each(rows, fields, func() error {
		stopped = found()
		return stopped
	})
	if stopped != nil {
		return stopped
	}
	return classify(s.path, s.ended(err))
}

// ended adds why SQLite interrupted a query: the end of its context.
func (s *source) ended(err error) error {
	if ctx := s.ctx.Err(); errors.Is(err, sqlite3.INTERRUPT) && ctx != nil {
		return fmt.Errorf("%w: %w", ctx, err)
	}
	return err
}

// each scans the rows of a query.
func each(rows *sql.Rows, fields func() []any, found func() error) error {
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(targets(fields())...); err != nil {
			return err
		}
		if err := found(); err != nil {
			return err
		}
	}
	return rows.Err()
}
