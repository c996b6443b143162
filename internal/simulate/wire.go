package simulate

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policylog"
)

// wire writes messages of events (events/pb/armada.proto) as they stand in the log. It uses its memory again and again, which is why it
// does not make messages of protobuf-go first. Field numbers are those of the contract; fields of the default value are left out.
type wire struct {
	b       []byte
	created []byte // of the message's events, with its tag
	events  int    // in the message
	event   int    // where the last one begins
}

// begin begins a message about jobs of a queue at a time.
func (w *wire) begin(queue string, at time.Time) {
	w.b, w.events = w.b[:0], 0
	w.text(1, queue)
	w.text(2, jobSet)
	w.created = protowire.AppendTag(w.created[:0], 18, protowire.BytesType)
	w.created = append(w.created, 0)
	size := len(w.created)
	w.created = protowire.AppendTag(w.created, 1, protowire.VarintType)
	w.created = protowire.AppendVarint(w.created, uint64(at.Unix()))
	if nanos := at.Nanosecond(); nanos != 0 {
		w.created = protowire.AppendTag(w.created, 2, protowire.VarintType)
		w.created = protowire.AppendVarint(w.created, uint64(nanos))
	}
	w.created[size-1] = byte(len(w.created) - size) // at most 17
}

// open begins a message in a field, up to close.
func (w *wire) open(field protowire.Number) int {
	w.b = append(protowire.AppendTag(w.b, field, protowire.BytesType), 0)
	return len(w.b)
}

// close ends the message that begins at a place.
func (w *wire) close(from int) {
	size := len(w.b) - from
	if size < 1<<7 {
		w.b[from-1] = byte(size)
		return
	}
	// The length takes more than the one byte that open has left for it.
	more := protowire.SizeVarint(uint64(size)) - 1
	w.b = append(w.b, make([]byte, more)...)
	copy(w.b[from+more:], w.b[from:from+size])
	protowire.AppendVarint(w.b[:from-1], uint64(size))
}

func (w *wire) text(field protowire.Number, s string) {
	if s != "" {
		w.b = protowire.AppendString(protowire.AppendTag(w.b, field, protowire.BytesType), s)
	}
}

func (w *wire) number(field protowire.Number, n int64) {
	if n != 0 {
		w.b = protowire.AppendVarint(protowire.AppendTag(w.b, field, protowire.VarintType), uint64(n))
	}
}

func (w *wire) flag(field protowire.Number, is bool) {
	if is {
		w.number(field, 1)
	}
}

// runID writes the name of the last run of a job, as job.runID has it.
func (w *wire) runID(field protowire.Number, j *job) {
	from := w.open(field)
	w.b = strconv.AppendInt(append(append(w.b, j.id...), '-'), int64(j.runs), 10)
	w.close(from)
}

// next begins an event of a kind, up to end.
func (w *wire) next(kind protowire.Number) int {
	w.events++
	w.event = w.open(5)
	w.b = append(w.b, w.created...)
	return w.open(kind)
}

func (w *wire) end(from int) {
	w.close(from)
	w.close(w.event)
}

// about writes an event that names a job only.
func (w *wire) about(kind, field protowire.Number, j *job) {
	at := w.next(kind)
	w.text(field, j.id)
	w.end(at)
}

func (w *wire) cancelled(j *job) {
	w.about(5, 3, j) // CancelJob
	w.about(7, 3, j) // CancelledJob
}

func (w *wire) submitted(j *job) {
	at := w.next(1)
	meta := w.open(4)
	if g := j.given; g != nil {
		for _, name := range slices.Sorted(maps.Keys(g.Annotations)) {
			if j.gang == nil || name != events.AnnotationGangID && name != events.AnnotationGangCardinality {
				w.annotation(name, g.Annotations[name])
			}
		}
	}
	if j.gang != nil {
		w.annotation(events.AnnotationGangID, j.gang.id)
		w.annotation(events.AnnotationGangCardinality, strconv.Itoa(j.kind.JobsAtOnce))
	}
	w.close(meta)
	main := w.open(5)
	withAvoidList := w.open(2)
	spec := w.open(1)
	if g := j.given; g != nil {
		w.number(4, g.GraceSeconds)
		for _, name := range g.InitContainers {
			container := w.open(20)
			w.text(1, name)
			w.close(container)
		}
	}
	w.close(spec)
	w.close(withAvoidList)
	w.close(main)
	w.text(14, j.id)
	w.end(at)
}

