package writer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/test/standin"
)

// An executor learns of a preemption when it asks for leases, so its pod's grace
// period begins later than the preemption; hence the slack.
const someRetries = `
kind: RetrySettings
spec: {terminationSlack: 10s}
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: retries}
spec:
  retryLimit: 3
  defaultAction: Fail
  rules:
  - {name: broken, action: Retry, onExitCodes: {operator: In, values: [1]}, antiAffinity: {mode: node}}
  - {name: slow, action: Retry, onExitCodes: {operator: In, values: [2]}, backoff: {initialDelay: 30s, multiplier: 1}}
  - {name: lost, action: Retry, onConditions: [Preempted, LeaseExpired]}
  - {name: nowhere, action: Fail, onConditions: [Unschedulable]}
---
kind: Queue
name: queue
retryPolicies: [retries]
---
kind: Queue
name: shadow
retryPolicies: [retries]
mode: Shadow
`

func script(n int, o standin.Outcome, then ...standin.Outcome) (all []standin.Outcome) {
	for range n {
		all = append(all, o)
	}
	return append(all, then...)
}

// TestOutcomes: the outcome of one job for every way in which its runs can end.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	ok := standin.Succeed()
	for _, tt := range []struct {
		name    string
		job     standin.Job
		state   standin.State
		pods    int
		lookout string
		apart   time.Duration // of two pods, at least
	}{
		{name: "succeeds", job: standin.Job{}, state: standin.Succeeded, pods: 1},
		{name: "fails three times", job: standin.Job{Script: script(3, standin.Fail(1), ok)}, state: standin.Succeeded, pods: 4},
		{name: "fails too often", job: standin.Job{Script: script(4, standin.Fail(1), ok)}, state: standin.Failed, pods: 4, lookout: "FAILED"},
		{name: "no rule", job: standin.Job{Script: script(1, standin.Fail(9), ok)}, state: standin.Failed, pods: 1},
		{name: "waits", job: standin.Job{Script: script(2, standin.Fail(2), ok)}, state: standin.Succeeded, pods: 3, apart: 30 * time.Second},
		{name: "preempted", job: standin.Job{Script: script(1, standin.Preempted(), ok)}, state: standin.Succeeded, pods: 2, apart: time.Second},
		{name: "preempted too often", job: standin.Job{Script: script(4, standin.Preempted(), ok)}, state: standin.Failed, pods: 4, lookout: "PREEMPTED"},
		{name: "preempted, with a grace period", job: standin.Job{Grace: 20 * time.Second, Script: script(1, standin.Preempted(), ok)}, state: standin.Succeeded, pods: 2},
		{name: "expired", job: standin.Job{Script: script(2, standin.Expired(), ok)}, state: standin.Succeeded, pods: 3},
		{name: "replayed", job: standin.Job{Script: script(1, standin.Fail(1).Replayed(), ok)}, state: standin.Succeeded, pods: 2},
		{name: "never starts", job: standin.Job{Script: script(1, standin.NeverStarts(), ok)}, state: standin.Failed, pods: 1},
		{name: "returned", job: standin.Job{Script: script(2, standin.Returned(), ok)}, state: standin.Succeeded, pods: 3},
		{name: "in shadow", job: standin.Job{Queue: "shadow", Script: script(1, standin.Fail(1), ok)}, state: standin.Failed, pods: 1},
		{name: "preempted in shadow", job: standin.Job{Queue: "shadow", Script: script(1, standin.Preempted(), ok)}, state: standin.Failed, pods: 1},
	} {
		for _, second := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				d := deploy(t, standin.Config{SecondRaise: second}, writer.HoldBack, someRetries)
				id := d.Submit(tt.job)[0]
				d.right()
				r := d.Job(id)
				if r.State != tt.state || len(r.Pods) != tt.pods {
					t.Errorf("%v after %d pods, want %v after %d: %+v", r.State, len(r.Pods), tt.state, tt.pods, r)
				}
				for i := 1; i < len(r.Pods); i++ {
					before, after := r.Pods[i-1], r.Pods[i]
					if apart := after.Started.Sub(before.Ended); apart < tt.apart {
						t.Errorf("pod %d began %v after the one before, want %v", i, apart, tt.apart)
					}
					if tt.job.Script[i-1] == standin.Fail(1) && after.Node == before.Node {
						t.Errorf("pod %d is on node %s again", i, after.Node)
					}
				}
				if got := d.Lookout(id); tt.lookout != "" && got != tt.lookout {
					t.Errorf("Lookout says %s, want %s", got, tt.lookout)
				}
			})
		}
	}
}

