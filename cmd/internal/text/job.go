// Package text prints answers of package query, and what commands found out, for people. It asks nothing and decides nothing:
// every figure is one that it is given.
package text

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

// Job prints a job with its runs.
func Job(w io.Writer, j query.Job) error {
	fmt.Fprintf(w, "%s %s\n  queue %s, job set %s, partition %d, %s\n", show.Bold(w, "Job"), query.OneLine(j.JobID), query.OneLine(j.Queue), query.OneLine(j.JobSet), j.Partition, j.State)
	if j.CancelRequested && !j.Final {
		fmt.Fprintln(w, "  its cancellation is requested")
	}
	if j.RetryAfter != "" {
		fmt.Fprintf(w, "  not before %s\n", show.Millis(j.RetryAfter))
	}
	if len(j.AvoidNodes) > 0 {
		fmt.Fprintf(w, "  not on %s\n", query.OneLine(strings.Join(j.AvoidNodes, ", ")))
	}
	if v := j.Armada; v != nil {
		fmt.Fprintf(w, "  Armada's own verdict: failed (%s) %s\n", v.Reason, query.OneLine(v.Message))
	}
	t := show.NewTable(w, "  RUN", "ID", "STATE", "NODE", "ERROR", "DECIDED", "MESSAGE")
	for i := range j.Attempts {
		r := &j.Attempts[i]
		decided := ""
		switch {
		case r.Decision != 0 && r.Shadow:
			decided = fmt.Sprintf("decision %d (shadow)", r.Decision)
		case r.Decision != 0 && r.Superseded != 0:
			decided = fmt.Sprintf("decision %d superseded", r.Decision)
		case r.Decision != 0:
			decided = fmt.Sprintf("decision %d", r.Decision)
		case r.Superseded != 0:
			decided = fmt.Sprintf("released; decision %d superseded", r.Superseded)
		case r.Released:
			decided = "released"
		}
		t.Row(fmt.Sprintf("  %d", r.Index), r.RunID, r.State, r.Node, r.Error, decided, r.Message)
	}
	return t.Flush()
}

// Kind names a decision, and says if it had no effect.
func Kind(d *audit.Decision) string { return d.Decision + EffectNote(query.EffectOf(d)) }

// EffectNote says why a decision had no effect; "": it had one.
func EffectNote(e query.Effect) string {
	switch e {
	case query.InShadow:
		return " (shadow)"
	case query.Superseded:
		return " (superseded)"
	case query.Retried, query.FailedForGood:
	}
	return ""
}

// Used is how many retries by its rule a decision used.
func Used(d *audit.Decision) string {
	if d.RuleUsed == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", *d.RuleUsed, *d.RuleLimit)
}

// Superseded explains a record that had no effect.
const Superseded = "superseded: it came too late, so it had no effect"

