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
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

func newExplainGroup() *cobra.Command {
	var f getGroupFlags
	cmd := &cobra.Command{
		Use:   "group NAME (--data DIR | --job-db URL)",
		Short: "Tell the history of a group of jobs",
		Long: `Tell the history of a group of jobs from the records of the decision log that the job
database keeps, in log order: what bound it, which members were held, released,
restarted or stopped, each decision on a member with what its unit and its group did
about it, and how the group ended.`,
		Example: "  refloatctl explain group training --data .refloat-run --queue ml --job-set run-7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			return explainGroup(cmd, &f)
		},
	}
	f.bind(cmd)
	hidePulsar(cmd)
	addOutput(cmd, &f.output)
	f.bindSet(cmd)
	completeGroup(cmd, &f.deployment)
	return cmd
}

func explainGroup(cmd *cobra.Command, f *getGroupFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	h, err := f.source(nil).GroupHistory(cmd.Context(), f.key())
	if err != nil {
		return f.oneGroup(cmd, err)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if f.output == outputJSON {
		err = historyJSON(out, h.Records)
	} else if err = printGroup(out, &h.Group); err == nil {
		printHistory(out, h.Records)
	}
	return errors.Join(err, out.Flush())
}

func historyJSON(w io.Writer, history []query.Record) error {
	p, err := newRecordPrinter(w, outputJSON)
	for i := range history {
		h := &history[i]
		err = errors.Join(err, p.printKept(h.Where.Partition, h.Record, true, h.Where.Superseded))
	}
	return err
}

// printHistory prints one line a record, but one for a run of the same change of many members.
func printHistory(w io.Writer, history []query.Record) {
	fmt.Fprintf(w, "\n%s\n", bold(w, "History"))
	for i := 0; i < len(history); {
		n := sameChange(history[i:])
		h := &history[i]
		line := audit.Describe(h.Record)
		switch r := h.Record.(type) {
		case *chain.Decision:
			line = fmt.Sprintf("%s: job %s, index %d of %s/%d, run %d: %s", kindOf(r), r.JobID, r.Member.Index, r.Member.Part, r.Member.Replica, r.RunIndex, audit.Reason(r))
		case *chain.MemberChange:
			if n > 1 {
				line = changesText(history[i : i+n])
			}
		}
		if h.Where.Superseded {
			line += " (" + supersededText + ")"
		}
		fmt.Fprintf(w, "  %s  %s\n", query.OriginOf(h.Record), oneLine(line))
		i += n
	}
}

func changesText(history []query.Record) string {
	var set jobdb.Indexes
	first := history[0].Record.(*chain.MemberChange)
	for _, h := range history {
		set.Add(h.Record.(*chain.MemberChange).Member.Index)
	}
	line := fmt.Sprintf("%s: %s of %s/%d, indexes %s", first.Change, plural.Of(len(history), "member"), first.Member.Part, first.Member.Replica, set)
	if first.Change == chain.MemberRestart {
		line += fmt.Sprintf(", generation %d, not before %s", first.Member.Generation, timeText(first.RetryAfter))
	}
	return strings.TrimSpace(line)
}

// printMember shows what a decision did to the unit and the group of a member.
func printMember(w io.Writer, d *chain.Decision) {
	m := d.Member
	if m == nil {
		return
	}
	fmt.Fprintf(w, "\n%s %s, part %s, replica %d, index %d; generation %d of the unit\n", bold(w, "Group"), oneLine(m.Group), oneLine(m.Part), m.Replica, m.Index, m.Generation)
	switch {
	case d.Group != nil:
		fmt.Fprintf(w, "  %s\n", oneLine(audit.GroupSentence(d.Group)))
	case d.Code == policy.GangRetry:
		fmt.Fprintln(w, "  all members of the gang start again together; the rules of the group were not asked")
	case d.Code == policy.GroupRestart, d.Code == policy.GroupOver:
		fmt.Fprintln(w, "  the policies of the job were not asked: what became of the group came first")
	case d.Requeue:
		fmt.Fprintln(w, "  the unit goes on: only this member starts again")
	default:
		fmt.Fprintln(w, "  the unit did not fail by this, so the rules of the group were not asked")
	}
}

// printChanges shows what a job's group did to the job.
func printChanges(cmd *cobra.Command, w io.Writer, from *deployment, j *jobdb.Job) error {
	done, err := from.source(nil).DoneByGroup(cmd.Context(), j)
	var lines []string
	for _, d := range done {
		if d.At == "" {
			lines = append(lines, "  "+d.Text)
			continue
		}
		lines = append(lines, fmt.Sprintf("  %s  %s", d.At, oneLine(d.Text)))
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s did to the job (`refloatctl explain group` has all of it)\n%s\n", bold(w, "What the group"), strings.Join(lines, "\n"))
	}
	return err
}
