package model

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/refloat/refloat/events/pb"
)

// raw builds bytes of the wire format by hand.
type raw []byte

func (r raw) bytes(number protowire.Number, value []byte) raw {
	return protowire.AppendBytes(protowire.AppendTag(slices.Clip(r), number, protowire.BytesType), value)
}

func (r raw) varint(number protowire.Number, value uint64) raw {
	return protowire.AppendVarint(protowire.AppendTag(slices.Clip(r), number, protowire.VarintType), value)
}

func (r raw) fixed(number protowire.Number, value uint64) raw {
	return protowire.AppendFixed64(protowire.AppendTag(slices.Clip(r), number, protowire.Fixed64Type), value)
}

// extend appends bytes to a message, which are read as its last fields.
func extend(m protoreflect.ProtoMessage, r raw) {
	m.ProtoReflect().SetUnknown(append(bytes.Clone(m.ProtoReflect().GetUnknown()), r...))
}

// mangleEvents makes some events of a message odd.
func (g *generator) mangleEvents(seq *pb.EventSequence) {
	for i, ev := range seq.Events {
		if !g.odd(0.04) {
			continue
		}
		j := pick(g, g.jobs)
		job, run := []byte(j.id), []byte(g.anyRun(j))
		switch g.IntN(12) {
		case 0, 1:
			seq.Events[i] = &pb.Event{Created: ev.Created, Event: g.nameless(j).Event}
		case 2: // a kind that is not read
			other := &pb.Event{Created: ev.Created}
			number := pick(g, []protowire.Number{2, 3, 16, 17, 20, 21, 23, 24, 25, 26, 15, 1000, 1002, 536870911})
			extend(other, raw{}.bytes(number, raw{}.bytes(1, job).bytes(2, run).bytes(3, []byte("\xff"))))
			seq.Events[i] = other
		case 3: // nothing
			seq.Events[i] = &pb.Event{}
		case 4: // the wrong wire type: unknown
			other := &pb.Event{Created: ev.Created}
			extend(other, raw{}.varint(14, 7).fixed(13, 5))
			seq.Events[i] = other
		case 5: // another member of the oneof follows, and wins
			extend(ev, raw{}.bytes(13, raw{}.bytes(4, job).bytes(5, run)))
		case 6:
			extend(ev, raw{}.bytes(7, raw{}.bytes(3, job)))
		case 7: // the same member again: merged
			if ev.GetJobRunErrors() != nil {
				more := raw{}.varint(1, 2).bytes(6, nil) // terminal, as a number that is not 1; LeaseExpired
				extend(ev, raw{}.bytes(14, raw{}.bytes(5, run).bytes(3, more)))
			}
		case 8: // fields again inside an error
			for _, e := range ev.GetJobRunErrors().GetErrors() {
				if e.GetPodError() != nil {
					// enum values are cut to 32 bits: OOM
					extend(e.GetPodError(), raw{}.varint(6, 1<<32+2).bytes(3, []byte("node-3")).bytes(7, []byte("\xfe")))
				} else {
					extend(e, raw{}.bytes(8, raw{}.varint(6, 1))) // PodError, evicted
				}
			}
		case 9: // created again: merged
			extend(ev, raw{}.bytes(18, raw{}.varint(2, 5)))
		case 10: // states not packed, and packed
			other := &pb.Event{Created: ev.Created}
			states := raw{}.varint(1, uint64(g.IntN(4))).bytes(1, []byte{byte(g.IntN(3))})
			extend(other, raw{}.bytes(6, states))
			seq.Events[i] = other
		case 11: // a run id twice: the last counts; and a group, unknown
			if ev.GetJobRunErrors() != nil {
				again := raw{}.bytes(14, raw{}.bytes(5, run))
				again = protowire.AppendTag(again, 99, protowire.StartGroupType)
				again = again.varint(1, 1)
				extend(ev, protowire.AppendTag(again, 99, protowire.EndGroupType))
			}
		}
	}
}

// nameless is an event that lacks its job or its run.
func (g *generator) nameless(j *plannedJob) *pb.Event {
	job, run := j.id, g.anyRun(j)
	if g.chance(0.5) {
		run = ""
	} else {
		job = ""
	}
	switch g.IntN(11) {
	case 0:
		return leased(job, run, "node-1")
	case 1:
		return assigned(job, run)
	case 2:
		return running(job, run, "node-1")
	case 3:
		return succeeded(job, run)
	case 4:
		return runErrors(job, run, []*pb.Error{g.err("pod")})
	case 5:
		return preempted(job, run)
	case 6:
		return terminated(job, run)
	case 7:
		return jobSucceeded("")
	case 8:
		return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{}}}
	case 9:
		return jobErrors("", g.errors(true))
	}
	return &pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{}}}
}

// manglePayload damages some payloads.
func (g *generator) manglePayload(payload []byte) []byte {
	if !g.odd(0.06) {
		return payload
	}
	payload = bytes.Clone(payload)
	switch g.IntN(13) {
	case 0: // garbage
		payload = make([]byte, g.IntN(40))
		for i := range payload {
			payload[i] = byte(g.Uint32())
		}
		return payload
	case 1: // cut off
		return payload[:g.IntN(len(payload)+1)]
	case 2: // one bit is wrong
		if len(payload) > 0 {
			payload[g.IntN(len(payload))] ^= 1 << g.IntN(8)
		}
		return payload
	case 3: // no queue: an empty one follows
		return raw(payload).bytes(1, nil)
	case 4: // no job set
		return raw(payload).bytes(2, nil)
	case 5: // no events
		return raw{}.bytes(1, []byte("ml")).bytes(2, []byte("set-a")).bytes(3, []byte("someone"))
	case 6: // nothing at all
		return nil
	case 7: // an id is not UTF-8
		j := pick(g, g.jobs)
		what := pick(g, []string{j.id, g.anyRun(j)})
		return bytes.Replace(payload, []byte(what), append([]byte{0xff}, what[1:]...), 1)
	case 8: // a text is not UTF-8
		return bytes.ReplaceAll(payload, []byte("ECC"), []byte("\xc3CC"))
	case 9: // the queue or set is not UTF-8
		return raw(payload).bytes(protowire.Number(1+g.IntN(2)), []byte("q\xff"))
	case 10: // another queue or set follows, and wins
		if g.chance(0.5) {
			return raw(payload).bytes(1, []byte(pick(g, queueNames)))
		}
		return raw(payload).bytes(2, []byte(pick(g, setNames)))
	case 11: // unknown fields, and the wrong wire types
		return raw(payload).varint(5, 1).fixed(1, 2).bytes(4, []byte("\xffgroup")).varint(77, 1)
	}
	// a valid event among the bytes of an unknown field, and an empty event
	return raw(payload).bytes(5, nil).bytes(6, fmt.Append(nil, "not an event"))
}
