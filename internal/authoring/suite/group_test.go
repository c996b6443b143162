package suite_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

const groupPolicies = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec:
  rules:
  - {name: lost, action: Retry, onConditions: [LeaseExpired], retryLimit: 2}
  - {name: broken, action: FailUnit, onExitCodes: {operator: In, values: [42]}}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: training}
spec:
  maxRestarts: 2
  backoff: {initialDelay: 30s}
  completed: Keep
  rules:
  - {name: broken, action: FailGroup, onReasons: [PodFailurePolicy]}
  - {name: maintenance, action: RestartGroup, countsTowardsMax: false, onMessage: {pattern: going down}}
  - {name: data, action: Halt, parts: [data]}
  - {name: rest, action: RestartPart}
  parts:
  - {name: data, members: 3, parallelism: 2}
  - {name: workers, replicas: 2, members: 4, after: [data], restarts: {limit: 1}}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: open}
spec: {maxRestarts: 1}
---
{kind: Queue, name: q, retryPolicies: [p]}
---
{kind: Queue, name: dark, retryPolicies: [p], mode: Shadow}
`

func groupSet(t *testing.T) suite.Policies {
	t.Helper()
	set, err := policyfile.Parse([]policyfile.File{{Name: "g.yaml", Data: []byte(groupPolicies)}})
	if err != nil {
		t.Fatal(err)
	}
	return func([]string) (*policyfile.Set, error) { return set, nil }
}

const groupHead = "kind: RetryPolicyTest\ntests:\n- name: a\n  job: {queue: q, terminationGracePeriodSeconds: 5}\n  group: {policy: training, gangs: [workers]}\n  events:\n"

// TestGroupEvents: what each kind of event does, and what can be expected of it.
func TestGroupEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, head, events string }{
		{"data first, then the workers", groupHead, `
  - {at: 10s, start: data/0/0-1, expect: {group: Active, restarts: 0/2, units: {data: Active}, restarted: [], held: [], why: none}}
  - {succeed: data/0/0, expect: {released: data/0/2, group: Active}}
  - {succeed: [data/0/1, data/0/2], expect: {released: workers, units: {data: Succeeded, workers: Active}}}
  - {at: 1m, succeed: workers/0, expect: {units: {workers/0: Succeeded, workers/1: Active}, released: []}}
  - {succeed: workers/1, expect: {group: Succeeded, groupReason: none}}
`},
		{"a gang restarts as a whole", groupHead, `
  - {succeed: data}
  - {start: workers}
  - {at: 1m, member: workers/1/2, fail: {exitCode: 1}, expect: {decision: Retry, code: GroupRestart, rule: none, unitReason: BackoffLimitExceeded, groupAction: RestartUnit, groupRule: restarts, restarts: 0/2, restarted: workers/1, generations: {workers/1: 1, workers/0: 0}, retryAfter: 1m5s}}
  - {member: workers/1/0, late: true, fail: {exitCode: 143}, expect: {code: GroupRestart, unitReason: none, groupAction: none, groupRule: none, restarted: []}}
  - {member: workers/1/1, fail: {condition: LeaseExpired}, expect: {code: GangRetry, rule: p/lost, restarted: workers/1, left: {rule: 1}, generations: {workers/1: 2}, retryAfter: 1m10s}}
  - {member: workers/1/1, fail: {condition: LeaseExpired}, expect: {code: GangRetry, left: {rule: 0}}}
  - {member: workers/1/3, fail: {exitCode: 1, message: host going down}, expect: {groupRule: maintenance, groupAction: RestartGroup, restarts: 0/2, restarted: workers, delay: 35s}}
  - {member: workers/1/1, fail: {condition: LeaseExpired}, expect: {code: GangRetry, left: {rule: 1}}}
  - {member: workers/1/0, fail: {exitCode: 3}, expect: {groupRule: rest, groupAction: RestartPart, restarts: 1/2, restarted: workers, why: "1 of 2 counted restarts"}}
  - {member: workers/1/0, fail: {exitCode: 3}, expect: {restarts: 2/2}}
  - {member: workers/1/0, fail: {exitCode: 3}, expect: {decision: Fail, code: DefaultFail, groupAction: FailGroup, groupRule: rest, restarts: 2/2, group: Failed, groupReason: ReachedMaxRestarts, stopped: [workers/0, workers/1/1-3]}}
  - {member: workers/1/2, late: true, fail: {exitCode: 143}, expect: {decision: Fail, code: GroupEnded}}
`},
		{"a policy of a member fails the group", groupHead, `
  - {member: data/0/1, fail: {exitCode: 42}, expect: {decision: Fail, code: RuleFail, rule: p/broken, unitReason: PodFailurePolicy, groupAction: FailGroup, groupRule: broken, group: Failed, groupReason: PodFailurePolicy, stopped: [workers, data/0/0, data/0/2]}}
