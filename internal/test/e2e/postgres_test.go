package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/test/standin"
)

const heldBack = `
kind: RetrySettings
spec: {terminationSlack: 6s}
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: retries}
spec:
  retryLimit: 2
  defaultAction: Fail
  rules:
  - {name: broken, action: Retry, onExitCodes: {operator: In, values: [1]}, antiAffinity: {mode: node}}
  - {name: slow, action: Retry, onExitCodes: {operator: In, values: [2]}, backoff: {initialDelay: 5s, multiplier: 1}}
  - {name: lost, action: Retry, onConditions: [Preempted]}
---
kind: Queue
name: queue
retryPolicies: [retries]
`

// armadaLog is events as the stand-in for Armada reads and writes it.
type armadaLog struct {
	eventlog.Topic
	*pulsarlog.Appender
}

// TestHoldBack: our programs on a broker and on a PostgreSQL with Armada's tables, and
// a stand-in for Armada's scheduler and executors on both, in real time. The
// ingester is killed while retries wait. It runs alone: who is slow in real time lets
// jobs run twice.
func TestHoldBack(t *testing.T) {
	w := newWorld(t, 3)
	w.Policies = filepath.Join(w.Dir, "policies")
	w.must(os.MkdirAll(w.Policies, 0o755))
	w.must(os.WriteFile(filepath.Join(w.Policies, "policies.yaml"), []byte(heldBack), 0o600))
	logs, err := w.Open()
	w.must(err)
	defer logs.Close()
	out := logs.Events.Appender()
	defer out.Close()
	nodes := func(cluster string) (all []standin.Node) {
		for _, n := range []string{"1", "2", "3"} {
			all = append(all, standin.Node{Name: cluster + "-" + n, Slots: 4})
		}
		return all
	}
	armada := standin.NewWorld(t, standin.Config{
		Log: armadaLog{eventlog.ToEnd(w.ctx, logs.Events), out}, Begin: time.Now(), LeasePeriod: time.Second,
		Executors: []standin.Executor{{Name: "east", Nodes: nodes("east"), DeleteFailed: true}, {Name: "west", Nodes: nodes("west"), DeleteFailed: true}},
	})
	e := w.evaluator("a")
	hold := func() *Process {
		return w.started(w.Ingester("one", "--job-db", armada.URL(), "--mode", "holdback"))
	}
	i := hold()
	w.live(3, e)

	ok, broken, slow, lost := standin.Succeed(), standin.Fail(1), standin.Fail(2), standin.Preempted()
	kinds := []struct {
		script []standin.Outcome
		state  standin.State
		pods   int
	}{
		{[]standin.Outcome{ok}, standin.Succeeded, 1},
		{[]standin.Outcome{broken, ok}, standin.Succeeded, 2},
		{[]standin.Outcome{broken, broken, broken, ok}, standin.Failed, 3},
		{[]standin.Outcome{slow, ok}, standin.Succeeded, 2},
		{[]standin.Outcome{lost, ok}, standin.Succeeded, 2},
		{[]standin.Outcome{standin.Fail(9), ok}, standin.Failed, 1},
	}
	var jobs []standin.Job
	for _, set := range []string{"a", "b", "c"} {
		for _, k := range kinds {
			jobs = append(jobs, standin.Job{Set: set, Script: k.script})
		}
	}
	ids := armada.Submit(jobs...)
	conn, err := pgx.Connect(t.Context(), armada.URL())
	w.must(err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	count := func(query string) (n int) {
		err := conn.QueryRow(w.ctx, query).Scan(&n)
		if missing := (*pgconn.PgError)(nil); errors.As(err, &missing) && missing.Code == "42P01" {
			return 0 // the ingester has not made its tables yet
		}
		w.must(err)
		return n
	}
	second, poll := time.NewTicker(time.Second), time.NewTicker(50*time.Millisecond)
	defer second.Stop()
	defer poll.Stop()
	kills := map[string]bool{"waiting": false, "forgetting": false} // while such a retry is pending, once each
	for !armada.Done() {
		select {
		case <-second.C:
			armada.Step()
		case <-poll.C: // each kind of pending retry is there only for a moment
		case <-w.ctx.Done():
			t.Fatalf("not all jobs are over: %v", armada.Lost())
		}
		for kind, killed := range kills {
			if !killed && count("SELECT count(*) FROM refloat_waits WHERE "+kind) > 0 {
				kills[kind] = true
				i.Kill()
				armada.Step() // nobody ingests
				i = hold()
			}
		}
	}
	for kind, killed := range kills {
		if !killed {
			t.Errorf("no pending retry was seen %s, so the ingester was not killed then", kind)
		}
	}
	for _, v := range append(armada.Violations(), armada.Lost()...) {
		t.Error(v)
	}
	for n, id := range ids {
		r, want := armada.Job(id), kinds[n%len(kinds)]
		if r.State != want.state || len(r.Pods) != want.pods {
			t.Errorf("job %d is %v after %d pods, want %v after %d: %+v", n, r.State, len(r.Pods), want.state, want.pods, r)
		}
	}
	w.must(i.Term(w.ctx))
	w.must(e.Term(w.ctx))
	w.verify(armada.URL())
	t.Logf("%d jobs, %d decisions, %d of them retries", len(ids), count("SELECT count(*) FROM refloat_decisions"), count("SELECT count(*) FROM refloat_decisions WHERE requeue"))
}

// verify compares a job database with the topics, and with a copy of them.
func (w *world) verify(db string) {
	w.t.Helper()
	out, err := w.Ctl(w.ctx, "jobdb", "verify", "--job-db", db)
	if err != nil {
		w.t.Error(err)
	}
	w.t.Logf("%s", out)
	data := filepath.Join(w.t.TempDir(), "copy")
	for _, topic := range []string{"events", "decisions", "policies"} {
		_, err := w.Ctl(w.ctx, "record", "--topic", topic, "--out", filepath.Join(data, "logs", topic))
		w.must(err)
	}
	if copied, err := w.alone("jobdb", "verify", "--data", data, "--job-db", db); err != nil || copied != out {
		w.t.Errorf("jobdb verify of a copy: %v\n%s", err, copied)
	}
}
