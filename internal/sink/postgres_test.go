package sink_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pgtest"
)

func openPostgres(t testing.TB, at string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(context.Background(), at, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func postgresConn(t testing.TB, at string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

const emptyTables = `TRUNCATE refloat_positions, refloat_counts, refloat_jobs, refloat_runs, refloat_decisions, refloat_not_decided,
	refloat_ready, refloat_parked, refloat_activations, refloat_releases`

// watched is a database that remembers by which process the server works for it.
type watched struct {
	jobdb.Store
	pid uint32
}

func (w *watched) Begin(ctx context.Context, p int) (jobdb.Tx, error) {
	tx, err := w.Store.Begin(ctx, p)
	if err == nil {
		w.pid = tx.(*postgres.Tx).Conn().Conn().PgConn().PID()
	}
	return tx, err
}

// TestPostgresLaw is a sample of TestLaws on a real PostgreSQL: with the smallest
// and the largest batches, two writers, crashed writers and killed backends at
// the labels, the rows are those of the fold.
func TestPostgresLaw(t *testing.T) {
	ctx, at, seeds := context.Background(), pgtest.Database(t), 12
	if testing.Short() {
		seeds = 3
	}
	dbs := []*watched{{Store: openPostgres(t, at)}, {Store: openPostgres(t, at)}}
	conn := postgresConn(t, at)
	reader, err := postgres.OpenReader(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	crashes, kills, lost := 0, 0, 0
	for seed := range seeds {
		for _, size := range []int{1, 10_000} {
			if _, err := conn.Exec(ctx, emptyTables); err != nil {
				t.Fatal(err)
			}
			rapid.Custom(func(r *rapid.T) int {
				events, decisions := history(t, r)
				want, err := sink.Fold(events, decisions, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				budget := 12 // of faults, so that it ends
				open := func(i int) *sink.Writer {
					hit := func(label string) error {
						fault := rapid.IntRange(0, 9).Draw(r, label)
						if budget == 0 || fault > 2 {
							return nil
						}
						budget--
						if fault == 0 {
							crashes++
							return errCrash
						}
						kills++
						_, err := conn.Exec(ctx, "SELECT pg_terminate_backend($1, 10000)", dbs[i].pid)
						return err
					}
					w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: dbs[i], MaxRows: size, KeepRows: 10, Hit: hit})
					if err != nil {
						t.Fatal(err)
					}
					return w
				}
				writers := []*sink.Writer{open(0), open(1)}
				for idle := 0; idle < 2; {
					i := rapid.IntRange(0, 1).Draw(r, "writer")
					progress, err := writers[i].Advance(ctx, 0)
					switch {
					case errors.Is(err, errCrash):
						writers[i] = open(i)
					case errors.Is(err, jobdb.ErrUnavailable):
						lost++
					case err != nil:
						t.Fatalf("seed %d, batches of %d: %v", seed, size, err)
					case !progress:
						idle++
					}
				}
				var got *jobdb.Contents
				if err := reader.View(ctx, func(q jobdb.Queries) (err error) { got, err = q.Contents(0); return err }); err != nil {
					t.Fatal(err)
				}
				for _, d := range sink.Compare(want, got) {
					t.Errorf("seed %d, batches of %d: %v", seed, size, d)
				}
				return 0
			}).Example(seed)
		}
	}
	t.Logf("%d crashed writers, %d killed backends, %d of them noticed", crashes, kills, lost)
	if crashes == 0 || lost == 0 {
		t.Error("nothing went wrong, so nothing was tested")
	}
}

// pgBare writes rows by the driver alone: in each transaction one upsert per
// table over an array per column, the arrays at hand.
type pgBare struct {
	b       *testing.B
	conn    *pgx.Conn
	batches []*pgBareBatch
	rows    int
}

type pgBareBatch struct {
	statements []string
	args       [][]any
}

func (w *pgBare) note(c *jobdb.Changes) {
	batch := &pgBareBatch{}
	ids := func(n int, id func(i int) string) (all []string) {
		for i := range n {
			all = append(all, id(i))
		}
		return all
	}
	w.read(batch, "jobs", "job_id = ANY($1)", ids(len(c.Jobs), func(i int) string { return c.Jobs[i].JobID }))
	w.read(batch, "runs", "(job_id || '/' || run_id) = ANY($1)", ids(len(c.Runs), func(i int) string { return c.Runs[i].JobID + "/" + c.Runs[i].RunID }))
	w.read(batch, "decisions", "number::text = ANY($1)", ids(len(c.Decisions), func(i int) string { return fmt.Sprint(c.Decisions[i].Number) }))
	w.batches = append(w.batches, batch)
}

// read reads rows back as they were written, by column.
func (w *pgBare) read(batch *pgBareBatch, table, where string, keys []string) {
	if len(keys) == 0 {
		return
	}
	rows, err := w.conn.Query(context.Background(), "SELECT "+pgtest.Columns(w.b, w.conn, "refloat_"+table)+" FROM refloat_"+table+" WHERE "+where, keys)
	if err != nil {
		w.b.Fatal(err)
	}
	var names, types, set []string
	for i, f := range rows.FieldDescriptions() {
		kind, _ := w.conn.TypeMap().TypeForOID(f.DataTypeOID)
		names, types = append(names, f.Name), append(types, fmt.Sprintf("$%d::%s[]", i+1, kind.Name))
		if !slices.Contains(bareKeys[table], f.Name) {
			set = append(set, f.Name+" = excluded."+f.Name)
		}
	}
	columns := make([]any, len(names))
	n := 0
	for ; rows.Next(); n++ {
		values, err := rows.Values()
		if err != nil {
			w.b.Fatal(err)
		}
		for i, v := range values {
			columns[i] = appendValue(columns[i], v)
		}
	}
	if rows.Err() != nil || n != len(keys) {
		w.b.Fatalf("%d rows of %d are there: %v", n, len(keys), rows.Err())
	}
	w.rows += n
	batch.statements = append(batch.statements, "INSERT INTO refloat_"+table+" ("+strings.Join(names, ", ")+") SELECT * FROM unnest("+
		strings.Join(types, ", ")+") ON CONFLICT ("+strings.Join(bareKeys[table], ", ")+") DO UPDATE SET "+strings.Join(set, ", "))
	batch.args = append(batch.args, columns)
}

func appendValue(column, v any) any {
	switch v := v.(type) {
	case int16:
		return appendTo(column, int64(v))
	case int32:
		return appendTo(column, int64(v))
	case int64:
		return appendTo(column, v)
	case string:
		return appendTo(column, v)
	case bool:
		return appendTo(column, v)
	case []byte:
		return appendTo(column, v)
	case nil: // of the nullable columns, all are bytes
		return appendTo(column, []byte(nil))
	}
	panic(fmt.Sprintf("a column of %T", v))
}

func appendTo[V any](column any, v V) any {
	list, _ := column.([]V)
	return append(list, v)
}

func (w *pgBare) write() time.Duration {
	ctx, start := context.Background(), time.Now()
	for _, batch := range w.batches {
		err := pgx.BeginFunc(ctx, w.conn, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			for i, s := range batch.statements {
				b.Queue(s, batch.args[i]...)
			}
			return tx.SendBatch(ctx, b).Close()
		})
		if err != nil {
			w.b.Fatal(err)
		}
	}
	return time.Since(start)
}

type pgNoting struct {
	jobdb.Store
	bare *pgBare
}

type pgNotingTx struct {
	jobdb.Tx
	bare    *pgBare
	changes *jobdb.Changes
}

func (n pgNoting) Begin(ctx context.Context, p int) (jobdb.Tx, error) {
	tx, err := n.Store.Begin(ctx, p)
	return &pgNotingTx{Tx: tx, bare: n.bare}, err
}

func (t *pgNotingTx) Write(ctx context.Context, c *jobdb.Changes) error {
	t.changes = c
	return t.Tx.Write(ctx, c)
}

func (t *pgNotingTx) Commit(ctx context.Context, from, to jobdb.Positions) error {
	err := t.Tx.Commit(ctx, from, to)
	t.bare.note(t.changes)
	return err
}

// BenchmarkPostgres is BenchmarkSQLite on a PostgreSQL that syncs every commit.
func BenchmarkPostgres(b *testing.B) {
	ctx, at := context.Background(), pgtest.Start(b, true).Database(b)
	db, conn := openPostgres(b, at), postgresConn(b, at)
	for _, c := range []struct{ active, weight int }{{100, 2300}, {5000, 640}, {5000, 3200}} {
		b.Run(fmt.Sprintf("active=%d/weight=%d", c.active, c.weight), func(b *testing.B) {
			events, decisions := lives(&testing.T{}, 5_000, c.active)
			ingest := func(store jobdb.Store) time.Duration {
				if _, err := conn.Exec(ctx, emptyTables+"; CHECKPOINT"); err != nil {
					b.Fatal(err)
				}
				w, err := sink.New(sink.Config{Events: events, Decisions: decisions, DB: store, MaxRows: c.weight})
				if err != nil {
					b.Fatal(err)
				}
				start := time.Now()
				drain(b, w, 1)
				return time.Since(start)
			}
			bare := &pgBare{b: b, conn: conn}
			ingest(pgNoting{db, bare})
			var ours, alone time.Duration
			n := 0
			for b.Loop() {
				n++
				ours += ingest(db)
				if _, err := conn.Exec(ctx, emptyTables+"; CHECKPOINT"); err != nil {
					b.Fatal(err)
				}
				alone += bare.write()
			}
			perSecond := func(d time.Duration) float64 { return float64(bare.rows*n) / d.Seconds() }
			b.ReportMetric(perSecond(ours), "rows/s")
			b.ReportMetric(perSecond(alone), "bare-rows/s")
			b.ReportMetric(perSecond(ours)/perSecond(alone), "ratio")
			b.ReportMetric(float64(bare.rows)/float64(len(bare.batches)), "rows/tx")
			b.ReportMetric(float64(len(events.parts[0].messages)*n)/ours.Seconds(), "events/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
