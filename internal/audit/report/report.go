// Package report verifies the partitions of a deployment's logs, in parallel, and
// describes the result in a form that can be signed and handed on.
//
// A report names the digests of what was verified: the hash of the last envelope, which
// stands for the whole chain, and the running hash over all records. Whoever has a report
// can find out later whether a log is still the one that it is about (Compare), even if
// somebody wrote all of the log anew with all its checksums.
package report

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policylog"
)

// Format names the format of a report. Fields may be added to it.
const Format = "refloat.verification/v1"

// Report is the result of verifying the logs of a deployment.
type Report struct {
	Report     string      `json:"report"` // Format
	Verified   bool        `json:"verified"`
	Created    string      `json:"created"` // RFC 3339, by the clock of the machine
	Program    string      `json:"program"` // its version
	Semantics  uint32      `json:"newestSemantics"`
	Source     string      `json:"source"`
	Partitions []Partition `json:"partitions"`
	Policies   []PolicySet `json:"policies"` // those that were in force
	Messages   uint64      `json:"messages"`
	Envelopes  uint64      `json:"envelopes"`
	Decisions  uint64      `json:"decisions"`                 // derived again
	Linked     uint64      `json:"decisionsLinked,omitempty"` // only their hashes were checked (Unknown)
	Given      uint64      `json:"decisionsGiven,omitempty"`  // they were not read: checkpoints contain them
	Waiting    uint64      `json:"messagesNotDecided"`
	Problem    string      `json:"problem,omitempty"` // why there are no partitions: a log is too damaged to be opened
}

// Partition is what was verified of one partition.
type Partition struct {
	Partition   int               `json:"partition"`
	Verified    bool              `json:"verified"`
	Begin       Point             `json:"begin"` // what came before was not verified, but taken from a checkpoint
	End         Point             `json:"end"`
	Messages    uint64            `json:"messages"`
	Envelopes   uint64            `json:"envelopes"`
	Epochs      uint64            `json:"epochs"`
	Records     map[string]uint64 `json:"records"`
	Decisions   uint64            `json:"decisions"` // derived again
	Given       uint64            `json:"decisionsGiven,omitempty"`
	Decided     uint64            `json:"lastDecision"` // its number
	RunningHash string            `json:"runningHash"`  // over all records that follow from input, from the first one on
	Generation  uint64            `json:"generation"`   // of the policies in force at the end
	Generations []Activation      `json:"generations"`
	Semantics   []Activation      `json:"semantics"`
	Ignored     map[string]uint64 `json:"ignored"`
	Waiting     uint64            `json:"messagesNotDecided"`
	Unknown     *Unknown          `json:"unknown,omitempty"`
	Difference  *Difference       `json:"difference,omitempty"`
}

// Point is a position in a partition's chain.
type Point struct {
	Envelope  uint64 `json:"envelope"` // 0: before the first one
	Link      string `json:"link"`     // its hash, which stands for the whole chain up to it
	Events    string `json:"events"`   // position of the last message that it covers
	Decisions string `json:"decisions,omitempty"`
}

// Activation is a policy generation or a version of the semantics that was put in force.
type Activation struct {
	Envelope uint64 `json:"envelope"`
	Number   uint64 `json:"number"`
	Digest   string `json:"digest,omitempty"` // of the policy set
}

// PolicySet is a policy generation that was in force.
type PolicySet struct {
	Generation uint64 `json:"generation"`
	Digest     string `json:"digest"`
}

// Unknown are messages that could not be verified, because an operator acknowledged
// that earlier events are lost. What answers them is linked into the chain, and was not derived again.
type Unknown struct {
	Messages  uint64 `json:"messages"`
	Envelopes uint64 `json:"envelopes"`
	Decisions uint64 `json:"decisions"`
	UpTo      string `json:"eventsUpTo"`
	By        string `json:"acknowledgedBy"`
}

