package sim_test

// plantedBreakers are bugs in the code of semantics.md 15, which the reference model must catch.
func plantedBreakers() []bug {
	return []bug{
		{"breaker 1", "a held retry counts", []patch{{
			"evaluator/breaker.go", "	v.Code, v.Key = policy.BreakerHeld, policy.RuleKey{}\n", "	v.Code = policy.BreakerHeld\n",
		}, {
			"evaluator/step.go", "case policy.RuleRetry, policy.DefaultRetry, policy.GangRetry, policy.RuleIgnore:\n		out.Ignored",
			"case policy.RuleRetry, policy.DefaultRetry, policy.GangRetry, policy.RuleIgnore, policy.BreakerHeld:\n		out.Ignored",
		}}},
		{"breaker 2", "a held retry is said to have counted", []patch{{
			"evaluator/breaker.go", "		v.GlobalUsed--\n", "",
		}}},
		{"breaker 3", "proof that the old run is gone releases a held retry", []patch{{
			"evaluator/breaker.go", "max(v.RetryAfter, until), max(v.ReadyAfter, until)", "max(v.RetryAfter, until), v.ReadyAfter",
		}}},
		{"breaker 4", "a breaker holds a shorter time than another one that matches", []patch{{
			"policy/breaker.go", "until, held = max(until, b.Until), true", "until, held = b.Until, true",
		}}},
		{"breaker 5", "a breaker of one queue holds others", []patch{{
			"policy/breaker.go", "(b.Queue == \"\" || b.Queue == f.Queue)", "true",
		}}},
		{"breaker 6", "a breaker of one subcategory holds others", []patch{{
			"policy/breaker.go", "(b.Subcategory == \"\" || b.Subcategory == f.Subcategory)", "true",
		}}},
		{"breaker 7", "a breaker does not hold what is ignored", []patch{{
			"evaluator/breaker.go", "	if !counts(v.Code) && v.Code != policy.RuleIgnore {", "	if !counts(v.Code) {",
		}}},
		{"breaker 8", "a breaker holds before version 5", []patch{{
			"evaluator/breaker.go", "return p.Progress.Semantics >= sinceBreakers && HeldBy", "return HeldBy",
		}}},
	}
}
