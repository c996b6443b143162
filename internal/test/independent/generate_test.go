package independent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// history is what is fed to both.
type history struct {
	Partitions int
	Messages   []message
}

var start = time.Date(2026, 11, 28, 6, 0, 0, 0, time.UTC).UnixNano()

// generator makes histories that are about edges: of windows and slices, of breakers, equal times, times that go back and jump.
type generator struct {
	*rand.Rand
	now    int64
	config *config
	jobs   []*life
	out    []message
	orders int
	names  int
	model  *model // tells which jobs are over
}

// life is what a generator remembers of a job.
type life struct {
	id, queue, set string
	submitted      bool
	runs           int
	live           bool
}

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

func (g *generator) chance(p float64) bool { return g.Float64() < p }

func generate(seed uint64) history {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x1d3))}
	g.now = start + g.Int64N(hour)
	if g.chance(0.5) {
		g.now -= g.now % minute // at the beginning of slices
	}
	h := history{Partitions: pick(g, 1, 1, 1, 2, 3, 16)}
	g.model = newModel(h.Partitions)
	g.configure(nil)
	for range 1 + g.IntN(8) {
		g.jobs = append(g.jobs, &life{queue: pick(g, "a", "a", "b"), set: pick(g, "s", "s", "t")})
		g.begin(g.jobs[len(g.jobs)-1])
	}
	for n := 10 + g.IntN(60); len(g.out) < n; {
		g.elapse()
		switch {
		case g.chance(0.05):
			g.configure(g.config)
		case g.chance(0.04): // a producer did not hear that its message arrived
			again := g.out[g.IntN(len(g.out))]
			if again.Config != nil {
				continue
			}
			if g.chance(0.5) {
				again.Publish = g.now
			}
			g.emit(again)
		default:
			g.message()
		}
	}
	h.Messages = g.out
	return h
}

// begin is the begin of another job.
func (g *generator) begin(j *life) {
	*j = life{id: fmt.Sprintf("01job-%d", g.names), queue: j.queue, set: j.set}
	g.names++
}

// emit appends a message. Most jobs that are over make room for others.
func (g *generator) emit(msg message) {
	g.out = append(g.out, msg)
	for _, r := range g.model.process(msg) {
		for _, j := range g.jobs {
			if j.id == r.Job && (r.Kind == "Failed" && !r.Shadow && g.chance(0.6) || r.Kind == "NotDecided" && g.chance(0.6)) {
				g.begin(j)
			}
		}
	}
}

func (g *generator) elapse() {
	b := budget{Window: 10 * minute, Floor: 3}
	if n := len(g.config.Budgets); n > 0 {
		b = g.config.Budgets[g.IntN(n)]
	}
	w := b.Window
	switch p := g.Float64(); {
	case p < 0.30:
	case p < 0.45:
		g.now += g.Int64N(2 * second)
	case p < 0.60:
		g.now += g.Int64N(w/10 + 1)
	case p < 0.72:
		g.now += pick(g, w, w/10, 9*w/10, w/max(b.Floor, 1), w/2) + pick(g, int64(-1), 0, 0, 1, -ms, ms)
	case p < 0.76: // to the beginning of a slice
		g.now += w/10 - g.now%(w/10) + pick(g, int64(-1), 0, 0, 1)
	case p < 0.79:
		g.now -= pick(g, int64(1), ms, second, w/10, w)
	case p < 0.83: // to an edge of a breaker or a pause
		if until := pick(g, g.edges()...); until > g.now-hour {
			g.now = until + pick(g, int64(-1), 0, 0, 1)
		}
	case p < 0.86:
		g.now += g.Int64N(2 * hour)
	case p < 0.862:
		g.now += int64(1+g.IntN(3)) * 365 * 24 * hour
	}
}

func (g *generator) edges() []int64 {
	list := []int64{g.now}
	for _, b := range g.config.Breakers {
		list = append(list, b.Until)
	}
	if g.config.PausedUntil > 0 {
		list = append(list, g.config.PausedUntil)
	}
	return list
}

