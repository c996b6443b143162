package mirror_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/mirror"
	"github.com/refloat/refloat/internal/pgtest"
	"github.com/refloat/refloat/internal/sink"
)

// written are the tables that a history fills, in Armada's order and then ours.
var written = []string{
	"jobs", "job_metadata", "runs", "job_run_errors", "refloat_jobs", "refloat_runs", "refloat_decisions", "refloat_not_decided",
	"refloat_ready", "refloat_parked", "refloat_activations", "refloat_waits",
}

// ingest plays a tape into the database and says how long that took, and in how
// many transactions.
func (h *tape) ingest(b *testing.B, url string, mode mirror.Mode, rows int) (took time.Duration, transactions int) {
	b.Helper()
	db, err := postgres.Open(b.Context(), url, postgres.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	w, err := sink.New(sink.Config{
		Events: h.events, Decisions: h.decisions, DB: db, MaxRows: rows, Now: func() time.Time { return h.from },
		Hooks: sink.Hooks{Committed: func(sink.Batch) { transactions++ }},
		Mirror: func(partition int) sink.Mirror {
			return mirror.New(mirror.Config{Partition: partition, Mode: mode})
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	start := time.Now()
	for p := range h.events.Partitions() {
		for progress := true; progress; {
			if progress, err = w.Advance(context.Background(), p); err != nil {
				b.Fatal(err)
			}
		}
	}
	return time.Since(start), transactions
}

func empty(b *testing.B, conn *pgx.Conn) {
	b.Helper()
	if _, err := conn.Exec(b.Context(), "TRUNCATE "+strings.Join(allTables, ", ")+"; CHECKPOINT"); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkIngest puts recordings and the decisions on them into a synced
// database, through sink.Writer and the mirror. bare is the driver alone: the rows
// that stand there in the end, in as many transactions, each table by COPY into a
// temporary one, which is there before, and an upsert from there.
func BenchmarkIngest(b *testing.B) {
	for _, name := range []string{"plain", "retried"} {
		for _, mode := range []mirror.Mode{mirror.HoldBack, mirror.Passthrough} {
			b.Run(fmt.Sprintf("%s/%s", name, map[mirror.Mode]string{mirror.HoldBack: "HoldBack", mirror.Passthrough: "Passthrough"}[mode]), func(b *testing.B) {
				url := pgtest.Start(b, true).Database(b)
				conn := prepare(b, url)
				h := recorded(b, name, forRecordings)
				var ours, alone time.Duration
				rows, transactions, n := 0, 0, 0
				for b.Loop() {
					n++
					empty(b, conn)
					took, count := h.ingest(b, url, mode, 1000)
					ours, transactions = ours+took, count
					rest := readBack(b, conn)
					empty(b, conn)
					took, rows = rest.write(b, conn, transactions)
					alone += took
				}
				events := float64(h.count(b) * n)
				b.ReportMetric(events/ours.Seconds(), "events/s")
				b.ReportMetric(float64(rows*n)/alone.Seconds(), "bare-rows/s")
				b.ReportMetric(alone.Seconds()/ours.Seconds(), "ratio")
				b.ReportMetric(float64(rows)/float64(transactions), "rows/tx")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// count is how many events there are.
func (h *tape) count(b *testing.B) (n int) {
	b.Helper()
	for p := range h.events.Partitions() {
		r, err := h.events.Open(p, eventlog.Start)
		if err != nil {
			b.Fatal(err)
		}
		messages := make([]eventlog.Message, 100)
		for {
			got, err := r.Read(messages)
			if err != nil {
				b.Fatal(err)
			}
			if got == 0 {
				break
			}
			for i := range messages[:got] {
				n += eventsIn(b, messages[i].Payload)
			}
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// bareRows are rows by table, as the driver binds them.
type bareRows struct {
	columns, keys map[string][]string
	rows          map[string][][]any
}

func readBack(b *testing.B, conn *pgx.Conn) *bareRows {
	b.Helper()
	w := &bareRows{columns: map[string][]string{}, keys: map[string][]string{}, rows: map[string][][]any{}}
	list := func(query, table string) []string {
		rows, err := conn.Query(b.Context(), query, table)
		if err != nil {
			b.Fatal(err)
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			b.Fatal(err)
		}
		return names
	}
	for _, table := range written {
		w.columns[table] = list(`SELECT column_name FROM information_schema.columns WHERE table_name = $1
			AND is_generated = 'NEVER' AND column_name NOT IN ('serial', 'last_modified') AND table_schema = 'public' ORDER BY ordinal_position`, table)
		w.keys[table] = list(`SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
			WHERE i.indrelid = to_regclass($1) AND i.indisprimary`, table)
		rows, err := conn.Query(b.Context(), "SELECT "+strings.Join(w.columns[table], ", ")+" FROM "+table)
		if err != nil {
			b.Fatal(err)
		}
		if w.rows[table], err = pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() }); err != nil {
			b.Fatal(err)
		}
	}
	return w
}

func (w *bareRows) write(b *testing.B, conn *pgx.Conn, transactions int) (took time.Duration, rows int) {
	b.Helper()
	chunks := map[string][][][]any{}
	for table, all := range w.rows {
		rows += len(all)
		for c := range slices.Chunk(all, max(1, (len(all)+transactions-1)/transactions)) {
			chunks[table] = append(chunks[table], c)
		}
	}
	for _, table := range written {
		_, err := conn.Exec(b.Context(), "CREATE TEMP TABLE IF NOT EXISTS new_"+table+" ON COMMIT DELETE ROWS AS SELECT "+strings.Join(w.columns[table], ", ")+" FROM "+table+" LIMIT 0")
		if err != nil {
			b.Fatal(err)
		}
	}
	start := time.Now()
	for i := range transactions {
		err := pgx.BeginFunc(b.Context(), conn, func(tx pgx.Tx) error {
			for _, table := range written {
				if i >= len(chunks[table]) {
					continue
				}
				if err := w.upsert(b.Context(), tx, table, chunks[table][i]); err != nil {
					return fmt.Errorf("%s: %w", table, err)
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start), rows
}

func (w *bareRows) upsert(ctx context.Context, tx pgx.Tx, table string, rows [][]any) error {
	columns := w.columns[table]
	list := strings.Join(columns, ", ")
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"new_" + table}, columns, pgx.CopyFromRows(rows)); err != nil {
		return err
	}
	var set []string
	for _, column := range columns {
		set = append(set, column+" = excluded."+column)
	}
	_, err := tx.Exec(ctx, "INSERT INTO "+table+" ("+list+") SELECT "+list+" FROM new_"+table+
		" ON CONFLICT ("+strings.Join(w.keys[table], ", ")+") DO UPDATE SET "+strings.Join(set, ", "))
	return err
}

// BenchmarkWaiting plays a recording in small transactions beside so many jobs
// that wait and are not due. Theirs and the others' are the same partitions.
func BenchmarkWaiting(b *testing.B) {
	url := pgtest.Start(b, true).Database(b)
	conn := prepare(b, url)
	h := recorded(b, "preempted", forRecordings)
	took, transactions := map[int]time.Duration{}, 0
	for b.Loop() {
		for _, waits := range []int{0, 10_000} {
			empty(b, conn)
			_, err := conn.Exec(b.Context(), `INSERT INTO refloat_waits SELECT i % 3, 'waits-' || i, 'run', i, 'p', $2, '{node-1}', false, false, true, 0, 0, $2
				FROM generate_series(1, $1::int) AS i`, waits, int64(1)<<62)
			for _, query := range []string{"VACUUM ANALYZE refloat_waits", "CHECKPOINT"} {
				if err == nil {
					_, err = conn.Exec(b.Context(), query)
				}
			}
			if err != nil {
				b.Fatal(err)
			}
			d, n := h.ingest(b, url, mirror.HoldBack, 1)
			took[waits] += d
			transactions += n
		}
	}
	each := float64(transactions) / 2
	b.ReportMetric(float64(took[0].Microseconds())/each, "µs/tx")
	b.ReportMetric(float64(took[10_000].Microseconds())/each, "µs/tx-beside-10000")
	b.ReportMetric(took[10_000].Seconds()/took[0].Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}
