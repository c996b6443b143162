package sink

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// ErrUnmatched means that an accepted envelope has a record for none of its messages.
// Its writer read a different input than we do.
var ErrUnmatched = errors.New("record answers no message of its envelope")

// Message is one message of events with the records for it.
type Message struct {
	Seq         uint64 // of the envelope
	FirstRecord uint32 // index of the first record in the envelope
	Log         eventlog.Message
	Events      *events.Message // nil: it could not be decoded, and there is a record of that
	Records     []chain.Record

	// Released: it is applied before it was decided; Records is empty.
	Released bool
	// Superseded: it was released before, so its events are already applied and its
	// Records come too late.
	Superseded bool
	// What Apply found. Again: the indexes of its SubmitJobs for jobs that were known
	// before. Acted: for each record, whether it changed its job.
	Again []int
	Acted []bool
	// Mirrored is what Mirror.Read found in it.
	Mirrored any

	// Indexes over a message of many events, so that its cost does not grow with
	// the square of their number; nil until they are first used.
	failed    map[jobdb.RunKey]bool // the runs that its events name, and whether they report a failure
	decisions map[jobdb.RunKey]*chain.Decision
	bindings  map[string][]chain.Record // by job: why it is in a group, or in none
}

// fewEvents is the number of events or records up to which a message is scanned, which
// is cheaper than an index.
const fewEvents = 16

// Split divides an envelope and its input into what it puts in force, and each message
// with its records, in order. The messages stay valid. Those up to released, the
// position of the rows, are superseded. Records that answer messages which are not here,
// because another ingester applied them, are left out.
func Split(s *follow.Batch, partition int, released eventlog.Position) ([]*jobdb.Activation, []Message, error) {
	next := 0
	var acts []*jobdb.Activation
	for ; next < len(s.Records) && !s.Records[next].FromInput(); next++ {
		a := &jobdb.Activation{Partition: partition, Seq: s.Envelope.Seq, Record: uint32(next), From: s.Envelope.InFrom}
		switch r := s.Records[next].(type) {
		case *chain.PolicyActivated:
			a.Generation, a.Digest, a.HorizonMS = r.Generation, r.Digest, r.HorizonMS
		case *chain.SemanticsActivated:
			a.Semantics = r.Version
		default:
			continue
		}
		acts = append(acts, a)
	}
	messages := make([]Message, len(s.Messages))
	for i := range s.Messages {
		m := &messages[i]
		m.Seq, m.Log = s.Envelope.Seq, s.Messages[i]
		m.Superseded = m.Log.Position.Compare(released) <= 0
		m.Events = readable(&m.Log)
	}
	for i := 0; next < len(s.Records); next++ {
		if at, ok := chain.PositionOf(s.Records[next]); ok && at.Compare(s.Origin) <= 0 {
			continue // its message is not here: someone else took it in
		}
		if i = answered(messages, i, s.Records[next]); i < 0 {
			return nil, nil, fmt.Errorf("%w: record %d of envelope %d in partition %d", ErrUnmatched, next, s.Envelope.Seq, partition)
		}
		m := &messages[i]
		if len(m.Records) == 0 {
			m.FirstRecord = uint32(next)
		}
		m.Records = s.Records[next-len(m.Records) : next+1]
		if parked, ok := s.Records[next].(*chain.Parked); ok && parked.Reason == events.TooLarge {
			m.Events = nil // nothing of it was folded
		}
	}
	return acts, messages, nil
}

// Answered returns a message with records that no envelope holds, for a caller that only
// wants to know their effect on the rows.
func Answered(m *eventlog.Message, records []chain.Record) Message {
	return Message{Log: *m, Events: readable(m), Records: records}
}

// answered returns the index of the message, from i on, that a record belongs to, or -1:
// the first one at the record's position that causes such a record, else the first one at
// that position. Records are in the order of their messages. Only messages that were fed
// from several recordings can share a position, and then the cause distinguishes them,
// unless both name the same run (a failure in one and the proof of its end in the next):
// how many records each has depends on the evaluator's state, which is unknown here, and
// the first one gets them.
func answered(messages []Message, i int, r chain.Record) int {
	at, ok := chain.PositionOf(r)
	if !ok {
		return -1
	}
	first := -1
	for ; i < len(messages); i++ {
		if m := &messages[i]; m.Log.OriginPosition() == at {
			if m.causes(r) {
				return i
			}
			if first < 0 {
				first = i
			}
		}
	}
	return first
}

