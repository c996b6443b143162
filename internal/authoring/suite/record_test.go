package suite_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// TestRecordHostile: whatever users put into names and messages, a recorded test is one that can be read.
func TestRecordHostile(t *testing.T) {
	t.Parallel()
	for i, odd := range []string{"", " ", "\x1b[31mred\x1b[0m", "nul\x00", "line\r\nbreak\ttab", "\u0085\u009b", "\u202e\ufeff", "bad \xff", "a, b", "null", `"' {}[]#: *&!`} {
		for name, e := range map[string]*pb.Error{
			"pod": {FailureCategory: odd, FailureSubcategory: "sub" + odd, Reason: &pb.Error_PodError{PodError: &pb.PodError{NodeName: odd, Message: odd, ContainerErrors: []*pb.ContainerError{
				{ObjectMeta: &pb.ObjectMeta{Name: odd}, ExitCode: -1, Reason: odd, Message: odd},
			}}}},
			"lease": {FailureSubcategory: odd, Reason: &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}},
			"other": {Reason: &pb.Error_ExecutorError{}},
		} {
			raw, err := proto.Marshal(e)
			if err != nil {
				raw, err = proto.Marshal(&pb.Error{}) // protobuf has no text that is not UTF-8
			}
			if err != nil {
				t.Fatal(err)
			}
			h := &suite.History{
				Members: []suite.MemberHistory{{
					Job: &jobdb.Job{JobID: "job" + odd, Queue: odd, JobSet: odd, Times: jobdb.JobTimes{Submitted: 1e18}, Submit: jobdb.Submit{
						RetryPolicies: odd + "," + odd, GangID: "g", GangCardinality: fmt.Sprint(int64(math.MaxInt64)), InitContainers: []string{odd}, GraceSeconds: math.MaxInt64,
					}},
					Runs: []*jobdb.Run{{RunID: "run" + odd, Node: odd, Times: jobdb.RunTimes{Running: 1e18 - int64(i)}, Error: jobdb.RunError{Raw: raw}}},
				}},
				Decisions: []*chain.Decision{{RunID: "run" + odd, Generation: 1, Time: 1e18 + 1e9, Code: policy.RuleRetry, Policy: "p", Rule: "oom", Requeue: true, RetryAfter: 1e18 + 2e9, AvoidNodes: []string{odd}}},
				Paths:     map[uint64][]string{1: {"policies.yaml"}},
			}
			text, err := suite.Record(h)
			if err != nil {
				t.Errorf("%d %s: %v", i, name, err)
				continue
			}
			if _, err := suite.Parse(policyfile.File{Name: "recorded", Data: text}); err != nil {
				t.Errorf("%d %s, %q:\n%v", i, name, odd, strings.TrimSpace(err.Error()))
			}
		}
	}
}
