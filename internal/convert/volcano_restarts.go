package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of a unit that failed, by which a group's rules tell failures apart.
const (
	reasonPolicy  = "PodFailurePolicy"     // of a member's FailUnit
	reasonBackoff = "BackoffLimitExceeded" // of a member's Fail, and of retryLimit
)

// decide fills in what happens when a member of a part fails: tasks are those of the part, in order.
func (v *volcano) decide(p *Part, tasks []int) {
	if v.isStep && !v.policies {
		for k := range p.Tasks {
			p.Tasks[k].Retry = RetryPolicy{NoRetry: true, Backoff: &Backoff{Constant: true}, Rules: []RetryRule{evicted(actionIgnore)}}
		}
		return
	}
	acts := v.actsOn(tasks)
	p.Continue = len(acts) < 2
	retries := false
	for k, i := range tasks {
		r := &v.reactions[i]
		retries = retries || r.has(volcanoRestartPod)
		p.Tasks[k].Retry = r.retry(acts, v.restartsInPod(i))
	}
	if retries {
		limit := uint32(volcanoRuns(v.spec.MaxRetry) - 1)
		p.RetryLimit = &limit
	}
}

// actsOn are the actions on more than a pod that a part's failures can be told apart for: two if every failure has one
// of them, else the first.
func (v *volcano) actsOn(tasks []int) (acts []volcanoAction) {
	covered := true
	for _, i := range tasks {
		r := &v.reactions[i]
		covered = covered && !r.has(volcanoNothing) && !r.has(volcanoRestartPod)
		for _, a := range r.ofUnit() {
			if !slices.Contains(acts, a) {
				acts = append(acts, a)
			}
		}
	}
	if most := 2; len(acts) > most || len(acts) == most && !covered {
		acts = acts[:1]
	}
	return acts
}

// The backoff of the kubelet, which restarts a container in its pod.
const (
	containerBackoff    = 10 * time.Second
	maxContainerBackoff = 5 * time.Minute
)

