package mirror_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armadatest"
	"github.com/refloat/refloat/internal/mirror"
)

// TestEndWaits: when waits were ended, an ingester like Armada's own is enough for
// the jobs to run again. A scheduler that wants to be told twice is restarted.
func TestEndWaits(t *testing.T) {
	t.Parallel()
	ok := armadatest.Succeed()
	for _, tt := range []struct {
		name  string
		job   armadatest.Job
		when  string
		state armadatest.State
	}{
		{"waits", armadatest.Job{Script: script(1, armadatest.Fail(2), ok)}, "waiting", armadatest.Succeeded},
		{"is forgotten", armadatest.Job{Script: script(1, armadatest.Preempted(), ok)}, "forgetting", armadatest.Succeeded},
		{"is raised", armadatest.Job{Script: script(1, armadatest.Preempted(), ok)}, "raises > 0", armadatest.Succeeded},
		{"fails again", armadatest.Job{Script: script(2, armadatest.Fail(2), ok)}, "waiting", armadatest.Failed},
	} {
		for _, second := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				d := deploy(t, armadatest.Config{SecondRaise: second}, mirror.HoldBack, someRetries)
				id := d.Submit(tt.job)[0]
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
						n, err := mirror.EndWaits(t.Context(), tx, mirror.Config{Partition: p, Mode: mirror.HoldBack})
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
				d.mode = mirror.Passthrough
				d.ingesterUp()
				d.right()
				if r := d.Job(id); r.State != tt.state || len(r.Pods) != 2 {
					t.Errorf("%v after %d pods, want %v after 2: %+v", r.State, len(r.Pods), tt.state, r)
				}
			})
		}
	}
}
