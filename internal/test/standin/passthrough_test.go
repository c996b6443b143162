package standin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/eventlog"
)

// steps lets time pass, with the ingester after each step.
func steps(w *World, i *ingester, n int) {
	for range n {
		w.Step()
		i.step()
	}
}

// until steps until something holds.
func until(t *testing.T, w *World, i *ingester, what string, holds func() bool) {
	t.Helper()
	for range 300 {
		if holds() {
			return
		}
		steps(w, i, 1)
	}
	t.Fatalf("after 300 steps: not %s; violations %q", what, w.Violations())
}

// clean holds that nothing went wrong.
func clean(t *testing.T, w *World) {
	t.Helper()
	if v := w.Violations(); len(v) != 0 {
		t.Errorf("violations:\n%s", strings.Join(v, "\n"))
	}
	if lost := w.Lost(); len(lost) != 0 {
		t.Errorf("lost:\n%s", strings.Join(lost, "\n"))
	}
}

func times(n int, o Outcome, last Outcome) []Outcome {
	return append(slices.Repeat([]Outcome{o}, n), last)
}

// TestArmadaAlone is Armada without us: a failed job has failed, and so has a
// preempted one; only a returned lease is tried again.
func TestArmadaAlone(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		job     Job
		state   State
		leases  int
		pods    int
		lookout string
	}{
		{"succeeds", Job{}, Succeeded, 1, 1, "SUCCEEDED"},
		{"fails", Job{Script: times(1, Fail(1), Succeed())}, Failed, 1, 1, "FAILED"},
		{"takes too much memory", Job{Script: times(1, OOM().In("oom", "main"), Succeed())}, Failed, 1, 1, "FAILED"},
		{"fails, and that is said twice", Job{Script: times(1, Fail(1).Replayed(), Succeed())}, Failed, 1, 1, "FAILED"},
		{"preempted", Job{Script: times(1, Preempted(), Succeed())}, Failed, 1, 1, "PREEMPTED"},
		{"expired", Job{Script: times(1, Expired(), Succeed())}, Failed, 1, 1, "FAILED"},
		{"returned once", Job{Script: times(1, Returned(), Succeed())}, Succeeded, 2, 2, "SUCCEEDED"},
		{"returned too often", Job{Script: times(4, Returned(), Succeed())}, Failed, 4, 4, "FAILED"},
		{"returned, and not to be tried again", Job{
			Annotations: map[string]string{failFastKey: "true"}, Script: times(1, Returned(), Succeed()),
		}, Failed, 1, 1, "FAILED"},
		{"returned unattempted, often", Job{Script: times(7, NeverStarts(), Succeed())}, Succeeded, 8, 8, "SUCCEEDED"},
		{"does not fit", Job{NodeSelector: map[string]string{"gpu": "a"}}, Failed, 0, 0, "REJECTED"},
		{"is too big", Job{CPU: "2500m"}, Failed, 0, 0, "REJECTED"},
		{"gang", Job{Gang: "g", Members: 1}, Succeeded, 1, 1, "SUCCEEDED"},
	}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			w := NewWorld(t, Config{Seed: seed})
			i := newIngester(t, w)
			var ids []string
			for n, c := range cases {
				c.job.Set = fmt.Sprint("set-", n)
				ids = append(ids, w.Submit(c.job)[0])
			}
			until(t, w, i, "done", w.Done)
			clean(t, w)
			for n, c := range cases {
				r := w.Job(ids[n])
				if r.State != c.state || len(r.Leases) != c.leases || len(r.Pods) != c.pods || w.Lookout(ids[n]) != c.lookout {
					t.Errorf("%s: %v, %d leases, %d pods, Lookout %s; want %v, %d, %d, %s", c.name,
						r.State, len(r.Leases), len(r.Pods), w.Lookout(ids[n]), c.state, c.leases, c.pods, c.lookout)
				}
				var nodes []string
				for _, l := range r.Leases {
					nodes = append(nodes, l.Node)
				}
				slices.Sort(nodes)
				if c.name == "returned too often" && len(slices.Compact(nodes)) != 4 {
					t.Errorf("%s: leased to %v, want each time another node", c.name, r.Leases)
				}
			}
		})
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{Executors: []Executor{{Name: "one", Nodes: []Node{{Name: "n", Slots: 1}}}}})
	i := newIngester(t, w)
	running := w.Submit(Job{Set: "a", Script: []Outcome{Forever()}})[0]
	until(t, w, i, "running", func() bool { return w.Lookout(running) == "RUNNING" })

	late, soon := w.Submit(Job{Set: "b", Priority: 1})[0], w.Submit(Job{Set: "b", Priority: 2})[0]
	cancelled, bySet := w.Submit(Job{Set: "b"})[0], w.Submit(Job{Set: "c"})[0]
	steps(w, i, 5)
	w.Reprioritise(late, 7)
	w.Cancel(cancelled)
	w.CancelSet(bySet)
	steps(w, i, 5)
	w.Cancel(running)
	until(t, w, i, "done", w.Done)
	clean(t, w)
	for id, want := range map[string]string{
		running: "CANCELLED", cancelled: "CANCELLED", bySet: "CANCELLED", late: "SUCCEEDED", soon: "SUCCEEDED",
	} {
		if got := w.Lookout(id); got != want {
			t.Errorf("Lookout(%s) = %s, want %s", id, got, want)
		}
	}
	if a, b := w.Job(soon).Leases[0].At, w.Job(late).Leases[0].At; !a.Before(b) {
		t.Errorf("priority 2 is leased at %v, priority 7 at %v", a, b)
	}
	if p := w.Job(running).Pods[0]; p.Ended.IsZero() {
		t.Errorf("the pod of a cancelled job goes on: %+v", p)
	}
}

