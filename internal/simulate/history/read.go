package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// History is what the messages of an events topic say about jobs and runs.
type History struct {
	name   string
	jobs   map[string]*job
	runs   map[[2]string]*run // by job and run
	order  []*job             // in which they were read
	last   int64              // the time of the last event
	faulty int                // messages that are no event sequences
	// What was seen and is not used.
	strangers, rejected, reprioritised, backwards int
}

// Times are Unix nanoseconds.
type job struct {
	id, where, queue, set string
	submit                *events.Submit
	class                 string
	priority              int64
	gang                  scheduling.Gang
	request               amounts
	submitted, cancelled  int64 // cancelled is 0 if it never was
	rejected              bool
	runs                  []*run
}

type run struct {
	job          *job
	node         string
	leased       int64
	ended        int64 // 0: the history does not show an end
	succeeded    bool
	err          *pb.Error // why it failed
	hasPriority  bool
	priority     int32 // of its class, where the lease names it
	wasPreempted bool
	byScheduler  bool // was preempted to make room, rather than by an operator
}

type amounts map[string]resource.Quantity

// newHistory returns an empty history, which messages name by the name.
func newHistory(name string) *History {
	return &History{name: name, jobs: map[string]*job{}, runs: map[[2]string]*run{}}
}

// Read reads a whole recording; errors name the path and the line.
func Read(in io.Reader, path string) (*History, error) {
	r, err := recording.NewReader(in, path)
	if err != nil {
		return nil, err
	}
	h := newHistory(path)
	for line := 1; ; line++ {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return h, h.finish()
		}
		if err != nil {
			return nil, err
		}
		if err := h.add(fmt.Sprintf("%s:%d", path, line), &e.Message); err != nil {
			return nil, err
		}
	}
}

// Name is what messages call the history.
func (h *History) Name() string { return h.name }

// ReadLog reads a whole events log.
func ReadLog(ctx context.Context, log eventlog.Topic, name string) (*History, error) {
	h := newHistory(name)
	batch := make([]eventlog.Message, 256)
	for p := range log.Partitions() {
		if err := h.readPartition(ctx, log, p, batch); err != nil {
			return nil, err
		}
	}
	return h, h.finish()
}

func (h *History) readPartition(ctx context.Context, log eventlog.Topic, p int, batch []eventlog.Message) (err error) {
	r, _, err := eventlog.OpenHeld(log, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := r.Read(batch)
		if err != nil || n == 0 {
			return err
		}
		for i := range batch[:n] {
			m := &batch[i]
			if err := h.add(fmt.Sprintf("%s: partition %d, message %v", h.name, p, m.Position), m); err != nil {
				return err
			}
		}
	}
}

// finish reports a history from which nothing follows, and puts the jobs into an order that does not depend on how partitions
// were merged: by time, then as they stand in their job set, which is in one partition.
func (h *History) finish() error {
	slices.SortStableFunc(h.order, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.submitted, b.submitted), cmp.Compare(a.queue, b.queue), cmp.Compare(a.set, b.set))
	})
	if len(h.order) == 0 {
		return fmt.Errorf("%s: the history holds no submission of a job", h.name)
	}
	return nil
}

// add adds a message. Messages of one partition are added in their order. An error names where.
func (h *History) add(where string, m *eventlog.Message) error {
	message, err := events.Read(m.Payload)
	if err != nil {
		h.faulty++ // such as a partition marker
		return nil
	}
	for i := range message.Events {
		e := &message.Events[i]
		if e.Missing() != events.UnknownParkReason {
			continue
		}
		at := e.Created.Time(m.OriginPublish())
		h.last = max(h.last, at)
		if e.Kind == events.SubmitJob {
			if err := h.submit(where, message, i, at); err != nil {
				return fmt.Errorf("%s: job %q: %w", where, e.JobID, err)
			}
			continue
		}
		h.happened(e, message.Full(i), at)
	}
	return nil
}

func (h *History) submit(where string, m *events.Message, i int, at int64) error {
	e := &m.Events[i]
	s := m.Full(i).GetSubmitJob()
	if s == nil || h.jobs[e.JobID] != nil { // a republished one, or a duplicate
		return nil
	}
	spec := s.GetMainObject().GetPodSpec().GetPodSpec()
	j := &job{
		id: strings.Clone(e.JobID), where: where, queue: strings.Clone(m.Queue), set: strings.Clone(m.JobSet), submit: e.Submit.Clone(), class: spec.GetPriorityClassName(),
		priority: int64(s.Priority), submitted: at,
	}
	var err error
	if j.gang, err = scheduling.ParseGang(s.GetObjectMeta().GetAnnotations()); err != nil {
		return err
	}
	if j.request, err = requestOf(spec); err != nil {
		return err
	}
	h.jobs[j.id] = j
	h.order = append(h.order, j)
	return nil
}

