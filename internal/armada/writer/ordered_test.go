package writer_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/test/standin"
)

// operators give orders in a deployment of one partition (semantics.md 16).
type operators struct {
	*deployment
	reader *postgres.Reader
	policy *policy.Set
}

func operate(t *testing.T, cfg standin.Config, mode writer.Mode, policies string) *operators {
	t.Helper()
	cfg.Partitions = 1
	d := deploy(t, cfg, mode, policies)
	d.evaluatorsDown()
	d.semantics = evaluator.SinceOrders
	d.evaluatorsUp()
	o := &operators{deployment: d}
	set, err := policyfile.Parse([]policyfile.File{{Name: "policies.yaml", Data: []byte(policies)}})
	d.must(err)
	o.policy = set.Set
	o.reader, err = postgres.OpenReader(t.Context(), d.URL())
	d.must(err)
	t.Cleanup(func() { _ = o.reader.Close() })
	return o
}

// ask returns why an order would be refused now.
func (o *operators) ask(action policy.OrderAction, job string) query.OrderedJob {
	o.t.Helper()
	source := query.Source{Jobs: o.reader.View}
	all, err := source.Ordered(o.t.Context(), &query.Order{Action: action, Jobs: []string{job}, Max: 1, Set: o.policy})
	o.must(err)
	if len(all) != 1 || all[0].Job == nil {
		o.t.Fatalf("an order on %s: %+v", job, all)
	}
	return all[0]
}

// order publishes an order on the latest run of a job, and returns the answer.
func (o *operators) order(action policy.OrderAction, job string) (answer *chain.OrderAnswered, acted bool) {
	o.t.Helper()
	j := o.ask(action, job).Job
	payload, err := proto.Marshal(&pb.EventSequence{Queue: j.Queue, JobSetName: j.JobSet, UserId: "eve", Events: []*pb.Event{{
		Created: &pb.Timestamp{Seconds: o.Now().Unix()},
		Event: &pb.Event_JobOrder{JobOrder: &pb.JobOrder{
			JobId: job, RunId: j.Queueing.LatestRun, OrderId: "INC-1", Action: uint32(action), Author: "eve", Reason: "the registry is back",
		}},
	}}})
	o.must(err)
	o.must(o.Log().AppendSync(o.t.Context(), 0, []eventlog.Message{{Key: j.JobSet, Payload: payload}}))
	o.settle()
	o.must(o.reader.View(o.t.Context(), func(q jobdb.Queries) error {
		return q.GroupRecords(jobdb.RecordFilter{JobID: job}, func(row *jobdb.GroupRecord) error {
			r, err := row.Record()
			if a, ok := r.(*chain.OrderAnswered); ok {
				answer, acted = a, row.Acted
			}
			return err
		})
	}))
	if answer == nil {
		o.t.Fatalf("the order on %s has no answer", job)
	}
	return answer, acted
}

