package writer_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/test/standin"
)

// TestEndWaits: after EndRetries, an ingester like Armada's own, which applies copies
// too, is enough for the jobs to run again, if the scheduler is restarted as described
// in docs/operate.md. It does not depend on further version bumps.
func TestEndWaits(t *testing.T) {
	t.Parallel()
	ok := standin.Succeed()
	asked := standin.Job{Preemptible: true, Script: script(1, standin.Forever(), ok)} // an operator requests its preemption
	for _, tt := range []struct {
		name  string
		job   standin.Job
		when  string // of refloat_waits; empty: a copy that waits was published, and its transaction failed
		state standin.State
	}{
		{"waits", standin.Job{Script: script(1, standin.Fail(2), ok)}, "waiting", standin.Succeeded},
		{"is forgotten", standin.Job{Script: script(1, standin.Preempted(), ok)}, "forgetting", standin.Succeeded},
		{"is raised", standin.Job{Script: script(1, standin.Preempted(), ok)}, "raises > 0", standin.Succeeded},
		{"is raised, and leased meanwhile", standin.Job{Script: script(1, standin.Preempted(), ok)}, "raises > 0 AND NOT waiting", standin.Succeeded},
		{"was preempted by request, is forgotten", asked, "forgetting", standin.Succeeded},
		{"was preempted by request, waits", asked, "waiting", standin.Succeeded},
		{"fails again", standin.Job{Script: script(2, standin.Fail(2), ok)}, "waiting", standin.Failed},
		{"its requeue was not committed", standin.Job{Script: script(1, standin.Fail(2), ok)}, "", standin.Succeeded},
		{"was preempted, its requeue was not committed", standin.Job{Script: script(1, standin.Preempted(), ok)}, "", standin.Succeeded},
	} {
		for _, scheduler := range []struct {
			name            string
			second, restart bool
		}{{"goes on", false, false}, {"restarts", false, true}, {"wants a second bump and restarts", true, true}} {
			t.Run(tt.name+"/the scheduler "+scheduler.name, func(t *testing.T) {
				t.Parallel()
				d := deploy(t, standin.Config{SecondRaise: scheduler.second}, writer.HoldBack, someRetries)
				lost := false
				if tt.when == "" {
					d.copies = func(ctx context.Context, p int, copies []eventlog.Message) error {
						if !lost {
							lost = bytes.Contains(copies[0].Payload, []byte(schedulerdb.WaitingLabel))
							d.must(d.Log().AppendSync(ctx, p, copies))
						}
						return errHit
					}
				}
				id := d.Submit(tt.job)[0]
				if tt.job.Preemptible {
					d.until("it runs", func() bool { return d.count("SELECT count(*) FROM runs WHERE running") > 0 })
					d.Preempt(id)
				}
				d.until("refloat_waits: "+tt.when, func() bool {
					return lost || tt.when != "" && d.count("SELECT count(*) FROM refloat_waits WHERE "+tt.when) > 0
				})
				waits := d.count("SELECT count(*) FROM refloat_waits")
				d.must(d.ingesters[0].Close())
				d.ingesters = nil
				for range 5 { // the time in which Armada's scheduler forgets a job
					d.Step()
				}
				if ended := d.handBack(); ended != waits || d.count("SELECT count(*) FROM refloat_waits") != 0 {
					t.Errorf("%d waits were ended of %d", ended, waits)
				}
				if scheduler.restart {
					d.RestartScheduler()
				}
				d.right()
				if r := d.Job(id); r.State != tt.state || len(r.Pods) != 2 {
					t.Errorf("%v after %d pods, want %v after 2: %+v", r.State, len(r.Pods), tt.state, r)
				}
			})
		}
	}
}

// handBack ends the pending retries, and continues with an ingester like Armada's own
// from our positions. It returns the number of pending retries.
func (d *deployment) handBack() (ended int) {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.URL())
	d.must(err)
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for p := range d.Log().Partitions() {
		at := eventlog.Start
		const query = "SELECT event_ledger, event_entry, event_batch FROM refloat_positions WHERE partition = $1"
		d.must(conn.QueryRow(d.t.Context(), query, p).Scan(&at.Ledger, &at.Entry, &at.Batch))
		copies, err := d.Log().Open(p, at)
		d.must(err)
		d.must(pgx.BeginFunc(d.t.Context(), conn, func(tx pgx.Tx) error {
			n, err := writer.EndRetries(d.t.Context(), tx, writer.Config{Partition: p, Mode: writer.HoldBack}, copies)
			ended += n
			return err
		}))
		d.must(copies.Close())
		events, err := d.Log().Open(p, at)
		d.must(err)
		d.t.Cleanup(func() { _ = events.Close() })
		d.armada = append(d.armada, armadaIngester{conn, events, schedulerdb.NewConverter()})
	}
	return ended
}

// armadaIngester applies each message of a partition, as Armada's own ingester does.
type armadaIngester struct {
	conn      *pgx.Conn
	events    eventlog.Reader
	converter *schedulerdb.Converter
}

// advance applies everything that is available, in one transaction.
func (a *armadaIngester) advance(ctx context.Context) (bool, error) {
	chunk := make([]eventlog.Message, 1000)
	n, err := a.events.Read(chunk)
	if n == 0 || err != nil {
		return false, err
	}
	var ops []schedulerdb.Op
	for i := range chunk[:n] {
		effects, _ := a.converter.Convert(&chunk[i], nil)
		for _, e := range effects {
			ops = append(ops, e.Op)
		}
	}
	return true, pgx.BeginFunc(ctx, a.conn, func(tx pgx.Tx) error { return pgstore.In(tx).Apply(ctx, ops) })
}
