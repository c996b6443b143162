package main

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// supersededText explains a record that had no effect.
const supersededText = "superseded: it came too late, so it had no effect"

func newGetReleases() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "releases (--data DIR | --job-db URL)",
		Short: "List releases: events that went to the job database without a decision",
		Long: `List releases in partition and log order. A release is a range of events that became
older than the ingester's --release-after and went to the job database without
decisions, as they would without Refloat. Later decisions on them are superseded. A
release of no messages marks where a cut-over began: Armada's own ingester had
applied everything before it.`,
		Example: "  refloatctl get releases --job-db postgres://refloat@db:5432/scheduler",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return getReleases(cmd, f)
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&f.limit, "last", 0, "only the last N releases")
	return cmd
}

func getReleases(cmd *cobra.Command, f getFlags) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	enc, t := jsonLines(out), (*table)(nil)
	if f.output == outputTable {
		t = newTable(out, "PARTITION", "AFTER", "UP TO", "MESSAGES", "MADE", "WHY")
	}
	err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		return q.Releases(jobdb.RecordFilter{Last: f.limit}, func(r *jobdb.Release) error {
			if t == nil {
				return enc.Encode(query.ReleaseOf(r))
			}
			why := "no decision came in time"
			if query.ByCutover(r) {
				why = "cut-over"
			}
			t.row(fmt.Sprint(r.Partition), r.From.String(), r.To.String(), fmt.Sprint(r.Messages), timeText(r.When), why)
			return nil
		})
	})
	if err == nil && t != nil {
		err = t.flush()
	}
	return errors.Join(err, out.Flush())
}
