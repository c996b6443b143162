package history_test

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/simulate"
	"github.com/refloat/refloat/internal/simulate/history"
)

// TestGroups: the groups and gangs of a history are those of the simulation.
func TestGroups(t *testing.T) {
	t.Parallel()
	of := func(id, group string, index int) *pb.Event {
		e := submit(id, "1")
		e.GetSubmitJob().ObjectMeta = &pb.ObjectMeta{Annotations: map[string]string{
			"refloat.github.io/group": group, "refloat.github.io/group-policy": "g", "refloat.github.io/index": strconv.Itoa(index),
		}}
		return e
	}
	text := recorded(t, begin,
		[]*pb.Event{of("a", "one", 0), of("b", "one", 1), of("c", "two", 0), of("d", "two", 1)},
		[]*pb.Event{leased("a", "a1", "n"), leased("b", "b1", "n"), leased("c", "c1", "n"), leased("d", "d1", "n")},
		[]*pb.Event{ended("a", "a1")},
		[]*pb.Event{failed("b", "b1", 3), ended("c", "c1"), ended("d", "d1")},
		[]*pb.Event{leased("b", "b2", "n")},
		[]*pb.Event{ended("b", "b2")},
	)
	h, err := history.Read(bytes.NewReader(text), "h")
	if err != nil {
		t.Fatal(err)
	}
	set, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte(`
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: g}
spec:
  maxRestarts: 1
  parts: [{name: main, members: 2}]
`)}})
	if err != nil {
		t.Fatal(err)
	}
	w, _ := h.Workload()
	c, _ := h.Cluster()
	if err := simulate.Check(c, w); err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(t.Context(), simulate.Options{Candidate: simulate.Candidate{Set: set}, Cluster: c, Workload: w})
	if err != nil {
		t.Fatal(err)
	}
	// Group one restarts as a whole: a runs twice although it has succeeded.
	if r.Done != 4 || r.Runs != 6 || len(r.Failures) != 2 || r.Failures[1].Cause != simulate.Restarted || r.Failures[1].Runs != 1 {
		t.Errorf("%+v %+v", r.Tally, r.Failures)
	}
	w, _ = read(t, "chaos").Workload()
	gangs := map[string]int{}
	for i := range w.Given {
		if g := &w.Given[i]; g.Gang != "" {
			gangs[g.Gang]++
		}
	}
	for id, n := range gangs {
		if n != 4 {
			t.Errorf("gang %s has %d jobs", id, n)
		}
	}
	if len(gangs) == 0 {
		t.Error("the recording has no gangs")
	}
}
