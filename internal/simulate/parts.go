package simulate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/refloat/refloat/internal/policy"
)

// Part is a queue, a cause of failures or a rule, with what candidates are compared by.
type Part struct {
	By PartKind `json:"by"`
	// Of names the queue or the cause; of rules, Policy and Rule do. Both are "" for failed runs that no rule decided.
	Of       string    `json:"of,omitempty"`
	Policy   string    `json:"policy,omitempty"`
	Rule     string    `json:"rule,omitempty"`
	Measures []Measure `json:"measures"`
}

// PartKind says what a part is.
type PartKind string

// The kinds of parts.
const (
	ByQueue PartKind = "Queue"
	ByCause PartKind = "Cause"
	ByRule  PartKind = "Rule"
)

// Name names the part in a table.
func (p *Part) Name() string {
	switch {
	case p.By != ByRule:
		return p.Of
	case p.Policy == "":
		return "no policy"
	}
	return p.Policy + "/" + p.Rule
}

type partMeasures struct {
	Part
	measures []measure
}

// partsOf returns the parts that any of the results has.
func partsOf(results [][]*Result) (out []partMeasures) {
	queues, causes, rules := map[string]bool{}, map[string]bool{}, map[[2]string]bool{}
	for _, of := range results {
		for _, r := range of {
			for i := range r.Queues {
				queues[r.Queues[i].Queue] = true
			}
			for i := range r.Failures {
				row := &r.Failures[i]
				causes[row.Cause] = true
				if row.Code != "" { // there is a decision, or a reason for none
					rules[[2]string{row.Policy, row.Rule}] = true
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		out = append(out, partMeasures{Part{By: ByQueue, Of: name}, queueMeasures(name)})
	}
	resources := results[0][0].Resources
	for _, name := range slices.Sorted(maps.Keys(causes)) {
		of := failureMeasures(resources, func(row *FailureRow) bool { return row.Cause == name })
		out = append(out, partMeasures{Part{By: ByCause, Of: name}, append(of, measure{"recovery, s", func(r *Result) float64 { return r.Recovery[name] }})})
	}
	for _, rule := range slices.SortedFunc(maps.Keys(rules), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	}) {
		out = append(out, partMeasures{Part{By: ByRule, Policy: rule[0], Rule: rule[1]}, failureMeasures(resources, func(row *FailureRow) bool {
			return row.Code != "" && row.Policy == rule[0] && row.Rule == rule[1]
		})})
	}
	return out
}

func queueMeasures(name string) (out []measure) {
	add := func(measureName string, value func(*QueueResult) float64) {
		out = append(out, measure{measureName, func(r *Result) float64 {
			i := slices.IndexFunc(r.Queues, func(q QueueResult) bool { return q.Queue == name })
			if i < 0 {
				return 0
			}
			return value(&r.Queues[i])
		}})
	}
	add("jobs done", func(q *QueueResult) float64 { return float64(q.Done) })
	add("jobs lost", func(q *QueueResult) float64 { return float64(q.Lost) })
	add("retries", func(q *QueueResult) float64 { return float64(q.Retries) })
	add("first runs passed", func(q *QueueResult) float64 { return float64(q.Passed) })
	add("waiting p95, s", func(q *QueueResult) float64 { return q.Waiting.P95 })
	add("completion p95, s", func(q *QueueResult) float64 { return q.Completion.P95 })
	add("below share, %", func(q *QueueResult) float64 { return 100 * q.Shortfall })
	add("fair-share error, %", func(q *QueueResult) float64 { return 100 * q.FairShareError })
	return out
}

// failureMeasures sum over rows of failed runs.
func failureMeasures(resources []string, in func(*FailureRow) bool) (out []measure) {
	add := func(name string, value func(*FailureRow) float64) {
		out = append(out, measure{name, func(r *Result) (sum float64) {
			for i := range r.Failures {
				if row := &r.Failures[i]; in(row) {
					sum += value(row)
				}
			}
			return sum
		}})
	}
	add("runs that did not succeed", func(row *FailureRow) float64 { return float64(row.Runs) })
	add("retried", func(row *FailureRow) float64 { return float64(row.Retried) })
	add("wasted retries", func(row *FailureRow) float64 { return float64(row.Retries) })
	add("refused by a limit", func(row *FailureRow) float64 {
		if !slices.Contains([]string{policy.RuleLimit.String(), policy.PolicyLimit.String(), policy.GlobalLimit.String()}, row.Code) {
			return 0
		}
		return float64(row.Runs)
	})
	for _, name := range resources {
		add("wasted hours of "+name, func(row *FailureRow) float64 { return row.WastedHours[name] })
	}
	return out
}
