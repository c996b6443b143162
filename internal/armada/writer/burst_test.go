package writer_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// burst is one message of runs that fail, every other one with a returned lease, with the
// decision on each.
func burst(tb testing.TB, failures int) (*sink.Message, func(id string) *jobdb.Job) {
	tb.Helper()
	seq := &pb.EventSequence{Queue: "ml", JobSetName: "set"}
	var records []chain.Record
	jobs := map[string]*jobdb.Job{}
	for i := range failures {
		job, run := fmt.Sprintf("01m7xn681y99tqr99%09d", i), fmt.Sprintf("017a6709-710f-4baf-bcc7-%012d", i)
		failure := &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}}}
		if i%2 == 1 {
			failure = &pb.Error{Terminal: true, Reason: &pb.Error_PodLeaseReturned{PodLeaseReturned: &pb.PodLeaseReturned{RunAttempted: true}}}
		}
		seq.Events = append(seq.Events, &pb.Event{
			Created: &pb.Timestamp{Seconds: 1e9}, Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{failure}}},
		})
		records = append(records, &chain.Decision{Requeue: true, Number: uint64(i + 1), Position: eventlog.Start, JobID: job, RunID: run})
		jobs[job] = &jobdb.Job{JobID: job, State: jobdb.JobQueued}
	}
	payload, err := proto.Marshal(seq)
	if err != nil {
		tb.Fatal(err)
	}
	m := sink.Answered(&eventlog.Message{Payload: payload}, records)
	m.Acted = make([]bool, failures)
	for i := range m.Acted {
		m.Acted[i] = true
	}
	return &m, func(id string) *jobdb.Job { return jobs[id] }
}

// BenchmarkBurst is the time for each failure of one message.
func BenchmarkBurst(b *testing.B) {
	for _, failures := range []int{1000, 10_000, 30_000} {
		b.Run(fmt.Sprintf("failures=%d", failures), func(b *testing.B) {
			m, jobs := burst(b, failures)
			for b.Loop() {
				writer.New(writer.Config{Mode: writer.HoldBack}).Collect(m, jobs)
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N*failures), "ns/failure")
			b.ReportMetric(0, "ns/op")
		})
	}
}
