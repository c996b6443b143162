package convert

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations of members (semantics.md 12.1), the one by which a job selects retry policies (semantics.md 3), and Armada's of gangs.
const (
	annotationPrefix = "refloat.github.io/"
	armadaPrefix     = "armadaproject.io/"

	annotationRetryPolicy = armadaPrefix + "retry-policy"
	annotationGang        = armadaPrefix + "gangId"
	annotationGangSize    = armadaPrefix + "gangCardinality"
)

// defaultQueue is the queue where nobody names one.
const defaultQueue = "default"

// Submit is what `armadactl submit` reads.
type Submit struct {
	Queue    string `json:"queue"`
	JobSetID string `json:"jobSetId"`
	Jobs     []Job  `json:"jobs"`
}

// Job is a job of Armada.
type Job struct {
	Namespace   string            `json:"namespace"`
	Priority    float64           `json:"priority"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations"`
	PodSpec     *corev1.PodSpec   `json:"podSpec"`
}

// queue is the queue of a workload's jobs.
func (w *Workload) queue(o Options) string { return cmp.Or(o.Queue, w.Queue, defaultQueue) }

// submits makes the jobs of workloads. A file for armadactl has one queue.
func submits(workloads []*Workload, o Options) (all []Submit) {
	for _, w := range workloads {
		queue := w.queue(o)
		i := slices.IndexFunc(all, func(s Submit) bool { return s.Queue == queue })
		if i < 0 {
			i = len(all)
			all = append(all, Submit{Queue: queue, JobSetID: cmp.Or(o.JobSet, workloads[0].Name)})
		}
		s := &all[i]
		for k := range w.Parts {
			p := &w.Parts[k]
			for replica := range p.Replicas {
				s.addUnit(w, p, replica)
			}
		}
	}
	return all
}

// addUnit adds the jobs of one unit.
func (s *Submit) addUnit(w *Workload, p *Part, replica int) {
	index := 0
	for k := range p.Tasks {
		for range p.Tasks[k].Count {
			s.Jobs = append(s.Jobs, w.job(s.JobSetID, p, &p.Tasks[k], replica, index))
			index++
		}
	}
}

// job makes the job of one member.
func (w *Workload) job(jobSet string, p *Part, t *Task, replica, index int) Job {
	j := Job{Namespace: w.Namespace, Labels: maps.Clone(t.Labels), Annotations: maps.Clone(t.Annotations), PodSpec: t.Pod}
	if j.Annotations == nil {
		j.Annotations = map[string]string{}
	}
	if p.Identity != nil {
		own := p.Identity(replica, index)
		if j.Labels == nil && len(own.Labels) > 0 {
			j.Labels = map[string]string{}
		}
		maps.Copy(j.Labels, own.Labels)
		maps.Copy(j.Annotations, own.Annotations)
		j.PodSpec = withIdentity(t.Pod, own)
	}
	maps.Copy(j.Annotations, map[string]string{
		annotationPrefix + "group":        w.Name,
		annotationPrefix + "group-policy": w.policyName,
		annotationPrefix + "part":         p.partName,
		annotationPrefix + "replica":      strconv.Itoa(replica),
		annotationPrefix + "index":        strconv.Itoa(index),
		annotationRetryPolicy:             t.policyName,
	})
	if n := p.Members(); p.Gang && n > 1 {
		// Armada knows a gang by its queue and name: another job set has others. Names of groups and parts have no _.
		j.Annotations[annotationGang] = strings.Join([]string{jobSet, w.Name, p.partName, strconv.Itoa(replica)}, "_")
		j.Annotations[annotationGangSize] = strconv.Itoa(n)
	}
	return j
}

// withIdentity is the pod of one member.
func withIdentity(pod *corev1.PodSpec, own Identity) *corev1.PodSpec {
	if own.Hostname == "" && len(own.Env) == 0 {
		return pod
	}
	out := *pod
	out.Hostname = cmp.Or(own.Hostname, pod.Hostname)
	out.Containers = withEnv(pod.Containers, own.Env)
	out.InitContainers = withEnv(pod.InitContainers, own.Env)
	return &out
}

func withEnv(containers []corev1.Container, env []corev1.EnvVar) []corev1.Container {
	out := slices.Clone(containers)
	for i := range out {
		for _, v := range env {
			if !slices.ContainsFunc(containers[i].Env, func(e corev1.EnvVar) bool { return e.Name == v.Name }) {
				out[i].Env = append(slices.Clip(out[i].Env), v)
			}
		}
	}
	return out
}
