package simulate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// Result is what one candidate did under one seed.
type Result struct {
	Candidate string `json:"candidate"`
	Seed      uint64 `json:"seed"`
	// Hours is the virtual time until everything was over, or the simulation gave up.
	Hours float64 `json:"hours"`
	// Measured is when averages over time are taken: after the first tenth of the submissions' time, in which the cluster
	// fills, up to the last submission, after which it runs empty.
	Measured Span `json:"measuredHours"`
	// Tail is what came after the last submission.
	Tail Tail `json:"tail"`
	// InTimeSeconds is how long after its submission a job may be done to count in DoneInTime.
	InTimeSeconds float64 `json:"inTimeSeconds"`
	// Resources are the names of the cluster's resources, the scarcest first.
	Resources []string `json:"resources"`
	Tally
	// NotOverBecause counts the jobs that are not over by what they do: Running, or why the scheduler's last cycle left them
	// queued. FitsNoNode means that a job avoids all nodes that are large enough.
	NotOverBecause map[string]int `json:"notOverBecause,omitempty"`
	// Messages and Events are what Step has processed.
	Messages uint64 `json:"messages"`
	Events   uint64 `json:"events"`
	// UsefulHours are resource-hours of runs that succeeded, WastedHours of all others, by resource: hours of
	// a core, a GiB or a device.
	UsefulHours map[string]float64 `json:"usefulHours"`
	WastedHours map[string]float64 `json:"wastedHours"`
	Queues      []QueueResult      `json:"queues"`
	Failures    []FailureRow       `json:"failures"`
	// AvoidedNodes are the nodes that decisions avoid, most often first.
	AvoidedNodes []NodeLoad `json:"avoidedNodes"`
	// MeanUse is the average use of all nodes in the time that is measured, to compare with NodeLoad.Use.
	MeanUse float64 `json:"meanUse"`
	// Protection is what the guard did; nil: the candidate's settings have no protection.
	Protection *Protection `json:"protection,omitempty"`
	// Breakers is what its breakers did; nil: the candidate's settings have none.
	Breakers *Breakers `json:"breakers,omitempty"`
	// Recovery is how long after the end of a fault the last retry of a run that failed of it started, by its cause.
	Recovery map[string]float64 `json:"recoverySeconds,omitempty"`
	// Series is what happened over time.
	Series Series `json:"series"`
	// Percentiles are those of all jobs.
	Percentiles Percentiles `json:"percentiles"`
}

// within is how long a job may take to be done in time.
func (r *Result) within() time.Duration { return time.Duration(r.InTimeSeconds * float64(time.Second)) }

// Percentiles are the percentiles 0 to 100, in seconds; nil: there is nothing to take them of.
type Percentiles struct {
	Waiting    []float64 `json:"waitingSeconds"`
	Completion []float64 `json:"completionSeconds"`
}

// Tally is what is counted of all jobs, and of each queue's.
type Tally struct {
	Jobs          int    `json:"jobs"`
	Done          int    `json:"done"`
	DoneInTime    int    `json:"doneInTime"`    // of them, those that were done soon enough after their submission
	DoneByRetries int    `json:"doneByRetries"` // of them, those that ran more than once
	Lost          int    `json:"lost"`
	NotOver       int    `json:"notOver"`
	Cancelled     int    `json:"cancelled,omitempty"`
	Runs          uint64 `json:"runs"`
	Retries       uint64 `json:"retries"` // runs after a job's first
	Preemptions   uint64 `json:"preemptions"`
	// Waiting is the time from submission to the first run, RetryWaiting that from the end of a run to the next one,
	// Completion that from submission to success.
	Waiting      Times `json:"waitingSeconds"`
	RetryWaiting Times `json:"retryWaitingSeconds"`
	Completion   Times `json:"completionSeconds"`
	// Passed is the number of jobs that waited for their first run, and found no room in a scheduling cycle in which
	// a retry of their queue was placed.
	Passed int `json:"firstRunsPassedByRetries"`
}

// Times are percentiles, in seconds.
type Times struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// QueueResult is a queue's part of a result.
type QueueResult struct {
	Queue string `json:"queue"`
	Tally
	// Shortfall is how much the queue was below its fair share, as a part of the dominant resource, while its jobs found no
	// room: the average over the time that is measured, as the next two.
	Shortfall float64 `json:"fairShareShortfall"`
	// FairShareError is |share - fair share| while the queue had jobs, on average, and MaxFairShareError at most (Series has it over time).
	FairShareError    float64 `json:"fairShareError"`
	MaxFairShareError float64 `json:"maxFairShareError"`
}

