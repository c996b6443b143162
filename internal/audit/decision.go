package audit

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
)

// Decision is a decision as `-o json` prints it. Its fields keep their meaning; new
// ones may be added.
type Decision struct {
	Number          uint64   `json:"number"` // dense per partition, from 1
	Partition       int      `json:"partition"`
	Position        Position `json:"position"`
	Queue           string   `json:"queue"`
	JobSet          string   `json:"jobSet"`
	JobID           string   `json:"jobId"`
	RunID           string   `json:"runId"`
	RunIndex        uint32   `json:"runIndex"` // of the failed run
	Decision        string   `json:"decision"` // JobRequeued or JobFailed
	Code            string   `json:"code"`
	Policy          string   `json:"policy"`
	Rule            string   `json:"rule"`
	Reason          string   `json:"reason"`
	EventTime       string   `json:"eventTime"`
	Delay           string   `json:"delay,omitempty"`      // always on JobRequeued, and only there
	RetryAfter      string   `json:"retryAfter,omitempty"` // as Delay
	AvoidNodes      []string `json:"avoidNodes"`
	NodesLeftOut    uint32   `json:"nodesLeftOut,omitempty"` // nodes to avoid that avoidNodes does not name
	PodName         string   `json:"podName,omitempty"`      // the next run's, on JobRequeued
	RuleUsed        *uint32  `json:"ruleUsed,omitempty"`
	RuleLimit       *uint32  `json:"ruleLimit,omitempty"`
	LimitFrom       string   `json:"limitFrom,omitempty"`
	GlobalUsed      uint32   `json:"globalUsed"`
	GlobalLimit     uint32   `json:"globalLimit"`
	Container       string   `json:"container,omitempty"`
	Matcher         string   `json:"matcher,omitempty"`
	SkippedPolicies []string `json:"skippedPolicies"`
	Shadow          bool     `json:"shadow"`
	Generation      uint64   `json:"generation"` // of the policies; of a member's unit, after the decision
	PolicySet       string   `json:"policySet"`
	GroupFields
	// Budget is what retry budgets said; nil: they were not asked.
	Budget *BudgetUse `json:"budget,omitempty"`
	// Superseded: its message had been released before the decision came, so it has no
	// effect. Set only by job databases.
	Superseded bool `json:"superseded,omitempty"`
}

// BudgetUse is what the budget that held a retry back the most said about it.
type BudgetUse struct {
	Name      string `json:"name"`
	Effect    string `json:"effect"`           // BudgetGranted, BudgetDelayed or BudgetExhausted
	Shadow    bool   `json:"shadow,omitempty"` // nothing is held back
	FirstRuns uint32 `json:"firstRuns"`        // in its window
	Left      uint32 `json:"left"`             // retries that it would grant at once, before this one
	GrantedAt string `json:"grantedAt"`        // for which it grants this one; of a refused one, the next
}

func budgetUseOf(u *policy.BudgetUse) *BudgetUse {
	if u == nil {
		return nil
	}
	return &BudgetUse{Name: u.Budget, Effect: u.Effect.String(), Shadow: u.Noted, FirstRuns: u.Firsts, Left: u.Left, GrantedAt: timeOf(u.At)}
}

// String says it in words.
func (u *BudgetUse) String() string {
	s := fmt.Sprintf("%s %s: %d left before, for %s in its window", u.Effect, u.Name, u.Left, plural.Of(int(u.FirstRuns), "first run"))
	switch u.Effect {
	case policy.BudgetDelayed.String():
		s += "; granted at " + u.GrantedAt
	case policy.BudgetExhausted.String():
		s += "; it would grant the next one at " + u.GrantedAt
	}
	if u.Shadow {
		s += " (in shadow: nothing is held back)"
	}
	return s
}

// Position is a log position as JSON prints it.
type Position struct {
	Ledger int64 `json:"ledger"`
	Entry  int64 `json:"entry"`
	Batch  int32 `json:"batch"`
}

func positionOf(p eventlog.Position) Position {
	return Position{Ledger: p.Ledger, Entry: p.Entry, Batch: p.Batch}
}

