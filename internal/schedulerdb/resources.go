package schedulerdb

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refloat/refloat/events/pb"
)

// amounts are resources by their names.
type amounts map[string]*resource.Quantity

// resourcesOf encodes Kubernetes' ResourceRequirements of what the pod needs.
func resourcesOf(pod *pb.PodSpec) ([]byte, error) {
	limits, requests, err := needsOf(pod)
	if err != nil {
		return nil, err
	}
	return requests.append(limits.append(nil, 1), 2), nil
}

// Requests returns what a pod requests at any one time: thousandths of a core, MiB of memory (a part counts as one), and
// thousandths of the devices whose names end with /gpu.
func Requests(pod *pb.PodSpec) (cpu, memory, gpu int64, err error) {
	_, requests, err := needsOf(pod)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		switch q := requests[name]; {
		case name == "cpu":
			cpu = q.MilliValue()
		case name == "memory":
			memory = q.Value()
			memory = memory>>20 + min(memory&(1<<20-1), 1)
		case strings.HasSuffix(name, "/gpu"):
			gpu += q.MilliValue()
		}
	}
	return cpu, memory, gpu, err
}

// needsOf returns what the pod needs at any one time: the sum of the containers that run together, or what an init
// container alone needs, if that is more.
func needsOf(pod *pb.PodSpec) (limits, requests amounts, _ error) {
	limits, requests = amounts{}, amounts{}
	take := func(kind string, containers []*pb.Container, into func(*pb.Container, amounts, string, resource.Quantity)) error {
		for i, c := range containers {
			var needs pb.ResourceRequirements
			if err := decode(fmt.Sprintf("SubmitJob: %s[%d]: resources", kind, i), c.GetResources(), &needs); err != nil {
				return err
			}
			for _, list := range []struct {
				to   amounts
				from map[string]*pb.Quantity
			}{{limits, needs.GetLimits()}, {requests, needs.GetRequests()}} {
				for name, text := range list.from { //house:sorted each name is on its own
					var q resource.Quantity // an absent text is 0, an empty one is an error
					if text.Text != nil {
						var err error
						if q, err = resource.ParseQuantity(text.GetText()); err != nil {
							return &unreadableError{fmt.Sprintf("SubmitJob: %s[%d]: %s %q", kind, i, name, text.GetText()), err}
						}
					}
					into(c, list.to, name, q)
				}
			}
		}
		return nil
	}
	containers := make([]*pb.Container, len(pod.GetContainers()))
	for i, raw := range pod.GetContainers() {
		containers[i] = &pb.Container{}
		if err := decode(fmt.Sprintf("SubmitJob: containers[%d]", i), raw, containers[i]); err != nil {
			return nil, nil, err
		}
	}
	err := take("containers", containers, func(_ *pb.Container, to amounts, name string, q resource.Quantity) {
		to.add(name, q)
	})
	if err == nil {
		err = take("initContainers", pod.GetInitContainers(), func(c *pb.Container, to amounts, name string, q resource.Quantity) {
			if c.GetRestartPolicy() == "Always" { // a sidecar, which stays
				to.add(name, q)
			} else if have := to[name]; have == nil && q.Sign() > 0 || have != nil && q.Cmp(*have) > 0 {
				to[name] = &q
			}
		})
	}
	return limits, requests, err
}

func (a amounts) add(name string, q resource.Quantity) {
	if a[name] == nil {
		a[name] = &resource.Quantity{}
	}
	a[name].Add(q)
}

func (a amounts) append(b []byte, field protowire.Number) []byte {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		quantity := appendBytes(nil, 1, []byte(a[name].String()))
		b = appendBytes(b, field, appendBytes(appendBytes(nil, 1, []byte(name)), 2, quantity))
	}
	return b
}
