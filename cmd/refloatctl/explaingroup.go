package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

func newExplainGroup() *cobra.Command {
	var f getGroupFlags
	cmd := &cobra.Command{
		Use:   "group NAME (--data DIR | --job-db URL | --server HOST:PORT)",
		Short: "Tell the history of a group of jobs",
		Long: `Tell the history of a group of jobs from the records of the decision log that the job
database keeps, in log order: what bound it, which members were held, released,
restarted or stopped, each decision on a member with what its unit and its group did
about it, and how the group ended.`,
		Example: "  refloatctl explain group training --data .refloat-run --queue ml --job-set run-7",
		Args:    argument("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			return explainGroup(cmd, &f)
		},
	}
	f.bind(cmd)
	hidePulsar(cmd)
	f.bindServer(cmd)
	addOutput(cmd, &f.output)
	f.bindSet(cmd)
	completeArg(cmd, &f.deployment, groupNames)
	completeValues(cmd, &f.deployment)
	return cmd
}

func explainGroup(cmd *cobra.Command, f *getGroupFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	h, err := f.answers(nil).GroupHistory(cmd.Context(), f.key())
	if err != nil {
		return f.oneGroup(cmd, err)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if f.output == outputJSON {
		err = historyJSON(out, h.Lines)
	} else if err = printGroup(out, &h.Group); err == nil {
		printHistory(out, h.Lines)
	}
	return errors.Join(err, out.Flush())
}

func historyJSON(w io.Writer, history []query.Line) (err error) {
	enc := jsonLines(w)
	for i := range history {
		err = errors.Join(err, enc.Encode(history[i].Shown()))
	}
	return err
}

// printHistory prints one line a record, but one for a run of the same change of many members.
func printHistory(w io.Writer, history []query.Line) {
	fmt.Fprintf(w, "\n%s\n", bold(w, "History"))
	for i := 0; i < len(history); {
		n := sameChange(history[i:])
		line := history[i].Text
		var at audit.Position
		var late bool
		if d := history[i].Decision; d != nil {
			line = fmt.Sprintf("%s: job %s, index %d of %s/%d, run %d: %s", shownKind(d), d.JobID, *d.Index, d.Part, *d.Replica, d.RunIndex, d.Reason)
			at, late = d.Position, d.Superseded
		} else {
			at, late = history[i].Other.Position, history[i].Other.Superseded
			if n > 1 {
				line = changesText(history[i : i+n])
			}
		}
		if late {
			line += " (" + supersededText + ")"
		}
		fmt.Fprintf(w, "  %v  %s\n", position(at), oneLine(line))
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

// printMember shows what a decision did to the unit and the group of a member.
func printMember(w io.Writer, e *query.Explanation) {
	if d := &e.Decision; d.Replica != nil {
		fmt.Fprintf(w, "\n%s %s, part %s, replica %d, index %d; generation %d of the unit\n  %s\n", bold(w, "Group"), oneLine(d.Group), oneLine(d.Part), *d.Replica, *d.Index, d.Generation, oneLine(e.GroupEffect))
	}
}

// printChanges shows what a job's group did to the job, or why it is in none.
func printChanges(w io.Writer, done []query.ByGroup) {
	if len(done) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s about the job (`refloatctl explain group` has all of them)\n", bold(w, "Records of its group"))
	for _, d := range done {
		if d.At == "" {
			fmt.Fprintf(w, "  %s\n", oneLine(d.Text))
			continue
		}
		fmt.Fprintf(w, "  %s  %s\n", oneLine(d.At), oneLine(d.Text))
	}
}
