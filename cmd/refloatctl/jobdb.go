package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/sink"
)

// maxNamed is how many differences of a partition are listed; further ones are only counted.
const maxNamed = 20

func newVerifyJobDB() *cobra.Command {
	var from deployment
	var output, archived string
	cmd := &cobra.Command{
		Use:   "jobdb (--data DIR [--job-db URL] | --pulsar URL --job-db URL)",
		Short: "Compare a job database with the logs from which it is derived",
		Long: `Derive every row again from the events, the decision log and the releases in the
database itself, up to the position of the database, and compare it with the job
database. Jobs that were pruned (--retain) are not there: at most as many may be
missing as were pruned, and only jobs that were over by then. The logs are in a data
directory, or topics on Pulsar; a data directory may also hold copies of topics,
written by record. What retention has deleted from the logs is read from an archive
with --archive. Ingesters may run meanwhile.

Exit codes: 0 equal, 1 different (` + fmt.Sprint(maxNamed) + ` differences of each partition are listed, the rest
counted), 2 usage, 3 the logs or the database cannot be read.`,
		Example: `  refloatctl verify jobdb --data .refloat-run
  refloatctl verify jobdb --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080 --job-db postgres://refloat@db:5432/scheduler
  refloatctl verify jobdb --data /var/lib/copy --job-db postgres://refloat@db:5432/scheduler -o json`,
		Args: noArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(from.checkLogs(), from.checkJobs()); err != nil {
				return err
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			return errors.Join(from.readLogsWith(cmd.Context(), archived, func(logs audit.Logs) error {
				return verifyJobDB(cmd.Context(), logs, from, newVerdictPrinter(out, output))
			}), out.Flush())
		},
	}
	from.bind(cmd)
	cmd.Flags().StringVar(&archived, "archive", "", archiveHelp)
	addOutput(cmd, &output)
	return cmd
}

// comparedRows is the JSON form of one partition's comparison.
type comparedRows struct {
	Partition int    `json:"partition"`
	Equal     bool   `json:"equal"`
	Envelope  uint64 `json:"envelope"` // number of the last envelope in the database
	Events    string `json:"events"`   // position of the last event in the database
	Rows      int    `json:"rows"`
	Pruned    uint64 `json:"prunedJobs,omitempty"`
	// PrunedEnded: no job that ended later was pruned.
	PrunedEnded string `json:"prunedEndedBy,omitempty"`
	// Problem says why the database cannot be derived from these logs.
	Problem     string            `json:"problem,omitempty"`
	Count       int               `json:"differenceCount"`
	Differences []namedDifference `json:"differences"`
}

type namedDifference struct {
	Table string `json:"table"`
	Key   string `json:"key"`
	Field string `json:"field,omitempty"`
	Want  string `json:"want,omitempty"`
	Got   string `json:"got,omitempty"`
	text  string
}

func verifyJobDB(ctx context.Context, logs audit.Logs, from deployment, report func(comparedRows) error) error {
	partitions := logs.Events.Partitions()
	db, err := app.ReadJobDB(ctx, from.url())
	if err != nil {
		return damageAdvice(err)
	}
	defer db.Close()
	bar, equal := show.NewProgress(), true
	defer bar.Done()
	for p := range partitions {
		bar.Update("comparing partition %d of %d", p, partitions)
		v, err := verifyPartition(ctx, logs, db, p)
		if err != nil {
			return fmt.Errorf("partition %d: %w", p, damageAdvice(err))
		}
		bar.Done()
		equal = equal && v.Equal
		if err := report(v); err != nil {
			return err
		}
	}
	strangers, err := beyond(ctx, db, partitions)
	for _, v := range strangers {
		equal = false
		err = errors.Join(err, report(v))
	}
	if err == nil && !equal {
		return errFinding
	}
	return err
}

// verifyPartition reads the database first: by then the logs contain everything that its rows derive from, and
// they are folded up to its position.
func verifyPartition(ctx context.Context, logs audit.Logs, db app.JobDBReader, p int) (comparedRows, error) {
	var got *jobdb.Contents
	err := db.View(ctx, func(q jobdb.Queries) (err error) {
		got, err = q.Contents(p)
		return err
	})
	if err != nil {
		return comparedRows{}, err
	}
	v := comparedRows{
		Partition: p, Envelope: got.Positions.Chain.Seq, Events: got.Positions.Events.String(), Rows: got.Rows(),
		Differences: []namedDifference{}, Pruned: got.Positions.Pruned.Jobs,
	}
	if v.Pruned > 0 {
		v.PrunedEnded = query.TimeText(got.Positions.Pruned.Ended)
	}
	want, err := sink.Want(logs.Events, logs.Decisions, got)
	if errors.Is(err, chain.ErrMissing) || errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, sink.ErrUnfit) {
		v.Problem, v.Count = err.Error(), 1
		return v, nil
	}
	if err != nil {
		return comparedRows{}, err
	}
	all := sink.Compare(want, got)
	v.Equal, v.Count = len(all) == 0, len(all)
	for _, d := range all[:min(len(all), maxNamed)] {
		v.Differences = append(v.Differences, namedDifference{Table: d.Table, Key: d.Key, Field: d.Field, Want: d.Want, Got: d.Got, text: d.String()})
	}
	return v, nil
}

// beyond finds partitions that the database has and the logs do not have.
func beyond(ctx context.Context, db app.JobDBReader, partitions int) (found []comparedRows, err error) {
	err = db.View(ctx, func(q jobdb.Queries) error {
		positions, err := q.Positions()
		for _, p := range positions {
			if p.Partition >= partitions {
				found = append(found, comparedRows{
					Partition: p.Partition, Envelope: p.Positions.Chain.Seq, Events: p.Positions.Events.String(), Count: 1, Differences: []namedDifference{},
					Problem: "the logs have " + plural.Of(partitions, "partition"),
				})
			}
		}
		return err
	})
	return found, err
}

func newVerdictPrinter(w io.Writer, output string) func(comparedRows) error {
	if output == show.FormJSON {
		enc := show.JSONLines(w)
		return func(v comparedRows) error { return enc.Encode(v) }
	}
	return func(v comparedRows) error {
		result := "equal"
		if !v.Equal {
			result = plural.Of(v.Count, "difference")
		}
		fmt.Fprintf(w, "partition %d: %s after envelope %d, events up to %s: %s\n", v.Partition, plural.Of(v.Rows, "row"), v.Envelope, v.Events, result)
		if v.Pruned > 0 {
			fmt.Fprintf(w, "  %s pruned; none of them ended after %s\n", plural.Of(int(v.Pruned), "job"), v.PrunedEnded)
		}
		if v.Problem != "" {
			fmt.Fprintf(w, "  %s\n", query.OneLine(v.Problem))
		}
		for _, d := range v.Differences {
			fmt.Fprintf(w, "  %s\n", query.OneLine(d.text))
		}
		if more := v.Count - len(v.Differences); more > 0 && v.Problem == "" {
			fmt.Fprintf(w, "  … and %d more\n", more)
		}
		return nil
	}
}
