package schedulerdb

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	eventspb "github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/schedulerdb/pb"
)

// While a retry is pending, its requirements have this node selector, which no node
// satisfies. The scheduler's report on the job shows the key alone, so the key says
// why. Key and value are the same for all jobs: the scheduler groups jobs with equal
// requirements, and looks once for all that wait, however many there are.
const (
	WaitingLabel = "refloat.github.io/waits-for-its-retry-time"
	WaitingValue = "true"
)

// formerWaitingLabel was the key before. A row written with it may still be pending.
const formerWaitingLabel = "refloat.github.io/retry"

// NodeLabel is the node label by which Armada tells nodes apart, unless its
// scheduling.nodeIdLabel says otherwise.
const NodeLabel = "kubernetes.io/hostname"

// operatorNotIn is Kubernetes'.
const operatorNotIn = "NotIn"

// Placement is what a retry adds to what a job was submitted with.
type Placement struct {
	AvoidNodes []string // by name
	NodeLabel  string   // whose values are those names
	Waiting    bool     // no node fits
	Version    int32    // of the result
}

var errNoRequirements = errors.New("scheduling info has no pod requirements")

// Requirements rebuilds a JobSchedulingInfo from the submitted one, so that
// nothing piles up from one retry to the next. Everything else stays as it is.
//
// Anti-affinity goes where Armada's own puts it: into every required term of the
// node affinity, since terms are alternatives.
func Requirements(submitted []byte, p Placement) ([]byte, error) {
	var info pb.JobSchedulingInfo
	if err := proto.Unmarshal(submitted, &info); err != nil {
		return nil, fmt.Errorf("scheduling info: %w", err)
	}
	found := false
	for _, object := range info.ObjectRequirements {
		pod := object.GetPodRequirements()
		if pod == nil {
			continue
		}
		found = true
		endWaiting(pod) // whatever it was rebuilt from
		if p.Waiting {
			if pod.NodeSelector == nil {
				pod.NodeSelector = map[string]string{}
			}
			pod.NodeSelector[WaitingLabel] = WaitingValue
		}
		if len(p.AvoidNodes) > 0 {
			avoid(pod, p.NodeLabel, p.AvoidNodes)
		}
	}
	if !found {
		return nil, errNoRequirements // the scheduler would stand still over it
	}
	info.Version = uint32(p.Version)
	return proto.MarshalOptions{Deterministic: true}.Marshal(&info)
}

func endWaiting(pod *pb.PodRequirements) {
	delete(pod.NodeSelector, WaitingLabel)
	delete(pod.NodeSelector, formerWaitingLabel)
}

// Waits reports whether requirements have the waiting selector.
func Waits(info *pb.JobSchedulingInfo) bool {
	for _, object := range info.ObjectRequirements {
		selector := object.GetPodRequirements().GetNodeSelector()
		for _, label := range []string{WaitingLabel, formerWaitingLabel} {
			if _, there := selector[label]; there {
				return true
			}
		}
	}
	return false
}

// WithoutWaiting returns requirements without the waiting selector, in another version.
func WithoutWaiting(info *pb.JobSchedulingInfo, version int32) ([]byte, error) {
	ended := proto.CloneOf(info)
	for _, object := range ended.ObjectRequirements {
		if pod := object.GetPodRequirements(); pod != nil {
			endWaiting(pod)
		}
	}
	ended.Version = uint32(version)
	return proto.MarshalOptions{Deterministic: true}.Marshal(ended)
}

func avoid(pod *pb.PodRequirements, label string, nodes []string) {
	if pod.Affinity == nil {
		pod.Affinity = &pb.Affinity{}
	}
	if pod.Affinity.NodeAffinity == nil {
		pod.Affinity.NodeAffinity = &pb.NodeAffinity{}
	}
	affinity := pod.Affinity.NodeAffinity
	if affinity.Required == nil {
		affinity.Required = &pb.NodeSelector{}
	}
	if len(affinity.Required.Terms) == 0 {
		affinity.Required.Terms = []*pb.NodeSelectorTerm{{}}
	}
	for _, term := range affinity.Required.Terms {
		i := slices.IndexFunc(term.MatchExpressions, func(r *pb.NodeSelectorRequirement) bool {
			return r.Key == label && r.Operator == operatorNotIn
		})
		if i < 0 {
			i = len(term.MatchExpressions)
			term.MatchExpressions = append(term.MatchExpressions, &pb.NodeSelectorRequirement{Key: label, Operator: operatorNotIn})
		}
		r := term.MatchExpressions[i]
		for _, node := range nodes {
			if !slices.Contains(r.Values, node) {
				r.Values = append(r.Values, node)
			}
		}
	}
}

// RunError reads a row of job_run_errors, of which all is kept. Nil is the error
// of a run that ended without one: it was preempted.
func RunError(stored []byte) (*eventspb.Error, error) {
	it := &eventspb.Error{}
	if stored == nil {
		return it, proto.Unmarshal([]byte{preemptedError, 0}, it)
	}
	raw, err := decompress(stored)
	if err == nil {
		err = proto.Unmarshal(raw, it)
	}
	if err != nil {
		return nil, fmt.Errorf("run error: %w", err)
	}
	return it, nil
}

// preemptedError is the tag of Error.jobRunPreemptedError: field 11, bytes.
const preemptedError = 11<<3 | 2

// SubmitMessage is the SubmitJob in a row of job_metadata.
func SubmitMessage(stored []byte) ([]byte, error) {
	raw, err := decompress(stored)
	if err != nil {
		return nil, fmt.Errorf("submit_message: %w", err)
	}
	return raw, nil
}

// Submitted is the JobSchedulingInfo of a job as it was submitted, version 0,
// from its row of job_metadata and the time in its row of jobs, in Unix
// nanoseconds.
func Submitted(submitMessage []byte, submitted int64) ([]byte, error) {
	raw, err := SubmitMessage(submitMessage)
	if err != nil {
		return nil, err
	}
	var m eventspb.SubmitJob
	if err := proto.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("submit_message: %w", err)
	}
	if m.GetMainObject().GetPodSpec().GetPodSpec() == nil {
		return nil, errNoPod
	}
	annotations, err := annotationsOf(&m)
	if err != nil {
		return nil, err
	}
	s := sequence{at: time.Unix(0, submitted).UTC()}
	return s.schedulingInfo(&m, annotations)
}
