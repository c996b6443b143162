package scheduling

import (
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Scheduler computes one scheduling cycle after another, of a state that changes little in between. It holds the state:
// all jobs, and what runs where. Each cycle has the result that Schedule has for the same state, but takes time for what
// has changed, and not for all that there is. (The order of each queue, the sums of queues and nodes, and the index of the nodes stay
// up to date between cycles, and Cycle first tries calm.)
type Scheduler struct {
	config  Config // with the time of the last cycle
	classes classes
	queues  []Queue // without jobs
	queueOf map[string]int32
	c       *cycle
	byID    map[string]int32
	nodeOf  map[string]string // of jobs that run on unknown nodes
	sum     []int64           // of all requests
	work    []int64           // as sum, for Queue
	spare   struct{ jobs, gangs []int32 }
	bunches map[bunchName]*bunch

	nodes     []Node // new ones, that Cycle is to use; nil if there are none
	broken    []bunchName
	joined    int     // gangs of which only some jobs run
	unchecked []int32 // queued jobs whose gang must be checked: may it be selected?
	due       dues
	changed   bool // since the last cycle, or it scheduled jobs that cannot be evicted
	calm      bool // the last cycle was
	tight     bool // a node may have more jobs than it has room for
	last      outcome
	outlook   outlook
	shares    []Share // see Shares
}

// Changes are what a cycle decides. All lists are sorted by job.
type Changes struct {
	Scheduled, Preempted, Failed []string // as in Result
	// FitsNoNode are the queued jobs that could be selected in this cycle, but in none before it since they were
	// queued (or the nodes have changed), and fit on no node.
	FitsNoNode []string
}

// outcome is the last cycle's, until the next change: by then the mapping from jobs to nodes is the old one.
type outcome struct{ started, preempted []int32 }

// NewScheduler returns a scheduler without jobs. Jobs of the queues are not looked at.
func NewScheduler(config Config, queues []Queue, nodes []Node) (*Scheduler, error) {
	all, err := config.classes()
	if err != nil {
		return nil, err
	}
	s := &Scheduler{config: config, classes: all, queues: slices.Clone(queues), queueOf: map[string]int32{}, sum: make([]int64, len(config.Resources)), last: outcome{}}
	for i := range s.queues {
		s.queues[i].Jobs = nil
	}
	return s, s.rebuild(slices.Clone(nodes))
}

// rebuild begins anew with other nodes and the same jobs.
func (s *Scheduler) rebuild(nodes []Node) error {
	c, err := newCycle(s.config, s.queues, nodes, nil)
	if err != nil {
		return err
	}
	c.index.build()
	c.sorted = false
	c.gangs = append(c.gangs, gang{}) // see noGang
	old := s.c
	*s = Scheduler{
		config: s.config, classes: s.classes, queues: s.queues, queueOf: map[string]int32{}, c: c, byID: map[string]int32{}, nodeOf: s.nodeOf, sum: s.sum,
		bunches: map[bunchName]*bunch{}, changed: true, outlook: newOutlook(c),
	}
	for q := range c.queues {
		s.queueOf[c.queues[q].name] = int32(q)
	}
	if old == nil {
		return nil
	}
	runs := map[string]string{}
	for j := range old.jobs {
		job := &old.jobs[j]
		if job.Job == nil {
			continue
		}
		own := *job
		own.state, own.node, own.start, own.key = nothing, none, none, none
		k := s.add(own)
		if job.state != placed {
			continue
		}
		name := s.nodeOf[job.ID]
		if job.node != gone {
			name = old.nodes[job.node].Name
		}
		n, ok := c.nodeOf[name]
		if !ok {
			n = gone
			runs[job.ID] = name
		}
		s.lift(k)
		c.put(k, placed, n)
		c.jobs[k].start = n
		s.lower(k)
	}
	s.nodeOf = runs
	s.tight = true
	return nil
}

// Queue has a job queued: a new one, or one that is queued or runs already, as it is now.
func (s *Scheduler) Queue(queue string, j Job) error {
	q, ok := s.queueOf[queue]
	if !ok {
		return fmt.Errorf("job %q: there is no queue %q", j.ID, queue)
	}
	var p problems
	job := p.checkJob(s.config, &j, q, s.classes)
	if p.first != "" {
		return p.err()
	}
	s.settle()
	old, known := s.byID[j.ID]
	if known && s.c.jobs[old].queue != q {
		return fmt.Errorf("job %q: is in queue %q, and not in %q", j.ID, s.c.queues[s.c.jobs[old].queue].name, queue)
	}
	if b := s.bunches[bunchName{q, j.Gang.ID}]; b != nil && j.Gang.ID != "" {
		others := 0
		for _, other := range b.jobs {
			if !known || other != old {
				p.checkAlike(s.c, &job, other)
				others++
			}
		}
		if others >= j.Gang.Cardinality {
			p.add("gang %q of queue %q: more jobs than its cardinality %d", j.Gang.ID, queue, j.Gang.Cardinality)
		}
	}
	sum := append(s.work[:0], s.sum...)
	if known {
		for r, amount := range s.c.request(old) {
			sum[r] -= amount
		}
	}
	if p.addUp("jobs", sum, j.Request, s.config.Resources); p.first != "" {
		return p.err()
	}
	if known {
		s.remove(old)
	}
	s.sum, s.work = sum, s.sum
	s.add(job)
	return nil
}

// Remove removes a job, if it is known: it has ended, or is no longer to be scheduled.
func (s *Scheduler) Remove(id string) {
	s.settle()
	if j, ok := s.byID[id]; ok {
		for r, amount := range s.c.request(j) {
			s.sum[r] -= amount
		}
		s.remove(j)
	}
}

// SetNodes replaces all nodes. Jobs stay where they run.
func (s *Scheduler) SetNodes(nodes []Node) error {
	if _, err := newCycle(s.config, s.queues, nodes, nil); err != nil {
		return err
	}
	s.nodes = append([]Node{}, nodes...)
	return nil
}

// settle makes the last cycle's outcome the state from which the next one begins.
func (s *Scheduler) settle() {
	c := s.c
	if len(s.last.started)+len(s.last.preempted) == 0 {
		return
	}
	all := slices.Concat(s.last.started, s.last.preempted)
	s.outlook.era++
	for _, j := range all { // their places may depend on whether they run
		s.lift(j)
	}
	for _, j := range all {
		if c.jobs[j].state == placed {
			c.jobs[j].start, c.jobs[j].Started = c.jobs[j].node, s.config.Now
		} else {
			c.jobs[j].start, c.jobs[j].Started = none, time.Time{}
			delete(s.nodeOf, c.jobs[j].ID)
		}
	}
	for _, j := range all {
		s.lower(j)
	}
	s.last = outcome{s.last.started[:0], s.last.preempted[:0]}
}

// lift takes the gang of a job out of its queue, if it is there, until lower or mend puts it back.
func (s *Scheduler) lift(j int32) {
	if job := &s.c.jobs[j]; job.Gang.ID == "" {
		s.detach(job.gang)
	} else {
		name := bunchName{job.queue, job.Gang.ID}
		s.breakUp(name, s.bunches[name])
	}
}

// lower puts a job that is a gang of its own back into its queue.
func (s *Scheduler) lower(j int32) {
	job := &s.c.jobs[j]
	if job.Gang.ID != "" {
		return
	}
	s.c.gangs[job.gang].running = job.start != none
	if job.start == none {
		s.unchecked = append(s.unchecked, j)
	}
	s.attach(job.gang)
}

func (s *Scheduler) add(job job) int32 {
	c := s.c
	s.changed = true
	var j int32
	if n := len(s.spare.jobs); n > 0 {
		j, s.spare.jobs = s.spare.jobs[n-1], s.spare.jobs[:n-1]
		c.jobs[j] = job
	} else {
		j = int32(len(c.jobs))
		c.jobs = append(c.jobs, job)
		c.requests = append(c.requests, make([]int64, c.resources)...)
	}
	request := c.request(j)
	clear(request[copy(request, job.Request):])
	s.byID[job.ID] = j
	if job.RetryAfter.After(s.config.Now) {
		heap.Push(&s.due, due{job.RetryAfter, job.ID})
	}
	if job.Gang.ID == "" {
		g := s.newGang(job.queue)
		c.gangs[g].members = append(c.gangs[g].members, j)
		c.gangs[g].need = 1
		c.jobs[j].gang = g
		s.attach(g)
		s.unchecked = append(s.unchecked, j)
		return j
	}
	name := bunchName{job.queue, job.Gang.ID}
	b := s.bunches[name]
	if b == nil {
		b = &bunch{}
		s.bunches[name] = b
	}
	c.jobs[j].gang = noGang
	s.breakUp(name, b)
	b.jobs = append(b.jobs, j)
	return j
}

func (s *Scheduler) remove(j int32) {
	c := s.c
	job := &c.jobs[j]
	s.changed = true
	s.outlook.era++
	delete(s.byID, job.ID)
	delete(s.nodeOf, job.ID)
	if name := (bunchName{job.queue, job.Gang.ID}); name.id != "" {
		b := s.bunches[name]
		s.breakUp(name, b)
		b.jobs = slices.DeleteFunc(b.jobs, func(other int32) bool { return other == j })
	} else {
		s.detach(job.gang)
		s.freeGang(job.gang)
	}
	if job.state != nothing {
		c.put(j, nothing, none)
	}
	*job = noJob()
	s.spare.jobs = append(s.spare.jobs, j)
}

// noJob is what is in the place of a job that was removed.
func noJob() job { return job{node: none, start: none} }

// due is a job whose RetryAfter comes. It may have been removed or changed since.
type due struct {
	at  time.Time
	job string
}

type dues []due

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, k int) bool { return d[i].at.Before(d[k].at) }
func (d dues) Swap(i, k int)      { d[i], d[k] = d[k], d[i] }
func (d *dues) Push(x any)        { *d = append(*d, x.(due)) }
func (d *dues) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// Cycle schedules and preempts jobs. Time does not go back from one cycle to the next.
func (s *Scheduler) Cycle(now time.Time) (Changes, error) {
	if now.Before(s.config.Now) {
		return Changes{}, fmt.Errorf("the cycle of %v comes after that of %v", now, s.config.Now)
	}
	s.settle()
	s.config.Now = now
	if s.nodes != nil {
		if err := s.rebuild(s.nodes); err != nil {
			return Changes{}, err
		}
	}
	c := s.c
	c.now = now
	var out Changes
	out.FitsNoNode = s.prepare()
	if !s.changed && s.calm {
		return out, nil // see calmCycle
	}
	s.changed = false
	c.version++
	if s.calm = s.calmCycle(); !s.calm {
		s.outlook.era++
		s.full()
		s.collect(&out)
	}
	for _, j := range s.last.started {
		out.Scheduled = append(out.Scheduled, c.jobs[j].ID)
		s.changed = s.changed || c.likeArmada || !c.jobs[j].preemptible
	}
	for _, j := range s.last.preempted {
		out.Preempted = append(out.Preempted, c.jobs[j].ID)
	}
	slices.Sort(out.Scheduled)
	slices.Sort(out.Preempted)
	slices.Sort(out.Failed)
	out.FitsNoNode = slices.DeleteFunc(out.FitsNoNode, func(id string) bool { return slices.Contains(out.Failed, id) })
	return out, nil
}

