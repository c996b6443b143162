package convert

import (
	"slices"
	"strings"
)

// volcanoFields are the fields of a Volcano Job.
func volcanoFields() []Field {
	rows := append(objectFields(), Field{Path: "spec", Treatment: Inside})
	return append(rows, under("spec", volcanoSpecFields())...)
}

// jobTemplateFields are the fields of a JobTemplate, whose spec is that of a Volcano Job.
func jobTemplateFields() []Field {
	const own = "the template's own: Volcano gives none to the Jobs that it makes of it"
	rows := slices.DeleteFunc(objectFields(), func(f Field) bool {
		return f.Path == "metadata.labels" || strings.HasPrefix(f.Path, "metadata.annotations")
	})
	rows = append(rows,
		Field{Path: "metadata.labels", Treatment: Ignored, Why: own},
		Field{Path: "metadata.annotations", Treatment: Ignored, Why: own},
		Field{Path: "spec", Treatment: Inside},
		Field{Path: "metadata", Case: "no flow uses it", Treatment: Dropped, Why: "a JobTemplate is converted as a step of the JobFlows in the same namespace that name it"})
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
		{Path: "schedulerName", Treatment: Ignored, Why: armada},
		{Path: "minAvailable", Treatment: Depends},
		{Path: "minAvailable", Case: caseGang, Treatment: Kept, Here: "a gang: jobs.annotations armadaproject.io/gangId and gangCardinality"},
		{Path: "minAvailable", Case: casePartly, Treatment: Dropped, Why: "a gang of Armada has a fixed size: here each pod starts when there is room for it, and all must succeed unless CompleteJob follows from TaskCompleted"},
		{Path: "volumes", Treatment: Inside},
		{Path: "volumes.mountPath", Treatment: Kept, Here: "podSpec volumeMounts of each container"},
		{Path: "volumes.volumeClaimName", Treatment: Kept, Here: "podSpec volumes: the claim must exist in the cluster of each executor"},
		{Path: "volumes.volumeClaim", Treatment: Dropped, Why: "nothing creates a claim here: create one in the cluster of each executor, and name it in volumeClaimName"},
		{Path: "volumes", Case: caseClaim, Treatment: Dropped, Why: "it would need a claim that nothing creates here: create one in the cluster of each executor, and name it in volumeClaimName"},
		{Path: "tasks", Treatment: Inside},
		{Path: "tasks", Case: caseOnePart, Treatment: Differs, Why: "a gang is one unit, so its tasks are one part, and a member's index runs over all of them"},
		{Path: "plugins", Treatment: Depends},
		{Path: "plugins", Case: caseEnv, Treatment: Kept, Here: "VC_TASK_INDEX and VK_TASK_INDEX of each container"},
		{Path: "plugins", Case: caseSvc, Treatment: Dropped, Why: "nothing writes /etc/volcano/*.host and the VC_…_HOSTS variables, or creates the headless Service: pods must find each other in another way"},
		{Path: "plugins", Case: caseSSH, Treatment: Dropped, Why: "nothing creates keys: mount a Secret that has them"},
		{Path: "plugins", Case: caseFramework, Treatment: Dropped, Why: "nothing sets what the framework needs to find its peers: set it in the pods"},
		{Path: "runningEstimate", Treatment: Ignored, Why: "for Volcano's scheduler; " + armada},
		{Path: "queue", Treatment: Kept, Here: "the queue of the submit file, one file for each queue, unless --queue names one"},
		{Path: "queue", Case: caseOtherQueue, Treatment: Differs, Why: "a group is in one queue: of a JobFlow's steps, that of the first"},
		{Path: "maxRetry", Treatment: Depends},
		{Path: "maxRetry", Case: caseRuns, Treatment: Kept, Here: "GroupPolicy spec.maxRestarts = maxRetry − 1; 2 where it is not set"},
		{Path: "maxRetry", Case: caseZero, Treatment: Differs, Why: "Volcano makes 3 of 0, and counts runs: 3 are 2 restarts. Write maxRestarts: 0 into the GroupPolicy to restart never"},
		{Path: "maxRetry", Case: caseOwnLimits, Treatment: Differs, Why: "Volcano counts all restarts of a job together; here the retries of pods are counted by task, and apart from restarts of the job and of tasks"},
		{Path: "maxRetry", Case: caseStep, Treatment: Dropped, Why: "the retryPolicy of the JobFlow decides how often a step runs"},
		{Path: "ttlSecondsAfterFinished", Treatment: Ignored, Why: "Armada removes ended jobs by its own configuration"},
		{Path: "priorityClassName", Treatment: Depends},
		{Path: "priorityClassName", Case: "a class of Armada", Treatment: Kept, Here: "podSpec"},
		{Path: "priorityClassName", Case: "a class of the cluster", Treatment: Dropped, Why: "Armada has priority classes of its own, and refuses others: the jobs get its default; name one of Armada's, armada-…, to keep it"},
		{Path: "minSuccess", Treatment: Depends},
		{Path: "minSuccess", Case: caseWholeUnit, Treatment: Kept, Here: "GroupPolicy spec.parts.minMembers"},
		{Path: "minSuccess", Case: caseSomeTasks, Treatment: Dropped, Why: "each task is a part of its own, and all of its members must succeed"},
		{Path: "networkTopology", Treatment: Dropped, Why: topology},
		{Path: "tasks.name", Treatment: Kept, Here: "GroupPolicy spec.parts.name; of a gang's task: label volcano.sh/task-spec"},
		{Path: "tasks.replicas", Treatment: Kept, Here: "GroupPolicy spec.parts.members"},
		{Path: "tasks.minAvailable", Treatment: Depends},
		{Path: "tasks.minAvailable", Case: caseAllReplicas, Treatment: Kept, Here: "all members of a part must succeed"},
		{Path: "tasks.minAvailable", Case: caseFewerStates, Treatment: Dropped, Why: "here all pods of a task must succeed, and none waits for others unless the whole job is a gang"},
		{Path: "tasks.template", Treatment: Inside},
		{Path: "tasks.topologyPolicy", Treatment: Dropped, Why: "Armada's scheduler does not look at NUMA nodes: let the kubelet's topology manager do it"},
		{Path: "tasks.topologyPolicy", Value: "none", Treatment: Ignored, Why: "is what happens anyway"},
		{Path: "tasks.maxRetry", Treatment: Dropped, Why: "it counts restarts of containers within their pods, of which Armada has none"},
		{Path: "tasks.dependsOn", Treatment: Inside},
		{Path: "tasks.dependsOn", Case: caseGangTask, Treatment: Dropped, Why: "its tasks are one unit, and those of a gang start as a whole"},
		{Path: "tasks.dependsOn.name", Treatment: Kept, Here: "GroupPolicy spec.parts.afterReady", Why: "a pod counts as ready when it runs; with minAvailable, Volcano waits for so many pods of the task only"},
		{Path: "tasks.dependsOn.name", Case: caseNoTask, Treatment: Dropped, Why: "the Job has no task of that name with a pod"},
		{Path: "tasks.dependsOn.iteration", Treatment: Depends},
		{Path: "tasks.dependsOn.iteration", Case: "any", Treatment: Differs, Why: "here the task waits for all of the others"},
		{Path: "tasks.partitionPolicy", Treatment: Dropped, Why: "all pods of a task are one unit; " + topology},
		{Path: "tasks.template.spec.schedulerName", Value: "volcano", Treatment: Ignored, Why: armada},
	}
	rows = append(rows, under("policies", volcanoPolicyFields())...)
	rows = append(rows, under("tasks.policies", volcanoPolicyFields())...)
	rows = append(rows, Field{Path: "policies", Treatment: Inside}, Field{Path: "tasks.policies", Treatment: Inside},
		Field{Path: "policies", Case: "an eviction without a policy", Treatment: Kept, Here: "RetryPolicy action Ignore", Why: "Volcano creates a pod that was deleted again, and counts nothing"},
		Field{Path: "policies", Case: "a failure without a policy", Treatment: Kept, Here: "RetryPolicy action Fail with onMemberFailure: Continue, GroupPolicy rule Leave", Why: "Volcano leaves the pod as it is, and waits for the others"},
		Field{Path: "policies", Case: "a failure without a policy of a container that restarts in its pod", Treatment: Kept, Here: "RetryPolicy action Retry with the backoff of the kubelet, 10 s to 5 min, as often as the settings permit", Why: "with another restartPolicy than Never, the kubelet restarts the container, and Volcano sees no failure; a gang restarts as a whole"},
		Field{Path: "policies", Case: caseStepPolicy, Treatment: Differs, Why: "without policies, Volcano lets the other pods go on, and fails the job when all are over"})
	return append(rows, under("tasks.template", podTemplateFields())...)
}

