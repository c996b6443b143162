package evaluator

import "github.com/refloat/refloat/internal/policy"

// held makes a verdict one that an open breaker holds, if there is one (semantics.md 15): the retry starts no earlier than
// the breaker ends, spread over some time after that, and counts nowhere.
func (p policies) held(v *policy.Verdict) bool {
	if !counts(v.Code) && v.Code != policy.RuleIgnore || p.Progress.Semantics < sinceBreakers {
		return false
	}
	until, held := p.Rules.Set.HeldUntil(&p.failure)
	if !held {
		return false
	}
	until = p.failure.HeldRetry(until)
	if counts(v.Code) {
		v.RuleUsed--
		v.GlobalUsed--
	}
	v.Code, v.Key = policy.BreakerHeld, policy.RuleKey{}
	v.RetryAfter, v.ReadyAfter = max(v.RetryAfter, until), max(v.ReadyAfter, until)
	return true
}