// prepare makes gangs of all jobs, and finds out which of them may be selected. It returns those that became so and fit no node.
func (s *Scheduler) prepare() (fitsNoNode []string) {
	c := s.c
	s.mendAll()
	for len(s.due) > 0 && !s.due[0].at.After(c.now) {
		d := heap.Pop(&s.due).(due)
		if j, ok := s.byID[d.job]; ok && c.jobs[j].start == none && c.jobs[j].RetryAfter.Equal(d.at) {
			s.unchecked, s.changed = append(s.unchecked, c.gangs[c.jobs[j].gang].members...), true
			if name := (bunchName{c.jobs[j].queue, c.jobs[j].Gang.ID}); c.likeArmada && name.id != "" { // it may join those that run
				s.breakUp(name, s.bunches[name])
			}
		}
	}
	s.mendAll()
	for _, j := range s.unchecked {
		job := &c.jobs[j]
		if job.Job == nil || job.start != none {
			continue
		}
		g := &c.gangs[job.gang]
		g.blocked = c.blocked(g)
		s.outlook.stale(job.queue)
		if c.reason(j) == FitsNoNode {
			fitsNoNode = append(fitsNoNode, job.ID)
		}
	}
	s.unchecked = s.unchecked[:0]
	slices.Sort(fitsNoNode)
	return slices.Compact(fitsNoNode)
}

