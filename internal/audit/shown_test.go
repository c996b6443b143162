package audit_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// TestShown runs testdata/shown: how records are shown to people and programs. It fails
// if a code is never shown.
func TestShown(t *testing.T) {
	shown := map[policy.Code]bool{}
	datadriven.Walk(t, "testdata/shown", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s := showing{t, d}
			switch d.Cmd {
			case "reason":
				// reason CODE [fields of decision]: the sentence that explains a
				// decision.
				r := s.decision()
				shown[r.Code] = true
				return audit.Reason(r) + "\n"
			case "describe":
				// describe KIND [fields]: the short description of a record.
				return audit.Describe(s.record()) + "\n"
			case "json":
				// json KIND [fields]: what -o json prints.
				r := s.record()
				if r, ok := r.(*chain.Decision); ok {
					return s.json(audit.DecisionOf(2, r))
				}
				other, ok := audit.OtherOf(2, r)
				if !ok {
					return "not printed\n"
				}
				return s.json(other)
			}
			d.Fatalf(t, "no verb is called %q", d.Cmd)
			return ""
		})
	})
	for c := policy.UnknownCode + 1; ; c++ {
		if _, ok := policy.ParseCode(c.String()); !ok {
			break
		}
		if !shown[c] {
			t.Errorf("no sentence of code %v is in testdata/shown", c)
		}
	}
}

type showing struct {
	t *testing.T
	d *datadriven.TestData
}

// failedAt is the time of every failure.
var failedAt = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

// record builds a decision, or a record of another kind with some fields set.
func (s showing) record() chain.Record {
	position := eventlog.Position{Ledger: 5, Entry: 10, Batch: -1}
	switch kind := s.d.CmdArgs[0].Key; kind {
	case "not-decided":
		return &chain.NotDecided{Position: position, Queue: "ml", JobSet: "set", JobID: "j", RunID: "r", Reason: chain.StaleRun, Time: failedAt.UnixNano()}
	case "parked":
		return &chain.Parked{Position: position, Reason: events.NoRun, Event: 2, Raw: []byte{0xff, 0}}
	case "ready":
		return &chain.RetryReady{Position: position, JobID: "j", RunID: "r", RetryAfter: failedAt.UnixNano()}
	case "policy":
		return &chain.PolicyActivated{Generation: 3}
	case "semantics":
		return &chain.SemanticsActivated{Version: 1}
	case "bound":
		return &chain.GroupBound{Position: position, Queue: "ml", JobSet: "set", Group: "train", JobID: "j", Policy: "p", MaxRestarts: 3, Shape: policy.Shape{Parts: []policy.ShapePart{
			{Name: "driver", Replicas: 1, Members: 1, MinMembers: 1}, {Name: "workers", Replicas: 2, Members: 4, MinMembers: 3, After: []uint32{0}, Parallelism: 2},
		}}}
	case "finding":
		return &chain.GroupFinding{Position: position, Queue: "ml", JobSet: "set", Group: "train", JobID: "j", Reason: policy.IndexTaken}
	case "held", "restart", "joined":
		change := map[string]chain.Change{"held": chain.MemberHeld, "restart": chain.MemberRestart, "joined": chain.MemberJoined}[kind]
		m := chain.Member{Group: "train", Part: "workers", Index: 3, Generation: 2}
		return &chain.MemberChange{Change: change, Position: position, Queue: "ml", JobSet: "set", JobID: "j", RunID: "r", Member: m, RetryAfter: failedAt.UnixNano()}
	case "unit-ended":
		v := chain.GroupVerdict{Reason: policy.MemberCancelled, Action: policy.Leave, Rule: "lost", MaxRestarts: 3}
		return &chain.UnitEnded{Position: position, Queue: "ml", JobSet: "set", Member: chain.Member{Group: "train", Part: "workers", Replica: 1}, Verdict: v}
	case "group-ended":
		return &chain.GroupEnded{Position: position, Queue: "ml", JobSet: "set", Group: "train", State: policy.GroupFailed, Reason: policy.ReachedMaxRestarts, Rule: "all"}
	case "claim":
		return &chain.OwnerClaim{Epoch: 2}
	}
	return s.decision()
}

