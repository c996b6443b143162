package jobs_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/refloat/refloat/internal/api/jobs"
	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

// oneGroup is a job database with one group and the record that bound it.
type oneGroup struct {
	jobdb.Queries
	shape policy.Shape
}

func (g *oneGroup) GroupList(c *jobdb.Criteria, _ jobdb.Page, visit func(*jobdb.Group) error) ([]any, error) {
	if c.Group == "" {
		return nil, nil // those that follow it
	}
	return nil, visit(&jobdb.Group{Queue: "q", JobSet: "s", Name: "g", Shape: g.shape, State: policy.GroupActive})
}

// failed is a member whose run failed, and with it the group.
var failed = jobdb.Job{JobID: "j", Queue: "q", JobSet: "s", Member: jobdb.Membership{GroupID: "g", Group: "g", Part: "driver", State: jobdb.MemberUnitFail}}

func (g *oneGroup) Members(_ *jobdb.Group, visit func(*jobdb.Job) error) error { return visit(&failed) }

func (g *oneGroup) JobList(_ *jobdb.Criteria, _ jobdb.Page, visit func(*jobdb.Job) error) ([]any, error) {
	return nil, visit(&failed)
}

func (g *oneGroup) Runs(_ int, _ string, visit func(*jobdb.Run) error) error {
	return visit(&jobdb.Run{JobID: "j", RunID: "r", Node: "n"})
}

func (g *oneGroup) Units(_ *jobdb.Group, visit func(*jobdb.Unit) error) error {
	return visit(&jobdb.Unit{Part: "driver", State: jobdb.UnitFailed})
}

func (g *oneGroup) Decisions(_ jobdb.RecordFilter, visit func(*jobdb.Decision) error) error {
	return visit(&jobdb.Decision{Acted: true, Decision: chain.Decision{
		Queue: "q", JobSet: "s", JobID: "j", RunID: "r", Code: policy.DefaultFail, Member: &chain.Member{Group: "g", Part: "driver"},
		Group: &chain.GroupVerdict{Reason: policy.BackoffLimitExceeded, Action: policy.FailGroup},
	}})
}

func (g *oneGroup) GroupRecords(_ jobdb.RecordFilter, visit func(*jobdb.GroupRecord) error) error {
	return visit(&jobdb.GroupRecord{Raw: chain.AppendRecord(nil, &chain.GroupBound{Queue: "q", JobSet: "s", Group: "g", Policy: "p", Shape: g.shape})})
}

// TestShape: everything of a group's shape comes through the API as the command line shows it without a server.
func TestShape(t *testing.T) {
	t.Parallel()
	g := &oneGroup{shape: policy.Shape{
		Parts: []policy.ShapePart{
			{Name: "driver", Replicas: 1, Members: 1, MinMembers: 1},
			{Name: "data", Replicas: 1, Members: 1, MinMembers: 1},
			{
				Name: "workers", Replicas: 2, Members: 8, MinMembers: 7, Parallelism: 4, After: []uint32{1}, AfterReady: []uint32{0},
				SuccessRules: []policy.SuccessRule{{Indexes: policy.ParseIndexes("0,3-7"), Count: 2}, {Indexes: policy.ParseIndexes("1"), Count: 1}},
			},
		},
		Success: policy.Success{Any: true, Parts: []uint32{2}},
	}}
	local := &query.Source{Jobs: func(_ context.Context, read func(jobdb.Queries) error) error { return read(g) }}
	served := servedBy(t, &jobs.Service{Source: local, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	remote := &jobs.Client{Call: func(ctx context.Context, call func(context.Context, pb.JobsClient) error) error {
		return call(ctx, served)
	}}
	equal := []cmp.Option{cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(query.Turn{}, query.MemberRow{}), cmpopts.IgnoreFields(query.Unit{}, "Members")}
	key := query.GroupKey{Group: "g"}
	want, err := local.GroupHistory(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.GroupHistory(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, equal...); diff != "" {
		t.Error(diff)
	}
	if len(want.Lines) != 2 || len(want.Lines[0].Other.Parts) != 3 {
		t.Errorf("the history is %+v", want.Lines)
	}
	if s := want.Group.Story; len(s.Turns) != 1 || s.Turns[0].Node != "n" || s.Turns[0].Cause == "" || len(s.Members) != 1 || s.Members[0].Generations[0].Text() != "1 FailedUnit" {
		t.Errorf("the story is %+v", s)
	}
	group, err := remote.Group(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Group, group, equal...); diff != "" {
		t.Error(diff)
	}
}
