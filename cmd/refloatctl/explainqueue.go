package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

type explainQueueFlags struct {
	deployment
	queue, set, output string
	limit              int
}

const explainQueueLong = `: how often each code, rule and cause of failure
occurred, the jobs that failed for good and why, the retries that are pending, and the
policies and overrides that are in force. With --job-db alone, the policies and overrides
are left out, which are in the policies log. Jobs that the job database has pruned
(--retain) are not counted.`

func newExplainQueue() *cobra.Command {
	var f explainQueueFlags
	cmd := &cobra.Command{
		Use:     "queue QUEUE (--data DIR | --pulsar URL --job-db URL | --job-db URL)",
		Short:   "Explain what happened to the failed runs of a queue",
		Long:    "Explain what happened to the failed runs of a queue" + explainQueueLong,
		Example: "  refloatctl explain queue genomics --data .refloat-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.queue = args[0]
			return f.run(cmd)
		},
	}
	f.bindAll(cmd)
	return cmd
}

func newExplainJobSet() *cobra.Command {
	var f explainQueueFlags
	cmd := &cobra.Command{
		Use:     "job-set QUEUE/SET (--data DIR | --pulsar URL --job-db URL | --job-db URL)",
		Short:   "Explain what happened to the failed runs of a job set",
		Long:    "Explain what happened to the failed runs of a job set" + explainQueueLong,
		Example: "  refloatctl explain job-set genomics/align-7 --data .refloat-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ok bool
			if f.queue, f.set, ok = strings.Cut(args[0], "/"); !ok || f.queue == "" || f.set == "" {
				return usageError{fmt.Errorf("job set %q: want QUEUE/SET, such as genomics/align-7", args[0])}
			}
			return f.run(cmd)
		},
	}
	f.bindAll(cmd)
	return cmd
}

func (f *explainQueueFlags) bindAll(cmd *cobra.Command) {
	f.bind(cmd)
	cmd.Flags().IntVar(&f.limit, "limit", 10, "maximum number of jobs in each list; 0: all")
	addOutput(cmd, &f.output)
}

// queueStory is the JSON form of `explain queue` and `explain job-set`. Fields keep their meaning; new ones may be added.
type queueStory struct {
	Queue         string           `json:"queue"`
	JobSet        string           `json:"jobSet,omitempty"`
	Decisions     int              `json:"decisions"`
	Retries       int              `json:"retries"`       // of the decisions
	Failures      int              `json:"failures"`      // of the decisions
	WithoutEffect int              `json:"withoutEffect"` // of the decisions: in shadow, or too late
	Codes         []tally          `json:"codes"`
	Rules         []tally          `json:"rules"`
	Causes        []tally          `json:"causes"` // of decided failures
	Failed        fates            `json:"failedForGood"`
	Pending       fates            `json:"pendingRetries"`
	Policies      *policiesInForce `json:"policies,omitempty"` // absent: the policies log was not read
}

// tally is how often a code, rule or cause occurred.
type tally struct {
	Key   string `json:"key"`
	Count int    `json:"count"`
}

// fates are jobs with the same fate.
type fates struct {
	Count int    `json:"count"`
	Jobs  []fate `json:"jobs"` // the newest, up to the limit
}

// fate is a job, and the last decision on it.
type fate struct {
	JobID      string `json:"jobId"`
	Runs       uint32 `json:"runs"`
	Ended      string `json:"ended,omitempty"`
	RetryAfter string `json:"retryAfter,omitempty"`
	Code       string `json:"code,omitempty"`
	Rule       string `json:"rule,omitempty"`
	Reason     string `json:"reason"` // of the last decision; without one, what Armada says
}

// policiesInForce are the policies in force.
type policiesInForce struct {
	Generation uint64       `json:"generation"`
	Applying   []string     `json:"applying"` // to a job that names none
	Shadow     bool         `json:"shadow"`
	Limit      uint32       `json:"globalMaxRetries"`
	Changes    []lastChange `json:"lastChanges"`
	Overrides  []string     `json:"brakes"`
}

