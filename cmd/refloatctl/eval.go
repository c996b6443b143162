package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/policy/policyfile"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

type evalFlags struct {
	policies                                                []string
	conditions                                              []string
	exitCode                                                int32
	container, reason, message, category, subcategory, node string
	podOOM                                                  bool
	runDuration                                             time.Duration
	job                                                     suite.Job
	unit                                                    unitFlags
	failures                                                int
	at, verify, output                                      string
}

// maxFailures limits the cost of --failures.
const maxFailures = 100_000

func newEval() *cobra.Command {
	var f evalFlags
	cmd := &cobra.Command{
		Use:   "eval -p PATH [--exit-code N] [--condition C]...",
		Short: "Decide one hypothetical failure",
		Long: `Decide one hypothetical failure by policy files, exactly as it would be decided live,
and explain the decision: the rules in order with the first matcher of each that did
not hold, the counts, and how the delay is computed. Nothing is written.

Without --queue, all policies of the files apply, in file order. With --queue, the
policies apply that the files bind to that queue.

With --failures N the job fails N times like this, each time when its retry may
start, and the last failure is shown. With --verify the exit code is 1 unless the
decision is the one given.

With --group-policy, decide instead what follows when a unit of a group fails: by the
restarts of its part, by the rules of the group policy, or by its default. --restarts
and related flags say what was used up before; --verify takes the action.`,
		Example: `  refloatctl eval -p examples/policies --exit-code 137 --condition OOMKilled
  refloatctl eval -p examples/policies --queue vision-train --exit-code 139 --failures 3
  refloatctl eval -p examples/policies/infra.yaml --condition Preempted --verify Retry
  refloatctl eval -p examples/policies --category infrastructure --subcategory gpu --node n17 -o json
  refloatctl eval -p examples/policies --group-policy training --restarts 10
  refloatctl eval -p examples/policies --group-policy training --message 'host is going down' --restarts 10 --verify RestartGroup`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(f.unit.check(cmd, f.verify), f.check()); err != nil {
				return err
			}
			return eval(cmd, f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.policies, "policies", "p", nil, "policy files, or directories of them (required)")
	flags.StringSliceVar(&f.conditions, "condition", nil, "condition of the failure: OOMKilled, Evicted, DeadlineExceeded, Preempted, Unschedulable, LeaseReturned or LeaseExpired")
	flags.Int32Var(&f.exitCode, "exit-code", 0, "exit code of the container")
	flags.StringVar(&f.container, "container", "", "name of the container (default main)")
	flags.StringVar(&f.reason, "reason", "", "reason of the container, such as Error")
	flags.StringVar(&f.message, "message", "", "termination message of the container")
	flags.BoolVar(&f.podOOM, "pod-oom", false, "the pod's reason is OOM, and no container is reported")
	flags.StringVar(&f.category, "category", "", "failure category, as the executor reports it")
	flags.StringVar(&f.subcategory, "subcategory", "", "failure subcategory")
	flags.StringVar(&f.node, "node", "", "node on which the run failed")
	flags.DurationVar(&f.runDuration, "run-duration", 0, "how long the run was running (default: it never was)")
	flags.StringVar(&f.job.Queue, "queue", "", "queue of the job")
	flags.StringSliceVar(&f.job.RetryPolicies, "retry-policy", nil, "policies named by the job's annotation")
	flags.StringSliceVar(&f.job.InitContainers, "init-container", nil, "names of the job's init containers")
	flags.BoolVar(&f.job.FailFast, "fail-fast", false, "the job has the fail-fast annotation")
	flags.IntVar(&f.job.Gang, "gang", 0, "gang cardinality of the job")
	flags.Int64Var(&f.job.GraceSeconds, "grace-seconds", 0, "terminationGracePeriodSeconds of the job")
	flags.IntVar(&f.failures, "failures", 1, "number of failures of the job; the last one is shown")
	flags.StringVar(&f.at, "at", "2026-01-01T00:00:00Z", "time of the first failure, for pausedUntil")
	flags.StringVar(&f.verify, "verify", "", "Retry or Fail: exit code 1 unless this is the decision (of a group: an action, such as RestartGroup, or None)")
	f.unit.bind(cmd)
	addOutput(cmd, &f.output)
	return cmd
}

func (f *evalFlags) check() error {
	switch {
	case len(f.policies) == 0:
		return usageError{errors.New("-p PATH is required: a policy file or a directory of policy files")}
	case f.failures < 1 || f.failures > maxFailures:
		return usageError{fmt.Errorf("--failures %d: use 1 to %d", f.failures, maxFailures)}
	case f.unit.policy == "" && f.verify != "" && f.verify != "Retry" && f.verify != "Fail":
		return usageError{suggest.Unknown("--verify", f.verify, "Retry", "Fail")}
	case f.job.Gang != 0 && f.job.Gang < 2:
		return usageError{fmt.Errorf("--gang %d: a gang has at least 2 jobs", f.job.Gang)}
	case f.subcategory != "" && f.category == "":
		return usageError{errors.New("--subcategory needs --category")}
	case f.runDuration < 0:
		return usageError{fmt.Errorf("--run-duration %v: use 0s or more", f.runDuration)}
	}
	return nil
}

// failure builds the failure that the flags describe.
func (f *evalFlags) failure(cmd *cobra.Command) (*suite.Failure, error) {
	out := &suite.Failure{PodOOM: f.podOOM, Category: f.category, Sub: f.subcategory, Node: f.node}
	for _, name := range f.conditions {
		c, ok := policy.ParseCondition(name)
		if !ok {
			fix := suggest.Fix(name, policy.Names(policy.OOMKilled, policy.LeaseExpired), "use OOMKilled, Evicted, DeadlineExceeded, Preempted, Unschedulable, LeaseReturned or LeaseExpired")
			return nil, usageError{fmt.Errorf("--condition %q: unknown condition; %s", name, fix)}
		}
		out.Conditions = append(out.Conditions, c)
	}
	if cmd.Flags().Changed("exit-code") || f.container != "" || f.reason != "" || f.message != "" {
		c := policy.Container{Name: cmp.Or(f.container, suite.MainContainer), ExitCode: f.exitCode, Reason: f.reason, Message: f.message}
		if !cmd.Flags().Changed("exit-code") {
			c.ExitCode = 1
		}
		out.Containers = []policy.Container{c}
	}
	if cmd.Flags().Changed("run-duration") {
		out.RunDuration = &f.runDuration
	}
	if err := out.Check(); err != nil {
		return nil, usageError{err}
	}
	return out, nil
}

func eval(cmd *cobra.Command, f evalFlags) error {
	failure, err := f.failure(cmd)
	if err != nil {
		return err
	}
	start, err := time.Parse(time.RFC3339Nano, f.at)
	if err != nil || start.Year() < 1970 || start.Year() > 2200 {
		return usageError{fmt.Errorf("--at %q: want an RFC 3339 time, such as 2026-12-01T06:00:00Z", f.at)}
	}
	set, queue, err := f.set(cmd)
	if err != nil {
		return err
	}
	if f.unit.policy != "" {
		return evalUnit(cmd, f, failure, set, queue)
	}
	f.job.Queue = queue
	trial, err := suite.NewTrial(set, f.job, start.UnixNano())
	if err != nil {
		return err
	}
	var out suite.Outcome
	at := start.UnixNano()
	for i := range f.failures {
		if out, err = trial.Fail(failure, at); err != nil {
			return err
		}
		if i+1 < f.failures && (out.Decision == nil || !out.Decision.Requeue) {
			fmt.Fprintf(cmd.ErrOrStderr(), "the job failed for good at failure %d of %d\n", i+1, f.failures)
			break
		}
		at = out.Decision.RetryAfter
	}
	if f.output == show.FormJSON {
		err = show.JSONLines(cmd.OutOrStdout()).Encode(outcomeJSON(&out))
	} else {
		printOutcome(cmd.OutOrStdout(), failure, &out)
	}
	if err != nil {
		return err
	}
	got := "Fail"
	if out.Decision.Requeue {
		got = "Retry"
	}
	return verified(cmd, f.verify, got)
}

// verified is a finding if --verify wants another outcome.
func verified(cmd *cobra.Command, want, got string) error {
	if want == "" || want == got {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "want %s, got %s\n", want, got)
	return errFinding
}

// allPolicies is the queue to which eval binds all policies.
const allPolicies = "all-policies-of-the-files"

// set reads the policies. Without --queue it binds all of them to a queue.
func (f *evalFlags) set(cmd *cobra.Command) (*policyfile.Set, string, error) {
	files, err := app.PolicyFiles(cmd.Context(), f.policies...)
	if err != nil {
		return nil, "", err
	}
	set, err := parsePolicies(cmd, files)
	if err != nil || f.job.Queue != "" {
		return set, f.job.Queue, err
	}
	docs, err := policyfile.Documents(files)
	if err != nil {
		return nil, "", err
	}
	var names []string
	for _, d := range docs {
		if d.Kind == "RetryPolicy" {
			names = append(names, d.Name)
		}
	}
	binding := fmt.Sprintf("kind: Queue\nname: %s\nretryPolicies: [%s]\n", allPolicies, strings.Join(names, ", "))
	set, err = parsePolicies(cmd, append(slices.Clip(files), policyfile.File{Name: "--queue", Data: []byte(binding)}))
	return set, allPolicies, err
}

// parsePolicies parses policy files, and prints their problems as a finding.
func parsePolicies(cmd *cobra.Command, files []policyfile.File) (*policyfile.Set, error) {
	set, err := policyfile.Parse(files)
	if problems, ok := errors.AsType[policyfile.Problems](err); ok {
		return nil, printedProblems(cmd, problems)
	}
	return set, err
}

func printOutcome(w io.Writer, f *suite.Failure, out *suite.Outcome) {
	d, x := out.Decision, out.Why
	queue := "queue " + query.OneLine(d.Queue)
	if d.Queue == allPolicies {
		queue = "no queue: all policies of the files apply, in order"
	}
	fmt.Fprintf(w, "%s %d of a job (%s)%s\n", show.Bold(w, "Failure of run"), d.RunIndex, queue, text.OnNode(f.Node))
	e := &query.Explanation{Decision: audit.DecisionOf(0, d), Failure: query.FactsOf(&x.Facts), DelayFrom: query.Arithmetic(x.Delay)}
	text.Failure(w, e)
	fmt.Fprintf(w, "\n%s %s, %s\n  %s\n", show.Bold(w, "Decision"), d.Kind(), d.Code, query.OneLine(audit.Reason(d)))
	text.Ladder(w, query.LadderOf(x.Traces))
	text.Counts(w, &e.Decision, x.Before.Granted)
	text.Delay(w, e)
}

// outcomeOut is the JSON form of an outcome in `eval` and `test`.
type outcomeOut struct {
	Decision   *audit.Decision   `json:"decision,omitempty"`
	NotDecided string            `json:"notDecided,omitempty"`
	Ladder     []query.RuleTrace `json:"ladder"`
	Group      *groupOut         `json:"group,omitempty"` // of an event of a test of a group
}

func outcomeJSON(out *suite.Outcome) outcomeOut {
	o := outcomeOut{Ladder: query.LadderOf(out.Why.Traces), Group: groupOutcomeJSON(out.Group)}
	if out.Decision == nil {
		if out.NotDecided != nil {
			o.NotDecided = out.NotDecided.Reason.String()
		}
		return o
	}
	d := audit.DecisionOf(0, out.Decision)
	o.Decision = &d
	return o
}
