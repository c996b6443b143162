package sink

import (
	"cmp"
	"slices"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/jobdb"
)

// named returns the job that an event names, or "": an order changes nothing but by its answer. Passing: the event alone does not
// make the job known. An event that lacks a required id names nothing; there is a Parked
// record of it.
func named(m *events.Message, i int) (job string, passing bool) {
	ev := &m.Events[i]
	if ev.Kind == events.Other {
		full := m.Full(i)
		return cmp.Or(full.GetReprioritisedJob().GetJobId(), full.GetJobRequeued().GetJobId()), true
	}
	if ev.Missing() != events.UnknownParkReason || ev.Kind == events.JobOrder {
		return "", false
	}
	return ev.JobID, ev.Kind == events.JobErrors && ev.Error == nil
}

// firstTerminal returns the index of the first terminal error, or -1.
func firstTerminal(list []*pb.Error) int { return slices.IndexFunc(list, (*pb.Error).GetTerminal) }

func submitFacts(s *events.Submit, full *pb.SubmitJob) jobdb.Submit {
	return jobdb.Submit{
		Namespace:       full.GetObjectMeta().GetNamespace(),
		RetryPolicies:   s.RetryPolicies,
		FailFast:        s.FailFast,
		GangID:          s.GangID,
		GangCardinality: s.GangCardinality,
		GraceSeconds:    s.GraceSeconds,
		InitContainers:  s.InitContainers,
		Requests:        RequestsOf(full),
	}
}

// reasonOf returns the name of the member of Error.reason, and its text.
func reasonOf(e *pb.Error) (name, message string) {
	switch r := e.GetReason().(type) {
	case *pb.Error_KubernetesError:
		return "KubernetesError", ""
	case *pb.Error_ContainerError:
		return "ContainerError", r.ContainerError.GetMessage()
	case *pb.Error_ExecutorError:
		return "ExecutorError", ""
	case *pb.Error_LeaseExpired:
		return "LeaseExpired", ""
	case *pb.Error_MaxRunsExceeded:
		return "MaxRunsExceeded", r.MaxRunsExceeded.GetMessage()
	case *pb.Error_PodError:
		return "PodError", r.PodError.GetMessage()
	case *pb.Error_PodLeaseReturned:
		return "PodLeaseReturned", r.PodLeaseReturned.GetMessage()
	case *pb.Error_JobRunPreemptedError:
		return "JobRunPreemptedError", r.JobRunPreemptedError.GetReason()
	case *pb.Error_GangJobUnschedulable:
		return "GangJobUnschedulable", r.GangJobUnschedulable.GetMessage()
	case *pb.Error_JobRejected:
		return "JobRejected", r.JobRejected.GetMessage()
	case *pb.Error_ReconciliationError:
		return "ReconciliationError", r.ReconciliationError.GetMessage()
	}
	return "Unknown", ""
}

var kubernetesReasons = map[pb.KubernetesReason]string{
	pb.KubernetesReason_APP_ERROR:         "AppError",
	pb.KubernetesReason_EVICTED:           "Evicted",
	pb.KubernetesReason_OOM:               "OOM",
	pb.KubernetesReason_DEADLINE_EXCEEDED: "DeadlineExceeded",
}

// fill copies the error with which a run ended.
func fill(dst *jobdb.RunError, e *pb.Error, raw []byte) {
	dst.Reason, dst.Message = reasonOf(e)
	dst.Category, dst.Subcategory = e.GetFailureCategory(), e.GetFailureSubcategory()
	dst.Raw = raw
	pod := e.GetPodError()
	if pod == nil {
		return
	}
	dst.Node = pod.GetNodeName()
	dst.KubernetesReason = kubernetesReasons[pod.GetKubernetesReason()]
	if dst.KubernetesReason == "" {
		dst.KubernetesReason = pod.GetKubernetesReason().String()
	}
	for _, c := range pod.GetContainerErrors() {
		dst.Containers = append(dst.Containers, jobdb.Container{
			Name: c.GetObjectMeta().GetName(), ExitCode: c.GetExitCode(), Reason: c.GetReason(), Message: c.GetMessage(),
		})
	}
}
