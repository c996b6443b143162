package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

func newTopCost() *cobra.Command {
	var f listFlags
	var key string
	asked := query.CostQuestion{By: "queue"}
	cmd := &cobra.Command{
		Use:   "cost (--data DIR | --job-db URL | --server HOST:PORT) [--by queue|policy|rule|node|category]",
		Short: "Sum up the resource-hours of failed runs and of retries",
		Long: `Sum up what runs held, each from its lease to its end, times what its job requests: hours
of a GPU, of a core and of a GiB of memory. FAILED are failed runs, by what decided on
them, also in shadow, and by their node and Armada's category. RETRY OK are retries that
succeeded, RETRY LOST those that failed (as a failed run, each is in FAILED too) or were
cancelled, both by the failure that they were granted for. Days, in UTC, count as a whole.`,
		Example: `  refloatctl top cost --data .refloat-run --by rule --since 7d
  refloatctl top cost --job-db postgres://refloat@db:5432/scheduler --by node --key gpu-07 -o json`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if !slices.Contains(jobdb.CostKeys, asked.By) {
				return usageError{fmt.Errorf("--by: %w", suggest.Unknown("key", asked.By, jobdb.CostKeys...))}
			}
			if cmd.Flags().Changed("key") {
				asked.Key = &key
			}
			asked.Since, asked.Until, asked.Limit = f.ask.Since, f.ask.Until, f.ask.Limit
			return topCost(cmd, &f, asked)
		},
	}
	f.list, f.every = query.Decisions, 1
	f.bindJobs(cmd)
	flags := cmd.Flags()
	addForms(cmd, &f.output, show.ListHelp, show.ListForms()...)
	flags.StringVar(&asked.By, "by", asked.By, "what to sum up by: queue, policy, rule, node or category")
	flags.StringVar(&key, "key", "", "only this queue, policy, rule (POLICY/RULE), node or category")
	flags.IntVar(&f.ask.Limit, "limit", 10, "maximum number of rows; 0: all")
	flags.StringVar(&f.since, "since", "", "only runs that ended on the day of this time (RFC 3339), or of a duration ago such as 7d, or later")
	flags.StringVar(&f.until, "until", "", "only runs that ended on the day before this time, or earlier")
	complete(cmd, "by", jobdb.CostKeys...)
	return cmd
}

func topCost(cmd *cobra.Command, f *listFlags, asked query.CostQuestion) error {
	rows := show.Rows[query.Cost]{
		Columns: []show.Column[query.Cost]{{Heading: topHeadings[asked.By], Cell: func(c query.Cost) string { return c.Key }}},
		Name:    func(c query.Cost) string { return c.Key },
	}
	for _, part := range []struct {
		heading string
		of      func(*query.Cost) *audit.Spent
	}{
		{"FAILED", func(c *query.Cost) *audit.Spent { return &c.Failed }},
		{"RETRY OK", func(c *query.Cost) *audit.Spent { return &c.RetriesSucceeded }},
		{"RETRY LOST", func(c *query.Cost) *audit.Spent { return &c.RetriesLost }},
	} {
		rows.Columns = append(rows.Columns,
			show.Column[query.Cost]{Heading: part.heading, Cell: func(c query.Cost) string { return fmt.Sprint(part.of(&c).Runs) }},
			show.Column[query.Cost]{Heading: "GPU H", Cell: func(c query.Cost) string { gpu, _, _ := part.of(&c).Hours(); return gpu }},
			show.Column[query.Cost]{Heading: "CPU H", Cell: func(c query.Cost) string { _, cpu, _ := part.of(&c).Hours(); return cpu }},
			show.Column[query.Cost]{Heading: "GIB H", Cell: func(c query.Cost) string { _, _, memory := part.of(&c).Hours(); return memory }})
	}
	limit := asked.Limit
	if limit > 0 {
		asked.Limit++ // one more, to see whether there is one
	}
	found, err := f.answers(nil).TopCost(cmd.Context(), asked)
	more := limit > 0 && len(found) > limit
	if more {
		found = found[:limit]
	}
	if err == nil {
		err = list(cmd, f.output, &rows, found)
	}
	if err != nil {
		return err
	}
	if note := query.UnknownNote(found); note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), note)
	}
	switch {
	case len(found) == 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "no run ended in this time that failed or was a retry, since this database keeps what runs held")
	case more:
		fmt.Fprintln(cmd.ErrOrStderr(), moreRows)
	}
	return nil
}
