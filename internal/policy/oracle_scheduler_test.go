package policy_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/oracle"
)

// armadaScenario is the whole way through Armada's scheduler, with its harness'
// defaults where a row is silent.
type armadaScenario struct {
	policy struct {
		Enabled                                  *bool
		GlobalMaxRetries, LegacyMaxAttemptedRuns number
		GangCardinality                          any
		FailFast                                 any
		Schedulable                              *bool
		Policies                                 []obj
		QueuePolicies                            *[]string
		DefaultPolicy, DefaultPolicyName         string
	}
	prior struct {
		FailedRuns, PreemptedRuns, RunningRuns, ReturnedRuns number
		RunAttempted, PreemptRequested                       bool
		FailFast, Memory, Nodes                              unread
	}
	observed struct {
		Error    *armadaError
		FailFast any
	}
}

func (s *armadaScenario) read(c *oracle.Check) bool {
	return c.Inputs(map[string]any{"policy": &s.policy, "prior": &s.prior, "observed": &s.observed})
}

// The harness of Armada's rows (the file's notes).
const (
	harnessGlobalMax = 10
	harnessLegacyMax = 2
)

var digits = regexp.MustCompile(`\d+`)

// job is the scenario's job: annotations wherever the row says them.
func (s *armadaScenario) job() suite.Job {
	j := suite.Job{Queue: "q"}
	for _, v := range []any{s.policy.FailFast, s.prior.FailFast, s.observed.FailFast} {
		j.FailFast = j.FailFast || v == true || v == "true"
	}
	if n, err := strconv.Atoi(digits.FindString(fmt.Sprint(s.policy.GangCardinality))); err == nil {
		j.Gang = n
	}
	return j
}

// applying is the name of the policy that applies, "" where none does: the
// queue's first, else the default, else the only one that there is.
func (s *armadaScenario) applying() string {
	p := &s.policy
	switch {
	case p.QueuePolicies != nil && len(*p.QueuePolicies) > 0:
		return (*p.QueuePolicies)[0]
	case p.DefaultPolicy+p.DefaultPolicyName != "":
		return or2(p.DefaultPolicy, p.DefaultPolicyName)
	case len(p.Policies) == 1:
		name, _ := p.Policies[0]["name"].(string)
		return name
	}
	return ""
}

func (s *armadaScenario) docs(c *oracle.Check) []obj {
	p := &s.policy
	settings := obj{
		"enabled": p.Enabled != nil && *p.Enabled, "globalMaxRetries": min(or(p.GlobalMaxRetries, harnessGlobalMax), most),
		"legacyMaxAttempts": or(p.LegacyMaxAttemptedRuns, harnessLegacyMax),
	}
	docs := []obj{settingsDoc(settings)}
	if name := s.applying(); name != "" {
		docs = append(docs, obj{"kind": "Queue", "name": "q", "retryPolicies": []string{name}})
	}
	for _, doc := range p.Policies {
		plain, _ := withoutMutate(c, doc)
		docs = append(docs, flatDoc(plain))
	}
	return docs
}

// warmUp are the documents under which the runs before failed: every failure is
// retried and counted by the rule that it matches, and preemptions and returned
// leases count for nothing, as in Armada.
func (s *armadaScenario) warmUp(c *oracle.Check) []obj {
	name, docs := s.applying(), []obj{settingsDoc(obj{"globalMaxRetries": most, "legacyMaxAttempts": most})}
	free := []string{"Preempted"}
	docs = append(docs, obj{"apiVersion": v1, "kind": "RetryPolicy", "metadata": obj{"name": "warm-up"}, "spec": obj{
		"defaultAction": "Retry", "rules": []any{obj{"action": "Ignore", "onConditions": free}},
	}}, obj{"kind": "Queue", "name": "q", "retryPolicies": slices.DeleteFunc([]string{"warm-up", name}, func(n string) bool { return n == "" })})
	for _, doc := range s.policy.Policies {
		plain, _ := withoutMutate(c, doc)
		docs = append(docs, generous(flatDoc(plain)))
	}
	return docs
}

