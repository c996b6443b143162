package whatif

import (
	"strings"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// Happened is the name of the side that is the history itself.
const Happened = "what happened"

// Side is what becomes, by one policy set, of the jobs that have a failed run. What really happened is taken wherever the history
// has it, whichever sides are compared: a job succeeds by every side that grants the retries that it had.
type Side struct {
	Name string `json:"name"` // of a candidate, of what it is compared with, or Happened
	Jobs uint64 `json:"jobs"` // with a failed run: the sum of the outcomes below
	// Retries are granted on the failed runs that took place.
	Retries uint64 `json:"retries"`
	// Runs took place behind these retries, and ran for so long as far as they have ended.
	Runs       uint64  `json:"runs"`
	RunSeconds float64 `json:"runSeconds"`
	// Held is what those of them held that have ended.
	Held      audit.Spent `json:"held"`
	Succeeded uint64      `json:"succeeded"`
	Failed    uint64      `json:"failed"`
	Cancelled uint64      `json:"cancelled"`
	Open      uint64      `json:"notOver"` // the history has no end of them, or ends before the last retry that is granted
	// Estimated jobs ended without the retry that this side grants next; Estimates say of each kind of these retries how they may end.
	Estimated uint64     `json:"estimated"`
	Estimates []Estimate `json:"estimates"`
}

// Expected is how many jobs succeed, with those that are expected to.
func (s *Side) Expected() float64 {
	n := float64(s.Succeeded)
	for i := range s.Estimates {
		n += s.Estimates[i].Expected()
	}
	return n
}

func (s *Side) add(o *Side) {
	s.Jobs, s.Retries, s.Runs, s.RunSeconds = s.Jobs+o.Jobs, s.Retries+o.Retries, s.Runs+o.Runs, s.RunSeconds+o.RunSeconds
	s.Succeeded, s.Failed, s.Cancelled, s.Open, s.Estimated = s.Succeeded+o.Succeeded, s.Failed+o.Failed, s.Cancelled+o.Cancelled, s.Open+o.Open, s.Estimated+o.Estimated
}

// fate is a job with a failed run, as one side decides it.
type fate struct {
	counted bool // a failed run of it is within what is looked at
	over    bool
	retried bool // the last failed run, by this side
	waiting bool // no run since the last failed one
	ended   bool // the history failed it, and has no run of it since
	behind  bool // the run that is known since the last failed one is behind a retry of this side
	kind    retryKind
	family  *family // nil: none
	run     string  // the last failed one; "": none yet
	leased  int64   // of the run behind a retry; 0: unknown
	began   int64   // of it; 0: none runs, or unknown
	due     int64

	requests *jobdb.Requests // nil: unknown
}

// ending is what a side does to a group where the history does something else.
type ending struct {
	fails bool // it fails it; else nobody knows what follows
	kind  retryKind
}

// fates follows the jobs with failed runs by one side.
type fates struct {
	o       *Options
	index   int // of the side, in what is kept of a job
	side    Side
	held    jobdb.Spent
	untold  untold
	took    map[retryKind]tally
	history bool // the side is the history: it says how retries end
}

func newFates(o *Options, index int, history bool) *fates {
	return &fates{o: o, index: index, untold: untold{}, took: map[retryKind]tally{}, history: history}
}

// decided follows a decision of the side.
func (f *fates) decided(m *message, e *entry) {
	parted := false // before
	if e.family != nil {
		if parted = e.family.endings[f.index] != nil; !parted && !f.history && m.groupParts(&e.verdict, e) {
			e.family.endings[f.index] = &ending{fails: e.verdict.action == policy.FailGroup, kind: e.verdict.retryKind(m.cause(e))}
		}
	}
	if e.isUnit() {
		return
	}
	t := &e.job.fates[f.index]
	if t.run == "" {
		t.family, t.requests = e.family, e.job.requests
	}
	if t.over {
		f.grant(t, m, e, parted)
		return
	}
	f.ran(t, e.run[1], m.at)
	f.tried(t, false)
	if f.o.within(e) && !t.counted {
		t.counted = true
		f.side.Jobs++
	}
	t.run, t.waiting, t.kind, t.due = strings.Clone(e.run[1]), true, e.verdict.retryKind(m.cause(e)), e.verdict.retryAfter
	t.retried = retried(&e.verdict)
	failed := m.failed(e)
	t.ended = t.ended || failed
	f.grant(t, m, e, parted)
	switch {
	case f.ending(e.family) != nil:
		f.over(t, nil)
	case t.retried:
	case e.verdict.fails() && !failed && !f.history: // else the history shows what followed
		f.over(t, &f.side.Failed)
	}
}

// grant counts a retry. What a side decides on the members of a group after this has parted is not about what happened, unless
// nobody knows what was decided: without a decision log, every end and restart of a group parts it.
func (f *fates) grant(t *fate, m *message, e *entry, parted bool) {
	if e.grants = t.counted && retried(&e.verdict) && (!t.over && !parted || parted && !m.logged); e.grants {
		f.side.Retries++
	}
}

// ran notes the end of a run behind a retry.
func (f *fates) ran(t *fate, run string, at int64) {
	if t.waiting && run != t.run { // nothing said that it began
		f.began(t, 0)
	}
	if t.behind && t.counted {
		f.held.Add(jobdb.SpentBy(t.requests, jobdb.RunTimes{Leased: t.leased, Ended: at}))
	}
	if t.began > 0 && t.counted {
		f.side.RunSeconds += float64(max(0, at-t.began)) / 1e9
	}
	t.began, t.behind = 0, false
}

// began notes the first sign of a run after a failed one.
func (f *fates) began(t *fate, at int64) {
	t.waiting, t.ended = false, false
	if t.behind = t.retried; t.behind {
		if t.leased, t.began = at, at; t.counted {
			f.side.Runs++
		}
	}
}

// tried notes how the run behind a retry ended.
func (f *fates) tried(t *fate, succeeded bool) {
	if !f.history || t.run == "" || t.waiting {
		return
	}
	n := tally{of: 1}
	if succeeded {
		n.succeeded = 1
	}
	n.add(f.took[t.kind])
	f.took[t.kind] = n
}

// happened follows an event of a job.
func (f *fates) happened(t *fate, ev *events.Event) {
	switch ev.Kind {
	case events.RunLeased, events.RunRunning:
		if t.waiting && ev.RunID != t.run {
			if f.began(t, ev.Time); ev.Kind == events.RunRunning {
				t.leased = 0
			}
		} else if ev.Kind == events.RunRunning && t.began > 0 {
			t.began = ev.Time
		}
	case events.RunErrors, events.RunSucceeded, events.RunPreempted, events.RunTerminated:
		if ev.RunID != t.run {
			f.ran(t, ev.RunID, ev.Time)
		}
	case events.JobErrors:
		t.ended = t.ended || ev.Error != nil
	case events.JobSucceeded:
		f.tried(t, true)
		f.over(t, &f.side.Succeeded)
	case events.CancelledJob:
		f.over(t, &f.side.Cancelled)
	default:
	}
}

// over counts a job by its end; nil, or if the side gave its group another end than the history: by that.
func (f *fates) over(t *fate, count *uint64) {
	t.over, t.began, t.behind = true, 0, false
	if !t.counted {
		return
	}
	kind := t.kind
	if end := f.ending(t.family); end != nil {
		if count, kind = nil, end.kind; end.fails {
			count = &f.side.Failed
		}
	}
	if count == nil {
		f.side.Estimated++
		f.untold[kind]++
		return
	}
	*count++
}

// ending returns what the side did to a group that the history did not; nil: nothing.
func (f *fates) ending(g *family) *ending {
	if g == nil {
		return nil
	}
	return g.endings[f.index]
}

// told counts a job of which the history tells no more.
func (f *fates) told(t *fate, now int64) {
	switch {
	case t.ended && t.retried && t.waiting && t.due <= now:
		f.over(t, nil)
	case t.ended && (!t.retried || !t.waiting):
		f.tried(t, false)
		f.over(t, &f.side.Failed)
	default:
		f.over(t, &f.side.Open)
	}
}

// merge adds another partition.
func (f *fates) merge(o *fates) {
	f.side.add(&o.side)
	f.held.Add(o.held)
	f.untold.merge(o.untold)
	for k, n := range o.took {
		n.add(f.took[k])
		f.took[k] = n
	}
}

// close returns the side, with estimates by the retries that took place.
func (f *fates) close(name string, took map[retryKind]tally) Side {
	f.side.Name, f.side.Held, f.side.Estimates = name, audit.SpentOf(&f.held), f.untold.estimates(took)
	return f.side
}
