package evaluator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/test/model"
)

// imported is a job with three runs that a cut-over publishes, the newest first, and
// the failure of that run.
func imported(t *testing.T, job string, entry int64) []model.Message {
	t.Helper()
	run := func(n int) *pb.KnownRun {
		return &pb.KnownRun{JobId: job, RunId: fmt.Sprintf("%s-r%d", job, n), Node: "n"}
	}
	failed := &pb.JobRunErrors{JobId: job, RunId: job + "-r2", Errors: []*pb.Error{{
		Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}},
	}}}
	var messages []model.Message
	for i, events := range [][]*pb.Event{
		{
			{Event: &pb.Event_KnownJob{KnownJob: &pb.SubmitJob{JobId: job}}},
			{Event: &pb.Event_KnownRun{KnownRun: run(2)}},
			{Event: &pb.Event_EndedRun{EndedRun: run(1)}},
			{Event: &pb.Event_EndedRun{EndedRun: run(0)}},
		},
		{{Event: &pb.Event_JobRunErrors{JobRunErrors: failed}}},
	} {
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "set", Events: events})
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, model.Message{Ledger: 7, Entry: entry + int64(i), Batch: -1, Publish: 1e18 + entry, Payload: payload})
	}
	return messages
}

// retryAll is a policy set that retries everything.
func retryAll() []model.File {
	return []model.File{{Name: "p.yaml", Data: []byte("apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: all}\nspec: {defaultAction: Retry}\n" +
		"---\nkind: RetrySettings\nspec: {defaultPolicyName: all}\n")}}
}

// podNames are those of the decisions in the chain, with the versions of the semantics
// that were activated between them.
func (w *world) podNames() (names []string) {
	for _, r := range w.records() {
		switch r := r.(type) {
		case *chain.Decision:
			names = append(names, r.PodName)
		case *chain.SemanticsActivated:
			names = append(names, fmt.Sprint("semantics ", r.Version))
		}
	}
	return names
}

// TestPodNameOfImportedJobs: the pod after three imported runs has index 3. A log
// keeps to the version of the semantics that it names, and to the wrong name of version 1,
// until an owner is asked for a newer one; that is never taken back.
func TestPodNameOfImportedJobs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		asked []uint32 // by one owner after the other
		want  []string
	}{
		{"a new log begins with the newest version", []uint32{0, 0}, []string{fmt.Sprint("semantics ", evaluator.SemanticsVersion), "armada-j0-0-3", "armada-j1-0-3"}},
		{"a log of version 1 keeps it", []uint32{1, 0}, []string{"semantics 1", "armada-j0-0-1", "armada-j1-0-1"}},
		{"until version 2 is asked for", []uint32{1, 0, 2}, []string{"semantics 1", "armada-j0-0-1", "armada-j1-0-1", "semantics 2", "armada-j2-0-3"}},
		{"which is not taken back", []uint32{1, 2, 1, 0}, []string{"semantics 1", "armada-j0-0-1", "semantics 2", "armada-j1-0-3", "armada-j2-0-3", "armada-j3-0-3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.publish(retryAll())
			for i, asked := range tt.asked {
				w.append(imported(t, fmt.Sprint("j", i), int64(10*i)))
				// Every other owner starts from nothing, and folds what the others decided.
				m := w.start(fmt.Sprint("state", i/2), evaluator.Config{Semantics: asked})
				if err := m.drain(); err != nil {
					t.Fatal(err)
				}
				m.stop()
			}
			if got := w.podNames(); !slices.Equal(got, tt.want) {
				t.Errorf("the chain says %q, want %q", got, tt.want)
			}
			w.verified()
		})
	}
}

// TestNewerSemantics: an owner does not touch a partition that a newer program
// decides, whether it learns so from the log or from its state.
func TestNewerSemantics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.feed(someHistory(t, 10))
	m := w.start("state", evaluator.Config{})
	if err := m.drain(); err != nil {
		t.Fatal(err)
	}
	end := m.owner.Positions().Chain
	newer := &chain.Envelope{
		Seq: end.Seq + 1, Link: end.Link, Epoch: end.Epoch, Owner: end.Owner, InFrom: end.InTo, InTo: end.InTo,
		Records: [][]byte{chain.AppendRecord(nil, &chain.SemanticsActivated{Version: evaluator.SemanticsVersion + 1})},
	}
	if err := w.decisions.Publisher(0).Publish(newer.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := w.decisions.Commit(); err != nil {
		t.Fatal(err)
	}
	before, _ := w.decisions.End(0)
	refused := func(who string, err error) {
		t.Helper()
		if after, _ := w.decisions.End(0); !errors.Is(err, chain.ErrNewer) || after != before {
			t.Errorf("%s: %v, want ErrNewer; the log ends at %v, ended at %v", who, err, after, before)
		}
	}
	m.w.now += 1e6
	_, err := m.owner.Advance(m.w.now)
	refused("the owner that was live", err)
	m.renew()
	refused("the next owner", m.drain())
	other := w.start("other", evaluator.Config{})
	refused("an owner without state", other.drain())
	asked := w.start("asked", evaluator.Config{Semantics: evaluator.SemanticsVersion + 1})
	refused("an owner that is asked for what it does not know", asked.drain())
	_, err = audit.Verify(context.Background(), w.logs(), 0)
	refused("an audit", err)
	m.stop()
	other.stop()
	asked.stop()
}
