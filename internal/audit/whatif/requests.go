package whatif

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// requests are what the jobs of a partition request that are not over.
type requests struct {
	jobs     map[string]*requested
	distinct map[jobdb.Requests]*jobdb.Requests // many jobs request the same
	o        *Options
	sweepAt  int
}

type requested struct {
	*jobdb.Requests       // nil: unknown
	at              int64 // when the job was last heard of
}

func newRequests(o *Options) *requests {
	return &requests{jobs: map[string]*requested{}, distinct: map[jobdb.Requests]*jobdb.Requests{}, o: o, sweepAt: 1024}
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
	var full pb.Event
	if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(ev.Raw, &full) != nil {
		return nil
	}
	job := full.GetSubmitJob()
	if job == nil {
		job = full.GetKnownJob()
	}
	found := sink.RequestsOf(job)
	if found == nil {
		return nil
	}
	if r.distinct[*found] == nil {
		if len(r.distinct) >= r.sweepAt {
			clear(r.distinct)
		}
		r.distinct[*found] = found
	}
	return r.distinct[*found]
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