// Difference is the first difference of a partition.
type Difference struct {
	Kind      audit.Kind              `json:"kind"`
	Envelope  uint64                  `json:"envelope,omitempty"`
	Decisions string                  `json:"decisions,omitempty"` // position of the envelope
	Event     string                  `json:"event,omitempty"`     // position of the input message
	Text      string                  `json:"text"`
	Logged    any                     `json:"logged,omitempty"`  // the record as the log has it
	Derived   any                     `json:"derived,omitempty"` // and as deciding again gives it
	Fields    []audit.FieldDifference `json:"fields,omitempty"`
}

// Options says what to verify, and how the report names it.
type Options struct {
	Created, Program, Source string
	// Parallel is the number of partitions verified at once; 0: one.
	Parallel int
	// AllowWaiting: messages that are not decided yet do not count as a difference.
	AllowWaiting bool
	// Until holds the envelope up to which a partition is verified; partitions that it does
	// not name are left out. nil: all partitions, to their ends.
	Until map[int]uint64
	// From returns the state from which a partition is verified, and what closes it; nil:
	// from the beginning.
	From func(ctx context.Context, partition int) (*audit.Start, func() error, error)
	// Progress, if set, is called now and then. It is not called concurrently.
	Progress func(Progress)
}

// Progress is how far a verification has come.
type Progress struct {
	Messages uint64
	// Share is the share of the events that have been read, in thousandths; -1: unknown.
	Share int
}

// Damaged is the report on logs that cannot be opened because they are damaged.
func Damaged(err error, o Options) *Report {
	r := newReport(o)
	r.Verified, r.Problem = false, err.Error()
	return r
}

func newReport(o Options) *Report {
	return &Report{
		Report: Format, Verified: true, Created: o.Created, Program: o.Program, Semantics: chain.NewestSemantics, Source: o.Source,
		Partitions: []Partition{}, Policies: []PolicySet{},
	}
}

