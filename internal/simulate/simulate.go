package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// Semantics is the version that decides: that with which a new log begins.
const Semantics = evaluator.SemanticsVersion

// begin is when every simulation begins.
func begin() time.Time { return time.Unix(1_767_225_600, 0).UTC() } // 2026

// Candidate is a policy set with a name.
type Candidate struct {
	Name string
	Set  *policyfile.Set
}

// Options say what to simulate.
type Options struct {
	Candidate Candidate
	Cluster   *Cluster
	Workload  *Workload
	Seed      uint64
	// Within is how long after its submission a job counts as done in time; 0: a quarter of Workload.GiveUp.
	Within time.Duration
	// Observe, if set, is called with each message and what Step made of it. Both are valid until it returns, their texts and bytes for good.
	Observe func(m *eventlog.Message, out *evaluator.Output)
}

// WithQueues returns the cluster with queues: those to which candidates bind policies, if it names none; at least one.
func (c *Cluster) WithQueues(candidates ...Candidate) *Cluster {
	if len(c.Queues) > 0 {
		return c
	}
	names := map[string]bool{}
	own := *c
	for _, candidate := range candidates {
		for _, b := range candidate.Set.Bindings() {
			if !names[b.Queue] {
				names[b.Queue] = true
				own.Queues = append(own.Queues, Queue{Name: b.Queue})
			}
		}
	}
	if len(own.Queues) == 0 {
		own.Queues = []Queue{{Name: "default"}}
	}
	slices.SortFunc(own.Queues, func(a, b Queue) int { return cmp.Compare(a.Name, b.Name) })
	return &own
}

// Check reports what is wrong with a cluster that has its queues, and a workload for it.
func Check(c *Cluster, w *Workload) error {
	nodes, err := c.nodes()
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if err := c.check(nodes); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	s := sim{o: Options{Cluster: c, Workload: w}, nodes: nodes}
	config, queues, all := s.config(), s.queues(), make([]scheduling.Node, len(nodes))
	for i := range nodes {
		all[i] = nodes[i].Node
	}
	if _, err := scheduling.Schedule(config, queues, all, nil); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if err := w.check(c); err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	if err := w.fits(c, config, all); err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	return nil
}

// sim is one simulation.
type sim struct {
	o        Options
	p        *evaluator.Processor
	store    *projection.Memory // of p
	position int64
	seq      sequence // what happens now
	message  eventlog.Message
	generate source
	dice     dice // of runs
	nodes    []placed
	up       []scheduling.Node // those that are not down now
	byName   map[string]*placed

	now     time.Duration
	due     dueHeap
	number  uint64 // of what is due, in the order in which it was added
	cycleAt time.Duration
	lastAt  time.Duration   // of the last submission
	jobs    map[string]*job // not over, or of a gang that is not over
	byQueue [][]*job        // see noJobs
	listed  int             // counts how many times a job entered its queue, for job.place
	ready   int             // jobs with job.ready
	later   []*job          // with job.later
	arrives []*job          // the next submission
	ended   []*job          // by the records of the current message
	count   *counter
	guard   guard
	err     error

	scheduler *scheduling.Scheduler
	touched   []*job // since the scheduler was informed
}

const never = time.Duration(math.MaxInt64)

// Run simulates. The options must have passed Check.
func Run(ctx context.Context, o Options) (*Result, error) {
	nodes, err := o.Cluster.nodes()
	if err != nil {
		return nil, err
	}
	store := projection.NewMemory()
	state, err := projection.NewState(store, projection.NoWatermark, o.Candidate.Set.Horizon().Nanoseconds())
	if err != nil {
		return nil, err
	}
	generate, err := newSource(o.Workload, o.Cluster, o.Seed)
	if err != nil {
		return nil, err
	}
	s := &sim{
		o: o, p: &evaluator.Processor{State: state, RecordsOnly: true}, store: store, generate: generate, nodes: nodes, byName: map[string]*placed{}, cycleAt: never,
		jobs: map[string]*job{}, byQueue: make([][]*job, len(o.Cluster.Queues)), count: newCounter(o.Cluster, o.Workload, cmp.Or(o.Within, o.Workload.GiveUp/4)),
	}
	for i := range s.nodes {
		s.byName[s.nodes[i].Name] = &s.nodes[i]
	}
	s.p.Rules = evaluator.Rules{Generation: 1, Set: o.Candidate.Set.Set}
	s.p.Activate([]chain.Record{
		&chain.SemanticsActivated{Version: Semantics},
		evaluator.Activation(1, o.Candidate.Set.Set, Semantics),
	})
	for i := range o.Cluster.Faults {
		if f := &o.Cluster.Faults[i]; f.Down {
			s.add(due{at: f.At, what: faultBegins, of: int32(i)})
			s.add(due{at: f.At + f.For, what: faultEnds})
		}
	}
	s.findNodesUp()
	if s.scheduler, err = scheduling.NewScheduler(s.config(), s.queues(), s.up); err != nil {
		return nil, err
	}
	s.arrival()
	for n := 0; s.err == nil && len(s.due) > 0; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d := s.due.pop()
		if s.over(d.at) {
			break
		}
		s.now = d.at
		s.happens(&d)
	}
	if s.err != nil {
		return nil, s.err
	}
	s.finish()
	return s.count.result(s), nil
}

