package sink_test

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// memStore is a job database in memory: each row is a copy, a transaction has
// the whole of it to itself, and Load gives exactly what is asked for.
type memStore struct {
	mu          sync.Mutex
	jobs        map[string]jobdb.Job
	runs        map[string]jobdb.Run
	groups      map[string]jobdb.Group
	units       map[string]jobdb.Unit
	rest        map[int]*jobdb.Changes
	byPartition map[int]jobdb.Positions
}

func newMemStore() *memStore {
	return &memStore{groups: map[string]jobdb.Group{}, units: map[string]jobdb.Unit{}, jobs: map[string]jobdb.Job{}, runs: map[string]jobdb.Run{}, rest: map[int]*jobdb.Changes{}, byPartition: map[int]jobdb.Positions{}}
}

type memTx struct {
	s         *memStore
	partition int
	changes   []*jobdb.Changes
	deleted   []string
	emptied   []string // groups that may have lost their last member
	ended     bool
}

func (s *memStore) positions(p int) jobdb.Positions {
	if positions, ok := s.byPartition[p]; ok {
		return positions
	}
	return jobdb.Beginning
}

func (s *memStore) Begin(_ context.Context, partition int) (jobdb.Tx, error) {
	s.mu.Lock()
	return &memTx{s: s, partition: partition}, nil
}

func (t *memTx) Positions() jobdb.Positions { return t.s.positions(t.partition) }

func (t *memTx) Origin(context.Context) (eventlog.Position, error) {
	if rest := t.s.rest[t.partition]; rest != nil {
		return jobdb.Origin(rest.Releases), nil
	}
	return eventlog.Start, nil
}

func jobKey(p int, id string) string      { return fmt.Sprintf("%d/%s", p, id) }
func runKey(p int, job, id string) string { return fmt.Sprintf("%d/%s/%s", p, job, id) }

func (t *memTx) Load(_ context.Context, keys jobdb.Keys) (*jobdb.Found, error) {
	found := &jobdb.Found{}
	for _, id := range keys.Jobs {
		if j, ok := t.s.jobs[jobKey(t.partition, id)]; ok {
			found.Jobs = append(found.Jobs, j)
		}
	}
	for _, k := range keys.Runs {
		if r, ok := t.s.runs[runKey(t.partition, k.JobID, k.RunID)]; ok {
			found.Runs = append(found.Runs, r)
		}
	}
	for _, id := range keys.Groups {
		if g, ok := t.s.groups[jobKey(t.partition, id)]; ok {
			found.Groups = append(found.Groups, g)
		}
	}
	for _, id := range keys.Units {
		if u, ok := t.s.units[jobKey(t.partition, id)]; ok {
			found.Units = append(found.Units, u)
		}
	}
	for _, j := range t.s.jobs {
		for _, k := range keys.Sets {
			if j.Partition == t.partition && j.Queue == k.Queue && j.JobSet == k.JobSet && j.Known && !j.State.Terminal() {
				found.Jobs = append(found.Jobs, j)
			}
		}
	}
	for _, r := range t.s.runs {
		for _, id := range keys.OpenRunsOf {
			if r.Partition == t.partition && r.JobID == id && !r.State.Ended() {
				found.Runs = append(found.Runs, r)
			}
		}
	}
	return found, nil
}

func (t *memTx) Write(_ context.Context, c *jobdb.Changes) error {
	frozen := *c
	frozen.Jobs, frozen.Runs, frozen.Groups, frozen.Units = nil, nil, nil, nil
	for _, g := range c.Groups {
		row := *g
		frozen.Groups = append(frozen.Groups, &row)
	}
	for _, u := range c.Units {
		row := *u
		frozen.Units = append(frozen.Units, &row)
	}
	for _, j := range c.Jobs {
		row := *j
		frozen.Jobs = append(frozen.Jobs, &row)
	}
	for _, r := range c.Runs {
		row := *r
		frozen.Runs = append(frozen.Runs, &row)
	}
	t.changes = append(t.changes, &frozen)
	return nil
}

func (t *memTx) Commit(_ context.Context, from, to jobdb.Positions) error {
	if t.Positions() != from {
		return jobdb.ErrMoved
	}
	for _, c := range t.changes {
		for _, j := range c.Jobs {
			t.s.jobs[jobKey(j.Partition, j.JobID)] = *j
		}
		for _, r := range c.Runs {
			t.s.runs[runKey(r.Partition, r.JobID, r.RunID)] = *r
		}
		for _, g := range c.Groups {
			t.s.groups[jobKey(g.Partition, g.ID)] = *g
		}
		for _, u := range c.Units {
			t.s.units[jobKey(u.Partition, u.ID)] = *u
		}
		rest := t.s.rest[t.partition]
		if rest == nil {
			rest = &jobdb.Changes{}
			t.s.rest[t.partition] = rest
		}
		rest.Decisions = append(rest.Decisions, c.Decisions...)
		rest.NotDecided = append(rest.NotDecided, c.NotDecided...)
		rest.Parked = append(rest.Parked, c.Parked...)
		rest.Ready = append(rest.Ready, c.Ready...)
		rest.Activations = append(rest.Activations, c.Activations...)
		rest.Releases = append(rest.Releases, c.Releases...)
		rest.GroupRecords = append(rest.GroupRecords, c.GroupRecords...)
		rest.Costs = append(rest.Costs, c.Costs...)
	}
	for _, job := range t.deleted {
		t.s.delete(t.partition, job)
	}
	for _, group := range t.emptied {
		t.s.deleteGroup(t.partition, group)
	}
	t.s.byPartition[t.partition] = to
	return t.Rollback()
}

