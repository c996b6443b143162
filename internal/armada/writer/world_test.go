package writer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/standin"
)

// deployment is Refloat beside the stand-in for an unmodified Armada: owners and
// ingesters of all partitions, in one goroutine, on the world's clock.
type deployment struct {
	*standin.World
	t      *testing.T
	mode   writer.Mode
	random *rand.Rand

	decisions, policies *filelog.Log
	control             *filelog.Log // the control-plane topic; nil: no operator asked for anything
	fs                  vfs.FS
	owners              []*evaluator.Owner // empty: the evaluators are down
	closers             []func() error     // of the owners
	db                  *postgres.DB
	ingesters           []*sink.Writer
	armada              []armadaIngester         // after handBack
	hit                 func(label string) error // of the ingesters' transactions
	copies              func(ctx context.Context, p int, copies []eventlog.Message) error
	unable              []error
	slack               time.Duration // of the policies
	semantics           uint32        // of the evaluators
}

func deploy(t *testing.T, cfg standin.Config, mode writer.Mode, policies string) *deployment {
	t.Helper()
	if cfg.Executors == nil {
		cfg.Executors = clusters(true)
	}
	d := &deployment{World: standin.NewWorld(t, cfg), t: t, mode: mode, fs: vfs.NewMem(), semantics: 3, random: rand.New(rand.NewPCG(cfg.Seed, 9))}
	d.copies = d.Log().AppendSync
	d.decisions, d.policies = d.open("decisions", d.Log().Partitions()), d.open("policies", 1)
	d.publish(policies)
	var err error
	d.db, err = postgres.Open(t.Context(), d.URL(), postgres.Options{})
	d.must(err)
	t.Cleanup(func() { _ = d.db.Close() })
	d.evaluatorsUp()
	d.ingesterUp()
	t.Cleanup(d.evaluatorsDown)
	return d
}

// clusters are two with two nodes each, of two slots.
func clusters(deleteFailed bool) []standin.Executor {
	return []standin.Executor{
		{Name: "east", DeleteFailed: deleteFailed, Nodes: []standin.Node{{Name: "east-1", Slots: 2}, {Name: "east-2", Slots: 2}}},
		{Name: "west", DeleteFailed: deleteFailed, Nodes: []standin.Node{{Name: "west-1", Slots: 2}, {Name: "west-2", Slots: 2}}},
	}
}

func (d *deployment) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *deployment) open(dir string, partitions int) *filelog.Log {
	d.t.Helper()
	log, err := filelog.Open(filelog.Config{FS: d.fs, Dir: dir, Partitions: partitions, Manual: true, Now: d.Now})
	d.must(err)
	d.t.Cleanup(func() { _ = log.Close() })
	return log
}

func (d *deployment) publish(policies string) {
	d.t.Helper()
	set, err := policyfile.Parse([]policyfile.File{{Name: "policies.yaml", Data: []byte(policies)}})
	d.must(err)
	d.slack = set.TerminationSlack()
	payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "test", Time: d.Now().UnixNano()})
	d.must(err)
	d.must(d.policies.AppendSync(d.t.Context(), 0, []eventlog.Message{{Payload: payload}}))
}

type seeded struct{ *rand.Rand }

func (s seeded) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.Uint32())
	}
	return len(p), nil
}

var _ io.Reader = seeded{}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}

func (d *deployment) evaluatorsUp() {
	d.t.Helper()
	for p := range d.Log().Partitions() {
		store, err := projection.OpenStore(projection.StoreConfig{FS: vfs.NewMem(), Dir: "state", Logger: quiet{}})
		d.must(err)
		policies, err := policylog.Open(d.policies)
		d.must(err)
		o := evaluator.NewOwner(evaluator.Config{
			Semantics: d.semantics,
			Partition: p, Store: store, Events: d.Log(), Decisions: d.decisions, Policies: policies,
			Publisher: d.decisions.Publisher(p), Random: seeded{d.random},
		})
		d.owners = append(d.owners, o)
		d.closers = append(d.closers, o.Close, policies.Close, store.Close)
	}
}

func (d *deployment) evaluatorsDown() {
	for _, c := range d.closers {
		if err := c(); err != nil {
			d.t.Error(err)
		}
	}
	d.owners, d.closers = nil, nil
}

