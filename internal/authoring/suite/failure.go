package suite

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Job is the job that a trial submits.
type Job struct {
	ID             string // "": job
	Queue          string // "": default
	Set            string // "": trial
	RetryPolicies  []string
	FailFast       bool
	Gang           int // gangCardinality; 0: no gang
	InitContainers []string
	GraceSeconds   int64

	gang   string  // its id; "": gang
	member *member // what it is in its group; nil: it names none
}

// Failure describes how a run fails: facts of semantics.md 2, as an executor reports them.
type Failure struct {
	Run        string // id, for jitter; "": run-N
	Conditions []policy.Condition
	PodOOM     bool // the pod's reason is OOM, and no container is reported
	Containers []policy.Container
	PodMessage string // the pod's own, which rules of group policies see
	Category   string
	Sub        string
	Node       string
	// RunDuration is how long the run was running; nil: it never was.
	RunDuration *time.Duration
}

// MainContainer is the default container name.
const MainContainer = "main"

var (
	errReturned  = errors.New("a run whose lease was returned or expired reports no container: omit the condition, or exit codes, reasons and messages")
	errTwoErrors = errors.New("a run ends with one error: give one of Unschedulable, LeaseReturned and LeaseExpired, and no condition of the pod with it")
	errTwoPod    = errors.New("a pod has one reason: give one of Evicted, DeadlineExceeded and podOOM")
	errMessage   = errors.New("only a pod has a message: omit podMessage, or the condition of the lease")
	errRunning   = errors.New("a run with the condition Unschedulable was never tried: omit runDuration, or the condition")
	errPodOOM    = errors.New("podOOM is for pods that report no container: omit exit codes, reasons and messages, or podOOM")
)

// Check returns an error for a failure that no executor can report.
func (f *Failure) Check() error {
	lease, pod := 0, 0
	for _, c := range f.Conditions {
		switch c {
		case policy.Unschedulable, policy.LeaseReturned, policy.LeaseExpired:
			lease++
		case policy.Evicted, policy.DeadlineExceeded:
			pod++
		case policy.OOMKilled, policy.Preempted, policy.UnknownCondition:
		}
	}
	if f.PodOOM {
		pod++
	}
	oom := slices.Contains(f.Conditions, policy.OOMKilled)
	switch {
	case lease > 1, lease == 1 && (pod > 0 || oom):
		return errTwoErrors
	case lease == 1 && len(f.Containers) > 0:
		return errReturned
	case lease == 1 && f.PodMessage != "":
		return errMessage
	case pod > 1:
		return errTwoPod
	case f.PodOOM && (len(f.Containers) > 0 || oom):
		return errPodOOM
	case f.RunDuration != nil && !f.attempted():
		return errRunning
	}
	return nil
}

func (f *Failure) has(c policy.Condition) bool { return slices.Contains(f.Conditions, c) }

// attempted reports whether the pod was ever started.
func (f *Failure) attempted() bool { return !f.has(policy.Unschedulable) }

// Report returns the error that the executor reports.
func (f *Failure) Report() *pb.Error {
	e := &pb.Error{Terminal: true, FailureCategory: f.Category, FailureSubcategory: f.Sub}
	containers := f.reported()
	pod := f.has(policy.Evicted) || f.has(policy.DeadlineExceeded) || f.PodOOM || f.PodMessage != "" || len(containers) > 0
	switch {
	case f.has(policy.Unschedulable), f.has(policy.LeaseReturned):
		e.Reason = &pb.Error_PodLeaseReturned{PodLeaseReturned: &pb.PodLeaseReturned{Message: f.PodMessage, RunAttempted: f.attempted()}}
	case f.has(policy.LeaseExpired):
		e.Reason = &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}
	case f.has(policy.Preempted) && !pod:
		e.Reason = &pb.Error_JobRunPreemptedError{JobRunPreemptedError: &pb.JobRunPreemptedError{}}
	default:
		p := &pb.PodError{NodeName: f.Node, Message: f.PodMessage}
		switch {
		case f.has(policy.Evicted):
			p.KubernetesReason = pb.KubernetesReason_EVICTED
		case f.has(policy.DeadlineExceeded):
			p.KubernetesReason = pb.KubernetesReason_DEADLINE_EXCEEDED
		case f.PodOOM:
			p.KubernetesReason = pb.KubernetesReason_OOM
		}
		for _, c := range containers {
			p.ContainerErrors = append(p.ContainerErrors, &pb.ContainerError{
				ObjectMeta: &pb.ObjectMeta{Name: c.Name}, ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
			})
		}
		e.Reason = &pb.Error_PodError{PodError: p}
	}
	return e
}

