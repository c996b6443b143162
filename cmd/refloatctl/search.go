package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/query"
)

type searchFlags struct {
	deployment
	output string
	asked  query.SearchQuestion
}

func newSearch() *cobra.Command {
	var f searchFlags
	cmd := &cobra.Command{
		Use:   "search TEXT (--data DIR | --job-db URL | --server HOST:PORT)",
		Short: "Find jobs, job sets, groups, queues, nodes, categories, policies and rules by a part of their names",
		Long: `Find jobs by the beginning of their ids or of the names of their pods, and queues, job
sets, groups (a gang without a group is one), nodes, Armada's error categories, policies
and rules by any part of their names, whatever the case. Names that begin with TEXT come
first. A number finds the rules in force that list it as an exit code, too.`,
		Example: `  refloatctl search gpu-07 --data .refloat-run
  refloatctl search armada-01m7xn681y99tqr9907wrzd7wm-0-2 --data .refloat-run -o name
  refloatctl search oom --kind rule,category --server localhost:7468`,
		Args: argument("TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.checkJobs(); err != nil {
				return err
			}
			if f.asked.Limit < 0 {
				return usageError{fmt.Errorf("--limit %d: want 1 or more, or 0 for as many as a server lists", f.asked.Limit)}
			}
			if f.asked.Text = args[0]; f.asked.Limit == 0 {
				f.asked.Limit = lookedAt
			}
			return search(cmd, &f)
		},
	}
	f.bindJobs(cmd)
	addForms(cmd, &f.output, show.ListHelp, show.ListForms()...)
	cmd.Flags().StringSliceVar(&f.asked.Kinds, "kind", nil, "only these kinds: "+strings.Join(query.Kinds(), ", "))
	cmd.Flags().IntVar(&f.asked.Limit, "limit", 10, "maximum number of each kind; 0: 1000")
	complete(cmd, "kind", query.Kinds()...)
	return cmd
}

func search(cmd *cobra.Command, f *searchFlags) error {
	found, err := f.answers(nil).Search(cmd.Context(), f.asked)
	if bad, ok := errors.AsType[*query.Invalid](err); ok {
		return usageError{fmt.Errorf("--%s: %w", bad.Param, bad.Err)}
	}
	if err != nil {
		return err
	}
	err = list(cmd, f.output, &show.Rows[query.Match]{
		Columns: []show.Column[query.Match]{
			{Heading: "KIND", Cell: func(m query.Match) string { return m.Kind }},
			{Heading: "NAME", Cell: func(m query.Match) string { return m.Name }},
			{Heading: "QUEUE", Cell: func(m query.Match) string { return m.Queue }},
			{Heading: "JOB SET", Cell: func(m query.Match) string { return m.JobSet }},
			{Heading: "STATE", Cell: func(m query.Match) string { return m.State }},
		},
		Name: func(m query.Match) string { return m.Name },
	}, found.Matches)
	if err == nil && len(found.More) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "there may be more of: %s\n", strings.Join(found.More, ", "))
	}
	return err
}
