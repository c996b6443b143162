package e2e

import (
	"crypto/sha256"
	"hash/crc32"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy"
)

// written is a small chain of two owners, and the events that it answers.
func written(t *testing.T) (decisions, events [][]byte) {
	t.Helper()
	link := make([]byte, 32)
	add := func(e *pb.Envelope, records ...*pb.Record) {
		e.Seq, e.Link = uint64(len(decisions)+1), link
		for _, r := range records {
			e.Records = append(e.Records, marshal(t, r))
		}
		e.Check = crc32.Checksum(marshal(t, e), crc32.MakeTable(crc32.Castagnoli))
		raw := marshal(t, e)
		sum := sha256.Sum256(raw)
		decisions, link = append(decisions, raw), sum[:]
	}
	one, two := &pb.Position{Ledger: 1}, &pb.Position{Ledger: 1, Entry: 1}
	claim := func(epoch uint64, owner string) *pb.Record {
		return &pb.Record{Record: &pb.Record_OwnerClaim{OwnerClaim: &pb.OwnerClaim{
			Epoch: epoch, Owner: []byte(owner), LastSeq: uint64(len(decisions)), LastLink: link,
		}}}
	}
	add(&pb.Envelope{Epoch: 1, Owner: []byte("a")}, claim(1, "a"))
	add(&pb.Envelope{Epoch: 1, Owner: []byte("a"), InTo: one, InCount: 1},
		&pb.Record{Record: &pb.Record_JobFailed{JobFailed: &pb.Decision{JobId: "j", RunId: "r1"}}})
	add(&pb.Envelope{Epoch: 2, Owner: []byte("b"), InFrom: one, InTo: one}, claim(2, "b"))
	add(&pb.Envelope{Epoch: 2, Owner: []byte("b"), InFrom: one, InTo: two, InCount: 1},
		&pb.Record{Record: &pb.Record_NotDecided{NotDecided: &pb.NotDecided{JobId: "j", RunId: "r2"}}})
	failure := func(run string) *pb.Event {
		return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: "j", RunId: run, Errors: []*pb.Error{{Terminal: true}}}}}
	}
	for _, run := range []string{"r1", "r2"} {
		events = append(events, marshal(t, &pb.EventSequence{Queue: "q", JobSetName: "s", Events: []*pb.Event{failure(run), failure("r1")}}))
	}
	return decisions, events
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestChain: what is plainly wrong is seen, what may happen is ignored.
func TestChain(t *testing.T) {
	t.Parallel()
	d, events := written(t)
	tests := []struct {
		name                  string
		log                   [][]byte
		ignored, fails, wrong string // the last reason, the error, a violation
	}{
		{"whole", d, "", "", ""},
		{"repeated", [][]byte{d[0], d[1], d[1], d[2], d[3]}, "repeated", "", ""},
		{"repeated claim", [][]byte{d[0], d[0], d[1], d[2], d[3]}, "lost_claim", "", ""},
		{"old epoch", [][]byte{d[0], d[1], d[2], d[1], d[3]}, "old_epoch", "", ""},
		{"garbage", [][]byte{d[0], []byte("garbage"), nil, d[1], d[2], d[3]}, "malformed", "", ""},
		{"a piece", [][]byte{d[0], d[1][:len(d[1])-6], d[1], d[2], d[3]}, "malformed", "", ""},
		{"damaged", [][]byte{d[0], append([]byte{d[1][0], d[1][1] + 1}, d[1][2:]...), d[1], d[2], d[3]}, "malformed", "", ""},
		{"decision dropped", [][]byte{d[0], d[2], d[3]}, "", "was claimed at envelope 2", ""},
		{"claim dropped", [][]byte{d[0], d[1], d[3]}, "", "whose claim is not here", ""},
		{"end dropped", d[:3], "", "", "run r2 of job j failed and has 0 records"},
		{"beginning dropped", d[1:], "", "whose claim is not here", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, f := NewChain(), NewFailures()
			var ignored, failed string
			for _, raw := range tt.log {
				why, err := c.Offer(raw)
				if err != nil {
					failed = err.Error()
					break
				}
				if why != "" {
					ignored = why
				}
			}
			for _, e := range events {
				f.Read(e)
			}
			if ignored != tt.ignored || (failed == "") != (tt.fails == "") || !strings.Contains(failed, tt.fails) {
				t.Fatalf("ignored %q, error %q; want %q, %q", ignored, failed, tt.ignored, tt.fails)
			}
			if got := strings.Join(f.Violations(c), "\n"); tt.fails == "" && ((got == "") != (tt.wrong == "") || !strings.Contains(got, tt.wrong)) {
				t.Errorf("violations %q, want %q", got, tt.wrong)
			}
		})
	}
}

