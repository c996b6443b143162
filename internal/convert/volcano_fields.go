package convert

import (
	"slices"
	"strings"
)

// volcanoFields are the fields of a Volcano Job.
func volcanoFields() []Field {
	rows := append(objectFields(), Field{Path: "spec", Fate: Inside})
	return append(rows, under("spec", volcanoSpecFields())...)
}

// jobTemplateFields are the fields of a JobTemplate, whose spec is that of a Volcano Job.
func jobTemplateFields() []Field {
	const own = "the template's own: Volcano gives none to the Jobs that it makes of it"
	rows := slices.DeleteFunc(objectFields(), func(f Field) bool {
		return f.Path == "metadata.labels" || strings.HasPrefix(f.Path, "metadata.annotations")
	})
	rows = append(rows,
		Field{Path: "metadata.labels", Fate: Ignored, Why: own},
		Field{Path: "metadata.annotations", Fate: Ignored, Why: own},
		Field{Path: "spec", Fate: Inside},
		Field{Path: "metadata", Case: "no flow uses it", Fate: Dropped, Why: "a JobTemplate is converted as a step of the JobFlows in the same namespace that name it"})
	return append(rows, under("spec", volcanoSpecFields())...)
}

// Cases of a Volcano Job's fields, as tables and the program name them.
const (
	caseGang        = "all pods start together"
	casePartly      = "fewer than all pods"
	caseOnePart     = "tasks of a gang"
	caseRuns        = "maxRetry counts runs"
	caseZero        = "0 is 3"
	caseOwnLimits   = "pods and more than one pod are restarted"
	caseStep        = "of a step"
	caseContainers  = "of several containers"
	caseStepPolicy  = "no policy in a step"
	caseClaim       = "no volumeClaimName"
	caseWithGang    = "a pod of a gang"
	caseSecond      = "another action of the same task"
	caseSomeTasks   = "of several tasks"
	caseWholeUnit   = "of one task, or of a gang"
	caseEnv         = "env"
	caseSvc         = "svc"
	caseSSH         = "ssh"
	caseFramework   = "of a framework"
	caseFewerStates = "fewer than its replicas"
	caseAllReplicas = "its replicas"
	caseNotComplete = "with another action than CompleteJob"
	caseGangTask    = "of a gang, or of a step"
	caseNoTask      = "no such task"
)