func (w *wire) annotation(name, value string) {
	entry := w.open(5)
	w.text(1, name)
	w.text(2, value)
	w.close(entry)
}

func (w *wire) leased(j *job) {
	at := w.next(10)
	w.text(4, j.node.Name)
	w.text(10, j.id)
	w.runID(11, j)
	w.end(at)
	if j.pending {
		return
	}
	at = w.next(12) // running
	w.text(4, j.id)
	w.runID(5, j)
	w.end(at)
}

func (w *wire) succeeded(j *job) {
	at := w.next(13)
	w.text(4, j.id)
	w.runID(5, j)
	w.end(at)
	w.about(8, 3, j) // JobSucceeded
}

func (w *wire) preempted(j *job) {
	at := w.next(19)
	w.text(5, j.id)
	w.runID(6, j)
	w.end(at)
}

// ordered writes the guard's order on a job's last run, by whose name the order goes.
func (w *wire) ordered(j *job, action policy.OrderAction, notBefore int64) {
	at := w.next(1005)
	w.text(1, j.id)
	w.runID(2, j)
	w.runID(3, j)
	w.number(4, int64(action))
	w.text(5, policylog.Guard)
	w.number(7, notBefore)
	w.end(at)
}

// failed writes the error of a job's last run, as Armada reports it; no failure: it was preempted.
func (w *wire) failed(j *job, f *Failure) error {
	at := w.next(14)
	reported := w.open(3)
	var err error
	switch {
	case f == nil:
		w.flag(1, true)
		w.close(w.open(11)) // JobRunPreemptedError
	case f.as != nil:
		e := f.as
		if e.GetPodError() != nil {
			e = proto.CloneOf(e)
			e.GetPodError().NodeName = j.node.Name
		}
		w.b, err = proto.MarshalOptions{Deterministic: true}.MarshalAppend(w.b, e)
	default:
		w.failure(f, j.node.Name)
	}
	w.close(reported)
	w.text(4, j.id)
	w.runID(5, j)
	w.end(at)
	return err
}

// failure writes the Error of a failure of the model.
func (w *wire) failure(f *Failure, node string) {
	w.flag(1, true)
	switch condition, _ := policy.ParseCondition(f.Condition); condition {
	case policy.LeaseExpired:
		w.close(w.open(6))
	case policy.Unschedulable, policy.LeaseReturned:
		returned := w.open(9) // PodLeaseReturned
		w.text(2, f.Message)
		w.flag(4, condition == policy.LeaseReturned)
		w.close(returned)
	case policy.Evicted, policy.DeadlineExceeded, policy.OOMKilled, policy.Preempted, policy.UnknownCondition:
		pod := w.open(8)
		w.text(2, f.Message)
		w.text(3, node)
		oom := ""
		if condition == policy.OOMKilled {
			oom = condition.String()
		}
		if f.ExitCode != 0 || f.Message != "" || oom != "" {
			container := w.open(5)
			meta := w.open(1)
			w.text(3, "main")
			w.close(meta)
			w.number(2, int64(f.ExitCode))
			w.text(3, f.Message)
			w.text(4, oom)
			w.close(container)
		}
		switch condition {
		case policy.Evicted:
			w.number(6, 1)
		case policy.DeadlineExceeded:
			w.number(6, 3)
		case policy.LeaseExpired, policy.Unschedulable, policy.LeaseReturned, policy.OOMKilled, policy.Preempted, policy.UnknownCondition:
		}
		w.close(pod)
	}
	w.text(16, f.Category)
	w.text(17, f.Subcategory)
}
