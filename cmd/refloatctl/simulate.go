package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/cmd/internal/text"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/simulate"
	simulatereport "github.com/refloat/refloat/internal/simulate/report"
	"github.com/refloat/refloat/internal/suggest"
)

type simulateFlags struct {
	policies, set, sweep       []string
	cluster, workload, example string
	seed                       uint64
	seeds, jobs, parallel      int
	within                     time.Duration
	output, html, save         string
	simulateInputs
	client // of generations
}

func newSimulate() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate --policies PATH,… [--cluster FILE] [--workload FILE] [--seed N] [--seeds N]",
		Short: "Simulate a cluster in virtual time, and show what policies do to it",
		Long: `Run a generated workload on a cluster in virtual time: jobs arrive, Armada's scheduling
algorithm places and preempts them, runs fail by a failure model, nodes and zones have
outages, and the policies decide each failed run exactly as they would live. Shows what
becomes of the jobs, how long they wait and take, and what the retries cost.

Each path of --policies is a candidate, and so is a generation of the policies log. Under one seed all of them see the same jobs and
the same luck; --seeds N repeats everything under N seeds and shows medians with confidence
intervals, and whether candidates differ from the first one by more than chance.

In place of the workload, a recorded history can run again (--workload-from: its jobs, and
its runs as far as it shows them, on the nodes that it names), or a trace (--trace). --fit
prints a workload whose chances, run times and arrivals are fitted to a history.

Without files, a default cluster and a default workload apply, with the queues to which
the policies are bound. --example prints them, to be edited. What a retry would have done
is a model: the output says what it assumes. One seed always gives the same output.

Exit codes: 0 done, 1 a policy file has problems, 2 usage, 3 a file could not be read.`,
		Example: `  refloatctl simulate --policies examples/policies
  refloatctl simulate --policies main/policies,my/policies
  refloatctl simulate --policies my/policies --seed 7 -o json | jq '.failures[]?'
  refloatctl simulate --policies my/policies --workload-from history.jsonl.gz
  refloatctl simulate --fit history.jsonl.gz > workload.yaml
  refloatctl simulate --policies my/policies --trace pods.csv.gz --cluster-from nodes.csv.gz --load 2
  refloatctl simulate --example cluster > cluster.yaml`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags().Changed("jobs"), cmd.Flags().Changed("seeds")); err != nil {
				return err
			}
			if f.example != "" {
				text := map[string]func() string{"cluster": simulate.DefaultCluster, "workload": simulate.DefaultWorkload}[f.example]
				_, err := io.WriteString(cmd.OutOrStdout(), text())
				return err
			}
			if f.fit != "" {
				return printFit(cmd, f.fit)
			}
			return runSimulate(cmd, f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.policies, "policies", nil, "candidates: policy files or directories of them, or, with --data or --server, a generation such as generation:41 or generation:24h, or now (required)")
	flags.StringArrayVar(&f.set, "set", nil, "field to change in a copy of every candidate, such as policies.infra.rules[lost].retryLimit=2; may be repeated")
	flags.StringVar(&f.cluster, "cluster", "", "file of the cluster (default: a built-in one)")
	flags.StringVar(&f.workload, "workload", "", "file of the workload (default: a built-in one)")
	flags.StringVar(&f.example, "example", "", "print the built-in file instead: cluster or workload")
	flags.Uint64Var(&f.seed, "seed", 1, "first seed")
	flags.IntVar(&f.seeds, "seeds", 0, "number of seeds (default 1, and 20 to compare candidates)")
	flags.DurationVar(&f.within, "within", 0, "how long after its submission a job counts as done in time (default: a quarter of the workload's giveUp)")
	flags.IntVar(&f.jobs, "jobs", 0, "number of jobs (default: that of the workload)")
	flags.IntVar(&f.parallel, "parallel", runtime.GOMAXPROCS(0), "number of simulations at once")
	flags.StringVar(&f.html, "html", "", "write a page with pictures to this file, too")
	flags.StringArrayVar(&f.sweep, "sweep", nil, "compare candidates at several loads and rates of failures: load=0.5,1,2 or failures=0.5,1,2; may be repeated for both")
	flags.StringVar(&f.save, "save", "", "write the jobs, runs and decisions of the first candidate under the first seed into a new job database, which export, get and top read with --job-db")
	f.simulateInputs.bind(cmd)
	f.client.bind(cmd)
	addOutput(cmd, &f.output)
	return cmd
}

// check checks the flags; jobs and seeds say that --jobs and --seeds are given.
func (f *simulateFlags) check(jobs, seeds bool) error {
	switch {
	case f.example != "" && f.example != "cluster" && f.example != "workload":
		return usageError{suggest.Unknown("--example", f.example, "cluster", "workload")}
	case f.example != "" || f.fit != "":
		return nil
	case len(f.policies) == 0:
		return usageError{errors.New("--policies PATH is required: a policy file or a directory of policy files")}
	case seeds && (f.seeds < 1 || f.seeds > 10_000):
		return usageError{fmt.Errorf("--seeds %d: want 1 to 10000", f.seeds)}
	case len(f.sweep) > 0 && (f.save != "" || f.html != ""):
		return usageError{errors.New("--sweep compares headlines: omit --save and --html")}
	case f.within < 0:
		return usageError{fmt.Errorf("--within %v: want a time above 0", f.within)}
	case f.parallel < 1:
		return usageError{fmt.Errorf("--parallel %d: want 1 or more", f.parallel)}
	case jobs && f.jobs < 1:
		return usageError{fmt.Errorf("--jobs %d: want 1 or more", f.jobs)}
	}
	return f.checkInputs()
}

