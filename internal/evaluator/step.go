package evaluator

import (
	"errors"
	"slices"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// Rules is a policy set with its generation in the policies log.
type Rules struct {
	Generation uint64 // 0: none has been published
	Set        *policy.Set
}

// Progress is the progress of a processor. All of it follows from the chain.
type Progress struct {
	Decisions  uint64     // number of the last decision
	Running    chain.Hash // over the bytes of all records that follow from input
	Generation uint64     // of the policies in force; 0: none has been activated
	PolicySet  [32]byte   // their digest
	Semantics  uint32     // version in force; 0: none has been named yet
	Partitions uint32     // of events, at the last claim; 0: there was none
}

// Processor is the pure core for one partition. Before Step is called, Rules must be
// those that Progress names; Replay does not need them.
type Processor struct {
	Progress Progress
	State    *projection.State
	Rules    Rules
	// RecordsOnly is set by a caller that needs neither the bytes of records nor the running hash over them: there are none.
	RecordsOnly bool

	decoder events.Decoder
	failure policy.Failure
	counts  policy.Counts
	out     Output
	buf     []byte           // of out.Bytes
	slab    []chain.Decision // the decisions of out.Records

	// Of the current message.
	seq  *events.Sequence // nil: it is parked
	at   eventlog.Position
	form Form
	made []*chain.Decision

	asked *policy.BudgetUse // by the current decision; nil: no budget was
}

// Output is the result of one message: records and, at the same index, their bytes.
// It is valid until the next message is processed.
type Output struct {
	Records []chain.Record
	Bytes   [][]byte
}

// ErrDiverged means that the decision log has something else for a message than folding
// gives. The log, the input or this program has changed.
var ErrDiverged = errors.New("decision log does not fit its input")

// Step folds a message and decides the runs that failed in it.
func (p *Processor) Step(m *eventlog.Message) (*Output, error) { return p.StepAs(InFull, m) }

// StepAs is Step, with the records in a form.
func (p *Processor) StepAs(form Form, m *eventlog.Message) (*Output, error) {
	return &p.out, p.process(form, m, policies{p})
}

// StepDecoded is Step for a message of which seq is what a Decoder reads: it needs no payload, unless an event is parked.
func (p *Processor) StepDecoded(m *eventlog.Message, seq *events.Sequence) (*Output, error) {
	p.begin(InFull, m)
	return &p.out, p.fold(m, seq, policies{p})
}

// Events returns the message that was processed last, until the next one is; nil: it was
// parked.
func (p *Processor) Events() *events.Sequence { return p.seq }

// Activate applies the activations at the front of an envelope, or its claim.
func (p *Processor) Activate(records []chain.Record) {
	for _, r := range records {
		switch r := r.(type) {
		case *chain.PolicyActivated:
			p.Progress.Generation, p.Progress.PolicySet = r.Generation, r.Digest
			p.State.Horizon = r.HorizonMS * 1e6
			p.State.SetBudgets(r.Budgets)
			p.State.Recheck()
		case *chain.SemanticsActivated:
			p.Progress.Semantics = r.Version
		case *chain.OwnerClaim:
			p.Progress.Partitions = r.Partitions
		}
	}
}

// process turns a message into records. A message that cannot be decoded is parked.
func (p *Processor) process(form Form, m *eventlog.Message, q projection.Questions) error {
	p.begin(form, m)
	seq, err := p.decoder.Decode(m.Payload)
	if err != nil {
		reason := events.NotProtobuf
		if u := (*events.Unreadable)(nil); errors.As(err, &u) {
			reason = u.Reason
		}
		p.emit(p.parked(&chain.Parked{Position: p.at, Reason: reason, Raw: m.Payload}))
		return nil
	}
	if form == Refused {
		p.emit(p.parked(&chain.Parked{Position: p.at, Reason: events.TooLarge, Raw: m.Payload}))
		return nil
	}
	return p.fold(m, seq, q)
}

// begin forgets what became of the message before.
func (p *Processor) begin(form Form, m *eventlog.Message) {
	if p.out.Records == nil {
		p.out = Output{make([]chain.Record, 0, slabSize), make([][]byte, 0, slabSize)}
		p.made = make([]*chain.Decision, 0, slabSize)
	}
	p.out.Records, p.out.Bytes, p.buf = p.out.Records[:0], p.out.Bytes[:0], p.buf[:0]
	p.slab, p.made = p.slab[:0], p.made[:0]
	p.seq, p.at, p.form = nil, m.OriginPosition(), form
}

// fold folds what was read of a message, and makes the records.
func (p *Processor) fold(m *eventlog.Message, seq *events.Sequence, q projection.Questions) error {
	p.seq = seq
	seq.Resolve(m.OriginPublish())
	if err := p.State.Process(seq, featuresOf(&p.Progress), q); err != nil {
		return err
	}
	p.record()
	return nil
}

// policies answers projection.Questions by the policies in force.
type policies struct{ *Processor }

func (p policies) Decide(f *projection.Failure) (projection.Decided, error) {
	d, r := p.decide(f)
	out := p.decided(d)
	if m := out.Member; m != nil {
		m.Base, m.Latest = r.base, r.latest
		if v := m.Verdict; v != nil {
			v.Base, v.Together = r.base, r.together
		}
	}
	return out, nil
}

func (p policies) decide(f *projection.Failure) (d *chain.Decision, r restart) {
	factsOf(&p.failure, f, p.Progress.Semantics)
	countsOf(&p.counts, f.Job)
	p.asked = nil
	var v policy.Verdict
	var unit *chain.GroupVerdict
	if f.Member == nil {
		if v = p.Rules.Set.Evaluate(&p.failure, &p.counts); !p.held(&v) {
			v = p.budgeted(v)
		}
	} else {
		v, unit, r = p.decideMember(f)
	}
	if len(p.slab) == cap(p.slab) { // existing decisions stay in the old slab
		p.slab = make([]chain.Decision, 0, max(slabSize, 2*cap(p.slab)))
	}
	p.slab = p.slab[:len(p.slab)+1]
	d = &p.slab[len(p.slab)-1]
	*d = chain.Decision{
		Requeue: v.Requeue, Number: p.Progress.Decisions + 1, Position: p.at,
		Queue: f.Job.Queue, JobSet: f.Job.Set, JobID: f.JobID, RunID: f.RunID, RunIndex: f.Run.Index, Time: f.Time,
		Code: v.Code, Policy: v.Policy, Rule: v.Rule,
		LimitFrom: v.LimitFrom, RuleUsed: v.RuleUsed, RuleLimit: v.RuleLimit,
		GlobalUsed: v.GlobalUsed, GlobalLimit: v.GlobalLimit,
		Container: v.Container, Matcher: v.Matcher, Skipped: v.Skipped, Shadow: v.Shadow,
		Generation: p.Progress.Generation, PolicySet: p.Progress.PolicySet,
	}
	if v.Key.Rule != v.Rule {
		d.RuleID = v.Key.Rule
	}
	if v.Requeue {
		d.DelayMS = v.Delay.Milliseconds()
		d.RetryAfter, d.ReadyAfter = v.RetryAfter, v.ReadyAfter
		d.PodName = policy.PodName(f.JobID, nextRunIndex(p.Progress.Semantics, f), p.Rules.Set.Enabled())
		own := avoided(v.Avoid, f)
		d.AvoidNodes, d.NodesLeftOut = boundAvoided(p.Progress.Semantics, own)
		avoidAlso(d, own, p.Rules.Set.AvoidNodes())
	}
	d.Budget = p.useOf(v.Code)
	if f.Member != nil {
		d.Group = unit
		d.Member = memberOf(f.Job, f.Member.Generation(memberDecided(d)))
	}
	return d, r
}

const slabSize = 16

// avoided returns the nodes that the next run must avoid (semantics.md 7).
func avoided(mode policy.AvoidMode, f *projection.Failure) []string {
	switch mode {
	case policy.AvoidNode:
		if f.Node != "" {
			return []string{f.Node}
		}
	case policy.AvoidAllNodes:
		return f.Job.FailedNodes
	case policy.AvoidNone:
	}
	return nil
}

// avoidAlso adds the nodes that the settings have a retry avoid besides its own, while there is room for them
// (semantics.md 7).
func avoidAlso(d *chain.Decision, own []string, nodes []policy.AvoidedNode) {
	d.AvoidNodes = slices.Clip(d.AvoidNodes) // they are the job's
	for i := range nodes {
		switch n := &nodes[i]; {
		case n.Until <= d.Time || slices.Contains(own, n.Name):
		case len(d.AvoidNodes) >= maxAvoided:
			d.NodesLeftOut++
		default:
			d.AvoidNodes = append(d.AvoidNodes, n.Name)
		}
	}
}

// decided counts a decision of the current message.
func (p *Processor) decided(d *chain.Decision) projection.Decided {
	p.Progress.Decisions = d.Number
	p.made = append(p.made, d)
	return decided(d)
}

// decided returns what the projection needs from a decision, whether it was just made or
// is in the log.
func decided(d *chain.Decision) projection.Decided {
	out := projection.Decided{Requeue: d.Requeue, Shadow: d.Shadow, RetryAfter: d.RetryAfter, ReadyAfter: d.ReadyAfter}
	switch d.Code {
	case policy.RuleRetry, policy.DefaultRetry, policy.GangRetry, policy.RuleIgnore:
		out.Ignored = d.Code == policy.RuleIgnore || d.Code == policy.GangRetry && d.LimitFrom == policy.FromNowhere
		out.Policy, out.Rule = d.Policy, d.Rule
		if d.RuleID != "" {
			out.Rule = d.RuleID
		}
	default: // the other codes do not count
	}
	if d.Member != nil {
		out.Member = memberDecided(d)
	}
	return out
}

// Recount counts an earlier decision on a job as Step did when it was made.
func Recount(job *projection.Job, d *chain.Decision) {
	if in := decided(d); in.Requeue && in.Rule != "" {
		job.Grant(in.Policy, in.Rule, in.Ignored)
	}
}
