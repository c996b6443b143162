package audit

import (
	"fmt"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
)

// Reason explains a decision in one sentence. It is rendered from the record, never
// stored (semantics.md 11).
func Reason(d *chain.Decision) string {
	s := verdict(d)
	if d.Group != nil {
		s += "; " + GroupSentence(d.Group, whyNotRestarted(d))
	}
	if d.Requeue {
		s += waiting(d)
	}
	if u := d.Budget; u != nil && u.Noted && u.Effect != policy.BudgetGranted {
		s += "; " + notedBudget(u)
	}
	if len(d.Skipped) > 0 {
		s += fmt.Sprintf("; policies skipped: %s", strings.Join(d.Skipped, ", "))
	}
	if d.Shadow {
		s += "; shadow: this decision has no effect"
	}
	return s
}

func verdict(d *chain.Decision) string {
	rule := ruleOf(d)
	switch d.Code {
	case policy.GangRetry:
		s := rule + " retries the job, and with it the whole gang"
		if d.LimitFrom == policy.FromNowhere {
			return s + ", without counting"
		}
		return fmt.Sprintf("%s: %d of %d (%s limit), %d of %d in total", s, d.RuleUsed, d.RuleLimit, d.LimitFrom, d.GlobalUsed, d.GlobalLimit)
	case policy.GroupRestart:
		if d.Group == nil {
			return "the run was told to stop, because its group or unit restarts" + restartBy(d)
		}
		if d.Policy == "" {
			return "no rule matched, and no policy has a default action: the job fails"
		}
		if d.Budget != nil { // it refused the retry, which failed the unit
			return rule + " would retry the job, but " + usedUp(d.Budget)
		}
		return rule + " fails the job"
	case policy.GroupOver:
		return "the group had stopped the job, so its policies were not asked"
	case policy.BreakerHeld:
		return rule + " would retry the job now, but a breaker is open for the category of the failure: the retry is held, and counts against no limit"
	case policy.BudgetRefused:
		return rule + " would retry the job, but " + usedUp(d.Budget)
	case policy.UnitLimit:
		return rule + " would retry the job, but its unit has used up its retries (retryLimit)"
	case policy.RuleRetry, policy.DefaultRetry:
		return fmt.Sprintf("%s retries the job: %d of %d (%s limit), %d of %d in total", rule, d.RuleUsed, d.RuleLimit, d.LimitFrom, d.GlobalUsed, d.GlobalLimit)
	case policy.RuleIgnore:
		return rule + " retries the job without counting"
	case policy.RuleFail:
		return rule + " fails the job"
	case policy.DefaultFail:
		if d.Policy == "" {
			return "no rule matched, and no policy has a default action: the job fails"
		}
		return "no rule matched; " + rule + " fails the job"
	case policy.RuleLimit, policy.PolicyLimit:
		return fmt.Sprintf("%s has used up its retries: %d of %d (%s limit)", rule, d.RuleUsed, d.RuleLimit, d.LimitFrom)
	case policy.GlobalLimit:
		return fmt.Sprintf("%s would retry the job, but it has used up all its retries: %d of %d", rule, d.GlobalUsed, d.GlobalLimit)
	case policy.KillSwitch:
		return rule + " would retry the job, but retries are switched off"
	case policy.FailFast:
		return "the job asks to fail at its first failure (annotation armadaproject.io/failFast)"
	case policy.NoPolicy:
		return "no policy applies, and Armada itself requeues only returned leases"
	case policy.LegacyReturn:
		return "the lease was returned and no rule matches: requeued as Armada would do"
	case policy.LegacyLimit:
		return "the lease was returned too often and no rule matches: failed as Armada would do"
	case policy.GangFail:
		switch {
		case d.Policy != "":
			return rule + " would retry the job, but its gang cannot be retried as a whole, because a member was cancelled"
		case d.Member != nil:
			return "the job belongs to a gang, and no rule matches: Armada itself requeues a returned lease of a job, but not of a gang"
		}
		return "the job belongs to a gang and is in no group, so that the gang cannot be retried as a whole: a GroupFinding says why, or it was submitted before version 3 of the semantics"
	case policy.UnknownCode:
	}
	return d.Code.String()
}

