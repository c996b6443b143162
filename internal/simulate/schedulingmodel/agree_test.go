package schedulingmodel

import (
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// TestMain lets each test draw 500 instances, the same ones each time. With -rapid.checks they are random.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		checks := "500"
		if testing.Short() {
			checks = "100"
		}
		if err := errors.Join(flag.Set("rapid.checks", checks), flag.Set("rapid.seed", "1")); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestAgreement holds scheduling.Schedule against the model on random instances.
func TestAgreement(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { agree(t, Everything.Draw(t), true) })
}

// TestManyNodes does so on instances with more nodes than fit into one block of the index.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { agree(t, Wide.Draw(t), true) })
}

// TestBadInput holds both against each other on input of which one thing was changed.
func TestBadInput(t *testing.T) {
	t.Parallel()
	shape := Everything
	shape.Jobs, shape.Nodes = 12, 4
	rapid.Check(t, func(t *rapid.T) { agree(t, shape.Draw(t).Spoil(t), false) })
}

func agree(t *rapid.T, in Instance, valid bool) {
	want, errWant := Schedule(in.Config, in.Queues, in.Nodes, in.NodeByJob)
	got, errGot := scheduling.Schedule(in.Config, in.Queues, in.Nodes, in.NodeByJob)
	if (errWant == nil) != (errGot == nil) || valid && errWant != nil {
		t.Fatalf("model: %v, engine: %v\n%v", errWant, errGot, in)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("model (-) and engine (+) differ:\n%s%v", diff, in)
	}
}
