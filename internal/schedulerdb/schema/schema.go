// Package schema holds Armada's scheduler database as SQL, for tests and for a
// development set-up without an Armada. In a deployment only Armada's own migrator
// may create these tables.
package schema

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var tables string

// Create makes Armada's tables in an empty database, in one transaction.
func Create(ctx context.Context, conn *pgx.Conn) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, tables)
		return err
	})
	if err != nil {
		return fmt.Errorf("create Armada's scheduler tables: %w", err)
	}
	return nil
}
