package writer_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb"
)

// TestSubmitted: the requirements derived from the rows of each job of the recordings
// equal those that its SubmitJob created, byte for byte.
func TestSubmitted(t *testing.T) {
	t.Parallel()
	jobs := 0
	for _, name := range []string{"chaos", "preempted"} {
		h := recorded(t, name, forRecordings)
		for p := range h.events.Partitions() {
			r, err := h.events.Open(p, eventlog.Start)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			messages, c := make([]eventlog.Message, 1), schedulerdb.NewConverter()
			for {
				n, err := r.Read(messages)
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					break
				}
				effects, _ := c.Convert(&messages[0], nil)
				for _, e := range effects {
					o, ok := e.Op.(*schedulerdb.InsertJob)
					if !ok {
						continue
					}
					jobs++
					if again, err := schedulerdb.Submitted(o.SubmitMessage, o.Submitted); err != nil || !bytes.Equal(again, o.SchedulingInfo) {
						t.Fatalf("job %s: %x, %v, want %x", o.JobID, again, err, o.SchedulingInfo)
					}
				}
			}
		}
	}
	if jobs < 200 {
		t.Errorf("%d jobs", jobs)
	}
}

// TestPreemptedWithoutError: a run without an error was preempted, so its copy says so:
// Error.jobRunPreemptedError is field 11.
func TestPreemptedWithoutError(t *testing.T) {
	t.Parallel()
	it, err := schedulerdb.RunError(nil)
	if err != nil {
		t.Fatal(err)
	}
	if number, _, n := protowire.ConsumeTag(raw(t, it)); n < 0 || number != 11 {
		t.Errorf("the error is %v", it)
	}
}
