package cutover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb"
)

// skew is the largest clock difference that we allow between clients that submit and
// clients that publish. Republishing a job that is already known has no effect.
const skew = 10 * time.Minute

// mayLack reports whether the SubmitJob of a job that was submitted at that time may
// have expired from the partition.
func (p *Partition) mayLack(submitted int64) bool {
	return !p.Whole && (p.First == 0 || submitted < p.First+int64(skew))
}

// older counts the jobs to republish.
func (s *State) older() (n int64) {
	for i := range s.Partitions {
		n += s.Partitions[i].Older
	}
	return n
}

// republish publishes to events what Armada's tables know of unfinished jobs whose SubmitJob
// may have expired: the SubmitJob and the runs, under event numbers that Armada's
// consumers skip (ADR 11). It returns when all messages are durable. unread describes
// the jobs that could not be republished.
func (s *Site) republish(ctx context.Context, state *State) (unread, err error) {
	if state.older() == 0 {
		return nil, nil
	}
	d, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	events, err := s.Cluster.Open(s.Events)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	out := events.Appender()
	defer func() { err = errors.Join(err, out.Close()) }()
	t := republisher{now: s.Now(), message: &pb.EventSequence{}, append: func(m eventlog.Message) error {
		return out.Append(eventlog.PartitionFor(m.Key, len(state.Partitions)), []eventlog.Message{m})
	}}
	err = pgx.BeginTxFunc(ctx, d.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return t.all(ctx, tx, state)
	})
	if err == nil {
		err = out.Flush(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("republish jobs whose SubmitJob has expired from events: %w", err)
	}
	return t.unread(), nil
}

// jobRows is what a job's message needs.
type jobRows struct {
	id, queue, set string
	submit         []byte // as stored in job_metadata
	runs           []*pb.Event
}

// republisher builds the messages.
type republisher struct {
	now     time.Time
	append  func(eventlog.Message) error
	message *pb.EventSequence // the current message, not appended yet
	size    int               // its size, approximately

	bad   int
	first error // the error of the first bad job
}

const (
	// jobsPerQuery is the number of jobs that one query reads.
	jobsPerQuery = 500
	// The largest message that Armada itself publishes.
	maxEvents = 1000
	maxBytes  = 1 << 20
)

func (t *republisher) all(ctx context.Context, tx pgx.Tx, state *State) error {
	jobs, err := lacking(ctx, tx, state)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(jobs, jobsPerQuery) {
		if err := fill(ctx, tx, chunk); err != nil {
			return err
		}
		for i := range chunk {
			if err := t.job(&chunk[i]); err != nil {
				return err
			}
			chunk[i] = jobRows{}
		}
	}
	return t.flush()
}

// lacking finds the jobs to republish, ordered by job set.
func lacking(ctx context.Context, tx pgx.Tx, state *State) (jobs []jobRows, err error) {
	rows, err := tx.Query(ctx, "SELECT job_id, queue, job_set, submitted FROM jobs WHERE NOT terminated")
	if err != nil {
		return nil, err
	}
	var j jobRows
	var submitted int64
	_, err = pgx.ForEachRow(rows, []any{&j.id, &j.queue, &j.set, &submitted}, func() error {
		if state.Partitions[eventlog.PartitionFor(j.set, len(state.Partitions))].mayLack(submitted) {
			jobs = append(jobs, j)
		}
		return nil
	})
	slices.SortFunc(jobs, func(a, b jobRows) int {
		return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.set, b.set), cmp.Compare(a.id, b.id))
	})
	return jobs, err
}

