package writer_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/test/standin"
)

// TestEndWaits: when waits were ended, an ingester like Armada's own is enough for
// the jobs to run again. A scheduler that wants to be told twice is restarted.
func TestEndWaits(t *testing.T) {
	t.Parallel()
	ok := standin.Succeed()
	asked := standin.Job{Preemptible: true, Script: script(1, standin.Forever(), ok)} // an operator asks for its preemption
	for _, tt := range []struct {
		name  string
		job   standin.Job
		when  string
		state standin.State
	}{
		{"waits", standin.Job{Script: script(1, standin.Fail(2), ok)}, "waiting", standin.Succeeded},
		{"is forgotten", standin.Job{Script: script(1, standin.Preempted(), ok)}, "forgetting", standin.Succeeded},
		{"is raised", standin.Job{Script: script(1, standin.Preempted(), ok)}, "raises > 0", standin.Succeeded},
		{"was preempted by request, is forgotten", asked, "forgetting", standin.Succeeded},
		{"was preempted by request, waits", asked, "waiting", standin.Succeeded},
		{"fails again", standin.Job{Script: script(2, standin.Fail(2), ok)}, "waiting", standin.Failed},
	} {
		for _, second := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				d := deploy(t, standin.Config{SecondRaise: second}, writer.HoldBack, someRetries)
				id := d.Submit(tt.job)[0]
				if tt.job.Preemptible {
					d.until("it runs", func() bool { return d.count("SELECT count(*) FROM runs WHERE running") > 0 })
					d.Preempt(id)
				}
				d.until(tt.when, func() bool { return d.count("SELECT count(*) FROM refloat_waits WHERE "+tt.when) > 0 })
				d.must(d.ingesters[0].Close())
				d.ingesters = nil
				for range 5 { // what Armada's scheduler takes to forget a job
					d.Step()
				}
				conn, err := pgx.Connect(t.Context(), d.URL())
				d.must(err)
				defer conn.Close(t.Context())
				ended := 0
				d.must(pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					for p := range d.Log().Partitions() {
						n, err := writer.EndWaits(t.Context(), tx, writer.Config{Partition: p, Mode: writer.HoldBack})
						d.must(err)
						ended += n
					}
					return nil
				}))
				if n := d.count("SELECT count(*) FROM refloat_waits"); n != 0 || ended != 1 {
					t.Errorf("%d waits were ended and %d are left", ended, n)
				}
				if second {
					d.RestartScheduler()
				}
				d.mode = writer.Passthrough
				d.ingesterUp()
				d.right()
				if r := d.Job(id); r.State != tt.state || len(r.Pods) != 2 {
					t.Errorf("%v after %d pods, want %v after 2: %+v", r.State, len(r.Pods), tt.state, r)
				}
			})
		}
	}
}
