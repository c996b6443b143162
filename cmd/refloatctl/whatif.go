package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
)

type whatifFlags struct {
	logsFlags
	policies, set          []string
	against, queue, output string
	from, to               string
	fromTime, toTime       int64 // Unix nanoseconds
	jobs, skip, parallel   int
	semantics              uint32
}

func newWhatif() *cobra.Command {
	var f whatifFlags
	cmd := &cobra.Command{
		Use:   "whatif [--policies PATH,…] [--set FIELD=VALUE] (--data DIR | --log DIR | --archive DIR | --pulsar URL | --server HOST:PORT)",
		Short: "Decide the history by other policies, and compare with what was decided",
		Long: `Decide a real history by candidates, in one pass, and compare each with what was
decided: how many failed runs would be decided differently, from what to what, by queue,
cause of the failure and rule; how many retries more or fewer, how much run time, and
what really became of the jobs that only one side retries. Each path of --policies is a
candidate, and so is a generation of the policies log: generation:41, or generation:24h, the
one in force a day ago; without it, the policies in force now are. --set changes fields of every
candidate.

A candidate counts its own retries over the runs that happened. Where it retries a job
and the other side does not, or the other way round, the history of that job parts: its
later runs are not compared. Those that took place are counted, whichever side retries
it. The output says what else is assumed. Overrides (kill, pause, breakers, nodes)
hold as they did.

Below that, one table has all candidates, what they are compared with, and what happened:
retries, runs, their time, and what became of the jobs with a failed run. What the history
has is taken from it, for every side; what it does not have is estimated, by how often the
retries of the same rule and number succeeded that took place.

With --server, a server decides its own history, within 100 seconds and one what-if at a
time; --timeout says how long to wait for it.

With --against now, candidates are compared with the policies in force now instead, over
the whole history; with --against PATH, with those in files, which --log alone needs.

Exit codes: 0 no candidate changes a decision, 1 one does, 2 usage, 3 the logs could not
be read.`,
		Example: `  refloatctl whatif --data .refloat-run --set 'policies.infra.rules[lost].retryLimit=1'
  refloatctl whatif --data .refloat-run --policies my/policies,their/policies --queue genomics
  refloatctl whatif --data .refloat-run --against generation:24h --policies now
  refloatctl whatif --log .refloat-run/logs/events --against main/policies --policies my/policies
  refloatctl whatif --data .refloat-run --policies my/policies -o json | jq '.jobs[] | select(.cause == "OOMKilled") | .jobId'`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if f.output == show.FormJSON && !cmd.Flags().Changed("jobs") {
				f.jobs = math.MaxInt32 // what asks in JSON takes what it gets for all
			}
			return runWhatif(cmd, f)
		},
	}
	f.bindLogs(cmd)
	f.bindServer(cmd)
	cmd.Flags().StringSliceVar(&f.policies, "policies", nil, "candidates: policy files or directories of them, a generation such as generation:41 or generation:24h, or now (default: now, the policies in force)")
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "field to change in every candidate, such as policies.infra.rules[lost].retryLimit=2; may be repeated")
	cmd.Flags().StringVar(&f.against, "against", query.AgainstDecided, "what to compare with: decided, now, a path of policies, or a generation such as generation:24h")
	cmd.Flags().StringVar(&f.queue, "queue", "", "count only failed runs of this queue (default: all)")
	cmd.Flags().StringVar(&f.from, "from", "", "count only failed runs from this time on (RFC 3339), or this duration ago, such as 24h (default: all)")
	cmd.Flags().StringVar(&f.to, "to", "", "end the history at this time, or this duration ago (default: its end)")
	cmd.Flags().IntVar(&f.jobs, "jobs", 20, "maximum number of changed decisions to list; -o json without this flag lists all (of a server: 1000, and next is the --skip of those that follow)")
	cmd.Flags().IntVar(&f.skip, "skip", 0, "number of changed decisions to leave out before those listed, for the next page")
	cmd.Flags().IntVar(&f.parallel, "parallel", runtime.GOMAXPROCS(0), "number of partitions to decide at once")
	cmd.Flags().Uint32Var(&f.semantics, "semantics", 0, "with --log alone: version of the decision semantics (default: the newest)")
	addOutput(cmd, &f.output)
	completeFlag(cmd, "against", cobra.FixedCompletions([]string{query.AgainstDecided, query.AgainstNow}, cobra.ShellCompDirectiveDefault))
	completeValues(cmd, &f.deployment)
	return cmd
}

