package convert

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

func jobSetSystem() *system {
	return &system{
		apiVersion: "jobset.x-k8s.io/v1alpha2",
		kind:       "JobSet",
		table:      jobSetTable(),
		new:        func() any { return &jobSet{} },
		workload:   convertJobSet,
	}
}

// convertJobSet: a JobSet is a group, a replicatedJob a part, a Job of it a unit.
func convertJobSet(d *document) *Workload {
	s := d.value.(*jobSet)
	w := &Workload{Name: d.groupName(s.Name, s.GenerateName), Namespace: cmp.Or(s.Namespace, "default")}
	annotations := d.ownAnnotations("metadata.annotations", s.Annotations)
	if len(s.Spec.ReplicatedJobs) == 0 {
		d.fail("spec.replicatedJobs", "missing", "add one")
	}
	if n := len(s.Spec.ReplicatedJobs); n > policy.MaxGroupParts {
		d.fail("spec.replicatedJobs", fmt.Sprintf("%d, and a group has at most %d parts", n, policy.MaxGroupParts), "use replicas")
		return nil
	}
	for i := range s.Spec.ReplicatedJobs {
		if p := d.replicatedJob(s, i); p != nil {
			p.withMeta(s.Labels, annotations)
			w.Parts = append(w.Parts, *p)
		}
	}
	members := 0
	for i := range w.Parts {
		members += w.Parts[i].Replicas * w.Parts[i].Members()
	}
	if members > policy.MaxGroupMembers {
		d.fail("spec.replicatedJobs", fmt.Sprintf("%d pods, and a group has at most %d members", members, policy.MaxGroupMembers), "split it into several JobSets")
	}
	w.Group = d.failurePolicy(s)
	w.Group.Success = d.successPolicy(s, w)
	if o := s.Spec.StartupPolicy; o != nil && o.StartupPolicyOrder == inOrder {
		w.inOrder()
	}
	d.network(s, members)
	// What is left out is not waited for.
	gone := func(name string) bool { return !w.has(name) }
	for i := range w.Parts {
		p := &w.Parts[i]
		p.After, p.AfterReady = slices.DeleteFunc(p.After, gone), slices.DeleteFunc(p.AfterReady, gone)
	}
	d.readiness(s, w)
	return w
}

// inOrder makes each part wait until the one before it is ready.
func (w *Workload) inOrder() {
	for i := 1; i < len(w.Parts); i++ {
		if p, before := &w.Parts[i], w.Parts[i-1].Name; !slices.Contains(p.AfterReady, before) {
			p.AfterReady = append(p.AfterReady, before)
		}
	}
}

// readiness says that probes of pods for which others wait are not known here.
func (d *document) readiness(s *jobSet, w *Workload) {
	probed := map[string]bool{}
	for i := range w.Parts {
		probed[w.Parts[i].Name] = slices.ContainsFunc(w.Parts[i].Tasks, func(t Task) bool {
			return len(t.Pod.ReadinessGates) > 0 || slices.ContainsFunc(t.Pod.Containers, func(c corev1.Container) bool { return c.ReadinessProbe != nil })
		})
	}
	const probes = "pods with readiness probes"
	ordered := s.Spec.StartupPolicy != nil && s.Spec.StartupPolicy.StartupPolicyOrder == inOrder
	for i := range w.Parts {
		if i > 0 && ordered && probed[w.Parts[i-1].Name] {
			d.note("spec.startupPolicy.startupPolicyOrder", probes, "afterReady")
			ordered = false
		}
	}
	for i := range s.Spec.ReplicatedJobs {
		for k, on := range s.Spec.ReplicatedJobs[i].DependsOn {
			if on.Status == "Ready" && probed[on.Name] {
				d.note(fmt.Sprintf("spec.replicatedJobs[%d].dependsOn[%d].status", i, k), probes, "afterReady")
			}
		}
	}
}

const inOrder = "InOrder"

// has reports whether the workload has a part.
func (w *Workload) has(part string) bool {
	return slices.ContainsFunc(w.Parts, func(p Part) bool { return p.Name == part })
}

