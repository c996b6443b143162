package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refloat/refloat/internal/policy"
)

// volcanoJob is a Job of batch.volcano.sh/v1alpha1, and a JobTemplate of flow.volcano.sh/v1alpha1. Names and meanings of
// the fields are those of volcano.sh/apis at 536f121.
type volcanoJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              volcanoSpec `json:"spec"`
	Status            unread      `json:"status,omitzero"`
}

// unread is a field whose content is not read with the manifest.
type unread struct{}

// UnmarshalJSON does nothing.
func (*unread) UnmarshalJSON([]byte) error { return nil }

type volcanoSpec struct {
	SchedulerName           string              `json:"schedulerName,omitempty"`
	MinAvailable            int32               `json:"minAvailable,omitempty"`
	Volumes                 []volcanoVolume     `json:"volumes,omitempty"`
	Tasks                   []volcanoTask       `json:"tasks,omitempty"`
	Policies                []volcanoPolicy     `json:"policies,omitempty"`
	Plugins                 map[string][]string `json:"plugins,omitempty"`
	RunningEstimate         *metav1.Duration    `json:"runningEstimate,omitempty"`
	Queue                   string              `json:"queue,omitempty"`
	MaxRetry                int32               `json:"maxRetry,omitempty"`
	TTLSecondsAfterFinished *int32              `json:"ttlSecondsAfterFinished,omitempty"`
	PriorityClassName       string              `json:"priorityClassName,omitempty"`
	MinSuccess              *int32              `json:"minSuccess,omitempty"`
	NetworkTopology         *volcanoTopology    `json:"networkTopology,omitempty"`
}

type volcanoTopology struct {
	Mode               string `json:"mode,omitempty"`
	HighestTierAllowed *int32 `json:"highestTierAllowed,omitempty"`
	HighestTierName    string `json:"highestTierName,omitempty"`
}

type volcanoVolume struct {
	MountPath       string                            `json:"mountPath"`
	VolumeClaimName string                            `json:"volumeClaimName,omitempty"`
	VolumeClaim     *corev1.PersistentVolumeClaimSpec `json:"volumeClaim,omitempty"`
}

type volcanoTask struct {
	Name            string                 `json:"name,omitempty"`
	Replicas        int32                  `json:"replicas,omitempty"`
	MinAvailable    *int32                 `json:"minAvailable,omitempty"`
	Template        corev1.PodTemplateSpec `json:"template"`
	Policies        []volcanoPolicy        `json:"policies,omitempty"`
	TopologyPolicy  string                 `json:"topologyPolicy,omitempty"`
	MaxRetry        int32                  `json:"maxRetry,omitempty"`
	DependsOn       *volcanoDependsOn      `json:"dependsOn,omitempty"`
	PartitionPolicy *volcanoPartitions     `json:"partitionPolicy,omitempty"`
}

type volcanoDependsOn struct {
	Name      []string `json:"name,omitempty"`
	Iteration string   `json:"iteration,omitempty"`
}

type volcanoPartitions struct {
	TotalPartitions int32            `json:"totalPartitions"`
	PartitionSize   int32            `json:"partitionSize"`
	NetworkTopology *volcanoTopology `json:"networkTopology,omitempty"`
	MinPartitions   int32            `json:"minPartitions,omitempty"`
}

type volcanoPolicy struct {
	Action   string           `json:"action,omitempty"`
	Event    string           `json:"event,omitempty"`
	Events   []string         `json:"events,omitempty"`
	ExitCode *int32           `json:"exitCode,omitempty"`
	Timeout  *metav1.Duration `json:"timeout,omitempty"`
}

func volcanoSystem() *system {
	return &system{
		apiVersion: "batch.volcano.sh/v1alpha1", kind: "Job", table: volcanoFields(),
		new: func() any { return new(volcanoJob) }, workload: volcanoWorkload,
	}
}

// volcanoWorkload is what a Volcano Job means: a group whose parts are its tasks, or of one part if it is a gang.
func volcanoWorkload(d *document) *Workload {
	job := d.value.(*volcanoJob)
	v := newVolcano(d, job, d.groupName(job.Name, job.GenerateName), false)
	if v == nil {
		return nil
	}
	w := &Workload{Name: v.name, Namespace: namespaceOf(d), Queue: job.Spec.Queue}
	if v.gang {
		w.Parts = []Part{v.unit()}
	} else {
		for i := range v.spec.Tasks {
			if v.spec.Tasks[i].Replicas > 0 {
				w.Parts = append(w.Parts, v.part(i))
			}
		}
	}
	if len(w.Parts) == 1 {
		v.minSuccess(&w.Parts[0])
	} else if v.spec.MinSuccess != nil {
		d.note("spec.minSuccess", caseSomeTasks, "")
	}
	v.restarts(w)
	v.completion(w)
	v.dependencies(w)
	annotations := d.ownAnnotations("metadata.annotations", job.Annotations)
	for i := range w.Parts {
		w.Parts[i].withMeta(job.Labels, annotations)
	}
	return w
}

