package web

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whynot"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

// storyRuns limits the runs of a story: the newest are shown.
const storyRuns = 50

// jobPage is a job's story.
type jobPage struct {
	Job     query.Job
	Facts   []fact
	Answer  string // why it failed for good, or what it waits for
	Steps   []step
	Left    int // earlier runs that are not shown
	Others  []choice
	Pruned  bool
	Live    live
	Problem string // why the rules are not shown
}

// fact is a name with a value.
type fact struct{ Name, Value, Link string }

// step is a run, what was decided on it, and the wait for the next one.
type step struct {
	Index      uint32
	ID, State  string
	Kind       string
	Node       string
	Executor   string
	Leased     string
	Ended      string
	Lasted     string
	Cause      string
	Error      string
	Message    string
	Decided    *audit.Decision
	Outcome    string // retried or failed the job
	Undecided  string
	Ladder     []policy.Rung
	Skipped    int // rules that were not tried
	Tried      int
	Wait       string // for the next run
	Explain    string
	LadderLost string // why the ladder is unknown
}

// find finds the job that the address names.
func (p *page) find() (h *query.History, others []choice, err error) {
	if p.site.Query.Jobs == nil {
		return nil, nil, errNoJobs
	}
	id := p.form.Get("id")
	if id == "" {
		return nil, nil, &query.Invalid{Param: "id", Err: errors.New("missing: name a job")}
	}
	found, err := p.site.Query.Histories(p.ctx, id)
	if err != nil {
		return nil, nil, err
	}
	which := p.arg("partition")
	for i := range found {
		number := strconv.Itoa(found[i].Job.Partition)
		if h == nil && (which == "" || which == number) {
			h = &found[i]
		}
		others = append(others, choice{"partition " + number, p.with("partition", number), h == &found[i]})
	}
	if h == nil {
		return nil, nil, &query.NotFound{What: "job", Text: fmt.Sprintf("Job %s is not in partition %s.", id, which)}
	}
	if len(others) < 2 {
		others = nil
	}
	return h, others, nil
}

func (s *site) job(p *page) error {
	h, others, err := p.find()
	if err != nil {
		return err
	}
	shown := jobPage{Job: query.JobOf(h.Job, nil), Others: others, Pruned: h.FromLogs}
	if shown.Steps, shown.Left, err = p.steps(h); err != nil {
		return err
	}
	j := &shown.Job
	shown.Facts = []fact{
		{"Queue", j.Queue, link("/queue", "name", j.Queue)},
		{"Job set", j.JobSet, link("/jobs", "queue", j.Queue, "set", j.JobSet)},
		{"Partition", fmt.Sprint(j.Partition), ""},
		{"Runs", fmt.Sprint(max(int(j.Runs), len(h.Runs))), ""},
	}
	if j.Group != "" {
		shown.Facts = append(shown.Facts, fact{"Group", j.Group, link("/group", "queue", j.Queue, "set", j.JobSet, "name", j.Group)})
	}
	if v := j.Armada; v != nil {
		shown.Facts = append(shown.Facts, fact{"Armada's own verdict", "failed: " + clip(v.Reason+" "+v.Message, 300), ""})
	}
	shown.Answer = answer(j, shown.Steps)
	shown.Live = p.liveFrom("live", "story", "5s", fmt.Sprint(h.Job, len(h.Runs), len(h.Decisions)))
	if j.Final {
		shown.Live.Every = "" // nothing more happens
	}
	return p.show("job", "Job "+clip(j.JobID, 60), "/jobs", shown)
}

// answer says in a sentence where the job stands, and why.
func answer(j *query.Job, steps []step) string {
	var last *step
	for i := range steps {
		if steps[i].Decided != nil {
			last = &steps[i]
		}
	}
	switch {
	case j.State == "Failed" && last != nil && last.Decided.Decision != "JobRequeued":
		return fmt.Sprintf("It failed for good after run %d: %s", last.Index, last.Decided.Reason)
	case j.State == "Failed":
		return "It failed for good by Armada's verdict: no decision of Refloat ended it."
	case j.State == "Queued" && j.RetryAfter != "" && last != nil:
		return fmt.Sprintf("It waits for its next run, not before %s: %s", part(j.RetryAfter, "2006-01-02 15:04:05 UTC"), last.Decided.Reason)
	}
	return ""
}

