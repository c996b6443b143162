package simulate

import (
	"maps"
	"math"
	"slices"
)

// Comparison is what a candidate did under several seeds, beside the first candidate.
type Comparison struct {
	Candidate string    `json:"candidate"`
	Against   string    `json:"against"`
	Seeds     int       `json:"seeds"`
	Measures  []Measure `json:"measures"`
	// Parts are measures of single queues, causes and rules, in this order; all candidates have the same ones.
	Parts []Part `json:"parts"`
}

// Measure is the average of one number over seeds, with its 95% confidence interval.
type Measure struct {
	Name string `json:"measure"`
	Interval
	// Difference is that to the first candidate, seed by seed; nil: this is the first one.
	Difference *Interval `json:"difference,omitempty"`
}

// Interval is a mean with its 95% confidence interval, by Student's t.
type Interval struct {
	Mean float64 `json:"mean"`
	// Low and High are nil if there is one seed only: nothing is known about chance then.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
}

// Differs says whether 0 is outside the interval.
func (i *Interval) Differs() bool { return i.Low != nil && (*i.Low > 0 || *i.High < 0) }

// Compare summarizes the results of candidates, each with one result for each seed, in the same order.
func Compare(results [][]*Result) (out []Comparison) {
	parts := partsOf(results)
	for _, of := range results {
		c := Comparison{Candidate: of[0].Candidate, Against: results[0][0].Candidate, Seeds: len(of)}
		var first []*Result
		if len(out) > 0 {
			first = results[0]
		}
		for _, m := range measures(results[0][0]) {
			c.Measures = append(c.Measures, m.compare(of, first))
		}
		for _, p := range parts {
			part := p.Part
			for _, m := range p.measures {
				part.Measures = append(part.Measures, m.compare(of, first))
			}
			c.Parts = append(c.Parts, part)
		}
		out = append(out, c)
	}
	return out
}

// compare takes a measure of results, and its differences to those of the first candidate, if there are any.
func (m measure) compare(of, first []*Result) Measure {
	own := values(of, m)
	out := Measure{Name: m.name, Interval: intervalOf(own)}
	if first != nil {
		for i, v := range values(first, m) {
			own[i] -= v
		}
		difference := intervalOf(own)
		out.Difference = &difference
	}
	return out
}

type measure struct {
	name string
	of   func(*Result) float64
}

// measures are those that candidates are compared by.
func measures(r *Result) []measure {
	all := []measure{
		{"jobs done", func(r *Result) float64 { return float64(r.Done) }},
		{"jobs lost", func(r *Result) float64 { return float64(r.Lost) }},
		{"jobs not over", func(r *Result) float64 { return float64(r.NotOver) }},
		{"jobs done by retries", func(r *Result) float64 { return float64(r.DoneByRetries) }},
		{"retries", func(r *Result) float64 { return float64(r.Retries) }},
		{"preemptions", func(r *Result) float64 { return float64(r.Preemptions) }},
		{"first runs passed by retries", func(r *Result) float64 { return float64(r.Passed) }},
		{"hours until all is over", func(r *Result) float64 { return r.Hours }},
	}
	times := func(name string, of func(*Result) *Times) {
		all = append(all,
			measure{name + " p50, s", func(r *Result) float64 { return of(r).P50 }},
			measure{name + " p95, s", func(r *Result) float64 { return of(r).P95 }},
			measure{name + " p99, s", func(r *Result) float64 { return of(r).P99 }})
	}
	times("waiting", func(r *Result) *Times { return &r.Waiting })
	times("completion", func(r *Result) *Times { return &r.Completion })
	for _, name := range slices.Sorted(maps.Keys(r.UsefulHours)) {
		all = append(all, measure{"wasted hours of " + name, func(r *Result) float64 { return r.WastedHours[name] }})
	}
	return all
}

func values(results []*Result, m measure) (out []float64) {
	for _, r := range results {
		out = append(out, m.of(r))
	}
	return out
}

func intervalOf(values []float64) Interval {
	n := float64(len(values))
	var out Interval
	for _, v := range values {
		out.Mean += v / n
	}
	if len(values) < 2 {
		return out
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - out.Mean) * (v - out.Mean)
	}
	half := student(len(values)-1) * math.Sqrt(squares/(n-1)/n)
	low, high := out.Mean-half, out.Mean+half
	out.Low, out.High = &low, &high
	return out
}

// student is the 97.5th percentile of Student's t with so many degrees of freedom: exact for 1 and 2, and by
// the expansion of Cornish and Fisher above, with an error below 0.02 from 3 on.
func student(degrees int) float64 {
	const p = 0.975
	switch degrees {
	case 1:
		return math.Tan(math.Pi * (p - 0.5))
	case 2:
		return 2 * (p - 0.5) * math.Sqrt(2/(4*p*(1-p)))
	}
	z, v := 1.959963984540054, float64(degrees)
	z3, z5, z7, z9 := z*z*z, math.Pow(z, 5), math.Pow(z, 7), math.Pow(z, 9)
	return z + (z3+z)/(4*v) + (5*z5+16*z3+3*z)/(96*v*v) + (3*z7+19*z5+17*z3-15*z)/(384*v*v*v) +
		(79*z9+776*z7+1482*z5-1920*z3-945*z)/(92160*v*v*v*v)
}

// Assumptions are what every result assumes.
func Assumptions() []string {
	return []string{
		"what a run does is a model: a retry fails with the chances that the workload and the faults of the cluster name, independently of earlier runs, except for perJob (every run of the job fails)",
		"under one seed, the candidates see the same jobs at the same times, and the n-th run of a job has the same luck",
		"Armada's scheduler is scheduling.Schedule (docs/scheduling.md): no rate limits, taints or node affinity but avoided nodes",
		"a pod starts at once when it is scheduled and is gone at once when it ends, fails or is preempted; nothing else takes time but scheduling intervals and retry delays",
		"a run that failed, was preempted or restarted with its gang begins anew: there are no checkpoints, all its time is wasted",
		"an expired lease is noticed at once, where Armada takes minutes",
		"decisions arrive at once; a decision in shadow is not obeyed, and the job is lost, since nothing else retries it",
		"the simulation begins at " + begin().Format("2006-01-02T15:04:05Z07:00") + ", to which pausedUntil is compared, with an empty cluster",
	}
}
