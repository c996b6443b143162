package writer

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/armada/schedulerdb"
	"github.com/refloat/refloat/internal/armada/schedulerdb/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/sink"
)

// maxCopy is how large a copy may be. Brokers take messages of 5 MB unless told
// otherwise, and the error and the requirements were in two messages before.
const maxCopy = 2 << 20

// messages are decisions in the shape of Armada's own retries: the run's error,
// not terminal, with the policy's name, and the requeue; or the error, terminal.
func (w *writing) messages(ctx context.Context, copies []copyOf) ([]eventlog.Message, error) {
	runs := make([]string, len(copies))
	for i, c := range copies {
		runs[i] = c.runID
	}
	failed, err := w.runErrors(ctx, runs)
	if err != nil {
		return nil, err
	}
	var messages []eventlog.Message
	for _, c := range copies {
		payload, err := c.fitting(failed[c.runID])
		if err != nil {
			return nil, fmt.Errorf("copy of decision %d: %w", c.number, err)
		}
		if payload == nil {
			if w.cfg.Hooks.Untold != nil {
				w.cfg.Hooks.Untold(w.cfg.Partition, fmt.Errorf("the copy of decision %d on job %s is larger than %d bytes, so it is not made", c.number, c.jobID, maxCopy))
			}
			continue
		}
		messages = append(messages, eventlog.Message{
			Key: c.set, Payload: payload,
			Properties: []eventlog.Property{{Key: sink.CopyProperty, Value: strconv.FormatUint(c.number, 10)}},
		})
	}
	return messages, nil
}

// fitting is one copy that is not too large: one without what the error says, if
// that is too long; nil, if it still is. Stored is the run's row of job_run_errors,
// or nil.
func (c *copyOf) fitting(stored []byte) ([]byte, error) {
	it, err := schedulerdb.RunError(stored)
	if err != nil {
		return nil, err
	}
	payload, err := c.payload(it)
	if err != nil || len(payload) <= maxCopy {
		return payload, err
	}
	short := &pb.Error{}
	short.ProtoReflect().SetUnknown(podError("The error is too long to be told again with the retry."))
	if payload, err = c.payload(short); err != nil || len(payload) <= maxCopy {
		return payload, err
	}
	return nil, nil
}

// podError is an Error's PodError (field 8) with a message (field 2), which is all
// that one needs.
func podError(message string) []byte {
	inner := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), message)
	return protowire.AppendBytes(protowire.AppendTag(nil, 8, protowire.BytesType), inner)
}

// payload is one copy, with the run's error.
func (c *copyOf) payload(it *pb.Error) ([]byte, error) {
	it.Terminal, it.RetryPolicyName = !c.requeue, c.policy
	created := time.Unix(0, c.at)
	at := &pb.Timestamp{Seconds: created.Unix(), Nanos: int32(created.Nanosecond())}
	events := []*pb.Event{{
		Created: at, Event: &pb.Event_JobErrors{JobErrors: &pb.JobErrors{JobId: c.jobID, Errors: []*pb.Error{it}}},
	}}
	if c.requeue {
		events = append(events, &pb.Event{Created: at, Event: &pb.Event_JobRequeued{JobRequeued: &pb.JobRequeued{
			JobId: c.jobID, UpdateSequenceNumber: c.version, SchedulingInfo: c.info,
		}}})
	}
	return proto.Marshal(&pb.EventSequence{Queue: c.queue, JobSetName: c.set, Events: events})
}