// restartBy names what restarted a member: a group policy, or the policy of the job whose
// failure restarted the gang.
func restartBy(d *chain.Decision) string {
	switch {
	case d.Policy == "":
		return ""
	case d.Rule == "":
		return " (the default of policy " + d.Policy + ")"
	case d.Rule == policy.RestartsRule:
		return " (`restarts` of policy " + d.Policy + ")"
	}
	return " (" + ruleOf(d) + ")"
}

func ruleOf(d *chain.Decision) string {
	switch {
	case d.Policy == "":
		return "no rule"
	case d.Rule == "default":
		return "the default action of policy " + d.Policy
	}
	return fmt.Sprintf("rule %s of policy %s", d.Rule, d.Policy)
}

func waiting(d *chain.Decision) string {
	s := ", at once"
	switch {
	case d.Code == policy.GroupRestart && d.Group == nil && d.RetryAfter > d.Time: // its delay is what is left of the restart's, in milliseconds
		s = fmt.Sprintf(", not before %s (%v after the failure)", timeOf(d.RetryAfter), time.Duration(d.RetryAfter-d.Time).Truncate(time.Millisecond))
	case d.Budget != nil && d.Budget.Effect == policy.BudgetDelayed && !d.Budget.Noted && d.RetryAfter == d.Budget.At:
		s = fmt.Sprintf(", not before %s, because %s (otherwise %v after the failure)", timeOf(d.RetryAfter), usedUp(d.Budget), delayOf(d))
	case d.Code == policy.BreakerHeld && d.RetryAfter-d.Time > delayOf(d).Nanoseconds():
		s = fmt.Sprintf(", not before %s, when no breaker holds it any more (otherwise %v after the failure)", timeOf(d.RetryAfter), delayOf(d))
	case d.Code == policy.GangRetry && d.RetryAfter-d.Time > delayOf(d).Nanoseconds(): // a pause is not told apart
		s = fmt.Sprintf(", not before %s, when all of the gang may start again (%v after the failure for this job)", timeOf(d.RetryAfter), delayOf(d))
	case d.RetryAfter-d.Time > delayOf(d).Nanoseconds():
		s = fmt.Sprintf(", not before %s, when the pause of retries ends (otherwise %v after the failure)", timeOf(d.RetryAfter), delayOf(d))
	case d.RetryAfter > d.Time:
		s = fmt.Sprintf(", not before %s (%v after the failure)", timeOf(d.RetryAfter), delayOf(d))
	}
	if len(d.AvoidNodes) > 0 {
		s += ", not on " + strings.Join(d.AvoidNodes, ", ")
	}
	if d.NodesLeftOut > 0 {
		s += fmt.Sprintf(" (%d earlier nodes are left out)", d.NodesLeftOut)
	}
	return s
}

// usedUp says that a budget has nothing left.
func usedUp(u *policy.BudgetUse) string {
	if u == nil { // of a record that somebody made up
		return "a retry budget is used up"
	}
	return fmt.Sprintf("retry budget %s is used up (%s in its window)", u.Budget, plural.Of(int(u.Firsts), "first run"))
}

// notedBudget says what a budget in shadow would have done.
func notedBudget(u *policy.BudgetUse) string {
	if u.Effect == policy.BudgetExhausted {
		return usedUp(u) + ", in shadow: it would refuse the retry"
	}
	return usedUp(u) + ", in shadow: it would grant the retry for " + timeOf(u.At)
}

// Describe names a record in a few words, for messages about differences.
func Describe(r chain.Record) string {
	switch r := r.(type) {
	case *chain.Decision:
		return fmt.Sprintf("%s %s on run %s of job %s (decision %d)", r.Kind(), r.Code, r.RunID, r.JobID, r.Number)
	case *chain.NotDecided:
		return fmt.Sprintf("NotDecided %s on run %s of job %s", r.Reason, r.RunID, r.JobID)
	case *chain.Parked:
		return fmt.Sprintf("Parked %s of %d bytes at %v", r.Reason, max(uint64(len(r.Raw)), r.Length), r.Position)
	case *chain.RetryReady:
		return fmt.Sprintf("RetryReady on run %s of job %s", r.RunID, r.JobID)
	case *chain.OrderAnswered:
		return describeOrder(r)
	}
	if s := describeGroup(r); s != "" {
		return s
	}
	return fmt.Sprintf("%T", r)
}
