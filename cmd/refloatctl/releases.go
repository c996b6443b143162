package main

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// supersededText says of a record why it stands there and changed nothing.
const supersededText = "superseded: its event had been released, so it changed nothing"

// release is a release as -o json prints it.
type release struct {
	Partition int    `json:"partition"`
	From      string `json:"from"` // exclusive
	To        string `json:"to"`   // inclusive
	Messages  uint64 `json:"messages"`
	Made      string `json:"made"`
}

func releaseJSON(r *jobdb.Release) *release {
	return &release{Partition: r.Partition, From: r.From.String(), To: r.To.String(), Messages: r.Messages, Made: timeText(r.When)}
}

// byCutover: nothing passed without a decision; the ingester began there.
func byCutover(r *jobdb.Release) bool { return r.Messages == 0 }

func newGetReleases() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "releases (--data DIR | --job-db URL)",
		Short: "List releases: events that went to the job database without a decision",
		Long: `List releases in partition and log order: stretches of events that got older
than the ingester's --release-after and went to the job database without a
decision, as without Refloat. What is decided on them later is superseded. A
release of no messages is where a cut-over began: Armada's own ingester had
taken in what stands before it.`,
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
	cmd.Flags().IntVar(&f.limit, "last", 0, "only the last so many")
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
				return enc.Encode(releaseJSON(r))
			}
			why := "no decision came in time"
			if byCutover(r) {
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

// findSuperseded finds the superseded decisions on a job, by partition and run.
func findSuperseded(cmd *cobra.Command, from deployment, job string) (map[int]map[string]uint64, error) {
	late := map[int]map[string]uint64{}
	err := from.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		return q.Decisions(jobdb.RecordFilter{JobID: job}, func(d *jobdb.Decision) error {
			if d.Superseded {
				if late[d.Partition] == nil {
					late[d.Partition] = map[string]uint64{}
				}
				late[d.Partition][d.RunID] = d.Number
			}
			return nil
		})
	})
	return late, err
}

// releaseOf finds the release that a message of our log was part of; nil: none.
func releaseOf(q jobdb.Queries, partition int, at eventlog.Position) (found *jobdb.Release, err error) {
	err = q.Releases(jobdb.RecordFilter{Partition: &partition}, func(r *jobdb.Release) error {
		if at.Compare(r.From) > 0 && at.Compare(r.To) <= 0 {
			found = r
		}
		return nil
	})
	return found, err
}
