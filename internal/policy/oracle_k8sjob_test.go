package policy_test

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/oracle"
)

// k8sPolicy is what a Kubernetes Job says about failures.
type k8sPolicy struct {
	BackoffLimit, BackoffLimitPerIndex, MaxFailedIndexes number
	Completions, Parallelism                             number
	CompletionMode, PodReplacementPolicy, RestartPolicy  string
	ManagedBy                                            string
	ActiveDeadlineSeconds, SuccessPolicy                 unread
	Suspend                                              bool
	PodFailurePolicy                                     *struct{ Rules []k8sRule }
}

type k8sRule struct {
	Action      string
	OnExitCodes *struct {
		ContainerName, Operator string
		Values                  []int32
	}
	OnPodConditions []struct{ Type, Status string }
}

type k8sPod struct {
	UID, Namespace, Name, Phase string
	Containers, InitContainers  []k8sContainer
	Conditions                  []struct {
		Type, Status, Reason string
		LastTransitionTime   unread
	}
	IndexFailureCount, IndexIgnoredFailureCount number
	Index                                       unread
	HasTrackingFinalizer                        bool
	DeletionTimestamp                           unread

	CreationTimestamp, DeletionGracePeriodSeconds, RestartPolicy unread
}

type k8sContainer struct {
	Name, State, Reason, Message string
	ExitCode                     int32
	FinishedAt                   unread
	RestartPolicy, RestartCount  unread
}

type k8sGates struct {
	EnableJobBackoffLimitPerIndex *bool
	EnableJobPodReplacementPolicy unread
	EnableJobManagedBy            unread
	EnableJobSuccessPolicy        unread
}

func (p *k8sPolicy) rules() []k8sRule {
	if p.PodFailurePolicy == nil {
		return nil
	}
	return p.PodFailurePolicy.Rules
}

func (p *k8sPod) failed() bool { return p.Phase == "Failed" }

// statuses are those of all containers that ended, in Kubernetes' order.
func (p *k8sPod) statuses() []k8sContainer {
	all := slices.Concat(p.Containers, p.InitContainers)
	return slices.DeleteFunc(all, func(c k8sContainer) bool { return c.State != "terminated" })
}

// reasons to leave a row out whatever the suite.
func (p *k8sPolicy) reasons(gates k8sGates, pods ...k8sPod) []oracle.Reason {
	status, both, conditions := false, false, map[string]bool{}
	for _, r := range p.rules() {
		both = both || r.OnExitCodes != nil && r.OnPodConditions != nil
		for _, c := range r.OnPodConditions {
			status = status || c.Status != "True" && c.Status != ""
			conditions[c.Type] = true
		}
	}
	gone := slices.ContainsFunc(pods, func(p k8sPod) bool { return p.DeletionTimestamp != nil })
	several := slices.ContainsFunc(pods, p.asksAnother)
	disabled := gates.EnableJobBackoffLimitPerIndex != nil && !*gates.EnableJobBackoffLimitPerIndex
	return []oracle.Reason{
		{Holds: p.RestartPolicy == "OnFailure", Why: "restarts of a container in its pod are no runs"},
		{Holds: p.Suspend, Why: "a suspended job: nothing runs"},
		{Holds: p.ManagedBy != "", Why: "a Job of another controller: Kubernetes decides nothing about it"},
		{Holds: p.ActiveDeadlineSeconds != nil, Why: "a deadline of the Job: ours is one of the pod, and the conversion's (internal/convert/conformance)"},
		{Holds: p.SuccessPolicy != nil, Why: "which successes end a Job: a group, not a job (internal/convert/conformance)"},
		{Holds: gone, Why: "a pod that is being deleted: when it is replaced is semantics.md 8, no verdict"},
		{Holds: status, Why: "a rule asks for a condition that does not hold: our conditions hold or are absent"},
		{Holds: both, Why: "exit codes and conditions in one rule: Kubernetes never has both"},
		{Holds: len(conditions) > len(k8sConditions), Why: "more kinds of condition in one row than a pod of ours can have at once"},
		{Holds: several, Why: "several containers failed: Kubernetes asks any of them, we ask the first (semantics.md 4)"},
		{Holds: disabled && slices.ContainsFunc(p.rules(), func(r k8sRule) bool { return r.Action == "FailIndex" }), Why: "a feature gate of Kubernetes is off"},
	}
}

