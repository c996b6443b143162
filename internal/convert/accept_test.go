package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// refusedByArmada says why Armada's server would refuse a file of jobs, by the configuration that it comes with. That these are
// its rules is checked with a real server, in internal/test/armadabox.
func refusedByArmada(s *Submit) error {
	if len(s.Jobs) > 0 && (s.Queue == "" || s.JobSetID == "") {
		return fmt.Errorf("no queue or no job set")
	}
	gangs := map[string][2]string{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if err := refusedPod(j.PodSpec); err != nil || j.Namespace == "" {
			return fmt.Errorf("job %d in namespace %q: %w", i, j.Namespace, err)
		}
		if id := j.Annotations[annotationGang]; id != "" {
			own := [2]string{j.Annotations[annotationGangSize], j.PodSpec.PriorityClassName}
			if other, ok := gangs[id]; ok && own != other {
				return fmt.Errorf("job %d: members of gang %s have the sizes and priority classes %q and %q", i, id, own, other)
			}
			gangs[id] = own
		}
	}
	return nil
}

func refusedPod(p *corev1.PodSpec) error {
	if a := p.Affinity; a != nil && a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		return fmt.Errorf("it has a preferred node affinity")
	}
	if g := p.TerminationGracePeriodSeconds; g != nil && (*g < 1 || *g > 300) {
		return fmt.Errorf("it has %d s of grace", *g)
	}
	if p.Size() > 65535 {
		return fmt.Errorf("it has %d bytes", p.Size())
	}
	ports := map[int32]bool{}
	for i, c := range slices.Concat(p.Containers, p.InitContainers) {
		r := c.Resources
		if len(r.Requests) == 0 || len(r.Requests) != len(r.Limits) {
			return fmt.Errorf("container %s has %d requests and %d limits", c.Name, len(r.Requests), len(r.Limits))
		}
		for name, q := range r.Requests { //house:sorted one finding is enough
			if limit, ok := r.Limits[name]; !ok || limit.MilliValue() != q.MilliValue() || q.Sign() < 0 {
				return fmt.Errorf("container %s requests %v of %s, its limit is %v", c.Name, q.String(), name, limit.String())
			}
		}
		if memory, ok := r.Requests[corev1.ResourceMemory]; ok && memory.Value() < 1<<20 {
			return fmt.Errorf("container %s requests %s of memory", c.Name, memory.String())
		}
		if cpu := r.Requests.Cpu(); i >= len(p.Containers) && !cpu.IsZero() && cpu.MilliValue()%1000 == 0 {
			return fmt.Errorf("init container %s requests %s cpus", c.Name, cpu)
		}
		for _, port := range c.Ports {
			if ports[port.ContainerPort] {
				return fmt.Errorf("port %d is there twice", port.ContainerPort)
			}
			ports[port.ContainerPort] = true
		}
	}
	return nil
}

// TestPodSize: Armada limits the pod as it is submitted, with its index in the environment.
func TestPodSize(t *testing.T) {
	t.Parallel()
	for _, spare := range []int{-1, 0, 1, 40, 60, 80, 1000} {
		manifest := fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: big}, spec: {completions: 1000, completionMode: Indexed, template: {spec: {restartPolicy: Never,
			containers: [{name: main, image: i, args: [%s], resources: {limits: {cpu: 1, memory: 1Gi}}}]}}}}`, strings.Repeat("x", maxPodSpec-140-spare))
		r := Convert([]File{{Name: "in.yaml", Data: []byte(manifest)}}, Options{})
		if r.Failed() {
			continue
		}
		if err := refusedByArmada(&r.Submits[0]); err != nil {
			t.Errorf("%d bytes to spare: Armada refuses it: %v", spare, err)
		}
		t.Logf("%d bytes to spare: %v", spare, r.Notes)
		if spare == 1000 && r.Failed() {
			t.Error("a pod that is small enough does not convert")
		}
	}
}
