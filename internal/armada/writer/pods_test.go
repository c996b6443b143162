package writer

import (
	"maps"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/sink"
)

// stops is a restart at a second, of a run that may be alive.
func stops(after int64) restarted {
	a := again(after)
	a.grace = grace
	return a
}

// TestPlanPods: what is written late has its pods to wait for, from then on, whatever else
// happens to the job: here at second 100, with 30 s for a pod to end.
func TestPlanPods(t *testing.T) {
	t.Parallel()
	held := stops(20)
	held.held = true
	expired := stops(20)
	expired.byScheduler = true
	byRestart := retry(20)
	byRestart.Code, byRestart.Policy = policy.GroupRestart, "g"
	ready := &chain.RetryReady{JobID: "j", RunID: "r", RetryAfter: 15 * second}
	const queued = "queued=true@2 copy(r g requeue=true@2) "
	const waits = "info@1(1; waits) " + queued
	for name, tt := range map[string]struct {
		row  func(j *jobView)
		do   []action
		want string
	}{
		"a live run":                           {do: []action{stops(20)}, want: "EndPreemption StopRun " + waits + "due 130"},
		"a live run, with a longer delay":      {do: []action{stops(200)}, want: "EndPreemption StopRun " + waits + "due 200"},
		"a run that has ended":                 {do: []action{again(20)}, want: "EndPreemption StopRun " + queued[:len(queued)-1]},
		"it reports its end":                   {do: []action{stops(20), requeue{byRestart, late, false, grace}}, want: "EndPreemption StopRun " + waits + "due 130"},
		"it reports its end, which proves it":  {do: []action{stops(20), proven{ready}}, want: "EndPreemption StopRun " + waits + "due 15"},
		"a live run is held":                   {do: []action{held}, want: "EndPreemption StopRun " + waits + "due 9.223371976854776e+09"},
		"a live run is held, and released":     {do: []action{held, unhold{"j", 20 * second}}, want: "EndPreemption StopRun " + waits + "due 130"},
		"a live run is held, and all released": {do: []action{held, voidHolds{}}, want: "EndPreemption StopRun " + waits + "due 130"},
		"a live run is held, and proven":       {do: []action{held, proven{ready}}, want: "EndPreemption StopRun " + waits + "due 9.223371976854776e+09"},
		"a live run is restarted twice":        {do: []action{stops(20), again(25)}, want: "EndPreemption StopRun " + waits + "due 130"},
		"a stopped member is restarted": {
			do:   []action{stopped{change(chain.MemberStopped, 0), late, "because", false}, stops(20)},
			want: "EndPreemption StopRun FailJob EndPreemption StopRun ReviveJob info@1(1; waits) queued=true@2 copy(r g requeue=false@0) copy(r g requeue=true@2) due 105",
		},
		"its peers are alive": { // the failed member of a gang
			do:   []action{requeue{retry(20), late, false, grace}, stops(20)},
			want: "EndPreemption info@1(1; waits) queued=true@2 copy(r p requeue=true@2) due 130",
		},
		"its peers are alive, and it waits for nothing": {
			do:   []action{requeue{retry(10), late, false, grace}, stops(10)},
			want: "EndPreemption queued=true@2 info@1(1; waits) copy(r p requeue=true@2) due 130",
		},
		"its peers are alive, and it is in the queue": {
			row: func(j *jobView) { j.queued, j.validated = true, true }, do: []action{stops(20)}, want: "info@1(1; waits) due 130",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, j := of(t, HoldBack, 100)
			if tt.row != nil {
				tt.row(j)
			}
			for _, a := range tt.do {
				p.do(a)
			}
			want(t, p, tt.want)
		})
	}
	for name, do := range map[string][]action{ // in two steps
		"restarted":                     {expired},
		"restarted, and reports":        {expired, requeue{byRestart, late, true, grace}},
		"retried, and restarted":        {requeue{retry(20), late, true, grace}, expired},
		"retried":                       {requeue{retry(20), late, true, grace}},
		"held, and restarted when free": {heldBack(expired), expired},
	} {
		p, j := of(t, HoldBack, 100)
		for _, a := range do {
			p.do(a)
		}
		if due := j.retry.due(); due != 103*second {
			t.Errorf("%s: due %d", name, due/second)
		}
		p = p.next(103)
		p.advance(j)
		if !j.retry.delayed || j.retry.ready() != 130*second {
			t.Errorf("%s: ready at %d, want 130", name, j.retry.ready()/second)
		}
	}
	p, j := of(t, HoldBack, 100) // the scheduler had preempted the run before it saw that it is stopped
	p.do(stops(20))
	p = p.next(120)
	p.do(requeue{byRestart, late, true, grace})
	if at := j.retry.ready(); at != 130*second {
		t.Errorf("a stopped run that was preempted: ready at %d, want 130", at/second)
	}
}

