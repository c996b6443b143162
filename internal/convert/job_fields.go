package convert

// jobFields are the fields of a JobSpec (batch/v1) and of its pods, as Job and JobSet have them.
func jobFields() []Field {
	const (
		part  = "GroupPolicy spec.parts."
		retry = "RetryPolicy spec."
	)
	rows := []Field{
		{Path: "parallelism", Treatment: Kept, Here: part + "parallelism; 1 where it is not set"},
		{Path: "completions", Treatment: Depends, Here: part + "members; 1 where neither it nor parallelism is set"},
		{Path: "completions", Case: "a work queue", Treatment: Differs, Why: "without completions, a Job is complete when one pod has succeeded and the others have ended; here all of its pods have to succeed"},
		{Path: "completionMode", Treatment: Kept, Here: "jobs.annotations and JOB_COMPLETION_INDEX"},
		{Path: "completionMode", Value: "NonIndexed", Treatment: Kept, Why: "pods have an index for the group, and do not see it"},
		{Path: "backoffLimit", Treatment: Kept, Here: part + "retryLimit, and with backoffLimitPerIndex countFailed; 6 where neither it nor backoffLimitPerIndex is set, with delays of 10 s, 20 s, … up to 10 min for each pod"},
		{Path: "backoffLimit", Case: "above the greatest limit", Treatment: Differs, Why: "limits go up to 1,000,000"},
		{Path: "backoffLimitPerIndex", Treatment: Kept, Here: retry + "retryLimit, and " + part + "onMemberFailure: Continue"},
		{Path: "backoffLimitPerIndex", Case: "above the greatest limit", Treatment: Differs, Why: "limits go up to 1,000,000"},
		{Path: "maxFailedIndexes", Treatment: Kept, Here: part + "maxFailedMembers"},
		{Path: "activeDeadlineSeconds", Treatment: Depends},
		{Path: "activeDeadlineSeconds", Case: "a deadline of the Job", Treatment: Differs, Here: "podSpec.activeDeadlineSeconds of each pod, and a rule for DeadlineExceeded", Why: "each run has that long; Kubernetes counts from the start of the Job, over all retries"},
		{Path: "activeDeadlineSeconds", Case: "the pods have a shorter one", Treatment: Dropped, Why: "a run ends at the shorter deadline of its pod, and a group has none"},

		{Path: "podFailurePolicy", Treatment: Inside},
		{Path: "podFailurePolicy.rules", Treatment: Inside},
		{Path: "podFailurePolicy.rules.action", Treatment: Kept, Here: retry + "rules.action: FailJob is FailUnit, FailIndex is Fail, Ignore is Ignore, Count is Retry", Why: "delays grow with the retries of a pod by one rule; in Kubernetes with all failures of the Job, or of its index, since the last success, ignored ones too"},
		{Path: "podFailurePolicy.rules", Case: "Count before rules that overlap", Treatment: Differs, Why: "its retries are counted apart from those of no rule, so that an index may get backoffLimitPerIndex retries of each"},
		{Path: "podFailurePolicy.rules.onExitCodes", Treatment: Inside},
		{Path: "podFailurePolicy.rules.onExitCodes.operator", Treatment: Kept, Here: retry + "rules.onExitCodes.operator"},
		{Path: "podFailurePolicy.rules.onExitCodes.values", Treatment: Kept, Here: retry + "rules.onExitCodes.values"},
		{Path: "podFailurePolicy.rules.onExitCodes.containerName", Treatment: Kept, Here: retry + "rules.containerName; where it is not set, one rule for each container"},
		{Path: "podFailurePolicy.rules.onPodConditions", Treatment: Inside},
		{Path: "podFailurePolicy.rules.onPodConditions.type", Treatment: Depends, Here: "DisruptionTarget is " + retry + "rules.onConditions: Preempted, Evicted and LeaseExpired"},
		{Path: "podFailurePolicy.rules.onPodConditions.type", Case: "another condition", Treatment: Dropped, Why: "Armada reports no conditions of pods but disruptions"},
		{Path: "podFailurePolicy.rules.onPodConditions.status", Treatment: Depends, Here: "True"},
		{Path: "podFailurePolicy.rules.onPodConditions.status", Case: "not True", Treatment: Dropped, Why: "only a disruption that happened is reported"},

		{Path: "successPolicy", Treatment: Inside},
		{Path: "successPolicy.rules", Treatment: Inside},
		{Path: "successPolicy.rules.succeededCount", Treatment: Depends, Here: part + "minMembers, of a rule with it alone; of several, the smallest"},
		{Path: "successPolicy.rules.succeededCount", Case: "with succeededIndexes", Treatment: Kept, Here: part + "successRules.count"},
		{Path: "successPolicy.rules.succeededCount", Case: "more than another rule", Treatment: Dropped, Why: "a rule with fewer always matches before it"},
		{Path: "successPolicy.rules.succeededIndexes", Treatment: Kept, Here: part + "successRules.indexes"},

		{Path: "podReplacementPolicy", Treatment: Kept, Here: retry + "replacement: Failed is WhenTerminated, TerminatingOrFailed is WhenFailed; where it is not set, Failed with a podFailurePolicy, else TerminatingOrFailed", Why: "after a preemption, a retry always waits for the old pod; after a container that exited, never"},
		{Path: "scheduling", Treatment: Dropped, Why: "Armada's scheduler decides that: a gang of Armada is made of a Volcano Job"},
		{Path: "suspend", Value: "false", Treatment: Ignored, Why: "the jobs start when they are submitted"},
		{Path: "suspend", Treatment: Dropped, Why: "the jobs start when they are submitted: submit them later"},
		{Path: "ttlSecondsAfterFinished", Treatment: Dropped, Why: "Armada forgets finished jobs by its own configuration"},
		{Path: "managedBy", Value: "kubernetes.io/job-controller", Treatment: Ignored, Why: "Armada runs the pods"},
		{Path: "managedBy", Treatment: Dropped, Why: "Armada runs the pods"},
		{Path: "selector", Treatment: Ignored, Why: "labels do not bind jobs to their group"},
		{Path: "manualSelector", Treatment: Ignored, Why: "labels do not bind jobs to their group"},
		{Path: "template", Treatment: Inside},
	}
	return append(rows, under("template", podTemplateFields())...)
}

// reasonField is a field that a proposal adds to rules of podFailurePolicy.
const reasonField = "setConditionReason"

func jobTable() []Field {
	rows := append(objectFields(), Field{Path: "spec", Treatment: Inside})
	rows = append(rows, under("spec", jobFields())...)
	return append(rows, Field{
		Path: "spec.podFailurePolicy.rules." + reasonField, Treatment: Dropped, Proposed: true,
		Why: "Kubernetes does not have it, and a unit fails for reason PodFailurePolicy",
	})
}
