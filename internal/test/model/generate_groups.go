package model

import (
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// GroupOptions changes what GenerateGroups makes.
type GroupOptions struct {
	Steady bool // version 3 from the start, one policy set, and no queue is in shadow, killed or paused
	Drain  bool // at the end the cluster is calm, until every group ended and its members are over
	Large  bool // every history has a unit of 64

	// Clean: what happens is odd, but every event is one that Armada writes, and no job is republished.
	Clean bool

	// Newest is the newest version of the semantics that is activated; 0: newestOfGroups.
	Newest int

	// Budgets: there are retry budgets.
	Budgets bool

	// Policies is the history's policy set; nil: a random one.
	Policies *Policies
}

// newestOfGroups is the newest version of histories of groups that ask for no other.
const newestOfGroups = GroupsVersion

// GenerateGroups makes a history of groups from a seed: jobs of groups, of gangs and of
// none, on a cluster that reads the model's records and acts on them, mostly. The
// same seed and options give the same history, byte for byte.
func GenerateGroups(seed uint64, o GroupOptions) History {
	g := &groupGenerator{
		generator: &generator{Rand: rand.New(rand.NewPCG(seed, 0x6709)), later: laterFields(seed), calm: true},
		options:   o,
		byID:      map[string]*clusterJob{},
	}
	if o.Newest == 0 {
		g.options.Newest = newestOfGroups
	}
	h := History{Seed: seed, split: g.chance(0.5)}
	if o.Budgets {
		g.spending = newBudgetGenerator(seed)
		h.Divided = g.spending.IntN(4)
	}
	g.now = base + g.Int64N(int64(time.Hour))
	if o.Policies != nil {
		g.use(*o.Policies)
	} else {
		g.use(g.groupPolicySet())
	}
	h.Policies = g.policies
	g.position = Message{Ledger: 1 + g.Int64N(100), Batch: -1}
	g.eager = g.chance(0.7)
	g.plan()
	g.m = New(g.policies)
	g.m.divided = h.Divided

	g.left = 15 + g.IntN(60)
	h.Versions = g.versions(g.left)
	changing := 2.5 / float64(g.left)
	for ; g.left > 0; g.left-- {
		for _, v := range h.Versions {
			if v.Before == len(g.messages) {
				g.m.UseVersion(v.Number)
			}
		}
		if !o.Steady && len(h.Changes) < 6 && g.chance(changing) {
			g.use(g.changedGroups(g.policies))
			h.Changes = append(h.Changes, Change{Before: len(g.messages), Policies: g.policies})
			g.m.Use(g.policies)
		}
		g.resubmit()
		g.groupMessage()
	}
	if o.Drain {
		g.drain(&h)
	}
	h.Messages = g.messages
	return h
}

// versions says which version is activated when: mostly one with groups from the start, sometimes later, and
// one after the other.
func (g *groupGenerator) versions(n int) []Version {
	newest := g.options.Newest
	if g.options.Steady || g.chance(0.6) {
		return []Version{{Before: 0, Number: newest}}
	}
	var all []Version
	at := 0
	for number := 2; number <= newest; number++ {
		if number < newest && g.chance(0.5) { // skipped: before the first one it is version 1
			continue
		}
		if number > 2 && g.chance(0.7) {
			at += g.IntN(n - at)
		}
		all = append(all, Version{Before: at, Number: number})
	}
	return all
}

// groupGenerator is the state of one generation.
type groupGenerator struct {
	*generator
	options  GroupOptions
	spending *budgetGenerator // nil: there are no budgets
	m        *Model
	byID     map[string]*clusterJob
	unsent   []*clusterJob // not submitted yet, in this order
	cluster  []*clusterJob // submitted
	batches  []*batch
	eager    bool // all is submitted before much happens
	left     int  // messages to come
	draining bool
	patience int64 // when draining: from then on all runs succeed
}

// plannedGroup says where the jobs of a group go.
type plannedGroup struct {
	queue, set, name, policy string
}

// clusterJob is a job as the cluster sees it.
type clusterJob struct {
	*plannedJob
	submit *pb.Event
	gang   string

	run        string // not ended yet; "": none
	running    bool
	old        []string // runs that were told to stop, and others that may report again
	over       bool
	held       bool
	stopped    bool
	retryAfter int64
}

func (g *groupGenerator) use(p Policies) {
	if g.spending != nil {
		p.Budgets = g.spending.budgets(g.policies.Budgets)
	}
	g.policies = p
	g.horizon = p.horizonMs() * int64(time.Millisecond)
}

// groupMessage appends one message, and lets the cluster see what came of it.
func (g *groupGenerator) groupMessage() {
	g.elapseGroups()
	g.next()
	if len(g.messages) > 0 && g.chance(0.03) && !g.draining {
		again := g.messages[len(g.messages)-1-g.IntN(min(6, len(g.messages)))]
		g.emitGroups(again.Payload, g.now)
		return
	}
	lead := g.someone()
	seq := &pb.EventSequence{Queue: lead.queue, JobSetName: lead.set}
	// Enough at once that a history of groups gets somewhere.
	for range 1 + g.IntN(2+len(g.byID)/6) {
		j := g.someone()
		if j.queue == lead.queue && j.set == lead.set || g.chance(0.02) {
			seq.Events = append(seq.Events, g.act(j)...)
		}
	}
	if g.options.Newest >= SuccessorsVersion && !g.draining && g.later.chance(0.1) {
		seq.Events = append(seq.Events, g.outage(lead)...)
	}
	if len(seq.Events) == 0 {
		seq.Events = g.act(lead)
	}
	if len(seq.Events) == 0 {
		seq.Events = []*pb.Event{requeued(lead.id)}
	}
	asWritten := g.draining || g.options.Clean
	if !asWritten {
		if g.chance(0.03) {
			seq.Events = append(seq.Events, g.noise(lead.plannedJob))
		}
		if g.chance(0.03) {
			g.Shuffle(len(seq.Events), func(i, j int) { seq.Events[i], seq.Events[j] = seq.Events[j], seq.Events[i] })
		}
	}
	g.clocksOfGroups(seq)
	if !asWritten {
		g.mangleEvents(seq)
	}
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(seq)
	if err != nil {
		panic(err)
	}
	if !asWritten {
		payload = g.manglePayload(payload)
	}
	g.emitGroups(payload, g.now)
}

// clocksOfGroups sets the created of all events.
func (g *groupGenerator) clocksOfGroups(seq *pb.EventSequence) {
	if g.chance(0.1) && !g.draining {
		g.clocks(seq, g.now)
		return
	}
	for _, ev := range seq.Events {
		t := g.now - g.Int64N(int64(2*time.Second))
		ev.Created = &pb.Timestamp{Seconds: t / 1e9, Nanos: int32(t % 1e9)}
	}
}

func (g *groupGenerator) elapseGroups() {
	switch p := g.Float64(); {
	case p < 0.8:
		g.now += g.Int64N(int64(5 * time.Second))
	case p < 0.98 || g.draining:
		g.now += g.Int64N(int64(2 * time.Minute))
	default:
		g.elapse()
	}
}

// someone picks a job that has something to do, mostly; often the next one to submit.
func (g *groupGenerator) someone() *clusterJob {
	next := 0.4
	if g.eager {
		next = 0.9
	}
	if len(g.unsent) > 0 && (len(g.cluster) == 0 || g.chance(next)) {
		return g.unsent[0]
	}
	if len(g.cluster) == 0 { // nobody ever came
		g.job("ml", "set-a", nil)
		return g.unsent[0]
	}
	var busy, early []*clusterJob
	for _, j := range g.cluster {
		switch {
		case j.run != "" || !j.over && !j.held && j.retryAfter <= g.now:
			busy = append(busy, j)
		case !j.over && !j.held:
			early = append(early, j)
		}
	}
	if len(busy) == 0 && len(early) > 0 { // all wait: time passes
		j := slices.MinFunc(early, func(a, b *clusterJob) int { return int(min(max(a.retryAfter-b.retryAfter, -1), 1)) })
		if g.chance(0.9) || g.draining {
			g.now = max(g.now, min(j.retryAfter, g.now+int64(24*time.Hour)))
			return j
		}
	}
	if len(busy) > 0 && (g.chance(0.9) || g.draining) {
		return pick(g.generator, busy)
	}
	return pick(g.generator, g.cluster)
}

// act is what happens next to a job.
func (g *groupGenerator) act(j *clusterJob) []*pb.Event {
	if at := slices.Index(g.unsent, j); at >= 0 {
		g.unsent = slices.Delete(g.unsent, at, at+1)
		g.cluster = append(g.cluster, j)
		events := []*pb.Event{j.submit}
		if g.chance(0.02) && !g.draining { // what its runs did comes first
			j.run = g.newRun(j.plannedJob)
			events = append([]*pb.Event{leased(j.id, j.run, "node-1")}, events...)
		}
		return events
	}
	if !g.draining {
		if events := g.oddity(j); events != nil {
			return events
		}
	}
	switch {
	case j.run == "" && (j.over || j.held):
		return nil
	case j.run == "":
		return g.lease(j)
	case !j.running && g.chance(0.5):
		j.running = true
		return []*pb.Event{running(j.id, j.run, pick(g.generator, nodes))}
	}
	return g.finish(j)
}

// lease gives a job its next run; those of a gang at once, mostly.
func (g *groupGenerator) lease(j *clusterJob) []*pb.Event {
	jobs := []*clusterJob{j}
	if j.gang != "" && g.chance(0.9) {
		for _, other := range g.cluster {
			if other != j && other.gang == j.gang && other.run == "" && !other.over && !other.held {
				jobs = append(jobs, other)
			}
		}
	}
	var events []*pb.Event
	for _, other := range jobs {
		if other.retryAfter > g.now && g.chance(0.95) {
			continue
		}
		other.run, other.running, other.retryAfter = g.newRun(other.plannedJob), false, 0
		events = append(events, leased(other.id, other.run, pick(g.generator, nodes)))
	}
	return events
}

// outage ends several runs of a job set at once, most of which fail.
func (g *groupGenerator) outage(lead *clusterJob) []*pb.Event {
	var events []*pb.Event
	for _, i := range g.later.Perm(len(g.cluster)) {
		if j := g.cluster[i]; j.queue == lead.queue && j.set == lead.set && j.run != "" && len(events) < 12 {
			if g.later.chance(0.8) {
				events = append(events, g.fail(j)...)
			} else {
				events = append(events, g.finish(j)...)
			}
		}
	}
	return events
}

// finish ends the run of a job.
func (g *groupGenerator) finish(j *clusterJob) []*pb.Event {
	p, run := g.Float64(), j.run
	switch {
	case p < 0.45 || g.draining && (p < 0.75 || g.now > g.patience):
		j.over = true
		g.ends(j)
		events := []*pb.Event{succeeded(j.id, run)}
		if g.chance(0.7) {
			events = append(events, jobSucceeded(j.id))
		}
		return events
	case p < 0.46:
		g.ends(j)
		return []*pb.Event{jobSucceeded(j.id)} // the run's own end never comes
	}
	return g.fail(j)
}

// ends makes the run of a job one that may report again.
func (g *groupGenerator) ends(j *clusterJob) { j.run, j.old = "", append(j.old, j.run) }

// fail ends the run of a job badly.
func (g *groupGenerator) fail(j *clusterJob) []*pb.Event {
	run := j.run
	g.ends(j)
	how := pick(g.generator, []string{"pod", "pod", "pod", "pod", "preempted", "expired", "attempted", "unattempted", "other"})
	e := g.err(how)
	if g.chance(0.06) {
		e.FailureCategory, e.FailureSubcategory = "internal", "active-deadline"
	}
	var events []*pb.Event
	if how == "preempted" && g.chance(0.7) {
		events = append(events, preempted(j.id, run))
	}
	events = append(events, runErrors(j.id, run, []*pb.Error{e}))
	if g.chance(0.2) && !e.GetTerminal() {
		events = append(events, jobErrors(j.id, []*pb.Error{e}))
	}
	if g.chance(0.1) {
		events = append(events, terminated(j.id, run))
	}
	return events
}

// oddity is what does not happen often.
func (g *groupGenerator) oddity(j *clusterJob) []*pb.Event {
	switch p := g.Float64(); {
	case p < 0.006:
		j.over = true
		return []*pb.Event{{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: j.id}}}}
	case p < 0.009:
		j.over, j.run = true, ""
		return []*pb.Event{{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: j.id}}}}
	case p < 0.01:
		return []*pb.Event{{Event: &pb.Event_CancelJobSet{CancelJobSet: &pb.CancelJobSet{States: some(g.generator, []pb.JobState{0, 1, 2}, g.IntN(3))}}}}
	case p < 0.012:
		j.over, j.run = true, ""
		return []*pb.Event{jobErrors(j.id, []*pb.Error{{Terminal: true, Reason: &pb.Error_JobRejected{JobRejected: &pb.JobRejected{}}}})}
	case p < 0.07 && len(j.old) > 0: // an old run reports late, or again
		run := pick(g.generator, j.old)
		if g.chance(0.25) {
			return []*pb.Event{succeeded(j.id, run)}
		}
		return g.end(j.id, run, pick(g.generator, []string{"pod", "preempted", "expired", "attempted"}))
	case p < 0.08 && len(j.old) > 0:
		return []*pb.Event{terminated(j.id, pick(g.generator, j.old))}
	case p < 0.085: // leased though it should not be
		run := g.newRun(j.plannedJob)
		if j.run != "" {
			j.old = append(j.old, j.run)
		}
		j.run = run
		return []*pb.Event{leased(j.id, run, "node-2")}
	case p < 0.09:
		return []*pb.Event{j.submit}
	case p < 0.095 && !g.options.Clean:
		return []*pb.Event{knownJob(j.submit), g.knownRun(j.id, g.anyRun(j.plannedJob))}
	case p < 0.12 && j.stopped:
		return []*pb.Event{{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: j.id}}}}
	}
	return nil
}