// decision parses CODE [requeue] [policy=] [rule=] [used=N/N] [from=rule|policy|global]
// [global=N/N] [delay=D] [after=D] [avoid=A,B] [skipped=A,B] [container=] [matcher=]
// [shadow] [member] [group | verdict=(…) [refused] [keep] [noted]]. after is retryAfter relative to the failure; by default the delay.
func (s showing) decision() *chain.Decision {
	code, ok := policy.ParseCode(s.d.CmdArgs[0].Key)
	if !ok {
		s.d.Fatalf(s.t, "no code is called %q", s.d.CmdArgs[0].Key)
	}
	d := &chain.Decision{
		Number: 7, Position: eventlog.Position{Ledger: 5, Entry: 10, Batch: 0}, Queue: "ml", JobSet: "set", JobID: "j", RunID: "r", RunIndex: 1,
		Time: failedAt.UnixNano(), Code: code, Generation: 3, PolicySet: [32]byte{0xab},
	}
	delay, after := time.Duration(0), time.Duration(-1)
	for _, arg := range s.d.CmdArgs[1:] {
		value := strings.Join(arg.Vals, ",") // datadriven splits (a,b)
		switch arg.Key {
		case "requeue":
			d.Requeue = true
			d.PodName = "armada-j-0-2"
		case "policy":
			d.Policy = value
		case "rule":
			d.Rule = value
		case "used":
			d.RuleUsed, d.RuleLimit = s.fraction(value)
		case "from":
			if d.LimitFrom, ok = policy.ParseLimitFrom(value); !ok {
				s.d.Fatalf(s.t, "no level is called %q", value)
			}
		case "global":
			d.GlobalUsed, d.GlobalLimit = s.fraction(value)
		case "delay":
			delay = s.duration(value)
		case "after":
			after = s.duration(value)
		case "avoid":
			d.AvoidNodes = arg.Vals
		case "skipped":
			d.Skipped = arg.Vals
		case "container":
			d.Container = value
		case "matcher":
			if d.Matcher, ok = policy.ParseMatcher(value); !ok {
				s.d.Fatalf(s.t, "no matcher is called %q", value)
			}
		case "shadow":
			d.Shadow = true
		case "member":
			d.Member = &chain.Member{Group: "train", Part: "workers", Index: 3, Generation: 2}
		case "group":
			d.Group = &chain.GroupVerdict{Reason: policy.BackoffLimitExceeded, Action: policy.RestartGroup, Rule: "host-maintenance", RestartsUsed: 1, MaxRestarts: 3}
		case "verdict": // (REASON,ACTION,RULE,USED,MAX)
			v := &chain.GroupVerdict{Rule: arg.Vals[2]}
			v.Reason, _ = policy.ParseUnitReason(arg.Vals[0])
			v.Action, _ = policy.ParseGroupAction(arg.Vals[1])
			v.RestartsUsed, v.MaxRestarts = s.fraction(arg.Vals[3])
			d.Group = v
		case "budget": // (NAME,EFFECT,FIRSTS,LEFT,AT), AT after the failure
			u := &policy.BudgetUse{Budget: arg.Vals[0]}
			u.Effect = policy.BudgetGranted
			for u.Effect.String() != arg.Vals[1] {
				u.Effect++
			}
			firsts, _ := strconv.Atoi(arg.Vals[2])
			left, _ := strconv.Atoi(arg.Vals[3])
			u.Firsts, u.Left, u.At = uint32(firsts), uint32(left), failedAt.UnixNano()+int64(s.duration(arg.Vals[4]))
			d.Budget = u
		case "budget-in-shadow":
			d.Budget.Noted = true
		case "refused":
			d.Group.Refused = true
		case "keep":
			d.Group.Keep = true
		case "noted":
			d.Group.Noted = true
		default:
			s.d.Fatalf(s.t, "a decision has no %q", arg.Key)
		}
	}
	if d.Requeue {
		if after < 0 {
			after = delay
		}
		d.DelayMS, d.RetryAfter = delay.Milliseconds(), d.Time+after.Nanoseconds()
		d.ReadyAfter = d.RetryAfter
	}
	return d
}

func (s showing) fraction(text string) (of, limit uint32) {
	a, b, _ := strings.Cut(text, "/")
	for i, v := range []string{a, b} {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			s.d.Fatalf(s.t, "%v", err)
		}
		*[]*uint32{&of, &limit}[i] = uint32(n)
	}
	return of, limit
}

func (s showing) duration(text string) time.Duration {
	v, err := time.ParseDuration(text)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return v
}

func (s showing) json(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return fmt.Sprintf("%s\n", b)
}
