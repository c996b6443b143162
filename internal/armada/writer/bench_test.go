package writer_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// written are the tables that a history fills, in Armada's order and then ours.
var written = []string{
	"jobs", "job_metadata", "runs", "job_run_errors", "refloat_jobs", "refloat_runs", "refloat_decisions", "refloat_not_decided",
	"refloat_ready", "refloat_parked", "refloat_activations", "refloat_waits", "refloat_positions",
}

// open opens the database for writing, until the benchmark ends: its connections prepare
// statements once, as those of an ingester that runs for long.
func open(b *testing.B, url string) *postgres.DB {
	b.Helper()
	db, err := postgres.Open(b.Context(), url, postgres.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// ingest plays a tape into the database and returns the duration and the number of
// transactions. It calls committed, if set, after each transaction.
func (h *tape) ingest(b *testing.B, db *postgres.DB, mode writer.Mode, rows int, committed func(partition int)) (took time.Duration, transactions int) {
	b.Helper()
	w, err := sink.New(sink.Config{
		Events: h.events, Decisions: h.decisions, DB: db, MaxRows: rows, Now: func() time.Time { return h.from },
		Hooks: sink.Hooks{Committed: func(sink.Batch) { transactions++ }},
		Mirror: func(partition int) sink.Mirror {
			return writer.New(writer.Config{Partition: partition, Mode: mode})
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
			if progress && committed != nil {
				committed(p)
			}
		}
	}
	return time.Since(start), transactions
}

// pairs returns pairs of durations; the two of a pair run one after the other,
// alternating which is first.
type pairs struct{ one, other []time.Duration }

func (p *pairs) run(one, other func() time.Duration) {
	if len(p.one)%2 == 0 {
		p.one = append(p.one, one())
		p.other = append(p.other, other())
		return
	}
	p.other = append(p.other, other())
	p.one = append(p.one, one())
}

// report reports the ratios of other to one: median, minimum and maximum.
func (p *pairs) report(b *testing.B) {
	ratios := make([]float64, len(p.one))
	for i := range p.one {
		ratios[i] = p.other[i].Seconds() / p.one[i].Seconds()
	}
	slices.Sort(ratios)
	b.ReportMetric((ratios[(len(ratios)-1)/2]+ratios[len(ratios)/2])/2, "ratio")
	b.ReportMetric(ratios[0], "ratio-least")
	b.ReportMetric(ratios[len(ratios)-1], "ratio-most")
	b.ReportMetric(0, "ns/op")
}

func sum(all []time.Duration) (total time.Duration) {
	for _, d := range all {
		total += d
	}
	return total
}

func empty(b *testing.B, conn *pgx.Conn) {
	b.Helper()
	if _, err := conn.Exec(b.Context(), "TRUNCATE "+strings.Join(allTables, ", ")+"; CHECKPOINT"); err != nil {
		b.Fatal(err)
	}
}

// again is a recording n times, each time of other jobs and runs.
func again(b *testing.B, entries []recording.Entry, n int) iter.Seq[recording.Entry] {
	b.Helper()
	return func(yield func(recording.Entry) bool) {
		for i := range n {
			for _, e := range entries {
				var seq pb.EventSequence
				if err := proto.Unmarshal(e.Message.Payload, &seq); err != nil {
					b.Fatal(err)
				}
				for _, ev := range seq.Events {
					rename(ev.ProtoReflect(), strconv.Itoa(i))
				}
				payload, err := proto.Marshal(&seq)
				if err != nil {
					b.Fatal(err)
				}
				e.Message.Payload = payload
				if !yield(e) {
					return
				}
			}
		}
	}
}

// rename replaces the beginning of the ids of jobs and runs.
func rename(m protoreflect.Message, mark string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap():
			rename(v.Message(), mark)
		case strings.HasSuffix(string(f.Name()), "job_id") || strings.HasSuffix(string(f.Name()), "run_id"):
			m.Set(f, protoreflect.ValueOfString(mark+v.String()[len(mark):]))
		}
		return true
	})
}

