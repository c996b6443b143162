package oracle

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RuleMatching is the suite of jobset_rule_matching.json: which rule answers the failure of a child Job. JobSet asks rule
// after rule for the earliest job that matches, a group answers each failure; so its rule is the first of ours, and its
// job the earliest of those that ours answered by it.
func (start JobSets) RuleMatching() *Suite {
	return &Suite{
		File: "jobset_rule_matching.json",
		Run: func(c *Check) {
			var row struct {
				Policy struct {
					Rule  *JobSetRule
					Rules *[]JobSetRule
				}
				Gates    struct{ RestartJob *bool }
				Observed struct {
					Job             *failedJob
					Reason, Message string
					Jobs            []failedJob
				}
				Expected struct {
					RuleMatches                  *bool
					MatchedRuleIndex             *int
					MatchedJob, ActionWhenNoRule *string
				}
			}
			if !c.Read(&row) {
				return
			}
			failed, rules := row.Observed.Jobs, []JobSetRule{}
			if row.Policy.Rules != nil {
				rules = *row.Policy.Rules
			}
			if row.Policy.Rule != nil {
				rules = []JobSetRule{*row.Policy.Rule}
				if row.Observed.Job != nil {
					row.Observed.Job.Reason, row.Observed.Job.Message = row.Observed.Reason, row.Observed.Message
					failed = append(failed, *row.Observed.Job)
				}
			}
			failed = slices.DeleteFunc(failed, func(f failedJob) bool { return f.Failed != nil && !*f.Failed })
			if c.CannotRun(
				Reason{row.Policy.Rule == nil && row.Policy.Rules == nil, "no rule: which of several failed jobs is first; failures are decided in the order of the log (semantics.md 1)"},
				Reason{len(failed) == 0, "no job that failed"},
				Reason{slices.ContainsFunc(failed, func(f failedJob) bool { return f.ParentReplicatedJob == "" }), "a job without a parent: our units have a part"},
			) {
				return
			}
			slices.SortStableFunc(failed, func(a, b failedJob) int { return int(a.at() - b.at()) })
			for i := range rules {
				if rules[i].Action == "" {
					rules[i].Action = "FailJobSet" // the row asks only whether it matches
				}
				for k, target := range rules[i].TargetReplicatedJobs {
					rules[i].TargetReplicatedJobs[k] = strings.ToLower(target) // as the names of ours are
				}
			}
			first, job, action := -1, "", ""
			for _, f := range failed {
				f.ParentReplicatedJob = strings.ToLower(f.ParentReplicatedJob)
				set := &JobSet{FailurePolicy: &JobSetFailurePolicy{MaxRestarts: new(maxFailures), Rules: slices.Clone(rules)}, ReplicatedJobs: []ReplicatedJob{{Name: f.ParentReplicatedJob}}}
				g := start.start(c, set, row.Gates.RestartJob, []failedJob{f})
				if g == nil {
					return
				}
				m := Member{Part: f.ParentReplicatedJob}
				g.Fail(m, exit(f.reason(rules), f.Message))
				at := ruleAt(rules, g.Decisions(m)[0].GroupRule)
				if at >= 0 && (first < 0 || at < first) {
					first, job = at, f.Name
				}
				if action == "" {
					action = map[bool]string{true: "RestartJobSet"}[g.Status().Restarts == 1]
				}
			}
			want := row.Expected
			if want.RuleMatches != nil {
				Equal(c, "matches", first >= 0, *want.RuleMatches)
				return
			}
			Equal(c, "rule", first, or(want.MatchedRuleIndex, -1))
			named := ""
			if want.MatchedJob != nil {
				named = *want.MatchedJob
			}
			Equal(c, "job", job, named)
			EqualIf(c, "action", action, want.ActionWhenNoRule)
		},
	}
}

// at is when the job failed, after an arbitrary time.
func (f *failedJob) at() time.Duration {
	d, err := time.ParseDuration(f.FailedAt)
	if err != nil {
		return 0
	}
	return d
}

// DefaultRuleName is JobSet's name of its nth rule, if it has no other.
func DefaultRuleName(n int) string { return "failurePolicyRule" + strconv.Itoa(n) }

// ruleAt is the number of a rule by its name, or by the name that JobSet gives to one without: -1 for none.
func ruleAt(rules []JobSetRule, name string) int {
	for i, r := range rules {
		if name != "" && sameName(name, cmp.Or(r.Name, DefaultRuleName(i))) {
			return i
		}
	}
	return -1
}

// sameName says whether a name of ours stands for one of theirs: ours have no capital letters, but hyphens.
func sameName(ours, theirs string) bool {
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "")) }
	return plain(ours) == plain(theirs)
}
