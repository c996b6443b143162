package bench_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// history is a topic in memory.
type history struct {
	partitions [][]eventlog.Message
	messages   int
	events     int
	bytes      int64
}

func (h *history) append(tb testing.TB, partition int, m eventlog.Message) {
	tb.Helper()
	var seq pb.EventSequence
	if err := proto.Unmarshal(m.Payload, &seq); err != nil {
		tb.Fatal(err)
	}
	for len(h.partitions) <= partition {
		h.partitions = append(h.partitions, nil)
	}
	h.partitions[partition] = append(h.partitions[partition], m)
	h.messages++
	h.events += len(seq.Events)
	h.bytes += int64(len(m.Payload))
}

func (h *history) Partitions() int { return len(h.partitions) }

func (h *history) Beginning(int) (eventlog.Position, error) { return eventlog.Start, nil }

func (h *history) End(p int) (eventlog.Position, error) {
	msgs := h.partitions[p]
	return msgs[len(msgs)-1].Position, nil
}

func (h *history) Open(p int, _ eventlog.Position) (eventlog.Reader, error) {
	return &historyReader{left: h.partitions[p]}, nil
}

type historyReader struct{ left []eventlog.Message }

func (r *historyReader) Read(dst []eventlog.Message) (int, error) {
	n := copy(dst, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (*historyReader) Changed() <-chan struct{} { return nil }
func (*historyReader) Close() error             { return nil }

const recordings = "../../../testdata/recordings/"

// recorded is one recording, or several, each in partitions of its own.
func recorded(tb testing.TB, names ...string) *history {
	tb.Helper()
	h := &history{}
	for _, name := range names {
		first := len(h.partitions)
		entries, err := recording.ReadFile(recordings + name + ".jsonl.gz")
		if err != nil {
			tb.Fatal(err)
		}
		for _, e := range entries {
			h.append(tb, first+e.Partition, e.Message)
		}
	}
	return h
}

// simulator writes histories in which most runs fail. Its events have the
// shapes of real ones: it takes those of a recording and gives them other ids
// and times, and longer words about what happened.
type simulator struct {
	*rand.Rand
	tb                                            testing.TB
	submit, leased, running, errors, succeeded, _ []*pb.Event
	now                                           time.Time
	out                                           *history
}

const simulatedBytes = 778 // of a message with a JobRunErrors, on average, as measured

var simulatedQueues = [...][2]string{{"vision-train", "vit-large-a"}, {"genomics", "align-2026-11"}, {"risk-batch", "eod"}}

// simulated is a history of so many jobs, of which some hundreds live at once,
// over some days.
func simulated(tb testing.TB, jobs int) *history {
	tb.Helper()
	s := &simulator{tb: tb, Rand: rand.New(rand.NewPCG(7, 7)), now: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), out: &history{}}
	s.templates()
	const alive = 500
	var lives [][]step
	for next := 0; next < jobs || len(lives) > 0; {
		for ; next < jobs && len(lives) < alive; next++ {
			lives = append(lives, s.life(next))
		}
		i := s.IntN(len(lives))
		s.append(lives[i][0])
		if lives[i] = lives[i][1:]; len(lives[i]) == 0 {
			lives[i] = lives[len(lives)-1]
			lives = lives[:len(lives)-1]
		}
	}
	return s.out
}

// step is one message to come: one event of a job.
type step struct {
	queue int
	event *pb.Event
}

func (s *simulator) templates() {
	entries, err := recording.ReadFile(recordings + "retried.jsonl.gz")
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, e := range entries {
		var seq pb.EventSequence
		if err := proto.Unmarshal(e.Message.Payload, &seq); err != nil {
			s.tb.Fatal(err)
		}
		for _, ev := range seq.Events {
			switch ev.Event.(type) {
			case *pb.Event_SubmitJob:
				s.submit = append(s.submit, ev)
			case *pb.Event_JobRunLeased:
				s.leased = append(s.leased, ev)
			case *pb.Event_JobRunRunning:
				s.running = append(s.running, ev)
			case *pb.Event_JobRunErrors:
				s.errors = append(s.errors, ev)
			case *pb.Event_JobRunSucceeded:
				s.succeeded = append(s.succeeded, ev)
			}
		}
	}
}

func (s *simulator) like(of []*pb.Event) *pb.Event { return proto.CloneOf(of[s.IntN(len(of))]) }

// life is a job with one to six failed runs.
func (s *simulator) life(n int) []step {
	queue, job := s.IntN(len(simulatedQueues)), fmt.Sprintf("01m7x%021d", n)
	var steps []step
	add := func(ev *pb.Event) { steps = append(steps, step{queue, ev}) }
	ev := s.like(s.submit)
	ev.GetSubmitJob().JobId = job
	add(ev)
	failures := 1 + s.IntN(6)
	for i := range failures + 1 {
		run := fmt.Sprintf("%08x-%04x-4000-8000-%012x", s.Uint32(), i, n)
		ev := s.like(s.leased)
		ev.GetJobRunLeased().JobId, ev.GetJobRunLeased().RunId = job, run
		add(ev)
		if i == failures {
			ev = s.like(s.succeeded)
			ev.GetJobRunSucceeded().JobId, ev.GetJobRunSucceeded().RunId = job, run
			add(ev)
			add(&pb.Event{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: job}}})
			break
		}
		if s.IntN(3) == 0 {
			ev = s.like(s.running)
			ev.GetJobRunRunning().JobId, ev.GetJobRunRunning().RunId = job, run
			add(ev)
		}
		ev = s.like(s.errors)
		ev.GetJobRunErrors().JobId, ev.GetJobRunErrors().RunId = job, run
		s.lengthen(ev)
		add(ev)
	}
	return steps
}