// TestInBetween: something else happens to a job that is retried.
func TestInBetween(t *testing.T) {
	t.Parallel()
	ok := standin.Succeed()
	waits := standin.Job{Script: script(1, standin.Fail(2), ok)}
	preempted := standin.Job{Script: script(1, standin.Preempted(), ok)}
	for _, tt := range []struct {
		name  string
		job   standin.Job
		when  string // a query that says so
		do    func(d *deployment, id string)
		state standin.State
		pods  int
	}{
		{
			"cancelled while it waits", waits, "SELECT count(*) FROM refloat_waits WHERE waiting",
			func(d *deployment, id string) { d.Cancel(id) }, standin.Cancelled, 1,
		},
		{
			"its set cancelled while it waits", waits, "SELECT count(*) FROM refloat_waits WHERE waiting",
			func(d *deployment, id string) { d.CancelSet(id) }, standin.Cancelled, 1,
		},
		{
			"cancelled while it is forgotten", preempted, "SELECT count(*) FROM refloat_waits WHERE forgetting",
			func(d *deployment, id string) { d.Cancel(id) }, standin.Cancelled, 1,
		},
		{
			"the queued ones of its set cancelled while it is forgotten", preempted, "SELECT count(*) FROM refloat_waits WHERE forgetting",
			func(d *deployment, id string) { d.CancelSet(id, standin.SetQueued) }, standin.Cancelled, 1,
		},
		{
			"the running ones of its set cancelled while it is forgotten", preempted, "SELECT count(*) FROM refloat_waits WHERE forgetting",
			func(d *deployment, id string) { d.CancelSet(id, standin.SetPending, standin.SetRunning) }, standin.Succeeded, 2,
		},
		{
			"submitted again while it waits", waits, "SELECT count(*) FROM refloat_waits WHERE waiting",
			func(d *deployment, id string) { d.SubmitAgain(id) }, standin.Succeeded, 2,
		},
		{
			"submitted again while it runs", waits, "SELECT count(*) FROM runs WHERE running",
			func(d *deployment, id string) { d.SubmitAgain(id) }, standin.Succeeded, 2,
		},
		{
			"submitted again while it is forgotten", preempted, "SELECT count(*) FROM refloat_waits WHERE forgetting",
			func(d *deployment, id string) { d.SubmitAgain(id) }, standin.Succeeded, 2,
		},
		{
			"reprioritised while it waits", waits, "SELECT count(*) FROM refloat_waits WHERE waiting",
			func(d *deployment, id string) { d.Reprioritise(id, 7) }, standin.Succeeded, 2,
		},
		{
			"reprioritised while it is forgotten", preempted, "SELECT count(*) FROM refloat_waits WHERE forgetting",
			func(d *deployment, id string) { d.Reprioritise(id, 7) }, standin.Succeeded, 2,
		},
		{
			"its preemption asked for while it waits", waits, "SELECT count(*) FROM refloat_waits WHERE waiting",
			func(d *deployment, id string) { d.Preempt(id) }, standin.Succeeded, 2,
		},
		{
			"scheduler restarted while it waits", waits, "SELECT count(*) FROM refloat_waits WHERE waiting",
			func(d *deployment, _ string) { d.RestartScheduler() }, standin.Succeeded, 2,
		},
		{
			"scheduler restarted while it is forgotten", preempted, "SELECT count(*) FROM refloat_waits WHERE forgetting",
			func(d *deployment, _ string) { d.RestartScheduler() }, standin.Succeeded, 2,
		},
		{
			"evaluator down while it runs", waits, "SELECT count(*) FROM runs WHERE running",
			func(d *deployment, _ string) {
				d.evaluatorsDown()
				d.steps(60)
				if n := d.count("SELECT count(*) FROM runs WHERE failed"); n != 0 {
					d.t.Errorf("a failure became visible without a decision")
				}
				d.evaluatorsUp()
			}, standin.Succeeded, 2,
		},
		{
			"both down while it waits", waits, "SELECT count(*) FROM refloat_waits WHERE waiting",
			func(d *deployment, _ string) {
				d.evaluatorsDown()
				d.must(d.ingesters[0].Close())
				d.ingesters = nil
				for range 60 {
					d.Step()
				}
				d.evaluatorsUp()
				d.ingesterUp()
			}, standin.Succeeded, 2,
		},
	} {
		for _, second := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				d := deploy(t, standin.Config{SecondRaise: second}, writer.HoldBack, someRetries)
				id := d.Submit(tt.job)[0]
				d.until(tt.when, func() bool { return d.count(tt.when) > 0 })
				tt.do(d, id)
				d.right()
				if r := d.Job(id); r.State != tt.state || len(r.Pods) != tt.pods {
					t.Errorf("%v after %d pods, want %v after %d: %+v", r.State, len(r.Pods), tt.state, tt.pods, r)
				}
			})
		}
	}
}

