package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// Given is a job that is not drawn but known: from a recorded history, or from a trace. Times are
// since the beginning of the simulation.
type Given struct {
	ID string
	// Where is where it was read, such as FILE:LINE, for messages.
	Where string
	// Queue is its queue; "": a submission draws one of all.
	Queue         string
	PriorityClass string
	Priority      int64
	Request       map[string]string
	Submitted     time.Duration
	// Cancelled is when it is cancelled, if it is not over by then; 0: never.
	Cancelled time.Duration
	// Gang is the id of its gang, unique in the queue; "": none.
	Gang        string
	Cardinality int
	Uniformity  string
	// Group is the name of its group, unique in the queue; "": none.
	Group string
	// Annotations are those that decisions depend on, except for the gang's.
	Annotations    map[string]string
	GraceSeconds   int64
	InitContainers []string
	// Runs says how its first runs end. A run that is not among them lasts as long as RunTime says, unless a failure comes first.
	// A run that ends before, because it is preempted or its node is gone, does not count: the next one ends in its place.
	Runs     []GivenRun
	RunTime  RunTime
	Failures []Failure
}

// GivenRun is how a run ends. If it neither succeeded nor has an error, the model says what comes after After.
type GivenRun struct {
	After     time.Duration // its start
	Succeeded bool
	Cause     string    // of a failure; the name in the output
	Error     *pb.Error // of a failure, as reported
	// Preempted: a scheduler preempted it, which is for the simulated scheduler to repeat. After is how long it ran until then.
	Preempted bool
}

// Cancelled is the cause of runs that end because their job is cancelled.
const Cancelled = "Cancelled"

// Annotations returns what a given job's decisions depend on, of the annotations of its submission. Names of
// gangs and groups get the name of their job set, since all jobs of a simulation are in one.
func Annotations(s *events.Submit, jobSet string) map[string]string {
	all := map[string]string{
		events.AnnotationRetryPolicies: s.RetryPolicies, events.AnnotationFailFast: s.FailFast, events.AnnotationGroupPolicy: s.GroupPolicy,
		events.AnnotationPart: s.Part, events.AnnotationReplica: s.Replica, events.AnnotationIndex: s.Index,
	}
	if s.Group != "" {
		all[events.AnnotationGroup] = jobSet + "/" + s.Group
	}
	maps.DeleteFunc(all, func(_, v string) bool { return v == "" })
	return all
}