// check checks the flags and parses the times.
func (f *whatifFlags) check() error {
	for _, t := range []struct {
		flag, text string
		at         *int64
	}{{"from", f.from, &f.fromTime}, {"to", f.to, &f.toTime}} {
		at, err := moment("--"+t.flag, t.text)
		if err != nil {
			return err
		}
		*t.at = at
	}
	switch eventsOnly := f.eventsOnly(); {
	case f.jobs < 0 || f.skip < 0:
		return usageError{fmt.Errorf("--jobs %d, --skip %d: use 0 or more", f.jobs, f.skip)}
	case f.parallel < 1:
		return usageError{fmt.Errorf("--parallel %d: want 1 or more", f.parallel)}
	case len(f.policies) == 0 && len(f.set) == 0:
		return usageError{errors.New("whatif needs --policies PATH or --set FIELD=VALUE: what is to be different?")}
	case app.CheckSemantics(f.semantics) != nil:
		return usageError{fmt.Errorf("--semantics: %w", app.CheckSemantics(f.semantics))}
	case f.semantics != 0 && !eventsOnly:
		return usageError{errors.New("--semantics: a decision log names the versions of the semantics: omit it")}
	case eventsOnly && (f.against == query.AgainstDecided || f.against == query.AgainstNow):
		return usageError{errors.New("--log alone has no decisions: give --against PATH, or --decisions DIR")}
	case eventsOnly && (len(f.policies) == 0 || slices.Contains(f.policies, query.AgainstNow)):
		return usageError{errors.New("--log alone has no policies: give --policies PATH")}
	case slices.Contains(f.policies, query.AgainstDecided):
		return usageError{errors.New("--policies decided: what was decided is no candidate: compare with it, --against decided")}
	case eventsOnly:
		return nil
	}
	return f.checkGiven()
}

// eventsOnly reports whether there is nothing but an events log.
func (f *whatifFlags) eventsOnly() bool {
	return f.log != "" && f.decisions == "" && !f.named("data", pulsarflags.URL)
}

