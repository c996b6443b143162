package mirror

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/armadadb"
	"github.com/refloat/refloat/internal/armadadb/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/sink"
)

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
	messages := make([]eventlog.Message, len(copies))
	for i, c := range copies {
		payload, err := c.payload(failed[c.runID])
		if err != nil {
			return nil, fmt.Errorf("copy of decision %d: %w", c.number, err)
		}
		messages[i] = eventlog.Message{
			Key: c.set, Payload: payload,
			Properties: []eventlog.Property{{Key: sink.CopyProperty, Value: strconv.FormatUint(c.number, 10)}},
		}
	}
	return messages, nil
}

// payload is one copy. Stored is the run's row of job_run_errors, or nil.
func (c *copyOf) payload(stored []byte) ([]byte, error) {
	it, err := armadadb.RunError(stored)
	if err != nil {
		return nil, err
	}
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
