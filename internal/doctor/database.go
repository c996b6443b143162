package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
)

// Database is what GatherDatabase found in a job database in PostgreSQL.
type Database struct {
	Name      string // host and database, without user and password
	Err       error  // it is unreachable, or not ours
	Ours      bool   // it has our tables
	Armada    error  // from pgstore.Check; nil: Armada's tables exist
	Positions []DatabasePosition
	Locks     []DatabaseLock
	Retries   PendingRetries
	Errors    DatabaseErrors
	// RolledBack is when it was rolled back to Armada's ingester; zero: it was not.
	RolledBack time.Time
}

// DatabasePosition is the position of a partition's rows.
type DatabasePosition struct {
	Partition int
	Events    eventlog.Position
}

// DatabaseLock is a long transaction that holds a lock which ingesters need.
type DatabaseLock struct {
	PID int
	Who string // application, user and address
	For time.Duration
}

// PendingRetries counts pending retries.
type PendingRetries struct {
	Exists                      bool // an ingester writes Armada's tables, or has written them
	Waiting, Forgetting, Raised int
	Overdue                     int           // by more than a minute
	Oldest                      time.Duration // of the overdue ones
}

// DatabaseErrors counts failed runs of the last day.
type DatabaseErrors struct{ Failed, WithoutCategory, Exists int }

const (
	longLock = 10 * time.Second
	longDue  = time.Minute
)

// GatherDatabase queries a job database. Errors are part of the result.
func GatherDatabase(ctx context.Context, at string, now time.Time) *Database {
	d := &Database{Name: "job database"}
	if u, err := url.Parse(at); err == nil {
		d.Name = u.Host + u.Path
	}
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		d.Err = errors.New(strings.ReplaceAll(err.Error(), at, d.Name))
		return d
	}
	defer conn.Close(context.WithoutCancel(ctx))
	d.Armada = pgstore.Check(ctx, conn)
	if d.Err = conn.QueryRow(ctx, `SELECT to_regclass('refloat_positions') IS NOT NULL`).Scan(&d.Ours); d.Err != nil || !d.Ours {
		return d // nothing else can be queried
	}
	d.Err = errors.Join(d.positions(ctx, conn), d.rolledBack(ctx, conn), d.locks(ctx, conn), d.waits(ctx, conn, now), d.failures(ctx, conn, now))
	return d
}

func (d *Database) positions(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `SELECT partition, event_ledger, event_entry, event_batch FROM refloat_positions ORDER BY partition`)
	if err != nil {
		return err
	}
	var p DatabasePosition
	_, err = pgx.ForEachRow(rows, []any{&p.Partition, &p.Events.Ledger, &p.Events.Entry, &p.Events.Batch}, func() error {
		d.Positions = append(d.Positions, p)
		return nil
	})
	return err
}

// rolledBack reads what `cutover back` has recorded. Older tables do not have the column.
func (d *Database) rolledBack(ctx context.Context, conn *pgx.Conn) error {
	var at *int64
	err := conn.QueryRow(ctx, `SELECT min((to_jsonb(p)->>'given_back')::bigint) FROM refloat_positions AS p`).Scan(&at)
	if at != nil {
		d.RolledBack = time.Unix(0, *at).UTC()
	}
	return err
}

func rolledBack(at time.Time) string {
	return "the job database was rolled back to Armada's ingester at " + at.UTC().Format(time.RFC3339) + ": ours refuse to start on it"
}

const takeOver = "to take over again, stop Armada's ingester, run refloatctl cutover plan, then refloatctl cutover start (docs/operate.md)"

// locks finds the holders of Armada's advisory lock, whose key PostgreSQL shows in two
// halves, and of row locks on our positions.
func (d *Database) locks(ctx context.Context, conn *pgx.Conn) error {
	const query = `SELECT DISTINCT a.pid, concat_ws(' ', nullif(a.application_name, ''), a.usename, host(a.client_addr)),
			extract(epoch FROM clock_timestamp() - a.xact_start)::float8
		FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.granted AND a.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - make_interval(secs => $1)
			AND (l.locktype = 'advisory' AND (l.classid::bigint << 32 | l.objid::bigint) = $2
				OR l.relation = 'refloat_positions'::regclass AND l.mode LIKE 'Row%')`
	rows, err := conn.Query(ctx, query, longLock.Seconds(), int64(pgstore.LockKey))
	if err != nil {
		return err
	}
	var l DatabaseLock
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&l.PID, &l.Who, &seconds}, func() error {
		l.For = time.Duration(seconds * float64(time.Second)).Round(time.Second)
		d.Locks = append(d.Locks, l)
		return nil
	})
	return err
}

func (d *Database) waits(ctx context.Context, conn *pgx.Conn, now time.Time) error {
	w := &d.Retries
	if err := conn.QueryRow(ctx, `SELECT to_regclass('refloat_waits') IS NOT NULL`).Scan(&w.Exists); err != nil || !w.Exists {
		return err
	}
	const query = `SELECT count(*) FILTER (WHERE waiting AND NOT forgetting), count(*) FILTER (WHERE forgetting), count(*) FILTER (WHERE raises > 0),
			count(*) FILTER (WHERE due < $1), coalesce(min(due) FILTER (WHERE due < $1), $1)
		FROM refloat_waits`
	var oldest int64
	err := conn.QueryRow(ctx, query, now.Add(-longDue).UnixNano()).Scan(&w.Waiting, &w.Forgetting, &w.Raised, &w.Overdue, &oldest)
	w.Oldest = now.Sub(time.Unix(0, oldest)).Round(time.Second)
	return err
}

