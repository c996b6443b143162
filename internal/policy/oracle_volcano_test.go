package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/suite"
	"github.com/refloat/refloat/internal/test/oracle"
)

// volcanoPolicy is one rule of a Volcano task or job: it holds by an event or by
// an exit code.
type volcanoPolicy struct {
	Action   string
	Event    string
	Events   []string
	ExitCode *int32
	Timeout  unread
}

// volcanoFailures are the events that are failures of a run.
var volcanoFailures = []string{"PodFailed", "PodEvicted", "TaskFailed"}

const anyEvent = "*"

func (p *volcanoPolicy) events() []string {
	return slices.DeleteFunc(append([]string{p.Event}, p.Events...), func(e string) bool { return e == "" })
}

// rules are the policy in our words: an event is a category, any exit code but 0
// is any event.
func (p *volcanoPolicy) rules() (rules []any) {
	action := "Fail"
	if strings.HasPrefix(p.Action, "Restart") {
		action = "Retry"
	}
	events := slices.Compact(slices.Sorted(slices.Values(p.events())))
	switch {
	case slices.Contains(events, anyEvent):
		rules = append(rules, obj{"action": action, "onExitCodes": obj{"operator": "NotIn", "values": []int{0}}})
	case len(events) > 0:
		rules = append(rules, obj{"action": action, categoryField: events})
	}
	if p.ExitCode != nil && *p.ExitCode != 0 {
		rules = append(rules, obj{"action": action, "onExitCodes": obj{"operator": "In", "values": []int32{*p.ExitCode}}})
	}
	return rules
}

// The rows of Volcano say which action an event has: the task's policies are
// asked before the job's, and the first that matches decides, as of our policies.
func TestOracleVolcanoApplyPolicies(t *testing.T) {
	t.Parallel()
	oracleVolcanoApplyPolicies().Test(t)
}

func oracleVolcanoApplyPolicies() *oracle.Suite {
	return &oracle.Suite{
		File: "volcano_apply_policies.json", MayRunNone: true,
		Run: func(c *oracle.Check) {
			var p struct {
				JobPolicies []volcanoPolicy
				Tasks       []struct {
					Name     string
					Policies []volcanoPolicy
				}
				JobVersion number
				JobUID     string
			}
			var observed struct {
				Request struct {
					Action, Event, TaskName, JobUID string
					ExitCode                        int32
					JobVersion                      number
				}
			}
			if !c.Inputs(map[string]any{"policy": &p, "observed": &observed}) {
				return
			}
			r := observed.Request
			var asked []volcanoPolicy
			for _, task := range p.Tasks {
				if task.Name == r.TaskName {
					asked = append(asked, task.Policies...)
				}
			}
			asked = append(asked, p.JobPolicies...)
			if c.LeaveOut(
				oracle.Reason{Holds: r.Action != "", Why: "an explicit request, not a failure"},
				oracle.Reason{Holds: r.JobUID != p.JobUID || or(r.JobVersion, 0) < or(p.JobVersion, 0), Why: "which version of a job a request means"},
				oracle.Reason{Holds: r.Event == "" && r.ExitCode == 0, Why: "a request without any event"},
				oracle.Reason{Holds: r.Event != "" && !slices.Contains(volcanoFailures, r.Event), Why: "an event that is no failure of a run"},
				oracle.Reason{
					Holds: r.ExitCode == 0 && slices.ContainsFunc(asked, func(p volcanoPolicy) bool { return p.ExitCode != nil && *p.ExitCode == 0 }),
					Why:   "exit code 0, which is no failure",
				},
			) {
				return
			}
			var expected struct{ Action string }
			if !c.Expected(&expected) {
				return
			}
			f, code := suite.Failure{Category: r.Event}, r.ExitCode
			for code == 0 || r.ExitCode == 0 && slices.ContainsFunc(asked, func(p volcanoPolicy) bool { return p.ExitCode != nil && *p.ExitCode == code }) {
				code++ // a failure has one, and no policy may ask for it
			}
			f.Containers = []policy.Container{{Name: suite.MainContainer, ExitCode: code}}
			rules, actions := []any{}, []string{}
			for _, p := range asked {
				for _, rule := range p.rules() {
					if r.Event == "" && p.ExitCode == nil {
						continue // by an event only, and there is none
					}
					rules, actions = append(rules, rule), append(actions, p.Action)
				}
			}
			d := newJob(c, suite.Job{}, policyDoc(obj{"rules": rules}), settingsDoc(obj{"defaultPolicyName": "p"})).fail(f)
			got := "SyncJob" // of what no policy knows
			if i := d.place(); i >= 0 {
				got = actions[i]
				oracle.Equal(c, "retried", d.Requeue, strings.HasPrefix(got, "Restart"))
			}
			oracle.Equal(c, "action", got, expected.Action)
		},
	}
}
