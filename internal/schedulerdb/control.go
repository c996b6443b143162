package schedulerdb

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb/pb"
)

// ControlOp is what one message of Armada's control-plane topic does to the tables.
type ControlOp interface{ controlOp() }

// SetExecutor replaces the settings of an executor.
type SetExecutor struct {
	Executor     string
	Cordoned     bool
	Reason, User string
	At           time.Time
}

// ForgetSettings deletes the settings of an executor.
type ForgetSettings struct{ Executor string }

// DeleteExecutor deletes an executor, which comes back if it still reports.
type DeleteExecutor struct{ Executor string }

// Sweep asks for many jobs to be cancelled, or their runs to be preempted. It
// concerns the jobs that are all of what it says, as they stand when it is applied.
type Sweep struct {
	Cancel   bool     // else preempt
	Executor string   // that has a run of theirs; empty: any
	Node     string   // of that executor; empty: any
	Queues   []string // of these; none: no job
	Pools    []string // in these; none: in any
	Classes  []string // of these priority classes; none: of any
	States   []JobState
	User     string // who asked; empty: not said
}

// JobState is how far a job that is not over has come.
type JobState int

// The states.
const (
	UnknownState JobState = iota
	JobQueued
	JobLeased  // and nothing was heard of the pod
	JobPending // its pod is there
	JobRunning // its pod runs
)

// active are the states in which a job has a run.
func active() []JobState { return []JobState{JobLeased, JobPending, JobRunning} }

func (*SetExecutor) controlOp()    {}
func (*ForgetSettings) controlOp() {}
func (*DeleteExecutor) controlOp() {}
func (*Sweep) controlOp()          {}

// String names the operation, for metrics and people.
func (s *Sweep) String() string {
	if s.Cancel {
		return "cancel on " + s.on()
	}
	return "preempt on " + s.on()
}

func (s *Sweep) on() string {
	switch {
	case s.Node != "":
		return "node"
	case s.Executor != "":
		return "executor"
	}
	return "queue"
}

// Unleased reports whether it can concern a job that has never been checked for where it
// fits, so that no executor and no pool is known of it.
func (s *Sweep) Unleased() bool {
	return s.Executor == "" && s.Node == "" && len(s.Pools) == 0 && slices.Contains(s.States, JobQueued)
}

// Reason is what Armada writes into the rows of jobs that are asked to be
// cancelled so. A preemption has none.
func (s *Sweep) Reason() string {
	if !s.Cancel {
		return ""
	}
	return map[string]string{
		"node": "cancelled by CancelOnNode", "executor": "cancelled by CancelOnExecutor", "queue": "cancelled by CancelOnQueue",
	}[s.on()]
}

// Control returns what a message of the control-plane topic does. What is in the
// way of it is the Finding, and there is no operation then.
func Control(m *eventlog.Message) (ControlOp, *Finding) {
	var ev pb.ControlEvent
	if err := proto.Unmarshal(m.Payload, &ev); err != nil {
		return nil, &Finding{Event: WholeMessage, Kind: Unreadable, Reason: err.Error()}
	}
	op, err := control(&ev, m.Publish)
	if err == nil {
		err = refusedControl(op)
	}
	if err != nil {
		f := finding(WholeMessage, err)
		return nil, &f
	}
	return op, nil
}