// TestPreemptionRequest: only what may be preempted is.
func TestPreemptionRequest(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{})
	i := newIngester(t, w)
	ids := w.Submit(Job{Preemptible: true, Script: []Outcome{Forever()}}, Job{Script: []Outcome{Forever()}})
	steps(w, i, 12)
	w.Preempt(ids[0])
	w.Preempt(ids[1])
	steps(w, i, 12)
	clean(t, w)
	if got := []string{w.Lookout(ids[0]), w.Lookout(ids[1])}; !slices.Equal(got, []string{"PREEMPTED", "RUNNING"}) {
		t.Errorf("Lookout shows %v", got)
	}
}

// TestPowerCut: the leases of an executor that is gone expire, and its word on them
// comes too late.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{ExecutorTimeout: 20e9, Executors: []Executor{{Name: "one", Nodes: []Node{{Name: "n", Slots: 1}}}}})
	i := newIngester(t, w)
	id := w.Submit(Job{Script: []Outcome{Forever()}})[0]
	until(t, w, i, "running", func() bool { return w.Lookout(id) == "RUNNING" })
	w.PowerCut("one")
	steps(w, i, 10)
	if got := w.Job(id).State; got != Leased {
		t.Errorf("after 10 s, the job is %v", got)
	}
	steps(w, i, 20)
	if got := w.Job(id).State; got != Failed {
		t.Errorf("after 30 s, the job is %v", got)
	}
	before := count(t, w, evJobRunErrors)
	w.PowerBack("one")
	steps(w, i, 5)
	if got := count(t, w, evJobRunErrors) - before; got != 1 {
		t.Errorf("%d late reports, want 1", got)
	}
	clean(t, w)
}

// TestMaxRetries: attempts are counted, whatever nodes are left.
func TestMaxRetries(t *testing.T) {
	t.Parallel()
	for retries, leases := range map[int]int{-1: 1, 1: 2, 2: 3} {
		w := NewWorld(t, Config{MaxRetries: retries})
		i := newIngester(t, w)
		id := w.Submit(Job{Script: []Outcome{Returned()}})[0]
		until(t, w, i, "done", w.Done)
		clean(t, w)
		if r := w.Job(id); r.State != Failed || len(r.Leases) != leases {
			t.Errorf("MaxRetries %d: %v with %d leases, want failed with %d", retries, r.State, len(r.Leases), leases)
		}
	}
}

// TestOldVersion: a row that is behind the scheduler's memory does not put a leased
// job back into the queue.
func TestOldVersion(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{})
	i := newIngester(t, w)
	id := w.Submit(Job{})[0]
	steps(w, i, 1)
	for len(w.Job(id).Leases) == 0 {
		w.Step()
		if len(w.Job(id).Leases) == 0 {
			i.step()
		}
	}
	i.now("UPDATE jobs SET priority = 5 WHERE job_id = $1 AND queued AND queued_version = 0", id)
	w.Step()
	w.Step()
	if r := w.Job(id); len(r.Leases) != 1 || r.State != Leased {
		t.Errorf("%v with %d leases, want it leased once", r.State, len(r.Leases))
	}
	until(t, w, i, "done", w.Done)
	clean(t, w)
}

// TestWedge: one row that cannot be read stops the scheduler until it is mended.
func TestWedge(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{})
	i := newIngester(t, w)
	ids := w.Submit(Job{}, Job{})
	i.step()
	i.now("UPDATE jobs SET scheduling_info = '', scheduling_info_version = 1 WHERE job_id = $1", ids[0])
	steps(w, i, 5)
	if err := w.Wedged(); err == nil || !errors.Is(err, errNoPod) {
		t.Fatalf("Wedged() = %v, want %v", err, errNoPod)
	}
	if v := w.Violations(); len(v) != 1 || !strings.Contains(v[0], ids[0]) {
		t.Errorf("violations %q, want one that names the job", v)
	}
	if got := w.Job(ids[1]).State; got != Unseen {
		t.Errorf("the other job is %v", got)
	}
	i.now("UPDATE jobs SET scheduling_info = (SELECT scheduling_info FROM jobs WHERE job_id = $2) WHERE job_id = $1", ids[0], ids[1])
	until(t, w, i, "done", w.Done)
	if err := w.Wedged(); err != nil {
		t.Errorf("Wedged() = %v", err)
	}
}

