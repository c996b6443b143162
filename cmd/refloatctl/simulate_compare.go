package main

import (
	"fmt"
	"io"

	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/simulate"
)

// printComparisons prints a table of the first candidate, and one more for each other candidate beside it. Candidates
// are letters there, since their names are paths; tables stay within 100 columns.
func printComparisons(w io.Writer, all []simulate.Comparison) error {
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
		fmt.Fprintf(w, "  %s: %s\n", letter(i), oneLine(all[i].Candidate))
	}
	for i := range all {
		if i == 0 && len(all) > 1 {
			continue
		}
		if err := printComparison(w, all, i); err != nil {
			return err
		}
	}
	return nil
}

// letter names a candidate: A to Z, then A1 to Z1, and so on.
func letter(i int) string {
	name := string(rune('A' + i%26))
	if i >= 26 {
		name += fmt.Sprint(i / 26)
	}
	return name
}

func printComparison(w io.Writer, all []simulate.Comparison, i int) error {
	first, own := &all[0], &all[i]
	t := comparisonTable(w, "HEADLINE", i)
	for m := range own.Headline {
		compareRow(t, own.Headline[m].Name, &first.Headline[m], &own.Headline[m])
	}
	if err := t.flush(); err != nil {
		return err
	}
	for m := range own.Headline {
		if d := own.Headline[m].Difference; d != nil {
			fmt.Fprintf(w, "%s: %s\n", own.Headline[m].Name, conclusion(d, own.Seeds, letter(0), letter(i)))
		}
	}
	t = comparisonTable(w, "OTHER MEASURES", i)
	for m := range own.Measures {
		compareRow(t, own.Measures[m].Name, &first.Measures[m], &own.Measures[m])
	}
	if err := t.flush(); err != nil {
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
				compareRow(t, cut(oneLine(part.Name()), 22)+": "+of.Name, &first.Parts[p].Measures[m], of)
			}
		}
		if err := t.flush(); err != nil {
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

func comparisonTable(w io.Writer, rows string, i int) *table {
	fmt.Fprintln(w)
	if i == 0 {
		return newTable(w, rows, letter(0))
	}
	return newTable(w, rows, letter(0), letter(i), letter(i)+" - "+letter(0))
}

func compareRow(t *table, name string, first, own *simulate.Measure) {
	cells := []string{cut(name, 46), first.String()}
	if d := own.Difference; d != nil {
		cells = append(cells, own.String(), starred(d))
	}
	t.row(cells...)
}

// starred marks a difference that is hardly chance.
func starred(d *simulate.Difference) string {
	if d.Differs {
		return d.String() + " *"
	}
	return d.String()
}