// emitGroups appends a message, and lets the cluster read what the model says of it.
func (g *groupGenerator) emitGroups(payload []byte, publish int64) {
	g.emit(payload, publish)
	for _, r := range g.m.Step(g.messages[len(g.messages)-1]) {
		j := g.byID[r.JobID]
		if j == nil || r.Shadow && !g.chance(0.3) { // in shadow somebody else decides
			continue
		}
		switch r.Kind {
		case JobRequeued:
			j.over, j.retryAfter = false, r.RetryAfter
		case JobFailed:
			j.over = true
		case MemberHeld:
			j.held = true
		case MemberReleased:
			j.held = false
		case RetryReady:
			j.retryAfter = r.RetryAfter
		case MemberRestart:
			if j.run != "" { // it may still report its end, or never
				j.old, j.run = append(j.old, j.run), ""
			}
			j.over, j.held, j.stopped, j.retryAfter = false, false, false, r.RetryAfter
		case MemberStopped:
			j.held, j.stopped = false, true
			if j.run == "" || g.chance(0.5) {
				j.over = true
			}
			if j.run != "" && g.chance(0.5) {
				j.old, j.run = append(j.old, j.run), ""
			}
		case NotDecided, Parked, GroupBound, GroupFinding, UnitEnded, GroupEnded, OrderAnswered: // nothing happens to a job
		}
	}
}