func (f *whatifFlags) readEvents(ctx context.Context, use func(audit.Logs) error) (err error) {
	if !f.eventsOnly() {
		return f.readAll(ctx, use)
	}
	events, closeLog, err := app.OpenEvents(f.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	return use(audit.Logs{Events: events})
}

func runWhatif(cmd *cobra.Command, f whatifFlags) error {
	sets := map[string]query.Policies{}
	for i, path := range append([]string{f.against}, f.policies...) {
		if path == query.AgainstDecided || path == query.AgainstNow {
			continue
		}
		flag := "--policies"
		if i == 0 {
			flag = "--against"
		}
		var err error
		if sets[path], err = candidatePolicies(cmd, flag, path, func(read func(context.Context, pb.PoliciesClient) error) error {
			return f.openGenerations(cmd, path, read)
		}); err != nil {
			return err
		}
	}
	asked := f.question(sets)
	results, err := asking(func(bar *show.Progress) ([]query.WhatIfResult, error) {
		asked.Progress = func(messages uint64) { bar.UpdateShared("deciding: %s", plural.Of(messages, "message")) }
		return f.answers().WhatIf(cmd.Context(), asked)
	})
	if errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, chain.ErrMissing) {
		return fmt.Errorf("%w; if what was deleted is in an archive, give it with --archive DIR", err)
	}
	if bad, ok := errors.AsType[*query.Invalid](err); ok && (bad.Param == "set" || bad.Param == "from") {
		return usageError{fmt.Errorf("--%s %w", bad.Param, bad.Err)}
	}
	if err != nil {
		return err
	}
	if err := f.checkQueue(cmd, results); err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if f.output == show.FormTable {
		for _, verdict := range query.Verdicts(results) {
			fmt.Fprintln(out, query.OneLine(verdict))
		}
		fmt.Fprintln(out)
	}
	changed := false
	for i, r := range results {
		changed = changed || r.Differences() > 0
		if f.output == show.FormJSON {
			err = errors.Join(err, show.JSONLines(out).Encode(r))
			continue
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		err = errors.Join(err, text.WhatIf(out, &r))
	}
	if f.output == show.FormTable {
		fmt.Fprintln(out)
		err = errors.Join(err, text.Compare(out, results))
		fmt.Fprintln(out, "\nassumed:")
		for _, a := range whatif.Assumptions() {
			fmt.Fprintf(out, "- %s\n", a)
		}
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if changed {
		return errFinding
	}
	return nil
}

// checkQueue returns an error if nothing was compared because nothing is called as --queue says: "0 of 0 differ" would pass for
// a check. Where names cannot be looked up, a queue of which nothing was compared is one.
func (f *whatifFlags) checkQueue(cmd *cobra.Command, results []query.WhatIfResult) error {
	if f.queue == "" || slices.ContainsFunc(results, func(r query.WhatIfResult) bool { return r.Compared+r.Units > 0 }) {
		return nil
	}
	if f.checkJobs() == nil {
		return missing(cmd.Context(), f.deployment.answers(nil), &jobdb.Criteria{Queue: f.queue})
	}
	return usageError{fmt.Errorf("--queue %q: this history has no failed run of such a queue that could be compared", f.queue)}
}

// answers is where the question is asked: a server, or the logs that the flags name.
func (f *whatifFlags) answers() query.Answers {
	if f.onServer() {
		return f.remote.questions()
	}
	return &query.Source{
		Logs: f.readEvents,
		Policies: func(ctx context.Context, use func(*policylog.Store) error) error {
			return f.readEvents(ctx, func(logs audit.Logs) error { return withStore(logs.Policies, use) })
		},
	}
}

// candidatePolicies reads the policies that a flag names: files, or a generation of the policies log, which open opens; "now" is the newest.
func candidatePolicies(cmd *cobra.Command, flag, path string, open func(func(context.Context, pb.PoliciesClient) error) error) (p query.Policies, err error) {
	if path != query.AgainstNow && !strings.HasPrefix(path, query.GenerationPrefix) {
		p.Name = path
		p.Set, err = readCandidate(cmd, path)
		if errors.Is(err, fs.ErrNotExist) {
			hint := "no such file or directory"
			if _, bad := query.Moment(path, time.Now()); bad == nil || !strings.ContainsFunc(path, func(r rune) bool { return r < '0' || r > '9' }) {
				hint += fmt.Sprintf("; did you mean %s%s?", query.GenerationPrefix, path)
			}
			err = fmt.Errorf("%s %s: %s", flag, path, hint)
		}
		return p, err
	}
	return p, open(func(ctx context.Context, c pb.PoliciesClient) error {
		_, named, err := generations(ctx, c, map[string]string{flag: strings.TrimPrefix(path, query.AgainstNow)})
		if err != nil {
			return err
		}
		p.Name = fmt.Sprintf("generation %d", named[flag])
		p.Set, err = query.SetAt(ctx, policyReader{c}, named[flag])
		return err
	})
}

// openGenerations reads the policies log of a history.
func (f *whatifFlags) openGenerations(cmd *cobra.Command, path string, read func(context.Context, pb.PoliciesClient) error) error {
	switch {
	case f.eventsOnly():
		return usageError{fmt.Errorf("%s: --log alone has no policies log: give --decisions DIR beside it, or --data DIR", path)}
	case f.onServer():
		return f.remote.policies(cmd.Context(), read)
	}
	return f.readEvents(cmd.Context(), func(logs audit.Logs) error {
		if logs.Policies == nil {
			return usageError{fmt.Errorf("%s: there is no policies log: give --policies-log DIR", path)}
		}
		return withStore(logs.Policies, func(store *policylog.Store) error {
			return serverError(read(cmd.Context(), offline{service: &api.Service{Store: store, Now: time.Now}}))
		})
	})
}

// question gathers the candidates.
func (f *whatifFlags) question(sets map[string]query.Policies) *query.WhatIf {
	w := &query.WhatIf{Set: f.set, Queue: f.queue, From: f.fromTime, To: f.toTime, Limit: f.jobs, Skip: f.skip, Parallel: f.parallel, Semantics: f.semantics}
	if f.against != query.AgainstDecided {
		against := sets[f.against] // now: those in force
		w.Against = &against
	}
	for _, path := range f.policies {
		w.Candidates = append(w.Candidates, sets[path])
	}
	return w
}
