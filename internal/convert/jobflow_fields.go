package convert

// Cases of a JobFlow's fields.
const (
	caseDays       = "a duration in days"
	caseOtherQueue = "not the queue of the first step"
	caseNoRetry    = "no retryPolicy"
	caseCapped     = "baseDelay above maxDelay"
	caseConstant   = "maxDelay of a constant delay"
)

// jobFlowFields are the fields of a JobFlow, with the proposed retryPolicy of the flow and of its steps.
func jobFlowFields() []Field {
	rows := append(objectFields(),
		Field{Path: "spec", Treatment: Inside},
		Field{Path: "spec.jobRetainPolicy", Treatment: Dropped, Why: "Armada removes ended jobs by its own configuration"},
		Field{Path: "spec.jobRetainPolicy", Value: "retain", Treatment: Ignored, Why: "is what happens anyway, for as long as Armada is configured to keep ended jobs"},
		Field{Path: "spec.flows", Treatment: Inside},
		Field{Path: "spec.flows.name", Treatment: Kept, Here: "GroupPolicy spec.parts.name, and the JobTemplate of that name in the same namespace"},
		Field{Path: "spec.flows.dependsOn", Treatment: Inside},
		Field{Path: "spec.flows.dependsOn.targets", Treatment: Kept, Here: "GroupPolicy spec.parts.after"},
		Field{Path: "spec.flows.dependsOn.probe", Treatment: Dropped, Why: "a step starts when all of its targets have succeeded, and nothing probes them while they run"},
		Field{Path: "spec.flows.patch", Treatment: Kept, Here: "merged into the JobTemplate's spec: tasks, containers, volumes and env by name; fields at patch itself, under spec or under jobSpec"},
		Field{Path: "spec.flows.queueName", Treatment: Kept, Here: "as patch.queue", Why: "the API does not have the field; the proposal's example does"},
		Field{Path: "spec.flows.queueName", Case: caseOtherQueue, Treatment: Dropped, Why: "a group is in one queue"},
	)
	rows = append(rows, under("spec.retryPolicy", retryPolicyFields("GroupPolicy spec.unit.restarts"))...)
	return append(rows, under("spec.flows.retryPolicy", retryPolicyFields("GroupPolicy spec.parts.restarts"))...)
}

func retryPolicyFields(here string) []Field {
	return []Field{
		{Path: "", Treatment: Inside},
		{Path: "maxRetries", Treatment: Kept, Here: here + ".limit: retries after the first run; 0 where it is not set"},
		{Path: "policy", Treatment: Forbidden, Here: "write OnFailure, Always or Never", Why: "not a policy"},
		{Path: "policy", Value: "OnFailure", Treatment: Kept, Here: here + ".on, which it also is where it is not set"},
		{Path: "policy", Value: "Always", Treatment: Kept, Here: here + ".on"},
		{Path: "policy", Value: "Never", Treatment: Kept, Here: here + ".on, with limit 0"},
		{Path: "backoff", Treatment: Inside},
		{Path: "backoff.type", Treatment: Forbidden, Here: "write Constant or Exponential", Why: "not a type of backoff"},
		{Path: "backoff.type", Value: "Constant", Treatment: Kept, Here: here + ".backoff.type"},
		{Path: "backoff.type", Value: "Exponential", Treatment: Kept, Here: here + ".backoff.type, which it also is where it is not set"},
		{Path: "backoff.baseDelay", Treatment: Kept, Here: here + ".backoff.initialDelay; 30s where it is not set"},
		{Path: "backoff.baseDelay", Case: caseDays, Treatment: Differs, Why: "Kubernetes has no unit d, and would refuse it"},
		{Path: "backoff.baseDelay", Case: caseCapped, Treatment: Differs, Why: "maxDelay, which is 5m where it is not set, is the longest delay"},
		{Path: "backoff.maxDelay", Treatment: Kept, Here: here + ".backoff.maxDelay; 5m where it is not set, or the longest delay that occurs"},
		{Path: "backoff.maxDelay", Case: caseDays, Treatment: Differs, Why: "Kubernetes has no unit d, and would refuse it"},
		{Path: "backoff.maxDelay", Case: caseConstant, Treatment: Dropped, Why: "it limits the growth of an exponential delay"},
	}
}
