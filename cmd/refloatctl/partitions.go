package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

var partitionRows = show.Rows[query.Partition]{
	Columns: []show.Column[query.Partition]{
		{Heading: "PARTITION", Cell: func(p query.Partition) string { return fmt.Sprint(p.Partition) }},
		{Heading: "OWNER", Cell: func(p query.Partition) string {
			if p.Refused != "" {
				return "nobody: refused"
			}
			return p.Owner
		}},
		{Heading: "EPOCH", Cell: func(p query.Partition) string { return known(p.Epoch) }},
		{Heading: "POLICIES", Cell: func(p query.Partition) string { return known(p.Generation) }},
		{Heading: "SINCE", Wide: true, Cell: func(p query.Partition) string { return p.Since }},
		{Heading: "LAG", Cell: func(p query.Partition) string {
			if p.LagSeconds == nil {
				return ""
			}
			return show.Rounded(time.Duration(*p.LagSeconds * float64(time.Second)).String())
		}},
		{Heading: "BEHIND", Cell: func(p query.Partition) string {
			if p.Behind == nil {
				return ""
			}
			return fmt.Sprintf("%.0f", *p.Behind)
		}},
		{Heading: "ENVELOPE", Cell: func(p query.Partition) string { return known(p.Envelope) }},
		{Heading: "EVENTS", Wide: true, Cell: func(p query.Partition) string { return p.Events }},
	},
	Name: func(p query.Partition) string { return fmt.Sprint(p.Partition) },
}

// known formats a number that is not 0.
func known(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func newGetPartitions() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "partitions (--data DIR | --job-db URL | --server HOST:PORT)",
		Short: "List partitions, their owners, and how far they are behind",
		Long: `List the partitions of events: who decides each, by which generation of the policies, how
old the events are that it decides now (LAG), how many messages wait (BEHIND), and the
last envelope of decisions that the job database has.

A server knows this of the partitions that it decides, and why it refuses one until an
operator acts; of the others, and of all if no server runs, the list has what the job
database has: the owner's id in the decision log, and the last envelope.`,
		Example: `  refloatctl get partitions --data .refloat-run
  refloatctl get partitions --server evaluator-0:8090 -o wide`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.checkJobs(); err != nil {
				return err
			}
			all, err := f.partitions(cmd.Context())
			if err != nil {
				return f.asked(cmd, err)
			}
			err = list(cmd, f.output, &partitionRows, all)
			for _, p := range all {
				if f.output == show.FormTable && p.Refused != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "partition %d is refused until you act (docs/operate.md, RefloatPartitionRefused): %s\n", p.Partition, p.Refused)
				}
			}
			if f.output == show.FormTable && len(all) > 0 && !slices.ContainsFunc(all, func(p query.Partition) bool { return p.Here || p.Refused != "" }) {
				fmt.Fprintln(cmd.ErrOrStderr(), "this is as of the job database; a process that decides partitions, asked with --server, also knows its policies and its lag")
			}
			return err
		},
	}
	f.bindJobs(cmd)
	addForms(cmd, &f.output, show.ListHelp, show.ListForms()...)
	return cmd
}

// partitions asks the server that runs on the data directory, if one does, and the job database otherwise.
func (f *getFlags) partitions(ctx context.Context) ([]query.Partition, error) {
	if !f.onServer() && f.data != "" && f.jobDB == "" {
		if address, err := os.ReadFile(app.Dir(f.data).APIAddress()); err == nil {
			here := *f.remote
			here.server = strings.TrimSpace(string(address))
			if all, err := here.questions().ListPartitions(ctx); !errors.Is(err, errAway) {
				return all, err
			}
		}
	}
	return f.answers(nil).ListPartitions(ctx)
}

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
		Args:    noArgument,
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
