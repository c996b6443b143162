package evaluator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/model"
)

const hostileGroups = `kind: RetrySettings
spec: {enabled: true, mode: Enforce}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: pair}
spec:
  maxRestarts: 3
  parts: [{name: main, members: 2}]
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: open}
spec: {maxRestarts: 3}
`

// hostile is a job that asks for a place in a group, or an event of one.
type hostile map[string]string

// TestHostileMembership: whatever jobs say about groups, each has a defined answer, and the
// messages after it are decided.
func TestHostileMembership(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 4<<10)
	pair := hostile{"group": "g", "group-policy": "pair"}
	with := func(more hostile) hostile {
		m := maps.Clone(pair)
		maps.Copy(m, more)
		return m
	}
	gang := func(size string) hostile {
		return hostile{"armadaproject.io/gangId": "gang", "armadaproject.io/gangCardinality": size}
	}
	grouped := func(size, name string) hostile { // a gang in a group
		m := with(gang(size))
		m["group"] = name
		return m
	}
	for _, tt := range []struct {
		name string
		jobs []hostile // in one message, with ids j0, j1, …
		want []policy.FindingReason
	}{
		{"unknown part", []hostile{with(hostile{"part": "nowhere"})}, []policy.FindingReason{policy.NoSuchPart}},
		{"unknown policy", []hostile{{"group": "g", "group-policy": "none"}}, []policy.FindingReason{policy.NoSuchPolicy}},
		{"the same index twice", []hostile{with(hostile{"index": "1"}), with(hostile{"index": "1"})}, []policy.FindingReason{policy.IndexTaken}},
		{"more than declared", []hostile{pair, pair, pair}, []policy.FindingReason{policy.NoSuchIndex}},
		{"replica 2³²", []hostile{with(hostile{"replica": "4294967296"})}, []policy.FindingReason{policy.NoSuchReplica}},
		{"replica 2³²−1", []hostile{with(hostile{"replica": "4294967295"})}, []policy.FindingReason{policy.NoSuchReplica}},
		{"index −1", []hostile{with(hostile{"index": "-1"})}, []policy.FindingReason{policy.NoSuchIndex}},
		{"index beyond any", []hostile{{"group": "g", "group-policy": "open", "index": fmt.Sprint(policy.MaxGroupMembers)}}, []policy.FindingReason{policy.NoSuchIndex}},
		{"a name of 4 KiB", []hostile{{"group": long, "group-policy": "pair"}}, []policy.FindingReason{policy.InvalidName}},
		{"names with NUL and slashes", []hostile{{"group": "a\x00b/c", "group-policy": "open"}, {"group": "a", "group-policy": "open"}, {"group": "a\x00", "group-policy": "open"}}, nil},
		{"a gang of 2³¹", []hostile{gang("2147483648")}, []policy.FindingReason{policy.NotOneUnit}},
		{"a gang of 10¹⁰⁰", []hostile{gang("1" + strings.Repeat("0", 100))}, []policy.FindingReason{policy.NotOneUnit}},
		{"a gang whose rest never comes", []hostile{gang("1000")}, nil},
		{"a gang in two groups", []hostile{grouped("2", "g"), grouped("2", "h"), gang("2")}, []policy.FindingReason{policy.NotOneUnit, policy.NotOneUnit}},
		{"a gang alone, then in a group", []hostile{gang("2"), grouped("2", "g")}, []policy.FindingReason{policy.NotOneUnit}},
		{"two groups in one message", []hostile{{"group": "a", "group-policy": "pair"}, {"group": "b", "group-policy": "open"}}, nil},
		{"a job id of 70 kB", []hostile{with(hostile{"id": strings.Repeat("i", 70<<10)})}, nil},
		{"cancelled before it is submitted", []hostile{with(hostile{"cancelled": "yes"}), pair}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			w.publish([]model.File{{Name: "hostile.yaml", Data: []byte(hostileGroups)}})
			var msgs []model.Message
			add := func(events ...*pb.Event) { msgs = append(msgs, hostileMessage(t, len(msgs), events)) }
			var submissions []*pb.Event
			for i, job := range tt.jobs {
				if job["cancelled"] != "" {
					add(&pb.Event{Event: &pb.Event_CancelledJob{CancelledJob: &pb.CancelledJob{JobId: job.id(i)}}})
				}
				submissions = append(submissions, job.submission(i))
			}
			add(submissions...)
			for i, job := range tt.jobs {
				add(leaseOf(job.id(i)))
			}
			add(failureOf(tt.jobs[0].id(0))) // of a member: all restart
			add(hostile{}.submission(99))    // and the partition goes on
			add(leaseOf("j99"))
			add(failureOf("j99"))
			w.append(msgs)
			m := w.start("state", evaluator.Config{MaxMessages: 2})
			if err := m.drain(); err != nil {
				t.Fatal(err)
			}
			w.verified()
			want := dump(t, m.cfg.Store)
			m.stop()
			again := w.start("again", evaluator.Config{}) // reads back what it wrote
			if err := again.drain(); err != nil {
				t.Fatal(err)
			}
			if got := dump(t, again.cfg.Store); string(got) != string(want) {
				t.Errorf("state\n%s\nwant\n%s", got, want)
			}
			again.stop()
			found, decided := w.findings()
			if !slices.Equal(found, tt.want) {
				t.Errorf("findings %v, want %v", found, tt.want)
			}
			if !decided["j99"] {
				t.Error("the job after it was not decided")
			}
			if cancelled := tt.jobs[0]["cancelled"] != ""; decided[tt.jobs[0].id(0)] == cancelled {
				t.Errorf("the failure of its first job was decided: %v", !cancelled)
			}
		})
	}
}

func (j hostile) id(i int) string {
	if id := j["id"]; id != "" {
		return id
	}
	return fmt.Sprint("j", i)
}

func (j hostile) submission(i int) *pb.Event {
	annotations := map[string]string{}
	for k, v := range j {
		switch {
		case strings.Contains(k, "/"):
			annotations[k] = v
		case k != "id" && k != "cancelled":
			annotations["refloat.github.io/"+k] = v
		}
	}
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: j.id(i), ObjectMeta: &pb.ObjectMeta{Annotations: annotations}}}}
}

func leaseOf(job string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: job[:2] + "-run"}}}
}

func failureOf(job string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: job[:2] + "-run", Errors: []*pb.Error{{
		Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}},
	}}}}}
}

func hostileMessage(t *testing.T, n int, events []*pb.Event) model.Message {
	t.Helper()
	for _, ev := range events {
		ev.Created = &pb.Timestamp{Seconds: int64(1_800_000_000 + n)}
	}
	payload, err := proto.MarshalOptions{AllowPartial: true}.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "s", Events: events})
	if err != nil {
		t.Fatal(err)
	}
	return model.Message{Ledger: 1, Entry: int64(n), Batch: -1, Publish: 1_800_000_000e9, Payload: payload}
}

// findings returns the findings of the chain, and the jobs of which a failure was decided.
func (w *world) findings() (found []policy.FindingReason, decided map[string]bool) {
	decided = map[string]bool{}
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
			case *chain.GroupFinding:
				found = append(found, r.Reason)
			case *chain.Decision:
				decided[r.JobID] = true
			}
		}
	}
	return found, decided
}
