package convert

func jobSetTable() []Field {
	const (
		group = "GroupPolicy spec."
		part  = group + "parts."
		dns   = "there is no headless Service, so pods do not find each other by name: create one in the cluster of each executor, or pass addresses in another way"
	)
	const probes = "a pod counts as ready when it runs: Armada does not report probes"
	rows := append(
		objectFields(),
		Field{Path: "metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology]", Treatment: Dropped, Why: "units are not placed on topology domains of their own"},
		Field{Path: "metadata.annotations[alpha.jobset.sigs.k8s.io/node-selector]", Treatment: Dropped, Why: "units are not placed on topology domains of their own"},
		Field{Path: "spec", Treatment: Inside},
		Field{Path: "spec.replicatedJobs", Treatment: Inside},
		Field{Path: "spec.replicatedJobs.name", Treatment: Kept, Here: part + "name"},
		Field{Path: "spec.replicatedJobs.groupName", Treatment: Kept, Here: "jobs.labels, as JobSet has them", Why: "a group of replicatedJobs is known by its labels only"},
		Field{Path: "spec.replicatedJobs.replicas", Treatment: Kept, Here: part + "replicas; 1 where it is not set"},
		Field{Path: "spec.replicatedJobs.replicas", Case: "none", Treatment: Differs, Why: "the part is left out"},
		Field{Path: "spec.replicatedJobs.dependsOn", Treatment: Inside},
		Field{Path: "spec.replicatedJobs.dependsOn.name", Treatment: Kept, Here: part + "after"},
		Field{Path: "spec.replicatedJobs.dependsOn.status", Treatment: Forbidden, Here: "use Complete or Ready", Why: "an unsupported value"},
		Field{Path: "spec.replicatedJobs.dependsOn.status", Value: "Complete", Treatment: Kept, Here: part + "after"},
		Field{Path: "spec.replicatedJobs.dependsOn.status", Value: "Ready", Treatment: Kept, Here: part + "afterReady"},
		Field{Path: "spec.replicatedJobs.dependsOn.status", Case: "pods with readiness probes", Treatment: Differs, Why: probes},
		Field{Path: "spec.replicatedJobs.template", Treatment: Inside},
		Field{Path: "spec.replicatedJobs.template.metadata", Treatment: Inside},
		Field{Path: "spec.replicatedJobs.template.metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology]", Treatment: Dropped, Why: "units are not placed on topology domains of their own"},
		Field{Path: "spec.replicatedJobs.template.spec", Treatment: Inside},

		Field{Path: "spec.failurePolicy", Treatment: Inside, Here: "without it, the first unit that fails, fails the group"},
		Field{Path: "spec.failurePolicy.maxRestarts", Treatment: Kept, Here: group + "maxRestarts; 0 where it is not set"},
		Field{Path: "spec.failurePolicy.maxRestarts", Case: "above the greatest limit", Treatment: Differs, Why: "limits go up to 1,000,000"},
		Field{Path: "spec.failurePolicy.restartStrategy", Treatment: Forbidden, Here: "use Recreate or BlockingRecreate", Why: "an unsupported value"},
		Field{Path: "spec.failurePolicy.restartStrategy", Value: "BlockingRecreate", Treatment: Kept, Here: group + "restartStrategy", Why: "all members start again at one time, at which the last old pod is stopped"},
		Field{Path: "spec.failurePolicy.restartStrategy", Value: "InPlaceRestart", Treatment: Dropped, Why: "each member starts again as a new pod, as with Recreate"},
		Field{Path: "spec.failurePolicy.restartStrategy", Value: "Recreate", Treatment: Kept, Here: group + "restartStrategy", Why: "each member starts again as soon as its old pod is stopped"},
		Field{Path: "spec.failurePolicy.rules", Treatment: Inside, Here: group + "rules"},
		Field{Path: "spec.failurePolicy.rules.name", Treatment: Kept, Here: group + "rules.name, in a-z, 0-9 and -"},
		Field{Path: "spec.failurePolicy.rules.action", Treatment: Kept, Here: group + "rules.action: FailJobSet is FailGroup, RestartJobSet is RestartGroup, RestartJob is RestartUnit; …AndIgnoreMaxRestarts adds countsTowardsMax: false"},
		Field{Path: "spec.failurePolicy.rules.action", Case: "a restart with maxRestarts 0", Treatment: Differs, Why: "maxRestarts is 0, so the restart is always refused; the reason of the end is the rule, not ReachedMaxRestarts"},
		Field{Path: "spec.failurePolicy.rules.action", Case: "RestartReplicatedJob", Treatment: Differs, Why: "KEP-262 proposes it and leaves its limit open: it counts towards maxRestarts, if that is set"},
		Field{Path: "spec.failurePolicy.rules.action", Case: "RestartJob without maxRestarts", Treatment: Differs, Why: "KEP-262 proposes that it does not count, and JobSet, which counts it, would fail at once: it does not count, and nothing limits it"},
		Field{Path: "spec.failurePolicy.rules.action", Case: "FailJob", Treatment: Differs, Why: "KEP-262 proposes it, and JobSet refuses it: the unit stays failed, and the rest goes on"},
		Field{Path: "spec.failurePolicy.rules.onJobFailureReasons", Treatment: Kept, Here: group + "rules.onReasons"},
		Field{Path: "spec.failurePolicy.rules.onJobFailureReasons", Case: "a reason of one's own", Treatment: Differs, Why: "the rules of podFailurePolicy that set it make a unit fail for reason PodFailurePolicy, and no others do"},
		Field{Path: "spec.failurePolicy.rules.onJobFailureReasons", Case: "a reason of one's own among others", Treatment: Differs, Why: "units fail for reason PodFailurePolicy also by rules of podFailurePolicy that do not set it"},
		Field{Path: "spec.failurePolicy.rules.onJobFailureMessagePatterns", Treatment: Differs, Here: group + "rules.onMessage", Why: "here the text is the termination message of the container that failed, or the error of its pod; there it is the message of the Job's condition"},
		Field{Path: "spec.failurePolicy.rules.targetReplicatedJobs", Treatment: Kept, Here: group + "rules.parts"},
		Field{Path: "spec.failurePolicy.rules.targetReplicatedJobs", Case: "no such replicatedJob", Treatment: Dropped, Why: "no unit of it can fail, and JobSet refuses it"},
		Field{Path: "spec.failurePolicy.rules.targetReplicatedJobs", Case: "no replicatedJob left", Treatment: Dropped, Why: "the rule is left out: no unit that it is about can fail"},

		Field{Path: "spec.successPolicy", Treatment: Inside},
		Field{Path: "spec.successPolicy.operator", Treatment: Kept, Here: group + "success.operator"},
		Field{Path: "spec.successPolicy.targetReplicatedJobs", Treatment: Kept, Here: group + "success.parts"},
		Field{Path: "spec.successPolicy.targetReplicatedJobs", Case: "no replicatedJob left", Treatment: Dropped, Why: "none of them has a pod, so the group succeeds when all of its units have"},
		Field{Path: "spec.startupPolicy", Treatment: Inside},
		Field{Path: "spec.startupPolicy.startupPolicyOrder", Value: "AnyOrder", Treatment: Kept},
		Field{Path: "spec.startupPolicy.startupPolicyOrder", Treatment: Forbidden, Here: "use AnyOrder or InOrder", Why: "an unsupported value"},
		Field{Path: "spec.startupPolicy.startupPolicyOrder", Value: "InOrder", Treatment: Kept, Here: part + "afterReady: the part before"},
		Field{Path: "spec.startupPolicy.startupPolicyOrder", Case: "pods with readiness probes", Treatment: Differs, Why: probes},
		Field{Path: "spec.network", Treatment: Depends},
		Field{Path: "spec.network", Case: "names of pods", Treatment: Dropped, Why: dns},
		Field{Path: "spec.network.enableDNSHostnames", Treatment: Depends},
		Field{Path: "spec.network.subdomain", Treatment: Depends},
		Field{Path: "spec.network.publishNotReadyAddresses", Treatment: Depends},
		Field{Path: "spec.coordinator", Treatment: Dropped, Why: dns},
		Field{Path: "spec.volumeClaimPolicies", Treatment: Dropped, Why: "Armada makes no claims: create them in the cluster of each executor, and name them in volumes"},
		Field{Path: "spec.suspend", Value: "false", Treatment: Ignored, Why: "the jobs start when they are submitted"},
		Field{Path: "spec.suspend", Treatment: Dropped, Why: "the jobs start when they are submitted: submit them later"},
		Field{Path: "spec.managedBy", Value: "jobset.sigs.k8s.io/jobset-controller", Treatment: Ignored, Why: "Armada runs the pods"},
		Field{Path: "spec.managedBy", Treatment: Dropped, Why: "Armada runs the pods"},
		Field{Path: "spec.ttlSecondsAfterFinished", Treatment: Dropped, Why: "Armada forgets finished jobs by its own configuration"},
		Field{
			Path: "spec.replicatedJobs.template.spec.podFailurePolicy.rules." + reasonField, Treatment: Kept, Proposed: true,
			Here: group + "rules.onReasons: PodFailurePolicy", Why: "Kubernetes does not have it; KEP-262 uses it in an example",
		},
	)
	rows = append(rows, under("spec.replicatedJobs.template.metadata", templateMetaFields(", where the pod template has no such annotation"))...)
	return append(rows, under("spec.replicatedJobs.template.spec", jobFields())...)
}