func (f *explainQueueFlags) run(cmd *cobra.Command) error {
	switch {
	case f.output != outputTable && f.output != outputJSON:
		return badOutput(f.output)
	case f.limit < 0:
		return usageError{fmt.Errorf("--limit %d: want 1 or more, or 0 for all", f.limit)}
	}
	if err := f.checkJobs(); err != nil {
		return err
	}
	s := &queueStory{Queue: f.queue, JobSet: f.set}
	var generation uint64
	jobs := 0
	err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		some, err := s.count(q, f.limit)
		jobs = some
		return errors.Join(err, q.Activations(jobdb.RecordFilter{}, func(a *jobdb.Activation) error {
			generation = max(generation, a.Generation)
			return nil
		}))
	})
	if err != nil {
		return err
	}
	if jobs == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "the job database has no job of %s; `refloatctl get jobs %s` lists its jobs\n", s.name(), f.deployment)
		return errFinding
	}
	if f.data != "" || f.onPulsar() {
		at, err := f.generation(cmd.Context(), generation)
		if err != nil {
			return err
		}
		s.Policies = at.inForce(f.queue)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if f.output == outputJSON {
		err = jsonLines(out).Encode(s)
	} else {
		err = s.print(out)
	}
	return errors.Join(err, out.Flush())
}

func (s *queueStory) name() string {
	if s.JobSet == "" {
		return "queue " + oneLine(s.Queue)
	}
	return "job set " + oneLine(s.JobSet) + " of queue " + oneLine(s.Queue)
}

// count reads the job database, and returns 0 if it has no such job.
func (s *queueStory) count(q jobdb.Queries, limit int) (jobs int, err error) {
	of := jobdb.Criteria{Queue: s.Queue, JobSet: s.JobSet}
	if _, err := q.JobList(&of, jobdb.Page{Limit: 1}, func(*jobdb.Job) error { jobs++; return nil }); err != nil || jobs == 0 {
		return jobs, err
	}
	codes, rules, causes := map[string]int{}, map[string]int{}, map[string]int{}
	_, err = q.DecisionList(&of, jobdb.Page{}, func(d *jobdb.Decision) error {
		s.Decisions++
		codes[d.Code.String()]++
		if d.Rule != "" {
			rules[ruleName(d.Policy, d.Rule)]++
		}
		if d.Requeue {
			s.Retries++
		} else {
			s.Failures++
		}
		if d.Shadow || d.Superseded {
			s.WithoutEffect++
		}
		return nil
	})
	_, err2 := q.RunList(&of, jobdb.Page{}, func(r *jobdb.Run) error {
		if r.Decision == 0 {
			return nil
		}
		x, err := audit.Recall(audit.Case{Job: &jobdb.Job{}, Run: r, Decision: &chain.Decision{}})
		causes[audit.Cause(&x.Facts)]++
		return err
	})
	if err := errors.Join(err, err2); err != nil {
		return 0, err
	}
	s.Codes, s.Rules, s.Causes = ranked(codes), ranked(rules), ranked(causes)
	failed, pending := of, of
	failed.States, pending.Waiting = []uint8{uint8(jobdb.JobFailed)}, true
	if s.Failed, err = fatesOf(q, &failed, "ended", limit); err != nil {
		return 0, err
	}
	s.Pending, err = fatesOf(q, &pending, "retry-after", limit)
	return jobs, err
}

// ranked orders counts, the greatest first.
func ranked(counts map[string]int) []tally {
	list := make([]tally, 0, len(counts))
	for key, n := range counts {
		list = append(list, tally{key, n})
	}
	slices.SortFunc(list, func(a, b tally) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) })
	return list
}

// fatesOf counts jobs, and tells the last decision on the newest of them.
func fatesOf(q jobdb.Queries, c *jobdb.Criteria, sort string, limit int) (all fates, err error) {
	all.Jobs = []fate{}
	var listed []*jobdb.Job
	_, err = q.JobList(c, jobdb.Page{Sort: sort, Descending: true}, func(j *jobdb.Job) error {
		all.Count++
		if limit == 0 || len(listed) < limit {
			listed = append(listed, j)
		}
		return nil
	})
	for _, j := range listed {
		one := fate{JobID: j.JobID, Runs: j.Queueing.Runs, Ended: timeText(j.Times.Ended), RetryAfter: timeText(j.Queueing.RetryAfter)}
		if j.Armada.Failed {
			one.Reason = strings.TrimSpace("Armada: " + j.Armada.Reason + " " + j.Armada.Message)
		}
		err = errors.Join(err, q.Decisions(jobdb.RecordFilter{JobID: j.JobID, Partition: &j.Partition}, func(d *jobdb.Decision) error {
			one.Code, one.Rule, one.Reason = d.Code.String(), ruleName(d.Policy, d.Rule), audit.Reason(&d.Decision)
			return nil
		}))
		all.Jobs = append(all.Jobs, one)
	}
	return all, err
}