// restartsInPod reports whether the kubelet restarts a task's containers, so that no failure of one reaches Volcano. In a step,
// the retryPolicy of its flow decides.
func (v *volcano) restartsInPod(task int) bool {
	return !v.isStep && v.spec.Tasks[task].Template.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// retry is the policy of the members of a task: the first of acts is FailUnit, the second Fail. With inPod, a failure without
// a policy is that of a container that restarts.
func (r *volcanoReaction) retry(acts []volcanoAction, inPod bool) RetryPolicy {
	do := func(a volcanoAction) string {
		switch {
		case a == volcanoRestartPod || a == volcanoNothing && inPod:
			return actionRetry
		case len(acts) > 0 && a == acts[0]:
			return actionFailUnit
		}
		return actionFail
	}
	out := RetryPolicy{Backoff: &Backoff{Constant: true}, Default: do(r.failed)}
	out.NoRetry = out.Default != actionRetry
	if r.failed == volcanoNothing && inPod {
		out.Backoff = &Backoff{InitialDelay: containerBackoff, MaxDelay: maxContainerBackoff}
	}
	// An eviction has no exit code for Volcano: the rules below are not for it. Without a policy, the pod is created again.
	switch action := do(r.evicted); {
	case r.evicted == volcanoNothing:
		out.Rules = append(out.Rules, evicted(actionIgnore))
	case action != out.Default || len(r.codes) > 0:
		out.Rules = append(out.Rules, evicted(action))
	}
	if r.failed == volcanoNothing && inPod {
		// The kubelet ends the whole pod then.
		out.Rules = append(out.Rules, RetryRule{Name: "deadline", Action: actionFail, Conditions: []string{"DeadlineExceeded"}})
	}
	codes := map[string][]int32{}
	for _, code := range slices.Sorted(maps.Keys(r.codes)) {
		if a := do(r.codes[code]); a != out.Default {
			codes[a] = append(codes[a], code)
		}
	}
	for _, action := range slices.Sorted(maps.Keys(codes)) {
		out.Rules = append(out.Rules, RetryRule{Name: "exit-codes-" + strings.ToLower(action), Action: action, ExitCodes: codes[action]})
	}
	return out
}

// evicted is the rule about pods that were deleted: PodEvicted.
func evicted(action string) RetryRule {
	return RetryRule{Name: "evicted", Action: action, Conditions: disruptions()}
}

// restarts fills in what a Job's group does when a unit failed.
func (v *volcano) restarts(w *Workload) {
	runs := volcanoRuns(v.spec.MaxRetry)
	limit := uint32(runs - 1)
	w.Group.MaxRestarts, w.Group.HasRules = &limit, true
	if !v.policies {
		w.Group.About = "Without policies, nothing restarts the group. What fails changes nothing for the other members."
		w.Group.MaxRestarts = nil
		w.Group.Rules = []GroupRule{{Name: "otherwise", Action: "Leave"}}
		return
	}
	if v.spec.MaxRetry == 0 && v.at["spec.maxRetry"] != nil {
		v.note("spec.maxRetry", caseZero, fmt.Sprintf("maxRestarts: %d", limit))
	}
	w.Group.About = about(limit, "A failure that no rule covers changes nothing for the other members. Rules restart at most %s.",
		"A failure that no rule covers changes nothing for the other members. Nothing restarts: maxRetry is one run.")
	retried := 0
	for i := range w.Parts {
		p := &w.Parts[i]
		acts := v.actsOn(v.tasksOf(p))
		for k, act := range acts {
			reason := []string{reasonPolicy, reasonBackoff}[k]
			v.rule(w, p.Name, act, reason)
		}
		if p.RetryLimit != nil {
			retried++
		}
	}
	v.second()
	if retried > 0 {
		w.Group.Rules = append(w.Group.Rules, GroupRule{Name: "retries-used-up", Action: "FailGroup", Reasons: []string{reasonBackoff}})
	}
	if retried > 1 || retried == 1 && slices.ContainsFunc(w.Group.Rules, func(r GroupRule) bool { return strings.HasPrefix(r.Action, "Restart") }) {
		v.note("spec.maxRetry", caseOwnLimits, fmt.Sprintf("maxRestarts: %d, retryLimit: %d", limit, limit))
	}
	w.Group.Rules = append(w.Group.Rules, GroupRule{Name: "otherwise", Action: "Leave"})
}

func about(restarts uint32, some, none string) string {
	switch restarts {
	case 0:
		return none
	case 1:
		return fmt.Sprintf(some, "once")
	}
	return fmt.Sprintf(some, fmt.Sprintf("%d times", restarts))
}

// tasksOf are the tasks of a part that restarts fills in rules for.
func (v *volcano) tasksOf(p *Part) (tasks []int) {
	for i := range v.spec.Tasks {
		if t := &v.spec.Tasks[i]; t.Replicas > 0 && (v.gang || t.Name == p.Name) {
			tasks = append(tasks, i)
		}
	}
	return tasks
}

// rule adds the group's rule for an action of a part.
func (v *volcano) rule(w *Workload, part string, act volcanoAction, reason string) {
	r := GroupRule{Reasons: []string{reason}, Parts: []string{part}}
	switch act {
	case volcanoRestartJob:
		r.Name, r.Action = "restart-job", "RestartGroup"
	case volcanoRestartTask:
		r.Name, r.Action = "restart-task", "RestartPart"
	case volcanoFailJob:
		r.Name, r.Action = "terminate-job", "FailGroup"
	case volcanoNothing, volcanoRestartPod:
		return
	}
	if *w.Group.MaxRestarts == 0 {
		r.Action = "FailGroup" // what a restart that is always refused comes to
	}
	for i := range w.Group.Rules {
		if o := &w.Group.Rules[i]; o.Name == r.Name && o.Reasons[0] == reason {
			o.Parts = append(o.Parts, part)
			return
		}
	}
	w.Group.Rules = append(w.Group.Rules, r)
}

// second makes the notes about actions for which a part's failures cannot be told apart any more.
func (v *volcano) second() {
	for i := range v.spec.Tasks {
		lost := func(policies []volcanoPolicy, path string) {
			acts := v.actsOn(v.tasksOf(&Part{Name: v.spec.Tasks[i].Name}))
			for k := range policies {
				a := volcanoAction(policies[k].Action)
				if a == "AbortJob" {
					a = volcanoFailJob
				}
				if v.reactions[i].has(a) && slices.Contains(v.reactions[i].ofUnit(), a) && !slices.Contains(acts, a) {
					v.note(fmt.Sprintf("%s[%d].action", path, k), caseSecond, "")
				}
			}
		}
		lost(v.spec.Tasks[i].Policies, fmt.Sprintf("spec.tasks[%d].policies", i))
		lost(v.spec.Policies, "spec.policies")
	}
}

// step is what a Job means as the step of a flow: each failure of more than a pod fails the step.
func (v *volcano) step() Part {
	p := v.unit()
	v.minSuccess(&p)
	v.dependencies(nil)
	if v.spec.MaxRetry != 0 && p.RetryLimit == nil {
		v.note("spec.maxRetry", caseStep, "")
	}
	return p
}
