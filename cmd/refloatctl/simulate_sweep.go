package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/simulate"
	"github.com/refloat/refloat/internal/suggest"
)

// sweep is what --sweep multiplies: how fast jobs arrive, and how often runs fail.
type sweep struct{ load, failures []float64 }

// maxFactor limits both factors.
const maxFactor = 1000

// parseSweep reads load=0.5,1,2 and failures=0.5,1,2; what is not given stays as it is.
func parseSweep(fields []string) (s sweep, err error) {
	for _, field := range fields {
		name, list, _ := strings.Cut(field, "=")
		to := &s.load
		switch name {
		case "load":
		case "failures":
			to = &s.failures
		default:
			return s, usageError{fmt.Errorf("--sweep %w", suggest.Unknown("factor", name, "load", "failures"))}
		}
		for text := range strings.SplitSeq(list, ",") {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil || !(v >= 1.0/maxFactor && v <= maxFactor) {
				return s, usageError{fmt.Errorf("--sweep %s: %q: want numbers from %v to %d with commas between them, such as %s=0.5,1,2", field, text, 1.0/maxFactor, maxFactor, name)}
			}
			*to = append(*to, v)
		}
	}
	if s.load == nil {
		s.load = []float64{1}
	}
	if s.failures == nil {
		s.failures = []float64{1}
	}
	return s, nil
}

// sweepPoint is a line of `simulate --sweep -o json`: how the candidates compare at one load and rate of failures.
type sweepPoint struct {
	Record      string                `json:"record"` // SweepPoint
	Load        float64               `json:"load"`
	Failures    float64               `json:"failures"`
	Comparisons []simulate.Comparison `json:"comparisons"`
}

// runSweep compares the candidates at each point.
func runSweep(ctx context.Context, w io.Writer, f simulateFlags, candidates []simulate.Candidate, in *simulated, workload *simulate.Workload) error {
	s, err := parseSweep(f.sweep)
	if err != nil {
		return err
	}
	if workload.Given != nil {
		return usageError{errors.New("--sweep: only a generated workload has a load and chances to multiply: omit --workload-from and --trace")}
	}
	var points []sweepPoint
	for _, load := range s.load {
		for _, failures := range s.failures {
			cluster, scaled := in.cluster.WithQueues(candidates...).Scaled(failures), workload.Scaled(load, failures)
			if err := simulate.Check(cluster, scaled); err != nil {
				return usageError{err}
			}
			results, err := simulateAll(ctx, f, candidates, cluster, scaled)
			if err != nil {
				return err
			}
			points = append(points, sweepPoint{"SweepPoint", load, failures, simulate.Compare(results)})
		}
	}
	if f.output == outputJSON {
		enc := jsonLines(w)
		for i := range points {
			err = errors.Join(err, enc.Encode(points[i]))
		}
		return err
	}
	return printSweep(w, points)
}

// printSweep prints a table for each measure of the headline, and whether the order of the candidates is the same everywhere.
func printSweep(w io.Writer, points []sweepPoint) error {
	first := points[0].Comparisons
	fmt.Fprintf(w, "medians of %s at each load and rate of failures, as multiples of the workload's; * marks differences that are hardly chance\n", plural.Of(first[0].Seeds, "seed"))
	heads := []string{"LOAD", "FAILURES", letter(0)}
	for i := range first {
		fmt.Fprintf(w, "  %s: %s\n", letter(i), oneLine(first[i].Candidate))
		if i > 0 {
			heads = append(heads, letter(i)+" - "+letter(0))
		}
	}
	for m := range first[0].Headline {
		fmt.Fprintf(w, "\n%s\n", first[0].Headline[m].Name)
		t := newTable(w, heads...)
		for i := range points {
			p := &points[i]
			cells := []string{fmt.Sprint(p.Load), fmt.Sprint(p.Failures), p.Comparisons[0].Headline[m].String()}
			for _, c := range p.Comparisons[1:] {
				cells = append(cells, starred(c.Headline[m].Difference))
			}
			t.row(cells...)
		}
		if err := t.flush(); err != nil {
			return err
		}
		for i := range first[1:] {
			fmt.Fprintln(w, ranking(points, m, i+1))
		}
	}
	return nil
}

// ranking says whether a candidate is on one side of the first one at all points where they differ.
func ranking(points []sweepPoint, measure, candidate int) string {
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
	a, b, all := letter(0), letter(candidate), plural.Of(len(points), "point")
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
