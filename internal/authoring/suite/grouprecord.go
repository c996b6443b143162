package suite

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

func (m *MemberHistory) place() place {
	return place{m.Job.Member.Part, m.Job.Member.Replica, m.Job.Member.Index}
}

// recordedEvent is one event of the history of a group; those of several members at one time become one.
type recordedEvent struct {
	at      int64
	do      Verb
	late    bool
	run     string
	members []place
	by      *chain.Decision
	of      *jobdb.Run
}

// write writes one event.
func (h *History) write(b *strings.Builder, r *roster, e *recordedEvent, start int64) error {
	fmt.Fprintf(b, "  - at: %s\n", policyfile.Short(time.Duration(e.at-start)))
	names := r.names(e.members)
	switch {
	case e.do == FailRun:
	case e.run != "":
		fmt.Fprintf(b, "    %s: %s\n    run: %s\n", verbs[e.do], e.members[0], quoted(e.run))
	default:
		fmt.Fprintf(b, "    %s: %s\n", verbs[e.do], written("restarted", list(names)))
	}
	if e.late {
		b.WriteString("    late: true\n")
	}
	if e.do != FailRun {
		return nil
	}
	fail, err := failFields(e.of, e.by.Time)
	if err != nil {
		return err
	}
	expect := Expectation(&Outcome{Decision: e.by}, start)
	if h.Group == nil {
		fmt.Fprintf(b, "    fail: {%s}\n    expect: %s\n", strings.Join(fail, ", "), expect)
		return nil
	}
	fail = slices.DeleteFunc(fail, func(field string) bool { return strings.HasPrefix(field, "runDuration: ") }) // it was started
	if e.late {
		fail = fail[1:] // it is known which run
	}
	fmt.Fprintf(b, "    member: %s\n    fail: {%s}\n", e.members[0], strings.Join(fail, ", "))
	expect = strings.TrimSuffix(expect, "}")
	if more := h.expected(r, e.by); len(more) > 0 {
		expect += ", " + strings.Join(more, ", ")
	}
	fmt.Fprintf(b, "    expect: %s}\n", expect)
	return nil
}

// expected lists what the records say about a decision's group.
func (h *History) expected(r *roster, d *chain.Decision) []string {
	var fields []string
	if v := d.Group; v != nil {
		g := GroupOutcome{Ended: []chain.GroupVerdict{*v}, Used: v.RestartsUsed, Max: v.MaxRestarts}
		for _, field := range []string{"unitReason", "groupAction", "groupRule", "restarts"} {
			fields = append(fields, field+": "+written(field, g.value(field)))
		}
	}
	together := 0 // decisions of one message cannot be told apart
	for _, other := range h.Decisions {
		if other.Position == d.Position {
			together++
		}
	}
	if together > 1 {
		return fields
	}
	changed := map[chain.Change][]place{}
	for _, c := range h.Changes {
		if c.Position == d.Position {
			changed[c.Change] = append(changed[c.Change], place{c.Member.Part, c.Member.Replica, c.Member.Index})
		}
	}
	for _, of := range []struct {
		field  string
		change chain.Change
	}{{"restarted", chain.MemberRestart}, {"held", chain.MemberHeld}, {"released", chain.MemberReleased}, {"stopped", chain.MemberStopped}} {
		if all := changed[of.change]; len(all) > 0 {
			fields = append(fields, of.field+": "+written(of.field, list(r.names(all))))
		}
	}
	return fields
}

// events lists what happened, in order.
func (h *History) events() []recordedEvent {
	if h.Group == nil {
		return h.Members[0].failures(h.Decisions)
	}
	stopTimes := h.stopTimes()
	byRun := map[[2]string]*chain.Decision{}
	for _, d := range h.Decisions {
		byRun[[2]string{d.JobID, d.RunID}] = d
	}
	var all []recordedEvent
	for i := range h.Members {
		m := &h.Members[i]
		at := []place{m.place()}
		all = append(all, recordedEvent{at: m.Job.Times.Submitted, do: SubmitMembers, members: at})
		for _, run := range m.Runs {
			d := byRun[[2]string{m.Job.JobID, run.RunID}]
			stopped := stopTimes[[2]string{m.Job.JobID, run.RunID}]
			begun := cmp.Or(run.Times.Leased, run.Times.Pending, run.Times.Running, run.Times.Ended)
			e := recordedEvent{at: begun, do: StartRuns, members: at}
			if d != nil {
				e.run = run.RunID
			}
			if begun > 0 {
				all = append(all, e)
			}
			switch {
			case d != nil:
				late := d.Code == policy.GroupOver || d.Code == policy.GroupRestart && d.Group == nil
				all = append(all, recordedEvent{at: d.Time, do: FailRun, late: late, members: at, by: d, of: run})
			case run.State == jobdb.RunSucceeded:
				all = append(all, recordedEvent{at: run.Times.Ended, do: SucceedRuns, late: stopped > 0 && run.Times.Ended > stopped, members: at})
			}
		}
		if m.Job.Member.State == jobdb.MemberCancelled && m.Job.Times.Ended > 0 {
			all = append(all, recordedEvent{at: m.Job.Times.Ended, do: CancelMembers, members: at})
		}
	}
	order := [...]int{SubmitMembers: 0, StartRuns: 1, SucceedRuns: 2, FailRun: 3, CancelMembers: 4}
	slices.SortStableFunc(all, func(a, b recordedEvent) int {
		byNumber := 0
		if a.by != nil && b.by != nil {
			byNumber = cmp.Compare(a.by.Number, b.by.Number)
		}
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(order[a.do], order[b.do]), byNumber)
	})
	var merged []recordedEvent
	for _, e := range all {
		if n := len(merged); n > 0 && e.do != FailRun && e.run == "" {
			if last := &merged[n-1]; last.at == e.at && last.do == e.do && last.late == e.late && last.run == "" {
				last.members = append(last.members, e.members...)
				continue
			}
		}
		e.members = slices.Clone(e.members)
		merged = append(merged, e)
	}
	return merged
}