`},
		{"data that failed halt the group, which ends", groupHead, `
  - {member: data/0/1, fail: {exitCode: 1}, expect: {groupAction: Halt, groupRule: data, units: {data: Failed}, group: Halted, groupReason: BackoffLimitExceeded, stopped: [data/0/0, data/0/2, workers]}}
`},
		{"a member is cancelled", groupHead, `
  - {cancel: data/0/1, expect: {unitReason: MemberCancelled, groupAction: Halt, groupRule: data, group: Halted, why: MemberCancelled}}
`},
		{"members are submitted late, and time passes", groupHead, `
  - {submit: data/0/0, expect: {held: []}}
  - {submit: [data/0/1-2, workers/1], expect: {held: [data/0/2, workers/1]}}
  - {at: 1h, succeed: data/0/0-1, expect: {released: data/0/2}}
  - {succeed: data/0/2, expect: {released: workers/1}}
  - {succeed: workers/1, expect: {group: Active}}
  - {at: 24h, expect: {group: Active}}
  - {at: 26h, expect: {group: Failed, groupReason: Exhausted}}
`},
		{"a group of open size", strings.Replace(groupHead, "training, gangs: [workers]", "open", 1), `
  - {submit: main/0/0-9}
  - {start: all}
  - {member: main/0/3, fail: {exitCode: 1}, expect: {groupAction: RestartGroup, groupRule: none, restarts: 1/1, restarted: main/0/0-9}}
  - {succeed: all, expect: {group: Active}}
  - {at: 30h, expect: {group: Succeeded}}
`},
		{"a gang in no group", strings.Replace(groupHead, "policy: training, gangs: [workers]", "gangs: [main]", 1), `
  - {submit: main/0/0-3}
  - {member: main/0/3, fail: {condition: LeaseExpired}, expect: {code: GangRetry, restarted: main/0/0-3, restarts: 0/0}}
  - {member: main/0/3, fail: {exitCode: 1}, expect: {unitReason: BackoffLimitExceeded, groupAction: FailGroup, group: Failed}}
`},
		{"in shadow nothing is done", strings.Replace(groupHead, "queue: q", "queue: dark", 1), `
  - {member: data/0/1, fail: {exitCode: 42}, expect: {decision: Fail, shadow: true, groupAction: FailGroup, group: Active, stopped: []}}
`},
		{"other policies", groupHead, `
  - {policies: [x]}
  - {member: data/0/1, fail: {exitCode: 42}, expect: {group: Failed}}
