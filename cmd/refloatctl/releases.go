package main

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// supersededText explains a record that had no effect.
const supersededText = "superseded: its event had been released, so it had no effect"

// release is the JSON form of a release.
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

// byCutover reports whether a release is the start of a cut-over: it released no messages.
func byCutover(r *jobdb.Release) bool { return r.Messages == 0 }

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

// releaseIn finds the release that contains a message of our log; nil: none.
func releaseIn(releases []*jobdb.Release, at eventlog.Position) (found *jobdb.Release) {
	for _, r := range releases {
		if at.Compare(r.From) > 0 && at.Compare(r.To) <= 0 {
			found = r
		}
	}
	return found
}