// reported returns the containers of the pod error. OOMKilled adds a container if there is none, and is the reason
// of the first one without a reason, of those that failed if any did.
func (f *Failure) reported() []policy.Container {
	containers := slices.Clone(f.Containers)
	if !f.has(policy.OOMKilled) {
		return containers
	}
	if len(containers) == 0 {
		return []policy.Container{{Name: MainContainer, ExitCode: oomExitCode, Reason: "OOMKilled"}}
	}
	unexplained := func(c policy.Container) bool { return c.Reason == "" }
	i := slices.IndexFunc(containers, func(c policy.Container) bool { return unexplained(c) && c.ExitCode != 0 })
	if i < 0 {
		i = slices.IndexFunc(containers, unexplained)
	}
	if i >= 0 {
		containers[i].Reason = "OOMKilled"
	}
	return containers
}

// oomExitCode is the exit code of a container that the kernel kills with SIGKILL: 128 + 9.
const oomExitCode = 137

// failureOf converts a recorded error back.
func failureOf(e *pb.Error, preempted bool) Failure {
	f := Failure{Category: e.GetFailureCategory(), Sub: e.GetFailureSubcategory()}
	if preempted || e.GetJobRunPreemptedError() != nil {
		f.Conditions = append(f.Conditions, policy.Preempted)
	}
	switch r := e.GetReason().(type) {
	case *pb.Error_PodLeaseReturned:
		c := policy.Unschedulable
		if r.PodLeaseReturned.GetRunAttempted() {
			c = policy.LeaseReturned
		}
		f.Conditions = append(f.Conditions, c)
	case *pb.Error_LeaseExpired:
		f.Conditions = append(f.Conditions, policy.LeaseExpired)
	case *pb.Error_PodError:
		p := r.PodError
		f.Node, f.PodMessage = p.GetNodeName(), p.GetMessage()
		for _, c := range p.GetContainerErrors() {
			f.Containers = append(f.Containers, policy.Container{Name: c.GetObjectMeta().GetName(), ExitCode: c.GetExitCode(), Reason: c.GetReason(), Message: c.GetMessage()})
		}
		switch p.GetKubernetesReason() {
		case pb.KubernetesReason_EVICTED:
			f.Conditions = append(f.Conditions, policy.Evicted)
		case pb.KubernetesReason_DEADLINE_EXCEEDED:
			f.Conditions = append(f.Conditions, policy.DeadlineExceeded)
		case pb.KubernetesReason_OOM:
			f.PodOOM = len(f.Containers) == 0 // redundant if there are containers
		case pb.KubernetesReason_APP_ERROR:
		}
	}
	return f
}

// String formats the failure in one line.
func (f *Failure) String() string {
	var words []string
	for _, c := range f.Conditions {
		words = append(words, c.String())
	}
	if f.PodOOM {
		words = append(words, "pod OOM")
	}
	for _, c := range f.reported() {
		s := fmt.Sprintf("%s exited with %d", c.Name, c.ExitCode)
		if c.Reason != "" {
			s += " (" + c.Reason + ")"
		}
		if c.Message != "" {
			s += " saying " + strconv.Quote(c.Message)
		}
		words = append(words, s)
	}
	if f.PodMessage != "" {
		words = append(words, "the pod saying "+strconv.Quote(f.PodMessage))
	}
	if f.Category != "" {
		words = append(words, "category "+strings.TrimSuffix(f.Category+"/"+f.Sub, "/"))
	}
	if f.Node != "" {
		words = append(words, "on "+f.Node)
	}
	if f.RunDuration != nil {
		words = append(words, "after running for "+policyfile.Short(*f.RunDuration))
	}
	if len(words) == 0 {
		return "no facts"
	}
	return strings.Join(words, ", ")
}