func (d *Database) failures(ctx context.Context, conn *pgx.Conn, now time.Time) error {
	const query = `SELECT count(*), count(*) FILTER (WHERE error_category = '' AND error_reason = 'PodError'),
			count(*) FILTER (WHERE error_message ILIKE '%already exists%')
		FROM refloat_runs WHERE error_reason <> '' AND ended > $1`
	e := &d.Errors
	return conn.QueryRow(ctx, query, now.Add(-24*time.Hour).UnixNano()).Scan(&e.Failed, &e.WithoutCategory, &e.Exists)
}

// CheckDatabase checks the database, purely. ends are the known ends of events, by
// partition.
func CheckDatabase(d *Database, ends map[int]eventlog.Position) []Finding {
	c := &checks{}
	if d.Err != nil {
		c.bad("RD050", d.Name, "cannot be read: "+oneLine(d.Err), "ingesters write to it", "check --job-db; an ingester creates our tables when it starts")
		return c.found
	}
	if !d.Ours {
		c.withoutTables(d)
		return c.found
	}
	if !d.RolledBack.IsZero() {
		c.warn("RD057", d.Name, rolledBack(d.RolledBack), "Armada's ingester writes it, and no failed job is retried", "nothing, if that is intended; "+takeOver)
	} else {
		c.ok("RD057", d.Name, "is not rolled back to Armada's ingester")
	}
	c.ok("RD050", d.Name, fmt.Sprintf("is a job database with %s", plural.Of(len(d.Positions), "partition")))
	c.armada(d)
	c.databasePositions(d, ends)
	for _, l := range d.Locks {
		c.warn("RD053", d.Name, fmt.Sprintf("process %d (%s) has held a lock that ingesters need for %v", l.PID, l.Who, l.For),
			"no ingester can write meanwhile, neither ours nor Armada's", fmt.Sprintf("check what it does; SELECT pg_terminate_backend(%d) ends it", l.PID))
	}
	if len(d.Locks) == 0 {
		c.ok("RD053", d.Name, "no lock that ingesters need is held for long")
	}
	c.waits(d)
	c.failures(d)
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(a.Code, b.Code))
	})
	return c.found
}

// withoutTables checks a database that none of our ingesters has written.
func (c *checks) withoutTables(d *Database) {
	switch {
	case d.Armada == nil:
		c.warn("RD050", d.Name, "is Armada's scheduler database without our tables: Armada's own ingester still writes it",
			"no job is retried before a cut-over", "once everything else is fine, run refloatctl cutover plan (docs/operate.md)")
	case errors.Is(d.Armada, pgstore.ErrForeign):
		c.bad("RD050", d.Name, "does not have our tables", "ingesters write to it, and none has yet", "check --job-db; an ingester creates the tables when it starts")
		return
	}
	c.armada(d)
}

func (c *checks) armada(d *Database) {
	switch {
	case d.Armada == nil:
		c.ok("RD051", d.Name, fmt.Sprintf("is also Armada's scheduler database, at migration %d", pgstore.Migration))
	case errors.Is(d.Armada, pgstore.ErrForeign):
		c.ok("RD051", d.Name, "does not have Armada's tables: --mode holdback and passthrough cannot be used")
	default:
		c.bad("RD051", d.Name, oneLine(d.Armada), "the ingester does not write tables of a version that it does not support", "use a version of Refloat that supports this version of Armada")
	}
}

func (c *checks) databasePositions(d *Database, ends map[int]eventlog.Position) {
	var ahead []int
	for _, p := range d.Positions {
		if end, known := ends[p.Partition]; known && end.Compare(p.Events) < 0 {
			ahead = append(ahead, p.Partition)
		}
	}
	if len(ahead) > 0 {
		c.bad("RD052", d.Name, "is ahead of events in partitions "+some(ahead), "the database was written from other topics, or these have lost messages",
			"start the ingester with the previous topics, or with a new database")
		return
	}
	c.ok("RD052", d.Name, "its positions are within events, as far as known")
}

func (c *checks) waits(d *Database) {
	w := d.Retries
	switch {
	case !w.Exists:
		return
	case w.Overdue > 0:
		c.bad("RD054", d.Name, fmt.Sprintf("%s overdue, the oldest by %v", plural.Of(w.Overdue, "retry is", "retries are"), w.Oldest),
			"their jobs are queued, but match no node", "make sure that an ingester runs with --mode holdback and owns the partition (RD044)")
	default:
		c.ok("RD054", d.Name, fmt.Sprintf("%s for the retry time, %d for the scheduler to forget the job, %d for a new run", plural.Of(w.Waiting, "job waits", "jobs wait"), w.Forgetting, w.Raised))
	}
}

func (c *checks) failures(d *Database) {
	e := d.Errors
	if e.Exists > 0 {
		c.bad("RD055", d.Name, fmt.Sprintf("%d of %d failed runs of the last day found the pod of their job's previous run still present", e.Exists, e.Failed),
			"all runs of a job use one pod name, so each of these cost an attempt", "assign retried failures an error category with action: Delete (examples/armada/executor.yaml), or a delay longer than failedPodExpiry")
	}
	if 2*e.WithoutCategory > e.Failed {
		c.warn("RD056", d.Name, fmt.Sprintf("%d of %d failed runs of the last day have no failure category", e.WithoutCategory, e.Failed),
			"executors do not delete the failed pods, and rules cannot match categories", "set application.errorCategories on the executors (examples/armada/executor.yaml)")
	}
	if e.Exists == 0 {
		c.ok("RD055", d.Name, fmt.Sprintf("none of %d failed runs of the last day found the pod of the previous run still present", e.Failed))
	}
}
