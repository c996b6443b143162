package query

import (
	"fmt"
	"strings"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
)

// FactsOf lists what rules can match of a failure, a fact a line.
func FactsOf(f *policy.Failure) (facts []string) {
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
	return facts
}

// Retried counts retries before and after a decision, against a limit.
type Retried struct {
	Of            string // rule, or job
	Before, After uint32
	Limit         uint32
	From          string // what set the limit
}

// String says it in words.
func (r Retried) String() string {
	return fmt.Sprintf("%d before, %d after, limit %d %s", r.Before, r.After, r.Limit, r.From)
}

// RetriedOf counts the retries by the rule of a decision, if it has a limit, and of the job, which had this many before.
func RetriedOf(d *chain.Decision, before uint32) (all []Retried) {
	if d.LimitFrom != policy.FromNowhere {
		n := d.RuleUsed
		if d.Requeue && n > 0 {
			n-- // a granted retry counts as one
		}
		all = append(all, Retried{"rule", n, d.RuleUsed, d.RuleLimit, fmt.Sprintf("from the %s", d.LimitFrom)})
	}
	return append(all, Retried{"job", before, d.GlobalUsed, d.GlobalLimit, "(globalMaxRetries)"})
}

// DelayText shows how a delay was computed, to be put behind it.
func DelayText(a *policy.Arithmetic) string {
	if a == nil {
		return ": immediately, like Armada"
	}
	s := fmt.Sprintf(" = min(%v × %g^(%d−1), %v) = %v", a.Initial, a.Multiplier, a.N, a.Max, a.Plain)
	if a.Jitter > 0 {
		s += fmt.Sprintf(", plus jitter %v", a.Jitter)
	}
	if a.Grace > 0 {
		s += fmt.Sprintf("; at least termination grace %v + slack %v, so that the old pod is gone", a.Grace, a.Slack)
	}
	if a.PausedUntil > 0 {
		s += "; retries are paused until " + timeText(a.PausedUntil)
	}
	return s
}

// DelayText shows how the delay of a decision was computed; "": it has none, or nothing is known of it.
func (e *Explanation) DelayText() string {
	if d := e.Basis.Decision; !d.Requeue || !e.Basis.Evaluated || d.Group != nil || d.Code == policy.GroupRestart {
		return ""
	}
	return DelayText(e.Basis.Delay)
}
