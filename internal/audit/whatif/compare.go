package whatif

import (
	"cmp"
	"math"
	"strings"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// parted is a job or a group of which the two histories have parted.
type parted struct {
	fewer   bool              // only the other side retries the job
	more    bool              // only the candidate does
	counted bool              // it parted within the time that is looked at
	over    bool              // its outcome is counted
	ended   bool              // the history failed it, and has no run of it since
	due     int64             // when the last retry that one side grants starts, if it grants one
	kind    retryKind         // of that retry
	running map[string]*int64 // since when runs of it run; only while it is followed
}

// followed reports whether the history may have runs behind the retry that one side grants.
func (p *parted) followed() bool { return (p.fewer || p.more) && !p.over }

// comparison compares one candidate with the other side, on one partition.
type comparison struct {
	o         *Options
	index     int // of the candidate, in what is kept of a job
	partition int
	result    *Result
}

// message is a message of the history, and what was decided on it.
type message struct {
	position eventlog.Position
	seq      *events.Sequence
	jobs     []*job // of its events; nil: nothing is kept of one
	at       int64  // the time of its latest event
	actual   []entry
	logged   bool           // there is a decision log, which actual is of
	causes   []cause        // of the runs that failed, as far as they were asked for
	facts    policy.Failure // scratch
}

type cause struct {
	run, name string
	event     int // that says it
}

// cause names why a run failed.
func (m *message) cause(e *entry) string {
	if m.seq == nil || e.isUnit() {
		return e.verdict.Code
	}
	if i := around(m.causes, e.place, func(c *cause) bool { return c.run == e.run[1] }); i >= 0 {
		return m.causes[i].name
	}
	c := cause{run: e.run[1], name: "unknown"}
	if n := len(m.causes); n > 0 {
		c.event = m.causes[n-1].event
	}
	if i := around(m.seq.Events, c.event, func(ev *events.Event) bool { return ev.RunID == e.run[1] && ev.JobID == e.jobID() && ev.Error != nil }); i >= 0 {
		evaluator.ErrorFacts(&m.facts, m.seq.Events[i].Error)
		c.name, c.event = audit.Cause(&m.facts), i
	}
	m.causes = append(m.causes, c)
	return c.name
}

// around finds an element, and looks first where it is expected: what a message has of many runs is in about the same order everywhere.
func around[T any](all []T, at int, is func(*T) bool) int {
	for k := range all {
		if i := (at + k) % len(all); is(&all[i]) {
			return i
		}
	}
	return -1
}

// failed reports whether the history has a decision that failed the run of an entry for good.
func (m *message) failed(e *entry) bool {
	was := find(m.actual, e)
	return was != nil && was.verdict.fails()
}

// groupParts reports whether a verdict gives the group of an entry another history.
func (m *message) groupParts(v *Verdict, e *entry) bool {
	was := ""
	if other := find(m.actual, e); other != nil && !other.verdict.Shadow {
		was = other.verdict.Group
	}
	return !v.Shadow && v.Group != was && (was != "" || v.action == policy.FailGroup || v.action.Restarts())
}

// message compares what both sides made of a message.
func (c *comparison) message(m *message, actual, candidate []entry) {
	c.result.RetriesFewer += granted(actual, candidate)
	c.result.RetriesMore += granted(candidate, actual)
	for i := range candidate {
		if p := c.partedOf(&candidate[i]); p != nil && p.more {
			c.after(m, p, &candidate[i])
		}
	}
	for i := range actual {
		r := &actual[i]
		if p := c.partedOf(r); p != nil {
			if !p.more { // the side that retries it says for how long
				c.after(m, p, r)
			}
			continue
		}
		other := find(candidate, r)
		if other == nil {
			other = &entry{verdict: Verdict{Outcome: NotDecided, Code: "none"}}
		}
		c.entry(m, r, other)
	}
	for i := range candidate {
		if e := &candidate[i]; e.decided && find(actual, e) == nil && c.partedOf(e) == nil {
			none := *e
			none.verdict = Verdict{Outcome: NotDecided, Code: "none"}
			c.entry(m, &none, e)
		}
	}
}

// granted counts the retries on failed runs that one side counts and the other does not.
func granted(one, other []entry) (n uint64) {
	for i := range one {
		if !one[i].grants {
			continue
		}
		if e := find(other, &one[i]); e == nil || !e.grants {
			n++
		}
	}
	return n
}

// timeOf is the time of a message: that of its latest event.
func timeOf(seq *events.Sequence, publish int64) int64 {
	if seq == nil || len(seq.Events) == 0 {
		return publish
	}
	latest := int64(math.MinInt64)
	for i := range seq.Events {
		latest = max(latest, seq.Events[i].Time)
	}
	return latest
}

func find(all []entry, e *entry) *entry {
	i := around(all, e.place, func(x *entry) bool { return x.run == e.run && x.queue == e.queue && x.set == e.set }) // units of several sets have one name
	if i < 0 {
		return nil
	}
	return &all[i]
}

func (c *comparison) partedOf(e *entry) *parted {
	if !e.isUnit() && e.job.parted[c.index] != nil {
		return e.job.parted[c.index]
	}
	if e.family != nil {
		return e.family.parted[c.index]
	}
	return nil
}

// within reports whether an entry is to be counted.
func (o *Options) within(e *entry) bool {
	return (o.Queue == "" || e.queue == o.Queue) && (o.From == 0 || e.time >= o.From || e.time == 0) && (o.To == 0 || e.time <= o.To)
}

// entry compares two entries of jobs whose histories are still one.
func (c *comparison) entry(m *message, r, other *entry) {
	counted := c.o.within(r)
	if counted && (r.decided || other.decided) {
		if r.isUnit() {
			c.result.Units++
		} else {
			c.result.Compared++
			c.result.countRules(&r.verdict, &other.verdict)
		}
	}
	if same(&r.verdict, &other.verdict) {
		return
	}
	parts := r.verdict.acts() != other.verdict.acts()
	if parts {
		c.part(m, r, other, counted)
	}
	if !counted {
		return
	}
	if r.isUnit() {
		c.result.UnitsChanged++
	} else {
		c.result.Changed++
	}
	cause := m.cause(r)
	row := Row{Queue: r.queue, Cause: cause, Decided: text(&r.verdict, &other.verdict), Candidate: text(&other.verdict, &r.verdict), Policy: other.verdict.Policy, Rule: other.verdict.Rule}
	if row.Policy == "" && row.Rule == "" {
		row.Policy, row.Rule = r.verdict.Policy, r.verdict.Rule
	}
	c.result.count(row, 1)
	if len(c.result.Jobs) < c.o.Skip+c.o.Limit {
		c.result.Jobs = append(c.result.Jobs, Change{
			Partition: c.partition, Position: m.position.String(), Time: timeText(r.time), Queue: r.queue, JobSet: strings.Clone(r.set), JobID: strings.Clone(r.jobID()),
			RunID: strings.Clone(r.run[1]), Cause: cause, Decided: r.verdict, Candidate: other.verdict, Parts: parts,
		})
	}
}

// part notes that the histories of a job part, and that of its group with it.
func (c *comparison) part(m *message, r, other *entry, counted bool) {
	p := &parted{counted: counted, fewer: retried(&r.verdict) && !retried(&other.verdict), more: retried(&other.verdict) && !retried(&r.verdict)}
	if p.fewer || p.more {
		p.running = map[string]*int64{}
		p.ended = m.failed(r)
		grants := &other.verdict
		if p.fewer {
			grants = &r.verdict
		}
		p.due, p.kind = grants.retryAfter, grants.retryKind(m.cause(r))
		if m.seq != nil {
			for i := range m.seq.Events {
				if ev := &m.seq.Events[i]; ev.JobID == r.jobID() {
					c.noteEnd(p, ev)
				}
			}
		}
	}
	if !r.isUnit() { // which parts with its group
		r.job.parted[c.index] = p
	}
	if g := cmp.Or(r.family, other.family); g != nil {
		g.parted[c.index] = &parted{counted: counted}
	}
}

// outcomes are those of the jobs that the same side retries.
func (c *comparison) outcomes(p *parted) *Outcomes {
	if p.fewer {
		return &c.result.Ended
	}
	return &c.result.RunOn
}

func retried(v *Verdict) bool { return v.Outcome == Retry && !v.Shadow }

// after counts a failed run after the histories have parted.
func (c *comparison) after(m *message, p *parted, r *entry) {
	if !p.counted || !r.decided || r.isUnit() {
		return
	}
	c.result.NotCompared++
	switch {
	case !p.followed(), r.verdict.Shadow:
	case retried(&r.verdict):
		p.ended = p.ended || m.failed(r)
		p.due, p.kind = r.verdict.retryAfter, r.verdict.retryKind(m.cause(r))
	default:
		c.over(p, &c.outcomes(p).Failed)
	}
}

// follow counts the runs that took place behind a retry that only one side grants, and what became of their jobs.
func (c *comparison) follow(p *parted, ev *events.Event) {
	switch at := ev.Time; ev.Kind {
	case events.RunLeased, events.RunRunning:
		if began := p.running[ev.RunID]; began == nil {
			p.running[strings.Clone(ev.RunID)] = &at
			p.ended = false
			c.add(p, 1, 0)
		} else if ev.Kind == events.RunRunning {
			*began = at
		}
	case events.RunErrors, events.RunSucceeded, events.RunPreempted, events.RunTerminated:
		if began := p.running[ev.RunID]; began != nil && *began > 0 {
			c.add(p, 0, at-*began)
			*began = 0 // it is counted
		}
	default:
		c.noteEnd(p, ev)
	}
}

// noteEnd notes what an event says about the end of a job that is followed.
func (c *comparison) noteEnd(p *parted, ev *events.Event) {
	switch ev.Kind {
	case events.JobErrors:
		p.ended = p.ended || ev.Error != nil
	case events.JobSucceeded:
		c.over(p, &c.outcomes(p).Succeeded)
	case events.CancelledJob:
		c.over(p, &c.outcomes(p).Cancelled)
	default:
	}
}

func (c *comparison) add(p *parted, runs uint64, ns int64) {
	seconds := float64(max(0, ns)) / 1e9
	switch {
	case !p.counted:
	case p.fewer:
		c.result.RunsFewer, c.result.RunSeconds = c.result.RunsFewer+runs, c.result.RunSeconds+seconds
	default:
		c.result.RunsMore, c.result.RunSecondsMore = c.result.RunsMore+runs, c.result.RunSecondsMore+seconds
	}
}

func (c *comparison) over(p *parted, count *uint64) {
	p.over, p.running = true, nil
	if p.counted {
		*count++
	}
}

// unknown counts a job that ended without the retry that one side grants.
func (c *comparison) unknown(p *parted) {
	c.over(p, &c.outcomes(p).Unknown)
	switch {
	case !p.counted:
	case p.fewer:
		c.result.earlier[p.kind]++
	default:
		c.result.runOn[p.kind]++
	}
}

// told counts a job of which the history tells no more. It is not over while its last retry is pending: the history ends before it.
func (c *comparison) told(p *parted, now int64) {
	if p.ended && p.due <= now {
		c.unknown(p)
	} else {
		c.over(p, &c.outcomes(p).Open)
	}
}