// failures lists the failures of a job in no group as they were decided, after its submission, if that is known.
func (m *MemberHistory) failures(decisions []*chain.Decision) (all []recordedEvent) {
	if at := m.Job.Times.Submitted; at != 0 {
		all = append(all, recordedEvent{at: at, do: SubmitMembers})
	}
	for _, d := range decisions {
		for _, run := range m.Runs {
			if run.RunID == d.RunID {
				all = append(all, recordedEvent{at: d.Time, do: FailRun, by: d, of: run})
			}
		}
	}
	return all
}

// stopTimes returns when runs were told to stop, as far as a decision says when.
func (h *History) stopTimes() map[[2]string]int64 {
	times := map[eventlog.Position]int64{}
	for _, d := range h.Decisions {
		times[d.Position] = d.Time
	}
	stopTimes := map[[2]string]int64{}
	for _, c := range h.Changes {
		if at := times[c.Position]; at > 0 && c.RunID != "" && (c.Change == chain.MemberRestart || c.Change == chain.MemberStopped) {
			stopTimes[[2]string{c.JobID, c.RunID}] = at
		}
	}
	return stopTimes
}

// complete reports whether all declared members were submitted before anything else happened.
func (h *History) complete() bool {
	if h.Group == nil {
		return true
	}
	declared, last, first := uint64(0), int64(0), int64(math.MaxInt64)
	for _, p := range h.Group.Shape.Parts {
		declared += uint64(p.Replicas) * uint64(p.Members)
	}
	for i := range h.Members {
		m := &h.Members[i]
		last = max(last, m.Job.Times.Submitted)
		for _, run := range m.Runs {
			first = min(first, cmp.Or(run.Times.Leased, run.Times.Ended, int64(math.MaxInt64)))
		}
		if m.Job.Member.State == jobdb.MemberCancelled {
			first = min(first, m.Job.Times.Ended)
		}
	}
	return h.Group.Policy != "" && uint64(len(h.Members)) == declared && last <= first
}

func (h *History) groupFields(r *roster) []string {
	var fields, gangs []string
	if h.Group.Policy != "" {
		fields = append(fields, "policy: "+quoted(h.Group.Policy))
	}
	for i := range h.Members {
		if m := &h.Members[i]; m.Job.Submit.GangID != "" && !slices.Contains(gangs, m.Job.Member.Part) {
			gangs = append(gangs, m.Job.Member.Part)
		}
	}
	if gangs != nil {
		fields = append(fields, "gangs: "+flow(gangs))
	}
	if jobs := h.memberJobs(r); len(jobs) > 0 {
		fields = append(fields, "jobs: {"+strings.Join(jobs, ", ")+"}")
	}
	return fields
}

// memberJobs lists the members whose jobs are not like that of the first.
func (h *History) memberJobs(r *roster) (jobs []string) {
	like := map[string][]place{}
	var order []string
	first := memberText(h.Members[0].Job)
	for i := range h.Members {
		m := &h.Members[i]
		text := memberText(m.Job)
		if text == first {
			continue
		}
		if like[text] == nil {
			order = append(order, text)
		}
		like[text] = append(like[text], m.place())
	}
	for _, text := range order {
		for _, name := range r.names(like[text]) {
			jobs = append(jobs, fmt.Sprintf("%s: {%s}", name, text))
		}
	}
	return jobs
}

// memberText writes the fields that one member's job may have for itself.
func memberText(j *jobdb.Job) string {
	return strings.Join(slices.DeleteFunc(memberFields(j), func(f string) bool { return strings.HasPrefix(f, "queue: ") }), ", ")
}

// memberFields are the fields of a job that its group does not say.
func memberFields(j *jobdb.Job) []string {
	return slices.DeleteFunc(jobFields(j), func(f string) bool { return strings.HasPrefix(f, "gangCardinality: ") })
}
