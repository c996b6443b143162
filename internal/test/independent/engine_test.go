package independent

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	refloat "github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/projection"
)

// engine is what is compared with the model.
type engine struct {
	p *evaluator.Processor
	n int64 // messages
}

func newEngine(partitions int) (*engine, error) {
	state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, evaluator.DefaultHorizon)
	if err != nil {
		return nil, err
	}
	e := &engine{p: &evaluator.Processor{State: state}}
	e.p.Activate([]chain.Record{&chain.OwnerClaim{Partitions: uint32(partitions)}, &chain.SemanticsActivated{Version: evaluator.SemanticsVersion}})
	return e, nil
}

func (e *engine) process(msg message) ([]record, error) {
	if msg.Config != nil {
		set, err := policyfile.Parse([]policyfile.File{{Name: "policies.yaml", Data: []byte(msg.Config.yaml())}})
		if err != nil {
			return nil, fmt.Errorf("policies: %w\n%s", err, msg.Config.yaml())
		}
		e.p.Rules = evaluator.Rules{Generation: e.p.Rules.Generation + 1, Set: set.Set}
		e.p.Activate([]chain.Record{evaluator.Activation(e.p.Rules.Generation, set.Set, e.p.Progress.Semantics)})
		return nil, nil
	}
	e.n++
	seq := &pb.EventSequence{Queue: msg.Queue, JobSetName: msg.Set}
	for _, ev := range msg.Events {
		seq.Events = append(seq.Events, ev.pb())
	}
	payload, err := proto.Marshal(seq)
	if err != nil {
		return nil, err
	}
	out, err := e.p.Step(&eventlog.Message{Position: eventlog.Position{Ledger: 1, Entry: e.n, Batch: -1}, Publish: msg.Publish, Payload: payload})
	if err != nil {
		return nil, err
	}
	var records []record
	for _, r := range out.Records {
		records = append(records, of(r))
	}
	return records, nil
}

// of is a record of the chain in the words of the model.
func of(r chain.Record) record {
	switch r := r.(type) {
	case *chain.NotDecided:
		return record{Kind: "NotDecided", Job: r.JobID, Run: r.RunID, Code: r.Reason.String()}
	case *chain.RetryReady:
		return record{Kind: "RetryReady", Job: r.JobID, Run: r.RunID, RetryAfter: r.RetryAfter}
	case *chain.OrderAnswered:
		out := record{Kind: "OrderAnswered", Job: r.JobID, Run: r.RunID, Code: r.Refusal.String(), T: r.Time, Order: r.OrderID, Action: actionName(uint32(r.Action))}
		if r.Refusal == refloat.NotRefused {
			out.Code = ""
		}
		if r.Refusal == refloat.NotRefused && r.Action != refloat.OrderGiveUp {
			out.RetryGranted, out.RetryAfter, out.Ready, out.Avoid = true, r.RetryAfter, r.ReadyAfter, strings.Join(r.AvoidNodes, ",")
		}
		return out
	case *chain.Decision:
		out := record{
			Kind: "Failed", Job: r.JobID, Run: r.RunID, Code: r.Code.String(), Policy: r.Policy, Rule: r.Rule, T: r.Time,
			RuleUsed: -1, RuleLimit: -1, GlobalUsed: int64(r.GlobalUsed), GlobalLimit: int64(r.GlobalLimit), Shadow: r.Shadow,
		}
		if r.LimitFrom != refloat.FromNowhere {
			out.RuleUsed, out.RuleLimit = int64(r.RuleUsed), int64(r.RuleLimit)
		}
		if r.Requeue {
			out.Kind = "Requeued"
			out.RetryAfter, out.Ready, out.Delay, out.Avoid = r.RetryAfter, r.ReadyAfter, r.DelayMS*ms, strings.Join(r.AvoidNodes, ",")
		}
		if u := r.Budget; u != nil {
			out.Budget, out.Effect, out.BudgetShadow = u.Budget, u.Effect.String(), u.Noted
			out.FirstRuns, out.Left, out.Granted = int64(u.Firsts), int64(u.Left), u.At
		}
		return out
	}
	return record{Kind: fmt.Sprintf("%T", r)}
}

