package schedulerdb

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
)

// schedulingAnnotations are the annotations that the scheduler gets to see.
var schedulingAnnotations = []string{
	events.AnnotationFailFast,
	events.AnnotationGangCardinality,
	events.AnnotationGangID,
	events.AnnotationGangUniformityLabel,
	events.AnnotationPriceBand,
}

// priceBands are the bands in the order of their numbers, from 1.
const priceBands = "ABCDEFGH"

func (s *sequence) submit(m *pb.SubmitJob, raw []byte) ([]Op, error) {
	switch {
	case m.GetMainObject() == nil:
		return nil, crashError("SubmitJob has no main_object")
	case m.GetMainObject().GetPodSpec() == nil:
		return nil, errNoPod
	case m.GetMainObject().GetPodSpec().GetPodSpec() == nil:
		return nil, crashError("SubmitJob.main_object.pod_spec has no pod_spec")
	}
	annotations, err := annotationsOf(m)
	if err != nil {
		return nil, err
	}
	info, err := s.schedulingInfo(m, annotations)
	if err != nil {
		return nil, err
	}
	submit, err := s.pack.compress(raw)
	if err != nil {
		return nil, err
	}
	if s.groups == nil {
		if s.groups, err = s.pack.compress(encodeGroups(s.Groups)); err != nil {
			return nil, err
		}
	}
	return one(&InsertJob{
		JobID: m.GetJobId(), JobSet: s.JobSet, Queue: s.Queue, UserID: s.UserID,
		Submitted: s.at.UnixNano(), Priority: int64(m.GetPriority()), PriceBand: priceBand(annotations),
		SchedulingInfo: info, SubmitMessage: submit, Groups: s.groups,
	})
}

type skippedError string

func (e skippedError) Error() string { return string(e) }

// errNoPod: Armada's ingester passes over a job of any other kind.
const errNoPod = skippedError("SubmitJob.main_object is no pod spec")

// annotationsOf are those that the scheduler sees, the main object's over the job's.
func annotationsOf(m *pb.SubmitJob) (map[string]string, error) {
	var main pb.ObjectMeta
	if err := decode("SubmitJob.main_object.object_meta", m.GetMainObject().GetObjectMeta(), &main); err != nil {
		return nil, err
	}
	seen := map[string]string{}
	for _, meta := range []*pb.ObjectMeta{m.GetObjectMeta(), &main} {
		for _, key := range schedulingAnnotations {
			if v, ok := meta.GetAnnotations()[key]; ok {
				seen[key] = v
			}
		}
	}
	return seen, nil
}

func priceBand(annotations map[string]string) int32 {
	band := strings.ToUpper(annotations[events.AnnotationPriceBand])
	if len(band) != 1 {
		return 0
	}
	return int32(strings.Index(priceBands, band) + 1)
}

// schedulingInfo encodes JobSchedulingInfo, in ascending fields and with maps in
// the order of their keys.
func (s *sequence) schedulingInfo(m *pb.SubmitJob, annotations map[string]string) ([]byte, error) {
	pod := m.GetMainObject().GetPodSpec().GetPodSpec()
	requirements, err := podRequirements(pod, annotations)
	if err != nil {
		return nil, err
	}
	var submitted []byte
	submitted = appendVarint(submitted, 1, uint64(s.at.Unix()))
	submitted = appendVarint(submitted, 2, uint64(s.at.Nanosecond()))

	var b []byte
	b = appendVarint(b, 1, uint64(m.GetLifetime()))
	b = appendVarint(b, 2, protowire.EncodeBool(m.GetAtMostOnce()))
	b = appendVarint(b, 3, protowire.EncodeBool(m.GetPreemptible()))
	b = appendVarint(b, 4, protowire.EncodeBool(m.GetConcurrencySafe()))
	b = appendBytes(b, 5, appendBytes(nil, 1, requirements))
	if name := pod.GetPriorityClassName(); name != "" {
		b = appendBytes(b, 6, []byte(name))
	}
	b = appendBytes(b, 7, submitted)
	b = appendVarint(b, 8, uint64(m.GetPriority()))
	return b, nil
}

// podRequirements encodes PodRequirements. Affinity and tolerations are
// Kubernetes' own messages there as here.
func podRequirements(pod *pb.PodSpec, annotations map[string]string) ([]byte, error) {
	resources, err := resourcesOf(pod)
	if err != nil {
		return nil, err
	}
	selector := make(map[string]string, len(pod.GetNodeSelector()))
	for _, raw := range pod.GetNodeSelector() {
		var l pb.Label
		if err := decode("SubmitJob: node_selector", raw, &l); err != nil {
			return nil, err
		}
		selector[l.GetKey()] = l.GetValue()
	}
	b := appendMap(nil, 1, selector)
	if pod.GetAffinity() != nil {
		b = appendBytes(b, 2, pod.GetAffinity())
	}
	for _, t := range pod.GetTolerations() {
		b = appendBytes(b, 3, t)
	}
	policy := "PreemptLowerPriority"
	if pod.PreemptionPolicy != nil {
		policy = pod.GetPreemptionPolicy()
	}
	if policy != "" {
		b = appendBytes(b, 5, []byte(policy))
	}
	b = appendBytes(b, 6, resources)
	return appendMap(b, 7, annotations), nil
}

// appendVarint leaves out 0, as proto3 does.
func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func appendMap(b []byte, field protowire.Number, m map[string]string) []byte {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		b = appendBytes(b, field, appendBytes(appendBytes(nil, 1, []byte(key)), 2, []byte(m[key])))
	}
	return b
}
