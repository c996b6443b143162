package events

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// Message is a payload for consumers that need more of it than folding: the job database's rows
// and Armada's own tables. Its Sequence is the one that a Decoder reads. Its strings are the payload's
// own bytes, which must not be written to; who keeps one longer than the payload clones it. It is not for concurrent use.
type Message struct {
	Sequence
	UserID string
	Groups []string // of the user

	full []*pb.Event
}

// Read decodes a payload. It returns an *Unreadable for what is no event sequence.
func Read(payload []byte) (*Message, error) {
	m, n := &Message{}, 0
	eachBytes(payload, func(f protowire.Number, b []byte) {
		switch f {
		case fieldUserID:
			m.UserID = view(b)
		case fieldGroups:
			m.Groups = append(m.Groups, view(b))
		case fieldEvents:
			n++
		default:
		}
	})
	d := Decoder{seq: Sequence{Events: make([]Event, 0, n)}}
	if err := d.read(payload); err != nil {
		return nil, err
	}
	m.Sequence = d.seq
	return m, nil
}

// Full returns all of Events[i] that the contract declares. It is decoded with protobuf-go, once.
func (m *Message) Full(i int) *pb.Event {
	if m.full == nil {
		m.full = make([]*pb.Event, len(m.Events))
	}
	if m.full[i] == nil {
		m.full[i] = &pb.Event{}
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(m.Events[i].Raw, m.full[i]); err != nil {
			panic(fmt.Sprintf("events: Decoder accepted what protobuf-go refuses: %v", err)) // a bug in this package
		}
	}
	return m.full[i]
}

func (s *Sequence) check() error {
	switch {
	case s.Queue == "":
		return &Unreadable{Reason: NoQueue}
	case s.JobSet == "":
		return &Unreadable{Reason: NoJobSet}
	case len(s.Events) == 0:
		return &Unreadable{Reason: NoEvents}
	}
	return nil
}

// Field numbers in events/pb/armada.proto.
const (
	fieldUserID       = 3  // EventSequence.user_id
	fieldGroups       = 4  // EventSequence.groups
	fieldEvents       = 5  // EventSequence.events
	fieldSubmitJob    = 1  // Event.submit_job
	fieldJobRunErrors = 14 // Event.job_run_errors
	fieldRunErrors    = 3  // JobRunErrors.errors
)

// RawSubmit returns the SubmitJob of event i, verbatim from the payload.
func (m *Message) RawSubmit(i int) []byte {
	var raw []byte
	eachBytes(m.Events[i].Raw, func(n protowire.Number, b []byte) {
		if n == fieldSubmitJob {
			raw = b
		}
	})
	return raw
}

// RawError returns the error at index e of the JobRunErrors in event i, verbatim from
// the payload: protobuf-go would reorder it and drop unknown fields.
func (m *Message) RawError(i, e int) []byte {
	var found [][]byte
	eachBytes(m.Events[i].Raw, func(n protowire.Number, b []byte) {
		switch {
		case n == fieldJobRunErrors: // repeated members of a oneof are merged
			eachBytes(b, func(n protowire.Number, b []byte) {
				if n == fieldRunErrors {
					found = append(found, b)
				}
			})
		case isMember(n):
			found = nil // another member replaces it in the oneof
		}
	})
	if e >= len(found) {
		return nil
	}
	return found[e]
}

// isMember reports whether a field is a member of the oneof in our contract's Event.
func isMember(n protowire.Number) bool {
	field := (*pb.Event)(nil).ProtoReflect().Descriptor().Fields().ByNumber(n)
	return field != nil && field.ContainingOneof() != nil
}

// eachBytes visits the length-delimited fields of a message that was decoded before.
func eachBytes(b []byte, visit func(protowire.Number, []byte)) {
	for rest := view(b); len(rest) > 0; {
		var f field
		if f, rest = next(rest); f.tag == malformed {
			return
		}
		if f.tag&wireType == wireBytes {
			visit(protowire.Number(f.tag>>3), octets(f.data))
		}
	}
}

func stateOf(n int32) JobStates {
	switch n {
	case int32(pb.JobState_QUEUED):
		return Queued
	case int32(pb.JobState_PENDING):
		return Pending
	case int32(pb.JobState_RUNNING):
		return Running
	}
	return Foreign
}

// ReadError reads the bytes of one Armada Error, as a run's error is kept.
func ReadError(raw []byte) (*Error, error) {
	var d Decoder
	e, _, err := d.readError(view(raw))
	if err != nil {
		return nil, &Unreadable{Reason: NotProtobuf, Err: err}
	}
	return e, nil
}