func volcanoSpecFields() []Field {
	const (
		topology = "Armada does not know Volcano's HyperNodes: a node's label as armadaproject.io/gangNodeUniformityLabel keeps the pods of a gang together"
		armada   = "Armada schedules all jobs"
	)
	rows := []Field{
		{Path: "schedulerName", Fate: Ignored, Why: armada},
		{Path: "minAvailable", Fate: Depends},
		{Path: "minAvailable", Case: caseGang, Fate: Kept, Here: "a gang: jobs.annotations armadaproject.io/gangId and gangCardinality"},
		{Path: "minAvailable", Case: casePartly, Fate: Dropped, Why: "a gang of Armada has a fixed size: here each pod starts when there is room for it, and all must succeed unless CompleteJob follows from TaskCompleted"},
		{Path: "volumes", Fate: Inside},
		{Path: "volumes.mountPath", Fate: Kept, Here: "podSpec volumeMounts of each container"},
		{Path: "volumes.volumeClaimName", Fate: Kept, Here: "podSpec volumes: the claim must exist in the cluster of each executor"},
		{Path: "volumes.volumeClaim", Fate: Dropped, Why: "nothing creates a claim here: create one in the cluster of each executor, and name it in volumeClaimName"},
		{Path: "volumes", Case: caseClaim, Fate: Dropped, Why: "it would need a claim that nothing creates here: create one in the cluster of each executor, and name it in volumeClaimName"},
		{Path: "tasks", Fate: Inside},
		{Path: "tasks", Case: caseOnePart, Fate: Differs, Why: "a gang is one unit, so its tasks are one part, and a member's index runs over all of them"},
		{Path: "plugins", Fate: Depends},
		{Path: "plugins", Case: caseEnv, Fate: Kept, Here: "VC_TASK_INDEX and VK_TASK_INDEX of each container"},
		{Path: "plugins", Case: caseSvc, Fate: Dropped, Why: "nothing writes /etc/volcano/*.host and the VC_…_HOSTS variables, or creates the headless Service: pods must find each other in another way"},
		{Path: "plugins", Case: caseSSH, Fate: Dropped, Why: "nothing creates keys: mount a Secret that has them"},
		{Path: "plugins", Case: caseFramework, Fate: Dropped, Why: "nothing sets what the framework needs to find its peers: set it in the pods"},
		{Path: "runningEstimate", Fate: Ignored, Why: "for Volcano's scheduler; " + armada},
		{Path: "queue", Fate: Kept, Here: "the queue of the submit file, one file for each queue, unless --queue names one"},
		{Path: "queue", Case: caseOtherQueue, Fate: Differs, Why: "a group is in one queue: of a JobFlow's steps, that of the first"},
		{Path: "maxRetry", Fate: Depends},
		{Path: "maxRetry", Case: caseRuns, Fate: Kept, Here: "GroupPolicy spec.maxRestarts = maxRetry − 1; 2 where it is not set"},
		{Path: "maxRetry", Case: caseZero, Fate: Differs, Why: "Volcano makes 3 of 0, and counts runs: 3 are 2 restarts. Write maxRestarts: 0 into the GroupPolicy to restart never"},
		{Path: "maxRetry", Case: caseOwnLimits, Fate: Differs, Why: "Volcano counts all restarts of a job together; here the retries of pods are counted by task, and apart from restarts of the job and of tasks"},
		{Path: "maxRetry", Case: caseStep, Fate: Dropped, Why: "the retryPolicy of the JobFlow decides how often a step runs"},
		{Path: "ttlSecondsAfterFinished", Fate: Ignored, Why: "Armada removes ended jobs by its own configuration"},
		{Path: "priorityClassName", Fate: Depends},
		{Path: "priorityClassName", Case: "a class of Armada", Fate: Kept, Here: "podSpec"},
		{Path: "priorityClassName", Case: "a class of the cluster", Fate: Dropped, Why: "Armada has priority classes of its own, and refuses others: the jobs get its default; name one of Armada's, armada-…, to keep it"},
		{Path: "minSuccess", Fate: Depends},
		{Path: "minSuccess", Case: caseWholeUnit, Fate: Kept, Here: "GroupPolicy spec.parts.minMembers"},
		{Path: "minSuccess", Case: caseSomeTasks, Fate: Dropped, Why: "each task is a part of its own, and all of its members must succeed"},
		{Path: "networkTopology", Fate: Dropped, Why: topology},
		{Path: "tasks.name", Fate: Kept, Here: "GroupPolicy spec.parts.name; of a gang's task: label volcano.sh/task-spec"},
		{Path: "tasks.replicas", Fate: Kept, Here: "GroupPolicy spec.parts.members"},
		{Path: "tasks.minAvailable", Fate: Depends},
		{Path: "tasks.minAvailable", Case: caseAllReplicas, Fate: Kept, Here: "all members of a part must succeed"},
		{Path: "tasks.minAvailable", Case: caseFewerStates, Fate: Dropped, Why: "here all pods of a task must succeed, and none waits for others unless the whole job is a gang"},
		{Path: "tasks.template", Fate: Inside},
		{Path: "tasks.topologyPolicy", Fate: Dropped, Why: "Armada's scheduler does not look at NUMA nodes: let the kubelet's topology manager do it"},
		{Path: "tasks.topologyPolicy", Value: "none", Fate: Ignored, Why: "is what happens anyway"},
		{Path: "tasks.maxRetry", Fate: Dropped, Why: "it counts restarts of containers within their pods, of which Armada has none"},
		{Path: "tasks.dependsOn", Fate: Inside},
		{Path: "tasks.dependsOn", Case: caseGangTask, Fate: Dropped, Why: "its tasks are one unit, and those of a gang start as a whole"},
		{Path: "tasks.dependsOn.name", Fate: Kept, Here: "GroupPolicy spec.parts.afterReady", Why: "a pod counts as ready when it runs; with minAvailable, Volcano waits for so many pods of the task only"},
		{Path: "tasks.dependsOn.name", Case: caseNoTask, Fate: Dropped, Why: "the Job has no task of that name with a pod"},
		{Path: "tasks.dependsOn.iteration", Fate: Depends},
		{Path: "tasks.dependsOn.iteration", Case: "any", Fate: Differs, Why: "here the task waits for all of the others"},
		{Path: "tasks.partitionPolicy", Fate: Dropped, Why: "all pods of a task are one unit; " + topology},
		{Path: "tasks.template.spec.schedulerName", Value: "volcano", Fate: Ignored, Why: armada},
	}
	rows = append(rows, under("policies", volcanoPolicyFields())...)
	rows = append(rows, under("tasks.policies", volcanoPolicyFields())...)
	rows = append(rows, Field{Path: "policies", Fate: Inside}, Field{Path: "tasks.policies", Fate: Inside},
		Field{Path: "policies", Case: "an eviction without a policy", Fate: Kept, Here: "RetryPolicy action Ignore", Why: "Volcano creates a pod that was deleted again, and counts nothing"},
		Field{Path: "policies", Case: "a failure without a policy", Fate: Kept, Here: "RetryPolicy action Fail with onMemberFailure: Continue, GroupPolicy rule Leave", Why: "Volcano leaves the pod as it is, and waits for the others"},
		Field{Path: "policies", Case: "a failure without a policy of a container that restarts in its pod", Fate: Kept, Here: "RetryPolicy action Retry with the backoff of the kubelet, 10 s to 5 min, as often as the settings permit", Why: "with another restartPolicy than Never, the kubelet restarts the container, and Volcano sees no failure; a gang restarts as a whole"},
		Field{Path: "policies", Case: caseStepPolicy, Fate: Differs, Why: "without policies, Volcano lets the other pods go on, and fails the job when all are over"})
	return append(rows, under("tasks.template", podTemplateFields())...)
}