// replicatedJob maps one of them to a part; nil if it has no unit, or after an Error.
func (d *document) replicatedJob(s *jobSet, i int) *Part {
	r, path := &s.Spec.ReplicatedJobs[i], fmt.Sprintf("spec.replicatedJobs[%d]", i)
	if !validLabel(r.Name) {
		d.fail(join(path, "name"), "not a name of a replicatedJob", "use 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends")
	}
	if slices.ContainsFunc(s.Spec.ReplicatedJobs[:i], func(o replicatedJob) bool { return o.Name == r.Name }) {
		d.fail(join(path, "name"), "another replicatedJob has the same name", "rename one")
	}
	spec := &r.Template.Spec
	// The defaults that JobSet sets in its Jobs.
	if spec.CompletionMode == nil {
		spec.CompletionMode = new(batchv1.CompletionMode)
		*spec.CompletionMode = batchv1.IndexedCompletion
	}
	if spec.Template.Spec.RestartPolicy == "" {
		if spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure; spec.PodFailurePolicy != nil {
			spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		}
	}
	replicas := int(or(r.Replicas, 1))
	if replicas < 0 || replicas > policy.MaxGroupMembers {
		d.fail(join(path, "replicas"), fmt.Sprintf("a group has at most %d members", policy.MaxGroupMembers), "write 1 or more")
		return nil
	}
	names := jobNames{part: r.Name, job: func(replica int) string { return fmt.Sprintf("%s-%s-%d", s.Name, r.Name, replica) }}
	p, ok := d.jobPart(join(path, "template.spec"), spec, names)
	if !ok {
		return nil
	}
	if replicas == 0 || p.Members() == 0 {
		d.note(join(path, "replicas"), "none", "")
		return nil
	}
	p.path, p.Replicas = path, replicas
	p.withMeta(r.Template.Labels, d.ownAnnotations(join(path, "template.metadata.annotations"), r.Template.Annotations))
	p.After, p.AfterReady = d.dependsOn(s, i)
	own := p.Identity
	offset, total := jobsBefore(s, i, "")
	groupOffset, groupTotal := jobsBefore(s, i, cmp.Or(r.GroupName, defaultGroupName))
	p.Identity = func(replica, index int) Identity {
		id := own(replica, index)
		for _, l := range [][2]string{
			{"jobset-name", s.Name},
			{"replicatedjob-name", r.Name},
			{"replicatedjob-replicas", strconv.Itoa(replicas)},
			{"job-index", strconv.Itoa(replica)},
			{"job-global-index", strconv.Itoa(offset + replica)},
			{"global-replicas", strconv.Itoa(total)},
			{"group-name", cmp.Or(r.GroupName, defaultGroupName)},
			{"group-replicas", strconv.Itoa(groupTotal)},
			{"job-group-index", strconv.Itoa(groupOffset + replica)},
		} {
			label(&id, "jobset.sigs.k8s.io/"+l[0], l[1])
			id.Annotations["jobset.sigs.k8s.io/"+l[0]] = l[1]
		}
		return id
	}
	return p
}

const defaultGroupName = "default"

// jobsBefore counts the Jobs of replicatedJobs before the i-th, and of all; of one group of them, or with "" of any.
func jobsBefore(s *jobSet, i int, group string) (before, total int) {
	for k := range s.Spec.ReplicatedJobs {
		r := &s.Spec.ReplicatedJobs[k]
		if group != "" && cmp.Or(r.GroupName, defaultGroupName) != group {
			continue
		}
		n := int(or(r.Replicas, 1))
		if k < i {
			before += n
		}
		total += n
	}
	return before, total
}

// dependsOn is after which parts the i-th starts, and which must be ready. Each must be declared before it.
func (d *document) dependsOn(s *jobSet, i int) (after, ready []string) {
	for k, on := range s.Spec.ReplicatedJobs[i].DependsOn {
		at := fmt.Sprintf("spec.replicatedJobs[%d].dependsOn[%d]", i, k)
		var names []string
		for _, r := range s.Spec.ReplicatedJobs[:i] {
			names = append(names, r.Name)
		}
		switch {
		case !slices.Contains(names, on.Name):
			d.fail(join(at, "name"), "not a replicatedJob that is declared before this one", suggest.Fix(on.Name, names, "name one that is"))
		case on.Status == "Complete":
			after = append(after, on.Name)
		case on.Status == "Ready":
			ready = append(ready, on.Name)
		case on.Status == "" && d.at[join(at, "status")] == nil:
			d.fail(join(at, "status"), "missing", "write Complete or Ready")
		}
	}
	slices.Sort(after)
	slices.Sort(ready)
	return slices.Compact(after), slices.Compact(ready)
}

