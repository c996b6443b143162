package standin

import (
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/schedulerdb"
)

// What was seen on a live scheduler (Armada 207cc9e04), by hand.

const requeueOf = `UPDATE jobs SET queued = true, queued_version = queued_version + 1
	WHERE job_id = (SELECT job_id FROM runs WHERE run_id = $1)`

const raise = "UPDATE jobs SET queued = true, queued_version = queued_version + 1 WHERE job_id = $1"

// retrying requeues failed runs, but for returned ones, in the transaction of their
// failure.
func retrying(i *ingester) {
	i.instead = func(op schedulerdb.Op) bool {
		if f, ok := op.(*schedulerdb.FailRun); ok && !f.Returned {
			i.add(requeueOf, f.RunID)
		}
		return false
	}
}

// silencing leaves out what ends jobs that failed.
func silencing(i *ingester) {
	i.instead = func(op schedulerdb.Op) bool {
		_, fails := op.(*schedulerdb.FailJob)
		return fails
	}
}

func withDelete() []Executor {
	return []Executor{
		{Name: "east", Nodes: []Node{{Name: "east-1", Slots: 1}, {Name: "east-2", Slots: 1}}, DeleteFailed: true},
		{Name: "west", Nodes: []Node{{Name: "west-1", Slots: 1}}, DeleteFailed: true},
	}
}

func TestRequeueInOneTransaction(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{Executors: withDelete()})
	i := newIngester(t, w)
	retrying(i)
	id := w.Submit(Job{Script: times(3, Fail(1), Succeed())})[0]
	until(t, w, i, "done", w.Done)
	clean(t, w)
	r := w.Job(id)
	if r.State != Succeeded || len(r.Pods) != 4 || len(r.Leases) != 4 {
		t.Errorf("%+v, want success with the fourth run", r)
	}
	if n := count(t, w, evJobErrors); n != 0 {
		t.Errorf("the scheduler has published %d JobErrors", n)
	}
	for n, l := range r.Leases {
		if want := int32(2*n + 1); l.Version != want {
			t.Errorf("lease %d has version %d, want %d", n, l.Version, want)
		}
	}
}

// TestSeparateTransactions: applied before its requeue, a failure is final.
func TestSeparateTransactions(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{Executors: withDelete()})
	i := newIngester(t, w)
	var failed []string
	i.instead = func(op schedulerdb.Op) bool {
		if f, ok := op.(*schedulerdb.FailRun); ok {
			failed = append(failed, f.RunID)
		}
		return false
	}
	id := w.Submit(Job{Script: times(1, Fail(1), Succeed())})[0]
	until(t, w, i, "failed", func() bool { return len(failed) == 1 })
	steps(w, i, 1)
	i.now(requeueOf, failed[0])
	steps(w, i, 20)
	if r := w.Job(id); r.State != Failed || len(r.Leases) != 1 {
		t.Errorf("%+v, want a failed job", r)
	}
}

// TestCollision: on a cluster that keeps the failed pod, a retry costs one more
// lease, on yet another node; where there is none, it fails the job.
func TestCollision(t *testing.T) {
	t.Parallel()
	nodes := []Node{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}, {Name: "c", Slots: 1}}
	for _, c := range []struct {
		nodes, leases, pods int
		state               State
	}{{1, 2, 1, Failed}, {3, 3, 2, Succeeded}} {
		w := NewWorld(t, Config{Executors: []Executor{{Name: "one", Nodes: nodes[:c.nodes]}}})
		i := newIngester(t, w)
		retrying(i)
		id := w.Submit(Job{Script: times(1, Fail(1), Succeed())})[0]
		until(t, w, i, "done", w.Done)
		clean(t, w)
		if r := w.Job(id); r.State != c.state || len(r.Leases) != c.leases || len(r.Pods) != c.pods {
			t.Errorf("with %d nodes: %v with %d leases and %d pods, want %v with %d and %d",
				c.nodes, r.State, len(r.Leases), len(r.Pods), c.state, c.leases, c.pods)
		}
	}
}