// volcano is one Job of Volcano's on its way.
type volcano struct {
	*document
	name   string // of the job
	isStep bool   // of a JobFlow
	spec   *volcanoSpec
	gang   bool
	total  int // pods
	// reactions by task: what its policies do
	reactions []volcanoReaction
	policies  bool // any policy has an effect here
}

// anyEvent is the event that stands for all.
const anyEvent = "*"

// newVolcano checks a Job; nil after an Error.
func newVolcano(d *document, job *volcanoJob, name string, step bool) *volcano {
	v := &volcano{document: d, name: name, spec: &job.Spec, isStep: step}
	needed := int64(0)
	total := int64(0)
	names := map[string]bool{}
	for i := range v.spec.Tasks {
		t, at := &v.spec.Tasks[i], fmt.Sprintf("spec.tasks[%d]", i)
		if t.Name = cmp.Or(t.Name, fmt.Sprintf("default%d", i)); names[t.Name] {
			d.fail(join(at, "name"), "another task has the same name", "rename one")
		}
		names[t.Name] = true
		if t.Replicas < 0 {
			d.fail(join(at, "replicas"), "negative", "write 0 or more")
			t.Replicas = 0
		}
		least := t.Replicas
		if t.MinAvailable != nil {
			least = *t.MinAvailable
			name, now := caseAllReplicas, ""
			if least < t.Replicas {
				name, now = caseFewerStates, strconv.Itoa(int(t.Replicas))
			}
			d.note(join(at, "minAvailable"), name, now)
		}
		if least > t.Replicas || least < 0 {
			d.fail(join(at, "minAvailable"), "not a number of the task's replicas", "write 0 to "+strconv.Itoa(int(t.Replicas)))
		}
		needed, total = needed+int64(least), total+int64(t.Replicas)
	}
	if v.spec.MinAvailable != 0 {
		needed = int64(v.spec.MinAvailable)
	}
	switch {
	case total == 0:
		d.fail("spec.tasks", "no pod", "add a task with replicas")
	case total > policy.MaxGroupMembers:
		d.fail("spec.tasks", fmt.Sprintf("%d pods: a group has at most %d members", total, policy.MaxGroupMembers), "split the job")
	case needed > total || needed < 0:
		d.fail("spec.minAvailable", fmt.Sprintf("not a number of the job's %d pods", total), "write 1 to "+strconv.FormatInt(total, 10))
	case v.spec.MaxRetry < 0 || v.spec.MaxRetry > maxLimit:
		d.fail("spec.maxRetry", "out of range", fmt.Sprintf("write 0 to %d", maxLimit))
	}
	if n := v.spec.MinSuccess; n != nil && (*n < 1 || int64(*n) > total) {
		d.fail("spec.minSuccess", fmt.Sprintf("not a number of the job's %d pods", total), "write 1 to "+strconv.FormatInt(total, 10))
	}
	if d.failed {
		return nil
	}
	v.total = int(total)
	v.gang = needed == total && total > 1
	switch {
	case needed < total:
		d.note("spec.minAvailable", casePartly, "")
	case v.gang && v.spec.MinAvailable != 0:
		d.note("spec.minAvailable", caseGang, "")
	}
	if c := v.spec.PriorityClassName; c != "" && !strings.HasPrefix(c, "armada-") {
		d.note("spec.priorityClassName", "a class of the cluster", "")
	}
	v.plugins()
	v.volumes()
	v.react()
	return v
}

func (v *volcano) plugins() {
	for _, name := range slices.Sorted(maps.Keys(v.spec.Plugins)) {
		known := caseFramework
		if name == caseEnv || name == caseSvc || name == caseSSH {
			known = name
		}
		v.noteRow(v.system.caseOf("spec.plugins", known), fmt.Sprintf("spec.plugins[%s]", shown(name)), "")
	}
}

