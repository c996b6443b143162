package web

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whynot"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

// storyRuns limits the runs of a story: the newest are shown.
const storyRuns = 50

// jobPage is a job's story.
type jobPage struct {
	Job    query.Job
	Facts  []fact
	Answer string // why it failed for good, or what it waits for
	Steps  []step
	Left   int // earlier runs that are not shown
	Others []choice
	Pruned bool
	Live   live
	// ByGroup is what the group, or an order, did to the job last, in words.
	ByGroup   []query.ByGroup
	Elsewhere elsewhere
	Orders    []choice // that the job takes
	Ordered   string   // the id of an order that was just given
}

// fact is a name with a value.
type fact struct{ Name, Value, Link string }

// step is a run, what was decided on it, and the wait for the next one.
type step struct {
	query.StoryOfRun
	Kind    string
	Lasted  string
	Outcome string // what the decision did, or would have done
	Class   string // of the decision
	// NoEffect is why the decision had no effect; "": it had one.
	NoEffect string
	Wait     string // for the next run
	Explain  string
	Tried    int
	Skipped  int // rules that were not tried
	// Elsewhere leads to its logs and its pod.
	Elsewhere elsewhere
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

func (s *Site) job(p *page) error {
	h, others, err := p.find()
	if err != nil {
		return err
	}
	story, err := h.Story()
	if err != nil {
		return err
	}
	j := &story.Job
	shown := jobPage{Job: *j, Others: others, Pruned: story.Pruned, Answer: story.Outcome(s.Now()), Left: max(0, len(story.Runs)-storyRuns)}
	if !story.Pruned {
		if shown.ByGroup, err = s.Query.DoneByGroup(p.ctx, h.Job); err != nil {
			return err
		}
		shown.ByGroup = shown.ByGroup[max(0, len(shown.ByGroup)-storyRuns):]
	}
	s.Query.WithRules(p.ctx, story, shown.Left)
	for i := shown.Left; i < len(story.Runs); i++ {
		one := stepOf(story, i)
		one.Elsewhere = s.ofRun(map[string]string{
			"job": j.JobID, "queue": j.Queue, "jobset": j.JobSet, "run": one.RunID, "pod": h.Pod(one.Index), "namespace": h.Job.Submit.Namespace, "node": one.Node,
			"from": one.Leased, "to": cmp.Or(one.Ended, s.Now().UTC().Format(time.RFC3339)),
		})
		shown.Steps = append(shown.Steps, one)
	}
	shown.Orders, shown.Ordered = s.ordersOn(p, h), clip(p.arg("ordered"), 60)
	shown.Elsewhere = s.ofJob(j.JobID, j.Queue, j.JobSet)
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
	shown.Live = p.liveFrom("live", "story", "5s", fmt.Sprint(h.Job, len(h.Runs), len(h.Decisions), len(shown.ByGroup)))
	if j.Final && shown.Ordered == "" {
		shown.Live.Every = "" // nothing more happens
	}
	return p.show("job", "Job "+clip(j.JobID, 60), "/jobs", shown)
}

// stepOf is a run of a story as the page shows it.
func stepOf(story *query.Story, i int) step {
	s := step{StoryOfRun: story.Runs[i], Kind: kind(story.Runs[i].State)}
	s.Message = clip(s.Message, 4000)
	begun, err := time.Parse(time.RFC3339Nano, cmp.Or(s.Running, s.Leased))
	ended, err2 := time.Parse(time.RFC3339Nano, s.Ended)
	if err == nil && err2 == nil && !ended.Before(begun) {
		s.Lasted = ended.Sub(begun).Round(time.Second).String()
	}
	if d := s.Decided; d != nil {
		e := query.EffectOf(d)
		s.Outcome, s.Class = e.Text(d.Requeues()), kind(e.String())
		if e == query.Retried {
			s.Wait = "not before " + part(d.RetryAfter, "2006-01-02 15:04:05 UTC")
		}
		if !e.Took() {
			s.NoEffect = e.String()
		}
		s.Explain = link("/explain", "id", story.Job.JobID, "partition", fmt.Sprint(story.Job.Partition), "run", fmt.Sprint(s.Index))
	}
	if s.Waited != "" {
		s.Wait = "next run after " + s.StoryOfRun.Wait.Round(time.Millisecond).String() + s.NotFollowed()
	}
	if s.Rules != nil {
		for _, trace := range s.Rules.Ladder {
			if trace.Tried {
				s.Tried++
			} else {
				s.Skipped++
			}
		}
	}
	return s
}

// explainPage explains one decision.
type explainPage struct {
	*query.Explanation
	JobURL   string
	Run      query.Attempt
	What     string // the decision did
	Class    string
	Cause    string
	Facts    []string
	Outcomes []choice
	WhyNot   *query.WhyNot
	NoAnswer string
	Lost     string // why the rules are not shown, or may be wrong
	Counts   []fact
	Delay    string
	Record   []fact
	WhatIf   string
	Earlier  []choice
}

func (s *Site) explain(p *page) error {
	h, _, err := p.find()
	if err != nil {
		return err
	}
	run, err := strconv.ParseUint(p.arg("run"), 10, 31)
	if err != nil {
		return &query.Invalid{Param: "run", Err: fmt.Errorf("%q: want the number of a run, from 0", clip(p.arg("run"), 40))}
	}
	e, err := s.Query.ExplainRun(p.ctx, h.Job.JobID, []query.History{*h}, int(run))
	if none := (*query.NotDecided)(nil); errors.As(err, &none) {
		return s.nothingDecided(h, run, none)
	}
	if err != nil {
		return err
	}
	d, basis := e.Basis.Decision, &e.Basis
	shown := explainPage{
		Explanation: e, JobURL: jobLink(h.Job.Partition, h.Job.JobID), Run: e.Job.Attempts[0], Cause: audit.Cause(&basis.Facts), Facts: query.FactsOf(&basis.Facts),
		Record: []fact{
			{"Decision", fmt.Sprintf("number %d of partition %d", d.Number, h.Job.Partition), ""},
			{"Policies", fmt.Sprintf("generation %d", d.Generation), link("/generation", "number", fmt.Sprint(d.Generation))},
			{"Event", d.Position.String(), ""},
		},
	}
	shown.Run.Message = clip(shown.Run.Message, 4000)
	effect := query.EffectOf(&e.Decision)
	shown.Class = kind(effect.String())
	switch {
	case effect == query.Retried:
		shown.What = "The job was retried"
	case effect == query.FailedForGood:
		shown.What = "The job failed for good"
	case d.Requeue:
		shown.What = "The job would have been retried"
	default:
		shown.What = "The job would have failed for good"
	}
	switch {
	case basis.Diverged != nil:
		shown.Lost = basis.Diverged.Error() + ". The recorded decision is authoritative."
	case !basis.Evaluated:
		shown.Lost = query.ErrNoPolicies.Error()
	case !audit.Asked(d):
		shown.Lost = "The job's policies were not asked: its group decided."
	}
	for _, other := range h.Decisions {
		shown.Earlier = append(shown.Earlier, choice{fmt.Sprint("Run ", other.RunIndex), p.with("run", fmt.Sprint(other.RunIndex)), other.RunIndex == d.RunIndex})
	}
	for _, r := range query.RetryCounts(&e.Decision, e.Before) {
		shown.Counts = append(shown.Counts, fact{"By the " + r.Of, r.String(), ""})
	}
	if d.Requeue {
		shown.Delay = e.Decision.Delay + e.DelayText()
	}
	for _, outcome := range whynot.Outcomes() {
		shown.Outcomes = append(shown.Outcomes, choice{outcome, p.with("why-not", outcome) + "#why-not", p.arg("why-not") == outcome})
	}
	if asked := p.arg("why-not"); asked != "" {
		none := (*query.NoAnswer)(nil)
		shown.WhyNot, err = s.Query.WhyNotOf(p.ctx, e, asked)
		if errors.As(err, &none) || errors.Is(err, query.ErrNoPolicies) || errors.Is(err, audit.ErrDifferent) {
			shown.NoAnswer, err = err.Error(), nil
		}
		if err != nil {
			return err
		}
	}
	if e.NextPod != "" {
		shown.Record = append(shown.Record, fact{"Pod of the next run", e.NextPod, ""})
	}
	if len(d.AvoidNodes) > 0 {
		shown.Record = append(shown.Record, fact{"Nodes to avoid", strings.Join(d.AvoidNodes, ", "), ""})
	}
	counted := []policy.Code{policy.RuleRetry, policy.GangRetry, policy.RuleLimit, policy.PolicyLimit}
	if slices.Contains(counted, d.Code) && d.LimitFrom != policy.FromNowhere && d.Rule != "default" { // its limit matters
		shown.WhatIf = link("/whatif", "set", limitField(d.Policy, d.Rule)+"=2")
	}
	return p.show("explain", fmt.Sprintf("Run %d of job %s", run, clip(h.Job.JobID, 60)), "/jobs", shown)
}

// nothingDecided says why there is nothing to explain on a run.
func (s *Site) nothingDecided(h *query.History, run uint64, none *query.NotDecided) error {
	story, err := h.Story()
	if err != nil {
		return err
	}
	for i := range story.Runs {
		if r := &story.Runs[i]; uint64(r.Index) == run {
			text := cmp.Or(r.Undecided(), fmt.Sprintf("only failed runs are decided, and it is %s", strings.ToLower(r.State)))
			return problem{http.StatusNotFound, "Nothing was decided on this run", fmt.Sprintf("Run %d: %s.", run, text), none}
		}
	}
	return problem{http.StatusNotFound, "There is no such run", none.Error(), none}
}