// rewrite changes a job's requirements, one version higher.
func rewrite(t *testing.T, i *ingester, w *World, id string, change func(*schedulingInfo)) {
	t.Helper()
	info := *w.sched.jobs.peek(id).info
	change(&info)
	info.version++
	i.now("UPDATE jobs SET scheduling_info = $2, scheduling_info_version = $3 WHERE job_id = $1", id, []byte(info.encode()), int32(info.version))
}

// TestWaitingSelector: a selector that no node has holds a job back, and its node is
// free meanwhile.
func TestWaitingSelector(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{Executors: []Executor{{Name: "one", Nodes: []Node{{Name: "n", Slots: 1}}, DeleteFailed: true}}})
	i := newIngester(t, w)
	id := w.Submit(Job{NodeSelector: map[string]string{hostname: "n"}, Script: times(1, Fail(1), Succeed())})[0]
	i.instead = func(op schedulerdb.Op) bool {
		f, ok := op.(*schedulerdb.FailRun)
		if !ok {
			return false
		}
		info := *w.sched.jobs.peek(id).info
		info.selector = map[string]string{hostname: "n", "refloat/waits": "until-later"}
		info.version++
		i.add(requeueOf, f.RunID)
		i.add("UPDATE jobs SET scheduling_info = $2, scheduling_info_version = $3 WHERE job_id = $1", id, []byte(info.encode()), int32(info.version))
		return false
	}
	until(t, w, i, "queued again", func() bool { r := w.Job(id); return r.State == Queued && len(r.Pods) == 1 })
	other := w.Submit(Job{Set: "other"})[0]
	until(t, w, i, "the other job done", func() bool { return w.Job(other).State == Succeeded })
	steps(w, i, 20)
	if r := w.Job(id); r.State != Queued || len(r.Leases) != 1 {
		t.Fatalf("%v with %d leases, want it to wait", r.State, len(r.Leases))
	}
	rewrite(t, i, w, id, func(info *schedulingInfo) { info.selector = map[string]string{hostname: "n"} })
	w.Step()
	if r := w.Job(id); len(r.Leases) != 2 {
		t.Errorf("when due, it is %v with %d leases, want it leased within one cycle", r.State, len(r.Leases))
	}
	until(t, w, i, "done", w.Done)
	clean(t, w)
}

// preempted brings one job as far as that its preemption is in the tables and the
// scheduler has forgotten it.
func preempted(t *testing.T, cfg Config, others ...Job) (*World, *ingester, string) {
	t.Helper()
	w := NewWorld(t, cfg)
	i := newIngester(t, w)
	silencing(i)
	w.Submit(others...)
	id := w.Submit(Job{Set: "preempted", Script: times(1, Preempted(), Succeed())})[0]
	until(t, w, i, "forgotten", func() bool {
		return w.Job(id).State == Failed && w.sched.jobs.peek(id) == nil
	})
	return w, i, id
}

func TestTwoSteps(t *testing.T) {
	t.Parallel()
	w, i, id := preempted(t, Config{SecondRaise: true}, Job{Script: []Outcome{Forever()}})
	if lost := w.Lost(); len(lost) != 1 || !strings.Contains(lost[0], id) {
		t.Errorf("between the steps, lost = %q, want the preempted job", lost)
	}
	steps(w, i, 10)
	i.now(raise, id)
	w.Step()
	if r := w.Job(id); r.State != Leased {
		t.Errorf("raised once, with another job known, it is %v", r.State)
	}
	until(t, w, i, "succeeded", func() bool { return w.Job(id).State == Succeeded })
	steps(w, i, 5)
	clean(t, w)
}

func TestSecondRaise(t *testing.T) {
	t.Parallel()
	w, i, id := preempted(t, Config{SecondRaise: true})
	steps(w, i, 10)
	i.now(raise, id)
	steps(w, i, 10)
	if r := w.Job(id); r.State != Queued || len(r.Leases) != 1 {
		t.Errorf("raised once, with no other job known, it is %v with %d leases; want it taken in and left alone", r.State, len(r.Leases))
	}
	i.now(raise, id)
	w.Step()
	if r := w.Job(id); r.State != Leased {
		t.Errorf("raised twice, it is %v", r.State)
	}
	until(t, w, i, "done", w.Done)
	clean(t, w)
}