// full computes a cycle as Schedule does.
func (s *Scheduler) full() {
	c := s.c
	for q := range c.queues {
		c.queues[q].next = 0
		c.rank.stale(int32(q))
	}
	c.rank.toPlace = none
	c.evict()
	c.schedule()
}

// collect finds what a cycle that was not calm has changed.
func (s *Scheduler) collect(out *Changes) {
	c := s.c
	c.each(func(g *gang) {
		for _, j := range g.members {
			switch job := &c.jobs[j]; {
			case job.state == placed && job.start == none:
				s.last.started = append(s.last.started, j)
			case job.state != placed && job.start != none:
				s.last.preempted = append(s.last.preempted, j)
			case job.state != placed && g.have > 0:
				out.Failed = append(out.Failed, job.ID)
			}
		}
	})
}

// Node is the node of a job that runs; empty if it does not.
func (s *Scheduler) Node(id string) string {
	j, ok := s.byID[id]
	if !ok || s.c.jobs[j].state != placed {
		return ""
	}
	if n := s.c.jobs[j].node; n != gone {
		return s.c.nodes[n].Name
	}
	return s.nodeOf[id]
}

// Reason is why a job remains queued after the last cycle, if there was no change since; UnknownReason if it does not.
func (s *Scheduler) Reason(id string) Reason {
	if j, ok := s.byID[id]; ok && s.remains(j) {
		return s.c.reason(j)
	}
	return UnknownReason
}

