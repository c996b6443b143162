package e2e

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// feedOne writes the recording "preempted", all of it, to partition 0 of events,
// with ids that begin as said.
func (w *world) feedOne(id string) {
	w.t.Helper()
	entries, err := recording.ReadFile(recordingFile("preempted"))
	w.must(err)
	l, err := w.Open()
	w.must(err)
	defer l.Close()
	a := l.Events.Appender()
	defer a.Close()
	var all []eventlog.Message
	for _, e := range entries {
		all = append(all, eventlog.Message{Key: e.Message.Key, Payload: bytes.ReplaceAll(e.Message.Payload, []byte(jobsBegin), []byte(id))})
	}
	w.must(a.AppendSync(w.ctx, 0, all))
}

// nudge writes a message that decides nothing to each partition.
func (w *world) nudge() {
	w.t.Helper()
	l, err := w.Open()
	w.must(err)
	defer l.Close()
	a := l.Events.Appender()
	defer a.Close()
	payload, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "nudge", Events: []*pb.Event{
		{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: "nobody"}}},
	}})
	w.must(err)
	for p := range l.Events.Partitions() {
		w.must(a.AppendSync(w.ctx, p, []eventlog.Message{{Key: "nudge", Payload: payload}}))
	}
}