// TestOrdersInArmada: an order on a job that failed for good, waits or runs, by what Armada makes of it: the job runs once
// more, or is cancelled, or nothing happens and the reason is known before and in the answer.
func TestOrdersInArmada(t *testing.T) {
	t.Parallel()
	ok, broken, slow := standin.Succeed(), standin.Fail(9), standin.Fail(2)
	preempted, forever := standin.Preempted(), standin.Forever()
	one := func(script ...standin.Outcome) []standin.Job { return []standin.Job{{Script: script}} }
	const over, waits = "SELECT count(*) FROM jobs WHERE terminated", "SELECT count(*) FROM refloat_waits WHERE waiting"
	for _, tt := range []struct {
		name    string
		jobs    []standin.Job // the order is about the first
		when    string        // a query that says so
		action  policy.OrderAction
		refusal policy.Refusal
		state   standin.State // in the end
		pods    int
	}{
		{"no rule", one(broken, ok), over, policy.OrderRetry, policy.NotRefused, standin.Succeeded, 2},
		{"no rule, and no rule again", one(broken, broken, ok), over, policy.OrderRetry, policy.NotRefused, standin.Failed, 2},
		{"then a rule's own retry", one(broken, standin.Fail(1), ok), over, policy.OrderRetry, policy.NotRefused, standin.Succeeded, 3},
		{"failed too often", one(script(4, standin.Fail(1), ok)...), over, policy.OrderRetry, policy.NotRefused, standin.Succeeded, 5},
		{"preempted too often", one(script(4, preempted, ok)...), over, policy.OrderRetry, policy.NotRefused, standin.Succeeded, 5},
		{"never started", one(standin.NeverStarts(), ok), over, policy.OrderRetry, policy.NotRefused, standin.Succeeded, 2},
		{"waits, given up", one(slow, ok), waits, policy.OrderGiveUp, policy.NotRefused, standin.Cancelled, 1},
		{"waits, to be retried", one(slow, ok), waits, policy.OrderRetry, policy.RefusedRetrying, standin.Succeeded, 2},
		{"failed, to be given up", one(broken, ok), over, policy.OrderGiveUp, policy.RefusedFailed, standin.Failed, 1},
		{"has succeeded", one(ok), over, policy.OrderRetry, policy.RefusedSuccess, standin.Succeeded, 1},
		{"runs", one(ok.After(60e9)), "SELECT count(*) FROM runs WHERE running", policy.OrderRetry, policy.RefusedRunning, standin.Succeeded, 1},
		{"in shadow", []standin.Job{{Queue: "shadow", Script: []standin.Outcome{broken, ok}}}, over, policy.OrderRetry, policy.RefusedShadow, standin.Failed, 1},
		{
			"in a gang", []standin.Job{
				{Gang: "g", Members: 2, Script: []standin.Outcome{broken}}, {Gang: "g", Members: 2, Script: []standin.Outcome{forever}},
			}, over, policy.OrderRetry, policy.RefusedGroup, standin.Failed, 1,
		},
	} {
		for _, mode := range []writer.Mode{writer.HoldBack, writer.Direct} {
			if mode == writer.Direct && (strings.Contains(tt.when, "refloat_waits") || tt.jobs[0].Script[0] == preempted) {
				continue // that mode is for a scheduler that honours retry_after itself and keeps what it ended; the stand-in does neither
			}
			t.Run(tt.name+", "+mode.String(), func(t *testing.T) {
				t.Parallel()
				o := operate(t, standin.Config{}, mode, someRetries)
				id := o.Submit(tt.jobs...)[0]
				o.until(tt.when, func() bool { return o.count(tt.when) > 0 })
				o.steps(1)
				if got := o.ask(tt.action, id).Refusal; got != tt.refusal {
					t.Errorf("asked before, it is refused with %v, want %v", got, tt.refusal)
				}
				answer, acted := o.order(tt.action, id)
				if answer.Refusal != tt.refusal || acted != (tt.refusal == policy.NotRefused) {
					t.Errorf("answered with %v, acted %v; want %v", answer.Refusal, acted, tt.refusal)
				}
				o.right()
				if r := o.Job(id); r.State != tt.state || len(r.Pods) != tt.pods {
					t.Errorf("%v after %d pods, want %v after %d: %+v", r.State, len(r.Pods), tt.state, tt.pods, r)
				}
			})
		}
	}
}

// TestOrderOnPruned: Armada prunes jobs that have ended. What it no longer has is refused before it is ordered; an order that
// comes even so, because the job went in between, changes nothing, and the ingester says that it could not.
func TestOrderOnPruned(t *testing.T) {
	t.Parallel()
	o := operate(t, standin.Config{}, writer.HoldBack, someRetries)
	id := o.Submit(standin.Job{Script: []standin.Outcome{standin.Fail(9), standin.Succeed()}})[0]
	o.until("it is over", o.Done)
	if got := o.ask(policy.OrderRetry, id); got.Refusal != policy.NotRefused || got.Why() != "" {
		t.Fatalf("before it is pruned: %v, %q", got.Refusal, got.Why())
	}
	conn, err := pgx.Connect(t.Context(), o.URL())
	o.must(err)
	_, err = conn.Exec(t.Context(), "DELETE FROM job_run_errors; DELETE FROM runs; DELETE FROM jobs")
	o.must(err)
	o.must(conn.Close(t.Context()))
	if got := o.ask(policy.OrderRetry, id); got.Refusal != policy.RefusedGone || !strings.Contains(got.Why(), "submit it again") {
		t.Errorf("once it is pruned: %v, %q", got.Refusal, got.Why())
	}
	if got := o.ask(policy.OrderGiveUp, id).Refusal; got != policy.RefusedFailed {
		t.Errorf("to give it up: %v", got)
	}
	if answer, _ := o.order(policy.OrderRetry, id); answer.Refusal != policy.NotRefused {
		t.Errorf("the chain does not know what Armada has: %v", answer.Refusal)
	}
	o.steps(30)
	if n := o.count("SELECT count(*) FROM jobs") + o.count("SELECT count(*) FROM runs") + o.count("SELECT count(*) FROM refloat_waits"); n != 0 {
		t.Errorf("%d rows came", n)
	}
	if len(o.unable) != 1 || !strings.Contains(o.unable[0].Error(), id) || !strings.Contains(o.unable[0].Error(), "ordered by eve: the registry is back") || !strings.Contains(o.unable[0].Error(), "submit it again") {
		t.Errorf("unable: %v", o.unable)
	}
	if v := o.Violations(); len(v) > 0 {
		t.Error(v)
	}
}