// drain lets everything come to its end: the queues enforce, and nothing odd happens.
func (g *groupGenerator) drain(h *History) {
	g.draining = true
	g.patience = g.now + int64(4*time.Hour)
	p := g.policies
	p.Queues = slices.Clone(p.Queues)
	for i := range p.Queues {
		p.Queues[i].Mode, p.Queues[i].PausedUntil = "Enforce", 0
	}
	s := p.settings()
	s.Enabled, s.Mode, s.PausedUntil = nil, "", 0
	p.Settings = &s
	g.use(p)
	h.Changes = append(h.Changes, Change{Before: len(g.messages), Policies: p})
	g.m.Use(p)
	for range 1500 {
		over := true
		for _, group := range g.m.groups {
			over = over && group.ended
			for _, mem := range group.members() {
				if j := mem.job; g.byID[j.id] == nil { // a job whose id was damaged on its way
					g.byID[j.id] = &clusterJob{plannedJob: &plannedJob{id: j.id, queue: j.queue, set: j.set}}
					g.cluster = append(g.cluster, g.byID[j.id])
				}
			}
		}
		if over && len(g.unsent) == 0 {
			return
		}
		for _, j := range g.cluster { // what the model waits for, whatever the cluster thinks
			mem := g.m.jobs[j.id]
			if mem == nil || mem.member == nil {
				continue
			}
			if live := mem.member.started(); live && j.run == "" {
				j.over, j.held = false, false
			} else if !live && j.run == "" {
				j.over = true
			}
		}
		g.resubmit()
		g.groupMessage()
		if g.chance(0.1) {
			g.now += g.horizon / 3
		}
	}
}
