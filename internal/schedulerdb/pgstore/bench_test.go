package pgstore_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
	"github.com/refloat/refloat/internal/test/rowtest"
)

// BenchmarkRecordings puts all recordings into a synced database, so many
// messages in a transaction. bare is the driver alone with the same rows, in the
// same transactions: COPY into a temporary table and an upsert from there.
func BenchmarkRecordings(b *testing.B) {
	server := pgtest.Start(b, true)
	address := server.Database(b)
	conn := connect(b, address)
	ctx := context.Background()
	if err := schema.Create(ctx, conn); err != nil {
		b.Fatal(err)
	}
	db := open(b, address)
	var entries []recording.Entry
	events := 0
	for _, name := range names {
		entries = append(entries, readRecording(b, name)...)
	}
	for i := range entries {
		effects, _ := schedulerdb.NewConverter().Convert(&entries[i].Message, nil)
		events += len(effects)
	}
	empty := func() {
		b.StopTimer()
		if _, err := conn.Exec(ctx, "TRUNCATE jobs, runs, job_metadata, job_run_errors; CHECKPOINT"); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	report := func(b *testing.B, rows int) {
		b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "ops/s")
		b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
	}
	for _, size := range []struct {
		name     string
		messages int
	}{{"batch=100", 100}, {"batch=1000", 1000}} {
		w, rows := record(b, db, conn, entries, size.messages)
		b.Run(size.name+"/ours", func(b *testing.B) {
			for b.Loop() {
				empty()
				c := schedulerdb.NewConverter()
				for batch := range slices.Chunk(entries, size.messages) {
					apply(b, db, convert(b, c, batch))
				}
			}
			report(b, rows)
		})
		b.Run(size.name+"/bare", func(b *testing.B) {
			for b.Loop() {
				empty()
				for _, batch := range w.batches {
					w.write(b, conn, batch)
				}
			}
			report(b, rows)
		})
	}
}

// bare is what the transactions wrote: rows by table.
type bare struct {
	columns map[string][]string
	batches []map[string][][]any
}

var bareTables = []string{"jobs", "job_metadata", "runs", "job_run_errors"}

// record applies the messages and reads back the rows of each transaction.
func record(b *testing.B, db *db, conn *pgx.Conn, entries []recording.Entry, size int) (w bare, rows int) {
	b.Helper()
	ctx := context.Background()
	if _, err := conn.Exec(ctx, "TRUNCATE jobs, runs, job_metadata, job_run_errors"); err != nil {
		b.Fatal(err)
	}
	w.columns = map[string][]string{}
	for _, table := range bareTables {
		found, err := conn.Query(ctx, `SELECT column_name FROM information_schema.columns WHERE table_name = $1
			AND is_generated = 'NEVER' AND column_name NOT IN ('serial', 'last_modified') ORDER BY ordinal_position`, table)
		if err != nil {
			b.Fatal(err)
		}
		if w.columns[table], err = pgx.CollectRows(found, pgx.RowTo[string]); err != nil {
			b.Fatal(err)
		}
	}
	c := schedulerdb.NewConverter()
	for batch := range slices.Chunk(entries, size) {
		tx, err := db.Begin(ctx)
		if err == nil {
			err = tx.Apply(ctx, convert(b, c, batch))
		}
		if err != nil {
			b.Fatal(err)
		}
		wrote := map[string][][]any{}
		for _, table := range bareTables {
			found, err := tx.conn.Query(ctx, "SELECT "+strings.Join(w.columns[table], ", ")+" FROM "+table+" WHERE xmin::text = (pg_current_xact_id()::text::bigint % (1::bigint << 32))::text")
			if err != nil {
				b.Fatal(err)
			}
			values, err := pgx.CollectRows(found, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
			if err != nil {
				b.Fatal(err)
			}
			wrote[table] = values
			rows += len(values)
		}
		if err := tx.Commit(ctx); err != nil {
			b.Fatal(err)
		}
		w.batches = append(w.batches, wrote)
	}
	return w, rows
}

func (w *bare) write(b *testing.B, conn *pgx.Conn, batch map[string][][]any) {
	b.Helper()
	ctx := context.Background()
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, table := range bareTables {
			columns := w.columns[table]
			if len(batch[table]) == 0 {
				continue
			}
			if _, err := tx.Exec(ctx, "CREATE TEMP TABLE new_"+table+" ON COMMIT DROP AS SELECT "+strings.Join(columns, ", ")+" FROM "+table+" LIMIT 0"); err != nil {
				return err
			}
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{"new_" + table}, columns, pgx.CopyFromRows(batch[table])); err != nil {
				return err
			}
			var set []string
			for _, column := range columns {
				set = append(set, column+" = excluded."+column)
			}
			list := strings.Join(columns, ", ")
			if _, err := tx.Exec(ctx, "INSERT INTO "+table+" ("+list+") SELECT "+list+" FROM new_"+table+
				" ON CONFLICT ("+rowtest.Keys[table]+") DO UPDATE SET "+strings.Join(set, ", ")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
