package writer_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pgtest"
	"github.com/refloat/refloat/internal/test/standin"
)

// replay describes how a tape is played into an empty database.
type replay struct {
	name   string
	fresh  bool // writing starts now, on a history that has ended
	rows   int  // of a transaction, about (sink's MaxRows)
	atOnce bool // two ingesters, each in its own goroutine; else two take turns by chance
	label  string
	fault  string // crash, cut (at the label), or of a commit: refused, unknown, cut in it
}

// player is one database being written by two ingesters.
type player struct {
	*tape
	replay
	t      testing.TB
	mode   writer.Mode
	url    string
	dbs    []*breakable
	sinks  []*sink.Writer
	random *rand.Rand
	clock  atomic.Int64

	mu     sync.Mutex
	copies []string
	faults int
}

// played is the result of a player: the rows of all tables, and the published copies.
type played struct {
	tables    map[string][]string
	copies    []string // each once
	published int      // total number
	url       string
	faults    int
}

// database returns an empty database with Armada's tables and ours.
func database(t testing.TB) (string, *pgx.Conn) {
	t.Helper()
	url := pgtest.Database(t)
	return url, prepare(t, url)
}

func prepare(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	err = schema.Create(context.Background(), conn)
	if err == nil {
		db, openErr := postgres.Open(context.Background(), url, postgres.Options{})
		if err = openErr; err == nil {
			err = db.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// play plays a tape with the clock stopped before all events, so that nothing is due,
// and lets time pass only then.
func (h *tape) play(t testing.TB, mode writer.Mode, r replay) *played {
	t.Helper()
	url, conn := database(t)
	p := &player{tape: h, replay: r, t: t, mode: mode, url: url, random: rand.New(rand.NewPCG(7, uint64(r.rows)))}
	p.clock.Store(h.from.UnixNano())
	for n := range h.events.Partitions() { // copy all decisions
		if r.fresh {
			break
		}
		if _, err := conn.Exec(t.Context(), "INSERT INTO refloat_mirror VALUES ($1, $2)", n, eventlog.Start.String()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		db, err := postgres.Open(t.Context(), url, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		p.dbs = append(p.dbs, &breakable{Store: db, p: p})
		p.sinks = append(p.sinks, nil)
		p.renew(i)
	}
	defer func() {
		for _, w := range p.sinks {
			_ = w.Close()
		}
	}()
	p.drain()
	for _, pass := range []time.Duration{10 * time.Second, 20 * 365 * 24 * time.Hour, 6 * time.Second, 6 * time.Second, 6 * time.Second, 6 * time.Second, 6 * time.Second, 6 * time.Second, 2 * time.Minute} {
		p.clock.Add(int64(pass))
		p.drain()
	}
	out := &played{url: url, tables: dump(t, conn), published: len(p.copies), faults: p.faults}
	out.copies = slices.Compact(slices.Sorted(slices.Values(p.copies)))
	return out
}

func (p *player) renew(i int) {
	if p.sinks[i] != nil {
		_ = p.sinks[i].Close()
	}
	w, err := sink.New(sink.Config{
		Events: p.events, Decisions: p.decisions, DB: p.dbs[i], MaxRows: p.rows, KeepRows: 50,
		Now: func() time.Time { return time.Unix(0, p.clock.Load()) },
		Hit: func(label string) error { return p.hit(i, label) },
		Mirror: func(partition int) sink.Mirror {
			return writer.New(writer.Config{Partition: partition, Mode: p.mode, Copies: p.publishCopies})
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.sinks[i] = w
}

func (p *player) publishCopies(_ context.Context, partition int, copies []eventlog.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range copies {
		p.copies = append(p.copies, fmt.Sprintf("%d %s %v %s", partition, c.Key, c.Properties, hex.EncodeToString(c.Payload)))
	}
	return nil
}

// maxFaults limits the faults: a new ingester begins with a transaction, which can fail
// too.
const maxFaults = 60

// third returns true for about every third call.
func (p *player) third() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	yes := p.random.IntN(3) == 0 && p.faults < maxFaults
	if yes {
		p.faults++
	}
	return yes
}

func (p *player) hit(i int, label string) error {
	if label != p.label || !p.third() {
		return nil
	}
	if p.fault == "cut" {
		return p.dbs[i].cut(p.dbs[i].pid)
	}
	return errHit
}

// drain lets both ingesters finish.
func (p *player) drain() {
	p.t.Helper()
	if p.atOnce {
		var both sync.WaitGroup
		for i := range p.sinks {
			both.Go(func() {
				for idle := 0; idle < 3; idle++ {
					if p.advance(i) {
						idle = 0
					}
				}
			})
		}
		both.Wait()
		return
	}
	for idle := 0; idle < 6; idle++ {
		if p.advance(p.either()) {
			idle = 0
		}
	}
}

func (p *player) either() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.IntN(2)
}

func (p *player) advance(i int) (progress bool) {
	for partition := range p.events.Partitions() {
		did, err := p.sinks[i].Advance(context.Background(), partition)
		switch {
		case errors.Is(err, errHit):
			p.renew(i)
			did = true
		case errors.Is(err, jobdb.ErrUnavailable):
			did = true
		case err != nil:
			p.t.Errorf("ingester %d: %v", i, err)
			return false
		}
		progress = progress || did
	}
	return progress
}

// breakable is a job database whose commits fail.
type breakable struct {
	jobdb.Store
	p   *player
	pid uint32 // of the latest transaction
}

type breakableTx struct {
	*postgres.Tx
	db  *breakable
	pid uint32
}

func (b *breakable) Begin(ctx context.Context, partition int) (jobdb.Tx, error) {
	tx, err := b.Store.Begin(ctx, partition)
	if err != nil {
		return nil, err
	}
	pg := tx.(*postgres.Tx)
	b.pid = pg.Conn().Conn().PgConn().PID()
	return &breakableTx{pg, b, b.pid}, nil
}

// cut closes a connection on the server.
func (b *breakable) cut(pid uint32) error {
	conn, err := pgx.Connect(context.Background(), b.p.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), "SELECT pg_terminate_backend($1, 10000)", pid)
	return err
}

var errLost = fmt.Errorf("%w: the test lost the answer", jobdb.ErrUnavailable)

func (t *breakableTx) Commit(ctx context.Context, from, to jobdb.Positions) error {
	if t.db.p.label != "commit" || !t.db.p.third() {
		return t.Tx.Commit(ctx, from, to)
	}
	switch t.db.p.fault {
	case "refused":
		return errors.Join(errLost, t.Rollback())
	case "unknown":
		return errors.Join(errLost, t.Tx.Commit(ctx, from, to))
	}
	done := make(chan error, 1)
	go func() { done <- t.db.cut(t.pid) }()
	err := t.Tx.Commit(ctx, from, to) // whichever comes first
	return errors.Join(err, <-done)
}

var allTables = []string{
	"jobs", "runs", "job_metadata", "job_run_errors", "markers", "refloat_positions", "refloat_jobs", "refloat_runs", "refloat_decisions",
	"refloat_not_decided", "refloat_ready", "refloat_parked", "refloat_activations", "refloat_releases", "refloat_waits", "refloat_mirror", "refloat_control",
	"refloat_groups", "refloat_units", "refloat_group_records", "refloat_held",
}

// dump returns every row of every table, without serial and last_modified.
func dump(t testing.TB, conn *pgx.Conn) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range allTables {
		rows, err := conn.Query(context.Background(), "SELECT (to_jsonb(r) - 'serial' - 'last_modified')::text FROM "+table+" AS r ORDER BY 1")
		if err != nil {
			t.Fatal(err)
		}
		if all[table], err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// differences compares two lists of lines and returns the first few differences.
func differences(want, got []string) string {
	var b strings.Builder
	n := 0
	for _, side := range []struct {
		sign      string
		these, in []string
	}{{"-", want, got}, {"+", got, want}} {
		there := map[string]bool{}
		for _, s := range side.in {
			there[s] = true
		}
		for _, s := range side.these {
			if n < 6 && !there[s] {
				n++
				fmt.Fprintf(&b, "\n%s %.1500s", side.sign, s)
			}
		}
	}
	if b.Len() == 0 && len(want) != len(got) {
		fmt.Fprintf(&b, "%d lines, want %d", len(got), len(want))
	}
	return b.String()
}

func (want *played) compare(t testing.TB, got *played) {
	t.Helper()
	for _, table := range allTables {
		if d := differences(want.tables[table], got.tables[table]); d != "" {
			t.Errorf("%s (-undisturbed +got):%s", table, d)
		}
	}
	if d := differences(want.copies, got.copies); d != "" {
		t.Errorf("copies (-undisturbed +got):%s", d)
	}
}

// replays are the other ways of playing a tape.
func replays() []replay {
	all := []replay{{name: "rows=1", rows: 1}, {name: "rows=10000", rows: 10_000}, {name: "at once", rows: 30, atOnce: true}}
	for _, label := range []string{"loaded", "written", "before-commit", "committed"} {
		all = append(all, replay{name: "crash at " + label, rows: 10, label: label, fault: "crash"})
		all = append(all, replay{name: "cut at " + label, rows: 10, label: label, fault: "cut"})
	}
	for _, fault := range []string{"refused", "unknown", "cut"} {
		all = append(all, replay{name: "commit " + fault, rows: 10, label: "commit", fault: fault})
	}
	return append(all, replay{name: "commit cut, at once", rows: 30, atOnce: true, label: "commit", fault: "cut"})
}

// TestReplays: however a history is cut into transactions, whatever ends them, and
// whoever else writes, the rows and the copies equal those of one undisturbed ingester.
func TestReplays(t *testing.T) {
	t.Parallel()
	preempted := func(t *testing.T) *tape { return recorded(t, "preempted", forRecordings) }
	chaos := func(semantics uint32) func(t *testing.T) *tape {
		return func(t *testing.T) *tape { return recordedIn(t, semantics, "chaos", forRecordings) }
	}
	for _, of := range []struct {
		name string
		make func(t *testing.T) *tape
		mode writer.Mode
		some bool // not each of the replays
	}{
		{name: "preempted/HoldBack", make: preempted, mode: writer.HoldBack},
		{name: "chaos/HoldBack", make: chaos(3), mode: writer.HoldBack},
		{name: "chaos/HoldBack/2", make: chaos(2), mode: writer.HoldBack, some: true}, // gangs fail
		{name: "chaos/Direct", make: chaos(3), mode: writer.Direct, some: true},
		{name: "preempted/Passthrough", make: preempted, mode: writer.Passthrough},
		{name: "world/HoldBack", make: lived, mode: writer.HoldBack},
		{name: "groups/HoldBack", make: livedInGroups, mode: writer.HoldBack},
		{name: "groups/Direct", make: livedInGroups, mode: writer.Direct, some: true},
	} {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			h := of.make(t)
			want := h.play(t, of.mode, replay{rows: 5000})
			if len(want.copies) != want.published {
				t.Errorf("undisturbed, %d copies are published %d times", len(want.copies), want.published)
			}
			if len(want.copies) == 0 && of.mode != writer.Passthrough {
				t.Error("nothing is published to the rest of Armada")
			}
			if n := len(want.tables["refloat_waits"]); n != 0 {
				t.Errorf("%d jobs still wait", n)
			}
			for i, r := range replays() {
				if (of.some || testing.Short()) && i%5 != 0 {
					continue
				}
				t.Run(r.name, func(t *testing.T) {
					got := h.play(t, of.mode, r)
					want.compare(t, got)
					if r.fault != "" && got.faults == 0 {
						t.Error("nothing was disturbed")
					}
					t.Logf("%d faults; %d copies published %d times", got.faults, len(got.copies), got.published)
				})
			}
		})
	}
}

// TestDoubled: if each message comes twice, Armada's tables are the same.
func TestDoubled(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"chaos", "preempted", "retried"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			once := recorded(t, name, forRecordings).play(t, writer.HoldBack, replay{rows: 5000})
			twice := recordedTimes(t, name, forRecordings, 2).play(t, writer.HoldBack, replay{rows: 50})
			for _, table := range []string{"jobs", "runs", "job_metadata", "job_run_errors"} {
				if d := differences(once.tables[table], twice.tables[table]); d != "" {
					t.Errorf("%s (-once +twice):%s", table, d)
				}
			}
		})
	}
}

// TestRebuild: rebuilding a database from the logs publishes no copies.
func TestRebuild(t *testing.T) {
	t.Parallel()
	h := recorded(t, "preempted", forRecordings)
	if got := h.play(t, writer.HoldBack, replay{rows: 50, fresh: true}); got.published != 0 || len(got.tables["refloat_decisions"]) == 0 {
		t.Errorf("%d copies of %d decisions", got.published, len(got.tables["refloat_decisions"]))
	}
}

// TestOtherIngester: a pending retry that another ingester wrote is ended by the
// remaining one.
func TestOtherIngester(t *testing.T) {
	t.Parallel()
	d := deploy(t, standin.Config{}, writer.HoldBack, someRetries)
	d.ingesterUp()
	id := d.Submit(standin.Job{Script: script(1, standin.Fail(2), standin.Succeed())})[0]
	d.until("it waits", func() bool { return d.count("SELECT count(*) FROM refloat_waits WHERE waiting") > 0 })
	d.must(d.ingesters[0].Close())
	d.ingesters = d.ingesters[1:]
	d.right()
	if r := d.Job(id); r.State != standin.Succeeded || len(r.Pods) != 2 {
		t.Errorf("%v after %d pods: %+v", r.State, len(r.Pods), r)
	}
}
