package writer

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb"
	schedulingpb "github.com/refloat/refloat/internal/schedulerdb/pb"
	"github.com/refloat/refloat/internal/sink"
)

// readAtOnce is the number of events that are searched for copies at a time.
const readAtOnce = 2000

// overrideCopies reads copies up to the end of events. Armada's ingester will apply
// copies that our last transactions published but did not commit. If such a copy would
// leave a job pending, the job gets the copy's requirements without the waiting
// selector, in a higher version. The copy may still queue the job, since its run's
// failure precedes it in events. The job's queued_version stays unchanged: events may
// hold a lease that is not in the rows yet, and that lease must remain effective.
func (w *writing) overrideCopies(ctx context.Context, events eventlog.Reader) error {
	chunk := make([]eventlog.Message, readAtOnce)
	for {
		n, err := events.Read(chunk)
		if err != nil {
			return fmt.Errorf("search events of partition %d for copies of requeues: %w", w.cfg.Partition, err)
		}
		if n == 0 {
			return nil
		}
		waiting := map[string]*schedulingpb.JobSchedulingInfo{}
		for i := range chunk[:n] {
			if sink.IsCopy(&chunk[i]) {
				addWaiting(waiting, chunk[i].Payload)
			}
		}
		clear(chunk)
		if err := w.override(ctx, waiting); err != nil {
			return err
		}
	}
}

// addWaiting adds the requirements of requeues in a copy that have the waiting
// selector; for each job the highest version wins. Like Armada's ingester, it skips
// what cannot be decoded.
func addWaiting(to map[string]*schedulingpb.JobSchedulingInfo, payload []byte) {
	var message pb.EventSequence
	if proto.Unmarshal(payload, &message) != nil {
		return
	}
	for _, ev := range message.Events {
		r := ev.GetJobRequeued()
		info := &schedulingpb.JobSchedulingInfo{}
		if r == nil || !storable(r.JobId) || proto.Unmarshal(r.SchedulingInfo, info) != nil || !schedulerdb.Waits(info) {
			continue
		}
		if known := to[r.JobId]; known == nil || known.Version < info.Version {
			to[r.JobId] = info
		}
	}
}

// override writes requirements with higher versions than these.
func (w *writing) override(ctx context.Context, waiting map[string]*schedulingpb.JobSchedulingInfo) error {
	if len(waiting) == 0 {
		return nil
	}
	jobs := map[string]*jobView{}
	var ids []string
	for id := range waiting {
		jobs[id] = &jobView{id: id}
		ids = append(ids, id)
	}
	if err := w.loadJobs(ctx, jobs, ids); err != nil {
		return err
	}
	var unable []error
	var ops []schedulerdb.Op
	for id, j := range jobs {
		version := int32(waiting[id].Version)
		if !j.known || j.over || version <= j.infoVersion {
			continue
		}
		info, err := schedulerdb.WithoutWaiting(waiting[id], version+1)
		if err != nil {
			unable = append(unable, &unableError{job: id, err: err})
			continue
		}
		ops = append(ops, &schedulerdb.SetSchedulingInfo{JobID: id, Info: info, Version: version + 1})
	}
	if len(unable) > 0 {
		return errors.Join(unable...)
	}
	return w.failed("write Armada's tables", w.armada.Apply(ctx, ops))
}