// volcanoPolicyFields are the fields of a policy of a task or a job.
func volcanoPolicyFields() []Field {
	const never = "an event by which Volcano tells itself something: no failure of a pod"
	var rows []Field
	for _, event := range []string{"event", "events"} {
		rows = append(rows,
			Field{Path: event, Treatment: Depends},
			Field{Path: event, Case: "not an event", Treatment: Forbidden, Here: "write PodFailed, PodEvicted, PodPending, TaskCompleted, Unknown or \"*\"", Why: "not an event of Volcano"},
			Field{Path: event, Value: "PodFailed", Treatment: Kept, Here: "any failure but those of PodEvicted"},
			Field{Path: event, Value: "PodEvicted", Treatment: Kept, Here: "RetryPolicy spec.rules.onConditions: Preempted, Evicted and LeaseExpired"},
			Field{Path: event, Value: "*", Treatment: Kept, Here: "any failure"},
			Field{Path: event, Value: "PodPending", Treatment: Dropped, Why: "policies are asked when a run has failed, not while a pod waits"},
			Field{Path: event, Value: taskCompleted, Treatment: Kept, Here: "with CompleteJob, GroupPolicy spec.success; of a gang and of a step spec.parts.successRules"},
			Field{Path: event, Case: caseNotComplete, Treatment: Dropped, Why: "only CompleteJob can follow when a task has completed"},
			Field{Path: event, Value: "Unknown", Treatment: Dropped, Why: "Armada starts a gang as a whole, or not at all"},
			Field{Path: event, Value: "TaskFailed", Treatment: Dropped, Why: "it counts restarts of containers within their pods, of which Armada has none"},
		)
		for _, name := range []string{"PodRunning", "OutOfSync", "CommandIssued", "JobUpdated"} {
			rows = append(rows, Field{Path: event, Value: name, Treatment: Dropped, Why: never})
		}
	}
	rows = append(rows,
		Field{Path: "exitCode", Treatment: Kept, Here: "RetryPolicy spec.rules.onExitCodes"},
		Field{Path: "exitCode", Case: caseContainers, Treatment: Differs, Why: "Volcano looks at one container of a pod"},
		Field{Path: "exitCode", Value: "0", Treatment: Dropped, Why: "no failure"},
		Field{Path: "timeout", Treatment: Dropped, Why: "what a policy says happens at once"},
		Field{Path: "action", Treatment: Forbidden, Here: "write RestartJob, RestartTask, RestartPod, RestartPartition, TerminateJob, AbortJob or CompleteJob", Why: "not an action of Volcano"},
	)
	for _, name := range volcanoActions() {
		rows = append(rows, Field{Path: "action", Value: name, Treatment: Depends})
	}
	return append(rows, // cases of an action
		Field{Path: "action", Case: "RestartJob", Treatment: Kept, Here: "GroupPolicy rule RestartGroup, counted"},
		Field{Path: "action", Case: "RestartTask", Treatment: Kept, Here: "GroupPolicy rule RestartPart, counted"},
		Field{Path: "action", Case: "RestartPod", Treatment: Kept, Here: "RetryPolicy action Retry; retryLimit of the part = maxRetry − 1"},
		Field{Path: "action", Case: "TerminateJob", Treatment: Kept, Here: "GroupPolicy rule FailGroup"},
		Field{Path: "action", Case: "SyncJob", Treatment: Kept, Here: "the member has failed for good, and the others go on"},
		Field{Path: "action", Case: "AbortJob", Treatment: Differs, Why: "the group fails: it cannot be resumed, only submitted again"},
		Field{Path: "action", Case: "RestartPartition", Treatment: Differs, Why: "all pods of a task are one unit, which restarts as a whole"},
		Field{Path: "action", Case: "CompleteJob", Treatment: Dropped, Why: "a failure cannot complete a group: the member has failed for good, and the others go on"},
		Field{Path: "action", Case: caseWithGang, Treatment: Differs, Why: "a gang starts as a whole only, so all of it restarts"},
		Field{Path: "action", Case: caseStep, Treatment: Differs, Why: "the retryPolicy of the flow or step decides whether it runs again"},
		Field{Path: "action", Case: caseSecond, Treatment: Dropped, Why: "the failures of a task can have one action on more than a pod, or two if each of them has one: with this one, the member has failed for good, and the others go on"},
	)
}

// volcanoActions are the actions that a policy may name.
func volcanoActions() []string {
	return []string{
		"RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "AbortJob", "CompleteJob", "ResumeJob",
		"SyncJob", "EnqueueJob", "SyncQueue", "OpenQueue", "CloseQueue",
	}
}
