package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

// newTop returns `top`, which does what `top retries` does.
func newTop() *cobra.Command {
	cmd := newTopRetries()
	cmd.Use, cmd.Short = strings.Replace(cmd.Use, "retries", "top [retries]", 1), "Show what causes the most retries"
	cmd.AddCommand(newTopRetries(), newTopCost())
	return cmd
}

var topHeadings = map[string]string{"queue": "QUEUE", "set": "JOB SET", "policy": "POLICY", "rule": "RULE", "node": "NODE", "category": "CATEGORY"}

const moreRows = "there are more: --limit 0 lists all"

func newTopRetries() *cobra.Command {
	var f listFlags
	by, jobs := "queue", false
	cmd := &cobra.Command{
		Use:   "retries (--data DIR | --job-db URL | --server HOST:PORT) [--by queue|set|policy|rule|node|category]",
		Short: "Count retries and failures by queue, job set, policy, rule, node or category",
		Long: `Count effective decisions, those with the most retries first: how many retried and
how many failed the job for good. With --jobs, it also counts of how many jobs that
was, for which it reads all of them. Decisions in shadow, and superseded ones, had no
effect and are not counted.`,
		Example: `  refloatctl top retries --data .refloat-run --by rule --since 1h
  refloatctl top retries --job-db postgres://refloat@db:5432/scheduler --by node --category gpu -o json`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if !slices.Contains(jobdb.Tops, by) {
				return usageError{fmt.Errorf("--by: %w", suggest.Unknown("key", by, jobdb.Tops...))}
			}
			return topRetries(cmd, &f, by, jobs)
		},
	}
	f.list, f.every = query.Decisions, 1
	f.bindJobs(cmd)
	flags := cmd.Flags()
	addForms(cmd, &f.output, show.ListHelp, show.ListForms()...)
	flags.StringVar(&by, "by", by, "what to count by: queue, set (job set), policy, rule, node or category")
	flags.BoolVar(&jobs, "jobs", false, "count their jobs too, which reads all decisions that are selected")
	flags.IntVar(&f.ask.Limit, "limit", 10, "maximum number of rows; 0: all")
	f.bindWhose(cmd, query.Decisions)
	f.bindFailures(cmd, "only decisions on failures")
	complete(cmd, "by", jobdb.Tops...)
	completeValues(cmd, &f.deployment)
	return cmd
}

func topRetries(cmd *cobra.Command, f *listFlags, by string, jobs bool) error {
	counted := show.Rows[query.Top]{
		Columns: []show.Column[query.Top]{
			{Heading: topHeadings[by], Cell: func(t query.Top) string { return t.Key }},
			{Heading: "RETRIES", Cell: func(t query.Top) string { return fmt.Sprint(t.Retries) }},
			{Heading: "FAILED FOR GOOD", Cell: func(t query.Top) string { return fmt.Sprint(t.Failures) }},
		},
		Name: func(t query.Top) string { return t.Key },
	}
	if jobs {
		counted.Columns = append(counted.Columns, show.Column[query.Top]{Heading: "JOBS", Cell: func(t query.Top) string { return fmt.Sprint(t.Jobs) }})
	}
	limit := f.ask.Limit
	if limit > 0 {
		f.ask.Limit++ // one more, to see whether there is one
	}
	top, err := f.answers(nil).TopRetries(cmd.Context(), by, jobs, &f.ask)
	more := limit > 0 && len(top) > limit
	if more {
		top = top[:limit]
	}
	if err == nil {
		err = list(cmd, f.output, &counted, top)
	}
	switch {
	case err != nil:
	case len(top) == 0:
		f.hint(cmd)
	case more:
		fmt.Fprintln(cmd.ErrOrStderr(), moreRows)
	}
	return err
}
