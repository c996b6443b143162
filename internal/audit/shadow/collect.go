package shadow

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
)

// collector collects decisions, then the jobs that they were made on.
type collector struct {
	Filter
	queues map[string]*collected
	byJob  map[jobKey][]*Run
}

type jobKey struct {
	partition int
	id        string
}

type collected struct {
	Queue
	enforced map[uint64]bool // generations
	jobs     map[jobKey]bool
}

func newCollector(f Filter) *collector {
	return &collector{Filter: f, queues: map[string]*collected{}, byJob: map[jobKey][]*Run{}}
}

func (c *collector) decision(d *jobdb.Decision) {
	if c.Queue != "" && d.Queue != c.Queue {
		return
	}
	q := c.queues[d.Queue]
	if q == nil {
		q = &collected{Queue: Queue{Name: strings.Clone(d.Queue)}, enforced: map[uint64]bool{}, jobs: map[jobKey]bool{}}
		c.queues[q.Name] = q
	}
	if !d.Shadow {
		q.enforced[d.Generation] = true
		return
	}
	if q.First == 0 || d.Generation < q.First {
		q.First = d.Generation
	}
	q.Last = max(q.Last, d.Generation)
	if d.Time < c.Since {
		return
	}
	copied := d.Decision
	run := &Run{Partition: d.Partition, Decision: &copied, Superseded: d.Superseded}
	q.Runs = append(q.Runs, run)
	key := jobKey{d.Partition, copied.JobID}
	q.jobs[key] = true
	c.byJob[key] = append(c.byJob[key], run)
}

// job sets the outcome of each of the job's runs. A run is decided while it is the
// latest one, so if it is no longer the latest, there was another one.
func (c *collector) job(j *jobdb.Job) {
	for _, run := range c.byJob[jobKey{j.Partition, j.JobID}] {
		run.Job = j.State
		switch {
		case j.Queueing.LatestRun != run.Decision.RunID:
			run.Outcome = RanAgain
		case j.State == jobdb.JobFailed:
			run.Outcome = ArmadaFailed
		case j.State == jobdb.JobCancelled:
			run.Outcome = Cancelled
		case j.State == jobdb.JobSucceeded:
			run.Outcome = Succeeded
		}
	}
}

// sorted returns the queues with something to report, by name.
func (c *collector) sorted() []*collected {
	var all []*collected
	for _, q := range c.queues {
		if len(q.Runs) > 0 {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(a, b *collected) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (c *collector) report() []*Queue {
	all := []*Queue{}
	for _, q := range c.sorted() {
		for generation := range q.enforced {
			if generation > q.Last && (q.Enforced == 0 || generation < q.Enforced) {
				q.Enforced = generation
			}
		}
		slices.SortFunc(q.Runs, func(a, b *Run) int {
			return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Decision.Number, b.Decision.Number))
		})
		q.countJobs(c.byJob)
		q.Rules = rulesOf(q.Runs)
		all = append(all, &q.Queue)
	}
	return all
}

func (q *collected) countJobs(byJob map[jobKey][]*Run) {
	for key := range q.jobs {
		n := &q.Jobs
		n.All++
		again := false
		for _, run := range byJob[key] {
			again = again || run.Outcome == RanAgain && !run.Decision.Requeue
			switch run.Outcome {
			case ArmadaFailed:
				n.ArmadaFailed++
				if run.Decision.Requeue {
					n.WouldRetry++
				}
			case Cancelled:
				n.Cancelled++
			case Open:
				n.Open++
			case RanAgain, Succeeded:
			}
		}
		if !again {
			continue
		}
		n.RanAgain++
		switch state := byJob[key][0].Job; {
		case state == jobdb.JobSucceeded:
			n.ThenSucceeded++
		case !state.Terminal():
			n.ThenOpen++
		}
	}
}

func rulesOf(runs []*Run) []Rule {
	type key struct{ policy, rule string }
	rules := map[key]*Rule{}
	waits := map[key][]time.Duration{}
	for _, run := range runs {
		k := key{run.Decision.Policy, run.Decision.Rule}
		r := rules[k]
		if r == nil {
			r = &Rule{Policy: k.policy, Rule: k.rule}
			rules[k] = r
		}
		if run.Decision.Requeue {
			r.Retry.add(run)
			waits[k] = append(waits[k], run.Wait())
		} else {
			r.Fail.add(run)
		}
	}
	all := []Rule{}
	for k, r := range rules {
		slices.Sort(waits[k])
		r.Waits = waitsOf(waits[k])
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Rule) int { return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule)) })
	return all
}
