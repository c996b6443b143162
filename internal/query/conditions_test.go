package query

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// TestUnitConditions: as those of a Job, a unit has its end first as a target, and then, when nothing of it runs any more, for good.
func TestUnitConditions(t *testing.T) {
	t.Parallel()
	shape := &policy.ShapePart{Name: "main", Replicas: 1, Members: 4, MinMembers: 3}
	for _, row := range []struct {
		about  string
		unit   Unit
		state  jobdb.UnitState
		reason policy.UnitReason
		want   string
	}{
		{about: "runs", unit: Unit{Active: 4}},
		{about: "succeeded", unit: Unit{Succeeded: 4}, state: jobdb.UnitSucceeded, want: "SuccessCriteriaMet CompletionsReached, Complete CompletionsReached"},
		{about: "enough succeeded", unit: Unit{Succeeded: 3, Stopped: 1}, state: jobdb.UnitSucceeded, want: "SuccessCriteriaMet SuccessPolicy, Complete SuccessPolicy"},
		{about: "enough succeeded, and another is told to stop", unit: Unit{Succeeded: 3, Stopped: 1, Terminating: 1}, state: jobdb.UnitSucceeded, want: "SuccessCriteriaMet SuccessPolicy"},
		{
			about: "failed, and others are told to stop", unit: Unit{Failed: 1, Stopped: 3, Terminating: 2, FailedIndexes: "0"}, state: jobdb.UnitFailed,
			reason: policy.MaxFailedIndexesExceeded, want: "FailureTarget MaxFailedIndexesExceeded",
		},
		{
			about: "failed", unit: Unit{Failed: 2, Succeeded: 2, FailedIndexes: "1,3"}, state: jobdb.UnitFailed, reason: policy.FailedIndexes,
			want: "FailureTarget FailedIndexes, Failed FailedIndexes",
		},
	} {
		row.unit.Reason = row.reason.String()
		var got []string
		for _, c := range conditionsOfUnit(&row.unit, shape, row.state, row.reason) {
			got = append(got, c.Type+" "+c.Reason)
		}
		if got := strings.Join(got, ", "); got != row.want {
			t.Errorf("%s: %s, want %s", row.about, got, row.want)
		}
	}
	for reason := policy.PodFailurePolicy; reason <= policy.MemberCancelled; reason++ {
		if (&Unit{}).whyFailed(reason) == "" {
			t.Errorf("%s has no message", reason)
		}
	}
}

// TestGroupConditions: as those of a JobSet; a group that was halted says so.
func TestGroupConditions(t *testing.T) {
	t.Parallel()
	three := uint32(3)
	failed := []Part{{Name: "a", Units: []Unit{{State: "Succeeded"}}}, {Name: "b", Units: []Unit{{State: "Failed", Reason: "BackoffLimitExceeded"}, {Replica: 1, State: "Failed"}}}}
	for _, row := range []struct {
		group  Group
		state  policy.GroupState
		reason policy.UnitReason
		want   string
	}{
		{want: "[]"},
		{state: policy.GroupSucceeded, want: "[{Completed True AllJobsCompleted all units have succeeded}]"},
		{
			group: Group{Parts: failed, Rule: "critical"}, state: policy.GroupFailed, reason: policy.BackoffLimitExceeded,
			want: "[{Failed True FailJobSetFailurePolicyAction unit b/0 has failed (BackoffLimitExceeded), and 1 unit more, by rule critical}]",
		},
		{
			group: Group{Parts: failed}, state: policy.GroupFailed, reason: policy.BackoffLimitExceeded,
			want: "[{Failed True FailedJobs unit b/0 has failed (BackoffLimitExceeded), and 1 unit more}]",
		},
		{
			group: Group{Parts: failed, RestartsCounted: 3, MaxRestarts: &three}, state: policy.GroupFailed, reason: policy.ReachedMaxRestarts,
			want: "[{Failed True ReachedMaxRestarts restarts are used up: 3 of maxRestarts 3}]",
		},
		{
			group: Group{Policy: "p", Parts: failed, MaxRestarts: new(uint32)}, state: policy.GroupFailed, reason: policy.ReachedMaxRestarts,
			want: "[{Failed True ReachedMaxRestarts maxRestarts of group policy p is 0 or not set}]",
		},
		{
			group: Group{Parts: failed[1:]}, state: policy.GroupFailed, reason: policy.Exhausted,
			want: "[{Failed True Exhausted unit b/0 has failed (BackoffLimitExceeded), and 1 unit more, and no other unit can start or run}]",
		},
		{state: policy.GroupFailed, reason: policy.Exhausted, want: "[{Failed True Exhausted no unit can start or run any more}]"},
		{
			group: Group{Parts: failed}, state: policy.GroupHalted, reason: policy.BackoffLimitExceeded,
			want: "[{Halted True BackoffLimitExceeded unit b/0 has failed (BackoffLimitExceeded), and 1 unit more; no unit starts any more}]",
		},
	} {
		row.group.Reason = row.reason.String()
		if got := fmt.Sprint(conditionsOf(&row.group, row.state, row.reason)); got != row.want {
			t.Errorf("%s, want %s", got, row.want)
		}
	}
}

