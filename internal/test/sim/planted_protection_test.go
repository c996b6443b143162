package sim_test

// plantedProtection are bugs in budgets, breakers and orders that their other lists do not have.
func plantedProtection() []bug {
	return []bug{
		{"protection", "a start takes back what proof has brought forward", []patch{{
			"projection/settle.go", "r.RetryAfter, r.ReadyAfter = r.ReadyAfter, r.RetryAfter", "r.ReadyAfter = r.RetryAfter",
		}}},
		{"protection", "a started retry is ready later than it was", []patch{{
			"evaluator/order.go", "min(a.ReadyAfter, o.Run.RetryAfter, o.Run.ReadyAfter)", "a.ReadyAfter",
		}}},
		{"protection", "slices are counted from the window's own beginning", []patch{{
			"budget/budget.go", "	n := now / width\n", "	n := (now + width/2) / width\n",
		}}},
		{"protection", "what was granted a window ago is still in the window", []patch{{
			"budget/budget.go", "at = max(at, plus(a.Floor[n-share], a.Window))", "at = max(at, plus(a.Floor[n-share], a.Window+1))",
		}}},
		{"protection", "a breaker holds what failed at its end", []patch{{
			"policy/breaker.go", "f.Time < b.Until", "f.Time <= b.Until",
		}}},
		{"protection", "an order names the job of another queue", []patch{{
			"projection/order.go", "case !j.Known || j.Queue != queue || j.Set != set:", "case !j.Known:",
		}}},
		{"protection", "a job that has succeeded runs again", []patch{{
			"projection/order.go", "case r.End == Succeeded || j.Succeeded:", "case r.End == Succeeded:",
		}}},
		{"protection", "a retry by order does not avoid suspects", []patch{{
			"evaluator/order.go", "	avoidAlso(&avoid, nil, set.AvoidNodes())\n", "",
		}}},
	}
}
