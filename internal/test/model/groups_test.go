package model

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/events/pb"
)

// playGroups is play under version 3, rendering what matters for groups.
func playGroups(t *testing.T, p Policies, messages ...timedMessage) []string {
	t.Helper()
	m := New(p)
	m.UseVersion(GroupsVersion)
	var lines []string
	for i, s := range messages {
		for _, r := range m.Step(s.message(t, i)) {
			lines = append(lines, fmt.Sprintf("%d: %s", i, showGroup(r)))
		}
	}
	return lines
}

func showGroup(r Record) string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, " "+format, args...) }
	b.WriteString(string(r.Kind))
	if r.JobID != "" {
		add("%s", r.JobID)
	}
	for _, word := range []string{r.RunID, r.Code, r.State, r.Reason, r.UnitReason, r.GroupAction} {
		if word != "" {
			add("%s", word)
		}
	}
	if r.Rule != "" || r.GroupRule != "" {
		add("by %s", strings.Trim(r.Rule+","+r.GroupRule, ","))
	}
	if r.GroupAction != "" {
		add("%d/%d", r.RestartsUsed, r.MaxRestarts)
	}
	if r.Generation > 0 {
		add("g%d", r.Generation)
	}
	if r.RetryAfter != 0 {
		add("@%s", time.Duration(r.RetryAfter-base))
	}
	return b.String()
}

// in is the SubmitJob of a member of group g under policy p.
func in(job string, annotations ...string) *pb.Event {
	return submit(job, append([]string{annotationGroup, "g", annotationGroupPolicy, "p"}, annotations...)...)
}

func inPart(job, part string, annotations ...string) *pb.Event {
	return in(job, append([]string{annotationPart, part}, annotations...)...)
}

func inGang(job, gang, cardinality string, annotations ...string) *pb.Event {
	return submit(job, append([]string{annotationGang, gang, annotationCardinality, cardinality}, annotations...)...)
}

// fails1 is a run that failed with exit code 1.
func fails1(job, run string) *pb.Event {
	return fails(job, run, podError("node-1", exited("main", 1, "Error", "boom")))
}

func lease(job, run string) *pb.Event { return leased(job, run, "node-1") }

// grouped is a policy set in which a member's exit codes say what becomes of it: 1
// fails it, 2 retries it up to five times, 3 fails its unit.
func grouped(p GroupPolicy) Policies {
	code := func(name, action string, value int32) Rule {
		return Rule{Name: name, Action: action, OnExitCodes: &ExitCodes{"In", []int32{value}}}
	}
	set := ml(Settings{}, Policy{Name: "infra", RetryLimit: new(5), DefaultAction: "Fail", Rules: []Rule{
		code("fail", "Fail", 1), code("retry", "Retry", 2), code("unit", "FailUnit", 3),
	}})
	p.Name = "p"
	set.Groups = []GroupPolicy{p}
	return set
}

func exits(job, run string, code int32) *pb.Event {
	return fails(job, run, podError("node-1", exited("main", code, "Error", "boom")))
}

