package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// guarded is a store of policies, a job database, and the orders that guards gave.
type guarded struct {
	*ended
	store  *policylog.Store
	now    time.Time
	gave   []string
	orders error // that giving one returns
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	t.Parallel()
	logs, err := Dir(t.TempDir()).OpenLogs(1, Access{Events: true, Decisions: true, Policies: true})
	if err != nil {
		t.Fatal(err)
	}
	o := &guarded{ended: newEnded(t), now: time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)}
	if o.store, err = policylog.OpenStore(logs.Backend().Policies, logs.Backend().AppendPolicies, func() time.Time { return o.now }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.store.Close(); _ = logs.Close() })
	return o
}

// put changes settings and overrides.
func (o *guarded) put(spec string, change func([]policylog.Override) []policylog.Override) {
	o.t.Helper()
	if _, err := o.store.Do(o.t.Context(), policylog.Edit{Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
		set, _, err := s.Base.With(policyfile.File{Name: "f", Data: []byte("{kind: RetrySettings, spec: {" + spec + "}}")})
		return set, change(slices.Clone(s.ActiveOverrides())), err
	}}); err != nil {
		o.t.Fatal(err)
	}
}

const enforced = "breakers: {mode: Enforce, openAfter: 4, window: 2m, canaries: 2}"

func same(on []policylog.Override) []policylog.Override { return on }

func (o *guarded) guard() *guard {
	return &guard{
		policies: o.store, jobs: o.reader.View, log: slog.New(slog.DiscardHandler), now: func() time.Time { return o.now }, metrics: &NewMetrics(time.Now, 0).guard,
		order: func(_ context.Context, r *pb.OrderRequest, author string) ([]*pb.OrderedJob, error) {
			if o.orders == nil {
				o.gave = append(o.gave, fmt.Sprintf("%s %s %s %v in %v: %s", author, r.Action, r.RequestId, r.Jobs, r.Over.AsDuration(), r.Reason))
			}
			return []*pb.OrderedJob{{}}, o.orders
		},
	}
}

