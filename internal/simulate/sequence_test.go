package simulate

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy"
)

// TestSequence: what Step is given is what a Decoder reads of the payload.
func TestSequence(t *testing.T) {
	t.Parallel()
	var s sequence
	var d events.Decoder
	node := rapid.SampledFrom([]string{"a", "b"})
	rapid.Check(t, func(t *rapid.T) {
		at := begin().Add(time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "at")))
		s.begin("q", at)
		failures := []*Failure{drawFailure(t), drawFailure(t)} // which come again, on other nodes
		for range rapid.IntRange(1, 5).Draw(t, "events") {
			j := drawJob(t)
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				s.submitted(j)
			case 1:
				s.leased(j)
			case 2:
				s.succeeded(j)
			case 3:
				s.cancelled(j)
			case 4:
				s.preempted(j)
			case 5:
				s.ordered(j, policy.OrderStart, rapid.Int64Range(0, 1<<62).Draw(t, "not before"))
			case 6:
				j.node.Name = node.Draw(t, "node")
				if err := s.failed(j, rapid.SampledFrom(failures).Draw(t, "failure")); err != nil {
					t.Fatal(err)
				}
			}
		}
		payload, err := s.payload()
		if err != nil {
			t.Fatal(err)
		}
		read, err := d.Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		for i := range read.Events {
			if read.Events[i].Created.Time(at.UnixNano()) != at.UnixNano() {
				t.Fatalf("created %v, want %v", read.Events[i].Created, at)
			}
			read.Events[i].Raw = nil
		}
		if !reflect.DeepEqual(*read, s.Sequence) {
			t.Fatalf("Step is given\n%s\nthe payload has\n%s", shown(&s.Sequence), shown(read))
		}
	})
}

func shown(s *events.Sequence) string {
	text, err := json.Marshal(s)
	return fmt.Sprint(string(text), err)
}

func drawJob(t *rapid.T) *job {
	name := rapid.StringMatching(`[a-z]{1,9}|[a-z]{120,140}`)
	j := &job{id: name.Draw(t, "id"), runs: rapid.IntRange(1, 300).Draw(t, "runs"), kind: &kind{Kind: &Kind{JobsAtOnce: 7}}, node: &placed{}}
	j.run = fmt.Sprintf("%s-%d", j.id, j.runs)
	j.node.Name, j.pending = name.Draw(t, "node"), rapid.Bool().Draw(t, "pending")
	if rapid.Bool().Draw(t, "gang") {
		j.gang = &gang{id: name.Draw(t, "gang id")}
	}
	if rapid.Bool().Draw(t, "given") {
		j.given = &Given{
			Annotations:    rapid.MapOf(rapid.SampledFrom([]string{events.AnnotationGangID, "b", strings.Repeat("c", 20_000)}), name).Draw(t, "annotations"),
			GraceSeconds:   rapid.Int64Range(-1, 300).Draw(t, "grace"),
			InitContainers: rapid.SliceOfN(name, 1, 3).Draw(t, "containers"),
		}
	}
	return j
}

func drawFailure(t *rapid.T) *Failure {
	text := rapid.StringMatching(`|[a-z]{1,9}|[a-z]{200}`)
	f := &Failure{
		Condition: rapid.SampledFrom([]string{"", "OOMKilled", "Evicted", "DeadlineExceeded", "Unschedulable", "LeaseReturned", "LeaseExpired"}).Draw(t, "condition"),
		ExitCode:  rapid.Int32Range(-1, 255).Draw(t, "code"), Message: text.Draw(t, "message"), Category: text.Draw(t, "category"), Subcategory: text.Draw(t, "subcategory"),
	}
	switch rapid.IntRange(0, 3).Draw(t, "error") {
	case 0:
		return nil
	case 1:
		f.as = &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{NodeName: "elsewhere", Message: f.Message}}}
	case 2:
		f.as = &pb.Error{Reason: &pb.Error_MaxRunsExceeded{MaxRunsExceeded: &pb.MaxRunsExceeded{Message: f.Message}}}
	}
	return f
}

// TestJobID: names have eight digits, or more.
func TestJobID(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 12_345_678, 99_999_999, 100_000_000, 123_456_789} {
		if got, want := jobID(n), fmt.Sprintf("job-%08d", n); got != want {
			t.Errorf("jobID(%d) = %s, want %s", n, got, want)
		}
	}
}
