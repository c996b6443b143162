package sink

import (
	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/jobdb"
)

// named is what an event names. An event of a kind that changes nothing names nothing,
// and neither does one that lacks a required id, for which there is a Parked record.
type named struct {
	job, run string
	set      bool // a CancelJobSet
	// passing: the event alone does not make a job known.
	passing bool
}

// read returns what an event names.
func read(ev *pb.Event) named {
	switch e := ev.Event.(type) {
	case *pb.Event_SubmitJob:
		return named{job: e.SubmitJob.GetJobId()}
	case *pb.Event_KnownJob:
		return named{job: e.KnownJob.GetJobId()}
	case *pb.Event_ReprioritisedJob:
		return named{job: e.ReprioritisedJob.GetJobId(), passing: true}
	case *pb.Event_CancelJob:
		return named{job: e.CancelJob.GetJobId()}
	case *pb.Event_CancelJobSet:
		return named{set: true}
	case *pb.Event_CancelledJob:
		return named{job: e.CancelledJob.GetJobId()}
	case *pb.Event_JobSucceeded:
		return named{job: e.JobSucceeded.GetJobId()}
	case *pb.Event_JobErrors:
		return named{job: e.JobErrors.GetJobId(), passing: firstTerminal(e.JobErrors.GetErrors()) < 0}
	case *pb.Event_JobRequeued:
		return named{job: e.JobRequeued.GetJobId(), passing: true}
	}
	n := readRun(ev)
	if n.job == "" || n.run == "" {
		return named{}
	}
	return n
}

func readRun(ev *pb.Event) named {
	switch e := ev.Event.(type) {
	case *pb.Event_JobRunLeased:
		return named{job: e.JobRunLeased.GetJobId(), run: e.JobRunLeased.GetRunId()}
	case *pb.Event_JobRunAssigned:
		return named{job: e.JobRunAssigned.GetJobId(), run: e.JobRunAssigned.GetRunId()}
	case *pb.Event_JobRunRunning:
		return named{job: e.JobRunRunning.GetJobId(), run: e.JobRunRunning.GetRunId()}
	case *pb.Event_JobRunSucceeded:
		return named{job: e.JobRunSucceeded.GetJobId(), run: e.JobRunSucceeded.GetRunId()}
	case *pb.Event_JobRunErrors:
		return named{job: e.JobRunErrors.GetJobId(), run: e.JobRunErrors.GetRunId()}
	case *pb.Event_JobRunPreempted:
		return named{job: e.JobRunPreempted.GetPreemptedJobId(), run: e.JobRunPreempted.GetPreemptedRunId()}
	case *pb.Event_JobRunTerminated:
		return named{job: e.JobRunTerminated.GetJobId(), run: e.JobRunTerminated.GetRunId()}
	case *pb.Event_KnownRun:
		return named{job: e.KnownRun.GetJobId(), run: e.KnownRun.GetRunId()}
	case *pb.Event_EndedRun:
		return named{job: e.EndedRun.GetJobId(), run: e.EndedRun.GetRunId()}
	}
	return named{}
}

// timeOf returns t of SEMANTICS.
func timeOf(ev *pb.Event, publish int64) int64 {
	var t events.Timestamp
	if ev.Created != nil {
		t = events.Timestamp{Present: true, Seconds: ev.Created.Seconds, Nanos: ev.Created.Nanos}
	}
	return t.Time(publish)
}

// firstTerminal returns the index of the first terminal error, or -1.
func firstTerminal(list []*pb.Error) int {
	for i, e := range list {
		if e.GetTerminal() {
			return i
		}
	}
	return -1
}

// The annotations that explain prints.
const (
	annotationRetryPolicies   = "armadaproject.io/retry-policy"
	annotationFailFast        = "armadaproject.io/failFast"
	annotationGangID          = "armadaproject.io/gangId"
	annotationGangCardinality = "armadaproject.io/gangCardinality"
)

func submitFacts(m *pb.SubmitJob) jobdb.Submit {
	meta := m.GetObjectMeta()
	spec := m.GetMainObject().GetPodSpec().GetPodSpec()
	s := jobdb.Submit{
		Namespace:       meta.GetNamespace(),
		RetryPolicies:   meta.GetAnnotations()[annotationRetryPolicies],
		FailFast:        meta.GetAnnotations()[annotationFailFast],
		GangID:          meta.GetAnnotations()[annotationGangID],
		GangCardinality: meta.GetAnnotations()[annotationGangCardinality],
		GraceSeconds:    spec.GetTerminationGracePeriodSeconds(),
	}
	for _, c := range spec.GetInitContainers() {
		s.InitContainers = append(s.InitContainers, c.GetName())
	}
	return s
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
