package query

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/plural"
)

// judge says of each result, in a sentence, what the candidate does beside what it is compared with, and beside the first candidate.
func judge(results []WhatIfResult) {
	for i := range results {
		r := &results[i]
		r.Verdict = fmt.Sprintf("%s, against %s: ", r.Candidate, SideName(r.Against)) + r.beside()
		if i > 0 {
			r.AgainstFirst = fmt.Sprintf("%s, against %s: ", r.Candidate, results[0].Candidate) + cmp.Or(beside(&results[0].Sides[0], &r.Sides[0]), "no difference in retries, jobs and cost")
		}
	}
}

// beside is what the candidate does beside what it is compared with.
func (r *WhatIfResult) beside() string {
	if r.Differences() == 0 {
		return "no difference: every failed run is decided alike"
	}
	return cmp.Or(beside(&r.Sides[1], &r.Sides[0]), "no difference in retries, jobs and cost; decisions differ otherwise")
}

// Verdicts are the sentences that say what the candidates do: of several, first what each does beside the first one.
func Verdicts(results []WhatIfResult) (list []string) {
	for i := range results {
		if results[i].AgainstFirst != "" {
			list = append(list, results[i].AgainstFirst)
		}
	}
	for i := range results {
		list = append(list, results[i].Verdict)
	}
	return list
}

// fewCases is a number of retries by which others are hardly estimated.
const fewCases = 10

// beside says what one side does that the other does not; "": nothing.
func beside(from, to *whatif.Side) string {
	var parts []string
	if n := changeOf(float64(from.Retries), float64(to.Retries), 0); n != "" {
		parts = append(parts, "retries "+n+" failed runs")
	}
	jobs := succeeding(from, to)
	cost := costing(&from.Held, &to.Held)
	if cost != "" && from.Estimated+to.Estimated > 0 {
		cost += ", without retries that did not take place"
	}
	if len(parts)+len(jobs)+len(cost) == 0 {
		return ""
	}
	return strings.Join(append(parts, cmp.Or(jobs, "as many jobs succeed"), cmp.Or(cost, "costs as much")), "; ")
}

// changeOf says how many more or fewer there are, with so many digits; "": as many.
func changeOf(from, to float64, digits int) string {
	unit := math.Pow10(digits)
	switch n := math.Round((to-from)*unit) / unit; {
	case n > 0:
		return fmt.Sprintf("%.*f more", digits, n)
	case n < 0:
		return fmt.Sprintf("%.*f fewer", digits, -n)
	}
	return ""
}

// succeeding says how many more jobs succeed, and what of that is estimated.
func succeeding(from, to *whatif.Side) string {
	inHistory := changeOf(float64(from.Succeeded), float64(to.Succeeded), 0)
	cases := uint64(math.MaxUint64)
	for _, e := range slices.Concat(from.Estimates, to.Estimates) {
		cases = min(cases, e.Of)
	}
	switch about := changeOf(from.Expected(), to.Expected(), 1); {
	case from.Estimated+to.Estimated == 0 && inHistory == "":
		return ""
	case from.Estimated+to.Estimated == 0:
		return inHistory + " jobs succeed"
	case cases == 0:
		if inHistory == "" && from.Estimated == to.Estimated {
			return ""
		}
		return fmt.Sprintf("%s jobs succeed in the history, and nothing tells what becomes of %d that end without their next retry, instead of %d", cmp.Or(inHistory, "as many"), to.Estimated, from.Estimated)
	case about == "":
		return ""
	case cases < fewCases:
		return fmt.Sprintf("about %s jobs succeed (an estimate, partly from as few as %s; %s in the history)", about, plural.Of(cases, "case"), cmp.Or(inHistory, "as many"))
	default:
		return fmt.Sprintf("about %s jobs succeed (an estimate; %s in the history)", about, cmp.Or(inHistory, "as many"))
	}
}

// costing says how many more resource-hours are held: of GPUs, or of cores if these are as many.
func costing(from, to *audit.Spent) string {
	if from.Runs+to.Runs > 0 && !from.Known() && !to.Known() {
		return "what it costs is unknown"
	}
	text := ""
	if n := changeOf(from.GPUHours, to.GPUHours, 1); n != "" {
		text = "costs " + n + " GPU-hours"
	} else if n := changeOf(from.CPUHours, to.CPUHours, 1); n != "" {
		text = "costs " + n + " core-hours"
	}
	if n := from.Unknown + to.Unknown; n > 0 && text != "" {
		text += fmt.Sprintf(", without %s of which that is unknown", plural.Of(n, "run"))
	}
	return text
}
