package suite

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/suggest"
)

// none is the value of a field that an outcome does not have.
const none = "none"

// expectable are the fields of an outcome, in display order.
var expectable = [...]string{
	"decision", "code", "rule", "delay", "retryAfter", "left.rule", "left.global",
	"budget", "avoidNodes", "container", "matcher", "skippedPolicies", "shadow", "why",
}

// value formats a field of the outcome as a test would write it.
func (o *Outcome) value(field string, start int64) string {
	d := o.Decision
	switch {
	case o.Group != nil && !slices.Contains(expectable[:], field), o.NotDecided == nil && d == nil:
		return o.Group.value(field)
	case d == nil:
		switch field {
		case "decision":
			return "NotDecided"
		case "code":
			return o.NotDecided.Reason.String()
		case "why":
			return "the run was not decided: " + o.NotDecided.Reason.String()
		}
		return none
	}
	switch field {
	case "decision":
		if d.Requeue {
			return "Retry"
		}
		return "Fail"
	case "code":
		return d.Code.String()
	case "rule":
		if d.Policy != "" {
			return d.Policy + "/" + d.Rule
		}
	case "delay":
		if d.Requeue {
			return policyfile.Short(time.Duration(d.DelayMS) * time.Millisecond)
		}
	case "retryAfter":
		if d.Requeue {
			return policyfile.Short(time.Duration(d.RetryAfter - start))
		}
	case "left.rule":
		if d.LimitFrom != policy.FromNowhere {
			return remaining(d.RuleUsed, d.RuleLimit)
		}
	case "left.global":
		return remaining(d.GlobalUsed, d.GlobalLimit)
	case "budget":
		if d.Budget != nil {
			return d.Budget.Budget + "/" + d.Budget.Effect.String()
		}
	case "avoidNodes":
		return list(d.AvoidNodes)
	case "container":
		if d.Container != "" {
			return d.Container
		}
	case "matcher":
		if d.Matcher != policy.NoMatcher {
			return d.Matcher.String()
		}
	case "skippedPolicies":
		return list(d.Skipped)
	case "shadow":
		return strconv.FormatBool(d.Shadow)
	case "why":
		return audit.Reason(d)
	}
	return none
}

func remaining(used, limit uint32) string {
	return strconv.FormatUint(uint64(max(limit, used)-used), 10)
}

// list formats a list for a test file; an empty one as "".
func list(names []string) string { return strings.Join(names, ", ") }

// accepts returns how a written value is compared, or what is wrong with it and the fix.
func accepts(field, written string) (ok func(o *Outcome, start int64) bool, message, fix string) {
	same := func(o *Outcome, start int64) bool { return o.value(field, start) == written }
	switch field {
	case "decision":
		return same, oneOf(written, "Retry", "Fail", "NotDecided"), "use Retry, Fail or NotDecided"
	case "code":
		if _, known := policy.ParseCode(written); !known {
			return same, oneOf(written, "StaleRun", "Cancelled", "Ended", "UnknownJob"), "use a code such as RuleRetry or DefaultFail (semantics.md 11), or Ended for a run that was not decided"
		}
	case "matcher":
		if m, known := policy.ParseMatcher(written); written != none && (!known || m == policy.NoMatcher) {
			return same, "unknown matcher " + strconv.Quote(written), "use none or a matcher such as onExitCodes"
		}
	case "shadow":
		return same, oneOf(written, "true", "false"), "use true or false"
	case "rule":
		if name, rule, both := strings.Cut(written, "/"); written != none && (!both || name == "" || rule == "") {
			return same, "not a rule", "write POLICY/RULE, such as ml/oom, ml/#0 for an unnamed first rule, ml/default, or none"
		}
	case "budget":
		name, effect, both := strings.Cut(written, "/")
		if written != none && (!both || name == "") {
			return same, "not what a budget said", "write BUDGET/EFFECT, such as ml/BudgetDelayed, or none"
		}
		if written != none {
			return same, oneOf(effect, policy.BudgetGranted.String(), policy.BudgetDelayed.String(), policy.BudgetExhausted.String()), "use BudgetGranted, BudgetDelayed or BudgetExhausted"
		}
	case "left.rule", "left.global":
		if _, err := strconv.ParseUint(written, 10, 32); err != nil && (written != none || field == "left.global") {
			return same, "not a number of retries", "write the number of retries left, such as 2"
		}
	case "why":
		return func(o *Outcome, start int64) bool { return strings.Contains(o.value(field, start), written) }, "", ""
	case "delay", "retryAfter":
		return acceptsTime(field, written)
	}
	message, fix = acceptsGroup(field, written)
	return same, message, fix
}

// acceptsTime reads 30s, 30s..33s, and for retryAfter an RFC 3339 time.
func acceptsTime(field, written string) (ok func(o *Outcome, start int64) bool, message, fix string) {
	if written == none {
		return func(o *Outcome, start int64) bool { return o.value(field, start) == none }, "", ""
	}
	if at, err := time.Parse(time.RFC3339Nano, written); err == nil && field == "retryAfter" {
		return func(o *Outcome, _ int64) bool {
			return o.Decision != nil && o.Decision.Requeue && o.Decision.RetryAfter == at.UnixNano()
		}, "", ""
	}
	from, to, ranged := strings.Cut(written, "..")
	if !ranged {
		to = from
	}
	least, err := time.ParseDuration(from)
	most, err2 := time.ParseDuration(to)
	if err != nil || err2 != nil || least > most {
		return nil, "not a duration", "write 30s, 30s..33s for a delay with jitter, or none"
	}
	return func(o *Outcome, start int64) bool {
		if o.Decision == nil || !o.Decision.Requeue {
			return false
		}
		got := time.Duration(o.Decision.DelayMS) * time.Millisecond
		if field == "retryAfter" {
			got = time.Duration(o.Decision.RetryAfter - start)
		}
		return least <= got && got <= most
	}, "", ""
}

// oneOf returns a message if s is none of the words.
func oneOf(s string, words ...string) string {
	if slices.Contains(words, s) {
		return ""
	}
	if near := suggest.Nearest(s, words); near != "" {
		return "unknown " + strconv.Quote(s) + ", did you mean " + near + "?"
	}
	return "unknown " + strconv.Quote(s)
}
