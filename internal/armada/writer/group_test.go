package writer

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/schedulerdb"
)

// change is a change of a member whose latest run is r, with a restart at a second.
func change(c chain.Change, after int64) *chain.MemberChange {
	return &chain.MemberChange{Change: c, JobID: "j", RunID: "r", Member: chain.Member{Group: "g", Generation: 2}, RetryAfter: after * second}
}

func again(after int64) restarted {
	return restarted{MemberChange: change(chain.MemberRestart, after), at: late}
}

func TestPlanMemberRestart(t *testing.T) {
	t.Parallel()
	heldAgain := again(0)
	heldAgain.held = true
	expired := again(20)
	expired.byScheduler = true
	const waits = "info@1(1; waits) queued=true@2 copy(r g requeue=true@2)"
	for name, tt := range map[string]struct {
		row    func(j *jobView)
		do     restarted
		want   string
		mode   Mode
		unable bool
	}{
		"runs":                       {do: again(11), want: "EndPreemption StopRun queued=true@2 copy(r g requeue=true@2)", mode: HoldBack},
		"runs, with grace":           {do: again(20), want: "EndPreemption StopRun " + waits + " due 20", mode: HoldBack},
		"runs, in direct":            {do: again(20), want: "EndPreemption StopRun queued=true@2 copy(r g requeue=true@2)", mode: Direct},
		"was ended by the scheduler": {do: expired, want: "EndPreemption StopRun due 14", mode: HoldBack},
		"has ended": {
			row: func(j *jobView) { j.over = true }, do: again(11), mode: HoldBack,
			want: "EndPreemption StopRun ReviveJob queued=true@2 copy(r g requeue=true@2) due 16",
		},
		"was queued for another reason": {row: func(j *jobView) { j.queued = true }, do: again(11), mode: HoldBack},
		"was queued, waits": {
			row: func(j *jobView) { j.queued, j.validated = true, true }, do: again(20), want: "info@1(1; waits) due 20", mode: HoldBack,
		},
		"waits already": {
			row: func(j *jobView) {
				j.queued, j.retry = true, &pendingRetry{runID: "r", delayed: true, retryAfter: 15 * second}
			},
			do: again(20), want: "due 20", mode: HoldBack,
		},
		"was cancelled": {row: func(j *jobView) { j.over, j.cancelled = true, true }, do: again(11), want: "unable", mode: HoldBack},
		"was pruned":    {row: func(j *jobView) { j.known = false }, do: again(11), want: "unable", mode: HoldBack},
		"has no row yet": {
			row: func(j *jobView) { *j = jobView{id: "j", held: &schedulerdb.InsertJob{JobID: "j"}} }, do: again(20), want: "InsertJob", mode: HoldBack,
		},
		"has no row yet, and is held": {
			row: func(j *jobView) { *j = jobView{id: "j", held: &schedulerdb.InsertJob{JobID: "j"}} }, do: heldAgain, mode: HoldBack,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, j := of(t, tt.mode, 11)
			if tt.row != nil {
				tt.row(j)
			}
			p.do(tt.do)
			want(t, p, tt.want)
		})
	}
}

// TestPlanHeldAtRestart: the selector stays until the member is released.
func TestPlanHeldAtRestart(t *testing.T) {
	t.Parallel()
	p, j := of(t, HoldBack, 11)
	a := again(12)
	a.held = true
	p.do(a)
	p = p.next(5000)
	p.advance(j)
	if len(p.ops) != 0 || !j.retry.isHeld() {
		t.Fatalf("a member that is held starts: %s", p.did(t))
	}
	p.do(unhold{jobID: "j", retryAfter: 12 * second})
	p.advance(j)
	want(t, p, "info@2(2)")

	p, j = of(t, HoldBack, 11)
	p.do(a)
	p = p.next(20)
	p.do(voidHolds{})
	p.advance(j)
	want(t, p, "info@2(2)")
}