`},
	} {
		s := parsed(t, c.head+strings.TrimPrefix(c.events, "\n"))
		if r := s.Run(&s.Tests[0], groupSet(t)); r.Failed() {
			t.Errorf("%s: %s", c.name, r.Explain("f"))
		}
	}
}

// TestGroupExpect: a wrong expectation fails.
func TestGroupExpect(t *testing.T) {
	t.Parallel()
	for _, expect := range []string{
		"decision: Fail", "code: DefaultFail", "unitReason: FailedIndexes", "unitReason: none", "groupAction: Leave", "groupAction: none", "groupRule: rest", "groupRule: none",
		"restarts: 1/2", "restarts: 0/3", "restarted: []", "restarted: [workers/0, data]", "restarted: workers/0/0-2", "held: workers/0", "released: workers/0", "stopped: workers/0",
		"group: Failed", "groupReason: Exhausted", "units: {workers/0: Failed}", "units: {workers: Succeeded}", "generations: {workers/0: 0}", "generations: {workers: 1}", "why: nope",
	} {
		s := parsed(t, groupHead+"  - {succeed: data}\n  - {member: workers/0/1, fail: {exitCode: 1}, expect: {"+expect+"}}\n")
		r := s.Run(&s.Tests[0], groupSet(t))
		if r.Err != nil || !r.Failed() {
			t.Errorf("%s: failed %v: %v", expect, r.Failed(), r.Err)
		}
	}
}

// TestGroupImpossible: a test of what cannot happen is an error, with its line.
func TestGroupImpossible(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ events, want string }{
		{"{start: workers/0}", "line 7: workers/0/0 is held"},
		{"{start: data/0/0-1}\n  - {start: data/0/0}", "line 8: data/0/0 has a run already"},
		{"{succeed: data/0/0}\n  - {succeed: data/0/0}", "data/0/0 is over (succeeded)"},
		{"{cancel: data/0/0}\n  - {member: data/0/0, fail: {}}", "data/0/0 is over (cancelled)"},
		{"{member: data/0/0, fail: {exitCode: 42}}\n  - {member: data/0/1, fail: {}}", "data/0/1 is over (stopped; late: true"},
		{"{cancel: data/0/0}\n  - {cancel: data/0/0}", "was cancelled before"},
		{"{member: data/0/0, late: true, fail: {}}", "no run that was told to stop"},
		{"{succeed: data/0/0, late: true}", "no run that was told to stop"},
		{"{start: data/0/9}", "units of part data have members 0 to 2"},
		{"{start: data/1/0}", "part data has replicas 0 to 0"},
		{"{start: nodes}", "the group policy has no part nodes"},
		{"{start: data/0/0, expect: {held: nodes}}", "expect.held: nodes: the group policy has no part"},
		{"{start: data/0/0, expect: {units: {nodes: Failed}}}", "expect.units.nodes: nodes: the group policy has no part"},
		{"{submit: data/0/0}\n  - {submit: data/0/0}", "data/0/0 was submitted before"},
		{"{submit: data/0/0}\n  - {start: data/0/1}", "data/0/1 is not submitted"},
		{"{start: data/0/0, run: x}\n  - {member: data/0/0, fail: {run: y}}", "fail.run is y, but the run of data/0/0 that is live is x"},
	} {
		s := parsed(t, groupHead+"  - "+c.events+"\n")
		if r := s.Run(&s.Tests[0], groupSet(t)); r.Err == nil || !strings.Contains(r.Err.Error(), c.want) {
			t.Errorf("%s gives %v, want %s", c.events, r.Err, c.want)
		}
	}
	for from, to := range map[string]string{
		"policy: training": "policy: nobody", "gangs: [workers]": "gangs: [nodes]", "gangs: [workers]}": "jobs: {data/0/3: {}}}", "policy: training, gangs: [workers]": "policy: open",
	} {
		s := parsed(t, strings.Replace(groupHead, from, to, 1)+"  - {start: all}\n")
		if r := s.Run(&s.Tests[0], groupSet(t)); r.Err == nil || r.Explain("f") == "" {
			t.Errorf("%s: %v", to, r.Err)
		}
	}
}

// TestGroupProblems: what is wrong with a test of a group has its place, its code and a fix.
func TestGroupProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{strings.Replace(groupHead, "policy: training, ", "", 1) + "  - {start: all}", "5:10: RP013 tests[0].group.policy"},
		{strings.Replace(groupHead, "queue: q,", "gangCardinality: 4,", 1) + "  - {start: all}", "RP042 tests[0].job.gangCardinality"},
		{strings.Replace(groupHead, "gangs: [workers]", "jobs: [workers]", 1) + "  - {start: all}", "RP012 tests[0].group.jobs"},
		{strings.Replace(groupHead, "gangs: [workers]", "jobs: {a/b: {}}", 1) + "  - {start: all}", "RP030 tests[0].group.jobs.a/b"},
		{strings.Replace(groupHead, "gangs: [workers]", "jobs: {data: {}, data: {}}", 1) + "  - {start: all}", "tests[0].group.jobs.data"},
		{strings.Replace(groupHead, "gangs: [workers]", "jobs: {data: {queue: q}}", 1) + "  - {start: all}", "RP010 tests[0].group.jobs.data.queue"},
		{groupHead + "  - {begin: all}", "7:6: RP010 tests[0].events[0].begin"},
		{groupHead + "  - {}", "RP013"},
		{groupHead + "  - {expect: {group: Active}}", "7:5: RP013"},
		{groupHead + "  - {start: all, succeed: all}", "7:5: RP042"},
		{groupHead + "  - {fail: {}}", "RP013 tests[0].events[0].member"},
		{groupHead + "  - {member: data, fail: {}}", "7:14: RP030"},
		{groupHead + "  - {member: data/0/0-1, fail: {}}", "7:14: RP030"},
		{groupHead + "  - {member: data/0/0, start: all}", "7:14: RP010"},
		{groupHead + "  - {start: all, late: true}", "7:24: RP010"},
		{groupHead + "  - {succeed: all, run: x}", "7:25: RP010"},
		{groupHead + "  - {start: all, run: x}", "7:23: RP030"},
		{groupHead + "  - {policies: [x], expect: {group: Active}}", "7:29: RP010"},
		{groupHead + "  - {start: data/0/0/0}", "7:13: RP030"},
		{groupHead + "  - {start: data/x}", "7:13: RP030"},
		{groupHead + "  - {start: [data/3-1]}", "7:14: RP030"},
		{groupHead + "  - {start: {}}", "RP012"},
		{groupHead + "  - {start: all, expect: {decision: Retry}}", "7:27: RP010 tests[0].events[0].expect.decision"},
		{groupHead + "  - {start: all, expect: {groups: Active}}", "did you mean group?"},
		{groupHead + "  - {start: all, expect: {group: Activ}}", "did you mean Active?"},
		{groupHead + "  - {start: all, expect: {groupReason: Enough}}", "RP030"},
		{groupHead + "  - {start: all, expect: {unitReason: ReachedMaxRestarts}}", "RP030"},
		{groupHead + "  - {start: all, expect: {groupAction: Restart}}", "RP030"},
		{groupHead + "  - {start: all, expect: {restarts: '3'}}", "write USED/MAX"},
		{groupHead + "  - {start: all, expect: {held: x/y}}", "7:33: RP030"},
		{groupHead + "  - {start: all, expect: {units: Failed}}", "RP012"},
		{groupHead + "  - {start: all, expect: {units: {data: Bad}}}", "7:41: RP030"},
		{groupHead + "  - {start: all, expect: {units: {data/0/0: Failed}}}", "7:35: RP030"},
		{groupHead + "  - {start: all, expect: {generations: {data: one}}}", "RP030"},
		{head + "  - {member: data/0/0, fail: {}}", "6:6: RP010"},
		{head + "  - {fail: {condition: LeaseExpired, podMessage: x}}", "RP050"},
	} {
		_, err := suite.Parse(policyfile.File{Name: "p_test.yaml", Data: []byte(c.text)})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "fix: ") {
			t.Errorf("%s\n gives %v\n want  %s", c.text, err, c.want)
		}
	}
}

// TestGroupExplain holds what a failed test of a group says.
func TestGroupExplain(t *testing.T) {
	t.Parallel()
	s := parsed(t, groupHead+"  - {succeed: data}\n  - {member: workers/0/1, fail: {exitCode: 1}}\n  - {member: workers/0/1, fail: {exitCode: 1, message: no}, expect: {groupRule: maintenance, restarted: workers/0}}\n")
	r := s.Run(&s.Tests[0], groupSet(t))
	const want = `p_test.yaml:3:3: a
  line 9, event 2 at 5s: workers/0/1: main exited with 1 saying "no"
    groupRule    want maintenance
                 got  rest
    restarted    want workers/0
                 got  workers
    because no rule matched, and no policy has a default action: the job fails; the unit failed (BackoffLimitExceeded), and rule rest of the group restarts its part: 1 of 2 counted restarts, without the members that succeeded, not before 2026-01-01T00:00:40Z (35s after the failure)
      ✗ p/lost onConditions: no condition, so none of [LeaseExpired]
      ✗ p/broken onExitCodes: exit code 1 of container "main" is not in [42]
      ✗ training: restarts of the unit limit: used up: 1 of 1
      ✗ training/broken onReasons: reason BackoffLimitExceeded not among [PodFailurePolicy]
      ✗ training/maintenance onMessage: no message matches "going down"
      ✗ training/data parts: part workers not among [data]
      ✓ training/rest: RestartPart
      · training: no rule matches not tried
