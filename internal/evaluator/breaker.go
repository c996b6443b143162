package evaluator

import "github.com/refloat/refloat/internal/policy"

// held is HeldByBreaker, from the version of the semantics on that has breakers.
func (p policies) held(v *policy.Verdict) bool {
	return p.Progress.Semantics >= sinceBreakers && HeldByBreaker(p.Rules.Set, &p.failure, v)
}

// HeldByBreaker makes the verdict on a failure one that an open breaker of the set holds, if there is one (semantics.md 15): the
// retry starts no earlier than the breaker ends, spread over some time after that, and counts nowhere.
func HeldByBreaker(set *policy.Set, f *policy.Failure, v *policy.Verdict) bool {
	if !counts(v.Code) && v.Code != policy.RuleIgnore {
		return false
	}
	until, held := set.HeldUntil(f)
	if !held {
		return false
	}
	until = f.HeldRetry(until)
	if counts(v.Code) {
		v.RuleUsed--
		v.GlobalUsed--
	}
	v.Code, v.Key = policy.BreakerHeld, policy.RuleKey{}
	v.RetryAfter, v.ReadyAfter = max(v.RetryAfter, until), max(v.ReadyAfter, until)
	return true
}
