package query

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/plural"
)

// judge says of each result, in a sentence, what the candidate does beside what it is compared with, and beside the first candidate.
func judge(results []WhatIfResult) {
	for i := range results {
		r := &results[i]
		r.Verdict = fmt.Sprintf("%s, against %s: ", r.Candidate, SideName(r.Against)) + r.beside()
		if i > 0 {
			r.AgainstFirst = fmt.Sprintf("%s, against %s: ", r.Candidate, results[0].Candidate) + cmp.Or(beside(&results[0].Sides[0], &r.Sides[0], ""), "no difference in retries, jobs and cost")
		}
	}
}

// beside is what the candidate does beside what it is compared with.
func (r *WhatIfResult) beside() string {
	if r.Compared+r.Units == 0 {
		if r.HistoryBegan == 0 {
			return "nothing to compare: the history is empty"
		}
		return fmt.Sprintf("nothing to compare: no failed run lies in what is counted, of a history that begins %s and was read to %s", TimeText(r.HistoryBegan), TimeText(r.HistoryEnded))
	}
	if r.Differences() == 0 {
		return "no difference: every failed run is decided alike"
	}
	both := ""
	if r.RetriesMore > 0 && r.RetriesFewer > 0 {
		both = fmt.Sprintf(" (%d more, %d fewer)", r.RetriesMore, r.RetriesFewer)
	}
	return cmp.Or(beside(&r.Sides[1], &r.Sides[0], both), "no difference in retries, jobs and cost; decisions differ otherwise")
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

// beside says what one side does that the other does not; "": nothing. both says of its retries how many are more and how many
// are fewer, if some are either.
func beside(from, to *whatif.Side, both string) string {
	var parts []string
	if n := changeOf(float64(from.Retries), float64(to.Retries), 0); n+both != "" {
		parts = append(parts, "retries "+cmp.Or(n, "as many")+" failed runs"+both)
	}
	jobs := succeeding(from, to)
	cost := costing(from, to)
	if len(parts)+len(jobs) == 0 && strings.HasPrefix(cost, "costs as much") {
		return ""
	}
	return strings.Join(append(parts, cmp.Or(jobs, "as many jobs succeed"), cost), "; ")
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
	lacks := "" // why more retries may leave fewer successes there, as of members whose group they end
	if to.Succeeded < from.Succeeded && to.Estimated > from.Estimated {
		lacks = fmt.Sprintf(", which lacks the end of %s", plural.Of(to.Estimated-from.Estimated, "more job"))
	}
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
		return fmt.Sprintf("about %s jobs succeed (an estimate, partly from as few as %s; %s in the history%s)", about, plural.Of(cases, "case"), cmp.Or(inHistory, "as many"), lacks)
	default:
		return fmt.Sprintf("about %s jobs succeed (an estimate; %s in the history%s)", about, cmp.Or(inHistory, "as many"), lacks)
	}
}

// costing says how much more the runs of the history cost that took place behind the retries: in hours of GPUs, or of cores if
// these are as many, or in runs.
func costing(from, to *whatif.Side) string {
	a, b := &from.Held, &to.Held
	if a.Runs+b.Runs > 0 && !a.Known() && !b.Known() {
		return "what it costs is unknown"
	}
	text := cmp.Or(hoursMore(a.GPUHours, b.GPUHours, "GPU-hours"), hoursMore(a.CPUHours, b.CPUHours, "core-hours"))
	if text == "" {
		if text = changeOf(float64(from.Runs), float64(to.Runs), 0); text != "" {
			text = "as many hours of GPUs and cores, in " + text + " runs"
		}
	}
	text = cmp.Or(text, "costs as much")
	if n := a.Unknown + b.Unknown; n > 0 {
		text += fmt.Sprintf(", without %s of which that is unknown", plural.Of(n, "run"))
	}
	if from.Estimated+to.Estimated > 0 {
		text += ", without retries that did not take place"
	}
	return text
}

// hoursMore says by which part the hours are more or fewer, and how many they are, with three digits; "": as many.
func hoursMore(from, to float64, of string) string {
	before, now, part := hoursText(from), hoursText(to), math.Round(100*math.Abs(to/from-1))
	more := "more"
	switch {
	case before == now:
		return ""
	case from == 0:
		return fmt.Sprintf("costs %s %s instead of none", now, of)
	case to < from:
		more = "fewer"
	}
	percent := "less than 1"
	if part >= 1 {
		percent = fmt.Sprintf("%.0f", part)
	}
	return fmt.Sprintf("costs %s %% %s %s (%s instead of %s)", percent, more, of, now, before)
}

func hoursText(hours float64) string {
	switch {
	case hours > 0 && hours < .0005:
		return "<0.001"
	case hours >= 100:
		return fmt.Sprintf("%.0f", hours)
	}
	return fmt.Sprintf("%.3g", hours)
}
