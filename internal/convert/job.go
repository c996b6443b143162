package convert

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/refloat/refloat/internal/policy"
)

// Defaults of a Job (batch/v1).
const (
	defaultBackoffLimit = 6
	podBackoff          = 10 * time.Second
	maxPodBackoff       = 10 * time.Minute
)

func jobSystem() *system {
	return &system{
		apiVersion: "batch/v1",
		kind:       "Job",
		table:      jobTable(),
		new:        func() any { return &batchv1.Job{} },
		workload:   convertJob,
	}
}

// convertJob: a Job is a group of one part, main, with one unit.
func convertJob(d *document) *Workload {
	j := d.value.(*batchv1.Job)
	name := d.groupName(j.Name, j.GenerateName)
	if j.Spec.Template.Spec.RestartPolicy == "" {
		d.fail("spec.template.spec.restartPolicy", "missing: a Job has no default", "write Never or OnFailure")
	}
	part, ok := d.jobPart("spec", &j.Spec, jobNames{part: policy.MainPart, job: func(int) string { return name }})
	if !ok {
		return nil
	}
	part.withMeta(j.Labels, d.ownAnnotations("metadata.annotations", j.Annotations))
	w := &Workload{
		Name: name, Namespace: cmp.Or(j.Namespace, "default"),
		Group: GroupPolicy{About: "A Job is one unit. Without rules and maxRestarts, the group fails when it does."},
	}
	if part.Members() > 0 {
		w.Parts = []Part{*part}
	}
	return w
}

// groupName is the name of the group that a manifest becomes.
func (d *document) groupName(name, generateName string) string {
	if name == "" && generateName != "" {
		name = validName(generateName)
		d.note("metadata.generateName", "without a name", name)
	}
	if name == "" {
		d.fail("metadata.name", "missing", "name it")
	}
	if len(name) > 253 || !slices.Equal(splitLabels(name), slices.DeleteFunc(splitLabels(name), func(l string) bool { return !validLabel(l) })) {
		d.fail("metadata.name", "not a name of Kubernetes", "use a-z, 0-9, - and ., at most 63 of them between dots, with a letter or digit at both ends")
	}
	return name
}

// jobNames is what a Job is called.
type jobNames struct {
	part string
	job  func(replica int) string // the name of the Job in a cluster
}

// jobPart maps a JobSpec to a part of one unit.
func (d *document) jobPart(path string, s *batchv1.JobSpec, names jobNames) (*Part, bool) {
	if s.Completions == nil && s.Parallelism == nil {
		s.Completions = new(int32)
		*s.Completions = 1
	}
	before := d.failed
	d.failed = false
	d.validateJob(path, s)
	bad := d.failed
	d.failed = d.failed || before
	if bad {
		return nil, false
	}
	p := &Part{path: path, Name: names.part, Replicas: 1, Parallelism: int(or(s.Parallelism, 1))}
	members := p.Parallelism
	switch {
	case s.Completions != nil:
		members = int(*s.Completions)
	case s.Parallelism != nil && members > 1:
		d.note(join(path, "completions"), "a work queue", fmt.Sprintf("%d members", members))
	}
	if members > policy.MaxGroupMembers {
		d.fail(join(path, "completions"), fmt.Sprintf("a group has at most %d members", policy.MaxGroupMembers), "split the work into several Jobs")
		return nil, false
	}
	retry := RetryPolicy{Backoff: &Backoff{InitialDelay: podBackoff, MaxDelay: maxPodBackoff}, Replacement: replacementOf(s)}
	if s.BackoffLimitPerIndex != nil {
		retry.Limit = d.limit(join(path, "backoffLimitPerIndex"), *s.BackoffLimitPerIndex)
		p.Continue = true
		if s.MaxFailedIndexes != nil {
			n := uint32(*s.MaxFailedIndexes)
			p.MaxFailedMembers = &n
		}
	}
	switch {
	case s.BackoffLimit != nil && *s.BackoffLimit != math.MaxInt32: // which is what the server writes for no limit
		p.RetryLimit = d.limit(join(path, "backoffLimit"), *s.BackoffLimit)
	case s.BackoffLimit == nil && s.BackoffLimitPerIndex == nil:
		p.RetryLimit = new(uint32)
		*p.RetryLimit = defaultBackoffLimit
	}
	p.CountFailed = p.Continue && p.RetryLimit != nil // as all failed pods
	task := d.task(join(path, "template"), &s.Template, members)
	if rule := d.deadline(path, s, task.Pod); rule != nil {
		retry.Rules = append(retry.Rules, *rule)
	}
	retry.Rules = append(retry.Rules, d.podFailureRules(join(path, "podFailurePolicy.rules"), s)...)
	task.Retry = retry
	p.Tasks = []Task{task}
	p.MinMembers, p.SuccessRules = d.success(join(path, "successPolicy.rules"), s)
	indexed := s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
	p.Identity = func(replica, index int) Identity { return jobIdentity(names.job(replica), index, indexed) }
	return p, true
}

