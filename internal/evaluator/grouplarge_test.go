package evaluator_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/test/model"
)

// restartOf is a history of one group of n members that all restart because one of them
// failed, run again, and succeed.
func restartOf(t *testing.T, n, batch int) model.History {
	t.Helper()
	h := model.History{
		Policies: model.Policies{
			Settings: &model.Settings{Enabled: new(true), Mode: "Enforce"},
			Groups:   []model.GroupPolicy{{Name: "all", MaxRestarts: new(1), Parts: []model.GroupPart{{Name: "main", Members: &n}}}},
		},
		Versions: []model.Version{{Before: 0, Number: model.GroupsVersion}},
	}
	add := func(events ...*pb.Event) { h.Messages = append(h.Messages, hostileMessage(t, len(h.Messages), events)) }
	all := func(event func(job string) *pb.Event) {
		for first := 0; first < n; first += batch {
			var events []*pb.Event
			for i := first; i < min(first+batch, n); i++ {
				events = append(events, event(fmt.Sprintf("01m7xn681y99tqr99%05d", i)))
			}
			add(events...)
		}
	}
	run := func(generation int) func(job string) *pb.Event {
		return func(job string) *pb.Event {
			return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: fmt.Sprint(job, "-", generation)}}}
		}
	}
	all(func(job string) *pb.Event {
		return hostile{"id": job, "group": "g", "group-policy": "all"}.submission(0)
	})
	all(run(0))
	add(&pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: "01m7xn681y99tqr9900003", RunId: "01m7xn681y99tqr9900003-0", Errors: []*pb.Error{{
		Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}},
	}}}}})
	all(run(1))
	all(func(job string) *pb.Event {
		return &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: job + "-1"}}}
	})
	return h
}

// TestCrashPointsOfRestart crashes a machine at every visit of every point while a group
// restarts.
func TestCrashPointsOfRestart(t *testing.T) {
	t.Parallel()
	h := restartOf(t, 12, 3)
	w := newWorld(t, 1)
	w.feed(h)
	crashOnce(t, w, "", 0, 0)
	if got := w.restarts(); got != 12 {
		t.Fatalf("%d members restart, want 12", got)
	}
	crashEverywhere(t, h, []int{0, 100})
}

// TestRestartOf10000: a restart of 10,000 members is one envelope, which ends with it. A machine
// that crashes when the log has it, and its state has not, loses none of its records and doubles
// none.
func TestRestartOf10000(t *testing.T) {
	t.Parallel()
	const members = 10_000
	h := restartOf(t, members, 500)
	w := newWorld(t, 1)
	w.feed(h)
	_, want := crashOnce(t, w, "", 0, 0)
	at := w.restartEnvelope(members)
	w = newWorld(t, 1)
	w.feed(h)
	crashed, state := crashOnce(t, w, evaluator.PointReadBack, at, 0)
	if !crashed || !bytes.Equal(state, want) {
		t.Errorf("crash when envelope %d is read back: %v; the state is the same: %v", at, crashed, bytes.Equal(state, want))
	}
	w.restartEnvelope(members)
}

// restartEnvelope checks that one envelope has the restart of so many members, and nothing but the
// message that caused it. It returns the number of envelopes that answer input,
// up to this one.
func (w *world) restartEnvelope(members int) (number int) {
	w.t.Helper()
	found, envelopes := 0, 0
	for _, b := range w.payloads(w.decisions) {
		env, err := chain.DecodeEnvelope(b)
		if err != nil {
			w.t.Fatal(err)
		}
		records, err := env.Decode()
		if err != nil {
			w.t.Fatal(err)
		}
		if env.InCount > 0 {
			envelopes++
		}
		restarts := 0
		for _, r := range records {
			if c, ok := r.(*chain.MemberChange); ok && c.Change == chain.MemberRestart {
				restarts++
			}
		}
		if restarts == 0 {
			continue
		}
		if found++; restarts != members || len(records) != members+1 || env.InCount != 1 {
			w.t.Errorf("an envelope of %d bytes covers %d messages with %d records, of which %d are restarts",
				len(b), env.InCount, len(records), restarts)
		}
		number = envelopes
	}
	if found != 1 {
		w.t.Errorf("%d envelopes have restarts, want one", found)
	}
	return number
}