// fill reads submit messages and runs of these jobs.
func fill(ctx context.Context, tx pgx.Tx, jobs []jobRows) error {
	ids, byID := make([]string, len(jobs)), map[string]*jobRows{}
	for i := range jobs {
		ids[i], byID[jobs[i].id] = jobs[i].id, &jobs[i]
	}
	rows, err := tx.Query(ctx, "SELECT job_id, submit_message FROM job_metadata WHERE job_id = ANY($1)", ids)
	if err != nil {
		return err
	}
	var job string
	var submit []byte
	_, err = pgx.ForEachRow(rows, []any{&job, &submit}, func() error {
		byID[job].submit, submit = submit, nil
		return nil
	})
	if err != nil {
		return err
	}
	rows, err = tx.Query(ctx, `SELECT job_id, run_id, COALESCE(node, ''), terminated,
			CASE WHEN terminated THEN 0 WHEN running THEN 2 WHEN pending THEN 1 ELSE 0 END
		FROM runs WHERE job_id = ANY($1)
		ORDER BY job_id, created DESC, run_id DESC`, ids)
	if err != nil {
		return err
	}
	var run, node string
	var ended bool
	var stage uint32
	_, err = pgx.ForEachRow(rows, []any{&job, &run, &node, &ended, &stage}, func() error {
		known := &pb.KnownRun{JobId: job, RunId: run, Node: node, Stage: stage}
		ev := &pb.Event{Event: &pb.Event_KnownRun{KnownRun: known}}
		if ended {
			ev.Event = &pb.Event_EndedRun{EndedRun: known}
		}
		byID[job].runs = append(byID[job].runs, ev)
		return nil
	})
	return err
}

// job adds one job to the messages, if its SubmitJob is readable.
func (t *republisher) job(j *jobRows) error {
	submit, err := j.submitJob()
	if err != nil {
		t.bad++
		if t.first == nil {
			t.first = fmt.Errorf("job %s: %w", j.id, err)
		}
		return nil
	}
	events := append([]*pb.Event{{Event: &pb.Event_KnownJob{KnownJob: submit}}}, j.runs...)
	size := 0
	for _, ev := range events {
		ev.Created = &pb.Timestamp{Seconds: t.now.Unix(), Nanos: int32(t.now.Nanosecond())}
		size += proto.Size(ev)
	}
	m := t.message
	if m.Queue != j.queue || m.JobSetName != j.set || len(m.Events)+len(events) > maxEvents || t.size+size > maxBytes {
		if err := t.flush(); err != nil {
			return err
		}
		m = t.message
		m.Queue, m.JobSetName = j.queue, j.set
	}
	m.Events, t.size = append(m.Events, events...), t.size+size
	return nil
}

var errNoMetadata = errors.New("it has no row in job_metadata")

// submitJob returns what deciding needs of the job's SubmitJob. Containers stay out: their
// images, arguments and environment, where secrets may be, have expired from events.
func (j *jobRows) submitJob() (*pb.SubmitJob, error) {
	if j.submit == nil {
		return nil, errNoMetadata
	}
	raw, err := schedulerdb.SubmitMessage(j.submit)
	if err != nil {
		return nil, err
	}
	var m pb.SubmitJob
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("submit_message: %w", err)
	}
	meta, spec := m.GetObjectMeta(), m.GetMainObject().GetPodSpec().GetPodSpec()
	known := &pb.PodSpec{TerminationGracePeriodSeconds: spec.GetTerminationGracePeriodSeconds()}
	for _, c := range spec.GetInitContainers() {
		known.InitContainers = append(known.InitContainers, &pb.Container{Name: c.GetName()})
	}
	return &pb.SubmitJob{
		JobId: j.id, Priority: m.GetPriority(),
		ObjectMeta: &pb.ObjectMeta{Namespace: meta.GetNamespace(), Name: meta.GetName(), Annotations: meta.GetAnnotations()},
		MainObject: &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: known}},
	}, nil
}

func (t *republisher) flush() error {
	if len(t.message.Events) == 0 {
		return nil
	}
	payload, err := proto.Marshal(t.message)
	if err == nil {
		err = t.append(eventlog.Message{Key: t.message.JobSetName, Payload: payload})
	}
	t.message, t.size = &pb.EventSequence{}, 0
	return err
}

func (t *republisher) unread() error {
	if t.bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of them cannot be republished: Armada handles their next failure as without Refloat; the first: %w", t.bad, t.first)
}