// steps tells the runs of a job in order; left is how many earlier ones it leaves out.
func (p *page) steps(h *query.History) (steps []step, left int, err error) {
	on := map[string]*jobdb.Decision{}
	for _, d := range h.Decisions {
		on[d.RunID] = d
	}
	why := map[string]string{}
	for _, n := range h.NotDecided {
		why[n.RunID] = n.Reason.String()
	}
	runs := h.InOrder()
	left = max(0, len(runs)-storyRuns)
	ladders := p.ladders(h)
	for i := left; i < len(runs); i++ {
		r := &runs[i]
		s := step{
			Index: r.Index, ID: r.RunID, State: r.State.String(), Kind: kind(r.State.String()), Node: r.Node, Executor: r.Executor,
			Leased: unixTime(r.Times.Leased), Ended: unixTime(r.Times.Ended), Error: r.Error.Reason, Message: clip(r.Error.Message, 4000),
			Undecided: undecided(r, why[r.RunID]),
		}
		if start := max(r.Times.Running, r.Times.Leased); start > 0 && r.Times.Ended >= start {
			s.Lasted = time.Duration(r.Times.Ended - start).Round(time.Second).String()
		}
		if d := on[r.RunID]; d != nil {
			shown := query.DecisionOf(d)
			s.Decided, s.Outcome = &shown, "failed the job"
			if d.Requeue {
				s.Outcome = "retried"
			}
			s.Explain = link("/explain", "id", h.Job.JobID, "partition", fmt.Sprint(h.Job.Partition), "run", fmt.Sprint(r.Index))
			x := ladders(d)
			s.Cause, s.Ladder, s.LadderLost = x.cause, x.rungs, x.lost
			for _, rung := range s.Ladder {
				if rung.Tried {
					s.Tried++
				} else {
					s.Skipped++
				}
			}
			if d.Requeue {
				s.Wait = "not before " + part(shown.RetryAfter, "2006-01-02 15:04:05 UTC")
			}
			if i+1 < len(runs) && runs[i+1].Times.Leased > 0 {
				s.Wait = "next run after " + time.Duration(runs[i+1].Times.Leased-d.Time).Round(time.Millisecond).String()
			}
		}
		steps = append(steps, s)
	}
	return steps, left, nil
}

func undecided(r *jobdb.Run, why string) string {
	switch {
	case why == "Ended":
		return "Not decided: the job was already over."
	case why == "Cancelled":
		return "Not decided: the job was cancelled."
	case why != "":
		return "Not decided: " + why + "."
	case r.Outcome == jobdb.Released:
		return "Released without a decision, because none came in time."
	}
	return ""
}

// tried is which rules were tried on a failed run.
type tried struct {
	cause string
	rungs []policy.Rung
	lost  string
}

// ladders returns a function that finds the rules that were tried for a decision, by the policies in force then.
func (p *page) ladders(h *query.History) func(*jobdb.Decision) tried {
	policies := map[uint64]*query.PoliciesAt{}
	lost := map[uint64]error{}
	return func(d *jobdb.Decision) (x tried) {
		c := caseOf(h, d)
		if c.Run == nil {
			return tried{lost: "the run is not in the job database"}
		}
		if recalled, err := audit.Recall(c); err == nil {
			x.cause = audit.Cause(&recalled.Facts)
		}
		g := d.Generation
		if policies[g] == nil && lost[g] == nil {
			policies[g], lost[g] = p.site.Query.Generation(p.ctx, g)
		}
		if lost[g] != nil {
			x.lost = lost[g].Error()
			return x
		}
		if !audit.Asked(&d.Decision) {
			x.lost = "the job's policies were not asked: its group decided"
			return x
		}
		explained, err := audit.Explain(policies[g].Set.Set, c)
		if err != nil && !errors.Is(err, audit.ErrDifferent) {
			x.lost = err.Error()
			return x
		}
		x.rungs = explained.Rungs
		return x
	}
}