// TestMembersInLists: a member is in the same state in the list of jobs and in that of its group, also where it was stopped and
// its run succeeded all the same. Its unit has not succeeded by that.
func TestMembersInLists(t *testing.T) {
	t.Parallel()
	member := func(index uint32, state jobdb.MemberState, job jobdb.JobState) *jobdb.Job {
		return &jobdb.Job{State: job, Member: jobdb.Membership{Part: "main", Index: index, State: state}}
	}
	g := &jobdb.Group{Shape: policy.Shape{Parts: []policy.ShapePart{{Name: "main", Replicas: 1, Members: 3, MinMembers: 2}}}}
	u := unitOf(g, &jobdb.Unit{Part: "main"}, []*jobdb.Job{
		member(0, jobdb.MemberSucceeded, jobdb.JobSucceeded), member(1, jobdb.MemberStopped, jobdb.JobSucceeded), member(2, jobdb.MemberStopped, jobdb.JobStopping),
	})
	if u.Succeeded != 2 || u.Stopped != 1 || u.CompletedIndexes != "0,1" || u.State != jobdb.UnitActive.String() {
		t.Errorf("%+v", u)
	}
}

// TestSuccessRules: a unit has succeeded by fewer members than minMembers, and a group by fewer units than it has.
func TestSuccessRules(t *testing.T) {
	t.Parallel()
	g := &jobdb.Group{Shape: policy.Shape{Parts: []policy.ShapePart{{
		Name: "main", Replicas: 1, Members: 5, MinMembers: 5, SuccessRules: []policy.SuccessRule{
			{Indexes: policy.ParseIndexes("0"), Count: 1}, {Indexes: policy.ParseIndexes("1-3"), Count: 2},
		},
	}}}}
	for succeeded, want := range map[string]string{"": "Active", "0": "Succeeded", "1,4": "Active", "1,3": "Succeeded", "0-4": "Succeeded"} {
		var members []*jobdb.Job
		for i := range uint32(5) {
			m := &jobdb.Job{State: jobdb.JobRunning, Member: jobdb.Membership{Part: "main", Index: i, State: jobdb.MemberActive}}
			if policy.ParseIndexes(succeeded).Has(i) {
				m.Member.State = jobdb.MemberSucceeded
			}
			members = append(members, m)
		}
		if u := unitOf(g, &jobdb.Unit{Part: "main"}, members); u.State != want {
			t.Errorf("with %q succeeded, the unit is %s, want %s", succeeded, u.State, want)
		} else if succeeded == "1,3" && u.Conditions[0].Message != "2 of its 5 members have succeeded, as one of its successRules says: 1,3" {
			t.Errorf("%+v", u.Conditions)
		}
	}
	part := Group{Parts: []Part{{Name: "a", Units: []Unit{{State: "Succeeded"}}}, {Name: "b", Units: []Unit{{State: "Active"}}}}}
	if c := conditionsOf(&part, policy.GroupSucceeded, policy.NoUnitReason); c[0].Message != "the units that success names have succeeded" {
		t.Errorf("%+v", c)
	}
}

// TestShapeInWords: what a group's shape declares, beside the numbers of its parts, is said in words.
func TestShapeInWords(t *testing.T) {
	t.Parallel()
	p := Part{
		Name: "workers", Replicas: 2, Members: 8, MinMembers: 7, After: []string{"data", "keys"}, AfterReady: []string{"driver"}, Parallelism: 1,
		SuccessRules: []audit.SuccessRule{{Indexes: "0,3-7", Count: 2}},
	}
	want := []string{
		"held until every unit of data, keys has succeeded", "held until every unit of driver is ready", "at most 1 member of a unit at a time",
		"a unit succeeds with 7 of 8 members", "a unit succeeds with 2 of the indexes 0,3-7",
	}
	if got := p.Rules(); !slices.Equal(got, want) {
		t.Errorf("Rules() = %q, want %q", got, want)
	}
	for _, p := range []Part{{Name: "open"}, {Replicas: 1, Members: 3, MinMembers: 3}} {
		if got := p.Rules(); got != nil {
			t.Errorf("Rules() of %+v = %q, want none", p, got)
		}
	}
	for want, s := range map[string]*audit.Success{
		"":                                   nil,
		"one unit of any part has succeeded": {Operator: "Any"},
		"every unit of a, b has succeeded":   {Operator: "All", Parts: []string{"a", "b"}},
		"one unit of workers has succeeded":  {Operator: "Any", Parts: []string{"workers"}},
	} {
		if got := (&Group{Success: s}).SuccessRule(); got != want {
			t.Errorf("SuccessRule() of %+v = %q, want %q", s, got, want)
		}
	}
}