// asksAnother says whether a rule would match by another container than the
// first that failed.
func (p *k8sPolicy) asksAnother(pod k8sPod) bool {
	for _, r := range p.rules() {
		if r.OnExitCodes == nil {
			continue
		}
		var holds []bool
		for _, c := range pod.statuses() {
			if c.ExitCode != 0 && (r.OnExitCodes.ContainerName == "" || r.OnExitCodes.ContainerName == c.Name) {
				holds = append(holds, slices.Contains(r.OnExitCodes.Values, c.ExitCode) == (r.OnExitCodes.Operator == "In"))
			}
		}
		if len(holds) > 1 && !holds[0] && slices.Contains(holds, true) {
			return true
		}
	}
	return false
}

// Conditions have no counterpart in name: these are ours that a pod can have
// together, in the order in which a row's conditions take them.
var k8sConditions = []policy.Condition{policy.Preempted, policy.Evicted}

// k8sJob is a Job in our words.
type k8sJob struct {
	c          *oracle.Check
	spec       obj
	settings   obj
	places     []int // of our rules among the Job's
	actions    []string
	conditions []string // of the row, each ours at the same place of k8sConditions
}

// translate puts a Job into our words: Count retries and counts, FailJob and
// FailIndex fail, Ignore ignores, and what no rule knows is retried up to the
// limits: the per-index one for a job of ours, the Job's own as the cap of all
// rules together.
func (p *k8sPolicy) translate(c *oracle.Check) *k8sJob {
	j := &k8sJob{c: c, spec: obj{"defaultAction": "Retry"}, settings: obj{"globalMaxRetries": most, "defaultPolicyName": "p"}}
	if n := p.limit(); n >= 0 {
		j.spec["retryLimit"] = n
	}
	if p.BackoffLimit != nil && *p.BackoffLimit > 0 {
		j.settings["globalMaxRetries"] = min(*p.BackoffLimit, most)
	}
	switch p.PodReplacementPolicy {
	case "Failed":
		j.spec["replacement"] = "WhenTerminated"
	case "TerminatingOrFailed":
		j.spec["replacement"] = "WhenFailed"
	}
	var rules []any
	for i, r := range p.rules() {
		if rule := j.rule(r); rule != nil {
			rules, j.places, j.actions = append(rules, rule), append(j.places, i), append(j.actions, r.Action)
		}
	}
	if rules != nil {
		j.spec["rules"] = rules
	}
	return j
}

// limit is how many retries one job of ours may have, -1 where the Job does not say.
func (p *k8sPolicy) limit() int64 {
	perIndex, whole := or(p.BackoffLimitPerIndex, -1), or(p.BackoffLimit, -1)
	switch {
	case perIndex < 0:
		return min(whole, most)
	case whole < 0:
		return min(perIndex, most)
	}
	return min(perIndex, whole, most)
}

// rule is a rule in our words, nil where it can match nothing, as Kubernetes
// reads it: we refuse a file with such a rule.
func (j *k8sJob) rule(r k8sRule) obj {
	ours, known := map[string]string{"Count": "Retry", "FailJob": "Fail", "FailIndex": "Fail", "Ignore": "Ignore"}[r.Action]
	if !known {
		j.refused(obj{"action": r.Action, categoryField: []string{"any"}}, unknownValue)
		return nil
	}
	rule := obj{"action": ours}
	if e := r.OnExitCodes; e != nil {
		if e.Operator != "In" && e.Operator != "NotIn" {
			j.refused(obj{"action": ours, "onExitCodes": obj{"operator": e.Operator, "values": e.Values}}, unknownValue)
			return nil
		}
		values := exitCodeList(e.Operator, e.Values)
		if len(values) != len(e.Values) {
			j.refused(obj{"action": ours, "onExitCodes": obj{"operator": e.Operator, "values": e.Values}}, duplicate, neverMatches, empty)
		}
		if len(values) == 0 {
			return nil
		}
		rule["onExitCodes"], rule["includeInitContainers"] = obj{"operator": e.Operator, "values": values}, true
		if e.ContainerName != "" {
			rule["containerName"] = e.ContainerName
		}
		return rule
	}
	var conditions []string
	for _, c := range r.OnPodConditions {
		if ours := j.condition(c.Type).String(); !slices.Contains(conditions, ours) {
			conditions = append(conditions, ours)
		}
	}
	if conditions == nil {
		return nil
	}
	rule["onConditions"] = conditions
	return rule
}