// volcanoPolicyFields are the fields of a policy of a task or a job.
func volcanoPolicyFields() []Field {
	const never = "an event by which Volcano tells itself something: no failure of a pod"
	var rows []Field
	for _, event := range []string{"event", "events"} {
		rows = append(rows,
			Field{Path: event, Fate: Depends},
			Field{Path: event, Case: "not an event", Fate: Forbidden, Here: "write PodFailed, PodEvicted, PodPending, TaskCompleted, Unknown or \"*\"", Why: "not an event of Volcano"},
			Field{Path: event, Value: "PodFailed", Fate: Kept, Here: "any failure but those of PodEvicted"},
			Field{Path: event, Value: "PodEvicted", Fate: Kept, Here: "RetryPolicy spec.rules.onConditions: Preempted, Evicted and LeaseExpired"},
			Field{Path: event, Value: "*", Fate: Kept, Here: "any failure"},
			Field{Path: event, Value: "PodPending", Fate: Dropped, Why: "policies are asked when a run has failed, not while a pod waits"},
			Field{Path: event, Value: taskCompleted, Fate: Kept, Here: "with CompleteJob, GroupPolicy spec.success; of a gang and of a step spec.parts.successRules"},
			Field{Path: event, Case: caseNotComplete, Fate: Dropped, Why: "only CompleteJob can follow when a task has completed"},
			Field{Path: event, Value: "Unknown", Fate: Dropped, Why: "Armada starts a gang as a whole, or not at all"},
			Field{Path: event, Value: "TaskFailed", Fate: Dropped, Why: "it counts restarts of containers within their pods, of which Armada has none"},
		)
		for _, name := range []string{"PodRunning", "OutOfSync", "CommandIssued", "JobUpdated"} {
			rows = append(rows, Field{Path: event, Value: name, Fate: Dropped, Why: never})
		}
	}
	rows = append(rows,
		Field{Path: "exitCode", Fate: Kept, Here: "RetryPolicy spec.rules.onExitCodes"},
		Field{Path: "exitCode", Case: caseContainers, Fate: Differs, Why: "Volcano looks at one container of a pod"},
		Field{Path: "exitCode", Value: "0", Fate: Dropped, Why: "no failure"},
		Field{Path: "timeout", Fate: Dropped, Why: "what a policy says happens at once"},
		Field{Path: "action", Fate: Forbidden, Here: "write RestartJob, RestartTask, RestartPod, RestartPartition, TerminateJob, AbortJob or CompleteJob", Why: "not an action of Volcano"},
	)
	for _, name := range volcanoActions() {
		rows = append(rows, Field{Path: "action", Value: name, Fate: Depends})
	}
	return append(rows, // cases of an action
		Field{Path: "action", Case: "RestartJob", Fate: Kept, Here: "GroupPolicy rule RestartGroup, counted"},
		Field{Path: "action", Case: "RestartTask", Fate: Kept, Here: "GroupPolicy rule RestartPart, counted"},
		Field{Path: "action", Case: "RestartPod", Fate: Kept, Here: "RetryPolicy action Retry; retryLimit of the part = maxRetry − 1"},
		Field{Path: "action", Case: "TerminateJob", Fate: Kept, Here: "GroupPolicy rule FailGroup"},
		Field{Path: "action", Case: "SyncJob", Fate: Kept, Here: "the member has failed for good, and the others go on"},
		Field{Path: "action", Case: "AbortJob", Fate: Differs, Why: "the group fails: it cannot be resumed, only submitted again"},
		Field{Path: "action", Case: "RestartPartition", Fate: Differs, Why: "all pods of a task are one unit, which restarts as a whole"},
		Field{Path: "action", Case: "CompleteJob", Fate: Dropped, Why: "a failure cannot complete a group: the member has failed for good, and the others go on"},
		Field{Path: "action", Case: caseWithGang, Fate: Differs, Why: "a gang starts as a whole only, so all of it restarts"},
		Field{Path: "action", Case: caseStep, Fate: Differs, Why: "the retryPolicy of the flow or step decides whether it runs again"},
		Field{Path: "action", Case: caseSecond, Fate: Dropped, Why: "the failures of a task can have one action on more than a pod, or two if each of them has one: with this one, the member has failed for good, and the others go on"},
	)
}

// volcanoActions are the actions that a policy may name.
func volcanoActions() []string {
	return []string{
		"RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "AbortJob", "CompleteJob", "ResumeJob",
		"SyncJob", "EnqueueJob", "SyncQueue", "OpenQueue", "CloseQueue",
	}
}