// looks has a guard look, and compares what is open afterwards, and what it ordered.
func (o *guarded) looks(g *guard, open []string, orders ...string) {
	o.t.Helper()
	o.gave = nil
	if err := g.look(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
	s, err := o.store.Newest(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	var got []string
	for _, b := range s.ActiveOverrides() {
		got = append(got, fmt.Sprintf("%s %s %s %v", b.Author, b.Category, b.Queue, time.Duration(b.HeldUntil-o.now.UnixNano())))
	}
	if !slices.Equal(got, open) || !slices.Equal(o.gave, orders) {
		o.t.Errorf("open %q and ordered %q, want %q and %q", got, o.gave, open, orders)
	}
}

func pull(r *jobdb.Run) { r.Error.Category = "pull" }

// fails adds so many failures of each of two queues.
func (o *guarded) fails(n int, change ...func(*jobdb.Run)) {
	for range 2 * n {
		o.fail(o.now, "n", append(change, pull)...)
	}
}

// holds has retries wait that a breaker held, with the number of runs so far.
func (o *guarded) holds(queue string, until time.Time, runs uint32, jobs ...string) {
	o.t.Helper()
	rows := &jobdb.Changes{}
	for _, id := range jobs {
		o.runs++
		rows.Jobs = append(rows.Jobs, &jobdb.Job{
			JobID: id, Queue: queue, Known: true, State: jobdb.JobQueued, Times: jobdb.JobTimes{Submitted: o.now.UnixNano()},
			Queueing: jobdb.Queueing{RetryAfter: until.UnixNano(), Runs: runs, Decision: uint64(o.runs)}, Retry: &jobdb.Cause{Category: "pull"},
		})
		rows.Decisions = append(rows.Decisions, &jobdb.Decision{
			Where: jobdb.Where{Seq: uint64(o.runs)}, Acted: true,
			Decision: chain.Decision{Requeue: true, Number: uint64(o.runs), JobID: id, RunID: id, Queue: queue, Code: policy.BreakerHeld, Time: o.now.UnixNano(), RetryAfter: until.UnixNano()},
		})
	}
	o.write(rows)
}

// TestGuardBreakers: two queues fail, both are held. A canary fails, the next ones pass, and the rest starts on a ramp. A second guard
// does nothing again, and one that begins anew knows all but the canaries.
func TestGuardBreakers(t *testing.T) {
	o := newGuarded(t)
	o.fails(2)
	one, two, metrics := o.guard(), o.guard(), NewMetrics(time.Now, 0)
	one.metrics = &metrics.guard
	o.looks(one, nil) // no settings
	o.put("breakers: {mode: Shadow, openAfter: 4}", same)
	o.looks(one, nil)
	if len(one.notedOpenings) != 2 {
		t.Errorf("in shadow %v", one.notedOpenings)
	}
	o.looks(one, nil)
	if len(one.notedOpenings) != 2 {
		t.Errorf("in shadow again %v", one.notedOpenings)
	}
	o.put(enforced, same)
	o.looks(one, []string{"guard pull q0 1h0m0s", "guard pull q1 1h0m0s"})
	s, _ := o.store.Newest(t.Context())
	if _, held := s.Set.HeldUntil(&policy.Failure{Queue: "q1", Category: "pull", Time: o.now.UnixNano()}); !held || s.Author != policylog.Guard || !strings.Contains(s.Reason, "of the 2 jobs") {
		t.Errorf("held %t, %+v", held, s.Entry)
	}
	o.looks(two, []string{"guard pull q0 1h0m0s", "guard pull q1 1h0m0s"})
	if again, _ := o.store.Newest(t.Context()); again.Generation() != s.Generation() {
		t.Error("two guards made two generations")
	}
	end := o.now.Add(time.Hour)
	o.holds("q0", end, 1, "a", "b", "c")
	o.holds("q0", end, 2, "d")
	open := func() []string {
		left := end.Sub(o.now)
		return []string{fmt.Sprintf("guard pull q0 %v", left), fmt.Sprintf("guard pull q1 %v", left)}
	}
	o.now = o.now.Add(30 * time.Second)
	o.looks(one, open(), "guard Start guard-canary-1 [a b] in 0s: a canary of its breaker")
	// A guard that starts now sends canaries again, by the same ids.
	o.looks(o.guard(), open(), "guard Start guard-canary-1 [a b] in 0s: a canary of its breaker")
	o.holds("q0", o.now, 1, "a", "b") // the answers
	for _, id := range []string{"a", "b"} {
		o.now = o.now.Add(10 * time.Second)
		o.fail(o.now, "n", pull, func(r *jobdb.Run) { r.JobID, r.RunID = id, id+"-1" })
	}
	o.holds("q0", end, 2, "a", "b")
	o.now = o.now.Add(30 * time.Second)
	o.looks(one, open(), "guard Start guard-canary-1 [c] in 0s: a canary of its breaker", "guard Start guard-canary-2 [a] in 0s: a canary of its breaker")
	o.holds("q0", o.now, 2, "a")
	o.holds("q0", o.now, 1, "c")
	o.now = o.now.Add(time.Second)
	o.looks(one, open())
	for _, id := range []string{"a", "c"} {
		o.fail(o.now, "n", func(r *jobdb.Run) { r.JobID, r.RunID, r.State = id, id+"-2", jobdb.RunSucceeded })
	}
	o.now = o.now.Add(time.Second)
	o.looks(one, open()[1:], "guard Start guard-start-2 [b] in 2s: its breaker is closed")
	if got := seriesOf(t, metrics, "refloat_guard_canaries_total"); !maps.Equal(got, map[string]float64{"outcome=passed": 2, "outcome=failed": 2}) {
		t.Errorf("canaries %v", got)
	}
	o.now = o.now.Add(2 * time.Second)
	o.looks(one, open()[1:], "guard Start guard-start-2 [d] in 2s: its breaker is closed")
	o.looks(one, open()[1:])
	// One that starts anew orders again, by the same id; the breaker stays closed.
	o.looks(o.guard(), open()[1:], "guard Start guard-start-2 [b] in 2s: its breaker is closed")
}

// TestGuardLeavesOthers: what a person has open is neither opened again nor closed, and what it holds does not start, until it is closed.
func TestGuardLeavesOthers(t *testing.T) {
	o := newGuarded(t)
	o.fails(2)
	until := o.now.Add(time.Hour)
	ann := policylog.Override{Override: policyfile.Override{Category: "pull", Queue: "q0", HeldUntil: until.UnixNano()}, Author: "ann"}
	o.put(enforced, func(on []policylog.Override) []policylog.Override { return append(on, ann) })
	o.holds("q0", until, 1, "a")
	g := o.guard()
	both := []string{"ann pull q0 1h0m0s", "guard pull q1 1h0m0s"}
	o.looks(g, both)
	o.looks(g, both)
	late := o.guard()
	o.now = o.now.Add(3 * time.Minute)
	o.looks(late, []string{"ann pull q0 57m0s"}) // nothing of q1 is held, and nothing of it failed any more
	o.put(enforced, func(on []policylog.Override) []policylog.Override {
		return slices.DeleteFunc(on, func(b policylog.Override) bool { return b.Author == "ann" })
	})
	o.looks(late, nil, "guard Start guard-start-1 [a] in 2s: its breaker is closed")
	// What could not be ordered is ordered again.
	g, o.orders = o.guard(), context.DeadlineExceeded
	if err := g.look(t.Context()); err == nil {
		t.Error("an order failed, and the look did not")
	}
	o.orders = nil
	o.looks(g, nil, "guard Start guard-start-1 [a] in 2s: its breaker is closed")
}

// TestGuardAttack: who owns one queue, and waits for honest failures of another one that mostly succeeds, opens nothing of it.
func TestGuardAttack(t *testing.T) {
	o := newGuarded(t)
	o.put(enforced, same)
	for i := range 200 {
		o.fail(o.now, "n", func(r *jobdb.Run) {
			if i%2 == 0 || i < 40 {
				pull(r)
			} else {
				r.State = jobdb.RunSucceeded
			}
		})
	}
	o.looks(o.guard(), nil)
}

// TestGuardAttackYoung: nor on a cluster that has just begun, where of the other one only failures have ended. Runs that are
// preempted count no more.
func TestGuardAttackYoung(t *testing.T) {
	young := newGuarded(t)
	young.put(enforced, same)
	goes := func(r *jobdb.Run) { r.State, r.Times.Ended = jobdb.RunRunning, 0 }
	for range 12 {
		young.fail(young.now, "n", pull) // of q0
		young.fail(young.now, "n", goes)
	}
	young.fails(2)
	g := young.guard()
	young.looks(g, nil)
	for i := range 12 { // all of the other's runs that went on are preempted
		id := fmt.Sprintf("job-%d", 2*i+1)
		young.write(&jobdb.Changes{Runs: []*jobdb.Run{{
			JobID: id, RunID: "run-" + id, State: jobdb.RunFailed, Node: "n", Flags: jobdb.RunFlags{Preempted: true}, Times: jobdb.RunTimes{Leased: young.now.UnixNano(), Ended: young.now.UnixNano()},
		}}})
	}
	young.looks(g, []string{"guard pull q0 1h0m0s", "guard pull q1 1h0m0s"})
}
