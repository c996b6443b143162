package policy_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/suite"
	"github.com/refloat/refloat/internal/test/oracle"
)

// jobsetRule is a rule of a JobSet. Reasons become categories and the parent of
// the failed job the failed container; no list is any.
type jobsetRule struct {
	Name, Action                                                           string
	OnJobFailureReasons, OnJobFailureMessagePatterns, TargetReplicatedJobs []string
}

// jobsetAction is an action of a JobSet in our words.
func jobsetAction(action string) (ours string, known bool) {
	switch action {
	case "FailJobSet":
		return "Fail", true
	case "RestartJobSet", "RestartJob", "Recreate", "":
		return "Retry", true
	case "RestartJobSetAndIgnoreMaxRestarts", "RestartJobAndIgnoreMaxRestarts":
		return "Ignore", true
	}
	return "", false
}

// single says whether an action restarts one job of the set, behind a gate.
func single(action string) bool {
	return strings.HasPrefix(action, "RestartJob") && !strings.HasPrefix(action, "RestartJobSet")
}

// jobset is a JobSet's policy in our words: maxRestarts is over all restarts of
// all rules, as our cap is.
type jobset struct {
	spec     obj
	settings obj
	places   []int // of our rules among the JobSet's
}

func newJobset(maxRestarts number, rules []jobsetRule) *jobset {
	s := &jobset{spec: obj{"defaultAction": "Retry"}, settings: obj{"globalMaxRetries": most, "defaultPolicyName": "p"}}
	if maxRestarts != nil {
		s.spec["retryLimit"] = min(*maxRestarts, most)
		if *maxRestarts > 0 {
			s.settings["globalMaxRetries"] = min(*maxRestarts, most)
		}
	}
	var all []any
	for i, r := range rules {
		targets := r.TargetReplicatedJobs
		if len(targets) == 0 {
			targets = []string{""}
		}
		for _, target := range targets { // one rule for each
			action, _ := jobsetAction(r.Action)
			rule := obj{"action": action, "onExitCodes": obj{"operator": "NotIn", "values": []int{0}}}
			if len(r.OnJobFailureReasons) > 0 {
				rule[categoryField] = slices.Compact(slices.Sorted(slices.Values(r.OnJobFailureReasons)))
			}
			if len(r.OnJobFailureMessagePatterns) > 0 {
				rule["onTerminationMessage"] = obj{"pattern": "(?:" + strings.Join(r.OnJobFailureMessagePatterns, ")|(?:") + ")"}
			}
			if target != "" {
				rule["containerName"] = target
			}
			all, s.places = append(all, rule), append(s.places, i)
		}
	}
	if all != nil {
		s.spec["rules"] = all
	}
	return s
}

func (s *jobset) docs() []obj { return []obj{policyDoc(s.spec), settingsDoc(s.settings)} }

// place is the JobSet's rule that decided, -1 where none did.
func (s *jobset) place(d *decided) int {
	if i := d.place(); i >= 0 && i < len(s.places) {
		return s.places[i]
	}
	return -1
}

func jobsetReasons(gate *bool, rules []jobsetRule, messages ...string) []oracle.Reason {
	gated, unknown, everyMessage := false, false, false
	for _, r := range rules {
		_, known := jobsetAction(r.Action)
		unknown = unknown || !known
		gated = gated || single(r.Action) && (gate == nil || !*gate)
		everyMessage = everyMessage || len(r.OnJobFailureMessagePatterns) > 0 && slices.Contains(messages, "")
	}
	return []oracle.Reason{
		{Holds: unknown, Why: "an action that JobSet does not have"},
		{Holds: gated, Why: "a feature gate of JobSet is off"},
		{Holds: everyMessage, Why: "a pattern and a failure without a message: for us it never matches (SEMANTICS 4)"},
	}
}

type jobsetFailure struct {
	Name, Reason, Message              string
	ParentReplicatedJob, ReplicatedJob string
	Failed                             *bool
	Index                              unread
	FailedAt                           string `json:"failedAt_offsetFromNow"`
}

func (f *jobsetFailure) failure() suite.Failure {
	return suite.Failure{
		Category:   f.Reason,
		Containers: []policy.Container{{Name: f.ParentReplicatedJob + f.ReplicatedJob, ExitCode: 1, Message: f.Message}},
	}
}

func TestOracleJobsetRuleMatching(t *testing.T) {
	t.Parallel()
	oracleJobsetRuleMatching().Test(t)
}