// limit is a limit of retries as policies have it.
func (d *document) limit(path string, n int32) *uint32 {
	out := uint32(n)
	if out > maxLimit {
		out = maxLimit
		d.note(path, "above the greatest limit", strconv.Itoa(maxLimit))
	}
	return &out
}

// replacementOf is when a retry may start: with a pod failure policy, a Job waits for the end of the pod.
func replacementOf(s *batchv1.JobSpec) string {
	failed := s.PodFailurePolicy != nil
	if s.PodReplacementPolicy != nil {
		failed = *s.PodReplacementPolicy == batchv1.Failed
	}
	if failed {
		return "WhenTerminated"
	}
	return "WhenFailed"
}

// deadline gives each pod the deadline of the Job, and returns the rule by which it fails the unit.
func (d *document) deadline(path string, s *batchv1.JobSpec, pod *corev1.PodSpec) *RetryRule {
	if s.ActiveDeadlineSeconds == nil {
		return nil
	}
	if own := pod.ActiveDeadlineSeconds; own != nil && *own <= *s.ActiveDeadlineSeconds {
		d.note(join(path, "activeDeadlineSeconds"), "the pods have a shorter one", "")
		return nil
	}
	seconds := max(*s.ActiveDeadlineSeconds, 1)
	d.note(join(path, "activeDeadlineSeconds"), "a deadline of the Job", fmt.Sprintf("podSpec.activeDeadlineSeconds %d, and a rule for DeadlineExceeded", seconds))
	pod.ActiveDeadlineSeconds = &seconds
	r := &RetryRule{path: join(path, "activeDeadlineSeconds"), Name: "active-deadline", Action: actionFail, Conditions: []string{"DeadlineExceeded"}}
	if s.BackoffLimitPerIndex != nil {
		r.Action, r.UnitReason = actionFailUnit, batchv1.JobReasonDeadlineExceeded // the Job fails, not the index
	}
	return r
}

const (
	actionFailUnit = "FailUnit"
	actionIgnore   = "Ignore"
)

// podFailureRules maps the rules of a podFailurePolicy.
func (d *document) podFailureRules(path string, s *batchv1.JobSpec) (rules []RetryRule) {
	if s.PodFailurePolicy == nil {
		return nil
	}
	for i := range s.PodFailurePolicy.Rules {
		from, at := &s.PodFailurePolicy.Rules[i], fmt.Sprintf("%s[%d]", path, i)
		r := RetryRule{path: at, Name: fmt.Sprintf("rule-%d", i), Action: podFailureActions()[from.Action]}
		if r.Action == actionRetry {
			if !d.matters(s.PodFailurePolicy.Rules[i:]) {
				continue // a retry that counts is what happens anyway
			}
			if s.BackoffLimitPerIndex != nil {
				d.note(at, "Count before rules that overlap", actionRetry)
			}
		}
		if from.OnExitCodes == nil {
			if r.Conditions = d.podConditions(at, from.OnPodConditions); r.Conditions != nil {
				rules = append(rules, r)
			}
			continue
		}
		r.NotIn, r.ExitCodes = from.OnExitCodes.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn, from.OnExitCodes.Values
		rules = append(rules, eachContainer(r, or(from.OnExitCodes.ContainerName, ""), &s.Template.Spec)...)
	}
	return rules
}

func podFailureActions() map[batchv1.PodFailurePolicyAction]string {
	return map[batchv1.PodFailurePolicyAction]string{
		batchv1.PodFailurePolicyActionFailJob:   actionFailUnit,
		batchv1.PodFailurePolicyActionFailIndex: actionFail,
		batchv1.PodFailurePolicyActionIgnore:    actionIgnore,
		batchv1.PodFailurePolicyActionCount:     actionRetry,
	}
}

// matters reports whether the first of the rules, which counts, keeps a failure from a later one with another action.
func (d *document) matters(rules []batchv1.PodFailurePolicyRule) bool {
	first := &rules[0]
	return slices.ContainsFunc(rules[1:], func(r batchv1.PodFailurePolicyRule) bool {
		return r.Action != first.Action && !disjoint(first.OnExitCodes, r.OnExitCodes)
	})
}

