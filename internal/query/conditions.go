package query

import (
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
)

// Condition says that something is so of a group or unit, as a condition of Kubernetes does.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"` // True: what is not so is left out
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func isTrue(typ, reason, message string) Condition {
	return Condition{Type: typ, Status: "True", Reason: reason, Message: message}
}

// conditionsOf returns what a JobSet would say of a group that has ended: Completed or Failed. A JobFlow halts.
func conditionsOf(g *Group, state policy.GroupState, reason policy.UnitReason) []Condition {
	switch state {
	case policy.GroupActive:
	case policy.GroupSucceeded:
		message := "all units have succeeded"
		if g.unsucceeded() {
			message = "the units that success names have succeeded"
		}
		return []Condition{isTrue("Completed", "AllJobsCompleted", message)}
	case policy.GroupFailed:
		return []Condition{isTrue("Failed", g.whyFailed(reason), g.whyEnded(reason))}
	case policy.GroupHalted:
		return []Condition{isTrue("Halted", g.Reason, g.whyEnded(reason)+"; no unit starts any more")}
	}
	return []Condition{}
}

// unsucceeded reports whether a unit that has members has not succeeded.
func (g *Group) unsucceeded() bool {
	return slices.ContainsFunc(g.Parts, func(p Part) bool {
		return slices.ContainsFunc(p.Units, func(u Unit) bool { return u.State != jobdb.UnitSucceeded.String() })
	})
}

// whyFailed returns the reason that a JobSet gives: its own, where a rule or the lack of one fails it.
func (g *Group) whyFailed(reason policy.UnitReason) string {
	switch {
	case reason == policy.ReachedMaxRestarts || reason == policy.Exhausted:
		return g.Reason
	case g.Rule != "":
		return "FailJobSetFailurePolicyAction"
	}
	return "FailedJobs"
}

func (g *Group) whyEnded(reason policy.UnitReason) string {
	why := g.failedUnits()
	switch {
	case reason == policy.ReachedMaxRestarts && g.MaxRestarts != nil && *g.MaxRestarts == 0:
		why = g.RestartsLimit()
	case reason == policy.ReachedMaxRestarts && g.MaxRestarts != nil:
		why = fmt.Sprintf("restarts are used up: %d of maxRestarts %d", g.RestartsCounted, *g.MaxRestarts)
	case reason == policy.Exhausted && why != "":
		why += ", and no other unit can start or run"
	case reason == policy.Exhausted:
		why = "no unit can start or run any more"
	}
	return why + ByRule(g.Rule)
}

// failedUnits says which units have failed: "" if none, as after a restart that was refused.
func (g *Group) failedUnits() string {
	first, more := "", 0
	for i := range g.Parts {
		for k := range g.Parts[i].Units {
			u := &g.Parts[i].Units[k]
			switch {
			case u.State != jobdb.UnitFailed.String():
			case first == "":
				first = fmt.Sprintf("unit %s/%d has failed (%s)", OneLine(g.Parts[i].Name), u.Replica, u.Reason)
			default:
				more++
			}
		}
	}
	if more > 0 {
		first += fmt.Sprintf(", and %s more", plural.Of(uint64(more), "unit"))
	}
	return first
}

// conditionsOfUnit returns what a Job would say of a unit that has succeeded or failed: SuccessCriteriaMet or FailureTarget, and
// when nothing of it runs any more, also Complete or Failed.
func conditionsOfUnit(u *Unit, shape *policy.ShapePart, state jobdb.UnitState, reason policy.UnitReason) []Condition {
	var first, last Condition
	switch state {
	case jobdb.UnitActive:
		return []Condition{}
	case jobdb.UnitSucceeded:
		reason, message := "CompletionsReached", "all of its members have succeeded"
		if shape != nil && u.Succeeded < int(shape.Members) {
			reason, message = "SuccessPolicy", fmt.Sprintf("%d of its %s have succeeded", u.Succeeded, plural.Of(uint64(shape.Members), "member"))
			if u.Succeeded >= int(shape.MinMembers) {
				message += fmt.Sprintf(", and minMembers is %d", shape.MinMembers)
			} else {
				message += ", as one of its successRules says: " + u.CompletedIndexes
			}
		}
		first, last = isTrue("SuccessCriteriaMet", reason, message), isTrue("Complete", reason, message)
	case jobdb.UnitFailed:
		message := u.whyFailed(reason)
		first, last = isTrue("FailureTarget", u.Reason, message), isTrue("Failed", u.Reason, message)
	}
	if u.Terminating > 0 {
		return []Condition{first}
	}
	return []Condition{first, last}
}

func (u *Unit) whyFailed(reason policy.UnitReason) string {
	switch reason {
	case policy.PodFailurePolicy:
		return "a member failed, and a rule of its retry policy says FailUnit"
	case policy.UnitDeadlineExceeded:
		return "a member failed because its deadline had passed"
	case policy.BackoffLimitExceeded:
		return fmt.Sprintf("a member failed and is not retried (%s of members of the unit so far)", plural.Of(uint64(u.RetriesUsed), "retry", "retries"))
	case policy.MaxFailedIndexesExceeded:
		return "more indexes have failed for good than maxFailedMembers allows: " + u.FailedIndexes
	case policy.FailedIndexes:
		return "indexes have failed for good: " + u.FailedIndexes
	case policy.MemberCancelled:
		return "a member was cancelled or rejected, and too few are left to succeed"
	case policy.NoUnitReason, policy.ReachedMaxRestarts, policy.Exhausted: // of no unit
	}
	return ""
}

// ByRule says in words which rule decided; "": none did.
func ByRule(rule string) string {
	if rule == "" {
		return ""
	}
	return ", by rule " + OneLine(rule)
}
