package whatif

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// shapes are what jobs request, by what appendShape returns: many jobs request the same.
type shapes struct {
	known map[string]*jobdb.Requests
	shape []byte // of the last submission
}

const maxShapes = 1024 // that are known at once

// read reads what a job requests from its submission.
func (s *shapes) read(ev *events.Event) *jobdb.Requests {
	s.shape = appendShape(s.shape[:0], ev.Raw, toContainers)
	if found, ok := s.known[string(s.shape)]; ok {
		return found
	}
	var full pb.Event
	if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(ev.Raw, &full) != nil {
		return nil
	}
	job := full.GetSubmitJob()
	if job == nil {
		job = full.GetKnownJob()
	}
	if len(s.known) >= maxShapes {
		clear(s.known)
	}
	found := sink.RequestsOf(job)
	s.known[string(s.shape)] = found
	return found
}

// toContainers leads from an Event to what its pod's containers request: a job that is submitted or known, its main object, the
// pod's specification, its containers and its init containers, and of them the resources and the policy of restarts.
var toContainers = [][]protowire.Number{{1, 1002}, {5}, {2}, {1}, {2, 20}, {8, 24}}

// appendShape appends the fields at the end of a path of fields, as they are encoded, each group of them after the tag of the one
// that they are in. Jobs of the same shape request the same.
func appendShape(shape, message []byte, path [][]protowire.Number) []byte {
	for len(message) > 0 {
		number, typ, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return shape // which the decoder has refused
		}
		n := protowire.ConsumeFieldValue(number, typ, message[tag:])
		if n < 0 {
			return shape
		}
		field := message[:tag+n]
		message = message[tag+n:]
		switch {
		case typ != protowire.BytesType || !slices.Contains(path[0], number):
		case len(path) == 1:
			shape = append(shape, field...)
		default:
			inner, _ := protowire.ConsumeBytes(field[tag:])
			shape = appendShape(append(shape, field[:tag]...), inner, path[1:])
		}
	}
	return shape
}
