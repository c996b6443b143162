package jobdb

import (
	"cmp"
	"errors"
	"slices"
)

// Within returns queries that see only what is in these queues; none of them: nothing. What belongs to no queue, such as
// positions, activations and releases, is seen; what may belong to any, such as what was parked, is not.
func Within(q Queries, queues []string) Queries { return &within{of: q, queues: queues} }

// within has no embedded Queries: a new method needs a decision here.
type within struct {
	of     Queries
	queues []string
}

func (w *within) sees(queue string) bool { return slices.Contains(w.queues, queue) }

// narrow narrows criteria; false: nothing is seen.
func (w *within) narrow(c *Criteria) (*Criteria, bool) {
	n := *c
	n.Queues = w.queues
	return &n, len(w.queues) > 0 && len(c.Queues) == 0
}

// JobList implements Queries, as all methods.
func (w *within) JobList(c *Criteria, p Page, visit func(*Job) error) (next []any, err error) {
	if c, ok := w.narrow(c); ok {
		return w.of.JobList(c, p, visit)
	}
	return nil, nil
}

func (w *within) RunList(c *Criteria, p Page, visit func(*Run) error) (next []any, err error) {
	if c, ok := w.narrow(c); ok {
		return w.of.RunList(c, p, visit)
	}
	return nil, nil
}

func (w *within) HeldRunList(c *Criteria, p Page, visit func(*HeldRun) error) (next []any, err error) {
	if c, ok := w.narrow(c); ok {
		return w.of.HeldRunList(c, p, visit)
	}
	return nil, nil
}

func (w *within) DecisionList(c *Criteria, p Page, visit func(*Decision) error) (next []any, err error) {
	if c, ok := w.narrow(c); ok {
		return w.of.DecisionList(c, p, visit)
	}
	return nil, nil
}

func (w *within) GroupList(c *Criteria, p Page, visit func(*Group) error) (next []any, err error) {
	if c, ok := w.narrow(c); ok {
		return w.of.GroupList(c, p, visit)
	}
	return nil, nil
}

func (w *within) Top(by string, c *Criteria, limit int, jobs bool) ([]Top, error) {
	if c, ok := w.narrow(c); ok {
		return w.of.Top(by, c, limit, jobs)
	}
	return nil, nil
}

// Names implements Queries. A name is seen if something in one of the queues has it.
func (w *within) Names(of, text string, limit int) (names []string, more bool, err error) {
	all, more, err := w.of.Names(of, text, MaxNames)
	for _, name := range all {
		if len(names) == limit {
			return names, true, err
		}
		sees, failed := w.seesName(of, name)
		if err = errors.Join(err, failed); sees {
			names = append(names, name)
		}
		if err != nil {
			break
		}
	}
	return names, more, err
}

func (w *within) seesName(of, name string) (sees bool, err error) {
	one := Page{Limit: 1}
	switch of {
	case "queue":
		return w.sees(name), nil
	case "set":
		_, err = w.JobList(&Criteria{JobSet: name}, one, func(*Job) error { sees = true; return nil })
	case "group":
		_, err = w.GroupList(&Criteria{Group: name}, one, func(*Group) error { sees = true; return nil })
	case "node":
		_, err = w.RunList(&Criteria{Node: name}, one, func(*Run) error { sees = true; return nil })
	case "category":
		_, err = w.RunList(&Criteria{Category: name}, one, func(*Run) error { sees = true; return nil })
	case "policy":
		_, err = w.DecisionList(&Criteria{Policy: name}, one, func(*Decision) error { sees = true; return nil })
	case "rule":
		_, err = w.DecisionList(&Criteria{Rule: name}, one, func(*Decision) error { sees = true; return nil })
	}
	return sees, err
}

// Hours implements Queries. Kept counts of a policy are of all queues, so nobody who sees only some has them.
func (w *within) Hours(f HourFilter) (counts []HourCount, err error) {
	switch {
	case f.Policy != "":
		return nil, nil
	case f.Queue == "":
		for _, f.Queue = range w.queues {
			of, failed := w.of.Hours(f)
			counts, err = append(counts, of...), errors.Join(err, failed)
		}
		return sumHours(counts), err
	case !w.sees(f.Queue):
		return nil, nil
	}
	return w.of.Hours(f)
}

// Costs implements Queries. Those who see only some queues have the costs of queues.
func (w *within) Costs(f CostFilter) ([]CostSum, error) {
	if f.By != "queue" || f.Key != nil && !w.sees(*f.Key) {
		return nil, nil
	}
	sums, err := w.of.Costs(f)
	return slices.DeleteFunc(sums, func(c CostSum) bool { return !w.sees(c.Key) }), err
}