var words = strings.Fields("step 4711 loss nan rank 3 worker gradient checkpoint saved at /mnt/data/run shard 12 of 64 retrying connection reset by peer 10.0.3.17:29500 ncclSystemError socket timeout CUDA_VISIBLE_DEVICES")

// lengthen makes what an error says about as long as simulatedBytes asks for.
func (s *simulator) lengthen(ev *pb.Event) {
	want := simulatedBytes/2 + s.IntN(simulatedBytes) - proto.Size(ev) - 60
	var b strings.Builder
	for b.Len() < want {
		b.WriteString(words[s.IntN(len(words))])
		b.WriteByte(' ')
	}
	for _, e := range ev.GetJobRunErrors().Errors {
		if pod := e.GetPodError(); pod != nil {
			pod.Message += b.String()
		}
	}
}

// append appends one message.
func (s *simulator) append(st step) {
	s.now = s.now.Add(time.Duration(s.Int64N(int64(8 * time.Second))))
	st.event.Created = &pb.Timestamp{Seconds: s.now.Unix(), Nanos: int32(s.now.Nanosecond())}
	q := simulatedQueues[st.queue]
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.EventSequence{Queue: q[0], JobSetName: q[1], Events: []*pb.Event{st.event}})
	if err != nil {
		s.tb.Fatal(err)
	}
	at, publish := eventlog.Position{Ledger: 1, Entry: int64(s.out.messages), Batch: -1}, s.now.Add(5*time.Millisecond).UnixNano()
	s.out.append(s.tb, 0, eventlog.Message{
		Position: at, Publish: publish, Key: q[1], Payload: payload,
		Origin: eventlog.Origin{Recording: "simulated", Position: at, Publish: publish},
	})
}

// repeated is a history as long as n of h: the same events, n times, each time
// of other jobs and runs. It shows what is left when a processor's first growth
// is spread over a long history.
func repeated(tb testing.TB, h *history, n int) *history {
	tb.Helper()
	long := &history{}
	for i := range n {
		for p, msgs := range h.partitions {
			for _, m := range msgs {
				var seq pb.EventSequence
				if err := proto.Unmarshal(m.Payload, &seq); err != nil {
					tb.Fatal(err)
				}
				for _, ev := range seq.Events {
					rename(ev.ProtoReflect(), fmt.Sprintf("%02x", i))
				}
				payload, err := proto.Marshal(&seq)
				if err != nil {
					tb.Fatal(err)
				}
				m.Payload = payload
				long.append(tb, p, m)
			}
		}
	}
	return long
}

// rename puts a mark in place of the first letters of job and run ids.
func rename(m protoreflect.Message, mark string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap():
			rename(v.Message(), mark)
		case strings.HasSuffix(string(f.Name()), "job_id") || strings.HasSuffix(string(f.Name()), "run_id"):
			m.Set(f, protoreflect.ValueOfString(mark+v.String()[len(mark):]))
		}
		return true
	})
}
