package evaluator_test

import (
	"context"
	"runtime"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
)

// padded is a message of a size that makes no record: a job that nobody knows has succeeded.
func padded(t *testing.T, size int) []byte {
	t.Helper()
	b, err := proto.Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "set", Events: []*pb.Event{{
		Created: &pb.Timestamp{Seconds: 1e9}, Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: "01m7xn681y99tqr9907k6hqh4d"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return protowire.AppendBytes(protowire.AppendTag(b, 1000, protowire.BytesType), make([]byte, size))
}

// A backlog of large messages takes as much memory as a few of them: neither what is read
// at once nor what an envelope covers grows with it. Not parallel: it measures the heap.
func TestMemoryOfLargeMessages(t *testing.T) { //nolint:paralleltest // see above
	const messages, size = 200, 400_000
	w := newWorld(t, 1)
	backlog := func() {
		for range messages {
			if err := w.events.AppendSync(context.Background(), 0, []eventlog.Message{{Payload: padded(t, size)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	most := uint64(0)
	m := w.start("state", evaluator.Config{Hooks: evaluator.Hooks{Committed: func(c evaluator.Commit) {
		most = max(most, heap())
		if len(c.Records) > 1 {
			t.Errorf("%d records", len(c.Records))
		}
		if covered := c.Envelope.InCount * size; covered > eventlog.ReadBytes+2*size {
			t.Errorf("an envelope covers %d bytes", covered)
		}
	}}})
	defer m.stop()
	if err := m.drain(); err != nil { // what the store needs in any case
		t.Fatal(err)
	}
	backlog()
	before := heap()
	if err := m.drain(); err != nil {
		t.Fatal(err)
	}
	if most > before+32<<20 {
		t.Errorf("%d MiB of messages took %d MiB of memory", messages*size>>20, (most-before)>>20)
	}
}
