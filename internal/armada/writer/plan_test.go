package writer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/schedulerdb"
	schedulingpb "github.com/refloat/refloat/internal/schedulerdb/pb"
	"github.com/refloat/refloat/internal/sink"
)

const second = int64(time.Second)

// submitted are requirements with a selector, and two terms of a node affinity.
func submitted(t *testing.T) []byte {
	t.Helper()
	b, err := proto.Marshal(&schedulingpb.JobSchedulingInfo{ObjectRequirements: []*schedulingpb.ObjectRequirements{{
		PodRequirements: &schedulingpb.PodRequirements{
			NodeSelector: map[string]string{"own": "yes"},
			Affinity:     &schedulingpb.Affinity{NodeAffinity: &schedulingpb.NodeAffinity{Required: &schedulingpb.NodeSelector{Terms: []*schedulingpb.NodeSelectorTerm{{}, {}}}}},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The job's pods have this grace, and the policies this slack.
const grace, slack = 5 * time.Second, 25 * time.Second

// of returns a plan for one job, leased as version 1, at a time in seconds.
func of(t *testing.T, mode Mode, now int64) (*plan, *jobView) {
	t.Helper()
	j := &jobView{id: "j", queue: "q", set: "s", known: true, version: 1, submitted: submitted(t)}
	return &plan{mode: mode, label: "host", now: now * second, slack: slack, atEnd: true, copying: true, jobs: map[string]*jobView{"j": j}, errors: map[string][]byte{}}, j
}

// next returns the plan of a later transaction, with the same rows.
func (p *plan) next(now int64) *plan {
	n := *p
	n.now, n.ops, n.copies, n.unable, n.errors = now*second, nil, nil, nil, map[string][]byte{}
	return &n
}

// did describes a plan in one line, with what is due then.
func (p *plan) did(t *testing.T) string {
	t.Helper()
	var did []string
	for _, op := range p.ops {
		switch o := op.(type) {
		case *schedulerdb.SetQueued:
			did = append(did, fmt.Sprintf("queued=%v@%d", o.Queued, o.Version))
		case *schedulerdb.SetSchedulingInfo:
			did = append(did, fmt.Sprintf("info@%d(%s)", o.Version, described(t, o.Info)))
		default:
			did = append(did, strings.TrimPrefix(fmt.Sprintf("%T", op), "*schedulerdb."))
		}
	}
	for _, c := range p.copies {
		did = append(did, fmt.Sprintf("copy(%s %s requeue=%v@%d)", c.runID, c.policy, c.requeue, c.version))
	}
	for range p.unable {
		did = append(did, "unable")
	}
	if w := p.jobs["j"].retry; w != nil {
		did = append(did, fmt.Sprintf("due %v", float64(w.due())/float64(second)))
	}
	return strings.Join(did, " ")
}

func described(t *testing.T, info []byte) string {
	t.Helper()
	var m schedulingpb.JobSchedulingInfo
	if err := proto.Unmarshal(info, &m); err != nil {
		t.Fatal(err)
	}
	pod := m.ObjectRequirements[0].GetPodRequirements()
	lines := []string{fmt.Sprint(m.Version)}
	if pod.NodeSelector["own"] != "yes" {
		lines = append(lines, "lost its selector")
	}
	if pod.NodeSelector[schedulerdb.WaitingLabel] != "" {
		lines = append(lines, "waits")
	}
	for _, term := range pod.GetAffinity().GetNodeAffinity().GetRequired().GetTerms() {
		for _, e := range term.MatchExpressions {
			lines = append(lines, fmt.Sprintf("%s %s %s", e.Key, e.Operator, strings.Join(e.Values, ",")))
		}
	}
	return strings.Join(lines, "; ")
}

func want(t *testing.T, p *plan, text string) {
	t.Helper()
	if got := p.did(t); got != text {
		t.Errorf("the plan is %q, want %q", got, text)
	}
}

// retry is a decision at second 10 on run r, with a retry at the given second.
func retry(after int64, avoid ...string) *chain.Decision {
	return &chain.Decision{
		Requeue: true, Number: 7, JobID: "j", RunID: "r", Policy: "p", Time: 10 * second, RetryAfter: after * second, AvoidNodes: avoid,
	}
}

var late = eventlog.Position{Ledger: 9}

const avoided = "host NotIn n1,n2; host NotIn n1,n2"

func TestPlanWaits(t *testing.T) {
	t.Parallel()
	p, j := of(t, HoldBack, 11)
	p.do(requeue{retry(40, "n1", "n2"), late, false, grace})
	want(t, p, "EndPreemption info@1(1; waits; "+avoided+") queued=true@2 copy(r p requeue=true@2) due 40")
	if !j.retryChanged {
		t.Error("the wait is not written")
	}
	p = p.next(39)
	p.advance(j)
	want(t, p, "due 40")
	p = p.next(40)
	p.advance(j)
	want(t, p, "info@2(2; "+avoided+")")
}

func TestPlanNothingToWaitFor(t *testing.T) {
	t.Parallel()
	p, _ := of(t, HoldBack, 11)
	p.do(requeue{retry(10), late, false, grace})
	want(t, p, "EndPreemption queued=true@2 copy(r p requeue=true@2)")
	p, j := of(t, HoldBack, 11) // rewritten before
	j.infoVersion = 4
	p.do(requeue{retry(10), late, false, grace})
	want(t, p, "EndPreemption info@5(5) queued=true@2 copy(r p requeue=true@2)")
}

func TestPlanProof(t *testing.T) {
	t.Parallel()
	p, j := of(t, HoldBack, 11)
	p.do(requeue{retry(40), late, false, grace})
	for _, r := range []*chain.RetryReady{{JobID: "j", RunID: "another", RetryAfter: 20 * second}, {JobID: "j", RunID: "r", RetryAfter: 50 * second}} {
		p = p.next(12)
		p.do(proven{r})
		want(t, p, "due 40")
	}
	p = p.next(12)
	p.do(proven{&chain.RetryReady{JobID: "j", RunID: "r", RetryAfter: 20 * second}})
	want(t, p, "due 20")
	p = p.next(20)
	p.advance(j)
	want(t, p, "info@2(2)")
}

// TestPlanTwoSteps: a job that the scheduler failed is queued later; its pod's time to
// terminate starts when the rows show the end of the run.
func TestPlanTwoSteps(t *testing.T) {
	t.Parallel()
	p, j := of(t, HoldBack, 100)
	p.do(requeue{retry(40), late, true, grace})
	want(t, p, "EndPreemption due 103")
	p = p.next(102)
	p.advance(j)
	want(t, p, "due 103")
	p = p.next(103)
	p.advance(j)
	want(t, p, "info@1(1; waits) queued=true@2 copy(r p requeue=true@2) due 108")
	p = p.next(108)
	p.advance(j)
	want(t, p, "queued=true@3 due 113")
	p = p.next(130) // 30 s after 100
	p.advance(j)
	want(t, p, "info@2(2) due 135")
	p = p.next(135)
	p.atEnd = false
	p.advance(j)
	want(t, p, "due 136")
	for i, at := range []int64{136, 141, 146, 151, 156} {
		p = p.next(at)
		p.atEnd = true
		p.advance(j)
		if i < 4 {
			want(t, p, fmt.Sprintf("queued=true@%d due %d", 4+i, at+5))
		} else {
			want(t, p, "queued=true@8 due 216")
		}
	}
	p = p.next(216)
	p.advance(j)
	want(t, p, "")
}

func TestPlanLease(t *testing.T) {
	t.Parallel()
	raised := func() (*plan, *jobView) {
		p, j := of(t, HoldBack, 20)
		j.queued, j.version = true, 5
		j.retry = &pendingRetry{runID: "r", stage: expectingRun, checks: 3, nextAt: 25 * second}
		return p, j
	}
	for version, forced := range map[int32]int32{3: 6, 5: 6, 6: 6, 9: 9} {
		p, j := raised()
		p.do(lease{&schedulerdb.SetQueued{JobID: "j", Version: version}, "new"})
		want(t, p, fmt.Sprintf("queued=false@%d", forced))
		if j.retry != nil || !j.retryChanged || j.queued {
			t.Errorf("after a lease: %+v", j)
		}
	}
	// Regression: the scheduler was leasing while the version was bumped for the last
	// time.
	p, j := raised()
	for _, at := range []int64{25, 30} {
		p = p.next(at)
		p.advance(j)
	}
	want(t, p, "queued=true@7 due 90")
	p = p.next(31)
	p.do(lease{&schedulerdb.SetQueued{JobID: "j", Version: 7}, "new"})
	want(t, p, "queued=false@8")
	// Regression: the lease of the failed run is repeated.
	p, j = raised()
	p.do(lease{&schedulerdb.SetQueued{JobID: "j", Version: 3}, "r"})
	want(t, p, "queued=false@3 due 25")
	if !j.queued || j.version != 5 {
		t.Errorf("after the lease of a run that failed: %+v", j)
	}
}

// TestPlanOverruled: the scheduler fails a job that is already retried.
func TestPlanOverruled(t *testing.T) {
	t.Parallel()
	over := overruled{jobID: "j", runID: "r", number: 7, policy: "p", retryAfter: 40 * second, at: late}
	p, j := of(t, HoldBack, 11)
	p.do(requeue{retry(30), late, false, grace})
	p = p.next(12)
	p.do(over)
	want(t, p, "EndPreemption due 15")
	// Regression: Lookout saw the failure after the copy, so the copy is published
	// again.
	p = p.next(15)
	p.advance(j)
	want(t, p, "info@2(2; waits) queued=true@3 copy(r p requeue=true@3) due 20")

	p, j = of(t, HoldBack, 12) // no retry was pending
	p.do(over)
	p = p.next(15)
	p.advance(j)
	want(t, p, "info@1(1; waits) queued=true@2 copy(r p requeue=true@2) due 20")

	p, _ = of(t, Direct, 12)
	p.do(over)
	want(t, p, "")
}

// TestPlanSetCancelled: a job that is about to be requeued counts as queued if only
// jobs in some states of its set are to be cancelled.
func TestPlanSetCancelled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		byScheduler    bool
		set            string
		queued, leased bool
		want           []string
	}{
		{"queued", true, "s", true, false, []string{"j"}},
		{"leased", true, "s", false, true, []string{"j"}},
		{"all", true, "s", true, true, nil},
		{"of another set", true, "other", true, false, nil},
		{"in the queue already", false, "s", true, false, nil},
	} {
		p, _ := of(t, HoldBack, 11)
		p.do(requeue{retry(40), late, tt.byScheduler, grace})
		p = p.next(12)
		p.do(apply{&schedulerdb.RequestSetCancel{Queue: "q", JobSet: tt.set, Queued: tt.queued, Leased: tt.leased}})
		if got := p.ops[0].(*schedulerdb.RequestSetCancel).AsQueued; !slices.Equal(got, tt.want) {
			t.Errorf("%s: as queued %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestPlanEnds(t *testing.T) {
	t.Parallel()
	for _, op := range []schedulerdb.Op{&schedulerdb.CancelJob{JobID: "j"}, &schedulerdb.SucceedJob{JobID: "j"}, &schedulerdb.FailJob{JobID: "j"}} {
		p, j := of(t, HoldBack, 11)
		p.do(requeue{retry(40), late, true, grace})
		p.do(apply{op})
		p = p.next(20)
		p.advance(j)
		want(t, p, "")
		for _, a := range []action{requeue{retry(40), late, false, grace}, overruled{jobID: "j", runID: "r"}, fail{retry(40), late}} {
			p.mode = HoldBack
			p.do(a)
			p.mode = Direct
			p.do(a)
		}
		want(t, p, "")
	}
	p, j := of(t, HoldBack, 11)
	j.known = false
	p.do(requeue{retry(40), late, false, grace})
	want(t, p, "")
}

// TestPlanUnable: requirements that cannot be rebuilt. The job fails in the end; it is
// not lost.
func TestPlanUnable(t *testing.T) {
	t.Parallel()
	p, j := of(t, HoldBack, 11)
	j.submitted = []byte{}
	p.do(requeue{retry(40), late, false, grace})
	want(t, p, "EndPreemption unable")
	// Regression: then the scheduler fails it, and that failure must not be skipped.
	p = p.next(12)
	p.do(overruled{jobID: "j", runID: "r", number: 7, retryAfter: 40 * second, at: late})
	p = p.next(15)
	p.advance(j)
	want(t, p, "FailJob unable")
	if j.retry != nil || !errors.Is(p.unable[0], p.unable[0]) || !strings.Contains(p.unable[0].Error(), "job j") {
		t.Errorf("%+v %v", j, p.unable)
	}
	// Regression: the same error if they could be rebuilt when the retry became pending.
	p, j = of(t, HoldBack, 11)
	p.do(requeue{retry(40), late, false, grace})
	j.submitted = nil
	p = p.next(40)
	p.advance(j)
	want(t, p, "FailJob unable")
}

func TestPlanDirect(t *testing.T) {
	t.Parallel()
	p, _ := of(t, Direct, 11)
	p.do(requeue{retry(40, "n1", "n2"), late, true, grace})
	want(t, p, "EndPreemption info@1(1; "+avoided+") queued=true@2 copy(r p requeue=true@2)")
	p, _ = of(t, Direct, 11)
	p.do(fail{retry(0), late})
	want(t, p, "FailJob copy(r p requeue=false@0)")
	p, _ = of(t, HoldBack, 11)
	p.do(fail{retry(0), late})
	want(t, p, "")
}

// TestPlanSince: messages before the start position are not copied.
func TestPlanSince(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{HoldBack, Direct} {
		p, _ := of(t, mode, 11)
		p.since = late
		p.do(requeue{retry(10), late, false, grace})
		want(t, p, "EndPreemption queued=true@2")
		p = p.next(12)
		p.since = eventlog.Start
		p.copying = false
		p.do(requeue{retry(10), late, false, grace})
		want(t, p, "EndPreemption queued=true@3")
	}
}

// TestTake: which operations and decisions of a message are effective.
func TestTake(t *testing.T) {
	t.Parallel()
	enforced := &jobdb.Job{JobID: "j", State: jobdb.JobQueued, Queueing: jobdb.Queueing{Decision: 7, LatestRun: "r"}}
	undecided := &jobdb.Job{JobID: "j", State: jobdb.JobFailed, Queueing: jobdb.Queueing{LatestRun: "r"}}
	failed := &jobdb.Job{JobID: "j", State: jobdb.JobFailed, Queueing: jobdb.Queueing{Decision: 7, LatestRun: "r"}}
	shadow, no := retry(40), retry(0)
	shadow.Shadow, no.Requeue = true, false
	for _, tt := range []struct {
		name     string
		mode     Mode
		job      *jobdb.Job
		released bool
		events   string // "submit" for a job that is known
		record   chain.Record
		acted    bool // by the rows
		want     string
	}{
		{"a failure that is retried", HoldBack, enforced, false, "run-errors job-errors", retry(40), true, "InsertRunError FailRun overruled requeue(false)"},
		{"a lease that expired", HoldBack, enforced, false, "expired", retry(40), true, "InsertRunError FailRun requeue(true)"},
		{"a reconciliation", HoldBack, enforced, false, "reconciled", retry(40), true, "InsertRunError FailRun requeue(true)"},
		{"a preemption, said as an event", HoldBack, enforced, false, "preempted", retry(40), true, "MarkRun requeue(true)"},
		{"in shadow", HoldBack, undecided, false, "run-errors job-errors", shadow, false, "InsertRunError FailRun FailJob"},
		{"not decided", HoldBack, undecided, false, "run-errors job-errors", nil, false, "InsertRunError FailRun FailJob"},
		{"failed", HoldBack, failed, false, "run-errors job-errors", no, true, "InsertRunError FailRun FailJob fail"},
		{"a decision on an older run", HoldBack, &jobdb.Job{State: jobdb.JobRunning, Queueing: jobdb.Queueing{LatestRun: "newer"}}, false, "run-errors", retry(40), false, "InsertRunError FailRun"},
		{"returned, and failed", HoldBack, failed, false, "returned", no, true, "InsertRunError FailRun fail"},
		{"returned, and failed before", HoldBack, failed, false, "returned", nil, false, "InsertRunError FailRun"},
		{"returned, and left to Armada", HoldBack, undecided, false, "returned", nil, false, "InsertRunError FailRun(returned)"},
		{"Armada's requeue beside ours", HoldBack, enforced, false, "requeued", nil, false, ""},
		{"Armada's requeue", HoldBack, undecided, false, "requeued", nil, false, "SetQueued SetSchedulingInfo"},
		{"a lease", HoldBack, undecided, false, "leased", nil, false, "InsertRun lease(r)"},
		{"released", HoldBack, enforced, true, "job-errors requeued leased", nil, false, "FailJob SetQueued SetSchedulingInfo InsertRun lease(r) voidHolds"},
		{"submitted again", HoldBack, enforced, false, "submit marker", nil, false, "InsertMarker"},
		{"submitted again, and released", Direct, enforced, true, "submit marker", nil, false, "InsertMarker voidHolds"},
		{"submitted again, and passed through", Passthrough, enforced, false, "submit marker", nil, false, "InsertJob InsertMarker"},
		{"passed through", Passthrough, enforced, false, "returned job-errors requeued leased", no, true, "InsertRunError FailRun(returned) FailJob SetQueued SetSchedulingInfo InsertRun SetQueued"},
		{"a proof", HoldBack, enforced, false, "marker", &chain.RetryReady{JobID: "j", RunID: "r"}, true, "InsertMarker proven"},
		{"a proof too late", HoldBack, undecided, false, "marker", &chain.RetryReady{JobID: "j", RunID: "r"}, false, "InsertMarker"},
		{"a proof of another run", HoldBack, enforced, false, "marker", &chain.RetryReady{JobID: "j", RunID: "other"}, false, "InsertMarker"},
	} {
		m := New(Config{Mode: tt.mode})
		msg := taken(t, strings.Fields(tt.events))
		msg.Released = tt.released
		if strings.HasPrefix(tt.events, "submit") {
			msg.Again = []int{0}
		}
		if tt.record != nil {
			msg.Records, msg.Acted = []chain.Record{tt.record}, []bool{tt.acted}
		}
		m.Collect(msg, func(string) *jobdb.Job { return tt.job })
		var got []string
		for _, a := range m.actions {
			got = append(got, named(a))
		}
		slices.Sort(got)
		sorted := strings.Fields(tt.want)
		slices.Sort(sorted)
		if !slices.Equal(got, sorted) {
			t.Errorf("%s: %v, want %v", tt.name, got, sorted)
		}
	}
}

func named(a action) string {
	switch a := a.(type) {
	case apply:
		name := strings.TrimPrefix(fmt.Sprintf("%T", a.Op), "*schedulerdb.")
		if o, ok := a.Op.(*schedulerdb.FailRun); ok && o.Returned {
			name += "(returned)"
		}
		return name
	case requeue:
		return fmt.Sprintf("requeue(%v)", a.byScheduler)
	case lease:
		return fmt.Sprintf("lease(%s)", a.run)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", a), "writer.")
}

// taken is a message with these events about job j and run r.
func taken(t *testing.T, kinds []string) *sink.Message {
	t.Helper()
	seq := &pb.EventSequence{Queue: "q", JobSetName: "s"}
	for _, kind := range kinds {
		ev := &pb.Event{Created: &pb.Timestamp{Seconds: 1}}
		reason := &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}}}
		runErrors := func() {
			ev.Event = &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: "j", RunId: "r", Errors: []*pb.Error{reason}}}
		}
		switch kind {
		case "run-errors":
			runErrors()
		case "expired":
			reason.Reason = &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}
			runErrors()
		case "reconciled":
			reason.Reason = &pb.Error_ReconciliationError{ReconciliationError: &pb.ReconciliationError{}}
			runErrors()
		case "returned":
			reason.Reason = &pb.Error_PodLeaseReturned{PodLeaseReturned: &pb.PodLeaseReturned{}}
			runErrors()
		case "preempted":
			ev.Event = &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: "j", PreemptedRunId: "r"}}
		case "job-errors":
			ev.Event = &pb.Event_JobErrors{JobErrors: &pb.JobErrors{JobId: "j", Errors: []*pb.Error{reason}}}
		}
		switch kind {
		case "requeued":
			ev.Event = &pb.Event_JobRequeued{JobRequeued: &pb.JobRequeued{JobId: "j", UpdateSequenceNumber: 2, SchedulingInfo: submitted(t)}}
		case "leased":
			ev.Event = &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: "j", RunId: "r", PodRequirementsOverlay: []byte{}}}
		case "submit":
			pod := &pb.PodSpecWithAvoidList{PodSpec: &pb.PodSpec{}}
			ev.Event = &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: "j", MainObject: &pb.KubernetesMainObject{PodSpec: pod}}}
		case "marker":
			marker, err := proto.Marshal(&pb.PartitionMarker{GroupId: "8d1f8a1c-5a43-4a07-9b6e-0f3f1f2d3c4b"})
			if err != nil {
				t.Fatal(err)
			}
			ev.PartitionMarker = marker
		}
		seq.Events = append(seq.Events, ev)
	}
	payload, err := proto.Marshal(seq)
	if err != nil {
		t.Fatal(err)
	}
	read, err := events.Read(payload)
	if err != nil {
		t.Fatal(err)
	}
	return &sink.Message{Log: eventlog.Message{Position: late, Payload: payload}, Events: read}
}
