package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

type replayFlags struct {
	deployment
	log, policies, output string
	archive               string
	all, verify, waiting  bool
	semantics             uint32
	parallel              int
}

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay --log DIR --policies DIR",
		Short: "Decide a history again",
		Long: `Decide a history again: read an events log from its beginning and decide every
failed run by the given policies. Nothing is written.`,
		Example: `  refloatctl replay --log /tmp/plain --policies examples/policies
  refloatctl replay --log /tmp/plain --policies examples/policies -o json | jq .code | sort | uniq -c`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.parallel < 1:
				return usageError{fmt.Errorf("--parallel %d: want 1 or more", f.parallel)}
			case app.CheckSemantics(f.semantics) != nil:
				return usageError{fmt.Errorf("--semantics: %w", app.CheckSemantics(f.semantics))}
			case f.verify && f.named("semantics"):
				return usageError{errors.New("--verify decides by the versions of the semantics that the decision log names: omit --semantics")}
			case !f.verify && f.named("archive"):
				return usageError{errors.New("--archive needs --verify")}
			case f.verify && (f.data != "" || f.onPulsar()) && !f.named("log", "policies"):
				if err := f.checkLogs(); err != nil {
					return err
				}
				fmt.Fprintln(cmd.ErrOrStderr(), "replay --verify is the command verify")
				v := verifyFlags{logsFlags: logsFlags{deployment: f.deployment, archive: f.archive}, output: f.output, waiting: f.waiting, parallel: f.parallel}
				return verify(cmd, v)
			case !f.verify && f.log != "" && f.policies != "" && !f.named("data", pulsarflags.URL):
				return replay(cmd, f)
			}
			return usageError{errors.New("replay needs --log DIR and --policies DIR")}
		},
	}
	cmd.Flags().StringVar(&f.log, "log", "", "directory of an events log, as import writes it")
	cmd.Flags().StringVar(&f.policies, "policies", "", "policy file, or directory of policy files")
	cmd.Flags().StringVar(&f.data, "data", "", "data directory, with --verify")
	f.bindPulsar(cmd)
	cmd.Flags().BoolVar(&f.verify, "verify", false, "derive the decision log of --data or --pulsar again, and compare")
	cmd.Flags().BoolVar(&f.waiting, "allow-waiting", false, "with --verify: accept messages at the end of events that are not decided yet")
	cmd.Flags().StringVar(&f.archive, "archive", "", "with --verify: "+archiveHelp)
	cmd.Flags().BoolVar(&f.all, "all", false, "also print failed runs that were not decided, parked messages, and retries that became ready")
	cmd.Flags().Uint32Var(&f.semantics, "semantics", 0, "version of the decision semantics (default: the newest)")
	cmd.Flags().IntVar(&f.parallel, "parallel", runtime.GOMAXPROCS(0), "number of partitions to decide at once")
	hidePulsar(cmd)
	for _, name := range []string{"verify", "data", "archive", "allow-waiting"} {
		_ = cmd.Flags().MarkHidden(name)
	}
	addOutput(cmd, &f.output)
	return cmd
}

