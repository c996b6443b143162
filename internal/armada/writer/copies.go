package writer

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/armada/schedulerdb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/sink"
)

// maxCopy is the maximum size of a copy. Brokers accept messages of up to 5 MB by
// default; the error and the requirements came in two messages originally.
const maxCopy = 2 << 20

// messages builds copies in the format of Armada's own retries: the run's error, not
// terminal, with the policy's name, and the requeue; or the error, terminal.
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
		stored, found := failed[c.runID]
		if found {
			c.text = ""
		}
		payload, err := c.fitting(stored)
		if err != nil {
			return nil, fmt.Errorf("copy of decision %d: %w", c.number, err)
		}
		if payload == nil {
			if w.cfg.Hooks.NotCopied != nil {
				w.cfg.Hooks.NotCopied(w.cfg.Partition, fmt.Errorf("copy of decision %d on job %s is larger than %d bytes: not published", c.number, c.jobID, maxCopy))
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

// fitting returns a copy that is not too large. It omits the error's text if that is
// too long, and returns nil if the copy is still too large. stored is the run's row of
// job_run_errors, or nil.
func (c *copyOf) fitting(stored []byte) ([]byte, error) {
	it, err := schedulerdb.RunError(stored)
	if err != nil {
		return nil, err
	}
	if c.text != "" {
		it = &pb.Error{Reason: &pb.Error_PodError{PodError: &pb.PodError{Message: c.text}}}
	}
	payload, err := c.payload(it)
	if err != nil || len(payload) <= maxCopy {
		return payload, err
	}
	short := &pb.Error{Reason: &pb.Error_PodError{PodError: &pb.PodError{Message: "The error is too long to be published again with the retry."}}}
	if payload, err = c.payload(short); err != nil || len(payload) <= maxCopy {
		return payload, err
	}
	return nil, nil
}

// payload encodes one copy, with the run's error.
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
