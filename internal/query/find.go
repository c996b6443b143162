package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// LookUp finds the rows of a job, of which several partitions may have one: by its id, or
// by the beginning of its id if no other job's begins so. No rows: there is no such job.
func LookUp(q jobdb.Queries, id string) (rows []*jobdb.Job, err error) {
	visit := func(j *jobdb.Job) error {
		rows = append(rows, j)
		return nil
	}
	if _, err = q.JobList(&jobdb.Criteria{JobID: id}, jobdb.Page{}, visit); err != nil || len(rows) > 0 || id == "" {
		return rows, err
	}
	if _, err = q.JobList(&jobdb.Criteria{JobPrefix: id}, jobdb.Page{Limit: 10}, visit); err != nil {
		return nil, err
	}
	var ids []string
	for _, j := range rows {
		if !slices.Contains(ids, j.JobID) {
			ids = append(ids, j.JobID)
		}
	}
	if len(ids) > 1 {
		return nil, invalid("", "%q is the beginning of several job ids, such as %s: give more of it", id, strings.Join(ids[:min(len(ids), 3)], ", "))
	}
	return rows, nil
}

// History is everything about one job id in one partition.
type History struct {
	Job        *jobdb.Job
	Runs       []*jobdb.Run
	Decisions  []*jobdb.Decision
	NotDecided []*jobdb.NotDecided
	Releases   []*jobdb.Release // of the partition
	Mode       string           // mode in which Armada's tables are written; empty: they are not
	FromLogs   bool             // the job was pruned from the job database
}

// InOrder returns the runs in the order in which they became known.
func (h *History) InOrder() (runs []jobdb.Run) {
	for _, r := range h.Runs {
		runs = append(runs, *r)
	}
	slices.SortStableFunc(runs, func(a, b jobdb.Run) int { return cmp.Compare(a.Index, b.Index) })
	return runs
}