// caseOf puts together what a decision was made from.
func caseOf(h *query.History, d *jobdb.Decision) audit.Case {
	byID := map[string]*jobdb.Run{}
	for _, r := range h.Runs {
		byID[r.RunID] = r
	}
	c := audit.Case{Job: h.Job, Run: byID[d.RunID], Decision: &d.Decision}
	for _, e := range h.Decisions {
		if e == d {
			break
		}
		c.Earlier = append(c.Earlier, audit.Earlier{Decision: &e.Decision, Run: byID[e.RunID]})
	}
	return c
}

// explainPage explains one decision.
type explainPage struct {
	Job      query.Job
	JobURL   string
	Step     step
	Decision *audit.Decision
	Facts    []string
	Ladder   []query.Rung
	Changes  []query.LastChange
	Outcomes []choice
	WhyNot   *query.WhyNot
	NoAnswer string
	Lost     string
	Counts   []fact
	Delay    string
	Record   []fact
	WhatIf   string
	Earlier  []choice
}

func (s *site) explain(p *page) error {
	h, _, err := p.find()
	if err != nil {
		return err
	}
	run, err := strconv.ParseUint(p.arg("run"), 10, 32)
	if err != nil {
		return &query.Invalid{Param: "run", Err: fmt.Errorf("%q: want the number of a run, from 0", clip(p.arg("run"), 40))}
	}
	i := slices.IndexFunc(h.Decisions, func(d *jobdb.Decision) bool { return uint64(d.RunIndex) == run })
	if i < 0 {
		return s.nothingDecided(h, run)
	}
	d := h.Decisions[i]
	decided := query.DecisionOf(d)
	shown := explainPage{Job: query.JobOf(h.Job, nil), JobURL: jobLink(h.Job.Partition, h.Job.JobID), Decision: &decided}
	steps, _, err := p.steps(h)
	if err != nil {
		return err
	}
	for _, st := range steps {
		if uint64(st.Index) == run {
			shown.Step = st
		}
		if st.Decided != nil {
			shown.Earlier = append(shown.Earlier, choice{fmt.Sprint("Run ", st.Index), p.with("run", fmt.Sprint(st.Index)), uint64(st.Index) == run})
		}
	}
	e, err := s.Query.Explain(p.ctx, h.Job.JobID, int(run))
	if err != nil {
		return err
	}
	basis := &e.Basis
	shown.Ladder, shown.Lost = e.Ladder, shown.Step.LadderLost
	if basis.Diverged != nil {
		shown.Lost = basis.Diverged.Error() + ". The recorded decision is authoritative."
	}
	shown.Facts, shown.Changes = factsOf(&basis.Facts), e.Changes
	shown.Counts = counts(d, basis.Before.Granted)
	if d.Requeue {
		shown.Delay = decided.Delay
		if basis.Evaluated && d.Group == nil && d.Code != policy.GroupRestart {
			shown.Delay += arithmetic(basis.Delay)
		}
	}
	for _, outcome := range whynot.Outcomes() {
		shown.Outcomes = append(shown.Outcomes, choice{outcome, p.with("why-not", outcome) + "#why-not", p.arg("why-not") == outcome})
	}
	if asked := p.arg("why-not"); asked != "" {
		none := (*query.NoAnswer)(nil)
		shown.WhyNot, err = e.WhyNot(asked)
		if errors.As(err, &none) || errors.Is(err, query.ErrNoPolicies) || errors.Is(err, audit.ErrDifferent) {
			shown.NoAnswer, err = err.Error(), nil
		}
		if err != nil {
			return err
		}
	}
	shown.Record = []fact{
		{"Decision", fmt.Sprintf("number %d of partition %d", d.Number, h.Job.Partition), ""},
		{"Policies", fmt.Sprintf("generation %d", d.Generation), link("/generation", "number", fmt.Sprint(d.Generation))},
		{"Event", d.Position.String(), ""},
	}
	if d.PodName != "" && d.Requeue {
		shown.Record = append(shown.Record, fact{"Pod of the next run", d.PodName, ""})
	}
	if len(d.AvoidNodes) > 0 {
		shown.Record = append(shown.Record, fact{"Nodes to avoid", strings.Join(d.AvoidNodes, ", "), ""})
	}
	if d.Policy != "" && d.Rule != "" && d.Rule != "default" {
		shown.WhatIf = link("/whatif", "set", fmt.Sprintf("policies.%s.rules[%s].retryLimit=2", d.Policy, d.Rule))
	}
	return p.show("explain", fmt.Sprintf("Run %d of job %s", run, clip(h.Job.JobID, 60)), "/jobs", shown)
}

