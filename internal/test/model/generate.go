package model

import (
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// Options widens what Generate makes. The zero value keeps to what semantics.md
// says without doubt.
type Options struct {
	Changes     bool // the policy set changes between messages, up to three times
	Lint        bool // rules that can never match: onConditions of the pod with a containerName
	Republished bool // jobs and runs in Armada's tables are republished
	Versions    bool // the version of the semantics changes between messages, up to twice
	Budgets     bool // there are retry budgets, and the newest version early
	Extremes    bool // delays that lead past the last time of int64 nanoseconds
}

// History is one partition's messages and the policy set for them.
type History struct {
	Seed     uint64
	Policies Policies
	Changes  []Change  // in order; empty unless Options.Changes
	Versions []Version // in order; empty unless Options.Versions
	Messages []Message
	Divided  int // partitions of events, by which floors of budgets are divided; 0: unknown

	split bool
}

// Change is a policy set that holds from before the message with this index on.
type Change struct {
	Before   int
	Policies Policies
}

// Version is a version of the semantics that holds from before the message with this
// index on. Before the first one it is version 1.
type Version struct{ Before, Number int }

// YAML renders the policy set as files in the format of §13.
func (h History) YAML() []File { return h.Policies.YAML(h.split) }

// Run gives the model's records, one slice for each message, and the model.
func (h History) Run() ([][]Record, *Model) { return h.run(nil) }

// run is Run without some features.
func (h History) run(without []feature) ([][]Record, *Model) {
	m := New(h.Policies)
	m.without, m.divided = without, h.Divided
	var records [][]Record
	changes := h.Changes
	for i, msg := range h.Messages {
		for len(changes) > 0 && changes[0].Before == i {
			m.Use(changes[0].Policies)
			changes = changes[1:]
		}
		for _, v := range h.Versions {
			if v.Before == i {
				m.UseVersion(v.Number)
			}
		}
		records = append(records, m.Step(msg))
	}
	return records, m
}

// base is about when histories happen.
var base = time.Date(2026, 8, 21, 12, 0, 0, 0, time.UTC).UnixNano()

// generator is the state of one generation.
type generator struct {
	*rand.Rand
	o Options
	// later draws fields that policies got later: the histories of a seed stay what they are.
	later *generator

	policies   Policies
	horizon    int64 // nanoseconds
	jobs       []*plannedJob
	sharedRuns bool  // runs of several jobs have the same ids
	calm       bool  // little goes wrong but the runs, so that budgets get used up
	now        int64 // Unix nanoseconds
	position   Message
	messages   []Message
}

// plannedJob is a job id of a history, with what is still to be said of it.
type plannedJob struct {
	id         string
	queue, set string
	runs       int // run ids given out
	steps      []step
}

// step is one event to come. glued: in the message of the one before; apart:
// not there.
type step struct {
	event *pb.Event
	glued bool
	apart bool
}

// Generate makes a history from a seed. The same seed and options give the same
// history, byte for byte.
func Generate(seed uint64, o Options) History {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x5eed)), later: laterFields(seed), o: o}
	h := History{Seed: seed, split: g.chance(0.5)}
	g.now = base + g.Int64N(int64(time.Hour))
	g.calm = g.chance(0.4)
	h.Policies = g.policySet()
	g.policies = h.Policies
	g.horizon = g.policies.horizonMs() * int64(time.Millisecond)
	g.sharedRuns = g.chance(0.4)
	g.position = Message{Ledger: 1 + g.Int64N(100), Batch: -1}

	for i := range 1 + g.IntN(6) {
		j := &plannedJob{id: "01job" + string(rune('a'+i)), queue: pick(g, queueNames), set: pick(g, setNames)}
		g.life(j)
		g.jobs = append(g.jobs, j)
	}

	n := 5 + g.IntN(56)
	if g.chance(0.02) {
		n = 200 + g.IntN(300)
	}
	for len(g.messages) < n {
		if o.Changes && len(h.Changes) < 3 && g.chance(1.5/float64(n)) {
			next := g.changed(g.policies)
			h.Changes = append(h.Changes, Change{Before: len(g.messages), Policies: next})
			g.policies = next
			g.horizon = g.policies.horizonMs() * int64(time.Millisecond)
		}
		g.message()
	}
	h.Messages = g.messages
	if o.Versions { // from a stream of its own, so that the rest of the history stays
		rng := rand.New(rand.NewPCG(seed, 0x5e3a))
		h.Versions = []Version{{Before: rng.IntN(n + 1), Number: []int{2, NewestVersion}[rng.IntN(2)]}}
	}
	if o.Budgets {
		b := newBudgetGenerator(seed)
		h.Versions, h.Divided = []Version{{Before: b.IntN(1 + n/8), Number: BudgetsVersion}}, b.IntN(4)
		h.Policies.Budgets = b.budgets(nil)
		for i := range h.Changes {
			h.Changes[i].Policies.Budgets = b.budgets(h.Policies.Budgets)
		}
	}
	return h
}

func (g *generator) chance(p float64) bool { return g.Float64() < p }

// odd is chance, but less likely in a calm history.
func (g *generator) odd(p float64) bool {
	if g.calm {
		p /= 8
	}
	return g.chance(p)
}

func laterFields(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 0x1a7e))}
}

