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
		Field{Path: "spec", Fate: Inside},
		Field{Path: "spec.jobRetainPolicy", Fate: Dropped, Why: "Armada removes ended jobs by its own configuration"},
		Field{Path: "spec.jobRetainPolicy", Value: "retain", Fate: Ignored, Why: "is what happens anyway, for as long as Armada is configured to keep ended jobs"},
		Field{Path: "spec.flows", Fate: Inside},
		Field{Path: "spec.flows.name", Fate: Kept, Here: "GroupPolicy spec.parts.name, and the JobTemplate of that name in the same namespace"},
		Field{Path: "spec.flows.dependsOn", Fate: Inside},
		Field{Path: "spec.flows.dependsOn.targets", Fate: Kept, Here: "GroupPolicy spec.parts.after"},
		Field{Path: "spec.flows.dependsOn.probe", Fate: Dropped, Why: "a step starts when all of its targets have succeeded, and nothing probes them while they run"},
		Field{Path: "spec.flows.patch", Fate: Kept, Here: "merged into the JobTemplate's spec: tasks, containers, volumes and env by name; fields at patch itself, under spec or under jobSpec"},
		Field{Path: "spec.flows.queueName", Fate: Kept, Here: "as patch.queue", Why: "the API does not have the field; the proposal's example does"},
		Field{Path: "spec.flows.queueName", Case: caseOtherQueue, Fate: Dropped, Why: "a group is in one queue"},
	)
	rows = append(rows, under("spec.retryPolicy", retryPolicyFields("GroupPolicy spec.unit.restarts"))...)
	return append(rows, under("spec.flows.retryPolicy", retryPolicyFields("GroupPolicy spec.parts.restarts"))...)
}

func retryPolicyFields(here string) []Field {
	return []Field{
		{Path: "", Fate: Inside},
		{Path: "maxRetries", Fate: Kept, Here: here + ".limit: retries after the first run; 0 where it is not set"},
		{Path: "policy", Fate: Forbidden, Here: "write OnFailure, Always or Never", Why: "not a policy"},
		{Path: "policy", Value: "OnFailure", Fate: Kept, Here: here + ".on, which it also is where it is not set"},
		{Path: "policy", Value: "Always", Fate: Kept, Here: here + ".on"},
		{Path: "policy", Value: "Never", Fate: Kept, Here: here + ".on, with limit 0"},
		{Path: "backoff", Fate: Inside},
		{Path: "backoff.type", Fate: Forbidden, Here: "write Constant or Exponential", Why: "not a type of backoff"},
		{Path: "backoff.type", Value: "Constant", Fate: Kept, Here: here + ".backoff.type"},
		{Path: "backoff.type", Value: "Exponential", Fate: Kept, Here: here + ".backoff.type, which it also is where it is not set"},
		{Path: "backoff.baseDelay", Fate: Kept, Here: here + ".backoff.initialDelay; 30s where it is not set"},
		{Path: "backoff.baseDelay", Case: caseDays, Fate: Differs, Why: "Kubernetes has no unit d, and would refuse it"},
		{Path: "backoff.baseDelay", Case: caseCapped, Fate: Differs, Why: "maxDelay, which is 5m where it is not set, is the longest delay"},
		{Path: "backoff.maxDelay", Fate: Kept, Here: here + ".backoff.maxDelay; 5m where it is not set, or the longest delay that occurs"},
		{Path: "backoff.maxDelay", Case: caseDays, Fate: Differs, Why: "Kubernetes has no unit d, and would refuse it"},
		{Path: "backoff.maxDelay", Case: caseConstant, Fate: Dropped, Why: "it limits the growth of an exponential delay"},
	}
}