// over says whether the simulation ends before a time: everything is over, or has had its time.
func (s *sim) over(at time.Duration) bool {
	return s.arrives == nil && (len(s.jobs) == 0 || at > s.lastAt+s.o.Workload.GiveUp)
}

func (s *sim) add(d due) {
	s.number++
	d.number = s.number
	s.due.push(d)
}

func (s *sim) arrival() {
	var err error
	if s.arrives, err = s.generate.next(); err != nil {
		s.err = cmp.Or(s.err, err)
	}
	if s.arrives != nil {
		s.lastAt = s.arrives[0].submitted
		s.add(due{at: s.lastAt, what: arrive})
	} else {
		s.count.window.lastSubmission(s.lastAt)
	}
}

// wake has a scheduling cycle run at a time, or at the first one after it.
func (s *sim) wake(at time.Duration) {
	interval := s.o.Cluster.SchedulingInterval
	at = (max(at, s.now) + interval - 1) / interval * interval
	if at < s.cycleAt {
		s.cycleAt = at
		s.add(due{at: at, what: cycle})
	}
}

func (s *sim) happens(d *due) {
	switch d.what {
	case arrive:
		s.submit(s.arrives)
		s.arrival()
		s.wake(s.now)
	case ends:
		if d.job.state == running && d.job.runs == int(d.of) {
			s.end(d.job, d.job.fails)
			s.wake(s.now)
		}
	case cancels:
		s.cancel(d.job)
		s.wake(s.now)
	case faultBegins:
		s.down(&s.o.Cluster.Faults[d.of])
		s.findNodesUp()
		s.wake(s.now)
	case faultEnds:
		s.findNodesUp()
		s.wake(s.now)
	case guards:
		s.judge()
	case cycle:
		if d.at == s.cycleAt {
			s.cycleAt = never
			s.schedule()
		}
	}
}

// down fails the runs on the nodes of a fault.
func (s *sim) down(f *Fault) {
	byQueue := s.noJobs()
	for _, j := range slices.SortedFunc(maps.Values(s.jobs), func(a, b *job) int { return cmp.Compare(a.place, b.place) }) {
		if j.state == running && f.hits(j.node) {
			j.interrupt(false)
			byQueue[j.queue] = append(byQueue[j.queue], j)
		}
	}
	for q, jobs := range byQueue {
		s.fail(q, &f.Failure, jobs...)
	}
}

func (s *sim) end(j *job, f *Failure) {
	if f != nil {
		s.fail(j.queue, f, j)
		return
	}
	s.stop(j, done)
	s.notice(j, nil)
	s.count.succeeded(j)
	s.about(j.queue).succeeded(j)
	s.deliver()
	s.settle(j)
}

// stop ends a run.
func (s *sim) stop(j *job, to state) {
	s.touch(j)
	j.state, j.ended, j.since, j.spent = to, s.now, s.now, s.now-j.started
	s.count.ran(j)
}

// list puts a job into its queue, behind those that are there.
func (s *sim) list(j *job) {
	s.listed++
	j.listed, j.place = true, s.listed
}

// schedule runs a scheduling cycle. If no job could be placed it would change nothing, since everything that runs fits where it runs.
func (s *sim) schedule() {
	for _, j := range s.touched {
		j.listed = j.state == waiting || j.state == held || j.state == running
		if s.review(j); j.state == waiting && j.retryAfter > s.now && !j.later {
			j.later = true
			s.later = append(s.later, j)
		}
	}
	next := never
	s.later = slices.DeleteFunc(s.later, func(j *job) bool {
		s.review(j)
		if j.later = j.state == waiting && j.retryAfter > s.now; j.later {
			next = min(next, j.retryAfter)
		}
		return !j.later
	})
	if s.ready == 0 {
		s.count.until(s.now)
	} else if s.place() {
		next = s.now + 1 // what follows from the new state
	}
	s.count.samples.sample(s.now)
	if next < never && s.err == nil {
		s.wake(next)
	}
}

// place asks the scheduler, and reports whether anything has changed.
func (s *sim) place() bool {
	err := s.inform()
	var r scheduling.Changes
	if err == nil {
		r, err = s.scheduler.Cycle(begin().Add(s.now))
	}
	if err == nil && len(r.Failed) > 0 {
		err = errors.New("a gang was placed in part, although all of it is required")
	}
	if err != nil {
		s.err = fmt.Errorf("schedule at %v: %w", s.now, err)
		return false
	}
	for _, id := range r.FitsNoNode {
		s.jobs[id].fitsNoNode = true
		s.review(s.jobs[id])
	}
	s.count.cycle(s.now, &r, s.scheduler, s.jobs)
	s.preempt(r.Preempted)
	s.start(&r)
	return len(r.Preempted)+len(r.Scheduled) > 0
}