// Histories finds a job by its id, or a unique beginning of it, in the job database or, if
// it may have been pruned, in the logs. Errors: *NotFound, *Invalid, ErrBusy.
func (s *Source) Histories(ctx context.Context, job string) ([]History, error) {
	var found []History
	var pruned []jobdb.PartitionPositions
	modes := map[int]string{}
	err := s.Jobs(ctx, func(q jobdb.Queries) error {
		jobs, err := LookUp(q, job)
		for _, j := range jobs {
			found = append(found, History{Job: j})
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
	if len(pruned) > 0 && s.Logs != nil {
		if found, err = s.inLogs(ctx, job, pruned); err != nil {
			return nil, err
		}
		for i := range found {
			found[i].Mode = modes[found[i].Job.Partition]
		}
	}
	if len(found) == 0 {
		return nil, &NotFound{What: "job " + job, Pruned: pruned}
	}
	return found, nil
}

// read reads the rest from the job database.
func (h *History) read(q jobdb.Queries) (err error) {
	p := h.Job.Partition
	of := jobdb.RecordFilter{JobID: h.Job.JobID, Partition: &p}
	err = errors.Join(
		q.Runs(p, h.Job.JobID, func(r *jobdb.Run) error { h.Runs = append(h.Runs, r); return nil }),
		q.Decisions(of, func(d *jobdb.Decision) error { h.Decisions = append(h.Decisions, d); return nil }),
		q.NotDecided(of, func(n *jobdb.NotDecided) error { h.NotDecided = append(h.NotDecided, n); return nil }),
		q.Releases(jobdb.RecordFilter{Partition: &p}, func(r *jobdb.Release) error { h.Releases = append(h.Releases, r); return nil }),
	)
	if m, ok := q.(jobdb.Moded); ok && err == nil {
		h.Mode, err = m.IngestMode(p)
	}
	return err
}

// inLogs derives a job from the logs of the partitions that have pruned jobs.
func (s *Source) inLogs(ctx context.Context, job string, pruned []jobdb.PartitionPositions) (found []History, err error) {
	err = s.whole(ctx, func(logs audit.Logs) error {
		for i, p := range pruned {
			s.progress("deriving the job from the logs: partition %d, %d of %d", p.Partition, i+1, len(pruned))
			if err := ctx.Err(); err != nil {
				return err
			}
			var releases []*jobdb.Release
			err := s.Jobs(ctx, func(q jobdb.Queries) error {
				return q.Releases(jobdb.RecordFilter{Partition: &p.Partition}, func(r *jobdb.Release) error { releases = append(releases, r); return nil })
			})
			if err != nil {
				return err
			}
			c, err := sink.FoldJob(logs.Events, logs.Decisions, job, p, releases)
			if err != nil {
				return fmt.Errorf("job %s may have been pruned from the job database, and cannot be derived from the logs: partition %d: %w", job, p.Partition, err)
			}
			for _, j := range c.Jobs {
				found = append(found, History{Job: j, Runs: c.Runs, Decisions: c.Decisions, NotDecided: c.NotDecided, Releases: releases, FromLogs: true})
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

// PrunedText says which jobs are not in the job database any more, in lines.
func PrunedText(pruned []jobdb.PartitionPositions) string {
	var b strings.Builder
	for _, p := range pruned {
		n := p.Positions.Pruned
		fmt.Fprintf(&b, "  partition %d has pruned %d jobs, the last of them at %s; they had ended by %s\n", p.Partition, n.Jobs, TimeText(n.When), TimeText(n.Ended))
	}
	return b.String()
}

// Found is a job as it is in one partition.
type Found struct {
	Job
	Row  *jobdb.Job  `json:"-"`
	Runs []jobdb.Run `json:"-"` // in the order in which they became known
}

// FindJob finds a job by its id or a unique beginning of it, with its runs; several
// partitions may have a job of that id. Errors: *NotFound, *Invalid.
func (s *Source) FindJob(ctx context.Context, id string) (found []Found, err error) {
	var pruned []jobdb.PartitionPositions
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		rows, err := LookUp(q, id)
		for _, j := range rows {
			f := Found{Row: j}
			late := map[string]uint64{}
			err = errors.Join(err,
				q.Runs(j.Partition, j.JobID, func(r *jobdb.Run) error {
					f.Runs = append(f.Runs, *r)
					return nil
				}),
				q.Decisions(jobdb.RecordFilter{JobID: j.JobID, Partition: &j.Partition}, func(d *jobdb.Decision) error {
					if d.Late() {
						late[d.RunID] = d.Number
					}
					return nil
				}))
			f.Job = superseded(JobOf(j, f.Runs), late)
			found = append(found, f)
		}
		if err == nil && len(found) == 0 {
			pruned, err = prunedOf(q)
		}
		return err
	})
	if err == nil && len(found) == 0 {
		err = &NotFound{What: "job " + id, Pruned: pruned}
	}
	return found, err
}

// superseded adds the superseded decisions on its runs to a job.
func superseded(j Job, late map[string]uint64) Job {
	for i := range j.Attempts {
		j.Attempts[i].Superseded = late[j.Attempts[i].RunID]
	}
	return j
}

// Release is a range of events that went to the job database without a decision.
type Release struct {
	Partition int    `json:"partition"`
	From      string `json:"from"` // exclusive
	To        string `json:"to"`   // inclusive
	Messages  uint64 `json:"messages"`
	Made      string `json:"made"`
}

// ReleaseOf returns a release.
func ReleaseOf(r *jobdb.Release) *Release {
	return &Release{Partition: r.Partition, From: r.From.String(), To: r.To.String(), Messages: r.Messages, Made: TimeText(r.When)}
}

// ByCutover reports whether a release is the start of a cut-over: it released no messages.
func (r *Release) ByCutover() bool { return r.Messages == 0 }

// releaseIn finds the release that contains a message of our log; nil: no release contains it.
func releaseIn(releases []*jobdb.Release, at eventlog.Position) (found *jobdb.Release) {
	for _, r := range releases {
		if at.Compare(r.From) > 0 && at.Compare(r.To) <= 0 {
			found = r
		}
	}
	return found
}
