package simulate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Comparison is what a candidate did under several seeds, beside the first candidate.
type Comparison struct {
	Candidate string `json:"candidate"`
	Against   string `json:"against"`
	Seeds     int    `json:"seeds"`
	// Verdict says in a sentence how it differs from the first one by more than chance; "": this is the first one.
	Verdict string `json:"verdict,omitempty"`
	// Headline are the measures by which candidates are judged. Whether one differs is asked of them alone: there are few, so
	// that chance rarely finds one.
	Headline []Measure `json:"headline"`
	// Measures and Parts are all others, which say why.
	Measures []Measure `json:"measures"`
	// Parts are measures of single queues, causes and rules, in this order; all candidates have the same ones.
	Parts []Part `json:"parts"`
}

// Measure is one number over seeds.
type Measure struct {
	Name string `json:"measure"`
	Interval
	// Difference is that to the first candidate, seed by seed; nil: this is the first one.
	Difference *Difference `json:"difference,omitempty"`
}

// Interval says what is typical of seeds. The median has its 95% confidence interval by order statistics: two of the values
// themselves, between which the median over all seeds is, however the values are distributed.
type Interval struct {
	Median float64 `json:"median"`
	Mean   float64 `json:"mean"`
	// Low and High are nil with fewer than 6 seeds, of which the smallest and the largest value are no such interval.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
}