func oracleJobsetRuleMatching() *oracle.Suite {
	return &oracle.Suite{File: "jobset_rule_matching.json", Run: func(c *oracle.Check) {
		var p struct {
			Rule  *jobsetRule
			Rules *[]jobsetRule
		}
		var observed struct {
			Job             *jobsetFailure
			Reason, Message string
			Jobs            []jobsetFailure
		}
		if !c.Inputs(map[string]any{"policy": &p, "observed": &observed, "gates": new(unread)}) {
			return
		}
		if p.Rule == nil && p.Rules == nil {
			c.CannotRun(oracle.Reason{Holds: true, Why: "no rule: which of several failed jobs was the first, and we decide on each"})
			return
		}
		jobs, rules, messages := observed.Jobs, []jobsetRule{}, []string{}
		if p.Rules != nil {
			rules = *p.Rules
		}
		if p.Rule != nil {
			rules = []jobsetRule{*p.Rule}
			if observed.Job != nil {
				observed.Job.Reason, observed.Job.Message = observed.Reason, observed.Message
				jobs = append(jobs, *observed.Job)
			}
		}
		jobs = slices.DeleteFunc(slices.Clone(jobs), func(j jobsetFailure) bool { return j.Failed != nil && !*j.Failed })
		orphan := false
		for _, job := range jobs {
			orphan = orphan || job.ParentReplicatedJob == ""
			messages = append(messages, job.Message)
		}
		if c.CannotRun(oracle.Reason{Holds: len(jobs) == 0, Why: "no job that failed"}) || c.LeaveOut(oracle.Reason{Holds: orphan, Why: "a job without a parent: our containers have names"}) ||
			c.LeaveOut(jobsetReasons(new(true), rules, messages...)...) {
			return
		}
		compareMatch(c, newJobset(nil, rules), jobs)
	}}
}

// compareMatch: JobSet asks rule after rule for the earliest job that matches,
// we decide on each job; so its rule is the first of ours, and its job the
// earliest of those that ours decided by it.
func compareMatch(c *oracle.Check, s *jobset, jobs []jobsetFailure) {
	var expected struct {
		RuleMatches      *bool
		MatchedRuleIndex *int
		MatchedJob       *string
		ActionWhenNoRule *string
	}
	if !c.Expected(&expected) {
		return
	}
	first, job := -1, ""
	slices.SortStableFunc(jobs, func(a, b jobsetFailure) int { return cmp.Compare(offset(a.FailedAt), offset(b.FailedAt)) })
	for i := range jobs {
		d := newJob(c, suite.Job{}, s.docs()...).fail(jobs[i].failure())
		if place := s.place(&d); place >= 0 && (first < 0 || place < first) {
			first, job = place, jobs[i].Name
		}
	}
	if expected.RuleMatches != nil {
		oracle.Equal(c, "matches", first >= 0, *expected.RuleMatches)
		return
	}
	want := -1
	if expected.MatchedRuleIndex != nil {
		want = *expected.MatchedRuleIndex
	}
	oracle.Equal(c, "rule", first, want)
	oracle.Equal(c, "job", job, text(expected.MatchedJob))
	if expected.ActionWhenNoRule != nil {
		d := newJob(c, suite.Job{}, newJobset(nil, nil).docs()...).fail(jobs[0].failure())
		oracle.Equal(c, "action without a rule", map[policy.Code]string{policy.DefaultRetry: "RestartJobSet"}[d.Code], *expected.ActionWhenNoRule)
	}
}

func offset(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return d
}

// jobsetStatus is what a JobSet counts.
type jobsetStatus struct {
	Restarts, RestartsCountTowardsMax number
	ReplicatedJobsStatus              []struct {
		Name                                    string
		JobRestarts, JobRestartsCountTowardsMax []int64
	}
	TerminalState string
	Conditions    []k8sCondition
}

// sums are all restarts, and those that count.
func (s *jobsetStatus) sums() (restarts, counted int64) {
	restarts, counted = or(s.Restarts, 0), or(s.RestartsCountTowardsMax, 0)
	for _, r := range s.ReplicatedJobsStatus {
		restarts, counted = restarts+sum(r.JobRestarts), counted+sum(r.JobRestartsCountTowardsMax)
	}
	return restarts, counted
}

func sum(all []int64) (n int64) {
	for _, v := range all {
		n += v
	}
	return n
}