// remains says whether a job remains queued.
func (s *Scheduler) remains(j int32) bool {
	job := &s.c.jobs[j]
	return job.start == none && job.state != placed && s.c.gangs[job.gang].have == 0
}

// NoRoom are the jobs of a queue that remain queued for this reason, in order, until the function returns false.
func (s *Scheduler) NoRoom(queue string) func(yield func(id string) bool) {
	return func(yield func(id string) bool) {
		q, ok := s.queueOf[queue]
		if !ok {
			return
		}
		for _, g := range s.c.queues[q].gangs {
			if s.c.gangs[g].blocked != UnknownReason || s.c.gangs[g].running && !s.c.gangs[g].joined {
				continue
			}
			for _, j := range s.c.gangs[g].members {
				if s.remains(j) && s.c.reason(j) == NoRoom && !yield(s.c.jobs[j].ID) {
					return
				}
			}
		}
	}
}

// Shares are those of the active queues after the last cycle, sorted by queue. They are valid until the next call.
func (s *Scheduler) Shares() []Share {
	s.shares = s.c.shares(s.shares[:0])
	return s.shares
}

// Result is the whole result of the last cycle, if there was no change since. It takes time for all jobs.
func (s *Scheduler) Result() Result {
	c := s.c
	before := maps.Clone(s.nodeOf)
	if before == nil {
		before = map[string]string{}
	}
	c.each(func(g *gang) {
		for _, j := range g.members {
			if n := c.jobs[j].start; n >= 0 {
				before[c.jobs[j].ID] = c.nodes[n].Name
			}
		}
	})
	return c.result(before)
}