// failurePolicy maps failurePolicy. Without one, a JobSet fails when the first of its Jobs does.
func (d *document) failurePolicy(s *jobSet) GroupPolicy {
	f := s.Spec.FailurePolicy
	if f == nil {
		return GroupPolicy{About: "Without a failurePolicy, the group fails when its first unit does."}
	}
	g := GroupPolicy{HasRules: true, About: "What no rule matches restarts the group, and counts."}
	if f.MaxRestarts < 0 {
		d.fail("spec.failurePolicy.maxRestarts", "negative", wantNotNegative)
		return g
	}
	g.MaxRestarts, g.RestartStrategy = d.limit("spec.failurePolicy.maxRestarts", f.MaxRestarts), f.RestartStrategy
	for i := range f.Rules {
		if r := d.failureRule(s, i); r != nil {
			g.Rules = append(g.Rules, *r)
		}
	}
	return g
}

func (d *document) failureRule(s *jobSet, i int) *GroupRule {
	f := s.Spec.FailurePolicy
	from, path := &f.Rules[i], fmt.Sprintf("spec.failurePolicy.rules[%d]", i)
	if slices.ContainsFunc(f.Rules[:i], func(o jobSetRule) bool { return o.Name != "" && o.Name == from.Name }) {
		d.fail(join(path, "name"), "another rule has the same name", "rename one")
	}
	r := &GroupRule{path: path, Name: cmp.Or(from.Name, fmt.Sprintf("failurePolicyRule%d", i))}
	targets := d.targets(s, i)
	if len(from.TargetReplicatedJobs) > 0 && len(targets) == 0 {
		d.note(join(path, "targetReplicatedJobs"), "no replicatedJob left", "")
		return nil
	}
	d.failureAction(f, i, r)
	r.Parts = targets
	if len(targets) == len(s.Spec.ReplicatedJobs) {
		r.Parts = nil
	}
	r.Reasons = d.failureReasons(s, i, targets)
	var patterns []string
	for k, p := range from.OnJobFailureMessagePatterns {
		if _, err := regexp.Compile(p); err != nil {
			d.fail(fmt.Sprintf("%s.onJobFailureMessagePatterns[%d]", path, k), "not a regular expression (RE2): "+err.Error(), "correct it")
			continue
		}
		patterns = append(patterns, "(?:"+p+")")
	}
	switch {
	case len(patterns) == 1:
		r.Message = from.OnJobFailureMessagePatterns[0]
	case len(patterns) > 1:
		r.Message = strings.Join(patterns, "|")
	}
	return r
}

// failureAction maps the action of a rule.
func (d *document) failureAction(f *jobSetFailure, i int, r *GroupRule) {
	path := fmt.Sprintf("spec.failurePolicy.rules[%d].action", i)
	limited := d.at["spec.failurePolicy.maxRestarts"] != nil
	switch f.Rules[i].Action {
	case "FailJobSet":
		r.Action = "FailGroup"
	case "RestartJobSet":
		r.Action = "RestartGroup"
	case "RestartJobSetAndIgnoreMaxRestarts":
		r.Action, r.Uncounted = "RestartGroup", true
	case "RestartJob":
		if r.Action = "RestartUnit"; !limited {
			r.Uncounted = true
			d.note(path, "RestartJob without maxRestarts", "RestartUnit, not counted")
		}
	case "RestartJobAndIgnoreMaxRestarts":
		r.Action, r.Uncounted = "RestartUnit", true
	case "RestartReplicatedJob":
		r.Action, r.Uncounted = "RestartPart", !limited
		now := "RestartPart"
		if !limited {
			now += ", not counted"
		}
		d.note(path, "RestartReplicatedJob", now)
	case "FailJob":
		r.Action = "Leave"
		d.note(path, "FailJob", "Leave")
	case "":
		d.fail(path, "missing", "write FailJobSet, RestartJobSet, RestartJobSetAndIgnoreMaxRestarts, RestartJob or RestartJobAndIgnoreMaxRestarts")
	default:
		d.fail(path, "an unsupported value", suggest.Fix(f.Rules[i].Action, []string{
			"FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob", "RestartJobAndIgnoreMaxRestarts", "RestartReplicatedJob", "FailJob",
		}, "use FailJobSet, RestartJobSet, RestartJobSetAndIgnoreMaxRestarts, RestartJob or RestartJobAndIgnoreMaxRestarts"))
	}
	if strings.HasPrefix(r.Action, "Restart") && !r.Uncounted && f.MaxRestarts == 0 {
		d.note(path, "a restart with maxRestarts 0", "FailGroup")
		r.Action = "FailGroup"
	}
}