// queuesOf returns the queues that given jobs name.
func (w *Workload) queuesOf() (out []Queue) {
	names := map[string]bool{}
	for i := range w.Given {
		if name := w.Given[i].Queue; name != "" && !names[name] {
			names[name] = true
			out = append(out, Queue{Name: name})
		}
	}
	slices.SortFunc(out, func(a, b Queue) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// For returns the cluster with the queues of the workload's given jobs, if it names none.
func (c *Cluster) For(w *Workload) *Cluster {
	own := *c
	if len(own.Queues) == 0 {
		own.Queues = w.queuesOf()
	}
	return &own
}

func (g *Given) gang() scheduling.Gang {
	if g.Gang == "" {
		return scheduling.Gang{}
	}
	return scheduling.Gang{ID: g.Gang, Cardinality: g.Cardinality, NodeUniformityLabel: g.Uniformity}
}

// checkGiven reports what is wrong with given jobs.
func (w *Workload) checkGiven(c *Cluster) error {
	if w.GiveUp < 0 || w.GiveUp > maxGiveUp {
		return fmt.Errorf("giveUp: %v: want up to %v", w.GiveUp, maxGiveUp)
	}
	ids, gangs := map[string]bool{}, map[[2]string][]*Given{}
	last := time.Duration(0)
	for i := range w.Given {
		g := &w.Given[i]
		problem := g.check(c)
		switch {
		case problem != nil:
		case ids[g.ID]:
			problem = errors.New("there are two jobs of this name")
		case g.Submitted < last:
			problem = fmt.Errorf("it is submitted %v before the job above it: times must not go backwards", last-g.Submitted)
		}
		if of := gangs[[2]string{g.Queue, g.Gang}]; problem == nil && g.Gang != "" {
			if len(of) > 0 && (of[0].Cardinality != g.Cardinality || of[0].Uniformity != g.Uniformity || of[0].PriorityClass != g.PriorityClass) {
				problem = fmt.Errorf("it and job %s are of one gang, and differ in its cardinality, its node uniformity label or their priority class", of[0].ID)
			} else if len(of) >= g.Cardinality {
				problem = fmt.Errorf("its gang has more than %d jobs, its cardinality", g.Cardinality)
			}
			gangs[[2]string{g.Queue, g.Gang}] = append(of, g)
		}
		if problem != nil {
			return g.wrong(problem)
		}
		ids[g.ID], last = true, g.Submitted
	}
	return nil
}

func (g *Given) wrong(problem error) error {
	if g.Where == "" {
		return fmt.Errorf("job %q: %w", g.ID, problem)
	}
	return fmt.Errorf("%s: job %q: %w", g.Where, g.ID, problem)
}

func (g *Given) check(c *Cluster) error {
	switch {
	case g.ID == "":
		return errors.New("no name")
	case g.Submitted < 0 || g.Submitted > maxGiveUp || g.Cancelled < 0 || g.Cancelled > maxGiveUp:
		return fmt.Errorf("it is submitted or cancelled outside of the %d hours that a simulation may take", maxHours)
	case g.Gang != "" && (g.Cardinality < 2 || g.Cardinality > 50_000):
		return fmt.Errorf("a gang of %d jobs: want 2 to 50000", g.Cardinality)
	case g.RunTime.P50 <= 0 || g.RunTime.P50 > maxGiveUp || g.RunTime.P95 > maxGiveUp || g.RunTime.P95 != 0 && g.RunTime.P95 < g.RunTime.P50:
		return fmt.Errorf("run time: p50 %v, p95 %v: want durations above 0 and up to %v", g.RunTime.P50, g.RunTime.P95, maxGiveUp)
	case g.Queue != "" && !slices.ContainsFunc(c.Queues, func(q Queue) bool { return q.Name == g.Queue }):
		return fmt.Errorf("the cluster has no queue %q", g.Queue)
	case g.PriorityClass != "" && !slices.ContainsFunc(c.PriorityClasses, func(p PriorityClass) bool { return p.Name == g.PriorityClass }):
		return fmt.Errorf("the cluster has no priority class %q", g.PriorityClass)
	}
	for i := range g.Runs {
		if r := &g.Runs[i]; r.After < 0 || r.After > maxGiveUp {
			return fmt.Errorf("run %d ends after %v: want a duration from 0 to %v", i+1, r.After, maxGiveUp)
		}
	}
	for i := range g.Failures {
		if err := g.Failures[i].check(); err != nil {
			return fmt.Errorf("failures[%d] %s: %w", i, g.Failures[i].Cause, err)
		}
	}
	if _, err := c.amounts(g.Request); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	return nil
}

// Fitting splits the given jobs into those that have room on the empty cluster, and the ids of the others with why. A gang
// of which not all jobs are given is not looked at.
func (w *Workload) Fitting(c *Cluster) (*Workload, []string, error) {
	nodes, err := c.nodes()
	if err != nil {
		return nil, nil, err
	}
	all := make([]scheduling.Node, len(nodes))
	for i := range nodes {
		all[i] = nodes[i].Node
	}
	s := sim{o: Options{Cluster: c}}
	own := *w
	own.Given = nil
	var left []string
	err = w.eachUnfit(c, s.config(), all, func(g *Given, problem error) error {
		if problem == nil {
			own.Given = append(own.Given, *g)
		} else {
			left = append(left, g.ID)
		}
		return nil
	})
	return &own, left, err
}

func (w *Workload) fitsGiven(c *Cluster, config scheduling.Config, nodes []scheduling.Node) error {
	return w.eachUnfit(c, config, nodes, func(g *Given, problem error) error {
		if problem != nil {
			return g.wrong(problem)
		}
		return nil
	})
}

// eachUnfit calls visit with each job, and why it has no room on the empty cluster. It asks the scheduler
// once for each shape of a job or gang.
func (w *Workload) eachUnfit(c *Cluster, config scheduling.Config, nodes []scheduling.Node, visit func(*Given, error) error) error {
	gangs := map[[2]string][]*Given{}
	for i := range w.Given {
		if g := &w.Given[i]; g.Gang != "" {
			key := [2]string{g.Queue, g.Gang}
			gangs[key] = append(gangs[key], g)
		}
	}
	known := map[string]bool{}
	for i := range w.Given {
		g := &w.Given[i]
		jobs, problem := []*Given{g}, errors.New("it fits no node, even an empty one")
		if g.Gang != "" {
			jobs, problem = gangs[[2]string{g.Queue, g.Gang}], fmt.Errorf("its gang of %d jobs finds no room even on the empty cluster", g.Cardinality)
			if len(jobs) < g.Cardinality {
				jobs = nil
			}
		}
		q := scheduling.Queue{Name: "any", PriorityFactor: 1000}
		var shape strings.Builder
		for n, of := range jobs {
			request, err := c.amounts(of.Request)
			if err != nil {
				return of.wrong(err)
			}
			q.Jobs = append(q.Jobs, scheduling.Job{ID: fmt.Sprint(n), PriorityClass: of.PriorityClass, Request: request, Gang: of.gang()})
			fmt.Fprint(&shape, request, of.Uniformity, ";")
		}
		room, asked := known[shape.String()]
		if !asked {
			r, err := scheduling.Schedule(config, []scheduling.Queue{q}, nodes, nil)
			if err != nil {
				return g.wrong(err)
			}
			room = len(r.Scheduled) == len(jobs)
			known[shape.String()] = room
		}
		if room {
			problem = nil
		}
		if err := visit(g, problem); err != nil {
			return err
		}
	}
	return nil
}

// replay submits given jobs, in the order in which they stand.
type replay struct {
	c      *Cluster
	given  []Given
	seed   uint64
	at     int
	queues map[string]int
	gangs  map[[2]string]*gang
	groups map[[2]string]*group
	dice   dice
}

// group is the known members of a group.
type group struct {
	members []*job
	over    bool
}

func newReplay(w *Workload, c *Cluster, seed uint64) *replay {
	r := &replay{c: c, given: w.Given, seed: seed, queues: map[string]int{}, gangs: map[[2]string]*gang{}, groups: map[[2]string]*group{}}
	for i, q := range c.Queues {
		r.queues[q.Name] = i
	}
	return r
}

// next returns the jobs that are submitted together next, all of one queue.
func (r *replay) next() (jobs []*job, err error) {
	for r.at < len(r.given) {
		j, err := r.job(r.at)
		if err != nil {
			return nil, err
		}
		if len(jobs) > 0 && (jobs[0].queue != j.queue || jobs[0].submitted != j.submitted) {
			return jobs, nil
		}
		r.at++
		jobs = append(jobs, j)
		queue := r.c.Queues[j.queue].Name
		if g := j.given; g.Gang != "" {
			key := [2]string{queue, g.Gang}
			if r.gangs[key] == nil {
				r.gangs[key] = &gang{id: g.Gang, missing: g.Cardinality}
			}
			j.gang = r.gangs[key]
			j.gang.members = append(j.gang.members, j)
			j.gang.missing--
		}
		if g := j.given; g.Group != "" {
			key := [2]string{queue, g.Group}
			if r.groups[key] == nil {
				r.groups[key] = &group{}
			}
			j.group = r.groups[key]
			j.group.members = append(j.group.members, j)
		}
	}
	return jobs, nil
}

func (r *replay) job(i int) (*job, error) {
	g := &r.given[i]
	request, err := r.c.amounts(g.Request)
	if err != nil {
		return nil, err
	}
	k := &Kind{
		Name: g.ID, Queue: g.Queue, PriorityClass: g.PriorityClass, Priority: g.Priority, JobsAtOnce: max(1, g.Cardinality), Gang: g.Gang != "",
		Uniformity: g.Uniformity, Request: g.Request, RunTime: g.RunTime, Failures: g.Failures,
	}
	random := r.dice.about(r.seed, ofJob, uint64(i), 0)
	j := &job{index: i, id: g.ID, given: g, kind: &kind{k, request}, submitted: g.Submitted, since: g.Submitted, length: g.RunTime.draw(random)}
	for i := range g.Failures {
		j.broken = append(j.broken, random.Float64() < g.Failures[i].PerJob)
	}
	if j.queue = r.queues[g.Queue]; g.Queue == "" {
		j.queue = random.IntN(len(r.c.Queues))
	}
	return j, nil
}

// givenRun returns how the last run ends, if that is given; else the zero value.
func (j *job) givenRun() (r GivenRun) {
	if n := j.runs - j.interrupted; j.given != nil && n <= len(j.given.Runs) {
		r = j.given.Runs[n-1]
	}
	return r
}

// interrupt notes that the last run ends before what is given for it, unless a preemption is what is given.
func (j *job) interrupt(preempted bool) {
	r := j.givenRun()
	if !preempted || !r.Preempted && r.Error.GetJobRunPreemptedError() == nil {
		j.interrupted++
	}
}

// runEnds says when and how the run that starts now ends; no failure: it succeeds.
func (s *sim) runEnds(j *job) (after time.Duration, failure *Failure) {
	r := j.givenRun()
	switch {
	case r.Succeeded:
		return max(r.After, time.Millisecond), nil
	case r.Error != nil:
		return max(r.After, time.Millisecond), &Failure{Cause: r.Cause, as: r.Error}
	}
	after, failure = s.dice.outcome(s.o.Seed, j, s.o.Cluster.Faults, s.now)
	return r.After + after, failure
}

// cancel cancels a job that is not over.
func (s *sim) cancel(j *job) {
	switch j.state {
	case done, lost, undecided:
		return
	case running:
		s.stop(j, lost)
		s.count.wasted(j, Cancelled)
	case waiting, held:
	}
	s.touch(j)
	j.state, j.cancelled, j.ended = lost, true, s.now
	s.about(j.queue).cancelled(j)
	s.deliver()
	s.settle(j)
}

// finish counts the jobs that are over, although their group is not: no further event can restart them.
func (s *sim) finish() {
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		if j := s.jobs[id]; j.group != nil && (j.state == done || j.state == lost) {
			s.count.over(j)
			delete(s.jobs, id)
		}
	}
}

// groupOf returns a group by its queue and name; nil: it is not known.
func (s *sim) groupOf(queue, name string) *group {
	if r, ok := s.generate.(*replay); ok {
		return r.groups[[2]string{queue, name}]
	}
	return nil
}
