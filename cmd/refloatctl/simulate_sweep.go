package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/refloat/refloat/cmd/internal/show"
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

// runSweep compares the candidates at each point.
func runSweep(ctx context.Context, w io.Writer, f simulateFlags, candidates []simulate.Candidate, in *simulated, workload *simulate.Workload) error {
	s, err := parseSweep(f.sweep)
	if err != nil {
		return err
	}
	if workload.Given != nil {
		return usageError{errors.New("--sweep: only a generated workload has a load and chances to multiply: omit --workload-from and --trace")}
	}
	var points []text.SweepPoint
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
			points = append(points, text.SweepPoint{Record: "SweepPoint", Load: load, Failures: failures, Comparisons: simulate.Compare(results)})
		}
	}
	if f.output == show.FormJSON {
		enc := show.JSONLines(w)
		for i := range points {
			err = errors.Join(err, enc.Encode(points[i]))
		}
		return err
	}
	return text.Sweep(w, points)
}
