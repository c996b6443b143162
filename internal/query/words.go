package query

import (
	"fmt"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
)

// FactsOf lists what rules can match of a failure, a fact a line.
func FactsOf(f *policy.Failure) []string {
	facts := []string{}
	for c := policy.OOMKilled; c <= policy.LeaseExpired; c++ {
		if f.Conditions.Has(c) || c == policy.OOMKilled && f.PodOOM {
			facts = append(facts, "condition "+c.String())
		}
	}
	if f.Category != "" {
		facts = append(facts, "category "+OneLine(strings.TrimSuffix(f.Category+"/"+f.Subcategory, "/")))
	}
	for _, c := range f.Containers {
		sort := "container"
		if c.Init {
			sort = "init container"
		}
		facts = append(facts, fmt.Sprintf("%s %s exited with %d (%s)", sort, OneLine(c.Name), c.ExitCode, OneLine(c.Reason)))
	}
	if f.Ran {
		facts = append(facts, fmt.Sprintf("running for %v", f.RunDuration))
	}
	return facts
}

// RetryCount counts retries before and after a decision, against a limit.
type RetryCount struct {
	Of            string // rule, job or budget
	Before, After uint32
	Limit         uint32
	From          string // what set the limit
	other         string // of a budget: what it said
}

// String says it in words.
func (r RetryCount) String() string {
	if r.other != "" {
		return r.other
	}
	return fmt.Sprintf("%d before, %d after, limit %d %s", r.Before, r.After, r.Limit, r.From)
}

// RetryCounts counts the retries by the rule of a decision, if it has a limit, and of the job, which had this many before; and says what
// budgets said, if they were asked.
func RetryCounts(d *audit.Decision, before uint32) (all []RetryCount) {
	if d.LimitFrom != "" {
		n := *d.RuleUsed
		if d.RetryAfter != "" && d.Code != policy.BreakerHeld.String() && n > 0 {
			n-- // a granted retry counts as one
		}
		all = append(all, RetryCount{Of: "rule", Before: n, After: *d.RuleUsed, Limit: *d.RuleLimit, From: "from the " + d.LimitFrom})
	}
	all = append(all, RetryCount{Of: "job", Before: before, After: d.GlobalUsed, Limit: d.GlobalLimit, From: "(globalMaxRetries)"})
	if d.Budget != nil {
		all = append(all, RetryCount{Of: "budget", other: OneLine(d.Budget.String())})
	}
	return all
}

// Arithmetic shows how a delay was computed.
func Arithmetic(a *policy.Arithmetic) string {
	if a == nil {
		return "immediately, like Armada"
	}
	s := fmt.Sprintf("min(%v × %g^(%d−1), %v) = %v", a.Initial, a.Multiplier, a.N, a.Max, a.Plain)
	if a.Jitter > 0 {
		s += fmt.Sprintf(", plus jitter %v", a.Jitter)
	}
	if a.Grace > 0 {
		s += fmt.Sprintf("; at least termination grace %v + slack %v, so that the old pod is gone", a.Grace, a.Slack)
	}
	if a.PausedUntil > 0 {
		s += "; retries are paused until " + TimeText(a.PausedUntil)
	}
	return s
}

// DelayText shows how the delay of a decision was computed, to be put behind it; "": it has none, or nothing is known of it.
func (e *Explanation) DelayText() string {
	switch {
	case e.DelayFrom == "":
		return ""
	case strings.HasPrefix(e.DelayFrom, "min("):
		return " = " + e.DelayFrom
	}
	return ": " + e.DelayFrom
}

// groupEffect says what a decision did to the unit and the group of a member; "": it is in no group. Without policies, at
// is nil.
func groupEffect(d *chain.Decision, at *PoliciesAt) string {
	switch {
	case d.Member == nil:
		return ""
	case d.Group != nil:
		if at == nil {
			return audit.GroupSentence(d.Group, "")
		}
		return audit.GroupSentence(d.Group, audit.WhyNotRestarted(at.Set.Set, d.Queue, d.Time))
	case d.Code == policy.GangRetry:
		return "all members of the gang start again together; the rules of the group were not asked"
	case d.Code == policy.GroupRestart, d.Code == policy.GroupOver:
		return "the policies of the job were not asked: what became of the group came first"
	case d.Requeue:
		return "the unit goes on: only this member starts again"
	default:
		return "the unit did not fail by this, so the rules of the group were not asked"
	}
}

// LadderOf returns the rules that were, or would have been, tried.
func LadderOf(traces []policy.RuleTrace) []RuleTrace {
	ladder := []RuleTrace{}
	for _, r := range traces {
		line := RuleTrace{Policy: r.Policy, Rule: r.Rule, Tried: r.Tried, Matched: r.Matched, Why: r.Why}
		if r.Tried && !r.Matched {
			line.Failed = r.Failed.String()
		}
		ladder = append(ladder, line)
	}
	return ladder
}