// disjoint reports whether two requirements are known never to hold of the same failure.
func disjoint(a, b *batchv1.PodFailurePolicyOnExitCodesRequirement) bool {
	if a == nil || b == nil || or(a.ContainerName, "") != or(b.ContainerName, "") {
		return false
	}
	in := func(of *batchv1.PodFailurePolicyOnExitCodesRequirement) bool {
		return of.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn
	}
	contains := func(of *batchv1.PodFailurePolicyOnExitCodesRequirement) func(int32) bool {
		return func(v int32) bool { return slices.Contains(of.Values, v) == in(of) }
	}
	switch {
	case a.ContainerName == nil:
		return false // several containers may have failed
	case in(a):
		return !slices.ContainsFunc(a.Values, contains(b))
	case in(b):
		return !slices.ContainsFunc(b.Values, contains(a))
	}
	return false
}

// disruptions are the conditions of runs whose pods something else ended: a preemption, an eviction, or a node or executor
// that is lost.
func disruptions() []string { return []string{"Preempted", "Evicted", "LeaseExpired"} }

// podConditions are the conditions that a rule asks for; nil if none of them exists here.
func (d *document) podConditions(path string, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) (out []string) {
	for i, p := range patterns {
		at := fmt.Sprintf("%s.onPodConditions[%d]", path, i)
		switch {
		case p.Type != corev1.DisruptionTarget:
			d.note(join(at, "type"), "another condition", "")
		case p.Status != corev1.ConditionTrue && p.Status != "":
			d.note(join(at, "status"), "not True", "")
		default:
			out = disruptions()
		}
	}
	return out
}

// eachContainer makes a rule for each container that it is about: Kubernetes looks at all containers of the pod, a rule
// without a container here at the first that failed.
func eachContainer(r RetryRule, name string, pod *corev1.PodSpec) (rules []RetryRule) {
	if name == "" && len(pod.Containers)+len(pod.InitContainers) == 1 {
		return []RetryRule{r}
	}
	add := func(containers []corev1.Container, init bool) {
		for _, c := range containers {
			if name != "" && c.Name != name {
				continue
			}
			own := r
			own.Container, own.InitContainer = c.Name, init
			if name == "" {
				own.Name += "-" + c.Name
			}
			rules = append(rules, own)
		}
	}
	add(pod.Containers, false)
	add(pod.InitContainers, true)
	return rules
}

// success is how many members must succeed, 0 is all, and which of them are enough.
func (d *document) success(path string, s *batchv1.JobSpec) (least int, rules []SuccessRule) {
	if s.SuccessPolicy == nil {
		return 0, nil
	}
	smallest := -1
	for i, r := range s.SuccessPolicy.Rules {
		switch {
		case r.SucceededIndexes != nil:
			rules = append(rules, SuccessRule{policy.ParseIndexes(*r.SucceededIndexes), r.SucceededCount})
		case smallest < 0 || *r.SucceededCount < *s.SuccessPolicy.Rules[smallest].SucceededCount:
			smallest = i
		}
	}
	if smallest < 0 {
		return 0, rules
	}
	for i, r := range s.SuccessPolicy.Rules {
		if i != smallest && r.SucceededIndexes == nil {
			d.note(fmt.Sprintf("%s[%d].succeededCount", path, i), "more than another rule", "")
		}
	}
	return int(*s.SuccessPolicy.Rules[smallest].SucceededCount), rules
}

const annotationIndex = "batch.kubernetes.io/job-completion-index"

// jobIdentity is what the Job controller tells a pod of itself.
func jobIdentity(job string, index int, indexed bool) Identity {
	id := Identity{Labels: map[string]string{}, Annotations: map[string]string{}}
	label(&id, "batch.kubernetes.io/job-name", job)
	label(&id, "job-name", job)
	if !indexed {
		return id
	}
	n := strconv.Itoa(index)
	id.Labels[annotationIndex], id.Annotations[annotationIndex] = n, n
	id.Env = []corev1.EnvVar{{Name: "JOB_COMPLETION_INDEX", Value: n}}
	if host := job + "-" + n; validLabel(host) {
		id.Hostname = host
	}
	return id
}

// label adds a label, if its value can be one.
func label(id *Identity, key, value string) {
	if len(value) <= maxName {
		id.Labels[key] = value
	}
}

// withMeta adds labels and annotations, where the tasks have none of the same key.
func (p *Part) withMeta(labels, annotations map[string]string) {
	for i := range p.Tasks {
		t := &p.Tasks[i]
		t.Labels, t.Annotations = merged(labels, t.Labels), merged(annotations, t.Annotations)
	}
}

// merged returns the entries of both; those of over win.
func merged(under, over map[string]string) map[string]string {
	if len(under) == 0 {
		return over
	}
	out := maps.Clone(under)
	maps.Copy(out, over)
	return out
}

// or returns what p points to, or the default.
func or[T any](p *T, byDefault T) T {
	if p == nil {
		return byDefault
	}
	return *p
}