// targets are the parts that a rule is about; all of them where it names none.
func (d *document) targets(s *jobSet, i int) (names []string) {
	var all []string
	for k := range s.Spec.ReplicatedJobs {
		if r := &s.Spec.ReplicatedJobs[k]; or(r.Replicas, 1) > 0 && or(r.Template.Spec.Completions, 1) > 0 {
			all = append(all, r.Name)
		}
	}
	from := s.Spec.FailurePolicy.Rules[i].TargetReplicatedJobs
	if len(from) == 0 {
		return all
	}
	for k, name := range from {
		switch {
		case !slices.Contains(all, name):
			d.note(fmt.Sprintf("spec.failurePolicy.rules[%d].targetReplicatedJobs[%d]", i, k), "no such replicatedJob", "")
		case !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	return names
}

// failureReasons are the reasons that a rule asks for. One that rules of podFailurePolicy set themselves, as an example
// of KEP-262 does, is PodFailurePolicy.
func (d *document) failureReasons(s *jobSet, i int, targets []string) (reasons []string) {
	known := []string{
		batchv1.JobReasonPodFailurePolicy, batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonDeadlineExceeded,
		batchv1.JobReasonMaxFailedIndexesExceeded, batchv1.JobReasonFailedIndexes,
	}
	for k, reason := range s.Spec.FailurePolicy.Rules[i].OnJobFailureReasons {
		path := fmt.Sprintf("spec.failurePolicy.rules[%d].onJobFailureReasons[%d]", i, k)
		if !slices.Contains(known, reason) {
			sets, others := d.setReason(s, reason, targets)
			switch {
			case !sets:
				d.fail(path, "not a reason for which a Job fails", suggest.Fix(reason, known, "use "+strings.Join(known, ", ")))
			case others:
				d.note(path, "a reason of one's own among others", batchv1.JobReasonPodFailurePolicy)
			default:
				d.note(path, "a reason of one's own", batchv1.JobReasonPodFailurePolicy)
			}
			reason = batchv1.JobReasonPodFailurePolicy
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

// setReason reports whether rules of podFailurePolicy in the parts set a reason, and whether others fail the Job too.
func (d *document) setReason(s *jobSet, reason string, parts []string) (sets, others bool) {
	for i := range s.Spec.ReplicatedJobs {
		r := &s.Spec.ReplicatedJobs[i]
		if r.Template.Spec.PodFailurePolicy == nil || !slices.Contains(parts, r.Name) {
			continue
		}
		for k, rule := range r.Template.Spec.PodFailurePolicy.Rules {
			if rule.Action != batchv1.PodFailurePolicyActionFailJob {
				continue
			}
			n := d.extra[fmt.Sprintf("spec.replicatedJobs[%d].template.spec.podFailurePolicy.rules[%d].%s", i, k, reasonField)]
			if n != nil && n.Value == reason {
				sets = true
			} else {
				others = true
			}
		}
	}
	return sets, others
}

// successPolicy is when the group succeeds; nil: when all units have.
func (d *document) successPolicy(s *jobSet, w *Workload) *Success {
	p := s.Spec.SuccessPolicy
	if p == nil {
		return nil
	}
	for i, name := range p.TargetReplicatedJobs {
		if !slices.ContainsFunc(s.Spec.ReplicatedJobs, func(r replicatedJob) bool { return r.Name == name }) {
			d.fail(fmt.Sprintf("spec.successPolicy.targetReplicatedJobs[%d]", i), "no such replicatedJob", "correct the name")
		}
	}
	if p.Operator != "All" && p.Operator != "Any" {
		d.fail("spec.successPolicy.operator", "not a value of it", "use All or Any")
		return nil
	}
	out := &Success{Any: p.Operator == "Any"}
	units := 0
	for i := range w.Parts {
		if name := w.Parts[i].Name; len(p.TargetReplicatedJobs) == 0 || slices.Contains(p.TargetReplicatedJobs, name) {
			out.Parts, units = append(out.Parts, name), units+w.Parts[i].Replicas
		}
	}
	if len(out.Parts) == 0 && len(w.Parts) > 0 {
		d.note("spec.successPolicy.targetReplicatedJobs", "no replicatedJob left", "")
	}
	if len(out.Parts) == 0 || len(out.Parts) == len(w.Parts) {
		out.Parts = nil
	}
	if out.Any = out.Any && units > 1; !out.Any && out.Parts == nil {
		return nil
	}
	return out
}

// network says that pods have no names, unless the JobSet asks for none or has one pod only.
func (d *document) network(s *jobSet, pods int) {
	n := s.Spec.Network
	if pods <= 1 || n != nil && n.EnableDNSHostnames != nil && !*n.EnableDNSHostnames {
		return
	}
	d.note("spec.network", "names of pods", "")
}
