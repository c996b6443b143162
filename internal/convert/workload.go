package convert

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refloat/refloat/internal/policy"
)

// Workload is what a manifest means in our words, whatever system it is of: a group of jobs, and the policies that decide
// what happens when one of them fails. Names of parts and rules are as the manifest has them; rendering makes them valid.
type Workload struct {
	doc       *document
	Name      string // of the group
	Namespace string
	Queue     string // that the manifest names; "": none
	Group     GroupPolicy
	Parts     []Part

	policyName string // given by nameAll
}

// GroupPolicy is what a GroupPolicy says beside its parts.
type GroupPolicy struct {
	About           string // one line on what happens by default, for readers of the file
	MaxRestarts     *uint32
	RestartStrategy string
	HasRules        bool // rules: [] is not the same as no rules
	Rules           []GroupRule
	Restarts        *Restarts // of units of all parts
	Success         *Success  // nil: all units of all parts
}

// Success is when a group succeeds: when all units of parts have, or any of them.
type Success struct {
	Any   bool
	Parts []string // names; none: all
}

// GroupRule is a rule of a GroupPolicy.
type GroupRule struct {
	path      string // of what it was made from
	Name      string
	Action    string
	Uncounted bool
	Reasons   []string
	Message   string   // a pattern
	Parts     []string // names of parts
}

// Restarts is how a unit restarts by itself.
type Restarts struct {
	On      string // OnFailure, Always, Never
	Limit   uint32
	Backoff Backoff
}

// Backoff is the delay of retries or restarts.
type Backoff struct {
	Constant     bool
	InitialDelay time.Duration
	MaxDelay     time.Duration
}

// Part is a part of a group: Replicas units of the same members.
type Part struct {
	path             string // of what it was made from
	Name             string
	Replicas         int
	After            []string // names of parts
	Parallelism      int      // 0: all members of a unit
	MinMembers       int      // 0: all members of a unit
	AfterReady       []string // names of parts
	SuccessRules     []SuccessRule
	RetryLimit       *uint32 // of the members of a unit together
	CountFailed      bool    // members that failed for good count against it
	Continue         bool
	MaxFailedMembers *uint32
	Restarts         *Restarts
	Gang             bool // the members of a unit start together
	Tasks            []Task
	// Identity is what distinguishes the pods of the part; nil: nothing.
	Identity func(replica, index int) Identity

	partName string // given by nameAll
}

// SuccessRule is a number of members of a unit that are enough.
type SuccessRule struct {
	Indexes policy.Indexes
	Count   *int32 // nil: all of them
}

// Members is the number of members of a unit.
func (p *Part) Members() (n int) {
	for i := range p.Tasks {
		n += p.Tasks[i].Count
	}
	return n
}

// Task is a number of members of a unit that have the same pod and the same policy.
type Task struct {
	Count       int
	Labels      map[string]string
	Annotations map[string]string
	Pod         *corev1.PodSpec // as Armada accepts it; not shared with others
	Retry       RetryPolicy

	policyName string // given by nameAll
}

// Identity is what a pod knows of itself.
type Identity struct {
	Hostname    string // "": that of the template
	Labels      map[string]string
	Annotations map[string]string
	Env         []corev1.EnvVar // of each container that does not set it
}

// RetryPolicy is the policy of members. Its default action is Retry: no system of those that we convert fails a pod for
// good by default.
type RetryPolicy struct {
	Limit       *uint32 // retries of a member; nil: no limit of its own
	MaxRetries  *uint32 // of a job in total; nil: those of the settings
	NoRetry     bool    // the default action is not Retry
	Default     string  // the default action, if it is neither Retry nor Fail
	Backoff     *Backoff
	Replacement string // WhenFailed, WhenTerminated; "": not set
	Rules       []RetryRule
}

// RetryRule is a rule of a RetryPolicy.
type RetryRule struct {
	path          string // of what it was made from
	Name          string
	Action        string // Fail, FailUnit, Ignore, Retry
	UnitReason    string // of FailUnit; "": PodFailurePolicy
	Conditions    []string
	NotIn         bool
	ExitCodes     []int32
	Container     string
	InitContainer bool
}