func TestGroups(t *testing.T) {
	t.Parallel()
	one := func(p GroupPart) []GroupPart { p.Name = "main"; return []GroupPart{p} }
	three := one(GroupPart{Members: new(3)})
	start3 := []timedMessage{at(0, in("a"), in("b"), in("c")), at(1, lease("a", "a0"), lease("b", "b0"), lease("c", "c0"))}
	with := func(first []timedMessage, more ...timedMessage) []timedMessage {
		return append(append([]timedMessage{}, first...), more...)
	}

	for _, tc := range []struct {
		name     string
		policies Policies
		messages []timedMessage
		want     []string
	}{
		{
			"no rules, no maxRestarts: the group fails", grouped(GroupPolicy{Parts: three}),
			with(start3, at(2, fails1("b", "b0")), at(3, fails1("a", "a0"))),
			[]string{
				"0: GroupBound",
				"2: JobFailed b b0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0",
				"2: GroupEnded Failed BackoffLimitExceeded",
				"2: MemberStopped a a0",
				"2: MemberStopped c c0",
				"3: JobFailed a a0 GroupEnded",
			},
		},
		{
			"a restart, its late runs, and the limit", grouped(GroupPolicy{MaxRestarts: new(1), Parts: three}),
			with(start3, at(2, fails1("b", "b0")), at(3, fails1("a", "a0")), at(4, lease("c", "c1")), at(5, fails1("c", "c0"), exits("c", "c1", 3))),
			[]string{
				"0: GroupBound",
				"2: JobRequeued b b0 GroupRestart BackoffLimitExceeded RestartGroup by fail 1/1 g1 @2s",
				"2: MemberRestart a a0 g1 @3s",
				"2: MemberRestart b b0 g1 @2s",
				"2: MemberRestart c c0 g1 @3s",
				"3: JobRequeued a a0 GroupRestart g1 @3s",
				"5: NotDecided c c0 StaleRun",
				"5: JobFailed c c1 RuleFail PodFailurePolicy FailGroup by unit 1/1 g1",
				"5: GroupEnded Failed ReachedMaxRestarts",
				"5: MemberStopped a a0",
				"5: MemberStopped b b0",
			},
		},
		{
			"failures of one message: the second is the restart's",
			grouped(GroupPolicy{Rules: []GroupRule{{Name: "r", Action: "RestartUnit", CountsTowardMax: new(false)}}, Parts: three}),
			with(start3, at(2, fails1("b", "b0"), fails1("c", "c0"))),
			[]string{
				"0: GroupBound",
				"2: JobRequeued b b0 GroupRestart BackoffLimitExceeded RestartUnit by fail,r 0/0 g1 @2s",
				"2: MemberRestart a a0 g1 @3s",
				"2: MemberRestart b b0 g1 @2s",
				"2: MemberRestart c c0 g1 @3s",
				"2: JobRequeued c c0 GroupRestart by r g1 @3s",
			},
		},
		{
			"Keep, and a success of a run that was told to stop",
			grouped(GroupPolicy{MaxRestarts: new(5), Completed: "Keep", Parts: three}),
			with(start3, at(2, succeeded("a", "a0")), at(3, fails1("b", "b0")), at(4, succeeded("c", "c0")), at(5, lease("c", "c1"), lease("b", "b1")),
				at(6, succeeded("b", "b1")), at(7, succeeded("c", "c1"))),
			[]string{
				"0: GroupBound",
				"3: JobRequeued b b0 GroupRestart BackoffLimitExceeded RestartGroup by fail 1/5 g1 @3s",
				"3: MemberRestart b b0 g1 @3s",
				"3: MemberRestart c c0 g1 @4s",
				"7: GroupEnded Succeeded",
			},
		},
		{
			"Continue: failed indexes, by the last success",
			grouped(GroupPolicy{Parts: one(GroupPart{Members: new(3), OnMemberFailure: "Continue"})}),
			with(start3, at(2, fails1("b", "b0")), at(3, succeeded("a", "a0")), at(4, succeeded("c", "c0"))),
			[]string{
				"0: GroupBound",
				"2: JobFailed b b0 RuleFail by fail",
				"4: UnitEnded Failed FailedIndexes FailGroup 0/0",
				"4: GroupEnded Failed FailedIndexes",
			},
		},
		{
			"Continue: too many", grouped(GroupPolicy{Parts: one(GroupPart{Members: new(3), OnMemberFailure: "Continue", MaxFailedMembers: new(1)})}),
			with(start3, at(2, fails1("b", "b0")), at(3, fails1("a", "a0"))),
			[]string{
				"0: GroupBound",
				"2: JobFailed b b0 RuleFail by fail",
				"3: JobFailed a a0 RuleFail MaxFailedIndexesExceeded FailGroup by fail 0/0",
				"3: GroupEnded Failed MaxFailedIndexesExceeded",
				"3: MemberStopped c c0",
			},
		},
		{
			"the unit's retryLimit", grouped(GroupPolicy{Parts: one(GroupPart{Members: new(3), RetryLimit: new(1)})}),
			with(start3, at(2, exits("b", "b0", 2)), at(3, exits("a", "a0", 2))),
			[]string{
				"0: GroupBound",
				"2: JobRequeued b b0 RuleRetry by retry @2s",
				"3: JobFailed a a0 UnitLimit BackoffLimitExceeded FailGroup by retry 0/0",
				"3: GroupEnded Failed BackoffLimitExceeded",
				"3: MemberStopped b b0",
				"3: MemberStopped c c0",
			},
		},
		{
			"parallelism and after",
			grouped(GroupPolicy{Parts: []GroupPart{{Name: "driver"}, {Name: "workers", Members: new(3), Parallelism: new(1), After: []string{"driver"}}}}),
			[]timedMessage{
				at(0, inPart("w2", "workers", annotationIndex, "2"), inPart("w0", "workers"), inPart("d", "driver"), inPart("w1", "workers")),
				at(1, lease("d", "d0")), at(2, succeeded("d", "d0")), at(3, lease("w0", "w00")), at(4, succeeded("w0", "w00")),
				at(5, cancelJob("w1")), at(6, fails1("w2", "w20")),
			},
			[]string{
				"0: GroupBound",
				"0: MemberHeld w2",
				"0: MemberHeld w0",
				"0: MemberHeld w1",
				"2: MemberReleased w0",
				"4: MemberReleased w1",
				"5: UnitEnded Failed MemberCancelled FailGroup 0/0",
				"5: GroupEnded Failed MemberCancelled",
				"5: MemberStopped w2",
				"6: JobFailed w2 w20 GroupEnded",
			},
		},
		{
			"a restart of parts: the slots go by index",
			grouped(GroupPolicy{MaxRestarts: new(1), Parts: one(GroupPart{Members: new(3), Parallelism: new(1)})}),
			[]timedMessage{
				at(0, in("c", annotationIndex, "2"), in("a")), at(1, lease("c", "c0")), at(2, fails1("c", "c0")), at(3, in("b")),
			},
			[]string{
				"0: GroupBound",
				"0: MemberHeld a",
				"2: JobRequeued c c0 GroupRestart BackoffLimitExceeded RestartGroup by fail 1/1 g1 @2s",
				"2: MemberRestart a g1 @2s",
				"2: MemberRestart c c0 g1 @2s",
				"2: MemberHeld c",
				"3: MemberHeld b",
			},
		},
		{
			"restarts of a unit, then the rules",
			grouped(GroupPolicy{
				Rules:    []GroupRule{{Name: "halt", Action: "Halt"}},
				Restarts: &Restarts{Limit: new(1), Backoff: Backoff{InitialDelayMs: new(int64(30_000))}},
				Parts:    []GroupPart{{Name: "main"}, {Name: "next", After: []string{"main"}}, {Name: "other"}},
			}),
			[]timedMessage{
				at(0, in("a"), inPart("n", "next"), inPart("o", "other")), at(1, lease("a", "a0"), lease("o", "o0")),
				at(2, fails1("a", "a0")), at(40, lease("a", "a1")), at(41, fails1("a", "a1")), at(42, fails1("o", "o0")),
			},
			[]string{
				"0: GroupBound",
				"0: MemberHeld n",
				"2: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartUnit by fail,restarts 0/0 g1 @32s",
				"2: MemberRestart a a0 g1 @32s",
				"4: JobFailed a a1 RuleFail BackoffLimitExceeded Halt by fail,halt 0/0 g1",
				"5: JobFailed o o0 RuleFail BackoffLimitExceeded Leave by fail 0/0",
				"5: GroupEnded Halted BackoffLimitExceeded by halt",
				"5: MemberStopped n",
			},
		},
		{
			"Always", grouped(GroupPolicy{Restarts: &Restarts{Limit: new(1), On: "Always"}, Parts: one(GroupPart{})}),
			[]timedMessage{at(0, in("a")), at(1, lease("a", "a0")), at(2, succeeded("a", "a0")), at(3, lease("a", "a1")), at(4, succeeded("a", "a1"))},
			[]string{
				"0: GroupBound",
				"2: UnitEnded Succeeded RestartUnit by restarts 0/0 g1",
				"2: MemberRestart a a0 g1 @2s",
				"4: GroupEnded Succeeded",
			},
		},
		{
			"minMembers: those that are not over are stopped", grouped(GroupPolicy{Parts: one(GroupPart{Members: new(3), MinMembers: new(1)})}),
			with(start3, at(2, succeeded("b", "b0")), at(3, fails1("a", "a0"), succeeded("c", "c0"))),
			[]string{"0: GroupBound", "2: MemberStopped a a0", "2: MemberStopped c c0", "2: GroupEnded Succeeded", "3: JobFailed a a0 GroupEnded"},
		},
		{
			"a gang without a group retries as a whole", grouped(GroupPolicy{}),
			[]timedMessage{
				at(0, inGang("a", "x", "2"), inGang("b", "x", "2"), inGang("c", "x", "2"), inGang("d", "y", "3"), inGang("e", "y", "4")),
				at(1, lease("a", "a0"), lease("b", "b0")),
				at(2, exits("a", "a0", 2)), at(3, exits("b", "b0", 2)), at(4, lease("a", "a1"), lease("b", "b1")),
				at(5, fails("b", "b1", returned(true))), at(6, exits("a", "a1", 1)), at(7, fails1("c", "c0")),
			},
			[]string{
				"0: GroupBound",
				"0: GroupFinding c index not declared",
				"0: GroupBound",
				"0: GroupFinding e gang is not one unit",
				"2: JobRequeued a a0 GangRetry by retry g1 @3s",
				"2: MemberRestart a a0 g1 @3s",
				"2: MemberRestart b b0 g1 @3s",
				"3: JobRequeued b b0 GroupRestart by retry g1 @3s",
				"5: JobFailed b b1 GangFail g1",
				"6: JobFailed a a1 RuleFail BackoffLimitExceeded FailGroup by fail 0/0 g1",
				"6: GroupEnded Failed BackoffLimitExceeded",
				"7: JobFailed c c0 GangFail",
			},
		},
		{
			"a gang is in one group of its job set", grouped(GroupPolicy{MaxRestarts: new(9), Parts: one(GroupPart{Members: new(2)})}),
			[]timedMessage{
				at(0, inGang("a", "x", "2", annotationGroup, "g", annotationGroupPolicy, "p"), inGang("b", "x", "2", annotationGroup, "h", annotationGroupPolicy, "p"), inGang("c", "x", "2")),
				at(1, inGang("d", "y", "2"), inGang("e", "y", "2", annotationGroup, "h", annotationGroupPolicy, "p")),
				at(2, inGang("f", "x", "2", annotationGroup, "g")), at(3, fails1("b", "b0"), fails1("e", "e0")),
				at(4, submit("n", annotationGroup, "h", annotationGroupPolicy, "p")),
			},
			[]string{
				"0: GroupBound", "0: GroupFinding b gang is not one unit", "0: GroupFinding c gang is not one unit",
				"1: GroupBound", "1: GroupFinding e gang is not one unit",
				"3: JobFailed b b0 GangFail", "3: JobFailed e e0 GangFail", "4: GroupBound",
			},
		},
		{
			"findings", grouped(GroupPolicy{Parts: one(GroupPart{Members: new(2)})}),
			[]timedMessage{at(0, submit("a", annotationGroup, "g"), submit("b", annotationGroup, "g", annotationGroupPolicy, "q"), in("c", annotationIndex, "1"), in("d", annotationIndex, "01"),
				in("e", annotationIndex, "2"), in("f", annotationReplica, "1"), inPart("g", "x"), submit("h", annotationGroup, "g"),
				submit("i", annotationGroup, "g", annotationGroupPolicy, "q"), submit("j", annotationGroup, strings.Repeat("x", 254)))},
			[]string{
				"0: GroupFinding a no group policy", "0: GroupFinding b unknown group policy", "0: GroupBound", "0: GroupFinding d index taken",
				"0: GroupFinding e index not declared", "0: GroupFinding f replica not declared", "0: GroupFinding g part not declared",
				"0: GroupFinding i another group policy", "0: GroupFinding j group name",
			},
		},
		{
			"a size that never comes, and the horizon", grouped(GroupPolicy{Parts: three}),
			[]timedMessage{at(0, in("a"), in("b")), at(1, succeeded("a", "a0"), succeeded("b", "b0")), at(86401, submit("z")), at(86403, submit("y")), at(86404, in("c"))},
			[]string{"0: GroupBound", "3: GroupEnded Failed Exhausted", "4: MemberHeld c", "4: MemberStopped c"},
		},
		{
			"open size", grouped(GroupPolicy{}),
			[]timedMessage{at(0, in("a"), in("b", annotationIndex, "7")), at(1, succeeded("a", "a0"), succeeded("b", "b0")), at(86402, submit("z"))},
			[]string{"0: GroupBound", "2: GroupEnded Succeeded"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, playGroups(t, tc.policies, tc.messages...)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}
