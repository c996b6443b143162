package suite

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/group"
)

// member is one job of a trial.
type member struct {
	place
	policy   string // that its job names
	job      Job
	runs     int
	run      string   // id of its latest run that was not told to stop; "": it has none
	live     bool     // that run has not ended
	since    int64    // when that run began to run
	stopping []string // runs that were told to stop, and have not ended
	ready    int64    // when it may start
	earlier  []audit.Earlier
}

// start leases the next runs of members, and starts them.
func (t *Trial) start(all []*member, run, node string, runs bool, at int64) ([]chain.Record, error) {
	var happened []*pb.Event
	for _, m := range all {
		if err := t.mayStart(m); err != nil {
			return nil, err
		}
		m.run, m.live, m.since = run, true, at
		if run == "" {
			m.run = "run-" + strconv.Itoa(m.runs)
		}
		m.runs++
		happened = append(happened, started(m.job.ID, m.run, node, runs)...)
	}
	return t.step(at, happened...)
}

func (t *Trial) mayStart(m *member) error {
	status := t.status(m)
	switch {
	case m.live:
		return fmt.Errorf("%s has a run already", m)
	case status.Over():
		return fmt.Errorf("%s is over (%s): it does not run again", m, overBy(status))
	case status&group.Held != 0:
		return fmt.Errorf("%s is held: it may not start", m)
	}
	return nil
}

func (t *Trial) status(m *member) group.Status {
	if state := t.p.State.Group(t.key); state != nil {
		if part := state.Part(m.part); part != nil {
			if u := part.Unit(m.replica); u != nil {
				return u.Member(m.index).Status
			}
		}
	}
	return 0
}

// ensure starts the runs that are needed for an end of all: those of members without a live run, and of the rest of
// their gangs.
func (t *Trial) ensure(all []*member, run string, f *Failure, at int64) error {
	var next []*member
	for _, m := range all {
		if m.live {
			continue
		}
		node, runs := "", true
		if f != nil {
			node, runs = f.Node, f.attempted() && f.RunDuration == nil && !t.alone()
		}
		if _, err := t.start([]*member{m}, run, node, runs, at); err != nil {
			return err
		}
		if f != nil && f.RunDuration != nil {
			m.since = at - f.RunDuration.Nanoseconds()
			if _, err := t.step(m.since, running(m.job.ID, m.run)); err != nil {
				return err
			}
		}
		if m.job.Gang > 0 {
			next = append(next, t.peers(m)...)
		}
	}
	next = slices.DeleteFunc(next, func(m *member) bool { return m.live || t.mayStart(m) != nil })
	if len(next) == 0 {
		return nil
	}
	slices.SortFunc(next, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.replica, b.replica), cmp.Compare(a.index, b.index))
	})
	_, err := t.start(slices.Compact(next), "", "", true, at)
	return err
}

// peers returns the other members of a gang, in order.
func (t *Trial) peers(m *member) []*member {
	var all []*member
	for i := range t.roster.parts {
		for _, p := range t.roster.parts[i].known {
			if other := t.members[p]; other != nil && other != m && p.part == m.part && p.replica == m.replica {
				all = append(all, other)
			}
		}
	}
	return all
}

func (t *Trial) fail(m *member, e *Event, at int64) ([]chain.Record, Outcome, error) {
	run, f, started := "", *e.Fail, m.live || e.Late
	var err error
	switch {
	case e.Late:
		run, err = m.late()
	case m.live && f.RunDuration != nil:
		err = fmt.Errorf("the run of %s was started before: omit runDuration", m)
	default:
		if err = t.ensure([]*member{m}, f.Run, &f, at); err != nil {
			break
		}
		if run = m.run; f.Run != "" && f.Run != run {
			err = fmt.Errorf("fail.run is %s, but the run of %s that is live is %s", shown(f.Run), m, shown(run))
		}
		if m.live = false; f.attempted() && !t.alone() {
			f.RunDuration = new(time.Duration(at - m.since))
		}
	}
	if err != nil {
		return nil, Outcome{}, err
	}
	happened, raw, err := f.events(m.job.ID, run)
	if err != nil {
		return nil, Outcome{}, err
	}
	if started && f.Node != "" { // its start named no node
		happened = append([]*pb.Event{runningOn(f.Node, m.job.ID, run)}, happened...)
	}
	records, err := t.step(at, happened...)
	if err != nil {
		return nil, Outcome{}, err
	}
	out, err := t.explained(m, records, failed{&f, run, raw, at})
	if d := out.Decision; d != nil && d.Requeue && !e.Late {
		m.ready = d.RetryAfter
	}
	return records, out, err
}

// succeed ends runs of members. What some of them release succeeds in a message of its own, at the same time.
func (t *Trial) succeed(all []*member, late bool, at int64) ([]chain.Record, error) {
	var records []chain.Record
	for len(all) > 0 {
		now, later := all, []*member(nil)
		if !late {
			now, later = nil, nil
			for _, m := range all {
				if t.status(m)&(group.Held|group.HasSucceeded) == group.Held {
					later = append(later, m)
				} else {
					now = append(now, m)
				}
			}
			if len(now) == 0 {
				return nil, t.mayStart(later[0])
			}
		}
		more, err := t.succeedTogether(now, late, at)
		if err != nil {
			return nil, err
		}
		records, all = append(records, more...), later
	}
	return records, nil
}

func (t *Trial) succeedTogether(all []*member, late bool, at int64) ([]chain.Record, error) {
	if !late {
		if err := t.ensure(all, "", nil, at); err != nil {
			return nil, err
		}
	}
	var happened []*pb.Event
	for _, m := range all {
		run := m.run
		if late {
			var err error
			if run, err = m.late(); err != nil {
				return nil, err
			}
		}
		m.live = m.live && late
		happened = append(happened, &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: m.job.ID, RunId: run}}})
	}
	records, err := t.step(at, happened...)
	return slices.Clone(records), err // the next message reuses them
}

func (t *Trial) cancel(all []*member, at int64) ([]chain.Record, error) {
	var happened []*pb.Event
	for _, m := range all {
		if t.status(m)&group.WasCancelled != 0 {
			return nil, fmt.Errorf("%s was cancelled before", m)
		}
		m.live, m.stopping = false, nil
		happened = append(happened,
			&pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: m.job.ID}}},
			&pb.Event{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: m.job.ID}}})
	}
	return t.step(at, happened...)
}

// noteStopped notes that the member's run was told to stop.
func (m *member) noteStopped() {
	if m.live {
		m.stopping = append(m.stopping, m.run)
	}
	m.live = false
}