// TestPreemptionRequestEnds: the requeue of a run ends the request to preempt it;
// otherwise each scheduler that starts would preempt the dead run again.
func TestPreemptionRequestEnds(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"forgetting", "waiting"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, standin.Config{}, writer.HoldBack, someRetries)
			id := d.Submit(standin.Job{Preemptible: true, Script: script(1, standin.Forever(), standin.Succeed())})[0]
			d.until("it runs", func() bool { return d.count("SELECT count(*) FROM runs WHERE running") > 0 })
			d.Preempt(id)
			d.until(when, func() bool { return d.count("SELECT count(*) FROM refloat_waits WHERE "+when) > 0 })
			if n := d.count("SELECT count(*) FROM runs WHERE preempt_requested"); n != 0 {
				t.Errorf("%d runs are asked to be preempted, want none: the run is over", n)
			}
			d.RestartScheduler()
			d.right()
			if n := d.count("SELECT count(*) FROM refloat_decisions"); n != 1 {
				t.Errorf("%d decisions, want 1", n)
			}
			if r := d.Job(id); r.State != standin.Succeeded || len(r.Pods) != 2 {
				t.Errorf("%v after %d pods, want Succeeded after 2", r.State, len(r.Pods))
			}
		})
	}
}

// TestTaken: if Armada's own ingester has written the tables, ours does not start by
// itself.
func TestTaken(t *testing.T) {
	t.Parallel()
	d := deploy(t, standin.Config{}, writer.HoldBack, someRetries)
	ids := d.Submit(standin.Job{})
	conn, err := pgx.Connect(t.Context(), d.URL())
	d.must(err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	insert := &schedulerdb.InsertJob{JobID: "before", JobSet: "set", Queue: "queue", UserID: "user", SchedulingInfo: []byte{}, SubmitMessage: []byte{}, Groups: []byte{}}
	d.must(pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return pgstore.In(tx).Apply(t.Context(), []schedulerdb.Op{insert}) }))
	refused := 0
	for p := range d.Log().Partitions() {
		if _, err := d.ingesters[0].Advance(t.Context(), p); errors.Is(err, writer.ErrTaken) {
			refused++
		}
	}
	if n := d.count("SELECT count(*) FROM jobs"); refused != d.Log().Partitions() || n != 1 {
		t.Errorf("%d partitions refuse, %d jobs, want all and the one before; submitted was %v", refused, n, ids)
	}
}