func pick[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

// some picks n different elements, in any order.
func some[T any](g *generator, list []T, n int) []T {
	list = slices.Clone(list)
	g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(n, len(list))]
}

// elapse lets time pass: mostly little, sometimes so much that things are forgotten.
func (g *generator) elapse() {
	p := g.Float64()
	if g.calm && g.chance(0.8) {
		p = min(p, 0.9)
	}
	switch {
	case p < 0.74:
		g.now += g.Int64N(int64(3 * time.Second))
	case p < 0.93:
		g.now += g.Int64N(int64(2 * time.Minute))
	case p < 0.965:
		g.now += g.Int64N(g.horizon + g.horizon/2 + 1)
	case p < 0.985:
		g.now += g.Int64N(g.horizon*9 + 1)
	default:
		g.now -= g.Int64N(int64(30 * time.Second)) // another broker's clock
	}
}

// next moves on in the partition.
func (g *generator) next() {
	p := &g.position
	switch {
	case g.chance(0.1):
		p.Ledger, p.Entry, p.Batch = p.Ledger+1+g.Int64N(3), 0, -1
	case p.Batch >= 0 && g.chance(0.7):
		p.Batch++
		return
	default:
		p.Entry += 1 + g.Int64N(2)
		p.Batch = -1
	}
	if g.chance(0.3) {
		p.Batch = 0
	}
}

// message appends one message.
func (g *generator) message() {
	g.elapse()
	g.next()
	if len(g.messages) > 0 && g.chance(0.04) {
		// A whole message again: its producer did not hear that it arrived.
		again := g.messages[len(g.messages)-1-g.IntN(min(6, len(g.messages)))]
		publish := again.Publish
		if g.chance(0.5) {
			publish = g.now
		}
		g.emit(again.Payload, publish)
		return
	}

	j := g.waiting()
	seq := &pb.EventSequence{Queue: j.queue, JobSetName: j.set}
	if g.odd(0.04) {
		seq.Queue, seq.JobSetName = pick(g, queueNames), pick(g, setNames)
	}
	g.take(seq, j, 1+g.IntN(4))
	for _, other := range g.jobs {
		// Armada compacts the events of one set into one message.
		same := other != j && other.queue == j.queue && other.set == j.set
		if same && g.chance(0.4) || g.chance(0.02) {
			g.take(seq, other, 1+g.IntN(3))
		}
	}
	for g.odd(0.12) {
		ev := g.noise(pick(g, g.jobs))
		at := g.IntN(len(seq.Events) + 1)
		seq.Events = slices.Insert(seq.Events, at, ev)
	}
	publish := g.now
	g.clocks(seq, publish)
	g.mangleEvents(seq)
	// Deterministic: the order of a map's members would differ from run to run.
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(seq)
	if err != nil {
		panic(err)
	}
	g.emit(g.manglePayload(payload), publish)
}

func (g *generator) emit(payload []byte, publish int64) {
	msg := g.position
	msg.Publish, msg.Payload = publish, payload
	g.messages = append(g.messages, msg)
}

// waiting picks a job that still has something to come; when none has, one of
// them lives on.
func (g *generator) waiting() *plannedJob {
	var jobs []*plannedJob
	for _, j := range g.jobs {
		if len(j.steps) > 0 {
			jobs = append(jobs, j)
		}
	}
	if len(jobs) > 0 {
		return pick(g, jobs)
	}
	j := pick(g, g.jobs)
	if g.chance(0.4) {
		j.queue = pick(g, queueNames) // the id again, in another queue
	}
	if g.chance(0.3) {
		j.runs = 0
	}
	g.life(j)
	return j
}

// take moves at least n of a job's steps into a message, if there are so many.
func (g *generator) take(seq *pb.EventSequence, j *plannedJob, n int) {
	for first := true; len(j.steps) > 0 && (n > 0 || j.steps[0].glued); first = false {
		if j.steps[0].apart && !first {
			return
		}
		seq.Events = append(seq.Events, j.steps[0].event)
		j.steps = j.steps[1:]
		n--
	}
}

// clocks sets the created of all events.
func (g *generator) clocks(seq *pb.EventSequence, publish int64) {
	skew := int64(0) // of this message's producer
	if g.chance(0.1) {
		skew = g.Int64N(int64(20*time.Minute)) - int64(10*time.Minute)
	}
	for _, ev := range seq.Events {
		t := publish - g.Int64N(int64(4*time.Second)) + skew
		created := &pb.Timestamp{Seconds: t / 1e9, Nanos: int32(t % 1e9)}
		switch p := g.Float64(); {
		case p < 0.06:
			created = nil
		case p < 0.08:
			created = &pb.Timestamp{}
		case p < 0.10:
			created.Seconds += g.Int64N(6*3600) - 3*3600
		case p < 0.105:
			created.Seconds = -created.Seconds
		case p < 0.11:
			created.Seconds = pick(g, []int64{1<<63 - 1, -1 << 63, 253402300800})
		case p < 0.12:
			created.Nanos = pick(g, []int32{-1, 1<<31 - 1, -1 << 31, 1_000_000_000})
		case p < 0.14: // at the very edge of what is believed
			created.Seconds = (publish + pick(g, []int64{-300, 300})*1e9) / 1e9
			created.Nanos = int32(publish%1e9) + pick(g, []int32{-1, 0, 1})
		}
		ev.Created = created
	}
}
