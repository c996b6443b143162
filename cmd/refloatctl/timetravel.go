package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// notBehind reads a time or a position, and returns whether a message of events is not behind it. Positions are those that
// records name: of the recording, if the message was fed from one.
func notBehind(text string) (func(*eventlog.Message) bool, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return func(m *eventlog.Message) bool { return publishedAt(m) <= at.UnixNano() }, nil
	}
	p, err := eventlog.ParsePosition(text)
	if err != nil {
		return nil, usageError{fmt.Errorf("--at %q: want a time such as 2026-12-01T06:00:00Z, or a position such as 12:345:6", text)}
	}
	return func(m *eventlog.Message) bool { return m.OriginPosition().Compare(p) <= 0 }, nil
}

// publishedAt is when a message was published: of one that was fed from a recording, in the recording.
func publishedAt(m *eventlog.Message) int64 {
	if m.Origin.Recording != "" {
		return m.Origin.Publish
	}
	return m.Publish
}

// getJobAt shows a job as it was, derived from the logs.
func getJobAt(cmd *cobra.Command, f *getFlags, id, at string) error {
	until, err := notBehind(at)
	if err != nil {
		return err
	}
	if f.data == "" && !f.onPulsar() {
		return usageError{errors.New("--at is derived from the logs: give --data DIR, or --pulsar URL beside --job-db URL")}
	}
	var in []jobdb.PartitionPositions // where the job may be
	releases := map[int][]*jobdb.Release{}
	err = f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		found, err := lookUp(q, id)
		all, err2 := q.Positions()
		known := map[int]bool{}
		for _, j := range found {
			id, known[j.Partition] = j.JobID, true
		}
		for _, p := range all {
			if len(found) == 0 || known[p.Partition] {
				in = append(in, p)
			}
		}
		return errors.Join(err, err2, q.Releases(jobdb.RecordFilter{}, func(r *jobdb.Release) error {
			releases[r.Partition] = append(releases[r.Partition], r)
			return nil
		}))
	})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	shown := 0
	bar := newProgress()
	defer bar.done()
	err = f.readLogs(cmd.Context(), func(logs audit.Logs) error {
		for i, p := range in {
			bar.say("deriving the job from the logs: partition %d, %d of %d", p.Partition, i+1, len(in))
			c, err := sink.FoldJobUntil(logs.Events, logs.Decisions, id, p, releases[p.Partition], until)
			if err != nil {
				return fmt.Errorf("job %s cannot be derived from the logs: partition %d: %w", id, p.Partition, err)
			}
			late := map[string]uint64{}
			for _, d := range c.Decisions {
				if d.Superseded {
					late[d.RunID] = d.Number
				}
			}
			for _, j := range c.Jobs {
				h := jobHistory{runs: c.Runs}
				if err := printJob(out, f.output, j, h.inOrder(), late); err != nil {
					return err
				}
				shown++
			}
		}
		return nil
	})
	bar.done()
	if err = errors.Join(err, out.Flush()); err == nil && shown == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "there was no job %s at %s\n", id, at)
		return errFinding
	}
	return err
}

// generationAt returns the generation that was the newest at a time, or the one of that number.
func generationAt(ctx context.Context, c pb.PoliciesClient, at string) (uint64, error) {
	if n, err := strconv.ParseUint(at, 10, 64); err == nil && n > 0 {
		return n, nil
	}
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return 0, usageError{fmt.Errorf("--at %q: want a time such as 2026-12-01T06:00:00Z, or a generation such as 7", at)}
	}
	h, err := c.History(ctx, &pb.HistoryRequest{Limit: math.MaxInt32})
	if err != nil {
		return 0, err
	}
	for _, g := range h.Generations { // newest first
		if !g.Time.AsTime().After(t) {
			return g.Generation, nil
		}
	}
	return 0, fmt.Errorf("the policies log begins after %s: `refloatctl history` lists its generations", at)
}