// Story prints all runs of a job as one story.
func Story(w io.Writer, s *query.Story) error {
	fmt.Fprintf(w, "%s %s  queue %s, job set %s: %s after %s", show.Bold(w, "Job"), query.OneLine(s.Job.JobID), query.OneLine(s.Job.Queue), query.OneLine(s.Job.JobSet), s.Job.State, plural.Of(len(s.Runs), "run"))
	if s.Job.Ended != "" {
		fmt.Fprintf(w, ", at %s", show.Millis(s.Job.Ended))
	}
	fmt.Fprintln(w)
	if outcome := s.Outcome(time.Now()); outcome != "" {
		fmt.Fprintln(w, query.OneLine(outcome))
	}
	fmt.Fprintln(w)
	t := show.NewTable(w, "RUN", "NODE", "LEASED", "ENDED", "HOW", "DECISION", "RULE", "USED/LIMIT", "TOTAL", "DELAY", "NEXT")
	for i := range s.Runs {
		c := &s.Runs[i]
		how := c.State
		if c.Cause != "" {
			how += ": " + c.Cause
		}
		cells := []string{fmt.Sprint(c.Index), c.Node, show.Millis(c.Leased), show.Millis(c.Ended), how, c.Undecided(), "", "", "", "", nextIn(s, i)}
		if d := c.Decided; d != nil {
			cells[5], cells[6], cells[7] = d.Decision+" "+d.Code+EffectNote(query.EffectOf(d)), query.RuleName(d.Policy, d.Rule), Used(d)
			cells[8], cells[9] = fmt.Sprintf("%d/%d", d.GlobalUsed, d.GlobalLimit), d.Delay
		}
		t.Row(cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nTOTAL counts all retries of the job. `explain --run N` explains the decision on a run.")
	if s.Pruned {
		fmt.Fprintf(w, "%s the job was pruned from the job database; this was derived from the logs\n", show.Bold(w, "Pruned"))
	}
	if v := s.Job.Armada; v != nil {
		fmt.Fprintf(w, "%s failed: %s %s\n", show.Bold(w, "Armada's own verdict"), v.Reason, query.OneLine(v.Message))
	}
	return nil
}

// nextIn says what came after a run.
func nextIn(s *query.Story, i int) string {
	c := &s.Runs[i]
	switch {
	case i+1 < len(s.Runs) && c.Waited != "":
		return fmt.Sprintf("run %d, after %s%s", s.Runs[i+1].Index, show.Rounded(c.Waited), c.NotFollowed())
	case i+1 < len(s.Runs):
		return fmt.Sprintf("run %d", s.Runs[i+1].Index)
	case s.Job.Final:
		return "the job is over"
	case s.Job.CancelRequested:
		return "its cancellation is requested"
	case c.Decided != nil && query.EffectOf(c.Decided) == query.Retried && s.Job.Due(time.Now()):
		return "queued, due since " + show.Millis(s.Job.RetryAfter)
	case c.Decided != nil && query.EffectOf(c.Decided) == query.Retried && s.Job.RetryAfter != "":
		return "queued, not before " + show.Millis(s.Job.RetryAfter)
	}
	return s.Job.State
}

// changeText says who last changed a resource, and why.
func changeText(l *query.LastChange) string {
	text := fmt.Sprintf("%s was last changed by %s at %s, in generation %d", query.OneLine(l.Resource), query.OneLine(l.Author), l.Time, l.Generation)
	if l.Reason != "" {
		text += ": " + query.OneLine(l.Reason)
	}
	return text
}

// History prints one line a record, but one for a run of the same change of many members.
func History(w io.Writer, history []query.Line) {
	fmt.Fprintf(w, "\n%s\n", show.Bold(w, "History"))
	for i := 0; i < len(history); {
		n := sameChange(history[i:])
		line := history[i].Text
		var at audit.Position
		var late bool
		if d := history[i].Decision; d != nil {
			line = fmt.Sprintf("%s: job %s, index %d of %s/%d, run %d: %s", Kind(d), d.JobID, *d.Index, d.Part, *d.Replica, d.RunIndex, d.Reason)
			at, late = d.Position, d.Superseded
		} else {
			at, late = history[i].Other.Position, history[i].Other.Superseded
			if n > 1 {
				line = changesText(history[i : i+n])
			}
		}
		if late {
			line += " (" + Superseded + ")"
		}
		fmt.Fprintf(w, "  %v  %s\n", position(at), query.OneLine(line))
		i += n
	}
}

func position(p audit.Position) eventlog.Position {
	return eventlog.Position{Ledger: p.Ledger, Entry: p.Entry, Batch: p.Batch}
}

// sameChange returns how many records from the first on are the same change, by one message, of members of one unit.
func sameChange(history []query.Line) int {
	first := history[0].Other
	n := 1
	for ; first != nil && first.Index != nil && n < len(history); n++ { // only changes of members have an index
		r := history[n].Other
		if r == nil || r.Index == nil || r.Record != first.Record || r.Position != first.Position || r.RetryAfter != first.RetryAfter ||
			r.Part != first.Part || *r.Replica != *first.Replica {
			break
		}
	}
	return n
}

func changesText(history []query.Line) string {
	var set policy.Indexes
	first := history[0].Other
	for i := range history {
		set.Add(*history[i].Other.Index)
	}
	line := fmt.Sprintf("%s: %s of %s/%d, indexes %s", first.Record, plural.Of(len(history), "member"), first.Part, *first.Replica, set)
	if first.Record == chain.MemberRestart.String() {
		line += fmt.Sprintf(", generation %d, not before %s", *first.Generation, first.RetryAfter)
	}
	return strings.TrimSpace(line)
}

// Place is where a command looked, in the flags of the commands that are printed to be copied.
type Place struct {
	Flags    string
	Policies bool // are there, too
}

// explainGroup is the command that has all records of a group.
func (p Place) explainGroup(queue, set, group string) string {
	return fmt.Sprintf("refloatctl explain group %s --queue %s --job-set %s %s", show.Quoted(group), show.Quoted(queue), show.Quoted(set), p.Flags)
}

// ByGroup shows what a job's group did to the job, or why it is in none, and what orders did. j is nil if that is unknown.
func ByGroup(w io.Writer, j *query.Job, done []query.ByGroup, p Place) {
	switch {
	case len(done) == 0:
		return
	case j != nil && j.Group != "":
		fmt.Fprintf(w, "\n%s about the job; those of its whole group: %s\n", show.Bold(w, "Records"), p.explainGroup(j.Queue, j.JobSet, j.Group))
	default:
		fmt.Fprintf(w, "\n%s about the job\n", show.Bold(w, "Records"))
	}
	for _, d := range done {
		if d.At == "" {
			fmt.Fprintf(w, "  %s\n", query.OneLine(d.Text))
			continue
		}
		fmt.Fprintf(w, "  %s  %s\n", query.OneLine(d.At), query.OneLine(d.Text))
	}
}

// Sum adds up the members of all units.
func Sum(g *query.Group) (sum query.Unit) {
	for _, p := range g.Parts {
		for _, u := range p.Units {
			sum.Active, sum.Held, sum.Succeeded = sum.Active+u.Active, sum.Held+u.Held, sum.Succeeded+u.Succeeded
			sum.Failed, sum.Terminating = sum.Failed+u.Failed, sum.Terminating+u.Terminating
		}
	}
	return sum
}

// Group prints a group with its story and its units.
func Group(w io.Writer, g *query.Group, p Place) error {
	by := "a gang without a group policy"
	if g.Policy != "" {
		by = "group policy " + query.OneLine(g.Policy)
	}
	fmt.Fprintf(w, "%s %s\n  queue %s, job set %s, partition %d, %s, %s\n", show.Bold(w, "Group"), query.OneLine(g.Group), query.OneLine(g.Queue), query.OneLine(g.JobSet), g.Partition, by, g.State)
	if g.Reason != "" {
		fmt.Fprintf(w, "  reason %s%s\n", query.OneLine(g.EndReason()), query.ByRule(g.Rule))
	}
	if g.Newer != "" {
		fmt.Fprintf(w, "  the name begins a new group after each end: the newest is %s\n", query.OneLine(g.Newer))
	}
	fmt.Fprintf(w, "  restarts %s: %s\n", g.RestartsUsed(), query.OneLine(g.RestartsLimit()))
	if s := g.SuccessRule(); s != "" {
		fmt.Fprintf(w, "  succeeds when %s\n", query.OneLine(s))
	}
	for i := range g.Parts {
		if rules := g.Parts[i].Rules(); len(rules) > 0 {
			fmt.Fprintf(w, "  part %s: %s\n", query.OneLine(g.Parts[i].Name), query.OneLine(strings.Join(rules, "; ")))
		}
	}
	if err := groupStory(w, g, p); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t := show.NewTable(w, "  UNIT", "STATE", "GENERATION", "RESTARTS", "RETRIES", "ACTIVE", "HELD", "SUCCEEDED", "FAILED", "CANCELLED", "STOPPED", "TERMINATING", "COMPLETED INDEXES", "FAILED INDEXES")
	for _, p := range g.Parts {
		for _, u := range p.Units {
			t.Row(fmt.Sprintf("  %s/%d", p.Name, u.Replica), u.State, fmt.Sprint(u.Generation), fmt.Sprint(u.Restarts), fmt.Sprint(u.RetriesUsed),
				fmt.Sprint(u.Active), fmt.Sprint(u.Held), fmt.Sprint(u.Succeeded), fmt.Sprint(u.Failed), fmt.Sprint(u.Cancelled), fmt.Sprint(u.Stopped),
				fmt.Sprint(u.Terminating), u.CompletedIndexes, u.FailedIndexes)
		}
	}
	return t.Flush()
}

// groupStory prints what happened in a group, and what became of its members in each generation.
func groupStory(w io.Writer, g *query.Group, p Place) error {
	s := g.Story
	if s == nil {
		return nil
	}
	for i := range s.Turns {
		t := &s.Turns[i]
		fmt.Fprintf(w, "\n%s %d: %s\n", show.Bold(w, "Generation"), t.Generation, query.OneLine(strings.TrimSpace(t.Who()+" "+t.What())))
		for _, line := range []string{t.Why(), t.Effect()} {
			if line != "" {
				fmt.Fprintf(w, "  %s\n", query.OneLine(line))
			}
		}
		if i == 0 && s.LeftOut > 0 {
			fmt.Fprintf(w, "  and %s more: %s\n", plural.Of(uint64(s.LeftOut), "end of a unit", "ends of units"), p.explainGroup(g.Queue, g.JobSet, g.Group))
		}
	}
	switch t := s.Ended(); {
	case t == nil:
	case t.Lost != nil:
		fmt.Fprintf(w, "  The job: refloatctl get job %s %s\n", show.Quoted(query.OneLine(t.Lost.JobID)), p.Flags)
	case p.Policies:
		d := t.Record.Decision
		fmt.Fprintf(w, "  What would have changed it: refloatctl explain %s --run %d --why-not Retry %s\n", show.Quoted(query.OneLine(d.JobID)), d.RunIndex, p.Flags)
	}
	if len(s.Members) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	heads := []string{"  MEMBERS"}
	for _, g := range s.Members[0].Generations {
		heads = append(heads, fmt.Sprint("GENERATION ", g.Number))
	}
	t := show.NewTable(w, heads...)
	for i := range s.Members {
		cells := []string{"  " + s.Members[i].Name}
		for _, g := range s.Members[i].Generations {
			cells = append(cells, g.Text())
		}
		t.Row(cells...)
	}
	return t.Flush()
}

// Queue prints what happened to the failed runs of a queue or a job set.
func Queue(w io.Writer, s *query.QueueStory) error {
	name := s.Name()
	if s.Since != "" {
		name += " since " + show.Millis(s.Since)
	}
	effects := s.Effects()
	fmt.Fprintf(w, "%s%s: %s: %s\n", show.Bold(w, strings.ToUpper(name[:1])), name[1:], plural.Of(s.Decisions, "decision"), effects.Words())
	for _, c := range []struct {
		heading string
		counts  []query.Tally
	}{{"CODE", s.Codes}, {"RULE", s.Rules}, {"CAUSE" + strings.ToUpper(s.NewestCauses()), s.Causes}} {
		if len(c.counts) == 0 {
			continue
		}
		fmt.Fprintln(w)
		t := show.NewTable(w, "COUNT", c.heading)
		for _, n := range c.counts {
			t.Row(fmt.Sprint(n.Count), n.Key)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		what string
		*query.Outcomes
		time func(*query.LastOutcome) string
		head string
	}{
		{"Failed for good", &s.Failed, func(f *query.LastOutcome) string { return show.Millis(f.Ended) }, "ENDED"},
		{"Pending retries", &s.Pending, func(f *query.LastOutcome) string { return show.Millis(f.RetryAfter) }, "RETRY AFTER"},
	} {
		fmt.Fprintf(w, "\n%s: %s\n", show.Bold(w, l.what), plural.Of(l.Count, "job"))
		if l.Count == 0 {
			continue
		}
		t := show.NewTable(w, "  JOB", "RUNS", l.head, "CODE", "RULE", "WHY")
		for i := range l.Jobs {
			j := &l.Jobs[i]
			t.Row("  "+j.JobID, fmt.Sprint(j.Runs), l.time(j), j.Code, j.Rule, j.Reason)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if more := l.Count - len(l.Jobs); more > 0 {
			fmt.Fprintf(w, "  and %d more: --limit 0 lists all\n", more)
		}
	}
	inForce(w, s.Policies)
	return nil
}

func inForce(w io.Writer, p *query.InForce) {
	if p == nil {
		fmt.Fprintf(w, "\n%s are in the policies log: give --pulsar URL or --data DIR to see what is in force\n", show.Bold(w, "Policies"))
		return
	}
	applying, mode := cmp.Or(strings.Join(p.Applying, ", then "), "none, so that failed runs are decided as Armada does"), ""
	if p.Shadow {
		mode = "; the queue is in shadow"
	}
	fmt.Fprintf(w, "\n%s in force, generation %d, for jobs that name none: %s; globalMaxRetries %d%s\n", show.Bold(w, "Policies"), p.Generation, query.OneLine(applying), p.Limit, mode)
	for i := range p.Changes {
		fmt.Fprintf(w, "  %s\n", changeText(&p.Changes[i]))
	}
	for _, o := range p.Overrides {
		fmt.Fprintf(w, "  %s\n", o)
	}
}
