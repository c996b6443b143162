package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/simulate"
	past "github.com/refloat/refloat/internal/simulate/history"
	"github.com/refloat/refloat/internal/simulate/trace"
)

// simulateInputs say where cluster and workload come from, if not from their files.
type simulateInputs struct {
	workloadFrom, clusterFrom, fit, trace string
	load                                  float64
}

func (f *simulateInputs) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.workloadFrom, "workload-from", "", "history to run again: a recording, or a data directory or its events log")
	flags.StringVar(&f.clusterFrom, "cluster-from", "", "history whose nodes are the cluster (default: that of --workload-from), or a CSV file of a trace's nodes")
	flags.StringVar(&f.fit, "fit", "", "history to which to fit a workload, which is printed with confidence intervals")
	flags.StringVar(&f.trace, "trace", "", "trace of pods as workload: CSV, may be compressed with gzip")
	flags.Float64Var(&f.load, "load", 1, "with --trace: how many times as fast jobs arrive")
}

func (f *simulateFlags) checkInputs() error {
	switch {
	case f.workloadFrom != "" && (f.workload != "" || f.trace != ""):
		return usageError{errors.New("--workload-from: the history is the workload: omit --workload and --trace")}
	case f.clusterFrom != "" && f.cluster != "":
		return usageError{errors.New("give either --cluster or --cluster-from")}
	case f.trace != "" && f.cluster == "" && f.clusterFrom == "":
		return usageError{errors.New("--trace needs a cluster: give --cluster-from NODES.csv, the trace's nodes, or --cluster FILE")}
	case f.load != 1 && f.trace == "":
		return usageError{errors.New("--load is for --trace; for other workloads, change jobsPerHour")}
	case f.workloadFrom != "" && f.jobs > 0:
		return usageError{errors.New("--jobs is for generated workloads and traces; a history is simulated as a whole")}
	}
	return nil
}

// simulated is what is simulated, and what its sources assume.
type simulated struct {
	cluster  *simulate.Cluster
	workload *simulate.Workload
	assumed  []string
}

func (f *simulateFlags) inputs(ctx context.Context) (*simulated, error) {
	cluster, workload, err := f.read()
	if err != nil {
		return nil, err
	}
	in := &simulated{cluster: cluster, workload: workload}
	var seen *past.History
	add := func(more []string) { in.assumed = append(in.assumed, more...) }
	if f.workloadFrom != "" {
		if seen, err = readHistory(ctx, f.workloadFrom); err != nil {
			return nil, err
		}
		var more []string
		in.workload, more = seen.Workload()
		add(more)
	}
	if f.trace != "" {
		file, err := os.Open(f.trace)
		if err != nil {
			return nil, err
		}
		pods, more, err := trace.Pods(file, f.trace, f.load)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, usageError{err}
		}
		trace.WithFailures(pods, workload)
		if in.workload = pods; f.jobs > 0 {
			pods.Given = pods.Given[:min(f.jobs, len(pods.Given))]
		}
		add(more)
	}
	if err := f.clusterOf(ctx, in, seen); err != nil {
		return nil, err
	}
	in.cluster = in.cluster.For(in.workload)
	return in, nil
}

// clusterOf sets the cluster, if it is not one of a file.
func (f *simulateFlags) clusterOf(ctx context.Context, in *simulated, seen *past.History) (err error) {
	var more []string
	switch {
	case strings.HasSuffix(strings.TrimSuffix(f.clusterFrom, ".gz"), ".csv"):
		file, err := os.Open(f.clusterFrom)
		if err != nil {
			return err
		}
		in.cluster, more, err = trace.Nodes(file, f.clusterFrom)
		if err := errors.Join(err, file.Close()); err != nil {
			return usageError{err}
		}
		in.assumed = append(in.assumed, more...)
		return nil
	case f.clusterFrom != "":
		if seen, err = readHistory(ctx, f.clusterFrom); err != nil {
			return err
		}
	case seen == nil || f.cluster != "":
		return nil
	}
	in.cluster, more = seen.Cluster()
	in.assumed = append(in.assumed, more...)
	if len(in.cluster.Nodes) == 0 {
		return usageError{fmt.Errorf("%s names no node: give --cluster FILE", seen.Name())}
	}
	if in.workload.Given == nil {
		in.cluster.Queues = nil // those of the candidates
		return nil
	}
	fitting, left, err := in.workload.Fitting(in.cluster)
	if err != nil {
		return usageError{err}
	}
	if len(fitting.Given) == 0 {
		return usageError{fmt.Errorf("no job of the workload fits the nodes of %s: give --cluster FILE", seen.Name())}
	}
	in.workload = fitting
	if n := len(left); n > 0 {
		in.assumed = append(in.assumed, fmt.Sprintf("%s would fit no node even if it were empty, and %s left out: %s",
			plural.Of(n, "job"), map[bool]string{true: "is", false: "are"}[n == 1], query.OneLine(strings.Join(left[:min(n, 5)], ", "))))
	}
	return nil
}

// readHistory reads a recording, or the events log in a directory.
func readHistory(ctx context.Context, path string) (_ *past.History, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if events := app.Dir(path).Events(); isDir(events) {
			path = events
		}
		log, closeLog, err := app.OpenEvents(path)
		if err != nil {
			return nil, err
		}
		h, err := past.ReadLog(ctx, log, filepath.Clean(path))
		return h, errors.Join(err, closeLog())
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	h, err := past.Read(file, path)
	if err := errors.Join(err, file.Close()); err != nil {
		if _, io := errors.AsType[*fs.PathError](err); io {
			return nil, err
		}
		return nil, usageError{err}
	}
	return h, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// printFit prints the workload that is fitted to a history.
func printFit(cmd *cobra.Command, path string) error {
	h, err := readHistory(cmd.Context(), path)
	if err != nil {
		return err
	}
	text, err := h.Fit()
	if err != nil {
		return usageError{err}
	}
	_, err = io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// allAssumed is what every result assumes, and what the sources do.
func (in *simulated) allAssumed() []string {
	return slices.Concat(in.assumed, simulate.Assumptions())
}