var actions = map[string]uint32{"Retry": 1, "GiveUp": 2, "Start": 3, "Other": 77, "None": 0}

func actionName(n uint32) string {
	for name, number := range actions {
		if number == n {
			return name
		}
	}
	return fmt.Sprint(n)
}

func (ev event) pb() *pb.Event {
	out := &pb.Event{Created: &pb.Timestamp{Seconds: ev.T / second, Nanos: int32(ev.T % second)}}
	switch ev.Kind {
	case "SubmitJob":
		spec := &pb.PodSpec{TerminationGracePeriodSeconds: ev.Grace}
		s := &pb.SubmitJob{JobId: ev.Job, ObjectMeta: &pb.ObjectMeta{}, MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: spec}}}
		if ev.FailFast {
			s.ObjectMeta.Annotations = map[string]string{"armadaproject.io/failFast": "true"}
		}
		out.Event = &pb.Event_SubmitJob{SubmitJob: s}
	case "JobRunLeased":
		out.Event = &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: ev.Job, RunId: ev.Run, NodeId: ev.Node}}
	case "JobRunRunning":
		r := &pb.JobRunRunning{JobId: ev.Job, RunId: ev.Run}
		if ev.Node != "" {
			r.ResourceInfos = []*pb.KubernetesResourceInfo{{Info: &pb.KubernetesResourceInfo_PodInfo{PodInfo: &pb.PodInfo{NodeName: ev.Node}}}}
		}
		out.Event = &pb.Event_JobRunRunning{JobRunRunning: r}
	case "JobRunSucceeded":
		out.Event = &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: ev.Job, RunId: ev.Run}}
	case "JobRunPreempted":
		out.Event = &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: ev.Job, PreemptedRunId: ev.Run}}
	case "JobRunErrors":
		out.Event = &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: ev.Job, RunId: ev.Run, Errors: ev.Error.pb()}}
	case "JobRunTerminated":
		out.Event = &pb.Event_JobRunTerminated{JobRunTerminated: &pb.JobRunTerminated{JobId: ev.Job, RunId: ev.Run}}
	case "JobErrors":
		out.Event = &pb.Event_JobErrors{JobErrors: &pb.JobErrors{JobId: ev.Job, Errors: ev.Error.pb()}}
	case "JobSucceeded":
		out.Event = &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: ev.Job}}
	case "CancelJob":
		out.Event = &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: ev.Job}}
	case "CancelJobSet":
		out.Event = &pb.Event_CancelJobSet{CancelJobSet: &pb.CancelJobSet{}}
	case "CancelledJob":
		out.Event = &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: ev.Job}}
	case "JobOrder":
		out.Event = &pb.Event_JobOrder{JobOrder: &pb.JobOrder{
			JobId: ev.Job, RunId: ev.Run, OrderId: ev.Order.ID, Action: actions[ev.Order.Action], Author: "ann", Reason: "a reason", NotBefore: ev.Order.NotBefore,
		}}
	default:
		panic(ev.Kind)
	}
	return out
}

func (f failed) pb() []*pb.Error {
	e := &pb.Error{Terminal: !f.NotTerminal, FailureCategory: f.Category, FailureSubcategory: f.Subcategory}
	switch f.Kind {
	case "pod":
		e.Reason = podError(f.Exit)
	case "returned", "unattempted":
		e.Reason = &pb.Error_PodLeaseReturned{PodLeaseReturned: &pb.PodLeaseReturned{RunAttempted: f.Kind == "returned"}}
	case "expired":
		e.Reason = &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}
	case "preempted":
		e.Reason = &pb.Error_JobRunPreemptedError{JobRunPreemptedError: &pb.JobRunPreemptedError{}}
	case "rejected":
		e.Reason = &pb.Error_JobRejected{JobRejected: &pb.JobRejected{}}
	default:
		e.Reason = &pb.Error_MaxRunsExceeded{MaxRunsExceeded: &pb.MaxRunsExceeded{}}
	}
	errors := []*pb.Error{e}
	if f.Second {
		errors = append(errors, &pb.Error{Terminal: true, FailureCategory: "second", Reason: podError(1)})
	}
	return errors
}

