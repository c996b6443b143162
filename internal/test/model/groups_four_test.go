package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Version 4: a pause fails nothing, restarts may be blocking, and a name whose group has ended begins
// a new group. What is expected is computed by hand.

// stepFour is a message, and what changes before it.
type stepFour struct {
	timedMessage

	version  int // 0: as before
	policies *Policies
}

// playFour plays under version 4, and shows groups and delays as well.
func playFour(t *testing.T, p Policies, steps ...stepFour) []string {
	t.Helper()
	m := New(p)
	m.UseVersion(SuccessorsVersion)
	var lines []string
	for i, s := range steps {
		if s.version > 0 {
			m.UseVersion(s.version)
		}
		if s.policies != nil {
			m.Use(*s.policies)
		}
		for _, r := range m.Step(s.message(t, i)) {
			line := fmt.Sprintf("%d: %s", i, showGroup(r))
			if r.Kind == JobRequeued {
				line += fmt.Sprint(" delay ", time.Duration(r.DelayMs)*time.Millisecond)
			}
			if r.Group != "" && r.Group != "g" {
				line += " in " + r.Group
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func four(messages ...timedMessage) []stepFour {
	var steps []stepFour
	for _, s := range messages {
		steps = append(steps, stepFour{timedMessage: s})
	}
	return steps
}

type caseFour struct {
	name     string
	policies Policies
	steps    []stepFour
	want     []string
}

func runFour(t *testing.T, cases []caseFour) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, playFour(t, tc.policies, tc.steps...)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func mainPart(p GroupPart) []GroupPart {
	p.Name = "main"
	return []GroupPart{p}
}

func pausedUntil(p Policies, seconds int64) Policies {
	s := p.settings()
	s.PausedUntil = base + seconds*1e9
	p.Settings = &s
	return p
}

func pausedQueue(p Policies, seconds int64) Policies {
	p.Queues = append([]Queue{}, p.Queues...)
	p.Queues[0].PausedUntil = base + seconds*1e9
	return p
}

func TestPauseFailsNothing(t *testing.T) {
	t.Parallel()
	two := grouped(GroupPolicy{MaxRestarts: new(9), Parts: mainPart(GroupPart{Members: new(2)})})
	// a has a grace of 1 s, b of 30 s.
	start := []timedMessage{at(0, in("a"), withSpec(in("b"), 30)), at(1, lease("a", "a0"), lease("b", "b0"))}
	with := func(more ...timedMessage) []stepFour {
		return four(append(append([]timedMessage{}, start...), more...)...)
	}
	restarted := func(a, b string) []string {
		return []string{
			"0: GroupBound", "2: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by fail 1/9 g1 @" + a + " delay 0s",
			"2: MemberRestart a a0 g1 @" + a, "2: MemberRestart b b0 g1 @" + b,
		}
	}
	killed := pausedUntil(two, 3600)
	killed.Queues = []Queue{{Name: "ml", RetryPolicies: []string{"infra"}, Killed: true}}
	gang := []timedMessage{
		at(0, inGang("a", "x", "2"), withSpec(inGang("b", "x", "2"), 30)), at(1, lease("a", "a0"), lease("b", "b0")), at(2, exits("a", "a0", 2)),
	}
	later := pausedUntil(two, 3600)

	runFour(t, []caseFour{
		{"a long one of the settings", pausedUntil(two, 3600), with(at(2, fails1("a", "a0"))), restarted("1h0m0s", "1h0m0s")},
		{"a short one of the queue: who lives longer waits longer", pausedQueue(two, 10), with(at(2, fails1("a", "a0"))), restarted("10s", "32s")},
		{"two: the later counts", pausedQueue(pausedUntil(two, 40), 50), with(at(2, fails1("a", "a0"))), restarted("50s", "50s")},
		{"two: the one that is not over counts", pausedQueue(pausedUntil(two, 40), 1), with(at(2, fails1("a", "a0"))), restarted("40s", "40s")},
		{"one that is over at t", pausedQueue(two, 2), with(at(2, fails1("a", "a0"))), restarted("2s", "32s")},
		{
			"proof does not end a pause; delay does not include it", pausedUntil(two, 10),
			four(
				at(0, withSpec(in("a"), 30), in("b")), at(1, lease("a", "a0"), lease("b", "b0")), at(2, preempted("a", "a0")), at(5, terminated("a", "a0")),
			),
			[]string{
				"0: GroupBound", "2: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by default 1/9 g1 @32s delay 30s",
				"2: MemberRestart a a0 g1 @32s", "2: MemberRestart b b0 g1 @10s", "3: RetryReady a a0 @10s",
			},
		},
		{
			"the backoff runs meanwhile",
			pausedUntil(grouped(GroupPolicy{MaxRestarts: new(9), Backoff: Backoff{InitialDelayMs: new(int64(30_000))}, Parts: mainPart(GroupPart{Members: new(2)})}), 40),
			with(at(2, fails1("a", "a0"))),
			[]string{
				"0: GroupBound", "2: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by fail 1/9 g1 @40s delay 30s",
				"2: MemberRestart a a0 g1 @40s", "2: MemberRestart b b0 g1 @1m2s",
			},
		},
		{
			"a gang's retry: all at once, after the longest grace", pausedUntil(grouped(GroupPolicy{}), 10), four(gang...),
			[]string{
				"0: GroupBound in gang/x", "2: JobRequeued a a0 GangRetry by retry g1 @32s delay 0s in gang/x",
				"2: MemberRestart a a0 g1 @32s in gang/x", "2: MemberRestart b b0 g1 @32s in gang/x",
			},
		},
		{
			"a gang's retry, after the pause", pausedUntil(grouped(GroupPolicy{}), 60), four(gang...),
			[]string{
				"0: GroupBound in gang/x", "2: JobRequeued a a0 GangRetry by retry g1 @1m0s delay 0s in gang/x",
				"2: MemberRestart a a0 g1 @1m0s in gang/x", "2: MemberRestart b b0 g1 @1m0s in gang/x",
			},
		},
		{
			"under version 3 the grace of a gang's peers begins with the end of the pause", pausedUntil(grouped(GroupPolicy{}), 10),
			append([]stepFour{{timedMessage: gang[0], version: GroupsVersion}}, four(gang[1:]...)...),
			[]string{
				"0: GroupBound in gang/x", "2: JobRequeued a a0 GangRetry by retry g1 @40s delay 0s in gang/x",
				"2: MemberRestart a a0 g1 @40s in gang/x", "2: MemberRestart b b0 g1 @40s in gang/x",
			},
		},
		{
			"a unit that ends without a failed run",
			pausedUntil(grouped(GroupPolicy{MaxRestarts: new(1), Parts: mainPart(GroupPart{Members: new(2), OnMemberFailure: "Continue"})}), 20),
			with(at(2, fails1("a", "a0")), at(3, succeeded("b", "b0"))),
			[]string{
				"0: GroupBound", "2: JobFailed a a0 RuleFail by fail", "3: UnitEnded Failed FailedIndexes RestartGroup 1/1 g1",
				"3: MemberRestart a a0 g1 @20s", "3: MemberRestart b b0 g1 @20s",
			},
		},
		{
			"Always",
			pausedUntil(grouped(GroupPolicy{Restarts: &Restarts{Limit: new(1), On: "Always"}, Parts: mainPart(GroupPart{Members: new(2), MinMembers: new(1)})}), 20),
			with(at(3, succeeded("a", "a0"))),
			[]string{
				"0: GroupBound", "2: UnitEnded Succeeded RestartUnit by restarts 0/0 g1", "2: MemberRestart a a0 g1 @20s", "2: MemberRestart b b0 g1 @33s",
			},
		},
		{
			"killed as well", killed, with(at(2, fails1("a", "a0"))),
			[]string{
				"0: GroupBound", "2: JobFailed a a0 RuleFail BackoffLimitExceeded Leave by fail 0/9", "2: MemberStopped b b0",
				"2: GroupEnded Failed Exhausted",
			},
		},
		{
			"a run that was told to stop has the pause of its restart", pausedUntil(two, 10), with(at(2, fails1("a", "a0")), at(3, preempted("b", "b0")), at(4, terminated("b", "b0"))),
			append(restarted("10s", "32s"), "3: JobRequeued b b0 GroupRestart g1 @33s delay 30s", "4: RetryReady b b0 @32s"),
		},
		{
			"and none of a later one", two, append(with(at(2, fails1("a", "a0"))), stepFour{timedMessage: at(3, fails1("b", "b0")), policies: &later}),
			append(restarted("2s", "32s"), "3: JobRequeued b b0 GroupRestart g1 @32s delay 29s"),
		},
		{
			"under version 3 the group is left", pausedUntil(two, 3600), append([]stepFour{{timedMessage: start[0], version: GroupsVersion}}, four(start[1], at(2, fails1("a", "a0")))...),
			[]string{
				"0: GroupBound", "2: JobFailed a a0 RuleFail BackoffLimitExceeded Leave by fail 0/9", "2: MemberStopped b b0", "2: GroupEnded Failed Exhausted",
			},
		},
		{
			"in shadow: the verdict has it", func() Policies {
				p := pausedUntil(two, 3600)
				p.Queues = []Queue{{Name: "ml", RetryPolicies: []string{"infra"}, Mode: "Shadow"}}
				return p
			}(), with(at(2, fails1("a", "a0"))),
			[]string{"0: GroupBound", "2: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartGroup by fail 0/9 @1h0m0s delay 0s"},
		},
	})
}

func TestBlockingRecreate(t *testing.T) {
	t.Parallel()
	blocking := func(p GroupPolicy) Policies { p.RestartStrategy = "BlockingRecreate"; return grouped(p) }
	parts := []GroupPart{{Name: "main", Members: new(3)}, {Name: "other", Members: new(2)}}
	group := blocking(GroupPolicy{MaxRestarts: new(9), Parts: parts})
	// a fails; b and p live, with a grace of 10 s and 30 s; c and o have no run.
	start := []timedMessage{
		at(0, withSpec(in("a"), 60), withSpec(in("b"), 10), in("c"), inPart("o", "other"), withSpec(inPart("p", "other"), 30)),
		at(1, lease("a", "a0"), lease("b", "b0"), lease("p", "p0")),
	}
	with := func(more ...timedMessage) []stepFour {
		return four(append(append([]timedMessage{}, start...), more...)...)
	}
	all := func(at string) []string {
		return []string{
			"2: MemberRestart a a0 g1 @" + at, "2: MemberRestart b b0 g1 @" + at, "2: MemberRestart c g1 @" + at,
			"2: MemberRestart o g1 @" + at, "2: MemberRestart p p0 g1 @" + at,
		}
	}
	lines := func(more ...any) []string {
		out := []string{"0: GroupBound"}
		for _, line := range more {
			switch line := line.(type) {
			case string:
				out = append(out, line)
			case []string:
				out = append(out, line...)
			}
		}
		return out
	}
	const requeued = "2: JobRequeued a a0 GroupRestart BackoffLimitExceeded "
	recreate := grouped(GroupPolicy{MaxRestarts: new(9), Parts: parts, RestartStrategy: "Recreate"})

	runFour(t, []caseFour{
		{
			"the longest grace of all units", group, with(at(2, fails1("a", "a0"))),
			lines(requeued+"RestartGroup by fail 1/9 g1 @32s delay 30s", all("32s")),
		},
		{
			"also that of the run that failed, and proof brings it no nearer", group, with(at(2, preempted("a", "a0")), at(5, terminated("a", "a0"))),
			lines(requeued+"RestartGroup by default 1/9 g1 @1m2s delay 1m0s", all("1m2s")),
		},
		{
			"with a pause", pausedUntil(group, 50), with(at(2, fails1("a", "a0")), at(5, terminated("a", "a0"))),
			lines(requeued+"RestartGroup by fail 1/9 g1 @50s delay 30s", all("50s")),
		},
		{
			"Recreate: each its own", recreate, with(at(2, preempted("a", "a0")), at(5, terminated("a", "a0"))),
			lines(requeued+"RestartGroup by default 1/9 g1 @1m2s delay 1m0s",
				"2: MemberRestart a a0 g1 @1m2s", "2: MemberRestart b b0 g1 @12s", "2: MemberRestart c g1 @2s", "2: MemberRestart o g1 @2s", "2: MemberRestart p p0 g1 @32s",
				"3: RetryReady a a0 @2s"),
		},
		{
			"a part: who is not in scope does not count", blocking(GroupPolicy{MaxRestarts: new(9), Parts: parts, Rules: []GroupRule{{Name: "part", Action: "RestartPart"}}}),
			with(at(2, fails1("a", "a0"))),
			lines(requeued+"RestartPart by fail,part 1/9 g1 @12s delay 10s", "2: MemberRestart a a0 g1 @12s", "2: MemberRestart b b0 g1 @12s", "2: MemberRestart c g1 @12s"),
		},
		{
			"a unit, by restarts with a backoff",
			blocking(GroupPolicy{Parts: parts, Restarts: &Restarts{Limit: new(1), Backoff: Backoff{InitialDelayMs: new(int64(5000))}}}),
			with(at(2, fails1("a", "a0"))),
			lines(requeued+"RestartUnit by fail,restarts 0/0 g1 @17s delay 15s", "2: MemberRestart a a0 g1 @17s", "2: MemberRestart b b0 g1 @17s", "2: MemberRestart c g1 @17s"),
		},
		{
			"without a failed run", blocking(GroupPolicy{Restarts: &Restarts{Limit: new(1), On: "Always"}, Parts: mainPart(GroupPart{Members: new(3), MinMembers: new(1)})}),
			four(at(0, in("a"), withSpec(in("b"), 10), in("c")), at(1, lease("a", "a0"), lease("b", "b0")), at(2, succeeded("a", "a0"))),
			lines("2: UnitEnded Succeeded RestartUnit by restarts 0/0 g1", "2: MemberRestart a a0 g1 @12s", "2: MemberRestart b b0 g1 @12s", "2: MemberRestart c g1 @12s"),
		},
		{
			"one that was told to stop fails late: its own grace, and back to the restart's", group,
			with(at(2, fails1("a", "a0")), at(30, preempted("b", "b0")), at(31, terminated("b", "b0"))),
			lines(requeued+"RestartGroup by fail 1/9 g1 @32s delay 30s", all("32s"), "3: JobRequeued b b0 GroupRestart g1 @40s delay 10s", "4: RetryReady b b0 @32s"),
		},
		{
			"by the generation in force", recreate,
			[]stepFour{{timedMessage: start[0]}, {timedMessage: start[1]}, {timedMessage: at(2, fails1("a", "a0")), policies: &group}},
			lines(requeued+"RestartGroup by fail 1/9 g1 @32s delay 30s", all("32s")),
		},
		{
			"not under version 3", group,
			[]stepFour{{timedMessage: start[0], version: GroupsVersion}, {timedMessage: start[1]}, {timedMessage: at(2, fails1("a", "a0"))}},
			lines(requeued+"RestartGroup by fail 1/9 g1 @2s delay 0s",
				"2: MemberRestart a a0 g1 @2s", "2: MemberRestart b b0 g1 @12s", "2: MemberRestart c g1 @2s", "2: MemberRestart o g1 @2s", "2: MemberRestart p p0 g1 @32s"),
		},
	})
}

func TestSuccessors(t *testing.T) {
	t.Parallel()
	fixed := func(members int) Policies {
		return grouped(GroupPolicy{Parts: mainPart(GroupPart{Members: new(members)})})
	}
	two := fixed(2)
	ended := []timedMessage{at(0, in("a"), in("b")), at(1, lease("a", "a0"), lease("b", "b0")), at(2, fails1("a", "a0"))}
	end := []string{
		"0: GroupBound", "2: JobFailed a a0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0", "2: GroupEnded Failed BackoffLimitExceeded", "2: MemberStopped b b0",
	}
	with := func(more ...timedMessage) []stepFour {
		return four(append(append([]timedMessage{}, ended...), more...)...)
	}
	lines := func(more ...string) []string { return append(append([]string{}, end...), more...) }
	other := two
	other.Groups = append([]GroupPolicy{{Name: "q", Parts: mainPart(GroupPart{})}}, two.Groups...)
	named := func(job, group string) []string {
		return []string{job, annotationGroup, group, annotationGroupPolicy, "p"}
	}
	inNamed := func(job, group string, more ...string) timedMessage {
		return at(3, submit(job, append(named(job, group)[1:], more...)...))
	}
	later := func(seconds float64, s timedMessage) timedMessage { s.at = seconds; return s }
	shadow := two
	shadow.Queues = []Queue{{Name: "ml", RetryPolicies: []string{"infra"}, Mode: "Shadow"}}

	runFour(t, []caseFour{
		{
			"all of it again: a new group, and late runs of the old one", two,
			with(at(3, in("c"), in("d"), in("e")), at(4, lease("c", "c0")), at(5, fails1("b", "b0")), at(6, fails1("c", "c0")), at(7, in("f"))),
			lines("3: GroupBound in g#2", "3: GroupFinding e index not declared", "5: JobFailed b b0 GroupEnded",
				"6: JobFailed c c0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0 in g#2", "6: GroupEnded Failed BackoffLimitExceeded in g#2", "6: MemberStopped d in g#2",
				"7: GroupBound in g#3"),
		},
		{
			"one that still fits comes too late; a place that is taken begins a new group", fixed(3),
			with(at(3, in("c")), at(4, in("d", annotationIndex, "1"))),
			lines("3: MemberHeld c", "3: MemberStopped c", "4: GroupBound in g#2"),
		},
		{
			"it came late to the newest, where it does not fit", fixed(3),
			with(at(3, in("c", annotationIndex, "0"), in("d", annotationIndex, "5"), in("e", annotationReplica, "1")), at(4, lease("c", "c0")), at(5, fails1("c", "c0")),
				at(6, in("f"), in("h", annotationIndex, "1"))),
			lines("3: GroupBound in g#2", "3: GroupFinding d index not declared", "3: GroupFinding e replica not declared",
				"5: JobFailed c c0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0 in g#2", "5: GroupEnded Failed BackoffLimitExceeded in g#2",
				"6: MemberHeld f in g#2", "6: MemberStopped f in g#2", "6: GroupBound in g#3"),
		},
		{
			"what would not fit anywhere is in no group", two,
			with(at(3, inPart("c", "unheard"), in("d", annotationIndex, "2"), submit("e", annotationGroup, "g"), submit("f", annotationGroup, "g", annotationGroupPolicy, "gone"))),
			lines("3: GroupFinding c part not declared", "3: GroupFinding d index not declared", "3: GroupFinding e no group policy", "3: GroupFinding f unknown group policy"),
		},
		{
			"another policy begins a new group; without one it fits", other,
			four(at(0, in("a")), at(1, lease("a", "a0")), at(2, fails1("a", "a0")), at(3, submit("b", annotationGroup, "g")), at(4, submit("c", annotationGroup, "g", annotationGroupPolicy, "q"))),
			[]string{
				"0: GroupBound", "2: JobFailed a a0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0", "2: GroupEnded Failed BackoffLimitExceeded",
				"3: MemberHeld b", "3: MemberStopped b", "4: GroupBound in g#2",
			},
		},
		{
			"one of open size", grouped(GroupPolicy{}),
			with(at(3, in("c", annotationIndex, "7"))), lines("3: GroupBound in g#2"),
		},
		{
			"one that succeeded", two, four(at(0, in("a"), in("b")), at(1, succeeded("a", "a0"), succeeded("b", "b0")), at(2, in("c"))),
			[]string{"0: GroupBound", "1: GroupEnded Succeeded", "2: GroupBound in g#2"},
		},
		{
			"a gang without a group", grouped(GroupPolicy{}),
			four(
				at(0, inGang("a", "x", "3"), inGang("b", "x", "3")), at(1, lease("a", "a0"), lease("b", "b0")), at(2, fails1("a", "a0")),
				at(3, inGang("c", "x", "3"), inGang("d", "x", "3"), inGang("e", "x", "3"), inGang("f", "x", "2")),
			),
			[]string{
				"0: GroupBound in gang/x", "2: JobFailed a a0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0 in gang/x",
				"2: GroupEnded Failed BackoffLimitExceeded in gang/x", "2: MemberStopped b b0 in gang/x",
				"3: MemberHeld c in gang/x", "3: MemberStopped c in gang/x", "3: GroupBound in gang/x#2", "3: GroupFinding f gang is not one unit in gang/x",
			},
		},
		{
			"a gang of another size begins anew", grouped(GroupPolicy{}),
			four(at(0, inGang("a", "x", "3")), at(1, lease("a", "a0")), at(2, fails1("a", "a0")), at(3, inGang("b", "x", "2"), inGang("c", "x", "2"), inGang("d", "x", "2"))),
			[]string{
				"0: GroupBound in gang/x", "2: JobFailed a a0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0 in gang/x",
				"2: GroupEnded Failed BackoffLimitExceeded in gang/x", "3: GroupBound in gang/x#2", "3: GroupFinding d index not declared in gang/x",
			},
		},
		{
			"the gang of a group that has ended is free; that of one that has not is not", grouped(GroupPolicy{Parts: mainPart(GroupPart{Members: new(2), Replicas: new(2)})}),
			four(
				at(0, in("a", annotationGang, "x", annotationCardinality, "2")), at(1, lease("a", "a0")), at(2, fails1("a", "a0")),
				// In the group that ended the gang is another unit: it does not fit there.
				inNamed("b", "g", annotationGang, "x", annotationCardinality, "2", annotationReplica, "1"),
				inNamed("c", "h", annotationGang, "x", annotationCardinality, "2"),
				// It is the same unit, but that of another group now.
				inNamed("d", "g", annotationGang, "x", annotationCardinality, "2"),
			),
			[]string{
				"0: GroupBound", "2: JobFailed a a0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0", "2: GroupEnded Failed BackoffLimitExceeded",
				"3: GroupBound in g#2", "4: GroupFinding c gang is not one unit in h", "5: GroupFinding d gang is not one unit",
			},
		},
		{
			"a name that somebody has", two,
			with(inNamed("o", "g#2"), later(4, inNamed("c", "g")), later(5, inNamed("p", "g#3")), later(6, inNamed("q", "g#2"))),
			lines("3: GroupBound in g#2", "4: GroupBound in g#3"),
		},
		{
			"a successor that is named has successors of its own", two,
			with(at(3, in("c")), later(4, inNamed("d", "g#2")), at(5, lease("c", "c0")), at(6, fails1("c", "c0")), later(7, inNamed("e", "g#2")), later(8, inNamed("f", "g"))),
			lines("3: GroupBound in g#2", "6: JobFailed c c0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0 in g#2",
				"6: GroupEnded Failed BackoffLimitExceeded in g#2", "6: MemberStopped d in g#2", "7: GroupBound in g#2#2", "8: GroupBound in g#3"),
		},
		{
			"the newest leads on while it is known, then the name begins anew", fixed(1),
			four(
				at(0, in("a")), at(1, succeeded("a", "a0")), at(80_000, in("b")),
				// The horizon of the first has passed: b is still in g#2, and the name leads there.
				at(90_000, succeeded("b", "b0")), at(90_001, in("c")), at(90_002, succeeded("c", "c0")),
				at(180_000, submit("z")), at(180_001, in("d")),
			),
			[]string{
				"0: GroupBound", "1: GroupEnded Succeeded", "2: GroupBound in g#2", "3: GroupEnded Succeeded in g#2", "4: GroupBound in g#3", "5: GroupEnded Succeeded in g#3",
				"7: GroupBound",
			},
		},
		{
			"one that ended under version 3", two,
			append([]stepFour{{timedMessage: ended[0], version: GroupsVersion}, {timedMessage: ended[1]}, {timedMessage: ended[2]}, {timedMessage: at(3, in("c"))}},
				stepFour{timedMessage: at(4, in("d")), version: SuccessorsVersion}),
			lines("3: GroupFinding c index not declared", "4: GroupBound in g#2"),
		},
		{
			"in shadow no group has ended", shadow, with(at(3, in("c"))),
			[]string{"0: GroupBound", "2: JobFailed a a0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0", "3: GroupFinding c index not declared"},
		},
		{
			"one that ended before", two, append(with(), stepFour{timedMessage: at(3, in("c")), policies: &shadow}), lines("3: GroupBound in g#2"),
		},
		{
			"a long name", two,
			four(inNamed("a", strings.Repeat("x", 253)), inNamed("b", strings.Repeat("x", 253)), at(4, lease("a", "a0")), at(5, fails1("a", "a0")), later(6, inNamed("c", strings.Repeat("x", 253)))),
			[]string{
				"0: GroupBound in " + strings.Repeat("x", 253), "3: JobFailed a a0 RuleFail BackoffLimitExceeded FailGroup by fail 0/0 in " + strings.Repeat("x", 253),
				"3: GroupEnded Failed BackoffLimitExceeded in " + strings.Repeat("x", 253), "3: MemberStopped b in " + strings.Repeat("x", 253),
				"4: GroupBound in " + strings.Repeat("x", 253) + "#2",
			},
		},
	})
}

// TestNoJitterWithoutRun: "Without a failed run, … it has no jitter"; with one, the jitter is that run's.
func TestNoJitterWithoutRun(t *testing.T) {
	t.Parallel()
	always := grouped(GroupPolicy{
		Restarts: &Restarts{Limit: new(1), On: "Always", Backoff: Backoff{InitialDelayMs: new(int64(10_000)), JitterMilli: new(int64(1000))}},
		Parts:    mainPart(GroupPart{}),
	})
	runFour(t, []caseFour{
		{
			"without", always, four(at(0, in("a")), at(1, succeeded("a", "a0"))),
			[]string{"0: GroupBound", "1: UnitEnded Succeeded RestartUnit by restarts 0/0 g1", "1: MemberRestart a a0 g1 @11s"},
		},
		{ // SHA-256 of "a0" begins with 0x4e1195df: 10 s × 0.30495…
			"with", always, four(at(0, in("a")), at(1, fails1("a", "a0"))),
			[]string{
				"0: GroupBound", "1: JobRequeued a a0 GroupRestart BackoffLimitExceeded RestartUnit by fail,restarts 0/0 g1 @14.049s delay 13.049s",
				"1: MemberRestart a a0 g1 @14.049s",
			},
		},
	})
}

// TestDueAgain: a group that came due while its queue was in shadow, under a shorter horizon, comes due
// again when a longer one has passed; in version 3 it is not looked at again.
func TestDueAgain(t *testing.T) {
	t.Parallel()
	with := func(mode string, horizon int64) *Policies {
		p := grouped(GroupPolicy{Parts: []GroupPart{{Name: "driver"}, {Name: "main", After: []string{"driver"}}}})
		p.Settings = &Settings{HorizonMs: &horizon, Mode: mode}
		return &p
	}
	steps := []stepFour{
		{timedMessage: at(1, inPart("a", "main"))},
		{timedMessage: at(700, submit("x")), policies: with("Shadow", 600_000)},
		{timedMessage: at(800, submit("y")), policies: with("Enforce", 3_600_000)},
		{timedMessage: at(3601, submit("z"))},
		{timedMessage: at(3602, submit("z"))},
	}
	held := []string{"0: GroupBound", "0: MemberHeld a"}
	three := slices.Clone(steps)
	three[0].version = GroupsVersion
	short := *with("Enforce", 600_000)
	runFour(t, []caseFour{
		{"version 4", short, steps, append(held, "4: GroupEnded Failed Exhausted", "4: MemberStopped a")},
		{"version 3", short, three, held},
	})
}