// configure puts other policies in force: a few parts of the ones before, or all anew.
func (g *generator) configure(was *config) {
	c := &config{}
	if was != nil {
		*c = *was
		c.Policies, c.Queues, c.Budgets, c.Breakers = slices.Clone(c.Policies), slices.Clone(c.Queues), slices.Clone(c.Budgets), slices.Clone(c.Breakers)
	}
	keep := func(p float64) bool { return was != nil && !g.chance(p) }
	if !keep(0.1) {
		c.GlobalMax, c.LegacyMax, c.Horizon = pick(g, int64(20), 20, 20, 5, 2, 0), pick(g, 4, 2, 1), pick(g, 24*hour, 24*hour, hour)
		c.Slack, c.Disabled, c.Shadow = pick(g, 0, 0, 10*second, 1500*ms), g.chance(0.03), g.chance(0.1)
	}
	if !keep(0.3) {
		c.PausedUntil = 0
		if g.chance(0.15) {
			c.PausedUntil = g.now + pick(g, -second, minute, second, hour)
		}
	}
	if !keep(0.4) {
		c.Breakers = nil
		for range g.IntN(4) {
			b := breaker{Category: pick(g, "net", "net", "disk", "internal"), Until: g.now + pick(g, int64(0), 1, second, minute, minute, 10*minute, hour)}
			if g.chance(0.3) {
				b.Subcategory = pick(g, "dns", "tls", "pod-missing")
			}
			if g.chance(0.3) {
				b.Queue = pick(g, "a", "b")
			}
			same := func(o breaker) bool {
				return o.Category == b.Category && o.Subcategory == b.Subcategory && o.Queue == b.Queue
			}
			if !slices.ContainsFunc(c.Breakers, same) {
				c.Breakers = append(c.Breakers, b)
			}
		}
	}
	if !keep(0.2) {
		c.Avoid = nil
		for _, n := range []string{"n3", "n1", "n2"} {
			if g.chance(0.15) {
				c.Avoid = append(c.Avoid, avoided{n, g.now + pick(g, second, minute, hour)})
			}
		}
	}
	if !keep(0.2) {
		c.Policies = nil
		for _, name := range []string{"first", "second"} {
			p := policy{
				Name: name, Limit: pick(g, int64(-1), -1, 0, 1, 3, 50), Default: pick(g, "Retry", "Retry", "Fail", ""),
				Initial: pick(g, int64(0), 0, second, 1001*ms, minute), Mult: pick(g, int64(1000), 2000, 1500, 3001), Max: pick(g, 10*minute, second, 0),
				Jitter: pick(g, int64(0), 0, 100, 1000, 333), Node: g.chance(0.3), Wait: g.chance(0.2),
			}
			for i := range g.IntN(4) {
				r := rule{Name: fmt.Sprintf("r%d", i), Action: pick(g, "Retry", "Retry", "Retry", "Ignore", "Fail"), Limit: pick(g, int64(-1), -1, 0, 1, 2, 50)}
				if g.chance(0.6) {
					r.Categories = pick(g, []string{"net"}, []string{"disk", "second"}, []string{"internal"}, []string{"net", "disk"})
				}
				if g.chance(0.4) || r.Categories == nil {
					r.Conditions = pick(g, []string{"Preempted"}, []string{"LeaseExpired", "LeaseReturned"}, []string{"Unschedulable"}, []string{"Preempted", "LeaseReturned"})
				}
				p.Rules = append(p.Rules, r)
			}
			c.Policies = append(c.Policies, p)
		}
	}
	if !keep(0.3) {
		c.Queues = nil
		for _, name := range []string{"a", "b"} {
			q := queue{Name: name, Policies: pick(g, []string{"first"}, []string{"first", "second"}, []string{"second", "first"}), Mode: pick(g, "", "", "", "Enforce", "Shadow"), Killed: g.chance(0.05)}
			if g.chance(0.08) {
				q.PausedUntil = g.now + pick(g, -second, minute, hour)
			}
			c.Queues = append(c.Queues, q)
		}
	}
	switch {
	case was == nil || g.chance(0.15):
		c.Budgets = nil
		for _, name := range []string{"x", "y", "z"} {
			if g.chance(0.45) {
				c.Budgets = append(c.Budgets, g.budget(name))
			}
		}
	case g.chance(0.5):
		for i, b := range c.Budgets {
			switch g.IntN(4) {
			case 0:
				c.Budgets[i] = g.budget(b.Name)
			case 1:
				n := g.budget(b.Name)
				n.Queue, n.Window = b.Queue, b.Window
				c.Budgets[i] = n
			}
		}
	}
	g.config = c
	g.emit(message{Config: c})
}

func (g *generator) budget(name string) budget {
	b := budget{
		Name: name, Queue: pick(g, "", "", "a", "a", "b"), Ratio: pick(g, int64(0), 0, 1, 200, 333, 500, 1000), Floor: pick(g, int64(0), 1, 1, 2, 3, 7, 20),
		Window: pick(g, 10*second, 10*second, minute, 10*minute, 10001*ms, 24*hour), Refuse: g.chance(0.35), Shadow: g.chance(0.2),
	}
	if b.Floor == 0 && !b.Refuse {
		b.Floor = 1
	}
	return b
}

func (g *generator) message() {
	j := pick(g, g.jobs...)
	msg := message{Queue: j.queue, Set: j.set, Publish: g.now}
	if g.chance(0.01) {
		msg.Queue = "b"
	}
	g.steps(&msg, j, 1+g.IntN(3))
	for _, other := range g.jobs {
		if other != j && other.queue == j.queue && other.set == j.set && g.chance(0.3) {
			g.steps(&msg, other, 1+g.IntN(2))
		}
	}
	for i := range msg.Events {
		t := g.now
		switch p := g.Float64(); {
		case p < 0.1:
			t += pick(g, int64(-1), 1, -ms, ms, 300*ms, -second)
		case p < 0.13: // a clock that is wrong, up to what is believed, and beyond
			t += pick(g, -5*minute, 5*minute, 5*minute+1, -6*minute, 400*24*hour, -400*24*hour)
		}
		msg.Events[i].T = t
	}
	g.emit(msg)
}