// BenchmarkIngest writes recordings with their decisions into a synced database,
// through sink.Writer and the Writer of Armada's tables. bare is only the driver with
// the same row changes: in as many transactions, with the rows that each of ours
// changed, one upsert from arrays per table, sent as one batch. The ratio is our speed
// relative to bare.
func BenchmarkIngest(b *testing.B) {
	for _, name := range []string{"plain", "retried"} {
		for _, mode := range []writer.Mode{writer.HoldBack, writer.Passthrough} {
			b.Run(fmt.Sprintf("%s/%s", name, map[writer.Mode]string{writer.HoldBack: "HoldBack", writer.Passthrough: "Passthrough"}[mode]), func(b *testing.B) {
				url := pgtest.Start(b, true).Database(b)
				conn := prepare(b, url)
				h := decidedAs(b, again(b, entriesOf(b, name), 8), forRecordings, tapeOptions{times: 1})
				bare := &bareRows{}
				bare.describe(b, conn)
				empty(b, conn)
				db := open(b, url)
				h.ingest(b, db, mode, 1000, func(p int) { bare.record(b, conn, p) })
				var times pairs
				for b.Loop() {
					times.run(func() time.Duration {
						empty(b, conn)
						took, _ := h.ingest(b, db, mode, 1000, nil)
						return took
					}, func() time.Duration {
						empty(b, conn)
						return bare.write(b, conn)
					})
				}
				n := float64(len(times.one))
				b.ReportMetric(float64(h.count(b))*n/sum(times.one).Seconds(), "events/s")
				b.ReportMetric(float64(bare.count)*n/sum(times.one).Seconds(), "rows/s")
				b.ReportMetric(float64(bare.count)*n/sum(times.other).Seconds(), "bare-rows/s")
				b.ReportMetric(float64(bare.count)/float64(len(bare.batches)), "rows/tx")
				times.report(b)
			})
		}
	}
}

// count returns the number of events.
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

// bareRows are the rows of each transaction by table, as the driver binds them.
type bareRows struct {
	columns map[string][]string
	upsert  map[string]string // of columns as arrays
	batches []map[string][]any
	count   int
}

func (w *bareRows) describe(b *testing.B, conn *pgx.Conn) {
	b.Helper()
	w.columns, w.upsert = map[string][]string{}, map[string]string{}
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
	const columns = ` FROM information_schema.columns WHERE table_name = $1 AND is_generated = 'NEVER'
		AND column_name NOT IN ('serial', 'last_modified') AND table_schema = 'public' ORDER BY ordinal_position`
	for _, table := range written {
		w.columns[table] = list("SELECT column_name"+columns, table)
		keys := list(`SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
			WHERE i.indrelid = to_regclass($1) AND i.indisprimary`, table)
		var from, values, set []string
		for i, kind := range list("SELECT udt_name"+columns, table) {
			name := w.columns[table][i]
			cast := ""
			if strings.HasPrefix(kind, "_") { // nested arrays are passed as text
				kind, cast = "text", "::"+kind[1:]+"[]"
				w.columns[table][i] += "::text"
			}
			from = append(from, fmt.Sprintf("$%d::%s[]", i+1, kind))
			values, set = append(values, name+cast), append(set, name+" = excluded."+name)
		}
		names := strings.ReplaceAll(strings.Join(w.columns[table], ", "), "::text", "")
		w.upsert[table] = "INSERT INTO " + table + " (" + names + ") SELECT " + strings.Join(values, ", ") + " FROM unnest(" + strings.Join(from, ", ") + ") AS p (" + names +
			") ON CONFLICT (" + strings.Join(keys, ", ") + ") DO UPDATE SET " + strings.Join(set, ", ")
	}
}

