package whatif

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/policy"
)

// Verdict is what was decided on a failed run, or on the end of a unit, as far as
// anything acts on it.
type Verdict struct {
	Outcome    string   `json:"outcome"` // Retry, Fail, NotDecided; of a unit that ended by itself: what its group does
	Code       string   `json:"code"`    // or why it was not decided
	Policy     string   `json:"policy,omitempty"`
	Rule       string   `json:"rule,omitempty"`
	Delay      string   `json:"delay,omitempty"`
	AvoidNodes []string `json:"avoidNodes,omitempty"`
	Shadow     bool     `json:"shadow,omitempty"`
	Group      string   `json:"group,omitempty"` // what the group does
	retryAfter int64
	number     uint32 // of a retry, among those by its rule; 0: it has no limit to count for
	action     policy.GroupAction
}

// The outcomes of failed runs.
const (
	Retry      = "Retry"
	Fail       = "Fail"
	NotDecided = "NotDecided"
)

// acts returns what happens to the job: two histories part where it differs.
func (v *Verdict) acts() string {
	switch {
	case v.Shadow:
		return "nothing"
	case v.Outcome == NotDecided:
		return Fail
	}
	return v.Outcome + v.Group
}

// fails reports whether a verdict ends the job.
func (v *Verdict) fails() bool { return v.Outcome == Fail && !v.Shadow && !v.action.Restarts() }

// retryKind is the kind of the retry that a verdict grants.
func (v *Verdict) retryKind(cause string) retryKind {
	switch {
	case v.action != policy.NoGroupAction:
		return retryKind{rule: v.Group, cause: cause}
	case retried(v):
		return retryKind{policy: v.Policy, rule: v.Rule, number: v.number, cause: cause}
	}
	return retryKind{cause: cause}
}

// entry is a record as both sides are compared by it.
type entry struct {
	verdict    Verdict
	run        [2]string // job and run; of a unit: its name, and ""
	queue, set string
	group      string // "": no member of one
	time       int64
	place      int // among those of its message
	decided    bool
	grants     bool    // a retry that the side of the entry counts
	job        *job    // nil: a unit
	family     *family // nil: no member of a group
}

func (e *entry) jobID() string { return e.run[0] }

// isUnit reports whether the entry is the end of a unit.
func (e *entry) isUnit() bool { return e.run[1] == "" }

// familyKey identifies the first one of the groups that the entry's group follows.
func (e *entry) familyKey() group.Key {
	k := group.Key{Queue: e.queue, Set: e.set, Name: e.group}
	for first, _, follows := k.Follows(); follows; first, _, follows = k.Follows() {
		k = first
	}
	return k
}

// entryOf returns the entry of a record; false: it is not compared.
func entryOf(r chain.Record) (entry, bool) {
	switch r := r.(type) {
	case *chain.Decision:
		e := entry{
			verdict: Verdict{Outcome: Fail, Code: r.Code.String(), Policy: r.Policy, Rule: strings.Clone(r.Rule), Shadow: r.Shadow},
			run:     [2]string{r.JobID, r.RunID}, queue: r.Queue, set: r.JobSet, time: r.Time, decided: true,
		}
		if r.Requeue {
			e.verdict.Outcome, e.verdict.Delay = Retry, (time.Duration(r.DelayMS) * time.Millisecond).String()
			e.verdict.retryAfter, e.verdict.AvoidNodes, e.verdict.number = r.RetryAfter, slices.Clone(r.AvoidNodes), r.RuleUsed
		}
		if r.Member != nil {
			e.group = r.Member.Group
		}
		if v := r.Group; v != nil && !v.Noted {
			e.verdict.Group, e.verdict.action = groupVerdict(v), v.Action
		}
		return e, true
	case *chain.NotDecided:
		return entry{verdict: Verdict{Outcome: NotDecided, Code: r.Reason.String()}, run: [2]string{r.JobID, r.RunID}, queue: r.Queue, set: r.JobSet, time: r.Time}, true
	case *chain.UnitEnded:
		unit := fmt.Sprintf("%s/%s[%d]", r.Member.Group, r.Member.Part, r.Member.Replica)
		return entry{
			verdict: Verdict{Outcome: r.Verdict.Action.String(), Code: r.Verdict.Reason.String(), Rule: r.Verdict.Rule, Group: groupVerdict(&r.Verdict), action: r.Verdict.Action},
			run:     [2]string{unit, ""}, queue: r.Queue, set: r.JobSet, group: r.Member.Group, decided: true,
		}, true
	}
	return entry{}, false
}

func groupVerdict(v *chain.GroupVerdict) string {
	if v.Action == policy.NoGroupAction {
		return ""
	}
	return strings.TrimSuffix(v.Action.String()+" by "+v.Rule, " by ")
}

// same reports whether two verdicts are equal. Reasons why a run was not decided are
// not compared: nothing acts on them.
func same(a, b *Verdict) bool {
	if a.Outcome == NotDecided && b.Outcome == NotDecided {
		return true
	}
	return a.Outcome == b.Outcome && a.Code == b.Code && a.Policy == b.Policy && a.Rule == b.Rule && a.Delay == b.Delay &&
		a.retryAfter == b.retryAfter && a.Shadow == b.Shadow && a.Group == b.Group && slices.Equal(a.AvoidNodes, b.AvoidNodes)
}

// text names a verdict, with what distinguishes it from the other one.
func text(v, other *Verdict) string {
	s := strings.TrimSpace(v.Outcome + " " + v.Code)
	if name := strings.Trim(v.Policy+"/"+v.Rule, "/"); name != "" {
		s += " by " + name
	}
	switch {
	case v.Shadow != other.Shadow && v.Shadow:
		s += " in shadow"
	case v.Outcome != other.Outcome || v.Code != other.Code || v.Policy != other.Policy || v.Rule != other.Rule:
	case v.Group != other.Group:
		s += ", group: " + v.Group
	case v.Delay != other.Delay:
		s += " after " + v.Delay
	case v.retryAfter != other.retryAfter:
		s += " at another time"
	case !slices.Equal(v.AvoidNodes, other.AvoidNodes):
		s += " on other nodes"
	}
	return s
}

// String names a verdict.
func (v *Verdict) String() string { return text(v, &Verdict{Delay: v.Delay}) }
