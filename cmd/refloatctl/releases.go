package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

var releaseRows = show.Rows[*query.Release]{
	Columns: []show.Column[*query.Release]{
		{Heading: "PARTITION", Cell: func(r *query.Release) string { return fmt.Sprint(r.Partition) }},
		{Heading: "AFTER", Cell: func(r *query.Release) string { return r.From }},
		{Heading: "UP TO", Cell: func(r *query.Release) string { return r.To }},
		{Heading: "MESSAGES", Cell: func(r *query.Release) string { return fmt.Sprint(r.Messages) }},
		{Heading: "MADE", Cell: func(r *query.Release) string { return r.Made }},
		{Heading: "WHY", Cell: func(r *query.Release) string {
			if r.ByCutover() {
				return "cut-over"
			}
			return "no decision came in time"
		}},
	},
}

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
	var all []*query.Release
	err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		return q.Releases(jobdb.RecordFilter{Last: f.limit}, func(r *jobdb.Release) error {
			all = append(all, query.ReleaseOf(r))
			return nil
		})
	})
	if err != nil {
		return err
	}
	return list(cmd, f.output, &releaseRows, all)
}