// steps adds what happens next to a job.
func (g *generator) steps(msg *message, j *life, n int) {
	add := func(e event) {
		e.Job = j.id
		if e.Run == "" && e.Kind != "SubmitJob" && j.runs > 0 {
			e.Run = fmt.Sprintf("%s-run-%d", j.id, j.runs-1)
		}
		msg.Events = append(msg.Events, e)
	}
	for ; n > 0; n-- {
		switch {
		case !j.submitted && !g.chance(0.03):
			j.submitted = true
			add(event{Kind: "SubmitJob", Grace: pick(g, int64(0), 1, 30, 400), FailFast: g.chance(0.02)})
		case !j.live:
			switch p := g.Float64(); {
			case p < 0.25 && j.runs > 0:
				g.order(add, j)
			case p < 0.33 && j.runs > 0: // the pod is gone, or something is said again
				add(pick(g, event{Kind: "JobRunTerminated"}, event{Kind: "JobRunTerminated"}, event{Kind: "JobRunSucceeded"}, event{Kind: "JobRunErrors", Error: g.failure()}))
			case p < 0.34:
				add(pick(g, event{Kind: "CancelJob"}, event{Kind: "CancelledJob"}, event{Kind: "CancelJobSet"}, event{Kind: "CancelledJob"}, event{Kind: "JobSucceeded"},
					event{Kind: "JobErrors", Error: failed{Kind: "other"}}, event{Kind: "JobErrors", Error: failed{Kind: "other"}}, event{Kind: "JobErrors", Error: failed{Kind: "rejected"}}))
			default:
				j.runs++
				j.live = true
				add(pick(g, event{Kind: "JobRunLeased", Node: pick(g, "n1", "n2", "n3")}, event{Kind: "JobRunLeased"}, event{Kind: "JobRunRunning", Node: "n2"}))
			}
		default: // the next run begins in another message, mostly
			j.live = false
			if g.chance(0.95) {
				n = 0
			}
			switch p := g.Float64(); {
			case p < 0.06:
				add(event{Kind: "JobRunSucceeded"})
				if g.chance(0.5) {
					add(event{Kind: "JobSucceeded"})
				}
				if g.chance(0.5) { // its id begins a new life once the job is forgotten
					j.submitted = false
				}
			case p < 0.14:
				add(event{Kind: "JobRunPreempted"})
				if g.chance(0.5) {
					add(event{Kind: "JobRunErrors", Error: g.failure()})
				}
			case p < 0.18:
				j.live = true
				g.order(add, j)
			case p < 0.22:
				j.live = true
				add(event{Kind: "JobRunRunning", Node: pick(g, "", "n1")})
			case p < 0.24: // before its failure
				j.live = true
				add(event{Kind: "JobRunTerminated"})
			default:
				e := event{Kind: "JobRunErrors", Error: g.failure()}
				switch {
				case g.chance(0.05):
					e.Error.NotTerminal, e.Error.Second = true, true
				case g.chance(0.03):
					e.Error.NotTerminal = true
				case g.chance(0.05):
					e.Error.Second = true
				}
				add(e)
				for g.chance(0.06) {
					add(event{Kind: "JobRunErrors", Error: g.failure()})
				}
				if g.chance(0.1) {
					g.order(add, j)
				}
			}
		}
	}
}

func (g *generator) failure() failed {
	f := failed{Kind: pick(g, "pod", "pod", "pod", "pod", "pod", "returned", "unattempted", "expired", "preempted", "other")}
	if g.chance(0.8) {
		f.Category = pick(g, "net", "net", "disk", "internal")
	}
	if g.chance(0.4) {
		f.Subcategory = pick(g, "dns", "tls", "pod-missing")
	}
	if g.chance(0.6) {
		f.Exit = 137
	}
	return f
}

func (g *generator) order(add func(event), j *life) {
	e := event{Kind: "JobOrder", Order: order{Action: pick(g, "Retry", "Retry", "Start", "Start", "Start", "GiveUp")}}
	switch p := g.Float64(); {
	case p < 0.75:
		g.orders++
		e.Order.ID = fmt.Sprintf("new-%d", g.orders)
	default:
		e.Order.ID = fmt.Sprintf("again-%d", g.IntN(20))
	}
	if g.chance(0.03) {
		e.Order.ID = ""
	}
	if g.chance(0.03) {
		e.Order.Action = "Other"
	}
	if e.Order.Action == "Start" && g.chance(0.5) {
		e.Order.NotBefore = g.now + pick(g, -hour, 0, 1, second, hour)
	}
	if j.runs > 1 && g.chance(0.1) {
		e.Run = fmt.Sprintf("%s-run-%d", j.id, g.IntN(j.runs))
	}
	if j.runs == 0 {
		e.Run = "none"
	}
	add(e)
}
