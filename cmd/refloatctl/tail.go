package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/jobdb"
)

type tailFlags struct {
	deployment
	output, queue string
	last          int
	every         time.Duration
}

func newTail() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail (--data DIR | --job-db URL)",
		Short: "Follow new decisions",
		Long: `Show the last decisions, and then each new one as soon as it is in the job database,
until interrupted. The JSON form is that of ` + "`get decisions`" + `.`,
		Example: `  refloatctl tail --data .refloat-run
  refloatctl tail --job-db postgres://refloat@db:5432/scheduler --queue ml -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.checkJobs(); err != nil {
				return err
			}
			switch {
			case f.last < 0 || f.every <= 0:
				return usageError{fmt.Errorf("--last %d, --every %v: want 0 or more, and a duration above 0", f.last, f.every)}
			}
			return f.run(cmd)
		},
	}
	f.bind(cmd)
	hidePulsar(cmd)
	addOutput(cmd, &f.output)
	cmd.Flags().StringVar(&f.queue, "queue", "", "only decisions of this queue")
	cmd.Flags().IntVar(&f.last, "last", 10, "number of earlier decisions to show first")
	cmd.Flags().DurationVar(&f.every, "every", time.Second, "polling interval")
	completeValues(cmd, &f.deployment)
	return cmd
}

func (f *tailFlags) run(cmd *cobra.Command) error {
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	out := bufio.NewWriter(cmd.OutOrStdout())
	p, err := newRecordPrinter(out, f.output)
	if err != nil {
		return err
	}
	seen := map[int]uint64{} // by partition: the last decision that was shown
	for first := true; ; first = false {
		news, err := f.news(cmd.Context(), seen, first)
		if cmd.Context().Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, d := range news {
			if f.queue != "" && d.Queue != f.queue {
				continue
			}
			if err := p.printKept(d.Partition, &d.Decision, true, d.Late()); err != nil {
				return err
			}
		}
		if err := errors.Join(p.end(), out.Flush()); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-cmd.Context().Done():
			return nil
		}
	}
}

// news returns the decisions that were not shown yet, ordered by time.
func (f *tailFlags) news(ctx context.Context, seen map[int]uint64, first bool) ([]jobdb.Decision, error) {
	var all []jobdb.Decision
	err := f.viewJobs(ctx, func(q jobdb.Queries) error {
		positions, err := q.Positions()
		if err != nil {
			return err
		}
		for _, part := range positions {
			filter := jobdb.RecordFilter{Partition: &part.Partition, From: seen[part.Partition] + 1}
			if first {
				filter.Last = max(f.last, 1)
			}
			err := q.Decisions(filter, func(d *jobdb.Decision) error {
				seen[d.Partition] = d.Number
				all = append(all, *d)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b jobdb.Decision) int { return cmp.Compare(a.Time, b.Time) })
	if first && len(all) > f.last {
		all = all[len(all)-f.last:]
	}
	return all, err
}