func replay(cmd *cobra.Command, f replayFlags) error {
	set, err := readPolicies(cmd, f.policies)
	if err != nil {
		return err
	}
	log, closeLog, err := app.OpenEvents(f.log)
	if err != nil {
		return err
	}
	defer func() { _ = closeLog() }()
	out := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
	p, err := newRecordPrinter(out, f.output)
	if err != nil {
		return err
	}
	bar := show.NewProgress()
	defer bar.Done()
	var messages atomic.Int64
	by := audit.Rules{Set: set.Set, Semantics: cmp.Or(f.semantics, evaluator.SemanticsVersion), Passing: true}
	err = show.InOrder(p.w, log.Partitions(), f.parallel, keepPrinted, func(partition int, w io.Writer) error {
		lines := bufio.NewWriterSize(w, 1<<15)
		p := p.into(lines)
		_, err := audit.ReplayBy(cmd.Context(), log, partition, by, func(_ *eventlog.Message, o *evaluator.Output) error {
			if n := messages.Add(1); n%1024 == 0 {
				bar.UpdateShared("replaying: %s", plural.Of(n, "message"))
			}
			for _, r := range o.Records {
				if err := p.print(partition, r, f.all, false); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return lines.Flush()
	})
	bar.Done()
	if err != nil {
		return err
	}
	return errors.Join(p.end(), out.Flush())
}

// keepPrinted is how many bytes of its output a replay keeps until earlier partitions are printed.
const keepPrinted = 64 << 20

// readPolicies reads policy files, and prints their problems as a finding.
func readPolicies(cmd *cobra.Command, paths ...string) (*policyfile.Set, error) {
	set, err := app.ReadPolicies(cmd.Context(), paths...)
	if problems, ok := errors.AsType[policyfile.Problems](err); ok {
		return nil, printedProblems(cmd, problems)
	}
	return set, err
}

// readCandidate reads the policies of a candidate, and warns if no queue has one of them.
func readCandidate(cmd *cobra.Command, path string) (*policyfile.Set, error) {
	set, err := readPolicies(cmd, path)
	if err == nil && set.Unnamed() {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: no Queue names a policy and there is no defaultPolicyName, so at most jobs that select one have any: did you mean the directory with all files?\n", path)
	}
	return set, err
}

// printedProblems prints problems of policy files, which are a finding.
func printedProblems(cmd *cobra.Command, problems policyfile.Problems) error {
	for _, p := range problems {
		fmt.Fprintln(cmd.ErrOrStderr(), p)
	}
	return errFinding
}

// recordPrinter prints records as a table or as JSON lines.
type recordPrinter struct {
	w     io.Writer // of lines
	json  *json.Encoder
	table *show.Table
}

func newRecordPrinter(w io.Writer, form string) (*recordPrinter, error) {
	switch form {
	case show.FormJSON:
		return &recordPrinter{w: w, json: show.JSONLines(w)}, nil
	case show.FormTable:
		table := show.NewTable(w, "JOB", "RUN", "QUEUE", "DECISION", "CODE", "RULE", "USED", "DELAY", "WHY")
		return &recordPrinter{w: table, table: table}, nil
	}
	return nil, usageError{show.UnknownForm(form, show.FormTable, show.FormJSON)}
}

// into returns a printer of some of the lines, which are written to w on their way to p.w.
func (p *recordPrinter) into(w io.Writer) *recordPrinter {
	if p.json != nil {
		return &recordPrinter{json: show.JSONLines(w)}
	}
	return &recordPrinter{table: p.table.Into(w)}
}

// print prints a decision, and with all also other records. One in a job database may be superseded.
func (p *recordPrinter) print(partition int, r chain.Record, all, superseded bool) error {
	d, ok := r.(*chain.Decision)
	if !ok {
		other, ok := audit.OtherOf(partition, r)
		if !ok || !all {
			return nil
		}
		if other.Superseded = superseded; p.json != nil {
			return p.json.Encode(other)
		}
		why := ""
		if superseded {
			why = text.Superseded
		}
		p.table.Row(other.JobID, other.RunID, other.Queue, other.Record, other.Reason, "", "", "", why)
		return nil
	}
	shown := audit.DecisionOf(partition, d)
	if shown.Superseded = superseded; p.json != nil {
		return p.json.Encode(shown)
	}
	if superseded {
		shown.Reason = text.Superseded + ": " + shown.Reason
	}
	p.table.Row(shown.JobID, fmt.Sprint(shown.RunIndex), shown.Queue, kindOf(d), shown.Code, query.RuleName(shown.Policy, shown.Rule), text.Used(&shown), shown.Delay, shown.Reason)
	return nil
}

// kindOf names a decision, and marks one in shadow.
func kindOf(d *chain.Decision) string {
	if d.Shadow {
		return d.Kind() + text.EffectNote(query.InShadow)
	}
	return d.Kind()
}

func (p *recordPrinter) end() error {
	if p.table == nil {
		return nil
	}
	return p.table.Flush()
}
