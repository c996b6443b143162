package convert

import (
	"fmt"
	"slices"
	"strings"
)

// taskCompleted is the event of a task all of whose pods have succeeded.
const taskCompleted = "TaskCompleted"

const completeJob = "CompleteJob"

// completed makes a note of a policy about a task that has completed, if it does not complete the Job.
func (v *volcano) completed(p volcanoPolicy, path string) {
	if p.Action == completeJob {
		return
	}
	if p.Event == taskCompleted {
		v.note(join(path, "event"), caseNotComplete, "")
	}
	for k, event := range p.Events {
		if event == taskCompleted {
			v.note(fmt.Sprintf("%s.events[%d]", path, k), caseNotComplete, "")
		}
	}
}

// completesJob reports whether the Job has completed when a task has: the first policy about that decides, of the task before
// those of the Job.
func (v *volcano) completesJob(task int) bool {
	all := slices.Concat(v.spec.Tasks[task].Policies, v.spec.Policies)
	i := slices.IndexFunc(all, func(p volcanoPolicy) bool {
		events := append(slices.Clone(p.Events), p.Event)
		return slices.Contains(events, taskCompleted) || slices.Contains(events, anyEvent)
	})
	return i >= 0 && all[i].Action == completeJob
}

// completion fills in when a Job whose tasks are parts succeeds.
func (v *volcano) completion(w *Workload) {
	if v.gang {
		return
	}
	var parts []string
	for i := range v.spec.Tasks {
		if t := &v.spec.Tasks[i]; t.Replicas > 0 && v.completesJob(i) {
			parts = append(parts, t.Name)
		}
	}
	switch {
	case len(parts) == 0 || len(w.Parts) == 1:
		return
	case len(parts) == len(w.Parts):
		parts = nil
	}
	w.Group.Success = &Success{Any: len(parts) != 1, Parts: parts}
}

// dependencies fills in which tasks start after others run. w is nil where they are one unit.
func (v *volcano) dependencies(w *Workload) {
	for i := range v.spec.Tasks {
		t, at := &v.spec.Tasks[i], fmt.Sprintf("spec.tasks[%d].dependsOn", i)
		if t.DependsOn == nil {
			continue
		}
		if v.gang || v.isStep {
			v.note(at, caseGangTask, "")
			continue
		}
		k := slices.IndexFunc(w.Parts, func(p Part) bool { return p.Name == t.Name })
		if k < 0 {
			continue
		}
		p := &w.Parts[k]
		for n, name := range t.DependsOn.Name {
			switch {
			case !w.has(name):
				v.note(fmt.Sprintf("%s.name[%d]", at, n), caseNoTask, "")
			case !slices.Contains(p.AfterReady, name):
				p.AfterReady = append(p.AfterReady, name)
			}
		}
		slices.Sort(p.AfterReady)
		if t.DependsOn.Iteration == "any" && len(p.AfterReady) > 1 {
			v.note(join(at, "iteration"), "any", "all")
		}
	}
	if w == nil {
		return // a step is one unit
	}
	if cycle := w.cycle(); cycle != nil {
		v.fail("spec.tasks", "the tasks wait for each other: "+strings.Join(cycle, ", "), "remove one of them from dependsOn of another")
	}
}

// cycle names the parts that wait for themselves in the end, directly or through others; nil: there is none.
func (w *Workload) cycle() (names []string) {
	waits := map[string][]string{}
	for i := range w.Parts {
		waits[w.Parts[i].Name] = w.Parts[i].AfterReady
	}
	for n := -1; n != len(waits); {
		n = len(waits)
		for i := range w.Parts {
			name := w.Parts[i].Name
			if !slices.ContainsFunc(waits[name], func(other string) bool { _, left := waits[other]; return left }) {
				delete(waits, name)
			}
		}
	}
	for i := range w.Parts {
		if _, left := waits[w.Parts[i].Name]; left && len(names) < maxNamed {
			names = append(names, w.Parts[i].Name)
		}
	}
	return names
}
