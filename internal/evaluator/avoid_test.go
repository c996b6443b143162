package evaluator_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/test/model"
)

// failing is one job that fails on one node after the other.
func failing(t *testing.T, from, to int) []model.Message {
	t.Helper()
	var messages []model.Message
	for i := from; i < to; i++ {
		run := fmt.Sprintf("run-%d", i)
		events := []*pb.Event{
			{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: "j", RunId: run, NodeId: fmt.Sprintf("node-%d.example.org", i)}}},
			{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: "j", RunId: run, Errors: []*pb.Error{{
				Terminal: true, Reason: &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}},
			}}}}},
		}
		if i == 0 {
			events = append([]*pb.Event{{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: "j"}}}}, events...)
		}
		for _, ev := range events {
			ev.Created = &pb.Timestamp{Seconds: int64(1e9 + i)}
		}
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "set", Events: events})
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, model.Message{Ledger: 7, Entry: int64(i), Batch: -1, Publish: 1e18 + int64(i)*1e9, Payload: payload})
	}
	return messages
}

// What a job's decisions take grows with their number and not with its square: a decision
// names 50 nodes, and how many others there are. Version 1 names all, for ever.
func TestAvoidedNodesAreBounded(t *testing.T) {
	t.Parallel()
	const failures, old = 1000, 120
	w := newWorld(t, 1)
	policies := model.Policies{
		Settings: &model.Settings{DefaultPolicyName: "all"},
		Policies: []model.Policy{{
			Name: "all", AntiAffinity: "allNodes", DefaultAction: "Fail", Rules: []model.Rule{{Name: "any", Action: "Ignore", OnConditions: []string{"LeaseExpired"}}},
		}},
	}
	w.publish(policies.YAML(false))
	reference := model.New(policies)
	w.append(failing(t, 0, old))
	before := w.start("state", evaluator.Config{Semantics: 1})
	if err := before.drain(); err != nil {
		t.Fatal(err)
	}
	before.stop()
	w.append(failing(t, old, failures))
	m := w.start("state", evaluator.Config{Semantics: 2})
	if err := m.drain(); err != nil {
		t.Fatal(err)
	}
	m.stop()
	var want []model.Record
	for i, m := range failing(t, 0, failures) {
		if i == old {
			reference.UseVersion(2)
		}
		want = append(want, reference.Step(m)...)
	}
	size, decisions := 0, 0
	for _, r := range w.records() {
		d, ok := r.(*chain.Decision)
		if !ok {
			continue
		}
		wanted := want[decisions]
		decisions++
		size += len(chain.AppendRecord(nil, d))
		nodes, leftOut := decisions, 0
		if decisions > old {
			nodes, leftOut = 50, decisions-50
		}
		if len(d.AvoidNodes) != nodes || int(d.NodesLeftOut) != leftOut {
			t.Fatalf("decision %d avoids %d nodes and leaves out %d, want %d and %d", decisions, len(d.AvoidNodes), d.NodesLeftOut, nodes, leftOut)
		}
		if !slices.Equal(d.AvoidNodes, wanted.AvoidNodes) || int(d.NodesLeftOut) != wanted.NodesLeftOut {
			t.Fatalf("decision %d avoids %q and leaves out %d, the model has %q and %d", decisions, d.AvoidNodes, d.NodesLeftOut, wanted.AvoidNodes, wanted.NodesLeftOut)
		}
	}
	if decisions != failures || size > failures*2500 {
		t.Errorf("%d decisions take %d bytes", decisions, size)
	}
	w.verified()
}
