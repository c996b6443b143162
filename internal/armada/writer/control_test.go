package writer_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/armada/controlplane"
	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb/pb"
	"github.com/refloat/refloat/internal/test/standin"
)

// operator publishes a request to the control-plane topic, which is applied at once.
func (d *deployment) operator(text string) {
	d.t.Helper()
	m := &pb.ControlEvent{}
	d.must(prototext.Unmarshal([]byte(text), m))
	payload, err := proto.Marshal(m)
	d.must(err)
	if d.control == nil {
		d.control = d.open("control", 1)
	}
	d.must(d.control.AppendSync(d.t.Context(), 0, []eventlog.Message{{Payload: payload}}))
	f := controlplane.New(controlplane.Config{Topic: d.control, DB: d.db})
	defer f.Close()
	for progress := true; progress; {
		progress, err = f.Advance(d.t.Context())
		d.must(err)
	}
}

// TestOperator: an operator's request on the control-plane topic applies to jobs with a
// pending retry, to those that the scheduler is to forget first, and to running ones.
func TestOperator(t *testing.T) {
	t.Parallel()
	const (
		cancelQueued = `cancel_on_queue {name: "queue" priority_classes: ["armada-default", "armada-preemptible"] job_states: ACTIVE_QUEUED}`
		cancelOther  = `cancel_on_queue {name: "other" priority_classes: ["armada-default", "armada-preemptible"] job_states: ACTIVE_QUEUED}`
		preempt      = `preempt_on_queue {name: "queue" priority_classes: ["armada-default", "armada-preemptible"]}`
	)
	ok := standin.Succeed()
	for _, tt := range []struct {
		name  string
		job   standin.Job
		when  string
		ask   string
		state standin.State
		pods  int
	}{
		{"cancelled while it waits", standin.Job{Script: script(1, standin.Fail(2), ok)}, "SELECT count(*) FROM refloat_waits WHERE waiting", cancelQueued, standin.Cancelled, 1},
		{"cancelled while it is forgotten", standin.Job{Script: script(1, standin.Preempted(), ok)}, "SELECT count(*) FROM refloat_waits WHERE forgetting", cancelQueued, standin.Cancelled, 1},
		{"another queue is cancelled", standin.Job{Script: script(1, standin.Fail(2), ok)}, "SELECT count(*) FROM refloat_waits WHERE waiting", cancelOther, standin.Succeeded, 2},
		{"preempted while it waits", standin.Job{Preemptible: true, Script: script(1, standin.Fail(2), ok)}, "SELECT count(*) FROM refloat_waits WHERE waiting", preempt, standin.Succeeded, 2},
		{"preempted while it runs", standin.Job{Preemptible: true, Script: script(1, standin.Succeed(), ok)}, "SELECT count(*) FROM runs WHERE running AND NOT terminated", preempt, standin.Succeeded, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, standin.Config{}, writer.HoldBack, someRetries)
			id := d.Submit(tt.job)[0]
			d.until(tt.when, func() bool { return d.count(tt.when) > 0 })
			d.operator(tt.ask)
			if tt.state == standin.Cancelled {
				d.until("the job is cancelled", func() bool { return d.count("SELECT count(*) FROM jobs WHERE cancelled") > 0 })
				if n := d.count("SELECT count(*) FROM refloat_waits"); n != 0 {
					t.Errorf("the job is over and %d wait", n)
				}
			}
			d.right()
			if r := d.Job(id); r.State != tt.state || len(r.Pods) != tt.pods {
				t.Errorf("%v after %d pods, want %v after %d: %+v", r.State, len(r.Pods), tt.state, tt.pods, r)
			}
		})
	}
}

// TestOperatorCancelsHeld: a cancellation of what is queued in a queue reaches the members that
// are held before their first start and have no row yet.
func TestOperatorCancelsHeld(t *testing.T) {
	t.Parallel()
	d := deploy(t, standin.Config{}, writer.HoldBack, inGroups)
	ok := standin.Succeed()
	preemptible := inGroup("pipeline", "workers", 0, ok)
	preemptible.Preemptible = true
	ids := d.Submit(inGroup("pipeline", "driver", 0, ok.After(40*time.Second)), inGroup("pipeline", "workers", 0, ok), preemptible)
	d.until("the driver runs", func() bool { return d.count("SELECT count(*) FROM runs WHERE running") == 1 })
	for _, tt := range []struct {
		ask  string
		held int
	}{
		{`cancel_on_queue {name: "other" job_states: ACTIVE_QUEUED}`, 2},
		{`cancel_on_queue {name: "queue" job_states: ACTIVE_RUNNING priority_classes: "armada-preemptible"}`, 2},
		{`cancel_on_queue {name: "queue" job_states: ACTIVE_QUEUED pools: "default"}`, 2}, // which is not known yet
		{`preempt_on_queue {name: "queue"}`, 2},
		{`cancel_on_queue {name: "queue" job_states: ACTIVE_QUEUED priority_classes: "armada-preemptible"}`, 1},
		{`cancel_on_queue {name: "queue" job_states: ACTIVE_QUEUED}`, 0},
	} {
		d.operator(tt.ask)
		if n := d.count("SELECT count(*) FROM refloat_held"); n != tt.held {
			t.Errorf("%s: %d members are held, want %d", tt.ask, n, tt.held)
		}
	}
	d.right()
	for i, want := range []standin.State{standin.Succeeded, standin.Cancelled, standin.Cancelled} {
		if r := d.Job(ids[i]); r.State != want || (want == standin.Cancelled) != (len(r.Pods) == 0) {
			t.Errorf("job %d is %v after %d pods, want %v", i, r.State, len(r.Pods), want)
		}
	}
}