func TestOracleJobsetActions(t *testing.T) {
	t.Parallel()
	oracleJobsetActions().Test(t)
}

func oracleJobsetActions() *oracle.Suite {
	return &oracle.Suite{
		File: "jobset_actions.json",
		Run: func(c *oracle.Check) {
			var p struct {
				FailurePolicy  *struct{ MaxRestarts number }
				ReplicatedJobs unread
				Action         any
				Rule           *jobsetRule
			}
			var prior jobsetStatus
			var observed struct{ FailedJob unread }
			var gates struct{ RestartJob *bool }
			if !c.Inputs(map[string]any{"policy": &p, "prior": &prior, "observed": &observed, "gates": &gates}) {
				return
			}
			var rules []jobsetRule
			for _, action := range actionList(p.Action) { // of a list, each by itself must do what the row expects
				rules = append(rules, jobsetRule{Action: action})
			}
			if rules == nil && p.Rule != nil {
				rules = []jobsetRule{*p.Rule}
			}
			restarts, counted := prior.sums()
			if c.LeaveOut(jobsetReasons(gates.RestartJob, rules)...) || c.LeaveOut(
				oracle.Reason{Holds: prior.TerminalState != "", Why: "the JobSet had ended before"},
			) || c.CannotRun(
				oracle.Reason{Holds: len(rules) == 0, Why: "no action"},
				oracle.Reason{Holds: observed.FailedJob == nil, Why: "no job that failed"},
				oracle.Reason{Holds: restarts < counted || restarts > 1000, Why: "counts that no JobSet has, or more than a test lets fail"},
			) {
				return
			}
			var expected struct{ Status *jobsetStatus }
			if !c.Expected(&expected) {
				return
			}
			if expected.Status == nil {
				c.Errorf("the row expects no status")
				return
			}
			for _, rule := range rules {
				limit := new(int64(0))
				if p.FailurePolicy != nil {
					limit = new(or(p.FailurePolicy.MaxRestarts, 0))
				}
				s := newJobset(limit, []jobsetRule{rule})
				f := jobsetFailure{ParentReplicatedJob: "any"}
				n := newJob(c, suite.Job{}, generous(policyDoc(s.spec)), settingsDoc(obj{"globalMaxRetries": most, "defaultPolicyName": "p"}))
				n.before(restarts-counted, suite.Failure{Category: ignoredBefore})
				n.before(counted, f.failure())
				n.use(s.docs()...)
				d := n.fail(f.failure())
				compareStatus(c, rule.Action, &d, &prior, expected.Status)
				if p.Rule != nil {
					compareRuleName(c, &d, p.Rule.Name, expected.Status)
				}
			}
		},
		Silent: map[string]string{
			"expected.status.conditions[].status":         "always True",
			"expected.status.replicatedJobsStatus[].name": "whose counts they are: the row's own words",
		},
	}
}

func actionList(action any) []string {
	switch a := action.(type) {
	case string:
		return []string{a}
	case []any:
		var all []string
		for _, v := range a {
			s, _ := v.(string)
			all = append(all, s)
		}
		return all
	}
	return nil
}

// compareStatus: from our decision follows what the JobSet counts afterwards.
func compareStatus(c *oracle.Check, action string, d *decided, prior, expected *jobsetStatus) {
	restarts, _ := prior.sums()
	gotRestarts, gotCounted := restarts, int64(d.GlobalUsed)
	if d.Requeue {
		gotRestarts++
	}
	wantRestarts, wantCounted := expected.sums()
	oracle.Equal(c, "restarts", gotRestarts, wantRestarts)
	oracle.Equal(c, "restarts that count", gotCounted, wantCounted)
	if d.Requeue && !single(action) || !d.Requeue { // the single jobs' counts stay
		own, _ := (&jobsetStatus{ReplicatedJobsStatus: prior.ReplicatedJobsStatus}).sums()
		oracle.Equal(c, "restarts of the whole set", gotRestarts-own, or(expected.Restarts, 0))
	} else {
		oracle.Equal(c, "restarts of the whole set", or(prior.Restarts, 0), or(expected.Restarts, 0))
	}
	oracle.Equal(c, "terminal state", map[bool]string{true: "", false: "Failed"}[d.Requeue], expected.TerminalState)
	if len(expected.Conditions) == 0 && !d.Requeue {
		c.Errorf("%s, and the row expects no condition", d.Code)
	}
	for _, condition := range expected.Conditions {
		oracle.Equal(c, "the condition Failed", !d.Requeue, condition.Type == "Failed")
		oracle.Equal(c, "the condition's reason ReachedMaxRestarts", d.limited(), condition.Reason == "ReachedMaxRestarts")
		if !d.limited() && !strings.HasPrefix(condition.Reason, action) && !strings.HasPrefix(condition.Reason, "FailurePolicy_") {
			c.Errorf("%s by %s, the row says %s", d.Code, action, condition.Reason)
		}
	}
}

