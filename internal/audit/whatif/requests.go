package whatif

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// requests are what the jobs of a partition request that are not over.
type requests struct {
	jobs    map[string]*requested
	shapes  map[string]*jobdb.Requests // by what shapeOf returns: many jobs request the same
	shape   []byte                     // of the last submission
	o       *Options
	sweepAt int
}

type requested struct {
	*jobdb.Requests       // nil: unknown
	at              int64 // when the job was last heard of
}

func newRequests(o *Options) *requests {
	return &requests{jobs: map[string]*requested{}, shapes: map[string]*jobdb.Requests{}, o: o, sweepAt: 1024}
}

// of returns what a job requests; nil: it is unknown.
func (r *requests) of(job string) *jobdb.Requests {
	if j := r.jobs[job]; j != nil {
		return j.Requests
	}
	return nil
}

// message notes what the jobs request that a message submits. Those that are over are forgotten by a call of done.
func (r *requests) message(seq *events.Sequence) {
	if seq == nil || r.o.Queue != "" && seq.Queue != r.o.Queue {
		return
	}
	for i := range seq.Events {
		ev := &seq.Events[i]
		if ev.Kind == events.SubmitJob && r.jobs[ev.JobID] == nil {
			r.jobs[strings.Clone(ev.JobID)] = &requested{Requests: r.read(ev)}
		}
		if j := r.jobs[ev.JobID]; j != nil {
			j.at = ev.Time
		}
	}
}

// read reads what a job requests from its submission.
func (r *requests) read(ev *events.Event) *jobdb.Requests {
	r.shape = appendShape(r.shape[:0], ev.Raw, toContainers)
	if found, ok := r.shapes[string(r.shape)]; ok {
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
	if len(r.shapes) >= r.sweepAt {
		clear(r.shapes)
	}
	found := sink.RequestsOf(job)
	r.shapes[string(r.shape)] = found
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

// done forgets the jobs that a message ends, and those that the state has forgotten, too.
func (r *requests) done(seq *events.Sequence, now int64) {
	if seq == nil {
		return
	}
	for i := range seq.Events {
		if k := seq.Events[i].Kind; k == events.JobSucceeded || k == events.CancelledJob {
			delete(r.jobs, seq.Events[i].JobID)
		}
	}
	if len(r.jobs) <= r.sweepAt {
		return
	}
	for job, j := range r.jobs {
		if j.at < now-r.o.horizon {
			delete(r.jobs, job)
		}
	}
	r.sweepAt = max(1024, len(r.jobs)+len(r.jobs)/4)
}