// inForce describes what applies to the jobs of a queue.
func (p *policiesAt) inForce(queue string) *policiesInForce {
	in := &policiesInForce{
		Generation: p.Generation(), Applying: p.Set.Applying(queue, ""), Shadow: p.Set.Set.InShadow(queue), Limit: p.Set.GlobalMaxRetries(),
		Changes: []lastChange{}, Overrides: []string{},
	}
	ids := []policyfile.ID{{Kind: policyfile.KindQueue, Name: queue}, {Kind: policyfile.KindSettings}}
	for _, name := range in.Applying {
		ids = append(ids, policyfile.ID{Kind: policyfile.KindPolicy, Name: name})
	}
	in.Changes = append(in.Changes, p.changesOf(ids...)...)
	var text strings.Builder
	overrideLines(&text, overridesOn(p.ActiveOverrides(), queue))
	in.Overrides = append(in.Overrides, slices.Collect(strings.Lines(text.String()))...)
	for i, line := range in.Overrides {
		in.Overrides[i] = strings.TrimSuffix(line, "\n")
	}
	return in
}

func (s *queueStory) print(w io.Writer) error {
	name := s.name()
	fmt.Fprintf(w, "%s%s: %s, %d retried and %d failed the job", bold(w, strings.ToUpper(name[:1])), name[1:], plural.Of(s.Decisions, "decision"), s.Retries, s.Failures)
	if s.WithoutEffect > 0 {
		fmt.Fprintf(w, "; %d had no effect (in shadow, or too late)", s.WithoutEffect)
	}
	fmt.Fprintln(w)
	for _, c := range []struct {
		heading string
		counts  []tally
	}{{"CODE", s.Codes}, {"RULE", s.Rules}, {"CAUSE", s.Causes}} {
		if len(c.counts) == 0 {
			continue
		}
		fmt.Fprintln(w)
		t := newTable(w, "COUNT", c.heading)
		for _, n := range c.counts {
			t.row(fmt.Sprint(n.Count), n.Key)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		what string
		*fates
		time func(*fate) string
		head string
	}{
		{"Failed for good", &s.Failed, func(f *fate) string { return f.Ended }, "ENDED"},
		{"Pending retries", &s.Pending, func(f *fate) string { return f.RetryAfter }, "NOT BEFORE"},
	} {
		fmt.Fprintf(w, "\n%s: %s\n", bold(w, l.what), plural.Of(l.Count, "job"))
		if l.Count == 0 {
			continue
		}
		t := newTable(w, "  JOB", "RUNS", l.head, "CODE", "RULE", "WHY")
		for i := range l.Jobs {
			j := &l.Jobs[i]
			t.row("  "+j.JobID, fmt.Sprint(j.Runs), l.time(j), j.Code, j.Rule, j.Reason)
		}
		if err := t.flush(); err != nil {
			return err
		}
		if more := l.Count - len(l.Jobs); more > 0 {
			fmt.Fprintf(w, "  and %d more: --limit 0 lists all\n", more)
		}
	}
	s.printPolicies(w)
	return nil
}

func (s *queueStory) printPolicies(w io.Writer) {
	p := s.Policies
	if p == nil {
		fmt.Fprintf(w, "\n%s are in the policies log: give --pulsar URL or --data DIR to see what is in force\n", bold(w, "Policies"))
		return
	}
	applying, mode := strings.Join(p.Applying, ", "), ""
	if applying == "" {
		applying = "no policy: failed runs are decided as Armada does"
	}
	if p.Shadow {
		mode = "; the queue is in shadow"
	}
	fmt.Fprintf(w, "\n%s in force, generation %d: %s; globalMaxRetries %d%s\n", bold(w, "Policies"), p.Generation, oneLine(applying), p.Limit, mode)
	for i := range p.Changes {
		fmt.Fprintf(w, "  %v\n", &p.Changes[i])
	}
	for _, o := range p.Overrides {
		fmt.Fprintf(w, "  %s\n", o)
	}
}