func (v *volcano) volumes() {
	for i, volume := range v.spec.Volumes {
		if volume.VolumeClaimName == "" {
			v.note(fmt.Sprintf("spec.volumes[%d]", i), caseClaim, "")
		}
	}
}

// react reads the policies of all tasks, each before those of the job.
func (v *volcano) react() {
	ofJob := v.rules(v.spec.Policies, "spec.policies")
	for i := range v.spec.Tasks {
		own := v.rules(v.spec.Tasks[i].Policies, fmt.Sprintf("spec.tasks[%d].policies", i))
		all := append(slices.Clone(own), ofJob...)
		v.policies = v.policies || len(all) > 0
		v.reactions = append(v.reactions, react(all))
	}
	if v.isStep && !v.policies && v.total > 1 {
		v.note("spec.policies", caseStepPolicy, "a pod that fails for good fails the step at once")
	}
}

// rules are the policies that have an effect here, and the notes about their actions.
func (v *volcano) rules(policies []volcanoPolicy, path string) (out []volcanoRule) {
	v.once(policies, path)
	for i, p := range policies {
		rule := volcanoRule{}
		at := fmt.Sprintf("%s[%d]", path, i)
		v.event(join(at, "event"), p.Event)
		for k, event := range p.Events {
			v.event(fmt.Sprintf("%s.events[%d]", at, k), event)
		}
		for _, event := range append(slices.Clone(p.Events), p.Event) {
			rule.evicted = rule.evicted || event == "PodEvicted" || event == anyEvent
			rule.failed = rule.failed || event == "PodFailed" || event == anyEvent
		}
		if p.ExitCode != nil {
			rule.exitCode = *p.ExitCode
		}
		v.completed(p, at)
		if !rule.evicted && !rule.failed && rule.exitCode == 0 {
			continue // all is said about its events
		}
		if rule.exitCode != 0 && v.severalContainers() {
			v.note(join(at, "exitCode"), caseContainers, "the exit code of the first container that failed")
		}
		rule.action = v.action(p.Action, join(at, "action"))
		out = append(out, rule)
	}
	return out
}

// once reports policies that Volcano's webhook denies: an event or exit code in two of a list, or in one with another cause.
func (v *volcano) once(policies []volcanoPolicy, path string) {
	first := map[string]int{} // the policy that has the event or the exit code
	differ := 0               // events
	for i := range policies {
		at := fmt.Sprintf("%s[%d]", path, i)
		causes := []string{join(at, "event"), join(at, "exitCode")}
		events := v.at[join(at, "event")] != nil
		for k := range policies[i].Events {
			causes = append(causes, fmt.Sprintf("%s.events[%d]", at, k))
			events = true
		}
		if events && v.at[join(at, "exitCode")] != nil {
			v.fail(join(at, "exitCode"), "Volcano accepts an event or an exit code of a policy, not both", "write two policies")
		}
		for _, cause := range causes {
			n := v.at[cause]
			if n == nil {
				continue
			}
			other, found := first[n.Value]
			if found && other != i {
				v.fail(cause, fmt.Sprintf("also in %s[%d], and Volcano accepts it once", path, other), "remove one of them")
			}
			if first[n.Value] = i; !found && !strings.HasSuffix(cause, "exitCode") {
				differ++
			}
		}
	}
	if i, found := first[anyEvent]; found && differ > 1 {
		v.fail(fmt.Sprintf("%s[%d]", path, i), "Volcano accepts no other policy beside one for *", "remove it, or the others")
	}
}

func (v *volcano) severalContainers() bool {
	return slices.ContainsFunc(v.spec.Tasks, func(t volcanoTask) bool { return len(t.Template.Spec.Containers) > 1 })
}

// event checks the name of an event. Those that mean nothing here are gone.
func (v *volcano) event(path, name string) {
	if !slices.Contains([]string{"", "PodFailed", "PodEvicted", taskCompleted, anyEvent}, name) {
		v.note(path, "not an event", "")
	}
}

