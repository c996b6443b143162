package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	defaultGrace = 30  // seconds, of Kubernetes
	maxGrace     = 300 // seconds, of Armada
	maxPodSpec   = 65535

	// What Armada reserves for a container that leaves one of them out, and the least that it accepts, unless it is
	// configured otherwise.
	defaultCPU     = "1"
	defaultInitCPU = "900m" // it refuses whole cpus there
	defaultMemory  = "1Gi"
	minMemory      = "1Mi"
)

// task maps a pod template to what Armada accepts, count times.
func (d *document) task(path string, t *corev1.PodTemplateSpec, count int) Task {
	task := Task{Count: count, Labels: t.Labels, Annotations: d.ownAnnotations(join(path, "metadata.annotations"), t.Annotations), Pod: t.Spec.DeepCopy()}
	at := join(path, "spec")
	spec := task.Pod
	if len(spec.Containers) == 0 {
		d.fail(join(at, "containers"), "no container", "add one")
	}
	if p := spec.RestartPolicy; p != corev1.RestartPolicyNever {
		d.note(join(at, "restartPolicy"), "containers restart in their pod", "Never")
		spec.RestartPolicy = corev1.RestartPolicyNever
	}
	d.grace(join(at, "terminationGracePeriodSeconds"), spec)
	if spec.PriorityClassName != "" && !strings.HasPrefix(spec.PriorityClassName, "armada-") {
		d.note(join(at, "priorityClassName"), "a class of the cluster", "")
		spec.PriorityClassName = ""
	}
	ports := map[int32]bool{}
	d.containers(join(at, "containers"), spec.Containers, defaultCPU, ports)
	d.containers(join(at, "initContainers"), spec.InitContainers, defaultInitCPU, ports)
	for i := range spec.InitContainers {
		d.initCPU(fmt.Sprintf("%s[%d].resources", join(at, "initContainers"), i), &spec.InitContainers[i].Resources)
	}
	d.nodeAffinity(join(at, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"), spec)
	if n := spec.Size(); n > maxPodSpec {
		d.fail(at, fmt.Sprintf("a pod of %d bytes, and Armada accepts at most %d", n, maxPodSpec), "move texts to a ConfigMap or into the image")
	}
	return task
}

// ownAnnotations returns the annotations without those that convert writes itself, or that would mean something to Armada.
func (d *document) ownAnnotations(path string, annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		at := fmt.Sprintf("%s[%s]", path, shown(key))
		switch {
		case strings.HasPrefix(key, annotationPrefix) || strings.HasPrefix(key, armadaPrefix):
			d.noteRow(d.system.ofAnnotations(reservedCase), at, "")
			delete(out, key)
		case strings.Contains(out[key], "{JobId}"):
			d.noteRow(d.system.ofAnnotations(jobIDCase), at, "the job's id")
		}
	}
	return out
}

// ofAnnotations returns the row of a case of annotations: it is at those of the pod template.
func (s *system) ofAnnotations(name string) Field {
	i := slices.IndexFunc(s.table, func(f Field) bool { return f.Case == name })
	return s.table[i]
}

func (d *document) grace(path string, spec *corev1.PodSpec) {
	seconds := int64(defaultGrace)
	if p := spec.TerminationGracePeriodSeconds; p != nil {
		seconds = *p
	}
	if in := min(max(seconds, 1), maxGrace); in != seconds {
		d.note(path, "out of Armada's range", fmt.Sprint(in))
		seconds = in
	}
	spec.TerminationGracePeriodSeconds = &seconds
}

func (d *document) containers(path string, containers []corev1.Container, cpu string, ports map[int32]bool) {
	for i := range containers {
		c, at := &containers[i], fmt.Sprintf("%s[%d]", path, i)
		if !validLabel(c.Name) {
			d.fail(join(at, "name"), "not a name of a container", "use 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends")
		}
		if slices.ContainsFunc(containers[:i], func(o corev1.Container) bool { return o.Name == c.Name }) {
			d.fail(join(at, "name"), "another container has the same name", "rename one")
		}
		c.Ports = slices.DeleteFunc(c.Ports, func(p corev1.ContainerPort) bool {
			if ports[p.ContainerPort] {
				d.note(join(at, "ports"), "a port of two containers", fmt.Sprintf("without %d", p.ContainerPort))
				return true
			}
			ports[p.ContainerPort] = true
			return false
		})
		d.resources(join(at, "resources"), &c.Resources, cpu)
	}
}

// resources makes requests and limits equal, as Armada wants them, and not empty: it refuses a container without any.
func (d *document) resources(path string, r *corev1.ResourceRequirements, cpu string) {
	names := append(slices.Sorted(maps.Keys(r.Requests)), slices.Sorted(maps.Keys(r.Limits))...)
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		d.note(path, "nothing is requested", "cpu "+cpu+", memory "+defaultMemory)
		r.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(defaultMemory)}
		r.Limits = maps.Clone(r.Requests)
		return
	}
	both := make(corev1.ResourceList, len(names))
	for _, name := range names {
		request, requested := r.Requests[name]
		limit, limited := r.Limits[name]
		switch at := join(path, fmt.Sprintf("requests[%s]", shown(string(name)))); {
		case request.Sign() < 0 || limit.Sign() < 0:
			d.fail(join(path, string(name)), "negative", "write 0 or more")
		case requested && limited && request.Cmp(limit) > 0:
			d.fail(at, "more than its limit "+limit.String(), "lower it, or raise the limit")
		case requested && limited && request.Cmp(limit) < 0:
			d.noteRow(d.resourceRow(path, "requests below limits"), at, limit.String())
		case requested && !limited:
			d.noteRow(d.resourceRow(path, "requests without limits"), at, "limits "+request.String()+" too")
		}
		both[name] = limit
		if !limited {
			both[name] = request
		}
	}
	if least := resource.MustParse(minMemory); hasLess(both, least) {
		d.note(path, "too little memory", minMemory)
		both[corev1.ResourceMemory] = least
	}
	r.Requests, r.Limits = both, maps.Clone(both)
}