// TestMissingError: a failed run without its error is as bad.
func TestMissingError(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{})
	i := newIngester(t, w)
	w.Submit(Job{Script: []Outcome{Fail(1)}})
	until(t, w, i, "failed", func() bool {
		i.now("DELETE FROM job_run_errors")
		w.Step()
		return w.Wedged() != nil
	})
	if err := w.Wedged(); !strings.Contains(err.Error(), "no run error found") {
		t.Errorf("Wedged() = %v", err)
	}
}

// TestRestart: a new scheduler waits for its markers, and goes on with what is
// in the tables.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{Partitions: 4})
	i := newIngester(t, w)
	ids := w.Submit(Job{Set: "a", Script: []Outcome{Succeed().After(20e9)}}, Job{Set: "b"}, Job{Set: "c"})
	for range 6 {
		w.RestartScheduler()
		for range 5 {
			w.Step()
		}
		if w.sched.leader {
			t.Error("the scheduler goes on before its markers have come through")
		}
		steps(w, i, 4)
	}
	until(t, w, i, "done", w.Done)
	clean(t, w)
	for _, id := range ids {
		if r := w.Job(id); len(r.Pods) != 1 {
			t.Errorf("%+v", r)
		}
	}
	if got := count(t, w, evPartitionMarker); got != 6*4 {
		t.Errorf("%d markers, want 6 times 4", got)
	}
}

// brokenLog fails now and then, before it has written anything.
type brokenLog struct {
	Log
	on    bool
	calls int
}

func (l *brokenLog) AppendSync(ctx context.Context, p int, msgs []eventlog.Message) error {
	if l.calls++; l.on && l.calls%3 != 0 {
		return eventlog.ErrTransient
	}
	return l.Log.AppendSync(ctx, p, msgs)
}

// TestOutage: what could not be published is said again.
func TestOutage(t *testing.T) {
	t.Parallel()
	w := NewWorld(t, Config{Log: &brokenLog{Log: memoryLog(t, 1, nil)}, TolerateOutage: true})
	i := newIngester(t, w)
	ids := w.Submit(Job{}, Job{Script: []Outcome{Fail(1)}}, Job{Script: times(2, Returned(), Succeed())})
	w.Log().(*brokenLog).on = true
	until(t, w, i, "done", w.Done)
	clean(t, w)
	if got := []int{len(w.Job(ids[0]).Pods), len(w.Job(ids[1]).Pods), len(w.Job(ids[2]).Pods)}; !slices.Equal(got, []int{1, 1, 3}) {
		t.Errorf("pods %v", got)
	}
}

// TestSeed: the same seed gives the same messages, another one others.
func TestSeed(t *testing.T) {
	t.Parallel()
	play := func(seed uint64) []byte {
		w := NewWorld(t, Config{Seed: seed, Partitions: 1})
		i := newIngester(t, w)
		w.Submit(Job{Script: times(1, Returned(), Succeed())}, Job{Script: []Outcome{Fail(3)}}, Job{Script: []Outcome{Preempted()}})
		until(t, w, i, "done", w.Done)
		var all [][]byte
		for _, m := range messages(t, w) {
			all = append(all, m.Payload)
		}
		return bytes.Join(all, nil)
	}
	a, b, c := play(1), play(1), play(2)
	if !bytes.Equal(a, b) {
		t.Errorf("seed 1 played twice differs: %s", cmp.Diff(a, b))
	}
	if bytes.Equal(a, c) {
		t.Error("seeds 1 and 2 are the same")
	}
}

// messages are all on the topic.
func messages(t testing.TB, w *World) []eventlog.Message {
	t.Helper()
	var all []eventlog.Message
	for p := range w.Log().Partitions() {
		r, err := w.Log().Open(p, eventlog.Start)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for {
			msgs := make([]eventlog.Message, 100)
			n, err := r.Read(msgs)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			all = append(all, msgs[:n]...)
		}
	}
	return all
}

// count is how many events of a kind are on the topic.
func count(t testing.TB, w *World, kind int) int {
	t.Helper()
	n := 0
	for _, m := range messages(t, w) {
		err := scan(m.Payload, func(f field) error {
			if f.number != 5 {
				return nil
			}
			return scan(f.bytes, func(f field) error {
				if f.number == kind {
					n++
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}
