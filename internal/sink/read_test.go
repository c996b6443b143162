package sink

import (
	"testing"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/test/model"
)

// FuzzApply: no payload panics, and a fold that was given what Keys ask for makes the
// same rows as one that has everything.
func FuzzApply(f *testing.F) {
	for seed := range uint64(20) {
		for _, m := range model.Generate(seed, model.Options{}).Messages {
			f.Add(m.Payload)
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		all, part := NewRows(0), NewRows(0)
		for i := range int64(2) {
			m := Message{Seq: 1, Log: eventlog.Message{Position: eventlog.Position{Entry: i}, Publish: i, Payload: payload}}
			m.Events = readable(&m.Log)
			all.Apply(&m)
			part.Admit(part.Keys([]Message{m}), &jobdb.Found{})
			part.Apply(&m)
		}
		want, got := all.Take(), part.Take()
		if diff := Compare(&jobdb.Contents{Changes: *want}, &jobdb.Contents{Changes: *got}); len(diff) > 0 {
			t.Fatal(diff)
		}
		for _, j := range want.Jobs {
			if j.Queueing.OpenRuns > j.Queueing.Runs {
				t.Fatalf("job %+v has more open runs than runs", j)
			}
		}
	})
}