func hasLess(r corev1.ResourceList, memory resource.Quantity) bool {
	q, ok := r[corev1.ResourceMemory]
	return ok && q.Sign() >= 0 && q.Cmp(memory) < 0
}

// initCPU makes whole cpus of an init container a little less: Armada refuses them.
func (d *document) initCPU(path string, r *corev1.ResourceRequirements) {
	cpu := r.Requests[corev1.ResourceCPU]
	if milli := cpu.MilliValue(); milli > 0 && milli%1000 == 0 {
		less := *resource.NewMilliQuantity(milli-1, resource.DecimalSI)
		d.note(path, "whole cpus", less.String())
		r.Requests[corev1.ResourceCPU], r.Limits[corev1.ResourceCPU] = less, less
	}
}

func (d *document) resourceRow(path, name string) Field {
	return d.system.caseOf(rowOf(path)+".requests", name)
}

// nodeAffinity checks what Armada would refuse, and Kubernetes too.
func (d *document) nodeAffinity(path string, spec *corev1.PodSpec) {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) == 0 {
		d.fail(join(path, "nodeSelectorTerms"), "no term", "add one, or remove the affinity")
	}
	for i, term := range terms {
		for _, list := range []struct {
			name string
			of   []corev1.NodeSelectorRequirement
		}{{"matchExpressions", term.MatchExpressions}, {"matchFields", term.MatchFields}} {
			for k, r := range list.of {
				at := fmt.Sprintf("%s.nodeSelectorTerms[%d].%s[%d]", path, i, list.name, k)
				ok := r.Key != ""
				switch r.Operator {
				case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
					ok = ok && len(r.Values) > 0
				case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
					ok = ok && len(r.Values) == 0
				case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
					ok = ok && len(r.Values) == 1
				default:
					ok = false
				}
				if !ok {
					d.fail(at, "not a requirement that a node can be checked for", "write key, operator (In, NotIn, Exists, DoesNotExist, Gt, Lt) and the values that it takes")
				}
			}
		}
	}
}

// validLabel reports whether a name is a DNS label (RFC 1123).
func validLabel(s string) bool { return s != "" && validName(s) == s }