`
	if diff := cmp.Diff(want, r.Explain(s.File)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestGroupUpdate: expectations of groups are written as those of jobs, and pass.
func TestGroupUpdate(t *testing.T) {
	t.Parallel()
	before := groupHead + `  - {succeed: data}
  - {member: workers/0/1, fail: {exitCode: 1}, expect: {restarted: [data], units: {workers/0: Failed}, generations: {workers/0: 7}, restarts: 1/2}}
  - member: workers/0/1
    fail: {exitCode: 1}
`
	want := groupHead + `  - {succeed: data, expect: {released: [data/0/2, workers], group: Active, units: {data/0: Succeeded}}}
  - {member: workers/0/1, fail: {exitCode: 1}, expect: {restarted: workers/0, units: {workers/0: Active}, generations: {workers/0: 1}, restarts: "0/2"}}
  - member: workers/0/1
    fail: {exitCode: 1}
    expect: {decision: Retry, code: GroupRestart, delay: 35s, retryAfter: 40s, left: {global: 20}, unitReason: BackoffLimitExceeded, groupAction: RestartPart, groupRule: rest, restarts: "1/2", restarted: workers, group: Active}
`
	s := parsed(t, before)
	got, err := s.Update(ran(s, groupSet(t)), groupSet(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestMemberNames: sets of members have one shortest name, whatever they were called.
func TestMemberNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ restarted, same string }{
		{"[data/0/2, workers]", "[workers/0-1, data/0/2]"},
		{"[data/0/2, workers]", "[data/0/2-2, workers/0/0-3, workers/1]"},
		{"[data/0/2, workers]", "[workers/1/3, workers/1/0-2, data/0/2, workers/0, workers/0/2]"},
	} {
		for _, written := range []string{c.restarted, c.same} {
			text := fmt.Sprintf("%s  - {succeed: data, expect: {released: %s}}\n", groupHead, written)
			s := parsed(t, text)
			if r := s.Run(&s.Tests[0], groupSet(t)); r.Failed() {
				t.Error(r.Explain("f"))
			}
		}
	}
}