func (t *memTx) Clock(context.Context) (c jobdb.Clock, err error) {
	for _, j := range t.s.jobs {
		if j.Partition == t.partition {
			c.LastEnd = max(c.LastEnd, j.Times.Ended)
		}
	}
	if rest := t.s.rest[t.partition]; rest != nil {
		for _, a := range rest.Activations {
			if a.Semantics == 0 {
				c.HorizonMS = a.HorizonMS
			}
		}
	}
	return c, nil
}

func (t *memTx) Candidates(_ context.Context, which jobdb.Candidates) (found []jobdb.Job, err error) {
	for _, j := range t.s.jobs {
		later := j.Times.Ended > which.AfterEnd || j.Times.Ended == which.AfterEnd && j.JobID > which.AfterJob
		switch {
		case j.Partition != t.partition:
		case which.Unsubmitted && !j.Known && j.JobID > which.AfterJob:
			found = append(found, j)
		case !which.Unsubmitted && j.Times.Ended != 0 && j.Times.Ended <= which.EndedBy && later && t.s.alone(&j, which.EndedBy):
			found = append(found, j)
		}
	}
	sort.Slice(found, func(a, b int) bool {
		x, y := found[a], found[b]
		return !which.Unsubmitted && x.Times.Ended < y.Times.Ended || (which.Unsubmitted || x.Times.Ended == y.Times.Ended) && x.JobID < y.JobID
	})
	return found[:min(len(found), which.Limit)], nil
}

func (t *memTx) Delete(_ context.Context, jobs, groups []string) (int, error) {
	t.deleted, t.emptied = append(t.deleted, jobs...), append(t.emptied, groups...)
	return len(jobs), nil
}

// delete removes everything about a job.
func (s *memStore) delete(p int, job string) {
	delete(s.jobs, jobKey(p, job))
	for k, r := range s.runs {
		if r.Partition == p && r.JobID == job {
			delete(s.runs, k)
		}
	}
	if rest := s.rest[p]; rest != nil {
		rest.Decisions = slices.DeleteFunc(rest.Decisions, func(d *jobdb.Decision) bool { return d.JobID == job })
		rest.NotDecided = slices.DeleteFunc(rest.NotDecided, func(n *jobdb.NotDecided) bool { return n.JobID == job })
		rest.Ready = slices.DeleteFunc(rest.Ready, func(r *jobdb.Ready) bool { return r.JobID == job })
		rest.GroupRecords = slices.DeleteFunc(rest.GroupRecords, func(r *jobdb.GroupRecord) bool { return r.JobID == job })
	}
}

// alone reports whether every member of the job's group ended by then.
func (s *memStore) alone(j *jobdb.Job, by int64) bool {
	for _, o := range s.jobs {
		if j.Member.GroupID != "" && o.Partition == j.Partition && o.Member.GroupID == j.Member.GroupID && (o.Times.Ended == 0 || o.Times.Ended > by) {
			return false
		}
	}
	return true
}

// deleteGroup removes everything about a group that has lost its last member.
func (s *memStore) deleteGroup(p int, id string) {
	for _, j := range s.jobs {
		if j.Partition == p && j.Member.GroupID == id {
			return
		}
	}
	delete(s.groups, jobKey(p, id))
	for k, u := range s.units {
		if u.Partition == p && u.GroupID == id {
			delete(s.units, k)
		}
	}
	if rest := s.rest[p]; rest != nil {
		rest.GroupRecords = slices.DeleteFunc(rest.GroupRecords, func(r *jobdb.GroupRecord) bool { return r.GroupID == id })
	}
}

func (t *memTx) Rollback() error {
	if !t.ended {
		t.ended = true
		t.s.mu.Unlock()
	}
	return nil
}

func (s *memStore) contents(p int) *jobdb.Contents {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &jobdb.Contents{Partition: p, Positions: s.positions(p)}
	if rest := s.rest[p]; rest != nil {
		c.Changes = *rest
	}
	for _, j := range s.jobs {
		if j.Partition == p {
			c.Jobs = append(c.Jobs, &j)
		}
	}
	for _, r := range s.runs {
		if r.Partition == p {
			c.Runs = append(c.Runs, &r)
		}
	}
	for _, g := range s.groups {
		if g.Partition == p {
			c.Groups = append(c.Groups, &g)
		}
	}
	for _, u := range s.units {
		if u.Partition == p {
			c.Units = append(c.Units, &u)
		}
	}
	sort.Slice(c.Jobs, func(a, b int) bool { return c.Jobs[a].JobID < c.Jobs[b].JobID })
	sort.Slice(c.Runs, func(a, b int) bool {
		x, y := c.Runs[a], c.Runs[b]
		return x.JobID < y.JobID || x.JobID == y.JobID && x.RunID < y.RunID
	})
	return c
}