func heldBack(a restarted) restarted {
	a.held = true
	return a
}

// TestTakeGraces: members that start again together wait for all pods of theirs that may be
// alive, each of the others for its own.
func TestTakeGraces(t *testing.T) {
	t.Parallel()
	jobs := map[string]*jobdb.Job{}
	msg := taken(t, []string{"preempted"}) // run r of job j
	for _, m := range []struct {
		job, set string
		after    int64
		open     uint32
		grace    int64
	}{
		{"one", "s", 20, 1, 5},
		{"two", "s", 20, 1, 40},
		{"over", "s", 20, 0, 60}, // a gang
		{"slow", "s", 30, 1, 1000},
		{"quick", "s", 40, 1, 0},
		{"ended", "s", 50, 0, 5},
		{"elsewhere", "another", 20, 1, 7},
		{"j", "s", 60, 0, 9},
	} {
		jobs[m.job] = &jobdb.Job{JobID: m.job, Queueing: jobdb.Queueing{OpenRuns: m.open}, Submit: jobdb.Submit{GraceSeconds: m.grace}}
		r := change(chain.MemberRestart, m.after)
		r.JobID, r.Queue, r.JobSet = m.job, "q", m.set
		msg.Records, msg.Acted = append(msg.Records, r), append(msg.Acted, true)
	}
	lost := change(chain.MemberRestart, 20)
	lost.JobID, lost.Queue, lost.JobSet = "lost", "q", "s"
	jobs["lost"] = &jobdb.Job{JobID: "lost", Queueing: jobdb.Queueing{OpenRuns: 1}, Submit: jobdb.Submit{GraceSeconds: 200}}
	msg.Records, msg.Acted = append(msg.Records, lost), append(msg.Acted, false)
	m := New(Config{Mode: HoldBack})
	m.Collect(msg, func(id string) *jobdb.Job { return jobs[id] })
	got := map[string]time.Duration{}
	for _, a := range m.actions {
		if r, ok := a.(restarted); ok {
			got[r.JobID] = r.grace / time.Second
		}
	}
	want := map[string]time.Duration{"one": 40, "two": 40, "over": 40, "slow": 300, "quick": 1, "ended": 0, "elsewhere": 7, "j": 9}
	if !maps.Equal(got, want) {
		t.Errorf("they wait for a grace of %v seconds, want %v", got, want)
	}
}

// TestTakeGangProof: that one pod of a gang is gone does not make a member ready.
func TestTakeGangProof(t *testing.T) {
	t.Parallel()
	for gang, want := range map[string]int{"": 1, "g": 0} {
		msg := &sink.Message{Events: taken(t, []string{"marker"}).Events, Records: []chain.Record{&chain.RetryReady{JobID: "j", RunID: "r"}}, Acted: []bool{true}}
		m := New(Config{Mode: HoldBack})
		m.Collect(msg, func(string) *jobdb.Job { return &jobdb.Job{JobID: "j", Submit: jobdb.Submit{GangID: gang}} })
		if n := len(m.actions) - 1; n != want {
			t.Errorf("in gang %q, the proof that one pod is gone has %d effects, want %d: a gang waits for all of its pods", gang, n, want)
		}
	}
}