// review finds out whether a job could be placed now. It is called after what that depends on has changed.
func (s *sim) review(j *job) {
	if ready := j.state == waiting && j.retryAfter <= s.now && !j.fitsNoNode; ready != j.ready {
		j.ready = ready
		if ready {
			s.ready++
		} else {
			s.ready--
		}
	}
}

// touch says that a job changes, which the scheduler gets to know before the next cycle.
func (s *sim) touch(j *job) {
	if !j.touched {
		j.touched = true
		s.touched = append(s.touched, j)
	}
}

// inform tells the scheduler what has changed. It knows itself which jobs it has started.
func (s *sim) inform() error {
	for _, j := range s.touched {
		j.touched = false
		switch j.state {
		case running:
		case waiting, held:
			if err := s.scheduler.Queue(s.o.Cluster.Queues[j.queue].Name, j.request(j.state == held)); err != nil {
				return err
			}
		case undecided, done, lost:
			s.scheduler.Remove(j.id)
		}
	}
	s.touched = s.touched[:0]
	return nil
}

// request is the job as the scheduler sees it.
func (j *job) request(held bool) scheduling.Job {
	one := scheduling.Job{
		ID: j.id, PriorityClass: j.kind.PriorityClass, Priority: j.kind.Priority, Submitted: begin().Add(j.submitted), Request: j.kind.request,
		RetryAfter: begin().Add(j.retryAfter), AvoidedNodes: j.avoided, Held: held,
	}
	if j.gang != nil {
		one.Gang = j.kind.gang(j.gang.id)
	}
	return one
}

func (s *sim) config() scheduling.Config {
	c := s.o.Cluster
	config := scheduling.Config{Now: begin().Add(s.now), Resources: c.Resources, DefaultPriorityClass: c.DefaultPriorityClass, LikeArmada: true}
	for _, p := range c.PriorityClasses {
		config.PriorityClasses = append(config.PriorityClasses, scheduling.PriorityClass{Name: p.Name, Priority: p.Priority, IsFairSharePreemptible: p.Preemptible})
	}
	return config
}

// queues returns the queues without jobs.
func (s *sim) queues() (out []scheduling.Queue) {
	for _, q := range s.o.Cluster.Queues {
		out = append(out, scheduling.Queue{Name: q.Name, PriorityFactor: int64(math.Round(1000 * cmp.Or(q.PriorityFactor, 1)))})
	}
	return out
}

// findNodesUp finds the nodes that are not down.
func (s *sim) findNodesUp() {
	for _, j := range s.jobs { //house:sorted each by itself
		j.fitsNoNode = false
		s.review(j)
	}
	var down []*Fault
	for i := range s.o.Cluster.Faults {
		if f := &s.o.Cluster.Faults[i]; f.Down && f.active(s.now) {
			down = append(down, f)
		}
	}
	s.up = nil
	for i := range s.nodes {
		n := &s.nodes[i]
		if !slices.ContainsFunc(down, func(f *Fault) bool { return f.hits(n) }) {
			s.up = append(s.up, n.Node)
		}
	}
	s.count.samples.nodes(s.up)
	if s.scheduler != nil && s.err == nil {
		s.err = s.scheduler.SetNodes(s.up)
	}
}

// noJobs returns an empty list for each queue, valid until it is called again.
func (s *sim) noJobs() [][]*job {
	for q := range s.byQueue {
		clear(s.byQueue[q])
		s.byQueue[q] = s.byQueue[q][:0]
	}
	return s.byQueue
}

// preempt ends the runs of jobs that lost their nodes.
func (s *sim) preempt(ids []string) {
	byQueue := s.noJobs()
	for _, id := range ids {
		j := s.jobs[id]
		j.interrupt(true)
		byQueue[j.queue] = append(byQueue[j.queue], j)
	}
	for q, jobs := range byQueue {
		if len(jobs) > 0 {
			s.fail(q, nil, jobs...)
		}
	}
}

// start starts the jobs that got a node.
func (s *sim) start(r *scheduling.Changes) {
	byQueue := s.noJobs()
	for _, id := range r.Scheduled {
		if j := s.jobs[id]; j.state == waiting {
			byQueue[j.queue] = append(byQueue[j.queue], j)
		}
	}
	for q, jobs := range byQueue {
		if len(jobs) == 0 {
			continue
		}
		w := s.about(q)
		for _, j := range jobs {
			j.state, j.node, j.started = running, s.byName[s.scheduler.Node(j.id)], s.now
			s.review(j)
			if j.runs == 0 {
				j.first = s.now
			}
			j.runs++
			j.run = j.id + "-" + strconv.Itoa(j.runs)
			j.waited += s.now - j.since
			if j.released {
				j.released, s.guard.releases = false, append(s.guard.releases, s.now)
			}
			var after time.Duration
			after, j.fails = s.runEnds(j)
			j.pending = j.fails != nil && j.fails.Pending
			s.add(due{at: s.now + after, what: ends, job: j, of: int32(j.runs)})
			s.count.started(j)
			s.noticeStart(j)
			w.leased(j)
		}
		s.deliver()
	}
}
