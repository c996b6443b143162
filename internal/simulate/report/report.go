package report

import (
	"cmp"
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/simulate"
)

//go:embed page.html
var pageText string

type page struct {
	Colors      []template.CSS
	Seeds       string
	FewSeeds    string // why they are too few
	Decides     []verdict
	Headline    []string
	Candidates  []candidate
	Sections    []section
	Comparisons []titledTable
	Assumed     []string
}

type candidate struct {
	Letter, Name              string
	Headline                  []string
	Lost, Retries, Completion string
}

type section struct {
	Title, Lead string
	Figures     []figure
}

type figure struct {
	Title, Axes string
	SVG         template.HTML
	Legend      []legend
	Table       table
}

type legend struct {
	Name   string
	Color  int
	Dashed bool
}

type titledTable struct {
	Title string
	Table table
}

type table struct {
	Head []string
	Rows []row
}

type row struct {
	Name  string
	Cells []cell
}

type cell struct {
	Text    string
	Differs bool
}

// Write writes a page about the results of candidates, each with one result for each seed, in the same order, and about what they assume.
func Write(w io.Writer, results [][]*simulate.Result, assumed []string) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	p := page{Seeds: fmt.Sprintf("%s, the first is %d", plural.Of(len(results[0]), "seed"), results[0][0].Seed), Assumed: assumed}
	for _, color := range palette() {
		p.Colors = append(p.Colors, template.CSS(color))
	}
	compared := simulate.Compare(results)
	p.FewSeeds = simulate.FewSeeds(compared[0].Seeds)
	for i := 1; i < len(compared); i++ {
		p.Decides = append(p.Decides, verdictOf(i, &compared[i]))
	}
	for m := range compared[0].Headline {
		p.Headline = append(p.Headline, compared[0].Headline[m].Name)
	}
	for i := range compared {
		p.Candidates = append(p.Candidates, candidateOf(i, &compared[i]))
	}
	p.Comparisons = comparisons(compared)
	for _, build := range []func([][]*simulate.Result, []simulate.Comparison) section{distributions, overTime, byCause, byRule} {
		p.Sections = append(p.Sections, build(results, compared))
	}
	return t.Execute(w, &p)
}

func candidateOf(i int, c *simulate.Comparison) candidate {
	of := func(name string) float64 {
		for m := range c.Measures {
			if c.Measures[m].Name == name {
				return c.Measures[m].Median
			}
		}
		return 0
	}
	number := func(name string) string { return fmt.Sprintf("%.1f", of(name)) }
	out := candidate{Letter: simulate.Letter(i), Name: clean(c.Candidate), Lost: number("jobs lost"), Retries: number("retries"), Completion: simulate.Seconds(of("completion p95, s"))}
	for m := range c.Headline {
		out.Headline = append(out.Headline, c.Headline[m].String())
	}
	return out
}

// verdict is what decides about a candidate: how it differs from the first one.
type verdict struct {
	Heading string
	Summary string
	// Headline has a sentence for each measure of the headline, with the difference.
	Headline []string
	Real     table // the other differences that are hardly chance
	Rest     string
}

func verdictOf(i int, c *simulate.Comparison) verdict {
	own, first := simulate.Letter(i), simulate.Letter(0)
	v := verdict{Heading: own + " against " + first, Summary: clean(c.Verdict), Real: table{Head: []string{"Measure", own + " − " + first, "Seeds that agree", "Chance"}}}
	for m := range c.Headline {
		of := &c.Headline[m]
		v.Headline = append(v.Headline, fmt.Sprintf("%s: %s %s; %s", of.Name, own+" − "+first, of.Difference, of.Difference.Conclusion(c.Seeds, first, own)))
	}
	type named struct {
		name string
		*simulate.Difference
	}
	var surest []named
	others := 0
	take := func(prefix string, measures []simulate.Measure) {
		for m := range measures {
			others++
			if d := measures[m].Difference; d.Differs {
				surest = append(surest, named{clean(prefix + measures[m].Name), d})
			}
		}
	}
	take("", c.Measures)
	for p := range c.Parts {
		take(c.Parts[p].Name()+": ", c.Parts[p].Measures)
	}
	slices.SortStableFunc(surest, func(a, b named) int { return cmp.Compare(a.Chance, b.Chance) }) // the surest first
	for _, d := range surest {
		v.Real.Rows = append(v.Real.Rows, row{d.name, []cell{{Text: d.String(), Differs: true}, {Text: fmt.Sprintf("%d of %d", d.Agree, c.Seeds)}, {Text: fmt.Sprintf("%.2g", d.Chance)}}})
	}
	v.Rest = fmt.Sprintf("%d of %d other measures differ by more than chance.", len(surest), others)
	return v
}

// comparisons are the tables of all measures: of everything, by queue, by cause and by rule.
func comparisons(all []simulate.Comparison) (out []titledTable) {
	head := []string{"Measure"}
	for i := range all {
		head = append(head, simulate.Letter(i))
		if i > 0 {
			head = append(head, simulate.Letter(i)+" − "+simulate.Letter(0))
		}
	}
	add := func(t *table, prefix string, measures func(*simulate.Comparison) []simulate.Measure) {
		for m, first := range measures(&all[0]) {
			r := row{Name: clean(prefix + first.Name)}
			for i := range all {
				of := &measures(&all[i])[m]
				r.Cells = append(r.Cells, cell{Text: of.String()})
				if d := of.Difference; d != nil {
					star := cell{Text: d.String(), Differs: d.Differs}
					if star.Differs {
						star.Text += " *"
					}
					r.Cells = append(r.Cells, star)
				}
			}
			t.Rows = append(t.Rows, r)
		}
	}
	for _, of := range []struct {
		title    string
		measures func(*simulate.Comparison) []simulate.Measure
	}{
		{"Headline", func(c *simulate.Comparison) []simulate.Measure { return c.Headline }},
		{"All jobs", func(c *simulate.Comparison) []simulate.Measure { return c.Measures }},
	} {
		t := table{Head: head}
		add(&t, "", of.measures)
		out = append(out, titledTable{of.title, t})
	}
	for _, kind := range []struct {
		by    simulate.PartKind
		title string
	}{{simulate.ByQueue, "By queue"}, {simulate.ByCause, "By cause"}, {simulate.ByRule, "By rule"}} {
		t := table{Head: head}
		for p := range all[0].Parts {
			if part := &all[0].Parts[p]; part.By == kind.by {
				add(&t, part.Name()+": ", func(c *simulate.Comparison) []simulate.Measure { return c.Parts[p].Measures })
			}
		}
		out = append(out, titledTable{kind.title, t})
	}
	return out
}