// exitCodeList is a list of exit codes as our files have it, each once: 0 is no
// failure, so In never means it, and NotIn of nothing is every other code.
func exitCodeList(operator string, codes []int32) []int32 {
	list := slices.Compact(slices.Sorted(slices.Values(codes)))
	if operator == "In" {
		return slices.DeleteFunc(list, func(v int32) bool { return v == 0 })
	}
	if len(list) == 0 {
		return []int32{0}
	}
	return list
}

// refused holds that we refuse a rule that Kubernetes' matcher passes over.
func (j *k8sJob) refused(rule obj, codes ...string) {
	j.c.Adapt("a rule that Kubernetes' matcher passes over, or a value in it, is left away: we refuse the file")
	if _, err := parseDocs(policyDoc(obj{"rules": []any{rule}})); !hasProblem(err, codes...) {
		j.c.Errorf("rule %v: got %v, want one of %v", rule, err, codes)
	}
}

func (j *k8sJob) condition(kind string) policy.Condition {
	i := slices.Index(j.conditions, kind)
	if i < 0 {
		i = len(j.conditions)
		j.conditions = append(j.conditions, kind)
	}
	if i >= len(k8sConditions) {
		return policy.UnknownCondition // rows with so many are left out
	}
	return k8sConditions[i]
}

// failure is how the pod failed. Conditions that no rule asks for change nothing.
func (j *k8sJob) failure(p *k8sPod) suite.Failure {
	var f suite.Failure
	for _, c := range p.statuses() {
		f.Containers = append(f.Containers, policy.Container{Name: c.Name, ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message})
	}
	for _, c := range p.Conditions {
		if slices.Contains(j.conditions, c.Type) && c.Status == "True" {
			f.Conditions = append(f.Conditions, j.condition(c.Type))
		}
	}
	return f
}

func (j *k8sJob) docs() []obj { return []obj{policyDoc(j.spec), settingsDoc(j.settings)} }

// submit is a job of ours whose pod has these init containers, with so many
// retries counted and ignored before.
func (j *k8sJob) submit(pod *k8sPod, counted, ignored int64) *job {
	var init []string
	for _, c := range pod.InitContainers {
		init = append(init, c.Name)
	}
	n := newJob(j.c, suite.Job{InitContainers: init}, generous(policyDoc(j.spec)), settingsDoc(obj{"globalMaxRetries": most, "defaultPolicyName": "p"}))
	n.before(ignored, suite.Failure{Category: ignoredBefore})
	n.before(counted, j.failure(pod))
	n.use(j.docs()...)
	return n
}

// action is the action of the rule that decided, "" where none did.
func (j *k8sJob) action(d *decided) string {
	if i := d.place(); i >= 0 && i < len(j.actions) {
		return j.actions[i]
	}
	return ""
}

// k8sMessage is what Kubernetes says of a rule that failed the Job.
var (
	k8sByContainer = regexp.MustCompile(`^Container (\S*) for pod \S+ failed with exit code (-?\d+) matching FailJob rule at index (\d+)$`)
	k8sByCondition = regexp.MustCompile(`^Pod \S+ has condition (\S+) matching FailJob rule at index (\d+)$`)
)

// knownPart is the part of such a message that is ours to know.
func knownPart(message string) string {
	if m := k8sByContainer.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("container %q, rule %s", m[1], m[3])
	}
	if m := k8sByCondition.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("condition, rule %s", m[2])
	}
	return message
}

// message is the same of our decision.
func (j *k8sJob) message(d *decided) string {
	if j.action(d) != "FailJob" {
		return ""
	}
	if d.Matcher == policy.OnConditions {
		return fmt.Sprintf("condition, rule %d", j.places[d.place()])
	}
	return fmt.Sprintf("container %q, rule %d", d.Container, j.places[d.place()])
}
