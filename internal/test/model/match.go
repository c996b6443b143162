package model

import (
	"math/big"
	"regexp"
	"slices"

	"github.com/refloat/refloat/events/pb"
)

// returnedLease reports whether the error is a PodLeaseReturned. It remains one if the same message has a
// JobRunPreempted (§1).
func (f *failure) returnedLease() bool { return f.err.GetPodLeaseReturned() != nil }

// attempted (§2): "every failure but PodLeaseReturned with run_attempted == false".
func (f *failure) attempted() bool {
	return !f.returnedLease() || f.err.GetPodLeaseReturned().RunAttempted
}

// isPreempted (§2): "reason JobRunPreemptedError, or a JobRunPreempted for this run".
func (f *failure) isPreempted() bool {
	return f.preempted || f.err.GetJobRunPreemptedError() != nil
}

// containers are those that a rule looks at (§4), in report order: "Init
// containers are left out unless the rule has includeInitContainers: true.
// containerName set: only that container's exit code, reason and message count.".
func containers(rule *Rule, r *run) []*pb.ContainerError {
	var left []*pb.ContainerError
	for _, c := range r.failure.err.GetPodError().GetContainerErrors() {
		name := c.GetObjectMeta().GetName()
		// §2: a container is an init container when the SubmitJob lists its name so.
		if slices.Contains(r.job.initNames, name) && !rule.IncludeInitContainers {
			continue
		}
		if rule.ContainerName != "" && rule.ContainerName != name {
			continue
		}
		left = append(left, c)
	}
	return left
}

// targeted is "the first of those left, in report order, whose exit code is not 0".
func targeted(rule *Rule, r *run) *pb.ContainerError {
	for _, c := range containers(rule, r) {
		if c.ExitCode != 0 {
			return c
		}
	}
	return nil
}

// holds says whether a condition holds for a rule (§2, §4).
// READING: of a preempted run that is a returned lease too (§1) both conditions
// hold. (Otherwise: only those of the returned lease.)
func holds(condition string, rule *Rule, r *run) bool {
	f := r.failure
	if condition == "OOMKilled" {
		if c := targeted(rule, r); c != nil && c.Reason == "OOMKilled" {
			return true
		}
		none := len(f.err.GetPodError().GetContainerErrors()) == 0
		return none && rule.ContainerName == "" && podReason(f, pb.KubernetesReason_OOM)
	}
	// §4: "onConditions with containerName: only OOMKilled can hold".
	if rule.ContainerName != "" {
		return false
	}
	switch condition {
	case "Evicted":
		return podReason(f, pb.KubernetesReason_EVICTED)
	case "DeadlineExceeded":
		return podReason(f, pb.KubernetesReason_DEADLINE_EXCEEDED) ||
			f.err.GetFailureCategory() == "internal" && f.err.GetFailureSubcategory() == "active-deadline"
	case "Preempted":
		return f.isPreempted()
	case "Unschedulable":
		return f.returnedLease() && !f.attempted()
	case "LeaseReturned":
		return f.returnedLease() && f.attempted()
	case "LeaseExpired":
		return f.err.GetLeaseExpired() != nil
	}
	panic("no such condition: " + condition)
}

func podReason(f *failure, reason pb.KubernetesReason) bool {
	return f.err.GetPodError() != nil && f.err.GetPodError().KubernetesReason == reason
}

// matches: "All that it has must hold (AND); within a list, one is enough (OR)."
func matches(rule *Rule, r *run) bool {
	err := r.failure.err
	if len(rule.OnConditions) > 0 {
		if !slices.ContainsFunc(rule.OnConditions, func(c string) bool { return holds(c, rule, r) }) {
			return false
		}
	}
	if codes := rule.OnExitCodes; codes != nil {
		// "With none targeted … it never matches, also not with NotIn."
		c := targeted(rule, r)
		if c == nil || slices.Contains(codes.Values, c.ExitCode) != (codes.Operator == "In") {
			return false
		}
	}
	if rule.OnTerminationMessage != "" {
		// "RE2, unanchored, against the message of each of those left; an empty
		// message never matches."
		pattern := regexp.MustCompile(rule.OnTerminationMessage)
		if !slices.ContainsFunc(containers(rule, r), func(c *pb.ContainerError) bool {
			return c.Message != "" && pattern.MatchString(c.Message)
		}) {
			return false
		}
	}
	if len(rule.OnFailureCategory) > 0 && !slices.Contains(rule.OnFailureCategory, err.GetFailureCategory()) {
		return false
	}
	if len(rule.OnFailureSubcategory) > 0 && !slices.Contains(rule.OnFailureSubcategory, err.GetFailureSubcategory()) {
		return false
	}
	return rule.OnRunDuration == nil || rule.OnRunDuration.holds(r)
}

// holds: §4, "It looks at the time from the run's first JobRunRunning to t … a run that was not running before it failed
// never matches".
func (d *RunDuration) holds(r *run) bool {
	if r.since == nil {
		return false
	}
	ran := new(big.Int).Sub(big.NewInt(r.failure.t), big.NewInt(*r.since))
	if ran.Sign() < 0 {
		ran.SetInt64(0)
	}
	nanos := func(ms int64) *big.Int { return new(big.Int).Mul(big.NewInt(ms), big.NewInt(1_000_000)) }
	return (d.AtLeastMs == nil || ran.Cmp(nanos(*d.AtLeastMs)) >= 0) && (d.LessThanMs == nil || ran.Cmp(nanos(*d.LessThanMs)) < 0)
}

// seenMatch notes which matchers decided, for Model.Seen.
func (m *Model) seenMatch(rule *Rule, r *run) {
	for _, c := range rule.OnConditions {
		if !holds(c, rule, r) {
			continue
		}
		if targeted(rule, r) == nil && c == "OOMKilled" {
			c += " of the pod"
		}
		m.Seen["matched: condition "+c]++
	}
	if rule.OnExitCodes != nil {
		m.Seen["matched: exit codes "+rule.OnExitCodes.Operator]++
	}
	if rule.OnTerminationMessage != "" {
		m.Seen["matched: message"]++
	}
	if len(rule.OnFailureCategory) > 0 {
		m.Seen["matched: category"]++
	}
	if len(rule.OnFailureSubcategory) > 0 {
		m.Seen["matched: subcategory"]++
	}
	if rule.OnRunDuration != nil {
		m.Seen["matched: run duration"]++
	}
	if rule.ContainerName != "" {
		m.Seen["matched: container name"]++
	}
	if rule.IncludeInitContainers {
		m.Seen["matched: init containers"]++
	}
}
