package model

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// GenerateBudgets makes a history from a seed that is about budgets (semantics.md 14): many jobs of two queues, whose runs
// mostly fail and mostly run again, at moments that are near the edges of the windows.
func GenerateBudgets(seed uint64) History {
	g := newBudgetGenerator(seed)
	h := History{Seed: seed, Divided: g.IntN(4), Versions: []Version{{Before: 0, Number: BudgetsVersion}}}
	h.Policies = g.spenders(nil)
	now, jobs := base, map[string]int{} // runs of each job
	var names []string
	for i := range 20 + g.IntN(60) {
		if i > 0 && g.IntN(25) == 0 {
			last := &h.Policies
			if n := len(h.Changes); n > 0 {
				last = &h.Changes[n-1].Policies
			}
			h.Changes = append(h.Changes, Change{Before: i, Policies: g.spenders(last.Budgets)})
		}
		// 0 to 30 slices of the shortest window, in all but a few moments at or beside an edge.
		now += g.Int64N(30) / (1 + g.Int64N(8)) * 1_000_000_000
		now += g.Int64N(3) - 1
		queue := queueNames[g.IntN(2)]
		seq := &pb.EventSequence{Queue: queue, JobSetName: "set"}
		for range 1 + g.IntN(3) {
			var id string
			if len(names) == 0 || g.IntN(3) == 0 {
				id = fmt.Sprintf("01%s%d", queue, len(names))
				names = append(names, id)
				seq.Events = append(seq.Events, &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: id}}})
			} else {
				id = names[g.IntN(len(names))]
			}
			run := fmt.Sprintf("%s-%d", id, jobs[id])
			switch g.IntN(6) {
			case 0: // it only starts
				seq.Events = append(seq.Events, &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: id, RunId: run}}})
			case 1: // the pod of a run that failed is gone
				seq.Events = append(seq.Events, &pb.Event{Event: &pb.Event_JobRunTerminated{JobRunTerminated: &pb.JobRunTerminated{JobId: id, RunId: fmt.Sprintf("%s-%d", id, jobs[id]-1)}}})
			default:
				e := &pb.Error{Terminal: true, FailureCategory: []string{"app", "app", "app", "ignored"}[g.IntN(4)], Reason: &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}}
				if g.IntN(3) > 0 {
					e.Reason = &pb.Error_PodError{PodError: &pb.PodError{}}
				}
				seq.Events = append(seq.Events, &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: id, RunId: run, Errors: []*pb.Error{e}}}})
				jobs[id]++
			}
		}
		for _, ev := range seq.Events {
			ev.Created = &pb.Timestamp{Seconds: now / 1e9, Nanos: int32(now % 1e9)}
		}
		payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(seq)
		if err != nil {
			panic(err)
		}
		h.Messages = append(h.Messages, Message{Ledger: 1, Entry: int64(i), Batch: -1, Publish: now, Payload: payload})
	}
	return h
}

// spenders is a policy set that retries nearly everything, with budgets.
func (g *budgetGenerator) spenders(before []Budget) Policies {
	p := Policies{
		Policies: []Policy{{
			Name: "infra", DefaultAction: "Retry", RetryLimit: new(50), Backoff: Backoff{InitialDelayMs: new(g.Int64N(20_000))},
			Rules: []Rule{{Name: "calm", Action: "Ignore", OnFailureCategory: []string{"ignored"}}},
		}},
		Settings: &Settings{DefaultPolicyName: "infra", GlobalMaxRetries: new(100)},
		Budgets:  g.budgets(before),
	}
	for i := range p.Budgets {
		if b := &p.Budgets[i]; g.IntN(2) == 0 && b.Queue != "" {
			b.Queue = queueNames[0]
		}
		if b := &p.Budgets[i]; b.WindowMs > 600_000 {
			b.WindowMs = 100_000
		}
	}
	if g.IntN(3) == 0 {
		p.Queues = []Queue{{Name: queueNames[1], Mode: "Shadow"}}
	}
	return p
}