// sumHours adds the counts of the same hour, kind and effect.
func sumHours(counts []HourCount) (sums []HourCount) {
	at := map[HourCount]int{}
	for _, c := range counts {
		key := c
		key.Count = 0
		if i, ok := at[key]; ok {
			sums[i].Count += c.Count
			continue
		}
		at[key] = len(sums)
		sums = append(sums, c)
	}
	slices.SortStableFunc(sums, func(a, b HourCount) int { return cmp.Compare(a.Hour, b.Hour) })
	return sums
}

func (w *within) CountJobs(c *Criteria) (uint64, error) {
	if c, ok := w.narrow(c); ok {
		return w.of.CountJobs(c)
	}
	return 0, nil
}

func (w *within) CountRuns(c *Criteria) (uint64, error) {
	if c, ok := w.narrow(c); ok {
		return w.of.CountRuns(c)
	}
	return 0, nil
}

func (w *within) CountDecisions(c *Criteria) ([]DecisionCount, error) {
	if c, ok := w.narrow(c); ok {
		return w.of.CountDecisions(c)
	}
	return nil, nil
}

// QueuesInShadow implements Queries.
func (w *within) QueuesInShadow() ([]string, error) {
	all, err := w.of.QueuesInShadow()
	return slices.DeleteFunc(all, func(queue string) bool { return !w.sees(queue) }), err
}

// seesJob reports whether a job is in one of the queues, in a partition or in any.
func (w *within) seesJob(job string, partition *int) (sees bool, err error) {
	if job == "" {
		return false, nil
	}
	_, err = w.JobList(&Criteria{JobID: job}, Page{}, func(j *Job) error {
		sees = sees || partition == nil || j.Partition == *partition
		return nil
	})
	return sees, err
}

func (w *within) Runs(partition int, job string, visit func(*Run) error) error {
	sees, err := w.seesJob(job, &partition)
	if err != nil || !sees {
		return err
	}
	return w.of.Runs(partition, job, visit)
}

func (w *within) Decisions(f RecordFilter, visit func(*Decision) error) error {
	return w.of.Decisions(f, func(d *Decision) error {
		if !w.sees(d.Queue) {
			return nil
		}
		return visit(d)
	})
}

func (w *within) NotDecided(f RecordFilter, visit func(*NotDecided) error) error {
	return w.of.NotDecided(f, func(n *NotDecided) error {
		if !w.sees(n.Queue) {
			return nil
		}
		return visit(n)
	})
}

func (w *within) Ready(f RecordFilter, visit func(*Ready) error) error {
	sees, err := w.seesJob(f.JobID, f.Partition)
	if err != nil || !sees {
		return err
	}
	return w.of.Ready(f, visit)
}

func (w *within) Parked(RecordFilter, func(*Parked) error) error { return nil }

func (w *within) Activations(f RecordFilter, visit func(*Activation) error) error {
	return w.of.Activations(f, visit)
}

func (w *within) Releases(f RecordFilter, visit func(*Release) error) error {
	return w.of.Releases(f, visit)
}

func (w *within) Units(g *Group, visit func(*Unit) error) error {
	if !w.sees(g.Queue) {
		return nil
	}
	return w.of.Units(g, visit)
}

func (w *within) Members(g *Group, visit func(*Job) error) error {
	if !w.sees(g.Queue) {
		return nil
	}
	return w.of.Members(g, func(j *Job) error {
		if !w.sees(j.Queue) {
			return nil
		}
		return visit(j)
	})
}

func (w *within) GroupRecords(f RecordFilter, visit func(*GroupRecord) error) error {
	sees := f.Group != nil && w.sees(f.Group.Queue)
	if f.Group == nil {
		var err error
		if sees, err = w.seesJob(f.JobID, f.Partition); err != nil {
			return err
		}
	}
	if !sees {
		return nil
	}
	return w.of.GroupRecords(f, visit)
}

func (w *within) Positions() ([]PartitionPositions, error) { return w.of.Positions() }

func (w *within) Retries(partitions []int, now int64, visit func(*QueueRetries) error) error {
	return w.of.Retries(partitions, now, func(r *QueueRetries) error {
		if !w.sees(r.Queue) {
			return nil
		}
		return visit(r)
	})
}

// Counted implements Queries.
func (w *within) Counted(queues []string) (Counted, error) {
	if c, ok := w.narrow(&Criteria{Queues: queues}); ok {
		return w.of.Counted(c.Queues)
	}
	return Counted{}, nil
}

// Summary counts neither what was parked nor Ready and Releases, which are of no queue.
func (w *within) Summary() (s *Summary, err error) {
	s = &Summary{}
	var err2 error
	s.Counted, err = w.Counted(nil)
	s.Runs, err2 = w.CountRuns(&Criteria{})
	return s, errors.Join(err, err2)
}

func (w *within) Contents(int) (*Contents, error) {
	return nil, errors.New("all rows of a partition are of all queues")
}

// IngestMode implements Moded.
func (w *within) IngestMode(partition int) (string, error) {
	if m, ok := w.of.(Moded); ok {
		return m.IngestMode(partition)
	}
	return "", nil
}