// nothingDecided says why there is nothing to explain on a run.
func (s *site) nothingDecided(h *query.History, run uint64) error {
	why := map[string]string{}
	for _, n := range h.NotDecided {
		why[n.RunID] = n.Reason.String()
	}
	for _, r := range h.Runs {
		if uint64(r.Index) == run {
			text := undecided(r, why[r.RunID])
			if text == "" {
				text = fmt.Sprintf("Run %d is %s; only failed runs are decided.", run, strings.ToLower(r.State.String()))
			}
			return problem{404, "Nothing was decided on this run", text, nil}
		}
	}
	return problem{404, "There is no such run", fmt.Sprintf("Job %s has %d runs, numbered from 0; run %d does not exist.", clip(h.Job.JobID, 100), len(h.Runs), run), nil}
}

// factsOf lists what rules can match of a failure.
func factsOf(f *policy.Failure) (facts []string) {
	for c := policy.OOMKilled; c <= policy.LeaseExpired; c++ {
		if f.Conditions.Has(c) || c == policy.OOMKilled && f.PodOOM {
			facts = append(facts, "condition "+c.String())
		}
	}
	if f.Category != "" {
		facts = append(facts, "category "+strings.TrimSuffix(f.Category+"/"+f.Subcategory, "/"))
	}
	for _, c := range f.Containers {
		sort := "container"
		if c.Init {
			sort = "init container"
		}
		facts = append(facts, fmt.Sprintf("%s %s exited with %d (%s)", sort, c.Name, c.ExitCode, c.Reason))
	}
	return facts
}

// counts lists retries before and after a decision, with their limits.
func counts(d *jobdb.Decision, before uint32) (all []fact) {
	if d.LimitFrom != policy.FromNowhere {
		n := d.RuleUsed
		if d.Requeue && n > 0 {
			n-- // a granted retry counts as one
		}
		all = append(all, fact{"By this rule", fmt.Sprintf("%d before, %d after; the limit is %d, from the %s", n, d.RuleUsed, d.RuleLimit, d.LimitFrom), ""})
	}
	return append(all, fact{"Of the job in all", fmt.Sprintf("%d before, %d after; the limit is %d (globalMaxRetries)", before, d.GlobalUsed, d.GlobalLimit), ""})
}

// arithmetic shows how a delay was computed.
func arithmetic(a *policy.Arithmetic) string {
	if a == nil {
		return ": immediately, like Armada"
	}
	s := fmt.Sprintf(" = min(%v × %g^(%d−1), %v) = %v", a.Initial, a.Multiplier, a.N, a.Max, a.Plain)
	if a.Jitter > 0 {
		s += fmt.Sprintf(", plus jitter %v", a.Jitter)
	}
	if a.Grace > 0 {
		s += fmt.Sprintf("; at least termination grace %v + slack %v, so that the old pod is gone", a.Grace, a.Slack)
	}
	if a.PausedUntil > 0 {
		s += "; retries are paused until " + part(unixTime(a.PausedUntil), "2006-01-02 15:04:05 UTC")
	}
	return s
}