func podError(exit int64) *pb.Error_PodError {
	p := &pb.PodError{}
	if exit != 0 {
		p.ContainerErrors = []*pb.ContainerError{{ObjectMeta: &pb.ObjectMeta{Name: "main"}, ExitCode: int32(exit)}}
	}
	return &pb.Error_PodError{PodError: p}
}

// yaml is the configuration as people write it.
func (c *config) yaml() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	at := func(t int64) string { return time.Unix(0, t).UTC().Format(time.RFC3339Nano) }
	mode := func(shadow bool) string {
		if shadow {
			return "Shadow"
		}
		return "Enforce"
	}
	line("kind: RetrySettings\nspec:\n  enabled: %v\n  globalMaxRetries: %d\n  legacyMaxAttempts: %d\n  terminationSlack: %s\n  horizon: %s\n  mode: %s",
		!c.Disabled, c.GlobalMax, c.LegacyMax, time.Duration(c.Slack), time.Duration(c.Horizon), mode(c.Shadow))
	if c.PausedUntil != 0 {
		line("  pausedUntil: %s", at(c.PausedUntil))
	}
	for i, k := range c.Breakers {
		if i == 0 {
			line("  openBreakers:")
		}
		line("  - {category: %s, until: %s}", k.Category, at(k.Until)+optional("subcategory", k.Subcategory)+optional("queue", k.Queue))
	}
	for i, n := range c.Avoid {
		if i == 0 {
			line("  avoidNodes:")
		}
		line("  - {name: %s, until: %s}", n.Name, at(n.Until))
	}
	for _, q := range c.Queues {
		line("---\nkind: Queue\nname: %s\nretryPolicies: [%s]\nkilled: %v", q.Name, strings.Join(q.Policies, ", "), q.Killed)
		if q.Mode != "" {
			line("mode: %s", q.Mode)
		}
		if q.PausedUntil != 0 {
			line("pausedUntil: %s", at(q.PausedUntil))
		}
	}
	for _, k := range c.Budgets {
		when := "Delay"
		if k.Refuse {
			when = "Refuse"
		}
		line("---\napiVersion: refloat.github.io/v1\nkind: RetryBudget\nmetadata: {name: %s}\nspec: {ratio: %s, floor: %d, window: %s, whenExhausted: %s, mode: %s%s}",
			k.Name, thousandths(k.Ratio), k.Floor, time.Duration(k.Window), when, mode(k.Shadow), optional("queue", k.Queue))
	}
	for _, p := range c.Policies {
		line("---\napiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: %s}\nspec:", p.Name)
		if p.Limit >= 0 {
			line("  retryLimit: %d", p.Limit)
		}
		if p.Default != "" {
			line("  defaultAction: %s", p.Default)
		}
		line("  backoff: {initialDelay: %s, maxDelay: %s, multiplier: %s, jitter: %s}", time.Duration(p.Initial), time.Duration(p.Max), thousandths(p.Mult), thousandths(p.Jitter))
		if p.Node {
			line("  antiAffinity: {mode: node}")
		}
		if p.Wait {
			line("  replacement: WhenTerminated")
		}
		if len(p.Rules) == 0 {
			line("  rules: []")
			continue
		}
		line("  rules:")
		for _, r := range p.Rules {
			line("  - name: %s\n    action: %s", r.Name, r.Action)
			if len(r.Categories) > 0 {
				line("    onFailureCategory: [%s]", strings.Join(r.Categories, ", "))
			}
			if len(r.Conditions) > 0 {
				line("    onConditions: [%s]", strings.Join(r.Conditions, ", "))
			}
			if r.Limit >= 0 && r.Action == "Retry" {
				line("    retryLimit: %d", r.Limit)
			}
		}
	}
	return b.String()
}

func optional(key, value string) string {
	if value == "" {
		return ""
	}
	return fmt.Sprintf(", %s: %s", key, value)
}

func thousandths(n int64) string { return big.NewRat(n, 1000).FloatString(3) }
