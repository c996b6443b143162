package sim_test

// plantedBudgets are bugs in the code of semantics.md 14, which the reference model must catch.
func plantedBudgets() []bug {
	return []bug{
		{"budget 1", "first runs pay for one retry too many", []patch{{
			"budget/budget.go", "uint64(a.Ratio) / 1000; earned > retries {", "uint64(a.Ratio) / 1000; earned >= retries {",
		}}},
		{"budget 2", "a window has eleven slices", []patch{
			{"budget/budget.go", "		if c.Slice > oldest {", "		if c.Slice >= oldest {"},
			{"budget/budget.go", "return c.Slice <= at-Slices })", "return c.Slice < at-Slices })"},
		}},
		{"budget 3", "what waits for the floor starts all at once", []patch{{
			"budget/budget.go", "		at = max(at, plus(a.Floor[n-1], a.Window/time.Duration(share)))\n", "		at = max(at, a.Floor[n-1])\n",
		}}},
		{"budget 4", "the floor grants one retry a window", []patch{{
			"budget/budget.go", "plus(a.Floor[n-share], a.Window))", "plus(a.Floor[n-1], a.Window))",
		}}},
		{"budget 5", "a retry in shadow counts for the budget of all queues", []patch{{
			"projection/budget.go", `if a.Of(queue) && (a.Queue != "" || !inShadow) {`, "if a.Of(queue) {",
		}}},
		{"budget 6", "every run counts as a first one", []patch{{
			"projection/fold.go", "	if e.job.Runs == 0 && e.job.Known {", "	if e.job.Known {",
		}}},
		{"budget 7", "an ignored failure counts as a retry", []patch{{
			"projection/settle.go", "		if !d.Ignored {\n			s.spend(", "		{\n			s.spend(",
		}}},
		{"budget 8", "the times of the floor are not stored", []patch{{
			"projection/budget.go", "	e.uint(uint64(len(a.Floor)))\n	for _, at := range a.Floor {", "	e.uint(0)\n	for _, at := range a.Floor[:0] {",
		}}},
		{"budget 9", "proof that the old run is gone ends the delay", []patch{{
			"evaluator/budget.go", "v.RetryAfter, v.ReadyAfter = max(v.RetryAfter, from), max(v.ReadyAfter, from)", "v.RetryAfter = max(v.RetryAfter, from)",
		}}},
		{"budget 10", "a budget whose window changed keeps its counts", []patch{{
			"projection/budget.go", "w.Name == b.Name && w.Window == b.Window && w.Queue == b.Queue", "w.Name == b.Name && w.Queue == b.Queue",
		}}},
		{"budget 11", "what a budget in shadow would refuse counts", []patch{{
			"budget/budget.go", "	case a.Refuse && answer.Exhausted(now):\n	default:\n", "	default:\n",
		}}},
		{"budget 12", "a partition rounds its share of the floor down", []patch{{
			"policy/budget.go", "	return (b.Floor + n - 1) / n\n", "	return b.Floor / n\n",
		}}},
	}
}