// TestPlanStoppedRun: the end of the run that a restart stopped. Its next lease, version 3,
// may be on its way.
func TestPlanStoppedRun(t *testing.T) {
	t.Parallel()
	byRestart := retry(30)
	byRestart.Code, byRestart.Policy = policy.GroupRestart, "g"
	p, _ := of(t, HoldBack, 11)
	p.do(again(11))
	p = p.next(12)
	p.do(requeue{byRestart, late, false, grace})
	want(t, p, "")
	p.do(lease{&schedulerdb.SetQueued{JobID: "j", Version: 3}, "new"})
	want(t, p, "queued=false@3")

	p, _ = of(t, HoldBack, 11) // its pod needs more time
	p.do(again(20))
	p = p.next(12)
	p.do(requeue{byRestart, late, false, grace})
	want(t, p, "due 30")

	p, _ = of(t, HoldBack, 11) // the scheduler has failed it meanwhile
	p.do(again(20))
	p = p.next(12)
	p.do(requeue{byRestart, late, true, grace})
	want(t, p, "EndPreemption due 15")
}

// TestPlanFailedAndRestarted: the member whose failure restarts its gang.
func TestPlanFailedAndRestarted(t *testing.T) {
	t.Parallel()
	d := retry(20)
	d.Code = policy.GangRetry
	p, _ := of(t, HoldBack, 11)
	p.do(requeue{d, late, false, grace})
	p.do(again(20))
	want(t, p, "EndPreemption info@1(1; waits) queued=true@2 copy(r p requeue=true@2) due 20")
	p, _ = of(t, HoldBack, 11)
	p.do(requeue{d, late, true, grace})
	p.do(again(20))
	want(t, p, "EndPreemption due 14")
}

// TestPlanCopiesSayWhatWasKnown: what a run reports after it was stopped is not in the copy,
// also if one transaction has both.
func TestPlanCopiesSayWhatWasKnown(t *testing.T) {
	t.Parallel()
	reports := func(what string) action {
		return apply{&schedulerdb.InsertRunError{RunID: "r", JobID: "j", Error: []byte(what)}}
	}
	for name, do := range map[string]action{"restarted": again(11), "left": stopped{change(chain.MemberStopped, 0), late, "because", false}, "retried": requeue{retry(10), late, false, grace}} {
		for _, tt := range []struct {
			before, want string
		}{{"", ""}, {"first", "first"}} {
			p, _ := of(t, HoldBack, 11)
			if tt.before != "" {
				p.do(reports(tt.before))
			}
			p.do(do)
			p.do(reports("later"))
			if len(p.copies) != 1 || string(p.copies[0].error) != tt.want {
				t.Errorf("%s: copies %+v, want the error %q", name, p.copies, tt.want)
			}
		}
	}
}

func TestPlanMemberStopped(t *testing.T) {
	t.Parallel()
	left := stopped{change(chain.MemberStopped, 0), late, "because", false}
	ended := left
	ended.ended = true
	p, j := of(t, HoldBack, 11)
	p.do(left)
	want(t, p, "EndPreemption StopRun FailJob copy(r g requeue=false@0)")
	p = p.next(12)
	p.do(lateLease{"j", "new"})
	want(t, p, "StopRun")
	if !j.over {
		t.Error("a member that was left is not over")
	}
	p, _ = of(t, HoldBack, 11)
	p.do(ended)
	want(t, p, "RequestCancel copy( g requeue=false@0)")
	var seq pb.EventSequence
	if payload, err := p.copies[0].fitting(); err != nil || proto.Unmarshal(payload, &seq) != nil {
		t.Fatal(err)
	}
	if e := seq.Events[0].GetJobErrors().GetErrors()[0]; len(seq.Events) != 1 || e.GetTerminal() || e.GetPodError().GetMessage() != "because" {
		t.Errorf("the copy of a cancellation: %v", &seq)
	}
	if o := p.ops[0].(*schedulerdb.RequestCancel); o.User != "refloat" || o.Reason != "because" {
		t.Errorf("cancelled by %s: %s", o.User, o.Reason)
	}
	for _, a := range []stopped{left, ended} { // held before its first start
		p, j = of(t, HoldBack, 11)
		*j = jobView{id: "j", held: &schedulerdb.InsertJob{JobID: "j"}}
		p.do(a)
		if _, ok := p.ops[0].(*schedulerdb.InsertJob); !ok || len(p.ops) < 2 {
			t.Errorf("a held member that is stopped: %s", p.did(t))
		}
	}
}

