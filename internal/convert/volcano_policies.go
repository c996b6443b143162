package convert

import (
	"maps"
	"slices"
)

// volcanoAction is what Volcano does about a pod that failed or was evicted.
type volcanoAction string

// The actions that mean something here. "" is SyncJob: the pod stays failed, and nothing else happens.
const (
	volcanoNothing     volcanoAction = ""
	volcanoRestartPod  volcanoAction = "RestartPod"
	volcanoRestartTask volcanoAction = "RestartTask"
	volcanoRestartJob  volcanoAction = "RestartJob"
	volcanoFailJob     volcanoAction = "TerminateJob"
)

// volcanoReaction is what a task's policies, and the job's after them, say about each class of failures: the first
// policy that covers the class decides.
type volcanoReaction struct {
	evicted volcanoAction           // the pod was deleted: PodEvicted
	codes   map[int32]volcanoAction // exit codes that a policy names
	failed  volcanoAction           // any other failure: PodFailed
}

// volcanoRule is one policy of a task or job that has an effect here.
type volcanoRule struct {
	evicted, failed bool
	exitCode        int32 // 0: none
	action          volcanoAction
}

// react applies rules in order. Volcano looks at the event before it looks at the exit code, of one policy after another.
func react(rules []volcanoRule) volcanoReaction {
	r := volcanoReaction{codes: map[int32]volcanoAction{}}
	first := func(covers func(volcanoRule) bool) volcanoAction {
		if i := slices.IndexFunc(rules, covers); i >= 0 {
			return rules[i].action
		}
		return volcanoNothing
	}
	r.evicted = first(func(v volcanoRule) bool { return v.evicted })
	r.failed = first(func(v volcanoRule) bool { return v.failed })
	for _, rule := range rules {
		if code := rule.exitCode; code != 0 {
			r.codes[code] = first(func(v volcanoRule) bool { return v.failed || v.exitCode == code })
		}
	}
	return r
}

// actions are the reactions to all classes, the one to evictions first.
func (r *volcanoReaction) actions() []volcanoAction {
	out := []volcanoAction{r.evicted, r.failed}
	for _, code := range slices.Sorted(maps.Keys(r.codes)) {
		out = append(out, r.codes[code])
	}
	return out
}

// ofUnit are the different actions on more than the pod, the first that occurs first.
func (r *volcanoReaction) ofUnit() (out []volcanoAction) {
	for _, a := range r.actions() {
		if a != volcanoNothing && a != volcanoRestartPod && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// has reports whether any class has the action.
func (r *volcanoReaction) has(a volcanoAction) bool { return slices.Contains(r.actions(), a) }

// volcanoRuns is how many runs maxRetry grants: Volcano compares it with a counter that is raised before, so that 3 means
// three runs, and its webhook makes 3 of 0.
func volcanoRuns(maxRetry int32) int32 {
	if maxRetry == 0 {
		return 3
	}
	return maxRetry
}

// taskIndexNames are the variables in which the env plugin gives a pod its index.
func taskIndexNames() []string { return []string{"VC_TASK_INDEX", "VK_TASK_INDEX"} }
