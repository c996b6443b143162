package text

import (
	"cmp"
	"fmt"
	"io"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/simulate"
)

// Comparisons prints a table of the first candidate, and one more for each other candidate beside it. Candidates
// are letters there, since their names are paths; tables stay within 100 columns.
func Comparisons(w io.Writer, all []simulate.Comparison) error {
	fmt.Fprintf(w, "\nmedians of %s", plural.Of(all[0].Seeds, "seed"))
	if all[0].Headline[0].Low != nil {
		fmt.Fprint(w, " (with their 95% confidence intervals)")
	} else {
		fmt.Fprint(w, ", too few for confidence intervals: 6 or more have them")
	}
	if len(all) > 1 {
		fmt.Fprint(w, "; * marks differences that are hardly chance")
	}
	fmt.Fprintln(w)
	for i := range all {
		fmt.Fprintf(w, "  %s: %s\n", simulate.Letter(i), query.OneLine(all[i].Candidate))
	}
	for i := range all {
		if i == 0 && len(all) > 1 {
			continue
		}
		if err := comparison(w, all, i); err != nil {
			return err
		}
	}
	return nil
}

func comparison(w io.Writer, all []simulate.Comparison, i int) error {
	first, own := &all[0], &all[i]
	t := comparisonTable(w, "HEADLINE", i)
	for m := range own.Headline {
		compareRow(t, own.Headline[m].Name, &first.Headline[m], &own.Headline[m])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for m := range own.Headline {
		if d := own.Headline[m].Difference; d != nil {
			fmt.Fprintf(w, "%s: %s\n", own.Headline[m].Name, conclusion(d, own.Seeds, simulate.Letter(0), simulate.Letter(i)))
		}
	}
	t = comparisonTable(w, "OTHER MEASURES", i)
	for m := range own.Measures {
		compareRow(t, own.Measures[m].Name, &first.Measures[m], &own.Measures[m])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, by := range []simulate.PartKind{simulate.ByQueue, simulate.ByCause, simulate.ByRule} {
		t, left := comparisonTable(w, map[simulate.PartKind]string{simulate.ByQueue: "BY QUEUE", simulate.ByCause: "BY CAUSE", simulate.ByRule: "BY RULE"}[by], i), 0
		for p := range own.Parts {
			part := &own.Parts[p]
			if part.By != by {
				continue
			}
			for m := range part.Measures {
				of := &part.Measures[m]
				if always(&of.Interval, 0) && always(&first.Parts[p].Measures[m].Interval, 0) || of.Difference != nil && always(&of.Difference.Interval, 0) {
					left++
					continue
				}
				compareRow(t, show.Cut(query.OneLine(part.Name()), 22)+": "+of.Name, &first.Parts[p].Measures[m], of)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if left > 0 {
			fmt.Fprintf(w, "(%s left out, equal under every seed or 0: -o json has them)\n", plural.Of(left, "row"))
		}
	}
	return nil
}

// conclusion says what so many seeds say about a measure of the headline.
func conclusion(d *simulate.Difference, seeds int, first, own string) string {
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

// always says whether a number was the same under every seed.
func always(i *simulate.Interval, v float64) bool {
	return i.Median == v && i.Mean == v && (i.Low == nil || *i.Low == v && *i.High == v)
}

func comparisonTable(w io.Writer, rows string, i int) *show.Table {
	fmt.Fprintln(w)
	if i == 0 {
		return show.NewTable(w, rows, simulate.Letter(0))
	}
	return show.NewTable(w, rows, simulate.Letter(0), simulate.Letter(i), simulate.Letter(i)+" - "+simulate.Letter(0))
}

func compareRow(t *show.Table, name string, first, own *simulate.Measure) {
	cells := []string{show.Cut(name, 46), first.String()}
	if d := own.Difference; d != nil {
		cells = append(cells, own.String(), starred(d))
	}
	t.Row(cells...)
}

// starred marks a difference that is hardly chance.
func starred(d *simulate.Difference) string {
	if d.Differs {
		return d.String() + " *"
	}
	return d.String()
}

// SweepPoint is a line of `simulate --sweep -o json`: how the candidates compare at one load and rate of failures.
type SweepPoint struct {
	Record      string                `json:"record"` // SweepPoint
	Load        float64               `json:"load"`
	Failures    float64               `json:"failures"`
	Comparisons []simulate.Comparison `json:"comparisons"`
}

// Sweep prints a table for each measure of the headline, and whether the order of the candidates is the same everywhere.
func Sweep(w io.Writer, points []SweepPoint) error {
	first := points[0].Comparisons
	fmt.Fprintf(w, "medians of %s at each load and rate of failures, as multiples of the workload's; * marks differences that are hardly chance\n", plural.Of(first[0].Seeds, "seed"))
	heads := []string{"LOAD", "FAILURES", simulate.Letter(0)}
	for i := range first {
		fmt.Fprintf(w, "  %s: %s\n", simulate.Letter(i), query.OneLine(first[i].Candidate))
		if i > 0 {
			heads = append(heads, simulate.Letter(i)+" - "+simulate.Letter(0))
		}
	}
	for m := range first[0].Headline {
		fmt.Fprintf(w, "\n%s\n", first[0].Headline[m].Name)
		t := show.NewTable(w, heads...)
		for i := range points {
			p := &points[i]
			cells := []string{fmt.Sprint(p.Load), fmt.Sprint(p.Failures), p.Comparisons[0].Headline[m].String()}
			for _, c := range p.Comparisons[1:] {
				cells = append(cells, starred(c.Headline[m].Difference))
			}
			t.Row(cells...)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for i := range first[1:] {
			fmt.Fprintln(w, ranking(points, m, i+1))
		}
	}
	return nil
}

// ranking says whether a candidate is on one side of the first one at all points where they differ.
func ranking(points []SweepPoint, measure, candidate int) string {
	above, below := 0, 0
	for i := range points {
		d := points[i].Comparisons[candidate].Headline[measure].Difference
		switch {
		case !d.Differs:
		case cmp.Compare(d.Median, 0) > 0:
			above++
		default:
			below++
		}
	}
	a, b, all := simulate.Letter(0), simulate.Letter(candidate), plural.Of(len(points), "point")
	switch {
	case above == 0 && below == 0:
		return fmt.Sprintf("%s and %s are told apart at none of %s", b, a, all)
	case below == 0:
		return fmt.Sprintf("%s is above %s at %d of %s, and below it at none: the order holds", b, a, above, all)
	case above == 0:
		return fmt.Sprintf("%s is below %s at %d of %s, and above it at none: the order holds", b, a, below, all)
	}
	return fmt.Sprintf("%s is above %s at %d of %s, and below it at %d: the order depends on load and failures", b, a, above, all, below)
}