// TestRaisedTooEarly: in one transaction with the preemption, the row is not looked
// at again.
func TestRaisedTooEarly(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{})
	i := newIngester(t, w)
	i.instead = func(op schedulerdb.Op) bool {
		switch op := op.(type) {
		case *schedulerdb.FailRun:
			i.add(requeueOf, op.RunID)
		case *schedulerdb.FailJob:
			return true
		}
		return false
	}
	id := w.Submit(Job{Script: times(1, Preempted(), Succeed())})[0]
	steps(w, i, 40)
	if r := w.Job(id); r.State != Failed || len(r.Leases) != 1 {
		t.Errorf("%v with %d leases, want it forgotten", r.State, len(r.Leases))
	}
	if lost := w.Lost(); len(lost) != 1 {
		t.Errorf("lost = %q, want the job", lost)
	}
}

// TestRunsTwice: a preempted pod goes on until its executor has been told and its
// grace is over; a retry before that runs beside it.
func TestRunsTwice(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{Executors: withDelete()})
	i := newIngester(t, w)
	silencing(i)
	id := w.Submit(Job{Grace: 60e9, NodeSelector: map[string]string{hostname: "east-1"}, Script: times(1, Preempted(), Succeed())})[0]
	until(t, w, i, "forgotten", func() bool { return w.Job(id).State == Failed && w.sched.jobs.peek(id) == nil })
	info, err := parseInfo(w.jobs[id].asked.encode())
	if err != nil {
		t.Fatal(err)
	}
	info.selector, info.version = map[string]string{hostname: "west-1"}, 1
	i.add("UPDATE jobs SET scheduling_info = $2, scheduling_info_version = 1 WHERE job_id = $1", id, []byte(info.encode()))
	i.now(raise, id)
	steps(w, i, 10)
	v := strings.Join(w.Violations(), "\n")
	if !strings.Contains(v, "runs twice at once") {
		t.Errorf("violations %q, want that it runs twice at once", v)
	}
	if !strings.Contains(v, "without what was submitted: node selector") {
		t.Errorf("violations %q, want that it lost its node selector", v)
	}
}

func TestGang(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{SecondRaise: true})
	i := newIngester(t, w)
	retrying(i)
	member := Job{Gang: "three", Members: 3, Preemptible: true, Script: times(1, Forever(), Succeed())}
	failing := member
	failing.Script = times(1, Fail(1).After(5e9), Succeed())
	ids := w.Submit(member, failing, member)
	until(t, w, i, "one failed", func() bool { r := w.Job(ids[1]); return r.State == Queued && len(r.Pods) == 1 })
	if a, b := w.Job(ids[0]).Leases[0].At, w.Job(ids[1]).Leases[0].At; !a.Equal(b) {
		t.Errorf("members are leased at %v and %v", a, b)
	}
	steps(w, i, 10)
	if r := w.Job(ids[1]); r.State != Queued {
		t.Fatalf("alone, the failed member is %v", r.State)
	}
	silencing(i)
	w.Preempt(ids[0])
	steps(w, i, 10)
	if n := count(t, w, evJobRunPreempted); n != 3 {
		t.Errorf("%d runs preempted, want those of all members", n)
	}
	for range 2 { // no other job is known
		i.add(raise, ids[0])
		i.add(raise, ids[1])
		i.now(raise, ids[2])
		steps(w, i, 5)
	}
	until(t, w, i, "done", w.Done)
	clean(t, w)
	var at []string
	for _, id := range ids {
		r := w.Job(id)
		if r.State != Succeeded || len(r.Leases) != 2 {
			t.Fatalf("%v with %d leases, want success with 2", r.State, len(r.Leases))
		}
		at = append(at, r.Leases[1].At.String())
	}
	if len(slices.Compact(at)) != 1 {
		t.Errorf("leased again at %v, want one cycle", at)
	}
}