// Other is a record other than a decision, as `--all` prints it.
type Other struct {
	Record       string   `json:"record"` // NotDecided, Parked, RetryReady, OrderAnswered, or that of a group
	Partition    int      `json:"partition"`
	Position     Position `json:"position"`
	Reason       string   `json:"reason,omitempty"`
	Queue        string   `json:"queue,omitempty"`
	JobSet       string   `json:"jobSet,omitempty"`
	JobID        string   `json:"jobId,omitempty"`
	RunID        string   `json:"runId,omitempty"`
	Group        string   `json:"group,omitempty"`
	Part         string   `json:"part,omitempty"`
	Replica      *uint32  `json:"replica,omitempty"`
	Index        *uint32  `json:"index,omitempty"`
	Generation   *uint32  `json:"generation,omitempty"` // of the unit, after the record
	State        string   `json:"state,omitempty"`      // of UnitEnded and GroupEnded
	Action       string   `json:"action,omitempty"`     // of UnitEnded, and of OrderAnswered: Retry, GiveUp or Start
	Rule         string   `json:"rule,omitempty"`
	RestartsUsed *uint32  `json:"restartsUsed,omitempty"`
	MaxRestarts  *uint32  `json:"maxRestarts,omitempty"`
	Policy       string   `json:"policy,omitempty"` // of GroupBound, as the next two
	Digest       string   `json:"digest,omitempty"`
	Parts        []Part   `json:"parts,omitempty"`
	Success      *Success `json:"success,omitempty"`
	EventTime    string   `json:"eventTime,omitempty"`
	RetryAfter   string   `json:"retryAfter,omitempty"`
	Order        string   `json:"order,omitempty"`   // id of an order, as the next two
	Author       string   `json:"author,omitempty"`  // who gave it; Reason is why
	Refusal      string   `json:"refusal,omitempty"` // why it is not carried out
	Event        uint32   `json:"event,omitempty"`   // index in the message, from 1
	Raw          []byte   `json:"raw,omitempty"`     // base64
	SHA256       string   `json:"sha256,omitempty"`  // if the bytes are not kept
	Length       uint64   `json:"length,omitempty"`
	Superseded   bool     `json:"superseded,omitempty"`
}

// Requeues reports whether the decision is a retry.
func (d *Decision) Requeues() bool { return d.Decision == chain.JobRequeued }

// DecisionOf converts a decision for JSON output.
func DecisionOf(partition int, d *chain.Decision) Decision {
	out := Decision{
		Number: d.Number, Partition: partition, Position: positionOf(d.Position),
		Queue: d.Queue, JobSet: d.JobSet, JobID: d.JobID, RunID: d.RunID, RunIndex: d.RunIndex,
		Decision: d.Kind(), Code: d.Code.String(), Policy: d.Policy, Rule: d.Rule, Reason: Reason(d),
		EventTime: timeOf(d.Time), AvoidNodes: orEmpty(d.AvoidNodes), NodesLeftOut: d.NodesLeftOut,
		GlobalUsed: d.GlobalUsed, GlobalLimit: d.GlobalLimit, Container: d.Container,
		SkippedPolicies: orEmpty(d.Skipped), Shadow: d.Shadow,
		Generation: d.Generation, PolicySet: hex.EncodeToString(d.PolicySet[:]),
		GroupFields: groupFields(d), Budget: budgetUseOf(d.Budget),
	}
	if d.Member != nil {
		out.Generation = uint64(d.Member.Generation)
	}
	if d.Matcher != policy.NoMatcher {
		out.Matcher = d.Matcher.String()
	}
	if d.LimitFrom != policy.FromNowhere {
		out.RuleUsed, out.RuleLimit, out.LimitFrom = &d.RuleUsed, &d.RuleLimit, d.LimitFrom.String()
	}
	if d.Requeue {
		out.Delay, out.RetryAfter = delayOf(d).String(), timeOf(d.RetryAfter)
		out.PodName = d.PodName
	}
	return out
}

// OtherOf converts a record other than a decision for JSON output.
func OtherOf(partition int, r chain.Record) (Other, bool) {
	switch r := r.(type) {
	case *chain.NotDecided:
		return Other{
			Record: "NotDecided", Partition: partition, Position: positionOf(r.Position), Reason: r.Reason.String(),
			Queue: r.Queue, JobSet: r.JobSet, JobID: r.JobID, RunID: r.RunID, EventTime: timeOf(r.Time),
		}, true
	case *chain.Parked:
		out := Other{
			Record: "Parked", Partition: partition, Position: positionOf(r.Position), Reason: r.Reason.String(), Event: r.Event, Raw: r.Raw, Length: r.Length,
		}
		if r.Length > 0 {
			out.SHA256 = r.Digest.String()
		}
		return out, true
	case *chain.RetryReady:
		return Other{
			Record: "RetryReady", Partition: partition, Position: positionOf(r.Position),
			JobID: r.JobID, RunID: r.RunID, RetryAfter: timeOf(r.RetryAfter),
		}, true
	case *chain.OrderAnswered:
		return orderOther(partition, r), true
	}
	return groupOther(partition, r)
}

func delayOf(d *chain.Decision) time.Duration { return time.Duration(d.DelayMS) * time.Millisecond }

func timeOf(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// Shown converts any record for JSON output; nil for nil.
func Shown(partition int, r chain.Record) any {
	if d, ok := r.(*chain.Decision); ok && d != nil {
		return DecisionOf(partition, d)
	}
	if r == nil {
		return nil
	}
	if o, ok := OtherOf(partition, r); ok {
		return o
	}
	return Describe(r)
}
