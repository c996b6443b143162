package model

import "testing"

// TestRulesFirst: of the unit failures that one message causes in a group, the one whose rule stands first is decided first.
func TestRulesFirst(t *testing.T) {
	t.Parallel()
	// b's exit code 3 fails its unit with the reason PodFailurePolicy, 1 with BackoffLimitExceeded.
	flow := func(rules ...GroupRule) Policies {
		return grouped(GroupPolicy{MaxRestarts: new(9), Rules: rules, Parts: mainPart(GroupPart{Replicas: new(3)})})
	}
	failFirst := GroupRule{Name: "bad", Action: "FailGroup", OnReasons: []string{PodFailurePolicy}}
	again := GroupRule{Name: "again", Action: "RestartGroup"}
	leave := GroupRule{Name: "leave", Action: "Leave", OnReasons: []string{PodFailurePolicy}}
	replica := func(job, n string) timedMessage { return at(0, in(job, annotationReplica, n)) }
	with := func(more ...timedMessage) []timedMessage {
		return append([]timedMessage{replica("a", "0"), replica("b", "1"), replica("c", "2"), at(1, lease("a", "a0"), lease("b", "b0"), lease("c", "c0"))}, more...)
	}
	three := func(version int, steps []stepFour) []stepFour { steps[0].version = version; return steps }
	failed := "4: JobFailed b b0 RuleFail PodFailurePolicy FailGroup by unit,bad "
	restarted := []string{
		"0: GroupBound", "4: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by fail,again 1/9 g1 @2s delay 0s",
		"4: MemberRestart a a0 g1 @2s", "4: MemberRestart b b0 g1 @3s", "4: MemberRestart c c0 g1 @3s", "4: JobRequeued b b0 GroupRestart by again g1 @3s delay 1s",
	}
	limited := flow(failFirst, again)
	limited.Groups[0].Parts[0].RetryLimit = new(0)
	unit := flow(failFirst, again)
	unit.Groups[0].Parts = append(mainPart(GroupPart{Replicas: new(2)}), GroupPart{Name: "own", Restarts: &Restarts{On: "OnFailure", Limit: new(1)}})

	runFour(t, []caseFour{
		{
			"the failure for FailGroup came second", flow(failFirst, again), four(with(at(2, fails1("a", "a0"), exits("b", "b0", 3)))...),
			[]string{
				"0: GroupBound", failed + "0/9", "4: GroupEnded Failed PodFailurePolicy by bad", "4: MemberStopped a a0", "4: MemberStopped c c0",
				"4: JobFailed a a0 GroupEnded",
			},
		},
		{
			"in version 3 the first decides", flow(failFirst, again), three(GroupsVersion, four(with(at(2, fails1("a", "a0"), exits("b", "b0", 3)))...)),
			restarted,
		},
		{
			"the rules the other way round", flow(again, failFirst), four(with(at(2, fails1("a", "a0"), exits("b", "b0", 3)))...), restarted,
		},
		{
			"in two messages the first decides", flow(failFirst, again), four(with(at(2, fails1("a", "a0")), at(2, exits("b", "b0", 3)))...),
			append(restarted[:5:5], "5: JobRequeued b b0 GroupRestart by again g1 @3s delay 1s"),
		},
		{ // c would be retried: it keeps its place, which is after the first one
			"a retry keeps its place", flow(leave, again), four(with(at(2, fails1("a", "a0"), exits("c", "c0", 2), exits("b", "b0", 3)))...),
			[]string{
				"0: GroupBound", "4: JobFailed b b0 RuleFail PodFailurePolicy Leave by unit,leave 0/9", "4: JobRequeued c c0 RuleRetry by retry @2s delay 0s",
				"4: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by fail,again 1/9 g1 @2s delay 0s",
				"4: MemberRestart a a0 g1 @2s", "4: MemberRestart b b0 g1 @2s", "4: MemberRestart c c0 g1 @2s",
			},
		},
		{
			"one that its unit's limit fails", limited, four(with(at(2, exits("a", "a0", 2), exits("b", "b0", 3)))...),
			[]string{
				"0: GroupBound", failed + "0/9", "4: GroupEnded Failed PodFailurePolicy by bad", "4: MemberStopped a a0", "4: MemberStopped c c0",
				"4: JobFailed a a0 GroupEnded",
			},
		},
		{
			"a unit that restarts by itself asks no rule", unit,
			four(
				at(0, in("a", annotationReplica, "0")), at(0, in("b", annotationReplica, "1")), at(0, inPart("c", "own")), at(1, lease("a", "a0"), lease("b", "b0"), lease("c", "c0")),
				at(2, fails1("c", "c0"), fails1("a", "a0"), exits("b", "b0", 3)),
			),
			[]string{
				"0: GroupBound", "4: JobRequeued c c0 GroupRestart BackoffLimitExceeded RestartUnit by fail,restarts 0/9 g1 @2s delay 0s", "4: MemberRestart c c0 g1 @2s",
				failed + "0/9", "4: GroupEnded Failed PodFailurePolicy by bad", "4: MemberStopped a a0", "4: MemberStopped c c0", "4: JobFailed a a0 GroupEnded",
			},
		},
	})
}
