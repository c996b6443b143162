package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// What is drawn: each has random numbers of its own.
const (
	ofSubmission uint64 = iota + 1
	ofJob
	ofRun
)

// dice are random numbers. The zero value is ready.
type dice struct {
	source rand.PCG
	*rand.Rand
}

// about returns the random numbers about one thing, until those about another are asked for.
func (d *dice) about(seed, what, a, b uint64) *rand.Rand {
	if d.Rand == nil {
		d.Rand = rand.New(&d.source)
	}
	h := mix(seed + 0x9e3779b97f4a7c15)
	for _, v := range [...]uint64{what, a, b} {
		h = mix(h ^ mix(v+0x9e3779b97f4a7c15))
	}
	d.source.Seed(h, mix(h+1))
	return d.Rand
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// job is a job of the simulation. Times are since its beginning.
type job struct {
	index     int
	id        string
	kind      *kind
	queue     int
	gang      *gang  // nil: a job of its own
	group     *group // nil: the job is in no group, at most in a gang
	given     *Given // nil: it is drawn
	submitted time.Duration
	length    time.Duration // of a run that does not fail
	broken    []bool        // the failures of its kind that every run has

	state       state
	listed      bool // in its queue when the last cycle began, or since then
	place       int  // in the order in which jobs entered their queues
	ready       bool // waits, and could be placed now
	later       bool // in sim.later: waits for its time
	counted     bool // as waiting, by the sampler
	touched     bool // in sim.touched
	fitsNoNode  bool // as the last cycle found, since when neither the nodes nor those that it avoids have changed
	passed      bool // in its first wait, by a retry
	runs        int
	run         string // the name of the last one
	interrupted int    // of them, those that ended before what is given for them
	retryAfter  time.Duration
	avoided     []string
	node        *placed
	started     time.Duration // its last run
	fails       *Failure      // that of its last run; nil: it succeeds
	first       time.Duration // its first one
	waited      time.Duration // in all
	since       time.Duration // when it began to wait
	ended       time.Duration
	cause       string // of its last failure, while it is undecided
	last        failed
	spent       time.Duration // by its last run
	cancelled   bool
	pending     bool // its last run never begins to run
	released    bool // its retry was held, and starts because the breaker closed
}

type gang struct {
	id      string
	members []*job
	missing int // members that are not submitted yet
}

type state int

const (
	waiting state = iota
	held
	running
	undecided // its run has failed
	done
	lost
)

// kind is a kind with what follows from it.
type kind struct {
	*Kind
	request scheduling.Resources
}

// source makes the submissions, one after another.
type source interface {
	// next returns the jobs of the next submission; none: that was all.
	next() ([]*job, error)
}

func newSource(w *Workload, c *Cluster, seed uint64) (source, error) {
	if w.Given != nil {
		return newReplay(w, c, seed), nil
	}
	return newGenerator(w, c, seed)
}

// generator draws the submissions.
type generator struct {
	w      *Workload
	kinds  []kind
	queues []string
	total  float64 // of weights
	mean   float64 // of jobs in a submission
	seed   uint64
	at     time.Duration
	number uint64 // of submissions
	jobs   int
	dice   dice
}

func newGenerator(w *Workload, c *Cluster, seed uint64) (*generator, error) {
	g := &generator{w: w, seed: seed}
	for i := range w.Kinds {
		k := &w.Kinds[i]
		request, err := c.amounts(k.Request)
		if err != nil {
			return nil, err
		}
		g.kinds = append(g.kinds, kind{k, request})
		g.total += k.weight()
		g.mean += k.weight() * float64(max(1, k.JobsAtOnce))
	}
	g.mean /= g.total
	for _, q := range c.Queues {
		g.queues = append(g.queues, q.Name)
	}
	return g, nil
}

// next implements source.
func (g *generator) next() ([]*job, error) {
	if g.jobs >= g.w.Jobs {
		return nil, nil
	}
	r := g.dice.about(g.seed, ofSubmission, g.number, 0)
	gap := g.mean / g.w.JobsPerHour
	if g.w.Arrivals != Even {
		gap *= r.ExpFloat64()
	}
	g.at += time.Duration(min(gap, maxHours) * float64(time.Hour))
	k, left := &g.kinds[0], r.Float64()*g.total
	for i := range g.kinds {
		if k = &g.kinds[i]; left < k.weight() {
			break
		}
		left -= k.weight()
	}
	queue := r.IntN(len(g.queues))
	for i, name := range g.queues {
		if name == k.Queue {
			queue = i
		}
	}
	n := max(1, k.JobsAtOnce)
	if !k.Gang {
		n = min(n, g.w.Jobs-g.jobs)
	}
	jobs := make([]*job, n)
	for i := range jobs {
		jobs[i] = g.job(k, queue)
	}
	if k.Gang {
		of := &gang{id: fmt.Sprintf("gang-%06d", g.number), members: jobs}
		length := jobs[0].length
		for _, j := range jobs {
			j.gang, j.length = of, length
		}
	}
	g.number++
	return jobs, nil
}

func (g *generator) job(k *kind, queue int) *job {
	r := g.dice.about(g.seed, ofJob, uint64(g.jobs), 0)
	j := &job{index: g.jobs, id: jobID(g.jobs), kind: k, queue: queue, submitted: g.at, since: g.at, length: k.RunTime.draw(r)}
	if len(k.Failures) > 0 {
		j.broken = make([]bool, 0, len(k.Failures))
	}
	for i := range k.Failures {
		j.broken = append(j.broken, r.Float64() < k.Failures[i].PerJob)
	}
	g.jobs++
	return j
}

// jobID names a drawn job: job- and eight digits, or more.
func jobID(index int) string {
	const least = 100_000_000
	var id [24]byte
	if index >= least {
		return string(strconv.AppendInt(append(id[:0], "job-"...), int64(index), 10))
	}
	name := strconv.AppendInt(append(id[:0], "job"...), int64(least+index), 10)
	name[3] = '-' // in place of a 1
	return string(name)
}

// deviations is how many standard deviations the 95th percentile is above the median.
const deviations = 1.6448536269514722

func (t RunTime) draw(r *rand.Rand) time.Duration {
	normal := r.NormFloat64()
	if t.P95 == 0 {
		return t.P50
	}
	sigma := math.Log(float64(t.P95)/float64(t.P50)) / deviations
	length := float64(t.P50) * math.Exp(sigma*normal)
	return max(time.Second, time.Duration(min(length, float64(maxGiveUp)))).Round(time.Millisecond)
}

// outcome says when and how a run that starts now on a node ends; no failure: it succeeds.
func (d *dice) outcome(seed uint64, j *job, faults []Fault, now time.Duration) (after time.Duration, failure *Failure) {
	r := d.about(seed, ofRun, uint64(j.index), uint64(j.runs))
	after = j.length
	try := func(f *Failure, broken bool) { // nil: it does not happen
		chance, part, hours := r.Float64(), r.Float64(), r.ExpFloat64() // always as many
		if f == nil {
			return
		}
		at := time.Duration(part * float64(j.length))
		if f.After > 0 {
			at = min(f.After, j.length)
		}
		fails := broken || chance < f.perRun(&j.last, j.node)
		if f.PerHour > 0 {
			if hit := hours / f.PerHour * float64(time.Hour); hit < float64(after) && (!fails || hit < float64(at)) {
				at, fails = time.Duration(hit), true
			}
		}
		if fails && (at < after || failure == nil && at == after) {
			after, failure = at, f
		}
	}
	for i := range j.kind.Failures {
		try(&j.kind.Failures[i], j.broken[i])
	}
	for i := range faults {
		if f := &faults[i]; !f.Down {
			var hits *Failure
			if f.active(now) && f.hits(j.node) {
				hits = &f.Failure
			}
			try(hits, false)
		}
	}
	return max(after, time.Millisecond), failure
}