// FailureRow is what was decided on failed runs of one kind.
type FailureRow struct {
	Cause  string `json:"cause"`
	Policy string `json:"policy,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Code   string `json:"code,omitempty"` // of the decision, or why there was none
	Runs   uint64 `json:"runs"`
	// Retried is how many of them were followed by a retry, Retries how many were retries themselves.
	Retried     uint64             `json:"retried"`
	Retries     uint64             `json:"wastedRetries"`
	WastedHours map[string]float64 `json:"wastedHours"`
}

// NodeLoad is what ran on a node that was avoided.
type NodeLoad struct {
	Node    string `json:"node"`
	Avoided uint64 `json:"avoidedBy"` // decisions
	Runs    uint64 `json:"runs"`
	Failed  uint64 `json:"failed"`
	// Use is how much of its most used resource was used, on average over the time that is measured.
	Use float64 `json:"use"`
}

// verdict is what was decided on a failed run.
type verdict struct {
	policy, rule, code string
	again              bool
}

// counter counts during a simulation.
type counter struct {
	c                *Cluster
	messages, events uint64
	queues           []queueCount
	rows             map[failureKey]*failureCount
	nodes            map[string]*nodeCount
	units            []float64 // by resource
	useful, waste    hours
	within           time.Duration // for DoneInTime
	window           *window
	tailDone         int
	measured         time.Duration // up to which shortfalls are counted
	samples          *sampler
	retried          []bool // by queue, in the cycle that is counted
	recovery         map[string]float64
}

// hours are resource-hours, by resource; nil: no hours were counted.
type hours []float64

func (h hours) named(resources []string) map[string]float64 {
	out := map[string]float64{}
	for i, amount := range h {
		out[resources[i]] = amount
	}
	return out
}

type failureCount struct {
	FailureRow
	wasted hours
}

// failureKey is what tells rows apart.
type failureKey struct{ cause, policy, rule, code string }

type queueCount struct {
	Tally
	waiting, retryWaiting, completion []time.Duration
	below                             float64 // of the fair share, since the last cycle
	shortfall                         float64 // integral
}

type nodeCount struct {
	NodeLoad
	busy []float64 // seconds in the time that is measured, by resource
	tail []float64 // after it
}

func newCounter(c *Cluster, w *Workload, within time.Duration) *counter {
	counts := &counter{
		c: c, within: within, window: &window{from: w.warmUp(), until: never}, queues: make([]queueCount, len(c.Queues)), rows: map[failureKey]*failureCount{}, nodes: map[string]*nodeCount{},
		retried: make([]bool, len(c.Queues)), recovery: map[string]float64{},
	}
	for _, name := range c.Resources {
		counts.units = append(counts.units, unit(name))
	}
	counts.samples = newSampler(c, counts.window, counts.weight)
	return counts
}

func (c *counter) node(name string) *nodeCount {
	of := c.nodes[name]
	if of == nil {
		of = &nodeCount{NodeLoad: NodeLoad{Node: name}, busy: make([]float64, len(c.c.Resources)), tail: make([]float64, len(c.c.Resources))}
		c.nodes[name] = of
	}
	return of
}

// at is node for a node of the cluster.
func (c *counter) at(n *placed) *nodeCount {
	if n.count == nil {
		n.count = c.node(n.Name)
	}
	return n.count
}

func (c *counter) submitted(j *job) {
	c.queues[j.queue].Jobs++
	c.samples.waits(j)
}

func (c *counter) started(j *job) {
	q := &c.queues[j.queue]
	q.Runs++
	c.samples.waitsNot(j)
	c.samples.runs(j, 1)
	if j.runs == 1 {
		q.waiting = append(q.waiting, j.started-j.submitted)
	} else {
		q.Retries++
		q.retryWaiting = append(q.retryWaiting, j.started-j.since)
		c.recovers(j)
	}
	c.at(j.node).Runs++
}

// recovers counts a retry of a run that failed of a fault which has ended.
func (c *counter) recovers(j *job) {
	after := never
	for i := range c.c.Faults {
		if f := &c.c.Faults[i]; f.For > 0 && f.Cause == j.last.cause && j.last.run == j.runs-1 && j.started >= f.At+f.For {
			after = min(after, j.started-f.At-f.For)
		}
	}
	if after < never {
		c.recovery[j.last.cause] = max(c.recovery[j.last.cause], after.Seconds())
	}
}

// ran counts a run that has ended.
func (c *counter) ran(j *job) {
	c.samples.runs(j, -1)
	n := c.at(j.node)
	within, after := c.window.of(j.started, j.started+j.spent)
	for i, amount := range j.kind.request {
		if total := j.node.Total[i]; total > 0 {
			n.busy[i] += float64(amount) / float64(total) * within.Seconds()
			n.tail[i] += float64(amount) / float64(total) * after.Seconds()
		}
	}
}

// spend adds what the last run of a job has used, or takes it away.
func (c *counter) spend(h *hours, j *job, sign float64) {
	if *h == nil {
		*h = make(hours, len(c.units))
	}
	for i, unit := range c.units {
		(*h)[i] += sign * float64(j.kind.request[i]) / unit * j.spent.Hours()
	}
}

func (c *counter) succeeded(j *job) { c.spend(&c.useful, j, 1) }

// undone counts a run that succeeded and is repeated with its gang.
func (c *counter) undone(j *job) {
	c.spend(&c.useful, j, -1)
	c.wasted(j, Restarted)
}

func (c *counter) wasted(j *job, cause string) { c.row(j, cause, verdict{}) }

func (c *counter) failed(j *job, v verdict) {
	c.at(j.node).Failed++
	c.row(j, j.cause, v)
}

func (c *counter) row(j *job, cause string, v verdict) {
	key := failureKey{cause, v.policy, v.rule, v.code}
	row := c.rows[key]
	if row == nil {
		row = &failureCount{FailureRow: FailureRow{Cause: cause, Policy: v.policy, Rule: v.rule, Code: v.code}}
		c.rows[key] = row
	}
	row.Runs++
	if v.again {
		row.Retried++
	}
	if j.runs > 1 {
		row.Retries++
	}
	if cause == Preempted {
		c.queues[j.queue].Preemptions++
	}
	c.spend(&row.wasted, j, 1)
	c.spend(&c.waste, j, 1)
}

func (c *counter) avoided(j *job) {
	for _, name := range j.avoided {
		c.node(name).Avoided++
	}
}

func (c *counter) over(j *job) {
	q := &c.queues[j.queue]
	c.samples.waitsNot(j)
	if j.cancelled {
		q.Cancelled++
		return
	}
	if j.state == lost {
		q.Lost++
		return
	}
	q.Done++
	if j.runs > 1 {
		q.DoneByRetries++
	}
	if j.ended-j.submitted <= c.within {
		q.DoneInTime++
	}
	if j.ended > c.window.until {
		c.tailDone++
	}
	q.completion = append(q.completion, j.ended-j.submitted)
}

// cycle counts a scheduling cycle.
func (c *counter) cycle(now time.Duration, r *scheduling.Changes, scheduler *scheduling.Scheduler, jobs map[string]*job) {
	c.until(now)
	clear(c.retried)
	for _, id := range r.Scheduled {
		if j := jobs[id]; j.runs > 0 {
			c.retried[j.queue] = true
		}
	}
	shares, weights := scheduler.Shares(), 0.0
	for i := range shares {
		weights += c.weight(c.queue(shares[i].Queue))
	}
	for i := range shares {
		share, noRoom, has := &shares[i], false, 0.0
		q := c.queue(share.Queue)
		for id := range scheduler.NoRoom(share.Queue) {
			if noRoom = true; !c.retried[q] {
				break
			}
			if j := jobs[id]; j.runs == 0 && !j.passed {
				j.passed = true
				c.queues[q].Passed++
			}
		}
		if share.Total > 0 {
			has = float64(share.Allocated) / float64(share.Total)
		}
		if noRoom {
			c.queues[q].below = max(0, c.weight(q)/weights-has)
		}
	}
}

func (c *counter) queue(name string) int {
	return slices.IndexFunc(c.c.Queues, func(q Queue) bool { return q.Name == name })
}

func (c *counter) weight(q int) float64 { return 1 / cmp.Or(c.c.Queues[q].PriorityFactor, 1) }

// until counts what has been below its fair share up to now.
func (c *counter) until(now time.Duration) {
	for i := range c.queues {
		within, _ := c.window.of(c.measured, now)
		c.queues[i].shortfall += c.queues[i].below * within.Seconds()
		c.queues[i].below = 0
	}
	c.measured = now
}

func (c *counter) result(s *sim) *Result {
	c.until(s.now)
	c.samples.advance(s.now)
	span, after := c.window.of(0, s.now)
	total, tail := max(span.Seconds(), 1), max(after.Seconds(), 1)
	r := &Result{
		Candidate: s.o.Candidate.Name, Seed: s.o.Seed, Hours: s.now.Hours(), InTimeSeconds: c.within.Seconds(),
		Measured: Span{c.window.from.Hours(), min(c.window.until, s.now).Hours()}, Tail: Tail{Hours: after.Hours(), Done: c.tailDone}, Resources: c.c.Resources, Messages: c.messages, Events: c.events,
		UsefulHours: c.useful.named(c.c.Resources), WastedHours: c.waste.named(c.c.Resources), Failures: []FailureRow{}, AvoidedNodes: []NodeLoad{},
	}
	r.Protection, r.Breakers, r.Recovery = s.protection(), s.breakers(), c.recovery
	r.NotOverBecause = c.notOver(s.jobs, s.scheduler)
	var all queueCount
	for i := range c.queues {
		q := &c.queues[i]
		q.settle()
		of := QueueResult{Queue: c.c.Queues[i].Name, Tally: q.Tally, Shortfall: q.shortfall / total}
		of.FairShareError, of.MaxFairShareError = c.samples.fairShareError(i)
		r.Queues = append(r.Queues, of)
		all.add(q)
	}
	all.settle()
	r.Tally = all.Tally
	r.Series, r.Percentiles = c.samples.series(c.c), Percentiles{percentiles(all.waiting), percentiles(all.completion)}
	for _, key := range slices.SortedFunc(maps.Keys(c.rows), func(a, b failureKey) int {
		return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.policy, b.policy), cmp.Compare(a.rule, b.rule), cmp.Compare(a.code, b.code))
	}) {
		row := c.rows[key]
		row.WastedHours = row.wasted.named(c.c.Resources)
		r.Failures = append(r.Failures, row.FailureRow)
	}
	busy := 0.0
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		n := c.nodes[name]
		n.Use = slices.Max(n.busy) / total
		busy += n.Use
		r.Tail.MeanUse += slices.Max(n.tail) / tail / float64(len(s.nodes))
		if n.Avoided > 0 {
			r.AvoidedNodes = append(r.AvoidedNodes, n.NodeLoad)
		}
	}
	slices.SortStableFunc(r.AvoidedNodes, func(a, b NodeLoad) int { return cmp.Compare(b.Avoided, a.Avoided) })
	r.MeanUse = busy / float64(len(s.nodes))
	return r
}

func (c *counter) notOver(jobs map[string]*job, scheduler *scheduling.Scheduler) map[string]int {
	out := map[string]int{}
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		switch jobs[id].state {
		case running:
			out["Running"]++
		case held:
			out[scheduling.Held.String()]++
		case waiting:
			if reason := scheduler.Reason(id); reason != scheduling.UnknownReason {
				out[reason.String()]++
			} else {
				out[scheduling.TooEarly.String()]++
			}
		case undecided, done, lost: // of a gang that is not over
			out["GangNotOver"]++
		}
	}
	return out
}

func (q *queueCount) settle() {
	q.NotOver = q.Jobs - q.Done - q.Lost - q.Cancelled
	q.Waiting, q.RetryWaiting, q.Completion = timesOf(q.waiting), timesOf(q.retryWaiting), timesOf(q.completion)
}

func (q *queueCount) add(o *queueCount) {
	q.Jobs, q.Done, q.DoneByRetries, q.Lost = q.Jobs+o.Jobs, q.Done+o.Done, q.DoneByRetries+o.DoneByRetries, q.Lost+o.Lost
	q.DoneInTime += o.DoneInTime
	q.Cancelled += o.Cancelled
	q.Runs, q.Retries, q.Preemptions, q.Passed = q.Runs+o.Runs, q.Retries+o.Retries, q.Preemptions+o.Preemptions, q.Passed+o.Passed
	q.waiting, q.retryWaiting, q.completion = append(q.waiting, o.waiting...), append(q.retryWaiting, o.retryWaiting...), append(q.completion, o.completion...)
}

// timesOf returns percentiles by nearest rank.
func timesOf(all []time.Duration) (t Times) {
	if len(all) == 0 {
		return t
	}
	slices.Sort(all)
	at := func(percent int) float64 { return nearest(all, percent) }
	for _, d := range all {
		t.Mean += d.Seconds()
	}
	t.Mean /= float64(len(all))
	t.P50, t.P95, t.P99, t.Max = at(50), at(95), at(99), all[len(all)-1].Seconds()
	return t
}

// nearest is a percentile of sorted durations by nearest rank, in seconds.
func nearest(sorted []time.Duration, percent int) float64 {
	return sorted[max(0, (len(sorted)*percent+99)/100-1)].Seconds()
}

func percentiles(sorted []time.Duration) (out []float64) {
	for percent := 0; percent <= 100 && len(sorted) > 0; percent++ {
		out = append(out, nearest(sorted, percent))
	}
	return out
}
