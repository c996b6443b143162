package oracle

import (
	"cmp"
	"slices"
	"strings"
)

// JobSet is a JobSet, as rows write it.
type JobSet struct {
	FailurePolicy  *JobSetFailurePolicy
	ReplicatedJobs []ReplicatedJob
}

// JobSetFailurePolicy is its failure policy.
type JobSetFailurePolicy struct {
	MaxRestarts     *int
	RestartStrategy string
	Rules           []JobSetRule
}

// JobSetRule is a rule of it.
type JobSetRule struct {
	Name, Action                                                           string
	OnJobFailureReasons, OnJobFailureMessagePatterns, TargetReplicatedJobs []string
}

// ReplicatedJob is a job of a JobSet. Reasons are those by which its child Jobs fail in the row.
type ReplicatedJob struct {
	Name     string
	Replicas *int
	Reasons  []string `json:"-"`
}

// Number is how many child Jobs there are.
func (r *ReplicatedJob) Number() int { return or(r.Replicas, 1) }

// JobSets starts a JobSet as a group; after it left the row out or reported an error it returns nil.
// Its child Jobs are of one pod. Fail must make them fail by one of the reasons.
type JobSets func(c *Check, s *JobSet) Group

// childReasons are those by which a child Job can fail.
var childReasons = []string{"BackoffLimitExceeded", "PodFailurePolicy", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded"}

// jobSetActions are the actions of JobSet's rules.
var jobSetActions = []string{"FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob", "RestartJobAndIgnoreMaxRestarts", replicated}

// replicated is the action that restarts all jobs of a replicated job.
const replicated = "RestartReplicatedJob"

func ofOneJob(action string) bool {
	return strings.HasPrefix(action, "RestartJob") && !strings.HasPrefix(action, "RestartJobSet")
}

// failedJob is a child Job that failed, as rows describe it.
type failedJob struct {
	Name, ReplicatedJob, ParentReplicatedJob, Reason, Message string
	Failed                                                    *bool
	FailedAt                                                  string `json:"failedAt_offsetFromNow"`
}

// reason is that by which the Job fails here. Where the row has none, it is one that no rule asks for.
func (f *failedJob) reason(rules []JobSetRule) string {
	if f.Reason != "" {
		return f.Reason
	}
	for _, reason := range childReasons {
		if !slices.ContainsFunc(rules, func(r JobSetRule) bool { return slices.Contains(r.OnJobFailureReasons, reason) }) {
			return reason
		}
	}
	return ""
}

// exit is how a member of a child Job fails so that the Job fails by a reason.
func exit(reason, message string) Failure {
	f := Failure{Containers: []Exit{{Code: 1, Message: message}}}
	switch reason {
	case "PodFailurePolicy":
		f.Containers[0].Code = PolicyExitCode
	case "DeadlineExceeded":
		f.Condition = reason
	}
	return f
}

// PolicyExitCode is the exit code by which a child Job fails by its pod failure policy.
const PolicyExitCode = 3

// start starts a JobSet in which these jobs are to fail.
func (start JobSets) start(c *Check, s *JobSet, gate *bool, fail []failedJob) Group {
	var rules []JobSetRule
	if s.FailurePolicy != nil {
		rules = s.FailurePolicy.Rules
	}
	unknown, gated, everyMessage, unnamed, counts := false, false, false, false, false
	for _, r := range rules {
		counts = counts || r.Action == replicated
		unknown = unknown || !slices.Contains(jobSetActions, r.Action)
		gated = gated || ofOneJob(r.Action) && gate != nil && !*gate
		for _, target := range r.TargetReplicatedJobs {
			if !slices.ContainsFunc(s.ReplicatedJobs, func(j ReplicatedJob) bool { return j.Name == target }) {
				s.ReplicatedJobs = append(s.ReplicatedJobs, ReplicatedJob{Name: target}) // JobSet's API server refuses others
			}
		}
		everyMessage = everyMessage || len(r.OnJobFailureMessagePatterns) > 0 && slices.ContainsFunc(fail, func(f failedJob) bool { return f.Message == "" })
	}
	mixed := false
	for _, f := range fail {
		reason := f.reason(rules)
		unnamed = unnamed || !slices.Contains(childReasons, reason)
		i := slices.IndexFunc(s.ReplicatedJobs, func(j ReplicatedJob) bool { return j.Name == f.ParentReplicatedJob })
		if i < 0 {
			c.Errorf("no replicated job %q", f.ParentReplicatedJob)
			return nil
		}
		j := &s.ReplicatedJobs[i]
		if !slices.Contains(j.Reasons, reason) {
			j.Reasons = append(j.Reasons, reason)
		}
		indexes := func(reason string) bool { return strings.Contains(reason, "FailedIndexes") }
		mixed = mixed || len(j.Reasons) > 1 && slices.ContainsFunc(j.Reasons, indexes)
	}
	if c.LeaveOut(
		Reason{gated, "a feature gate of JobSet is off"},
		Reason{s.FailurePolicy != nil && s.FailurePolicy.RestartStrategy == "BlockingRecreate", "a restart of ours does not wait until all pods of the attempt before are gone"},
		Reason{counts, "a restart of a replicated job: JobSet counts one for each of its jobs, we count one"},
		Reason{everyMessage, "a pattern and a failure without a message: for us it never matches (semantics.md 4)"},
	) || c.CannotRun(
		Reason{unknown, "an action that JobSet does not have"},
		Reason{unnamed, "a reason by which no child Job fails"},
		Reason{mixed, "child Jobs of one spec that fail by their indexes and by another reason"},
	) {
		return nil
	}
	return start(c, s)
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

// Integration is the suite of jobset_integration.json: after each failure of a child Job, the JobSet's state and counts.
func (start JobSets) Integration() *Suite {
	return &Suite{
		File: "jobset_integration.json",
		Silent: map[string]string{
			"steps[].expect.jobsByAttempt": "child Jobs of attempts before that still exist: a restart here has no such time",
		},
		Run: func(c *Check) {
			var row struct {
				Policy JobSet
				Gates  struct{ RestartJob *bool }
				Steps  []struct{ Observe any }
			}
			if !c.Read(&row) {
				return
			}
			fails := make([]bool, len(row.Steps))
			for i, step := range row.Steps {
				_, fails[i] = step.Observe.(map[string]any)
			}
			if c.LeaveOut(Reason{slices.Contains(fails, false), "a step that is no failure: what it tells of has no time here"}) ||
				c.CannotRun(Reason{len(fails) == 0, "no step"}, Reason{len(row.Policy.ReplicatedJobs) == 0, "no replicated job"}) {
				return
			}
			var steps []struct {
				Observe struct{ JobFailed failedJob }
				Expect  struct {
					State                                   *string
					Restarts, RestartsCountTowardsMax       *int
					JobRestarts, JobRestartsCountTowardsMax []int
				}
			}
			if !c.Part("steps", &steps) {
				return
			}
			var failed []failedJob
			for i := range steps {
				f := steps[i].Observe.JobFailed
				f.ParentReplicatedJob = f.ReplicatedJob
				if strings.HasPrefix(f.ReplicatedJob, "any") {
					f.ParentReplicatedJob = row.Policy.ReplicatedJobs[0].Name
				}
				failed = append(failed, f)
			}
			g := start.start(c, &row.Policy, row.Gates.RestartJob, failed)
			if g == nil {
				return
			}
			for i, step := range steps {
				f, want := failed[i], step.Expect
				if m := (Member{Part: f.ParentReplicatedJob}); g.State(m) == Waiting || g.State(m) == Running {
					g.Fail(m, exit(f.reason(row.Policy.Rules()), f.Message))
				}
				s := g.Status()
				EqualIf(c, "state", cmp.Or(s.State, "Active"), want.State)
				EqualIf(c, "restarts", s.Restarts, want.Restarts)
				if want.Restarts != nil || want.JobRestarts != nil {
					Equal(c, "restarts of single jobs", s.UnitRestarts, sum(want.JobRestarts))
				}
				if want.RestartsCountTowardsMax != nil {
					Equal(c, "restarts that count", s.Counted, *want.RestartsCountTowardsMax+sum(want.JobRestartsCountTowardsMax))
				}
			}
		},
	}
}

// Rules are those of the failure policy.
func (s *JobSet) Rules() []JobSetRule {
	if s.FailurePolicy == nil {
		return nil
	}
	return s.FailurePolicy.Rules
}

// jobSetStatus is what a JobSet counts.
type jobSetStatus struct {
	Restarts, RestartsCountTowardsMax int
	ReplicatedJobsStatus              []struct {
		Name                                    string
		JobRestarts, JobRestartsCountTowardsMax []int
	}
	TerminalState string
	Conditions    []condition
}

// single are the restarts of single jobs.
func (s *jobSetStatus) single() (restarts, counted int) {
	for _, r := range s.ReplicatedJobsStatus {
		restarts, counted = restarts+sum(r.JobRestarts), counted+sum(r.JobRestartsCountTowardsMax)
	}
	return restarts, counted
}

// Actions is the suite of jobset_actions.json: an action, after restarts that were before it.
func (start JobSets) Actions() *Suite {
	return &Suite{
		File: "jobset_actions.json",
		Silent: map[string]string{
			"expected.status.replicatedJobsStatus[].name": "whose counts they are: the row's own words",
			"expected.status.conditions[].message":        "the file says that rows do not compare it",
		},
		Optional: []string{"expected.status.terminalState"},
		Same:     noCondition,
		Run: func(c *Check) {
			var row struct {
				Policy struct {
					FailurePolicy  *JobSetFailurePolicy
					ReplicatedJobs []ReplicatedJob
					Action         any
					Rule           *JobSetRule
				}
				Gates    struct{ RestartJob *bool }
				Prior    jobSetStatus
				Expected struct{ Status jobSetStatus }
			}
			if !c.Read(&row) {
				return
			}
			p := row.Policy
			var actions []string
			switch a := p.Action.(type) {
			case string:
				actions = []string{a}
			case []any: // each by itself must do what the row expects
				for _, one := range a {
					actions = append(actions, one.(string)) //nolint:forcetypeassert // by the schema
				}
			default:
				if p.Rule != nil {
					actions = []string{p.Rule.Action}
				}
			}
			single, singleCounted := row.Prior.single()
			most := 0
			if p.FailurePolicy != nil {
				most = or(p.FailurePolicy.MaxRestarts, 0)
			}
			if c.LeaveOut(Reason{row.Prior.TerminalState != "", "the JobSet had ended before"}) || c.CannotRun(
				Reason{len(actions) == 0, "no action"},
				Reason{
					row.Prior.Restarts < row.Prior.RestartsCountTowardsMax || single < singleCounted || row.Prior.RestartsCountTowardsMax+singleCounted > most ||
						row.Prior.Restarts+single > maxFailures, "counts that no JobSet has, or more than a test lets fail",
				},
			) {
				return
			}
			for _, action := range actions {
				own := JobSet{ReplicatedJobs: slices.Clone(p.ReplicatedJobs), FailurePolicy: &JobSetFailurePolicy{MaxRestarts: &most}}
				if len(own.ReplicatedJobs) == 0 {
					own.ReplicatedJobs = []ReplicatedJob{{Name: "rjob"}}
				}
				rule := JobSetRule{Action: action}
				if p.Rule != nil {
					rule.Name = p.Rule.Name
				}
				// What was before is by rules that match another message each.
				part := own.ReplicatedJobs[0].Name
				prior := []struct {
					action string
					times  int
				}{
					{"RestartJobSetAndIgnoreMaxRestarts", row.Prior.Restarts - row.Prior.RestartsCountTowardsMax},
					{"RestartJobSet", row.Prior.RestartsCountTowardsMax},
					{"RestartJobAndIgnoreMaxRestarts", single - singleCounted},
					{"RestartJob", singleCounted},
				}
				for _, before := range prior {
					own.FailurePolicy.Rules = append(own.FailurePolicy.Rules, JobSetRule{
						Name: "before" + before.action, Action: before.action, OnJobFailureMessagePatterns: []string{"^before " + before.action + "$"},
					})
				}
				own.FailurePolicy.Rules = append(own.FailurePolicy.Rules, rule)
				g := start.start(c, &own, row.Gates.RestartJob, []failedJob{{ParentReplicatedJob: part, Message: "now"}})
				if g == nil {
					return
				}
				for _, before := range prior {
					for range before.times {
						g.Fail(Member{Part: part}, exit("", "before "+before.action))
					}
				}
				g.Fail(Member{Part: part}, exit("", "now"))
				compareStatus(c, g, part, rule, &row.Expected.Status)
			}
		},
	}
}

// noCondition: a restart by a rule without a name may have no condition.
func noCondition(path string, a, b any) bool {
	list, _ := a.([]any)
	if path != "expected.status.conditions" || b != nil || len(list) == 0 {
		return false
	}
	first, _ := list[0].(map[string]any)
	reason, _ := first["reason"].(string)
	return first["type"] != "Failed" && strings.HasSuffix(reason, "FailurePolicyAction")
}

func compareStatus(c *Check, g Group, part string, rule JobSetRule, want *jobSetStatus) {
	got := g.Status()
	single, counted := want.single()
	Equal(c, "restarts", got.Restarts, want.Restarts)
	Equal(c, "restarts of single jobs", got.UnitRestarts, single)
	Equal(c, "restarts that count", got.Counted, want.RestartsCountTowardsMax+counted)
	Equal(c, "terminal state", got.State, want.TerminalState)
	if got.State != "" && len(want.Conditions) == 0 {
		c.Errorf("the JobSet ended, and the row expects no condition")
	}
	decided := g.Decisions(Member{Part: part})
	by := decided[len(decided)-1].GroupRule
	if rule.Name != "" && got.State == "" && len(want.Conditions) == 0 {
		c.Errorf("the row expects no condition with the name of the rule")
	}
	kind, reason := "RestartingJobSet", rule.Action+"FailurePolicyAction"
	switch {
	case got.State == "Failed":
		kind = got.State
	case ofOneJob(rule.Action):
		kind = "RestartingJob"
	}
	switch {
	case got.Reason == "ReachedMaxRestarts":
		reason = got.Reason
	case rule.Name != "":
		reason = "FailurePolicy_" + rule.Name
		if !sameName(by, rule.Name) {
			c.Errorf("the rule: by %s, and not by that of the row", by)
		}
	}
	for _, condition := range want.Conditions {
		Equal(c, "a condition's status", "True", condition.Status)
		Equal(c, "a condition's type", kind, condition.Type)
		Equal(c, "the reason", reason, condition.Reason)
	}
}