// compareRuleName: the reason of a restart by a named rule says its name.
func compareRuleName(c *oracle.Check, d *decided, name string, expected *jobsetStatus) {
	if name != "" && d.Requeue && len(expected.Conditions) == 0 {
		c.Errorf("the row expects no condition with the name of the rule")
	}
	for _, condition := range expected.Conditions {
		if said, ok := strings.CutPrefix(condition.Reason, "FailurePolicy_"); ok {
			oracle.Equal(c, "the rule", name, said)
		}
	}
}

func TestOracleJobsetIntegration(t *testing.T) {
	t.Parallel()
	oracleJobsetIntegration().Test(t)
}

func oracleJobsetIntegration() *oracle.Suite {
	return &oracle.Suite{
		File: "jobset_integration.json",
		Run: func(c *oracle.Check) {
			var p struct {
				FailurePolicy *struct {
					MaxRestarts     number
					RestartStrategy string
					Rules           []jobsetRule
				}
				ReplicatedJobs unread
			}
			var gates struct{ RestartJob *bool }
			var steps []struct {
				Observe any
				Expect  unread
			}
			if !c.Inputs(map[string]any{"policy": &p, "steps": &steps, "gates": &gates}) {
				return
			}
			var rules []jobsetRule
			if p.FailurePolicy != nil {
				rules = p.FailurePolicy.Rules
			}
			var messages []string
			other := false
			for _, step := range steps {
				observed, _ := step.Observe.(obj)
				failed, ok := observed["jobFailed"].(obj)
				other = other || !ok || len(observed) != 1
				message, _ := failed["message"].(string)
				messages = append(messages, message)
			}
			if c.LeaveOut(jobsetReasons(gates.RestartJob, rules, messages...)...) || c.LeaveOut(
				oracle.Reason{Holds: p.FailurePolicy != nil && p.FailurePolicy.RestartStrategy == "BlockingRecreate", Why: "all members wait for the last one to be gone: gangs, SEMANTICS 12"},
				oracle.Reason{Holds: len(steps) == 0 || other, Why: "a step that is no failure"},
			) {
				return
			}
			compareSteps(c, p.FailurePolicy != nil, func() *jobset {
				if p.FailurePolicy == nil {
					return nil
				}
				return newJobset(new(or(p.FailurePolicy.MaxRestarts, 0)), rules)
			}())
		},
	}
}

func compareSteps(c *oracle.Check, hasPolicy bool, s *jobset) {
	var steps []struct {
		Observe struct{ JobFailed jobsetFailure }
		Expect  struct {
			State                                   *string
			Restarts, RestartsCountTowardsMax       number
			JobRestarts, JobRestartsCountTowardsMax []int64
		}
	}
	if !c.Part("steps", &steps) {
		return
	}
	docs := []obj{settingsDoc(obj{})}
	if hasPolicy {
		docs = s.docs()
	}
	n := newJob(c, suite.Job{}, docs...)
	restarts, counted := int64(0), int64(0)
	for _, step := range steps {
		d := n.fail(step.Observe.JobFailed.failure())
		if d.Requeue {
			restarts++
		}
		if !d.ended {
			counted = int64(d.GlobalUsed)
		}
		if e := step.Expect; e.State != nil {
			oracle.Equal(c, "state", map[bool]string{true: "Active", false: "Failed"}[d.Requeue], *e.State)
		}
		if e := step.Expect; e.RestartsCountTowardsMax != nil || e.JobRestartsCountTowardsMax != nil {
			oracle.Equal(c, "restarts that count", counted, or(e.RestartsCountTowardsMax, 0)+sum(e.JobRestartsCountTowardsMax))
		}
		if e := step.Expect; e.Restarts != nil || e.JobRestarts != nil {
			oracle.Equal(c, "restarts", restarts, or(e.Restarts, 0)+sum(e.JobRestarts))
		}
	}
}
