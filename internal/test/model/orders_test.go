package model

import "testing"

// TestOrdersSometimes asks that random histories reach each answer to an order.
func TestOrdersSometimes(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	add := func(h History) {
		_, m := h.Run()
		for name, n := range m.Seen {
			seen[name] += n
		}
	}
	for seed := range uint64(2000) {
		add(Ordered(Generate(seed, Options{Republished: seed%4 == 0, Changes: seed%3 == 0}), seed))
	}
	for seed := range uint64(50) {
		add(Ordered(GenerateGroups(seed, GroupOptions{Newest: SuccessorsVersion}), seed))
	}
	must := []string{"order: passed over", "order: repeated", "order: unknown UnknownAction", "order: retry KillSwitch", "order: retry Retrying", "order: give up Failed", "order: start Failed", "order: start KillSwitch", "order: started too late"}
	for _, reason := range []string{"None", "UnknownJob", "InGroup", "Cancelled", "StaleRun", "Running", "Succeeded", "NotDecided", "Ended", "Shadow"} {
		must = append(must, "order: retry "+reason, "order: give up "+reason, "order: start "+reason)
	}
	for _, name := range must {
		if seen[name] == 0 {
			t.Errorf("never seen: %s", name)
		}
	}
}

// TestOneAnswer asks of each order that it is carried out at most once, whatever is repeated.
func TestOneAnswer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		h := Ordered(Generate(seed, Options{Changes: seed%3 == 0}), seed)
		records, _ := h.Run()
		type key struct{ job, run string }
		granted := map[key]int{}
		for i := range records {
			for _, r := range records[i] {
				if r.Kind != OrderAnswered || r.Reason != "None" || r.OrderAction == orderStart { // started again, it starts no later
					continue
				}
				granted[key{r.JobID, r.RunID}]++
				if r.RetryAfter != 0 && r.RetryAfter < r.T {
					t.Errorf("seed %d, message %d: %+v: retried before it was ordered", seed, i, r)
				}
			}
		}
		for of, n := range granted {
			if n > 2 {
				t.Errorf("seed %d: %d orders on run %s of %s are carried out, want a retry and giving it up at most", seed, n, of.run, of.job)
			}
		}
	}
}