// TestFailures: one record too many, and one for a run that did not fail.
func TestFailures(t *testing.T) {
	t.Parallel()
	_, events := written(t)
	f := NewFailures()
	for _, e := range events {
		f.Read(e)
	}
	if f.Failed() != 2 {
		t.Fatalf("%d runs failed, want 2", f.Failed())
	}
	c := NewChain()
	c.Records = map[Run]int{{"j", "r1"}: 2, {"j", "r2"}: 1, {"j", "r3"}: 1}
	got := strings.Join(f.Violations(c), "\n")
	for _, want := range []string{"run r1 of job j failed and has 2 records", "run r3 of job j did not fail and has 1"} {
		if !strings.Contains(got, want) {
			t.Errorf("violations %q lack %q", got, want)
		}
	}
}

// TestGroupScan: what no log may say of a group is seen.
func TestGroupScan(t *testing.T) {
	t.Parallel()
	member := &pb.Member{Group: "g", Part: "main", Generation: 1}
	of := func(run string) *pb.MemberChange {
		return &pb.MemberChange{Queue: "q", JobSet: "s", JobId: "j", RunId: run, Member: member}
	}
	held, released := &pb.Record{Record: &pb.Record_MemberHeld{MemberHeld: of("")}}, &pb.Record{Record: &pb.Record_MemberReleased{MemberReleased: of("")}}
	restart := &pb.Record{Record: &pb.Record_MemberRestart{MemberRestart: of("r1")}}
	stopped := &pb.Record{Record: &pb.Record_MemberStopped{MemberStopped: of("r1")}}
	ended := &pb.Record{Record: &pb.Record_GroupEnded{GroupEnded: &pb.GroupEnded{Queue: "q", JobSet: "s", Group: "g"}}}
	failed := func(run string, code policy.Code, v *pb.GroupVerdict) *pb.Record {
		return &pb.Record{Record: &pb.Record_JobFailed{JobFailed: &pb.Decision{
			Queue: "q", JobSet: "s", JobId: "j", RunId: run, Code: uint32(code), Member: member, GroupVerdict: v,
		}}}
	}
	unit := func(used uint32) *pb.Record {
		return &pb.Record{Record: &pb.Record_UnitEnded{UnitEnded: &pb.UnitEnded{
			Queue: "q", JobSet: "s", Member: member, Verdict: &pb.GroupVerdict{RestartsUsed: used, MaxRestarts: 1},
		}}}
	}
	for _, tt := range []struct {
		name    string
		records []*pb.Record
		wrong   string
	}{
		{"all is well", []*pb.Record{held, released, unit(1), restart, failed("r1", policy.GroupRestart, nil), ended, stopped, failed("r2", policy.GroupOver, nil)}, ""},
		{"held twice", []*pb.Record{held, held}, "is held that is held"},
		{"released, not held", []*pb.Record{released}, "is released that is not held"},
		{"released after the end", []*pb.Record{held, ended, released}, "is started, which has ended"},
		{"restarted after the end", []*pb.Record{ended, restart}, "is started, which has ended"},
		{"restarted to no new generation", []*pb.Record{restart, restart}, "to generation 1 after 1"},
		{"told to stop, decided", []*pb.Record{restart, failed("r1", policy.RuleFail, nil)}, "told to stop"},
		{"told to stop, and the group is asked", []*pb.Record{restart, failed("r1", policy.GroupRestart, &pb.GroupVerdict{})}, "told to stop"},
		{"decided after the end", []*pb.Record{ended, failed("r1", policy.RuleFail, nil)}, "has ended"},
		{"ended twice", []*pb.Record{ended, ended}, "ends twice"},
		{"a unit after the end", []*pb.Record{ended, unit(0)}, "which has ended"},
		{"past maxRestarts", []*pb.Record{unit(1), unit(2)}, "restart 2 of 1 after 1"},
		{"two at once", []*pb.Record{unit(2)}, "restart 2 of 1 after 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newGroupScan()
			for _, r := range tt.records {
				s.take(r)
			}
			if got := strings.Join(s.wrong, "\n"); (got == "") != (tt.wrong == "") || !strings.Contains(got, tt.wrong) {
				t.Errorf("%q, want %q", got, tt.wrong)
			}
		})
	}
}