// seedsToCompare is how many seeds candidates are compared under, if nothing else is said.
const seedsToCompare = 20

func runSimulate(cmd *cobra.Command, f simulateFlags) error {
	var candidates []simulate.Candidate
	for _, path := range f.policies {
		p, err := candidatePolicies(cmd, "--policies", path, func(read func(context.Context, pb.PoliciesClient) error) error {
			return f.reading(cmd.Context(), read)
		})
		if err != nil {
			return err
		}
		candidates = append(candidates, simulate.Candidate(p))
	}
	if len(f.set) > 0 {
		for _, c := range slices.Clone(candidates) {
			for _, field := range f.set {
				set, err := c.Set.Assign(field)
				if err != nil {
					return usageError{fmt.Errorf("--set %w", err)}
				}
				c.Set = set
			}
			c.Name = query.WithFields(c.Name, f.set)
			candidates = append(candidates, c)
		}
	}
	if f.seeds == 0 {
		f.seeds = 1
		if len(candidates) > 1 || len(f.sweep) > 0 {
			f.seeds = seedsToCompare
		}
	}
	in, err := f.inputs(cmd.Context())
	if err != nil {
		return err
	}
	cluster, workload := in.cluster.WithQueues(candidates...), in.workload
	if f.jobs > 0 {
		workload.Jobs = f.jobs
	}
	if err := simulate.Check(cluster, workload); err != nil {
		return usageError{err}
	}
	if f.within > workload.GiveUp {
		return usageError{fmt.Errorf("--within %v: the simulation ends %v after the last submission (giveUp), so that nobody knows what would be done by then: give a shorter time, or a longer giveUp", f.within, workload.GiveUp)}
	}
	if len(f.sweep) > 0 {
		out := bufio.NewWriter(cmd.OutOrStdout())
		return errors.Join(runSweep(cmd.Context(), out, f, candidates, in, workload), out.Flush())
	}
	if f.save != "" {
		if err := writeSimulated(cmd.Context(), f.save, simulate.Options{Candidate: candidates[0], Cluster: cluster, Workload: workload, Seed: f.seed}); err != nil {
			return err
		}
	}
	results, err := simulateAll(cmd.Context(), f, candidates, cluster, workload)
	if err != nil {
		return err
	}
	if f.html != "" {
		if err := writePage(f.html, results, in.allAssumed()); err != nil {
			return err
		}
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if f.output == show.FormJSON {
		return errors.Join(writeSimulations(out, results, in.allAssumed()), out.Flush())
	}
	compared := simulate.Compare(results)
	for i := range compared[1:] {
		fmt.Fprintln(out, query.OneLine(compared[i+1].Verdict))
	}
	for _, of := range results {
		if len(results) > 1 {
			fmt.Fprintln(out)
		}
		if err := text.Simulation(out, of[0], f.seeds); err != nil {
			return err
		}
	}
	if len(results) > 1 || f.seeds > 1 {
		if err := text.Comparisons(out, compared); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "\nassumed:")
	for _, a := range in.allAssumed() {
		fmt.Fprintf(out, "- %s\n", a)
	}
	return out.Flush()
}

func (f *simulateFlags) read() (*simulate.Cluster, *simulate.Workload, error) {
	texts := [2][]byte{[]byte(simulate.DefaultCluster()), []byte(simulate.DefaultWorkload())}
	for i, path := range []string{f.cluster, f.workload} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		texts[i] = text
	}
	cluster, err := simulate.ReadCluster(texts[0])
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("%s: %w", f.cluster, err)}
	}
	workload, err := simulate.ReadWorkload(texts[1])
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("%s: %w", f.workload, err)}
	}
	return cluster, workload, nil
}

// simulateAll simulates each candidate under each seed. The results do not depend on the number at once.
func simulateAll(ctx context.Context, f simulateFlags, candidates []simulate.Candidate, cluster *simulate.Cluster, workload *simulate.Workload) ([][]*simulate.Result, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(f.parallel)
	results := make([][]*simulate.Result, len(candidates))
	for i, c := range candidates {
		results[i] = make([]*simulate.Result, f.seeds)
		for n := range f.seeds {
			group.Go(func() (err error) {
				results[i][n], err = simulate.Run(ctx, simulate.Options{Candidate: c, Cluster: cluster, Workload: workload, Seed: f.seed + uint64(n), Within: f.within})
				return err
			})
		}
	}
	return results, group.Wait()
}

// simulationJSON is a line of `simulate -o json`: the result of one candidate under one seed.
type simulationJSON struct {
	Record string `json:"record"` // Simulation
	*simulate.Result
	Assumed []string `json:"assumed"`
}

// comparisonJSON is a line of `simulate -o json` if there are several candidates or seeds.
type comparisonJSON struct {
	Record string `json:"record"` // Comparison
	simulate.Comparison
}

func writeSimulations(w io.Writer, results [][]*simulate.Result, assumed []string) (err error) {
	enc := show.JSONLines(w)
	for _, of := range results {
		for _, r := range of {
			err = errors.Join(err, enc.Encode(simulationJSON{"Simulation", r, assumed}))
		}
	}
	if len(results) > 1 || len(results[0]) > 1 {
		for _, c := range simulate.Compare(results) {
			err = errors.Join(err, enc.Encode(comparisonJSON{"Comparison", c}))
		}
	}
	return err
}

// writePage writes the results as an HTML page. A page that cannot be made leaves the file as it was.
func writePage(path string, results [][]*simulate.Result, assumed []string) error {
	var page bytes.Buffer
	if err := simulatereport.Write(&page, results, assumed); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return os.WriteFile(path, page.Bytes(), 0o644)
}
