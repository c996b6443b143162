package e2e

import (
	"bytes"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/recording"
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
