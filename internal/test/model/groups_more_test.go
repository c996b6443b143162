package model

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGroupsMore has the corners of semantics.md 12 that a policy set and a few messages show.
func TestGroupsMore(t *testing.T) {
	t.Parallel()
	one := func(p GroupPart) []GroupPart { p.Name = "main"; return []GroupPart{p} }
	two := one(GroupPart{Members: new(2)})
	rules := func(rules ...GroupRule) GroupPolicy {
		return GroupPolicy{MaxRestarts: new(9), Rules: rules, Parts: two}
	}
	changed := func(p Policies, change func(p *Policies)) Policies { change(&p); return p }
	start := []timedMessage{at(0, in("a"), in("b")), at(1, lease("a", "a0"), lease("b", "b0"))}
	with := func(more ...timedMessage) []timedMessage { return append(append([]timedMessage{}, start...), more...) }

	for _, tc := range []struct {
		name     string
		policies Policies
		messages []timedMessage
		want     []string
	}{
		{
			"a restart starts retryLimit and the members' counts anew; Ignore never touches them",
			changed(grouped(GroupPolicy{MaxRestarts: new(1), Parts: one(GroupPart{Members: new(2), RetryLimit: new(1)})}), func(p *Policies) {
				p.Policies[0].Rules = append(p.Policies[0].Rules, Rule{Name: "ignore", Action: "Ignore", OnExitCodes: &ExitCodes{"In", []int32{4}}})
			}),
			with(at(2, exits("a", "a0", 2)), at(3, exits("b", "b0", 4)), at(4, exits("a", "a1", 2)), at(5, exits("a", "a2", 2)), at(6, exits("a", "a3", 4))),
			[]string{
				"0: GroupBound",
				"2: JobRequeued a a0 RuleRetry by retry @2s",
				"3: JobRequeued b b0 RuleIgnore by ignore @3s",
				"4: JobRequeued a a1 GroupRestart BackoffLimitExceeded RestartGroup by retry 1/1 g1 @4s",
				"4: MemberRestart a a1 g1 @4s",
				"4: MemberRestart b b0 g1 @4s",
				"5: JobRequeued a a2 RuleRetry by retry g1 @5s",
				"6: JobRequeued a a3 RuleIgnore by ignore g1 @6s",
			},
		},
		{
			"a restart starts the counts of rules anew",
			changed(grouped(GroupPolicy{MaxRestarts: new(1), Parts: one(GroupPart{})}), func(p *Policies) { p.Policies[0].RetryLimit = new(1) }),
			[]timedMessage{at(0, in("a")), at(1, exits("a", "a0", 2)), at(2, exits("a", "a1", 2)), at(3, exits("a", "a2", 2))},
			[]string{
				"0: GroupBound", "1: JobRequeued a a0 RuleRetry by retry @1s",
				"2: JobRequeued a a1 GroupRestart BackoffLimitExceeded RestartGroup by retry 1/1 g1 @2s", "2: MemberRestart a a1 g1 @2s",
				"3: JobRequeued a a2 RuleRetry by retry g1 @3s",
			},
		},
		{
			"Keep leaves a unit that succeeded as it is, and nobody restarts who is cancelled",
			grouped(GroupPolicy{MaxRestarts: new(1), Completed: "Keep", Parts: []GroupPart{{Name: "other", Members: new(2), MinMembers: new(1)}, {Name: "main", Members: new(3), MinMembers: new(2)}}}),
			[]timedMessage{
				at(0, inPart("o", "other"), inPart("p", "other"), in("a"), in("b"), in("c")), at(1, succeeded("o", "o0")), at(2, cancelJob("c")), at(3, fails1("a", "a0")),
			},
			[]string{
				"0: GroupBound", "1: MemberStopped p", "3: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by fail 1/1 g1 @3s",
				"3: MemberRestart a a0 g1 @3s", "3: MemberRestart b g1 @3s",
			},
		},
		{
			"in shadow the verdict stands alone",
			changed(grouped(rules()), func(p *Policies) { p.Queues[0].Mode = "Shadow" }),
			with(at(2, fails1("a", "a0")), at(3, fails1("b", "b0"))),
			[]string{
				"0: GroupBound",
				"2: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by fail 0/9 @2s",
				"3: JobRequeued b b0 GroupRestart BackoffLimitExceeded RestartGroup by fail 0/9 @3s",
			},
		},
		{
			"killed: Leave", changed(grouped(rules()), func(p *Policies) { p.Queues[0].Killed = true }),
			with(at(2, exits("a", "a0", 2)), at(3, fails1("b", "b0"))),
			[]string{
				"0: GroupBound",
				"2: JobFailed a a0 KillSwitch BackoffLimitExceeded Leave by retry 0/9",
				"2: MemberStopped b b0",
				"2: GroupEnded Failed Exhausted",
				"3: JobFailed b b0 GroupEnded",
			},
		},
		{
			"paused: Leave", changed(grouped(rules()), func(p *Policies) { p.Settings.PausedUntil = base + 3600e9 }),
			with(at(2, fails1("a", "a0"))),
			[]string{
				"0: GroupBound", "2: JobFailed a a0 RuleFail BackoffLimitExceeded Leave by fail 0/9", "2: MemberStopped b b0",
				"2: GroupEnded Failed Exhausted",
			},
		},
		{
			"retries not enabled", changed(grouped(rules()), func(p *Policies) { p.Settings.Enabled = new(false) }),
			with(at(2, fails1("a", "a0")), at(3, fails1("b", "b0"))),
			[]string{"0: GroupBound", "2: JobFailed a a0 NoPolicy BackoffLimitExceeded Leave 0/9", "3: JobFailed b b0 NoPolicy BackoffLimitExceeded Leave 0/9"},
		},
		{
			"a rule's own limit, and restarts that do not count",
			grouped(GroupPolicy{MaxRestarts: new(0), Rules: []GroupRule{{Name: "free", Action: "RestartGroup", CountsTowardMax: new(false), Limit: new(1)}}, Parts: one(GroupPart{})}),
			[]timedMessage{at(0, in("a")), at(1, fails1("a", "a0")), at(2, fails1("a", "a1"))},
			[]string{
				"0: GroupBound", "1: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by fail,free 0/0 g1 @1s", "1: MemberRestart a a0 g1 @1s",
				"2: JobFailed a a1 RuleFail BackoffLimitExceeded FailGroup by fail,free 0/0 g1", "2: GroupEnded Failed ReachedMaxRestarts by free",
			},
		},
		{
			"a member that is cancelled: no restart includes it",
			grouped(rules(GroupRule{Name: "again", Action: "RestartGroup"})),
			with(at(2, cancelJob("a")), at(3, fails1("a", "a0")), at(4, fails1("b", "b0"))),
			[]string{
				"0: GroupBound", "2: UnitEnded Failed MemberCancelled Leave by again 0/9", "2: MemberStopped b b0", "2: GroupEnded Failed Exhausted",
				"3: NotDecided a a0 Cancelled", "4: JobFailed b b0 GroupEnded",
			},
		},
		{
			"a member that succeeded and was cancelled does not count after a restart",
			grouped(GroupPolicy{MaxRestarts: new(5), Parts: []GroupPart{{Name: "main", Members: new(2), MinMembers: new(1)}, {Name: "other"}}}),
			[]timedMessage{
				at(0, in("a"), in("b"), inPart("o", "other")), at(1, succeeded("a", "a0")), at(2, cancelJob("a")), at(3, fails1("o", "o0")),
				at(4, lease("b", "b0"), lease("o", "o1")), at(5, succeeded("o", "o1")), at(6, succeeded("b", "b0")),
			},
			[]string{
				"0: GroupBound", "1: MemberStopped b",
				"3: JobRequeued o o0 GroupRestart BackoffLimitExceeded RestartGroup by fail 1/5 g1 @3s", "3: MemberRestart b g1 @3s", "3: MemberRestart o o0 g1 @3s",
				"6: GroupEnded Succeeded",
			},
		},
		{
			"a gang with a cancelled member does not retry",
			grouped(GroupPolicy{MaxRestarts: new(5), Parts: one(GroupPart{Members: new(3), MinMembers: new(2)})}),
			[]timedMessage{
				at(0, in("a", annotationGang, "x", annotationCardinality, "3"), in("b", annotationGang, "x", annotationCardinality, "3"), in("c", annotationGang, "x", annotationCardinality, "3")),
				at(1, cancelJob("c")), at(2, lease("a", "a0"), lease("b", "b0")), at(3, exits("a", "a0", 2)),
			},
			[]string{
				"0: GroupBound", "3: JobFailed a a0 GangFail MemberCancelled Leave by retry 0/5", "3: MemberStopped b b0", "3: GroupEnded Failed Exhausted",
			},
		},
		{
			"failFast: of a member of a gang it is ignored", grouped(GroupPolicy{}),
			[]timedMessage{
				at(0, inGang("a", "x", "2", annotationFailFast, "true"), in("b", annotationFailFast, "true")),
				at(1, exits("a", "a0", 2)), at(2, exits("b", "b0", 2)),
			},
			[]string{
				"0: GroupBound", "0: GroupBound", "1: JobRequeued a a0 GangRetry by retry g1 @1s", "1: MemberRestart a a0 g1 @1s",
				"2: JobFailed b b0 FailFast BackoffLimitExceeded FailGroup 0/0", "2: GroupEnded Failed BackoffLimitExceeded",
			},
		},
		{
			"RestartPart, and a unit that was left",
			grouped(GroupPolicy{
				MaxRestarts: new(5), Parts: []GroupPart{{Name: "main", Replicas: new(2)}, {Name: "other"}},
				Rules: []GroupRule{{Name: "leave", Action: "Leave", OnMessage: "^boom$", OnReasons: []string{PodFailurePolicy}}, {Name: "part", Action: "RestartPart", Parts: []string{"main"}}},
			}),
			[]timedMessage{
				at(0, in("a"), in("b", annotationReplica, "1"), inPart("o", "other")), at(1, lease("a", "a0"), lease("b", "b0"), lease("o", "o0")),
				at(2, exits("a", "a0", 3)), at(3, exits("b", "b0", 1)), at(4, succeeded("o", "o0")),
			},
			[]string{
				"0: GroupBound", "2: JobFailed a a0 RuleFail PodFailurePolicy Leave by unit,leave 0/5",
				"3: JobRequeued b b0 GroupRestart BackoffLimitExceeded RestartPart by fail,part 1/5 g1 @3s",
				"3: MemberRestart a a0 g1 @3s", "3: MemberRestart b b0 g1 @3s",
			},
		},
		{
			"grace: of the failing member and of one that lives", grouped(GroupPolicy{MaxRestarts: new(5), Parts: two}),
			[]timedMessage{
				at(0, withSpec(in("a"), 30), withSpec(in("b"), 10)), at(1, lease("a", "a0"), lease("b", "b0")), at(2, preempted("a", "a0")), at(9, preempted("b", "b0")),
				at(20, terminated("b", "b0")),
			},
			[]string{
				"0: GroupBound", "2: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by default 1/5 g1 @32s",
				"2: MemberRestart a a0 g1 @32s", "2: MemberRestart b b0 g1 @12s", "3: JobRequeued b b0 GroupRestart g1 @19s", "4: RetryReady b b0 @12s",
			},
		},
		{
			"a returned lease of a run that was told to stop is none for legacyMaxAttempts",
			changed(grouped(rules()), func(p *Policies) { p.Settings.LegacyMaxAttempts = new(2) }),
			with(at(2, fails1("a", "a0")), at(3, fails("b", "b0", returned(true))), at(4, fails("b", "b1", returned(true))), at(5, fails("b", "b2", returned(true)))),
			[]string{
				"0: GroupBound", "2: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by fail 1/9 g1 @2s",
				"2: MemberRestart a a0 g1 @2s", "2: MemberRestart b b0 g1 @3s", "3: JobRequeued b b0 GroupRestart g1 @3s",
				"4: JobRequeued b b1 LeaseReturned g1 @4s",
				"5: JobRequeued b b2 GroupRestart BackoffLimitExceeded RestartGroup 2/9 g2 @5s", "5: MemberRestart a a0 g2 @5s", "5: MemberRestart b b2 g2 @5s",
			},
		},
		{
			"forgotten, and bound anew", grouped(GroupPolicy{Parts: one(GroupPart{})}),
			[]timedMessage{at(0, in("a")), at(1, succeeded("a", "a0")), at(2, in("b")), at(86403, in("a"))},
			[]string{"0: GroupBound", "1: GroupEnded Succeeded", "2: GroupFinding b index not declared", "3: GroupBound"},
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

// TestGroupsLater asks that what came under version 2 is in no group, and that a policy
// that changes, or goes, gives other rules but no other shape.
func TestGroupsLater(t *testing.T) {
	t.Parallel()
	p := grouped(GroupPolicy{MaxRestarts: new(5), Parts: []GroupPart{{Name: "main", Members: new(2)}}})
	m := New(p)
	m.UseVersion(2)
	step := func(i int, s timedMessage) []string {
		var lines []string
		for _, r := range m.Step(s.message(t, i)) {
			lines = append(lines, showGroup(r))
		}
		return lines
	}
	var got [][]string
	got = append(got, step(0, at(0, in("early"), inGang("g1", "x", "2"))))
	m.UseVersion(GroupsVersion)
	got = append(got, step(1, at(1, fails1("early", "e0"), fails1("g1", "g0"))), step(2, at(2, in("a"), in("b"))), step(3, at(3, fails1("a", "a0"))))
	p.Groups = []GroupPolicy{{Name: "p", Parts: []GroupPart{{Name: "main"}}}}
	m.Use(p)
	got = append(got, step(4, at(4, fails1("b", "b0"))))
	want := [][]string{
		nil,
		{"JobFailed early e0 RuleFail by fail", "JobFailed g1 g0 GangFail"},
		{"GroupBound"},
		{
			"JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by fail 1/5 g1 @3s",
			"MemberRestart a a0 g1 @3s", "MemberRestart b g1 @3s",
		},
		{"JobFailed b b0 RuleFail BackoffLimitExceeded FailGroup by fail 1/0 g1", "GroupEnded Failed BackoffLimitExceeded", "MemberStopped a a0"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}
