package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
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

// told is one record of a group's history.
type told struct {
	where jobdb.Where
	rec   chain.Record
}

func explainGroup(cmd *cobra.Command, f *getGroupFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	var rows []*jobdb.Group
	var found group
	var history []told
	err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) (err error) {
		if rows, err = f.find(q); err != nil || len(rows) != 1 {
			return err
		}
		if found, err = groupOf(q, rows[0]); err != nil {
			return err
		}
		history, err = groupHistory(q, rows[0])
		return err
	})
	if err == nil {
		err = onlyOne(cmd, f.name, rows, func(g **jobdb.Group) (string, string) { return (*g).Queue, (*g).JobSet })
	}
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if f.output == outputJSON {
		err = historyJSON(out, history)
	} else if err = printGroup(out, &found); err == nil {
		printHistory(out, history)
	}
	return errors.Join(err, out.Flush())
}

// groupHistory returns the records about a group, in log order.
func groupHistory(q jobdb.Queries, g *jobdb.Group) (history []told, err error) {
	filter := jobdb.RecordFilter{Partition: &g.Partition, Group: g}
	err = errors.Join(
		q.GroupRecords(filter, func(r *jobdb.GroupRecord) error {
			rec, err := r.Record()
			history = append(history, told{r.Where, rec})
			return err
		}),
		q.Decisions(filter, func(d *jobdb.Decision) error {
			history = append(history, told{d.Where, &d.Decision})
			return nil
		}),
	)
	sortTold(history)
	return history, err
}

// sortTold puts records of one partition into log order.
func sortTold(list []told) {
	slices.SortFunc(list, func(a, b told) int {
		return cmp.Or(cmp.Compare(a.where.Seq, b.where.Seq), cmp.Compare(a.where.Record, b.where.Record))
	})
}

func historyJSON(w io.Writer, history []told) error {
	p, err := newRecordPrinter(w, outputJSON)
	for i := range history {
		h := &history[i]
		err = errors.Join(err, p.printKept(h.where.Partition, h.rec, true, h.where.Superseded))
	}
	return err
}

// originOf is the position of the event that a record follows from, as decisions print it.
func originOf(r chain.Record) string {
	at, _ := chain.PositionOf(r)
	return at.String()
}

// printHistory prints one line a record, but one for a run of the same change of many members.
func printHistory(w io.Writer, history []told) {
	fmt.Fprintf(w, "\n%s\n", bold(w, "History"))
	for i := 0; i < len(history); {
		n := sameChange(history[i:])
		h := &history[i]
		line := audit.Describe(h.rec)
		switch r := h.rec.(type) {
		case *chain.Decision:
			line = fmt.Sprintf("%s: job %s, index %d of %s/%d, run %d: %s", kindOf(r), r.JobID, r.Member.Index, r.Member.Part, r.Member.Replica, r.RunIndex, audit.Reason(r))
		case *chain.MemberChange:
			if n > 1 {
				line = changesText(history[i : i+n])
			}
		}
		if h.where.Superseded {
			line += " (" + supersededText + ")"
		}
		fmt.Fprintf(w, "  %s  %s\n", originOf(h.rec), oneLine(line))
		i += n
	}
}

func changesText(history []told) string {
	var set jobdb.Indexes
	first := history[0].rec.(*chain.MemberChange)
	for _, h := range history {
		set.Add(h.rec.(*chain.MemberChange).Member.Index)
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

// whyStopped says why a member was stopped.
func whyStopped(q jobdb.Queries, j *jobdb.Job) (string, error) {
	why := "it was stopped with its unit: the rest of the group goes on"
	_, err := q.GroupList(&jobdb.Criteria{Queue: j.Queue, JobSet: j.JobSet, Group: j.Member.Group}, jobdb.Page{}, func(g *jobdb.Group) error {
		if g.Binding != j.Member.Binding || g.State == policy.GroupActive {
			return nil
		}
		why = "it was stopped because its group has ended: " + g.State.String()
		if g.Reason != policy.NoUnitReason {
			why += " (" + g.Reason.String() + ")"
		}
		why += ruleText(g.Rule)
		return nil
	})
	return why, err
}

// printChanges shows what a job's group did to the job.
func printChanges(cmd *cobra.Command, w io.Writer, from *deployment, j *jobdb.Job) error {
	if j.Member.GroupID == "" {
		return nil
	}
	var lines []string
	err := from.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		err := q.GroupRecords(jobdb.RecordFilter{JobID: j.JobID, Partition: &j.Partition}, func(r *jobdb.GroupRecord) error {
			rec, err := r.Record()
			if err == nil {
				lines = append(lines, fmt.Sprintf("  %s  %s", originOf(rec), oneLine(audit.Describe(rec))))
			}
			return err
		})
		if err != nil || j.Member.State != jobdb.MemberStopped {
			return err
		}
		why, err := whyStopped(q, j)
		lines = append(lines, "  "+why)
		return err
	})
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s did to the job (`refloatctl explain group` has all of it)\n%s\n", bold(w, "What the group"), strings.Join(lines, "\n"))
	}
	return err
}