// Make verifies logs. Differences are in the report; its error is that of logs that cannot
// be read.
func Make(ctx context.Context, logs audit.Logs, o Options) (*Report, error) {
	r := newReport(o)
	n := logs.Events.Partitions()
	shared := policylog.NewShared(logs.Policies)
	defer shared.Close()
	parts := make([]*Partition, n)
	bar := newMeter(logs.Events, n, o.Progress)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, o.Parallel))
	for p := range n {
		until, wanted := o.Until[p]
		if o.Until != nil && !wanted {
			continue
		}
		group.Go(func() (err error) {
			policies := shared.Follow()
			defer policies.Close()
			opt := audit.Options{Until: until, Policies: policies, Progress: bar.of(p)}
			if o.From != nil {
				from, closeState, err := o.From(groupCtx, p)
				if err != nil {
					return fmt.Errorf("partition %d: %w", p, err)
				}
				opt.From = from
				defer func() { err = errors.Join(err, closeState()) }()
			}
			v, err := audit.VerifyRange(groupCtx, logs, p, opt)
			if err != nil && !isDifference(err) {
				return fmt.Errorf("partition %d: %w", p, err)
			}
			parts[p] = partitionOf(p, &v, err)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, part := range parts {
		if part != nil {
			r.add(part, o.AllowWaiting)
		}
	}
	return r, nil
}

func isDifference(err error) bool { _, ok := audit.KindOf(err); return ok }

// add adds a partition. Each policy set is named once.
func (r *Report) add(p *Partition, allowWaiting bool) {
	r.Partitions = append(r.Partitions, *p)
	r.Verified = r.Verified && p.Verified && (p.Waiting == 0 || allowWaiting)
	r.Messages, r.Envelopes, r.Waiting = r.Messages+p.Messages, r.Envelopes+p.Envelopes, r.Waiting+p.Waiting
	r.Decisions, r.Given = r.Decisions+p.Decisions, r.Given+p.Given
	if p.Unknown != nil {
		r.Linked += p.Unknown.Decisions
	}
	for _, g := range p.Generations {
		set := PolicySet{g.Number, g.Digest}
		at := 0
		for at < len(r.Policies) && r.Policies[at].Generation < set.Generation {
			at++
		}
		if at == len(r.Policies) || r.Policies[at] != set {
			r.Policies = append(r.Policies[:at], append([]PolicySet{set}, r.Policies[at:]...)...)
		}
	}
}

func partitionOf(p int, v *audit.Verified, err error) *Partition {
	out := &Partition{
		Partition: p, Verified: err == nil, Begin: pointOf(v.Begin), End: pointOf(v.End), Messages: v.Messages, Envelopes: v.Envelopes, Epochs: v.Claims,
		Records: v.Records, Given: v.Given, Decided: v.Progress.Decisions, RunningHash: v.Progress.Running.String(), Generation: v.Progress.Generation,
		Generations: activations(v.Generations), Semantics: activations(v.Semantics), Ignored: map[string]uint64{}, Waiting: v.Waiting,
	}
	if v.Decisions != eventlog.Start {
		out.End.Decisions = v.Decisions.String()
	}
	for why, n := range v.Ignored {
		out.Ignored[why.String()] = n
	}
	if err == nil {
		out.Decisions = v.Again()
	}
	if v.Unknown > 0 {
		out.Unknown = &Unknown{v.Unknown, v.LinkedEnvelopes, v.LinkedDecisions, v.RebuiltFrom.String(), v.RebuiltBy}
	}
	if d, ok := errors.AsType[*audit.Difference](err); ok {
		out.Difference = &Difference{
			Kind: d.Kind, Envelope: d.Envelope, Text: err.Error(), Logged: audit.Shown(p, d.Logged), Derived: audit.Shown(p, d.Derived), Fields: d.Fields,
		}
		if d.At != eventlog.Start {
			out.Difference.Decisions = d.At.String()
		}
		if d.Event != eventlog.Start {
			out.Difference.Event = d.Event.String()
		}
	}
	return out
}

func pointOf(e chain.End) Point {
	return Point{Envelope: e.Seq, Link: e.Link.String(), Events: e.InTo.String()}
}

func activations(in []audit.Activation) []Activation {
	out := make([]Activation, len(in))
	for i, a := range in {
		out[i] = Activation{Envelope: a.Envelope, Number: a.Number}
		if a.Digest != [32]byte{} {
			out[i].Digest = hex.EncodeToString(a.Digest[:])
		}
	}
	return out
}

// meter adds up the progress of all partitions.
type meter struct {
	mu       sync.Mutex
	report   func(Progress)
	messages []uint64
	share    []int
	ends     []eventlog.Position
}

func newMeter(events eventlog.Topic, n int, report func(Progress)) *meter {
	m := &meter{report: report, messages: make([]uint64, n), share: make([]int, n), ends: make([]eventlog.Position, n)}
	for p := range n {
		end, err := events.End(p)
		if err != nil {
			end = eventlog.Start
		}
		m.ends[p] = end
	}
	return m
}

// of returns what takes the progress of a partition.
func (m *meter) of(p int) func(*audit.Verified) {
	if m.report == nil {
		return nil
	}
	return func(v *audit.Verified) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.messages[p], m.share[p] = v.Messages, share(v.End.InTo, m.ends[p])
		out := Progress{}
		for i, n := range m.messages {
			out.Messages += n
			if m.share[i] < 0 || out.Share < 0 {
				out.Share = -1
				continue
			}
			out.Share += m.share[i]
		}
		if out.Share >= 0 {
			out.Share /= len(m.messages)
		}
		m.report(out)
	}
}

// share estimates how much of a log lies before a position, in thousandths. Entries count
// messages only within a ledger.
func share(at, end eventlog.Position) int {
	if at.Ledger != end.Ledger || end.Entry <= 0 {
		return -1
	}
	return int(min(1000, max(0, at.Entry)*1000/end.Entry))
}