// action is what an action means here.
func (v *volcano) action(name, path string) volcanoAction {
	if v.isStep && strings.HasPrefix(name, "Restart") && name != "RestartPod" {
		v.note(path, caseStep, "the step fails")
		return volcanoFailJob
	}
	switch name {
	case "RestartJob", "TerminateJob":
		v.note(path, name, "")
		return volcanoAction(name)
	case "AbortJob":
		v.note(path, name, "TerminateJob")
		return volcanoFailJob
	case "RestartPod":
		if v.gang {
			v.note(path, caseWithGang, "the gang restarts, and the pod's retry is counted")
		} else {
			v.note(path, name, "")
		}
		return volcanoRestartPod
	case "RestartTask", "RestartPartition":
		if v.gang && len(v.spec.Tasks) > 1 {
			v.note(path, caseWithGang, "RestartJob")
			return volcanoRestartJob
		}
		now := ""
		if name == "RestartPartition" {
			now = "RestartTask"
		}
		v.note(path, name, now)
		return volcanoRestartTask
	case "CompleteJob":
		v.note(path, name, "")
	}
	return volcanoNothing
}

// part is a task as a part of its own.
func (v *volcano) part(i int) Part {
	t := &v.spec.Tasks[i]
	p := Part{
		path: fmt.Sprintf("spec.tasks[%d]", i), Name: t.Name, Replicas: 1,
		Tasks:    []Task{v.task(i)},
		Identity: func(_, index int) Identity { return v.identity(i, index) },
	}
	v.decide(&p, []int{i})
	return p
}

// unit is the whole Job as one unit.
func (v *volcano) unit() Part {
	p := Part{path: "spec.tasks", Name: policy.MainPart, Replicas: 1, Gang: v.gang}
	var tasks, first []int
	members := 0
	for i := range v.spec.Tasks {
		if n := int(v.spec.Tasks[i].Replicas); n > 0 {
			tasks, first = append(tasks, i), append(first, members)
			p.Tasks = append(p.Tasks, v.task(i))
			if own, others := p.Tasks[len(p.Tasks)-1].Pod.PriorityClassName, p.Tasks[0].Pod.PriorityClassName; v.gang && own != others {
				v.fail(fmt.Sprintf("spec.tasks[%d].template.spec.priorityClassName", i), "not the priority class of the task before, and Armada wants one for all pods of a gang", "use the same in all tasks")
			}
			members += n
		}
	}
	if len(tasks) == 1 {
		p.path, p.Name = fmt.Sprintf("spec.tasks[%d]", tasks[0]), v.spec.Tasks[tasks[0]].Name
	}
	p.Identity = func(_, index int) Identity {
		k := len(first) - 1
		for first[k] > index {
			k--
		}
		return v.identity(tasks[k], index-first[k])
	}
	v.decide(&p, tasks)
	for k, i := range tasks {
		if n := int(v.spec.Tasks[i].Replicas); v.completesJob(i) && n < members {
			var of policy.Indexes
			for index := range n {
				of.Add(uint32(first[k] + index))
			}
			p.SuccessRules = append(p.SuccessRules, SuccessRule{Indexes: of})
		}
	}
	return p
}

// task is the pods of a task, with the volumes of the Job.
func (v *volcano) task(i int) Task {
	t := &v.spec.Tasks[i]
	path := fmt.Sprintf("spec.tasks[%d].template", i)
	if c := v.spec.PriorityClassName; strings.HasPrefix(c, "armada-") && t.Template.Spec.PriorityClassName == "" {
		t.Template.Spec.PriorityClassName = c
	}
	task := v.document.task(path, &t.Template, int(t.Replicas))
	for k, volume := range v.spec.Volumes {
		if volume.VolumeClaimName == "" {
			continue
		}
		name := fmt.Sprintf("volcano-%d", k)
		task.Pod.Volumes = append(task.Pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume.VolumeClaimName},
		}})
		for c := range task.Pod.Containers {
			container := &task.Pod.Containers[c]
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: volume.MountPath})
		}
	}
	return task
}

// identity is what Volcano writes into a pod.
func (v *volcano) identity(task, index int) Identity {
	n := strconv.Itoa(index)
	id := Identity{Labels: map[string]string{"volcano.sh/task-index": n}}
	for label, value := range map[string]string{"volcano.sh/job-name": v.name, "volcano.sh/task-spec": v.spec.Tasks[task].Name} { //house:sorted a map again
		if len(value) <= maxName {
			id.Labels[label] = value
		}
	}
	if _, ok := v.spec.Plugins[caseEnv]; ok {
		for _, name := range taskIndexNames() {
			id.Env = append(id.Env, corev1.EnvVar{Name: name, Value: n})
		}
	}
	return id
}

func (v *volcano) minSuccess(p *Part) {
	if n := v.spec.MinSuccess; n != nil {
		p.MinMembers = int(*n)
		v.note("spec.minSuccess", caseWholeUnit, "")
	}
}