// record stores the rows that the last transaction on a partition wrote, without
// deleted ones.
func (w *bareRows) record(b *testing.B, conn *pgx.Conn, partition int) {
	b.Helper()
	batch := map[string][]any{}
	for _, table := range written {
		rows, err := conn.Query(b.Context(), "SELECT "+strings.Join(w.columns[table], ", ")+" FROM "+table+
			" WHERE xmin = (SELECT xmin FROM refloat_positions WHERE partition = $1)", partition)
		if err != nil {
			b.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
		if err != nil {
			b.Fatal(err)
		}
		if len(found) == 0 {
			continue
		}
		for i := range w.columns[table] {
			column := make([]any, len(found))
			for j, row := range found {
				column[j] = row[i]
			}
			batch[table] = append(batch[table], column)
		}
		w.count += len(found)
	}
	w.batches = append(w.batches, batch)
}

func (w *bareRows) write(b *testing.B, conn *pgx.Conn) time.Duration {
	b.Helper()
	start := time.Now()
	for _, batch := range w.batches {
		err := pgx.BeginFunc(b.Context(), conn, func(tx pgx.Tx) error {
			all := &pgx.Batch{}
			for _, table := range written {
				if len(batch[table]) > 0 {
					all.Queue(w.upsert[table], batch[table]...)
				}
			}
			return tx.SendBatch(b.Context(), all).Close()
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

// BenchmarkWaiting plays a recording beside 10,000 jobs in one of its queues with
// pending retries that are not due (rows in Armada's tables, ours and refloat_waits, in
// the same partitions), and beside nothing, or beside as many jobs that are only
// queued, since any rows make tables larger. It uses small transactions, which show the
// cost per transaction, and large ones. The ratio is the second's time to the first's;
// that of nothing to nothing is the machine's noise.
func BenchmarkWaiting(b *testing.B) {
	url := pgtest.Start(b, true).Database(b)
	conn := prepare(b, url)
	h := recorded(b, "retried", forRecordings)
	exec := func(queries ...string) {
		b.Helper()
		for _, query := range queries {
			if _, err := conn.Exec(b.Context(), query); err != nil {
				b.Fatalf("%s: %v", query, err)
			}
		}
	}
	db := open(b, url)
	h.ingest(b, db, writer.HoldBack, 1000, nil)
	exec("CREATE TABLE a_job AS SELECT * FROM refloat_jobs JOIN (SELECT job_id, scheduling_info FROM jobs) AS j USING (job_id) WHERE queue = 'vision-train' LIMIT 1")
	columns := pgtest.Columns(b, conn, "refloat_jobs")
	const series = " FROM a_job, generate_series(1, 10000) AS i"
	const due = "4611686018427387904" // in the far future
	waiting := []string{
		`INSERT INTO jobs (job_id, job_set, queue, user_id, submitted, priority, queued, queued_version, scheduling_info, scheduling_info_version)
			SELECT 'waits-' || i, 'waits', 'vision-train', 'u', 1, 1, true, 2, scheduling_info, 1` + series,
		"INSERT INTO refloat_jobs (" + columns + ") SELECT " + columns + ` FROM (SELECT (jsonb_populate_record(NULL::refloat_jobs, to_jsonb(a_job) || jsonb_build_object(
			'job_id', 'waits-' || i, 'partition', i % 3, 'job_set', 'waits', 'retry_after', ` + due + `))).*` + series + ") AS waiting",
		`INSERT INTO refloat_waits SELECT i % 3, 'waits-' || i, 'run', i, 'p', ` + due + `, '{node-1}', false, false, true, 0, 0, ` + due + series,
	}
	stand := []string{
		waiting[0], strings.Replace(waiting[1], "'retry_after', "+due, "'retry_after', 0", 1),
	}
	beside := map[string][]string{"nothing": nil, "queued": stand, "waiting": waiting}
	for _, c := range []struct {
		rows       int
		one, other string
	}{{1, "nothing", "nothing"}, {1, "nothing", "waiting"}, {1, "queued", "waiting"}, {1000, "nothing", "waiting"}, {1000, "queued", "waiting"}} {
		b.Run(fmt.Sprintf("rows=%d/%s-%s", c.rows, c.one, c.other), func(b *testing.B) {
			transactions := 0
			play := func(before []string) func() time.Duration {
				return func() (took time.Duration) {
					empty(b, conn)
					exec("INSERT INTO refloat_mirror SELECT p, '-1:-1:-1' FROM generate_series(0, 2) AS p") // the tables are ours
					exec(before...)
					exec("VACUUM ANALYZE jobs, refloat_jobs, refloat_waits", "CHECKPOINT")
					took, transactions = h.ingest(b, db, writer.HoldBack, c.rows, nil)
					return took
				}
			}
			var times pairs
			for b.Loop() {
				times.run(play(beside[c.one]), play(beside[c.other]))
			}
			each := float64(transactions * len(times.one))
			b.ReportMetric(float64(sum(times.one).Microseconds())/each, "µs/tx")
			b.ReportMetric(float64(sum(times.other).Microseconds())/each, "µs/tx-other")
			times.report(b)
		})
	}
}