func control(ev *pb.ControlEvent, publish int64) (ControlOp, error) {
	switch e := ev.Event.(type) {
	case *pb.ControlEvent_ExecutorSettingsUpsert:
		m := e.ExecutorSettingsUpsert
		at := time.Unix(0, publish).UTC()
		if c := ev.GetCreated(); c != nil {
			at = time.Unix(c.GetSeconds(), int64(c.GetNanos())).UTC()
		}
		return &SetExecutor{Executor: m.GetName(), Cordoned: m.GetCordoned(), Reason: m.GetCordonReason(), User: m.GetSetByUser(), At: at}, nil
	case *pb.ControlEvent_ExecutorSettingsDelete:
		return &ForgetSettings{e.ExecutorSettingsDelete.GetName()}, nil
	case *pb.ControlEvent_ExecutorDelete:
		return &DeleteExecutor{e.ExecutorDelete.GetExecutorId()}, nil
	case *pb.ControlEvent_PreemptOnExecutor:
		return onExecutor(false, e.PreemptOnExecutor)
	case *pb.ControlEvent_CancelOnExecutor:
		return onExecutor(true, e.CancelOnExecutor)
	case *pb.ControlEvent_PreemptOnNode:
		return onNode(false, e.PreemptOnNode)
	case *pb.ControlEvent_CancelOnNode:
		return onNode(true, e.CancelOnNode)
	case *pb.ControlEvent_PreemptOnQueue:
		m := e.PreemptOnQueue
		return &Sweep{Queues: []string{m.GetName()}, Classes: m.GetPriorityClasses(), Pools: m.GetPools(), States: active(), User: m.GetRequestor()}, nil
	case *pb.ControlEvent_CancelOnQueue:
		m := e.CancelOnQueue
		s := &Sweep{Cancel: true, Queues: []string{m.GetName()}, Classes: m.GetPriorityClasses(), Pools: m.GetPools(), User: m.GetRequestor()}
		for _, state := range m.GetJobStates() {
			if state <= pb.ActiveJobState_ACTIVE_UNKNOWN || JobState(state) > JobRunning {
				return nil, refusedError(fmt.Sprintf("CancelOnQueue: job state %d is unknown", state))
			}
			if !slices.Contains(s.States, JobState(state)) {
				s.States = append(s.States, JobState(state))
			}
		}
		return s, nil
	}
	return nil, errors.New("it holds no event that is known")
}

// errNoName: without a name the rows of all executors would be meant, and Armada
// finds none.
var errNoName = errors.New("it names no executor or no node")

func onExecutor(cancel bool, m *pb.OnExecutor) (ControlOp, error) {
	if m.GetName() == "" {
		return nil, errNoName
	}
	return &Sweep{
		Cancel: cancel, Executor: m.GetName(), Queues: m.GetQueues(), Pools: m.GetPools(), Classes: m.GetPriorityClasses(), States: active(), User: m.GetRequestor(),
	}, nil
}

func onNode(cancel bool, m *pb.OnNode) (ControlOp, error) {
	if m.GetName() == "" || m.GetExecutor() == "" {
		return nil, errNoName
	}
	return &Sweep{
		Cancel: cancel, Executor: m.GetExecutor(), Node: m.GetName(), Queues: m.GetQueues(),
		Classes: m.GetPriorityClasses(), States: active(), User: m.GetRequestor(),
	}, nil
}

// refusedControl says why PostgreSQL would not take an operation, or nil.
func refusedControl(op ControlOp) error {
	var c check
	switch o := op.(type) {
	case *SetExecutor:
		c.indexed("executor_id", o.Executor)
		c.text("cordon_reason", o.Reason)
		c.text("set_by_user", o.User)
		c.time(o.At)
	case *ForgetSettings:
		c.text("executor_id", o.Executor)
	case *DeleteExecutor:
		c.text("executor_id", o.Executor)
	case *Sweep:
		c.text("executor", o.Executor)
		c.text("node", o.Node)
		c.user("requestor", o.User)
		for _, queue := range o.Queues {
			c.text("queue", queue)
		}
		for _, pool := range o.Pools {
			c.text("pool", pool)
		}
	}
	if c.err == "" {
		return nil
	}
	return refusedError(c.err)
}

// InClass says whether a job is of one of these priority classes, by its
// scheduling_info. One that cannot be read is of none. No class stands for all.
func (s *Sweep) InClass(info []byte) bool {
	if len(s.Classes) == 0 {
		return true
	}
	var m pb.JobSchedulingInfo
	return proto.Unmarshal(info, &m) == nil && slices.Contains(s.Classes, m.GetPriorityClassName())
}