func (d *deployment) ingesterUp() {
	d.t.Helper()
	w, err := sink.New(sink.Config{
		Events: d.Log(), Decisions: d.decisions, DB: d.db, Now: d.Now,
		Hit: func(label string) error {
			if d.hit == nil {
				return nil
			}
			return d.hit(label)
		},
		Mirror: func(partition int) sink.Mirror {
			return writer.New(writer.Config{
				Partition: partition, Mode: d.mode,
				Copies: func(ctx context.Context, p int, copies []eventlog.Message) error { return d.copies(ctx, p, copies) },
				Slack:  func() (time.Duration, error) { return d.slack, nil },
				Hooks:  writer.Hooks{Unable: func(_ int, err error) { d.unable = append(d.unable, err) }},
			})
		},
	})
	d.must(err)
	d.ingesters = append(d.ingesters, w)
	d.t.Cleanup(func() { _ = w.Close() })
}

var errHit = errors.New("cut here")

// step advances the clock by a second, then lets all of our parts finish.
func (d *deployment) step() {
	d.t.Helper()
	d.Step()
	d.settle()
}

func (d *deployment) settle() {
	d.t.Helper()
	for progress := true; progress; {
		progress = false
		for _, o := range d.owners {
			did, err := o.Advance(d.Now().UnixNano())
			d.must(err)
			d.must(d.decisions.Commit())
			progress = progress || did
		}
		for _, w := range d.ingesters {
			for p := range d.Log().Partitions() {
				did, err := w.Advance(context.Background(), p)
				if err != nil && !errors.Is(err, errHit) {
					d.t.Fatal(err)
				}
				progress = progress || did
			}
		}
		for i := range d.armada {
			did, err := d.armada[i].advance(d.t.Context())
			d.must(err)
			progress = progress || did
		}
	}
}

// until steps until a condition holds.
func (d *deployment) until(what string, holds func() bool) {
	d.t.Helper()
	for range 600 {
		if holds() {
			return
		}
		d.step()
	}
	d.t.Fatalf("not in ten minutes: %s\n%s", what, d.unfinished())
}

// unfinished returns the unfinished jobs in the tables.
func (d *deployment) unfinished() (text string) {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.URL())
	d.must(err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(d.t.Context(), `SELECT job_id, row_to_json(j)::text, row_to_json(r)::text, row_to_json(w)::text, row_to_json(o)::text
		FROM (SELECT job_id, queued, queued_version, scheduling_info_version, cancel_requested, validated FROM jobs WHERE NOT terminated) j
		LEFT JOIN (SELECT job_id, run_id, executor, node, failed, succeeded, returned, preempted, cancelled, running, leased_timestamp FROM runs) r USING (job_id)
		LEFT JOIN refloat_waits w USING (job_id)
		LEFT JOIN (SELECT job_id, state, final, latest_run, decision, retry_after FROM refloat_jobs) o USING (job_id) ORDER BY job_id, leased_timestamp`)
	d.must(err)
	for rows.Next() {
		v, err := rows.Values()
		d.must(err)
		text += fmt.Sprintln(v...)
	}
	d.must(rows.Err())
	for _, lost := range d.Lost() {
		text += lost + "\n"
	}
	return text
}

func (d *deployment) steps(n int) {
	d.t.Helper()
	for range n {
		d.step()
	}
}

// right checks that all jobs have ended, and that nothing forbidden happened.
func (d *deployment) right() {
	d.t.Helper()
	d.until("all jobs are over", d.Done)
	d.steps(40) // whatever is still due
	for _, v := range append(d.Violations(), d.Lost()...) {
		d.t.Error(v)
	}
	for _, err := range d.unable {
		d.t.Error(err)
	}
	if n := d.count("SELECT count(*) FROM refloat_waits"); n != 0 {
		d.t.Errorf("%d jobs wait, and all are over", n)
	}
}

func (d *deployment) count(query string, args ...any) (n int) {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.URL())
	d.must(err)
	defer conn.Close(context.Background())
	d.must(conn.QueryRow(d.t.Context(), query, args...).Scan(&n))
	return n
}
