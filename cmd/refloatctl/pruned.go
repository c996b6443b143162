package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// jobHistory is everything about one job id in one partition.
type jobHistory struct {
	job        *jobdb.Job
	runs       []*jobdb.Run
	decisions  []*jobdb.Decision
	notDecided []*jobdb.NotDecided
	releases   []*jobdb.Release
	mode       string // mode in which Armada's tables are written; empty: they are not
	fromLogs   bool   // the job was pruned from the job database
}

// findHistories finds a job in the job database or, if it may have been pruned, in the logs.
func findHistories(cmd *cobra.Command, f explainFlags) ([]jobHistory, error) {
	var found []jobHistory
	var pruned []jobdb.PartitionPositions
	modes := map[int]string{}
	err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		jobs, err := lookUp(q, f.job)
		for _, j := range jobs {
			found = append(found, jobHistory{job: j})
		}
		for i := range found {
			err = errors.Join(err, found[i].read(q))
		}
		if err != nil || len(found) > 0 {
			return err
		}
		pruned, err = prunedOf(q)
		if m, ok := q.(jobdb.Moded); ok {
			for _, p := range pruned {
				mode, merr := m.IngestMode(p.Partition)
				modes[p.Partition], err = mode, errors.Join(err, merr)
			}
		}
		return err
	})
	if err != nil || len(found) > 0 {
		return found, err
	}
	if len(pruned) > 0 && (f.data != "" || f.onPulsar()) {
		if found, err = historiesInLogs(cmd.Context(), f, pruned); err != nil {
			return nil, err
		}
		for i := range found {
			found[i].mode = modes[found[i].job.Partition]
		}
	}
	if len(found) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "job %s is not in the job database; `refloatctl get jobs %s` lists its jobs\n%s", f.job, f.deployment, prunedText(pruned))
		return nil, errFinding
	}
	return found, nil
}

// read reads the rest from the job database.
func (h *jobHistory) read(q jobdb.Queries) (err error) {
	p := h.job.Partition
	of := jobdb.RecordFilter{JobID: h.job.JobID, Partition: &p}
	err = errors.Join(
		q.Runs(p, h.job.JobID, func(r *jobdb.Run) error { h.runs = append(h.runs, r); return nil }),
		q.Decisions(of, func(d *jobdb.Decision) error { h.decisions = append(h.decisions, d); return nil }),
		q.NotDecided(of, func(n *jobdb.NotDecided) error { h.notDecided = append(h.notDecided, n); return nil }),
		q.Releases(jobdb.RecordFilter{Partition: &p}, func(r *jobdb.Release) error { h.releases = append(h.releases, r); return nil }),
	)
	if m, ok := q.(jobdb.Moded); ok && err == nil {
		h.mode, err = m.IngestMode(p)
	}
	return err
}

// historiesInLogs derives a job from the logs of the partitions that have pruned jobs.
func historiesInLogs(ctx context.Context, f explainFlags, pruned []jobdb.PartitionPositions) (found []jobHistory, err error) {
	bar := newProgress()
	defer bar.done()
	err = f.readLogs(ctx, func(logs audit.Logs) error {
		for i, p := range pruned {
			bar.say("deriving the job from the logs: partition %d, %d of %d", p.Partition, i+1, len(pruned))
			var releases []*jobdb.Release
			err := f.viewJobs(ctx, func(q jobdb.Queries) error {
				return q.Releases(jobdb.RecordFilter{Partition: &p.Partition}, func(r *jobdb.Release) error { releases = append(releases, r); return nil })
			})
			if err != nil {
				return err
			}
			c, err := sink.FoldJob(logs.Events, logs.Decisions, f.job, p, releases)
			if err != nil {
				return fmt.Errorf("job %s may have been pruned from the job database, and cannot be derived from the logs: partition %d: %w", f.job, p.Partition, err)
			}
			for _, j := range c.Jobs {
				found = append(found, jobHistory{job: j, runs: c.Runs, decisions: c.Decisions, notDecided: c.NotDecided, releases: releases, fromLogs: true})
			}
		}
		return nil
	})
	return found, err
}

// prunedOf returns the positions of the partitions that have pruned jobs.
func prunedOf(q jobdb.Queries) (pruned []jobdb.PartitionPositions, err error) {
	all, err := q.Positions()
	for _, p := range all {
		if p.Positions.Pruned.Jobs > 0 {
			pruned = append(pruned, p)
		}
	}
	return pruned, err
}

func prunedIn(ctx context.Context, from deployment) (pruned []jobdb.PartitionPositions, err error) {
	err = from.viewJobs(ctx, func(q jobdb.Queries) (err error) {
		pruned, err = prunedOf(q)
		return err
	})
	return pruned, err
}

// prunedText says which jobs are not in the job database any more, in lines.
func prunedText(pruned []jobdb.PartitionPositions) string {
	var b strings.Builder
	for _, p := range pruned {
		n := p.Positions.Pruned
		fmt.Fprintf(&b, "  partition %d has pruned %d jobs, the last of them at %s; they had ended by %s\n", p.Partition, n.Jobs, timeText(n.When), timeText(n.Ended))
	}
	if len(pruned) > 0 {
		b.WriteString("  `refloatctl explain` derives a pruned job from the logs, as far back as they reach: give --pulsar URL or --data DIR\n")
	}
	return b.String()
}