// causes reports whether the message causes such a record.
func (m *Message) causes(r chain.Record) bool {
	switch r := r.(type) {
	case *chain.Parked:
		if r.Event == 0 && r.Length > 0 {
			return r.Keeps(m.Log.Payload)
		}
		return (r.Event == 0) == (m.Events == nil) && bytes.Contains(m.Log.Payload, r.Raw)
	case *chain.Decision:
		return m.reports(r.JobID, r.RunID, true)
	case *chain.NotDecided:
		return m.reports(r.JobID, r.RunID, true)
	case *chain.RetryReady:
		return m.reports(r.JobID, r.RunID, false)
	case *chain.OrderAnswered:
		return m.orders(r.JobID, r.OrderID)
	case *chain.GroupBound:
		return m.submits(r.JobID)
	case *chain.GroupFinding:
		return m.submits(r.JobID)
	case *chain.MemberChange:
		if r.Change == chain.MemberJoined {
			return m.submits(r.JobID)
		}
		return m.isOf(r.Queue, r.JobSet)
	case *chain.UnitEnded:
		return m.isOf(r.Queue, r.JobSet)
	case *chain.GroupEnded:
		return m.isOf(r.Queue, r.JobSet)
	}
	return false
}

// submits reports whether the message submits a job.
func (m *Message) submits(job string) bool {
	return m.Events != nil && slices.ContainsFunc(m.Events.Events, func(ev events.Event) bool { return ev.Submit != nil && ev.JobID == job })
}

// isOf reports whether the message is one of a job set.
func (m *Message) isOf(queue, set string) bool {
	return m.Events != nil && m.Events.Queue == queue && m.Events.JobSet == set
}

// reports reports whether the message names a run, with a failure if requested.
func (m *Message) reports(job, run string, failure bool) bool {
	if m.Events == nil {
		return false
	}
	all := m.Events.Events
	if len(all) <= fewEvents {
		return slices.ContainsFunc(all, func(ev events.Event) bool {
			return ev.Kind.NamesRun() && ev.JobID == job && ev.RunID == run && (!failure || reportsFailure(&ev))
		})
	}
	if m.failed == nil {
		m.failed = make(map[jobdb.RunKey]bool)
		for i := range all {
			if ev := &all[i]; ev.Kind.NamesRun() {
				key := jobdb.RunKey{JobID: ev.JobID, RunID: ev.RunID}
				m.failed[key] = m.failed[key] || reportsFailure(ev)
			}
		}
	}
	failed, named := m.failed[jobdb.RunKey{JobID: job, RunID: run}]
	return named && (failed || !failure)
}

// reportsFailure reports whether an event reports the failure of the run that it names.
func reportsFailure(ev *events.Event) bool {
	return ev.Kind == events.RunPreempted || ev.Kind == events.RunErrors && ev.Error != nil
}

// decisionOn returns the message's decision on a run, in shadow or not; nil: there is none.
func (m *Message) decisionOn(job, run string) *chain.Decision {
	if len(m.Records) > fewEvents && m.decisions == nil {
		m.decisions = make(map[jobdb.RunKey]*chain.Decision, len(m.Records))
		for _, r := range m.Records {
			if d, ok := r.(*chain.Decision); ok {
				m.decisions[jobdb.RunKey{JobID: d.JobID, RunID: d.RunID}] = d
			}
		}
	}
	if m.decisions != nil {
		return m.decisions[jobdb.RunKey{JobID: job, RunID: run}]
	}
	for _, r := range m.Records {
		if d, ok := r.(*chain.Decision); ok && d.JobID == job && d.RunID == run {
			return d
		}
	}
	return nil
}

// readable decodes a message by the rules of semantics.md 1, or returns nil.
func readable(m *eventlog.Message) *events.Message {
	read, err := events.Read(m.Payload)
	if err != nil {
		return nil
	}
	read.Resolve(m.OriginPublish())
	return read
}

// eventCount returns how many events the message has.
func (m *Message) eventCount() int {
	if m.Events == nil {
		return 0
	}
	return len(m.Events.Events)
}