// lacks are the rows that do not say what is decided.
func (s *armadaScenario) lacks() []oracle.Reason {
	failed := or(s.prior.FailedRuns, 0)
	several := len(s.policy.Policies) > 1 && s.applying() == ""
	return []oracle.Reason{
		{Holds: s.policy.Enabled == nil, Why: "the row does not say whether retries are on"},
		{Holds: failed <= 0 && or(s.prior.RunningRuns, 0) <= 0 && !s.prior.PreemptRequested, Why: "no run that failed"},
		{Holds: s.observed.Error == nil && !s.prior.PreemptRequested, Why: "no error: for us a failure is a run that ended, and always has its facts"},
		{Holds: several, Why: "several policies, and the row does not say which applies"},
		{Holds: max(failed, or(s.prior.PreemptedRuns, 0), or(s.prior.ReturnedRuns, 0)) > 1000, Why: "more failures than a test lets fail"},
	}
}

func (s *armadaScenario) reasons() []oracle.Reason {
	return []oracle.Reason{
		{Holds: s.policy.Schedulable != nil && !*s.policy.Schedulable, Why: "whether a node is left is the scheduler's"},
		{Holds: s.job().Gang > 1, Why: "Armada fails gangs; for us they retry as a whole"},
		{Holds: s.observed.Error != nil && s.prior.PreemptRequested && len(s.observed.Error.Containers) > 0, Why: "a preempted run with the error of its pod"},
	}
}

// decide plays the runs before the row's, and then that one.
func (s *armadaScenario) decide(c *oracle.Check) decided {
	f := s.observed.Error.failure(s.prior.RunAttempted, s.prior.PreemptRequested)
	n := newJob(c, suite.Job{Queue: "q"}, s.warmUp(c)...)
	if s.job().FailFast { // decided before any count is asked
		n = newJob(c, s.job(), s.docs(c)...)
		return n.fail(f)
	}
	n.before(or(s.prior.PreemptedRuns, 0), suite.Failure{Conditions: []policy.Condition{policy.Preempted}})
	n.before(or(s.prior.ReturnedRuns, 0), suite.Failure{Conditions: []policy.Condition{policy.LeaseReturned}})
	before := or(s.prior.FailedRuns, 0)
	if or(s.prior.RunningRuns, 0) == 0 && !s.prior.PreemptRequested {
		before-- // the last failed run is the one to decide
	}
	n.before(before, f)
	n.use(s.docs(c)...)
	return n.fail(f)
}

func TestOracleArmadaScheduler(t *testing.T) {
	t.Parallel()
	oracleArmadaScheduler().Test(t)
}

func oracleArmadaScheduler() *oracle.Suite {
	const words, events = "Armada's words and metrics", "Armada's own events"
	return &oracle.Suite{
		File: "armada_scheduler_scenarios.json",
		Silent: map[string]string{
			"expected.reason": words, "expected.message": words, "expected.messageContains": words, "expected.metric": words,
			"expected.events": events, "expected.latestRunFailed": events, "expected.runPreempted": events,
			"expected.memory": "mutate", "expected.cumulativeFactor": "mutate",
		},
		Run: func(c *oracle.Check) {
			var s armadaScenario
			if !s.read(c) || c.CannotRun(s.lacks()...) || c.LeaveOut(s.reasons()...) {
				return
			}
			var expected struct {
				Decided, Requeued, ShouldRetry, Terminal, JobFailed *bool
				FailureCategory, FailureSubcategory                 *string
			}
			if !c.Expected(&expected) {
				return
			}
			d := s.decide(c)
			same := func(field string, got bool, want *bool) {
				if want != nil {
					oracle.Equal(c, field, got, *want)
				}
			}
			byPolicy := !slices.Contains([]policy.Code{policy.NoPolicy, policy.LegacyReturn, policy.LegacyLimit, policy.GangFail, policy.FailFast}, d.Code)
			same("decided by a policy", byPolicy, expected.Decided)
			same("retried by a policy", byPolicy && d.Requeue, expected.ShouldRetry)
			same("requeued", d.Requeue, expected.Requeued)
			same("terminal", !d.Requeue, expected.Terminal)
			same("failed", !d.Requeue, expected.JobFailed)
			if expected.FailureCategory != nil {
				oracle.Equal(c, "category", d.Why.Facts.Category, *expected.FailureCategory)
			}
			if expected.FailureSubcategory != nil {
				oracle.Equal(c, "subcategory", d.Why.Facts.Subcategory, *expected.FailureSubcategory)
			}
		},
	}
}