// requestOf is what a pod requests: the sum of its containers, or an init container if that is more.
func requestOf(pod *pb.PodSpec) (amounts, error) {
	total := amounts{}
	for _, raw := range pod.GetContainers() {
		c := &pb.Container{}
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, c); err != nil {
			return nil, fmt.Errorf("a container is unreadable: %w", err)
		}
		err := each(c, func(name string, q resource.Quantity) {
			q.Add(total[name])
			total[name] = q
		})
		if err != nil {
			return nil, err
		}
	}
	for _, c := range pod.GetInitContainers() {
		err := each(c, func(name string, q resource.Quantity) {
			if q.Cmp(total[name]) > 0 {
				total[name] = q
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return total, nil
}

func each(c *pb.Container, add func(string, resource.Quantity)) error {
	needs := &pb.ResourceRequirements{}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(c.GetResources(), needs); err != nil {
		return fmt.Errorf("the resources of a container are unreadable: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(needs.GetRequests())) {
		text := needs.GetRequests()[name].GetText()
		q, err := resource.ParseQuantity(cmp.Or(text, "0"))
		if err != nil || q.Sign() < 0 {
			return fmt.Errorf("its request of %s is %q: want a quantity of 0 or more, such as 500m or 16Gi", name, text)
		}
		add(name, q)
	}
	return nil
}

// happened folds an event other than a submission.
func (h *History) happened(e *events.Event, full *pb.Event, at int64) {
	if _, ok := full.Event.(*pb.Event_ReprioritisedJob); ok {
		h.reprioritised++
		return
	}
	if !e.Kind.NamesJob() || e.Kind == events.JobOrder {
		return
	}
	j := h.jobs[e.JobID]
	if j == nil {
		if e.Kind == events.RunLeased {
			h.strangers++
		}
		return
	}
	key := [2]string{e.JobID, e.RunID}
	r := h.runs[key]
	if e.Kind.NamesRun() && r == nil {
		r = &run{job: j, leased: at}
		h.runs[[2]string{j.id, strings.Clone(e.RunID)}] = r
		j.runs = append(j.runs, r)
	}
	switch e.Kind { //nolint:exhaustive // the others change nothing here
	case events.CancelledJob:
		if j.cancelled == 0 {
			j.cancelled = at
		}
	case events.JobErrors:
		if e.Error != nil && e.Error.Reason == events.JobRejected && !j.rejected {
			j.rejected = true
			h.rejected++
		}
	case events.RunLeased:
		lease := full.GetJobRunLeased()
		r.node, r.leased, r.hasPriority, r.priority = lease.GetNodeId(), at, lease.GetHasScheduledAtPriority(), lease.GetScheduledAtPriority()
	case events.RunRunning:
		r.node = strings.Clone(cmp.Or(r.node, e.Node))
	case events.RunSucceeded:
		h.end(r, at)
		r.succeeded = r.err == nil
	case events.RunErrors:
		if e.Error == nil || r.succeeded {
			return
		}
		h.end(r, at)
		if r.err == nil {
			r.err = terminal(full.GetJobRunErrors().GetErrors())
			if r.wasPreempted && r.err.GetJobRunPreemptedError() == nil {
				r.err = preempted()
			}
		}
	case events.RunPreempted:
		r.wasPreempted = true
		r.byScheduler = r.byScheduler || strings.HasPrefix(full.GetJobRunPreempted().GetReason(), byScheduler)
		h.end(r, at)
		if !r.succeeded {
			r.err = preempted()
		}
	}
}

// byScheduler begins the reason of a preemption that Armada's scheduler decided. If a person did, their name is in its place.
const byScheduler = "Preempted by scheduler using "

func preempted() *pb.Error {
	return &pb.Error{Terminal: true, Reason: &pb.Error_JobRunPreemptedError{JobRunPreemptedError: &pb.JobRunPreemptedError{}}}
}

func terminal(all []*pb.Error) *pb.Error {
	i := slices.IndexFunc(all, func(e *pb.Error) bool { return e.Terminal })
	return all[i] // there is one: it is the event's error
}

// end notes the first end of a run.
func (h *History) end(r *run, at int64) {
	if r.ended != 0 {
		return
	}
	if at < r.leased {
		h.backwards++
	}
	r.ended = max(at, r.leased)
}

// took is how long a run took that ended.
func (r *run) took() time.Duration { return time.Duration(r.ended - r.leased) }

// began is the time of the first submission.
func (h *History) began() int64 {
	first := h.order[0].submitted
	for _, j := range h.order {
		first = min(first, j.submitted)
	}
	return first
}
