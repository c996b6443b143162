package writer

import (
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/sink"
)

// maxCopy is the maximum size of a copy. Brokers accept messages of up to 5 MB by
// default; the error and the requirements came in two messages originally.
const maxCopy = 2 << 20

// copyOf is a decision to be copied to events, for the rest of Armada.
type copyOf struct {
	jobID, runID, queue, set string
	number                   uint64
	policy                   string
	at                       int64
	requeue                  bool
	cancel                   bool // the scheduler is to cancel the job, for the reason in text
	version                  int32
	info                     []byte // JobSchedulingInfo of a requeue
	text                     string // the error, if the run has none of its own
	// error is the run's error, as in job_run_errors. A later message can bring another one,
	// or the first one of a run that was stopped: it is that of the message that the copy
	// follows from, however messages are cut into transactions.
	error []byte
}

// copy appends a copy, with the error that its run has by now.
func (p *plan) copy(c copyOf) {
	c.error = p.errors[c.runID]
	p.copies = append(p.copies, c)
}

func (p *plan) copied(at eventlog.Position) bool { return p.copying && at.Compare(p.since) > 0 }

// messages builds copies in the format of Armada's own retries: the run's error, not
// terminal, with the policy's name, and the requeue; or the error, terminal. The reason of a
// cancellation is an error that is not terminal, because neither the scheduler nor the event API
// passes on that of a request; the scheduler publishes the end.
func (w *writing) messages(copies []copyOf) ([]eventlog.Message, error) {
	var messages []eventlog.Message
	for _, c := range copies {
		payload, err := c.fitting()
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
// too long, and returns nil if the copy is still too large.
func (c *copyOf) fitting() ([]byte, error) {
	it, err := schedulerdb.RunError(c.error)
	if err != nil {
		return nil, err
	}
	if c.error == nil && c.text != "" {
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
	it.Terminal, it.RetryPolicyName = !c.requeue && !c.cancel, c.policy
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
