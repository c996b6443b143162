package evaluator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/test/model"
)

// TestShrinkingGroupPolicy: whatever a later generation takes from a group policy, a group
// keeps the parts, replicas and members with which it was bound; rules and limits are the new
// ones, and those of a policy that is gone are none: the group fails.
func TestShrinkingGroupPolicy(t *testing.T) {
	t.Parallel()
	const spec = "kind: GroupPolicy\nmetadata: {name: flow}\nspec:\n  maxRestarts: 2\n  parts: "
	whole := spec + "[{name: first}, {name: main, replicas: 2, members: 2}, {name: last, after: [main]}]"
	restarted := []string{ // all five members, and the last part is held
		"Decision m00 GroupRestart", "MemberRestart f", "MemberRestart m00", "MemberRestart m01", "MemberRestart m10", "MemberRestart m11",
		"MemberRestart l", "MemberHeld l",
	}
	for _, tt := range []struct {
		name, then string
		want       []string // after the change
	}{
		{"fewer members", spec + "[{name: first}, {name: main, replicas: 2}, {name: last, after: [main]}]", restarted},
		{"fewer replicas", spec + "[{name: first}, {name: main, members: 2}, {name: last, after: [main]}]", restarted},
		{"another part is gone", spec + "[{name: main, replicas: 2, members: 2}]", restarted},
		{"its part is gone", spec + "[{name: first}, {name: last}]", restarted},
		{"its size is open", strings.TrimSuffix(spec, "\n  parts: "), restarted},
		{"another order", spec + "[{name: last}, {name: main, after: [last]}, {name: first, after: [main]}]", restarted},
		{"it is gone", "", []string{
			"Decision m00 NoPolicy", "GroupEnded Failed", "MemberStopped f", "MemberStopped m01", "MemberStopped m10", "MemberStopped m11",
			"MemberStopped l",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			use := func(group string) {
				files := []model.File{{Name: "settings.yaml", Data: []byte("kind: RetrySettings\nspec: {enabled: true, mode: Enforce}\n")}}
				if group != "" {
					files = append(files, model.File{Name: "group.yaml", Data: []byte("apiVersion: refloat.github.io/v1\n" + group)})
				}
				w.publish(files)
			}
			use(whole)
			n := 0
			add := func(events ...*pb.Event) {
				w.append([]model.Message{hostileMessage(t, n, events)})
				n++
			}
			in := func(job, part string, replica int) *pb.Event {
				return hostile{"id": job, "group": "g", "group-policy": "flow", "part": part, "replica": fmt.Sprint(replica)}.submission(0)
			}
			add(in("f", "first", 0), in("m00", "main", 0), in("m01", "main", 0), in("m10", "main", 1), in("m11", "main", 1), in("l", "last", 0))
			add(leaseOf("m00"), leaseOf("m01"), leaseOf("m10"), leaseOf("m11"))
			m := w.start("state", evaluator.Config{})
			if err := m.drain(); err != nil {
				t.Fatal(err)
			}
			before := len(w.groupRecords())
			use(tt.then)
			add(failureOf("m00"))
			add(hostile{"id": "other"}.submission(0)) // and the partition goes on
			if err := m.drain(); err != nil {
				t.Fatal(err)
			}
			m.stop()
			if got := w.groupRecords()[before:]; !slices.Equal(got, tt.want) {
				t.Errorf("records\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			w.verified()
		})
	}
}

// TestCancelledAfterSuccess: a member that succeeded and was then cancelled does not count for
// the generation after a restart, which it is not part of.
func TestCancelledAfterSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.publish([]model.File{{Name: "p.yaml", Data: []byte("kind: RetrySettings\nspec: {enabled: true, mode: Enforce}\n---\napiVersion: refloat.github.io/v1\n" +
		"kind: GroupPolicy\nmetadata: {name: p}\nspec:\n  maxRestarts: 5\n  parts: [{name: main, members: 2, minMembers: 1}, {name: other}]\n")}})
	in := func(job, part string) *pb.Event {
		return hostile{"id": job, "group": "g", "group-policy": "p", "part": part}.submission(0)
	}
	success := func(job, run string) *pb.Event {
		return &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: run}}}
	}
	var msgs []model.Message
	for i, events := range [][]*pb.Event{
		{in("a0", "main"), in("b0", "main"), in("c0", "other")},
		{success("a0", "a0-run")},
		{{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: "a0"}}}},
		{leaseOf("c0")},
		{failureOf("c0")},
		{leaseOf("b0")},
		{success("b0", "b0-run"), success("c0", "c1-run")},
	} {
		msgs = append(msgs, hostileMessage(t, i, events))
	}
	w.append(msgs)
	m := w.start("state", evaluator.Config{})
	if err := m.drain(); err != nil {
		t.Fatal(err)
	}
	m.stop()
	want := []string{"GroupBound g", "MemberStopped b0", "Decision c0 GroupRestart", "MemberRestart b0", "MemberRestart c0", "GroupEnded Succeeded"}
	if got := w.groupRecords(); !slices.Equal(got, want) {
		t.Errorf("records\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	w.verified()
}

// TestMixedHistory: version 3 is activated in the middle of a history. What was submitted before is in
// no group for good, what comes after is; the decisions before are what they were, and all of it
// is derived again from the logs.
func TestMixedHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.publish([]model.File{{Name: "p.yaml", Data: []byte("kind: RetrySettings\nspec: {enabled: true, mode: Enforce}\n---\napiVersion: refloat.github.io/v1\n" +
		"kind: GroupPolicy\nmetadata: {name: p}\nspec:\n  maxRestarts: 5\n  parts: [{name: main, members: 3}]\n")}})
	in := func(job string) *pb.Event { return hostile{"id": job, "group": "g", "group-policy": "p"}.submission(0) }
	gang := func(job, id string) *pb.Event {
		return hostile{"id": job, "armadaproject.io/gangId": id, "armadaproject.io/gangCardinality": "2"}.submission(0)
	}
	n := 0
	lives := func(version uint32, messages ...[]*pb.Event) {
		var msgs []model.Message
		for _, events := range messages {
			msgs = append(msgs, hostileMessage(t, n, events))
			n++
		}
		w.append(msgs)
		m := w.start("state", evaluator.Config{Semantics: version})
		if err := m.drain(); err != nil {
			t.Fatal(err)
		}
		m.stop()
	}
	lives(2,
		[]*pb.Event{in("a0"), in("b0"), in("c0"), gang("x0", "x"), gang("x1", "x"), gang("y0", "y")},
		[]*pb.Event{leaseOf("a0"), leaseOf("b0"), leaseOf("x0"), leaseOf("y0")},
		[]*pb.Event{failureOf("a0"), failureOf("x0")},
	)
	lives(3,
		[]*pb.Event{failureOf("b0"), failureOf("y0")},              // submitted before: decided as before
		[]*pb.Event{in("d0"), in("e0"), in("f0"), gang("y1", "y")}, // the group is bound now, and has room for three
		[]*pb.Event{leaseOf("d0"), leaseOf("e0"), leaseOf("f0"), leaseOf("y1")},
		[]*pb.Event{in("c0")}, // said again: still in no group
		[]*pb.Event{failureOf("d0"), failureOf("y1")},
	)
	lives(0, []*pb.Event{leaseOf("c0")}, []*pb.Event{failureOf("c0")})
	want := []string{
		"Decision a0 NoPolicy", "Decision x0 GangFail", "Decision b0 NoPolicy", "Decision y0 GangFail",
		"GroupBound g", "GroupBound gang/y",
		"Decision d0 GroupRestart", "MemberRestart d0", "MemberRestart e0", "MemberRestart f0",
		"Decision y1 NoPolicy", "GroupEnded Failed",
		"Decision c0 NoPolicy",
	}
	if got := w.groupRecords(); !slices.Equal(got, want) {
		t.Errorf("records\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	w.verified()
	var states [][]byte
	for _, dir := range []string{"state", "again"} { // as it was left, and from the logs alone
		m := w.start(dir, evaluator.Config{})
		if err := m.drain(); err != nil {
			t.Fatal(err)
		}
		states = append(states, dump(t, m.cfg.Store))
		m.stop()
	}
	if string(states[0]) != string(states[1]) {
		t.Errorf("state\n%s\nfrom the logs\n%s", states[0], states[1])
	}
}

// groupRecords are the decisions and the records of groups in the chain, in short.
func (w *world) groupRecords() (out []string) {
	for _, b := range w.payloads(w.decisions) {
		env, err := chain.DecodeEnvelope(b)
		if err != nil {
			w.t.Fatal(err)
		}
		records, err := env.Decode()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range records {
			switch r := r.(type) {
			case *chain.Decision:
				out = append(out, fmt.Sprint("Decision ", r.JobID, " ", r.Code))
			case *chain.GroupBound:
				out = append(out, "GroupBound "+r.Group)
			case *chain.GroupFinding:
				out = append(out, fmt.Sprint("GroupFinding ", r.JobID, " ", r.Reason))
			case *chain.MemberChange:
				out = append(out, fmt.Sprint(r.Change, " ", r.JobID))
			case *chain.UnitEnded:
				out = append(out, fmt.Sprint("UnitEnded ", r.Verdict.Action))
			case *chain.GroupEnded:
				out = append(out, fmt.Sprint("GroupEnded ", r.State))
			}
		}
	}
	return out
}
