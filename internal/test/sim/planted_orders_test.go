package sim_test

// plantedOrders are bugs in the answers to orders, semantics.md 16. The model must catch them.
func plantedOrders() []bug {
	return []bug{
		{"orders", "a repeated order is answered again", []patch{{
			"projection/order.go", "if slices.Contains(j.Orders, o.ID) {", "if slices.Contains(j.Orders, o.ID) && j.ID == \"\" {",
		}}},
		{"orders", "the ids of orders are not stored", []patch{{
			"projection/encoding.go", "	if len(j.Orders) > 0 {", "	if false {",
		}}},
		{"orders", "an order on a run that is not the latest is carried out", []patch{
			{"projection/order.go", "case r == nil || r.ID != run:", "case r == nil:"},
			{"projection/order.go", "o.Run == nil || o.Run.ID != o.RunID {", "o.Run == nil {"},
		}},
		{"orders", "a job that is asked to be cancelled is retried", []patch{{
			"projection/order.go", "case j.Cancelled || j.CancelRequested:", "case j.Cancelled:",
		}}},
		{"orders", "a job that is retried by order is still over", []patch{{
			"projection/order.go", "	o.Job.Ended, o.Job.EndedAt = false, 0\n", "",
		}}},
		{"orders", "an order acts on a member of a group", []patch{{
			"projection/order.go", "case j.Member != nil || j.IsGang():", "case false:",
		}}},
		{"orders", "an order acts in shadow", []patch{{
			"policy/order.go", "	case s.InShadow(queue):", "	case false:",
		}}},
		{"orders", "an order retries while retries are killed", []patch{{
			"policy/order.go", "	case a != OrderGiveUp && !s.Restarts(queue):", "	case false:",
		}}},
		{"orders", "a retry by order does not wait for the end of a pause", []patch{{
			"evaluator/order.go", "	a.ReadyAfter = max(o.Time, set.PausedUntil(o.Job.Queue))", "	a.ReadyAfter = o.Time",
		}}},
		{"orders", "a retry by order waits for a pod that is gone", []patch{{
			"evaluator/order.go", "	if !o.Run.Gone {", "	if true {",
		}}},
		{"orders", "a retry that is started waits longer than it would have", []patch{{
			"evaluator/order.go", "min(a.RetryAfter, o.Run.RetryAfter)", "a.RetryAfter",
		}}},
		{"orders", "a retry starts before the time of its order", []patch{{
			"evaluator/order.go", "max(a.ReadyAfter, o.NotBefore)", "a.ReadyAfter",
		}}},
		{"orders", "a reader takes the retry from the failure, not from the answer", []patch{{
			"projection/order.go", "Requeued, o.Answer.RetryAfter, o.Answer.ReadyAfter", "Requeued, o.Run.RetryAfter, o.Run.ReadyAfter",
		}}},
	}
}
