package main

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/suggest"
)

// topRow is the JSON form of a row of `top retries`. Fields keep their meaning; new ones may be added.
type topRow struct {
	By       string `json:"by"`
	Key      string `json:"key"`
	Retries  uint64 `json:"retries"`
	Failures uint64 `json:"failures"`
	Jobs     uint64 `json:"jobs"`
}

func newTop() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what causes the most retries",
	}
	cmd.AddCommand(newTopRetries())
	return cmd
}

func newTopRetries() *cobra.Command {
	var f listFlags
	by := "queue"
	cmd := &cobra.Command{
		Use:   "retries (--data DIR | --job-db URL) [--by queue|policy|rule|node|category]",
		Short: "Count retries and failures by queue, policy, rule, node or category",
		Long: `Count effective decisions, those with the most retries first: how many retried, how
many failed the job for good, and how many jobs that were. Decisions in shadow, and
those that came too late to have an effect, are not counted.`,
		Example: `  refloatctl top retries --data .refloat-run --by rule --since 1h
  refloatctl top retries --job-db postgres://refloat@db:5432/scheduler --by node --category gpu -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if !slices.Contains(jobdb.Tops, by) {
				return usageError{fmt.Errorf("--by: %w", suggest.Unknown("key", by, jobdb.Tops...))}
			}
			return topRetries(cmd, &f, by)
		},
	}
	f.list, f.sorts = "top", []string{""}
	f.every = 1
	f.bind(cmd)
	hidePulsar(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", outputTable, listOutputHelp)
	flags.StringVar(&by, "by", by, "what to count by: queue, policy, rule, node or category")
	flags.StringVar(&f.criteria.Queue, "queue", "", "only jobs of this queue")
	flags.StringVar(&f.criteria.JobSet, "job-set", "", "only jobs of this job set")
	flags.StringVar(&f.criteria.Policy, "policy", "", "only what this policy decided")
	flags.StringVar(&f.criteria.Rule, "rule", "", "only what this rule decided")
	flags.IntVar(&f.page.Limit, "limit", 10, "maximum number of rows; 0: all")
	f.bindFailures(cmd, "only decisions on failures")
	complete(cmd, "by", jobdb.Tops...)
	complete(cmd, "output", listOutputs...)
	return cmd
}

func topRetries(cmd *cobra.Command, f *listFlags, by string) error {
	counted := rows[jobdb.Top]{
		columns: []column[jobdb.Top]{
			{heading: map[string]string{"queue": "QUEUE", "policy": "POLICY", "rule": "RULE", "node": "NODE", "category": "CATEGORY"}[by], cell: func(t jobdb.Top) string { return t.Key }},
			{heading: "RETRIES", cell: func(t jobdb.Top) string { return fmt.Sprint(t.Retries) }},
			{heading: "FAILURES", cell: func(t jobdb.Top) string { return fmt.Sprint(t.Failures) }},
			{heading: "JOBS", cell: func(t jobdb.Top) string { return fmt.Sprint(t.Jobs) }},
		},
		name:   func(t jobdb.Top) string { return t.Key },
		object: func(t jobdb.Top) any { return topRow{by, t.Key, t.Retries, t.Failures, t.Jobs} },
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	row, end, err := counted.printer(out, f.output)
	if err != nil {
		return err
	}
	newest := int64(0)
	err = f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		top, err := q.Top(by, &f.criteria, f.page.Limit)
		for _, t := range top {
			err = errors.Join(err, row(t))
		}
		if err == nil && len(top) == 0 && f.criteria.Since > 0 {
			newest, err = newestBefore(q, f.criteria)
		}
		return err
	})
	if err == nil {
		err = end()
	}
	err = errors.Join(err, out.Flush())
	if newest != 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "the newest decision is on a failure at %s, before --since: try --since %s\n",
			timeText(newest), time.Unix(0, newest).Add(-time.Hour).UTC().Format(time.RFC3339))
	}
	return err
}

// newestBefore returns when the last failure was before the times selected; 0: there was none.
func newestBefore(q jobdb.Queries, c jobdb.Criteria) (at int64, err error) {
	c.Since, c.Until = 0, c.Since
	_, err = q.DecisionList(&c, jobdb.Page{Sort: "time", Descending: true, Limit: 1}, func(d *jobdb.Decision) error {
		at = d.Time
		return nil
	})
	return at, err
}
