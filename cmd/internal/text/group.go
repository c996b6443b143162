package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

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

// ByGroup shows what a job's group did to the job, or why it is in none.
func ByGroup(w io.Writer, done []query.ByGroup) {
	if len(done) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s about the job (`refloatctl explain group` has all of them)\n", show.Bold(w, "Records of its group"))
	for _, d := range done {
		if d.At == "" {
			fmt.Fprintf(w, "  %s\n", query.OneLine(d.Text))
			continue
		}
		fmt.Fprintf(w, "  %s  %s\n", query.OneLine(d.At), query.OneLine(d.Text))
	}
}

// Restarts is how many counted restarts of a group were used.
func Restarts(g *query.Group) string {
	if g.MaxRestarts == nil {
		return fmt.Sprint(g.RestartsCounted)
	}
	return fmt.Sprintf("%d/%d", g.RestartsCounted, *g.MaxRestarts)
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

// Group prints a group with its units.
func Group(w io.Writer, g *query.Group) error {
	by := "a gang without a group policy"
	if g.Policy != "" {
		by = "group policy " + query.OneLine(g.Policy)
	}
	fmt.Fprintf(w, "%s %s\n  queue %s, job set %s, partition %d, %s, %s\n", show.Bold(w, "Group"), query.OneLine(g.Group), query.OneLine(g.Queue), query.OneLine(g.JobSet), g.Partition, by, g.State)
	if g.Reason != "" {
		fmt.Fprintf(w, "  reason %s%s\n", g.Reason, ruleText(g.Rule))
	}
	if g.Newer != "" {
		fmt.Fprintf(w, "  the name begins a new group after each end: the newest is %s\n", query.OneLine(g.Newer))
	}
	fmt.Fprintf(w, "  generation %d, counted restarts %s, %s by rules in all\n", g.Generation, Restarts(g), plural.Of(uint64(g.Restarts), "restart"))
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

func ruleText(rule string) string {
	if rule == "" {
		return ""
	}
	return ", by rule " + query.OneLine(rule)
}