// TestPlanHeld: operations on a member that has no row yet.
func TestPlanHeld(t *testing.T) {
	t.Parallel()
	begin := func() (*plan, *jobView) {
		p, j := of(t, HoldBack, 11)
		*j = jobView{id: "j"}
		p.do(hold{&schedulerdb.InsertJob{JobID: "j", Queue: "q", JobSet: "s", SchedulingInfo: submitted(t)}})
		want(t, p, "")
		if !j.heldChanged {
			t.Fatal("the row is not kept")
		}
		j.heldChanged = false // as stored, and loaded again
		return p, j
	}
	for name, tt := range map[string]struct {
		op       schedulerdb.Op
		want     string
		priority int64
	}{
		"cancelled":                            {op: &schedulerdb.RequestCancel{JobID: "j", Queue: "q", JobSet: "s"}, want: "InsertJob RequestCancel"},
		"cancelled in another set":             {op: &schedulerdb.RequestCancel{JobID: "j", Queue: "q", JobSet: "z"}, want: "RequestCancel"},
		"cancelled with its set":               {op: &schedulerdb.RequestSetCancel{Queue: "q", JobSet: "s", Queued: true, Leased: true}, want: "InsertJob RequestSetCancel"},
		"only running jobs of it":              {op: &schedulerdb.RequestSetCancel{Queue: "q", JobSet: "s", Leased: true}, want: "RequestSetCancel"},
		"reprioritised":                        {op: &schedulerdb.SetPriority{JobID: "j", Queue: "q", JobSet: "s", Priority: 7}, priority: 7},
		"reprioritised with its set":           {op: &schedulerdb.SetSetPriority{Queue: "q", JobSet: "s", Priority: 7}, want: "SetSetPriority", priority: 7},
		"reprioritised in the set of a tenant": {op: &schedulerdb.SetSetPriority{Queue: "p", JobSet: "s", Priority: 7}, want: "SetSetPriority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, j := begin()
			p.do(apply{tt.op})
			want(t, p, tt.want)
			if j.held != nil && j.held.Priority != tt.priority || (j.held == nil || tt.priority != 0) != j.heldChanged {
				t.Errorf("then: %+v", j)
			}
		})
	}
	p, j := begin()
	p.do(unhold{jobID: "j"})
	want(t, p, "InsertJob")
	if !j.heldChanged || !j.queued || !j.known {
		t.Errorf("after its release: %+v", j)
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	for want, g := range map[string]*chain.GroupEnded{
		"its group g has succeeded":                           {Group: "g", State: policy.GroupSucceeded},
		"its group g has failed: ReachedMaxRestarts (rule r)": {Group: "g", State: policy.GroupFailed, Reason: policy.ReachedMaxRestarts, Rule: "r"},
		"its group g has been halted: BackoffLimitExceeded":   {Group: "g", State: policy.GroupHalted, Reason: policy.BackoffLimitExceeded},
	} {
		if got := sentence(g); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestUnusualNames: Armada's tables can hold what is written about a gang with any name.
func TestUnusualNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("é", 4096), "a\x00b", "a\xffb"} {
		why := sentence(&chain.GroupEnded{Group: "gang/" + name, State: policy.GroupFailed, Reason: policy.ReachedMaxRestarts, Rule: strings.Repeat("r", 63)})
		if err := schedulerdb.Refused(&schedulerdb.RequestCancel{JobID: "j", Queue: "q", JobSet: "s", User: "refloat", Reason: why}); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
		p, j := of(t, HoldBack, 11)
		a := again(20)
		a.Member.Group = name
		p.do(a)
		if !storable(j.retry.policy) || !storable(j.retry.text) {
			t.Errorf("%.20q is written as it is", name)
		}
	}
}

// TestTakeEnded: a member is cancelled with its own group, not with one of the same name in
// another job set or queue, which may end by the same message: their horizon passed.
func TestTakeEnded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		queue, set string
		want       bool
	}{{"q", "s", true}, {"q", "another", false}, {"another", "s", false}} {
		msg := taken(t, []string{"marker"})
		msg.Records = []chain.Record{
			&chain.GroupEnded{Queue: tt.queue, JobSet: tt.set, Group: "g", State: policy.GroupFailed},
			&chain.MemberChange{Change: chain.MemberStopped, Queue: "q", JobSet: "s", JobID: "j", RunID: "r", Member: chain.Member{Group: "g"}},
		}
		msg.Acted = []bool{false, true}
		m := New(Config{Mode: HoldBack})
		m.Collect(msg, func(string) *jobdb.Job { return &jobdb.Job{JobID: "j"} })
		if a, ok := m.actions[len(m.actions)-1].(stopped); !ok || a.ended != tt.want {
			t.Errorf("group g of %s/%s has ended: %+v, want the member of q/s ended: %v", tt.queue, tt.set, a, tt.want)
		}
	}
}