// String is the median, and the interval if there is one.
func (i *Interval) String() string {
	if i.Low == nil {
		return tenths(i.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", tenths(i.Median), tenths(*i.Low), tenths(*i.High))
}

// tenths rounds, and has no minus before what is then 0.
func tenths(v float64) string {
	return strings.Replace(fmt.Sprintf("%.1f", v), "-0.0", "0.0", 1)
}

// Difference is how a candidate differs from the first one, seed by seed.
type Difference struct {
	Interval
	// Agree is under how many seeds it has the sign that is more frequent.
	Agree int `json:"agree"`
	// Chance is how probable it is that so many agree if no sign is likelier (sign test, two-sided). Equal values speak for no
	// difference.
	Chance float64 `json:"chance"`
	// Differs says whether the candidates differ, with a chance of 5% in all that any measure of the headline, or any
	// of the others, is said to although it does not (Holm's correction).
	Differs bool `json:"differs"`
	// SeedsNeeded is how many seeds would probably (80%) show a difference, if the share of seeds that agree stays; nil: it
	// differs, or no more than half of them agree.
	SeedsNeeded *int `json:"seedsNeeded,omitempty"`
}

// Conclusion says what so many seeds say about a measure, of candidates with these names.
func (d *Difference) Conclusion(seeds int, first, own string) string {
	text := fmt.Sprintf("%s is above %s under %d of %d seeds", own, first, d.Agree, seeds)
	switch {
	case d.Agree == 0:
		return fmt.Sprintf("%s and %s are equal under every seed", own, first)
	case d.Median < 0:
		text = fmt.Sprintf("%s is below %s under %d of %d seeds", own, first, d.Agree, seeds)
	}
	switch {
	case d.Differs:
		return text + ", hardly by chance"
	case d.SeedsNeeded != nil:
		return fmt.Sprintf("%s, which may be chance; if that share is right, --seeds %d would probably show it", text, *d.SeedsNeeded)
	default:
		return "these seeds do not tell them apart"
	}
}

// enoughSeeds may tell differences of many measures from chance: of 10 that agree, the chance is 2/1024.
const enoughSeeds = 10

// FewSeeds says that there are too few seeds to decide by; "": there are enough.
func FewSeeds(seeds int) string {
	switch {
	case seeds >= enoughSeeds:
		return ""
	case seeds == 1:
		return fmt.Sprintf("1 seed is too few to decide by: use --seeds %d or more", enoughSeeds)
	}
	return fmt.Sprintf("%d seeds are too few to decide by: use --seeds %d or more", seeds, enoughSeeds)
}

// Letter names the candidate at a place in a comparison: A to Z, then A1 to Z1, and so on.
func Letter(i int) string {
	name := string(rune('A' + i%26))
	if i >= 26 {
		name += strconv.Itoa(i / 26)
	}
	return name
}

// Seconds shows seconds as a duration.
func Seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// Compare summarizes the results of candidates, each with one result for each seed, in the same order.
func Compare(results [][]*Result) (out []Comparison) {
	parts := partsOf(results)
	for _, of := range results {
		c := Comparison{Candidate: of[0].Candidate, Against: results[0][0].Candidate, Seeds: len(of)}
		var first []*Result
		if len(out) > 0 {
			first = results[0]
		}
		for _, m := range headline(results) {
			c.Headline = append(c.Headline, m.compare(of, first))
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
		if first != nil {
			c.judge()
			c.Verdict = c.verdict(fmt.Sprintf("%s (%s)", c.Against, Letter(0)), fmt.Sprintf("%s (%s)", c.Candidate, Letter(len(out))), scarcest(results))
		}
		out = append(out, c)
	}
	return out
}

// judge says which differences are no accident.
func (c *Comparison) judge() {
	holm(differences(c.Headline), c.Seeds)
	others := differences(c.Measures)
	for i := range c.Parts {
		others = append(others, differences(c.Parts[i].Measures)...)
	}
	holm(others, c.Seeds)
}

// verdict says how the candidate differs: in the headline, in jobs, retries and waste of the scarcest resource. Only what is hardly chance is said to differ.
func (c *Comparison) verdict(first, own, scarce string) string {
	var differ, apart []string
	named := func(of []Measure, which func(string) bool) {
		for i := range of {
			m := &of[i]
			switch d := m.Difference; {
			case !which(m.Name) || d.Agree == 0:
			case !d.Differs:
				apart = append(apart, strconv.Quote(m.Name))
			default:
				word := "more"
				if d.Median < 0 {
					word = "less"
				}
				differ = append(differ, fmt.Sprintf("%.1f %s of %q", math.Abs(d.Median), word, m.Name))
			}
		}
	}
	named(c.Headline, func(string) bool { return true })
	named(c.Measures, func(name string) bool {
		return name == "jobs done" || name == "retries" || name == "wasted hours of "+scarce
	})
	text := fmt.Sprintf("%s against %s, medians over %d seeds: ", own, first, c.Seeds)
	if c.Seeds == 1 {
		text = fmt.Sprintf("%s against %s, under one seed: ", own, first)
	}
	switch {
	case len(differ)+len(apart) == 0:
		return text + "no difference under any seed in what decides"
	case len(differ) == 0:
		text += "no difference that is more than chance"
		if few := FewSeeds(c.Seeds); few != "" {
			text += " (" + few + ")"
		}
	default:
		text += strings.Join(differ, ", ")
	}
	if len(apart) > 0 {
		text += "; not told apart: " + strings.Join(apart, ", ")
	}
	return text
}

func differences(of []Measure) (out []*Difference) {
	for i := range of {
		out = append(out, of[i].Difference)
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
		out.Difference = differenceOf(own)
	}
	return out
}

type measure struct {
	name string
	of   func(*Result) float64
}

// headline are the measures that candidates are judged by: what users get, and what it costs.
func headline(results [][]*Result) []measure {
	scarce := scarcest(results)
	return []measure{
		{fmt.Sprintf("jobs done within %v, %%", results[0][0].within()), func(r *Result) float64 {
			return 100 * float64(r.DoneInTime) / float64(max(1, r.Jobs-r.Cancelled))
		}},
		{"useful hours of all, " + scarce + ", %", func(r *Result) float64 {
			useful, wasted := r.UsefulHours[scarce], r.WastedHours[scarce]
			if useful+wasted == 0 {
				return 100
			}
			return 100 * useful / (useful + wasted)
		}},
	}
}

// scarcest is the scarcest resource that any run used.
func scarcest(results [][]*Result) string {
	for _, name := range results[0][0].Resources {
		for _, of := range results {
			for _, r := range of {
				if r.UsefulHours[name]+r.WastedHours[name] > 0 {
					return name
				}
			}
		}
	}
	return results[0][0].Resources[0]
}

// measures are the others.
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

// Assumptions are what every result assumes.
func Assumptions() []string {
	return []string{
		"what a run does is a model: a retry fails with the chances that the workload and the faults of the cluster name, independently of earlier runs, except for perJob (every run of the job fails) and again (as the run before it)",
		"under one seed, the candidates see the same jobs at the same times, and the n-th run of a job has the same luck",
		"Armada's scheduler is scheduling.Schedule with LikeArmada, which was held against a real Armada (docs/internals/scheduling.md): no rate limits, taints or node affinity but avoided nodes, and what nodes have is not rounded (indexedResources)",
		"protectedFractionOfFairShare is 0; Armada's default is 1, by which a queue within its fair share loses jobs to more urgent ones only",
		"a pod starts at once when it is scheduled and is gone at once when it ends, fails or is preempted; nothing else takes time but scheduling intervals and retry delays",
		"a run that failed, was preempted or restarted with its gang begins anew: there are no checkpoints, all its time is wasted",
		"an expired lease is noticed at once, where Armada takes minutes",
		"the guard of protection and breakers sees run ends within 2 s, and what it decides is in force at once",
		"decisions arrive at once; a decision in shadow is not obeyed, and the job is lost, since nothing else retries it",
		"the simulation begins at " + begin().Format("2006-01-02T15:04:05Z07:00") + ", to which pausedUntil is compared, with an empty cluster",
	}
}
