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
		Field{Path: "metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology]", Fate: Dropped, Why: "units are not placed on topology domains of their own"},
		Field{Path: "metadata.annotations[alpha.jobset.sigs.k8s.io/node-selector]", Fate: Dropped, Why: "units are not placed on topology domains of their own"},
		Field{Path: "spec", Fate: Inside},
		Field{Path: "spec.replicatedJobs", Fate: Inside},
		Field{Path: "spec.replicatedJobs.name", Fate: Kept, Here: part + "name"},
		Field{Path: "spec.replicatedJobs.groupName", Fate: Kept, Here: "jobs.labels, as JobSet has them", Why: "a group of replicatedJobs is known by its labels only"},
		Field{Path: "spec.replicatedJobs.replicas", Fate: Kept, Here: part + "replicas; 1 where it is not set"},
		Field{Path: "spec.replicatedJobs.replicas", Case: "none", Fate: Differs, Why: "the part is left out"},
		Field{Path: "spec.replicatedJobs.dependsOn", Fate: Inside},
		Field{Path: "spec.replicatedJobs.dependsOn.name", Fate: Kept, Here: part + "after"},
		Field{Path: "spec.replicatedJobs.dependsOn.status", Fate: Forbidden, Here: "use Complete or Ready", Why: "an unsupported value"},
		Field{Path: "spec.replicatedJobs.dependsOn.status", Value: "Complete", Fate: Kept, Here: part + "after"},
		Field{Path: "spec.replicatedJobs.dependsOn.status", Value: "Ready", Fate: Kept, Here: part + "afterReady"},
		Field{Path: "spec.replicatedJobs.dependsOn.status", Case: "pods with readiness probes", Fate: Differs, Why: probes},
		Field{Path: "spec.replicatedJobs.template", Fate: Inside},
		Field{Path: "spec.replicatedJobs.template.metadata", Fate: Inside},
		Field{Path: "spec.replicatedJobs.template.metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology]", Fate: Dropped, Why: "units are not placed on topology domains of their own"},
		Field{Path: "spec.replicatedJobs.template.spec", Fate: Inside},

		Field{Path: "spec.failurePolicy", Fate: Inside, Here: "without it, the first unit that fails, fails the group"},
		Field{Path: "spec.failurePolicy.maxRestarts", Fate: Kept, Here: group + "maxRestarts; 0 where it is not set"},
		Field{Path: "spec.failurePolicy.maxRestarts", Case: "above the greatest limit", Fate: Differs, Why: "limits go up to 1,000,000"},
		Field{Path: "spec.failurePolicy.restartStrategy", Fate: Forbidden, Here: "use Recreate or BlockingRecreate", Why: "an unsupported value"},
		Field{Path: "spec.failurePolicy.restartStrategy", Value: "BlockingRecreate", Fate: Kept, Here: group + "restartStrategy", Why: "all members start again at one time, at which the last old pod is stopped"},
		Field{Path: "spec.failurePolicy.restartStrategy", Value: "InPlaceRestart", Fate: Dropped, Why: "each member starts again as a new pod, as with Recreate"},
		Field{Path: "spec.failurePolicy.restartStrategy", Value: "Recreate", Fate: Kept, Here: group + "restartStrategy", Why: "each member starts again as soon as its old pod is stopped"},
		Field{Path: "spec.failurePolicy.rules", Fate: Inside, Here: group + "rules"},
		Field{Path: "spec.failurePolicy.rules.name", Fate: Kept, Here: group + "rules.name, in a-z, 0-9 and -"},
		Field{Path: "spec.failurePolicy.rules.action", Fate: Kept, Here: group + "rules.action: FailJobSet is FailGroup, RestartJobSet is RestartGroup, RestartJob is RestartUnit; …AndIgnoreMaxRestarts adds countsTowardsMax: false"},
		Field{Path: "spec.failurePolicy.rules.action", Case: "a restart with maxRestarts 0", Fate: Differs, Why: "maxRestarts is 0, so the restart is always refused; the reason of the end is the rule, not ReachedMaxRestarts"},
		Field{Path: "spec.failurePolicy.rules.action", Case: "RestartReplicatedJob", Fate: Differs, Why: "KEP-262 proposes it and leaves its limit open: it counts towards maxRestarts, if that is set"},
		Field{Path: "spec.failurePolicy.rules.action", Case: "RestartJob without maxRestarts", Fate: Differs, Why: "KEP-262 proposes that it does not count, and JobSet, which counts it, would fail at once: it does not count, and nothing limits it"},
		Field{Path: "spec.failurePolicy.rules.action", Case: "FailJob", Fate: Differs, Why: "KEP-262 proposes it, and JobSet refuses it: the unit stays failed, and the rest goes on"},
		Field{Path: "spec.failurePolicy.rules.onJobFailureReasons", Fate: Kept, Here: group + "rules.onReasons"},
		Field{Path: "spec.failurePolicy.rules.onJobFailureReasons", Case: "a reason of one's own", Fate: Differs, Why: "the rules of podFailurePolicy that set it make a unit fail for reason PodFailurePolicy, and no others do"},
		Field{Path: "spec.failurePolicy.rules.onJobFailureReasons", Case: "a reason of one's own among others", Fate: Differs, Why: "units fail for reason PodFailurePolicy also by rules of podFailurePolicy that do not set it"},
		Field{Path: "spec.failurePolicy.rules.onJobFailureMessagePatterns", Fate: Differs, Here: group + "rules.onMessage", Why: "here the text is the termination message of the container that failed, or the error of its pod; there it is the message of the Job's condition"},
		Field{Path: "spec.failurePolicy.rules.targetReplicatedJobs", Fate: Kept, Here: group + "rules.parts"},
		Field{Path: "spec.failurePolicy.rules.targetReplicatedJobs", Case: "no such replicatedJob", Fate: Dropped, Why: "no unit of it can fail, and JobSet refuses it"},
		Field{Path: "spec.failurePolicy.rules.targetReplicatedJobs", Case: "no replicatedJob left", Fate: Dropped, Why: "the rule is left out: no unit that it is about can fail"},

		Field{Path: "spec.successPolicy", Fate: Inside},
		Field{Path: "spec.successPolicy.operator", Fate: Kept, Here: group + "success.operator"},
		Field{Path: "spec.successPolicy.targetReplicatedJobs", Fate: Kept, Here: group + "success.parts"},
		Field{Path: "spec.successPolicy.targetReplicatedJobs", Case: "no replicatedJob left", Fate: Dropped, Why: "none of them has a pod, so the group succeeds when all of its units have"},
		Field{Path: "spec.startupPolicy", Fate: Inside},
		Field{Path: "spec.startupPolicy.startupPolicyOrder", Value: "AnyOrder", Fate: Kept},
		Field{Path: "spec.startupPolicy.startupPolicyOrder", Fate: Forbidden, Here: "use AnyOrder or InOrder", Why: "an unsupported value"},
		Field{Path: "spec.startupPolicy.startupPolicyOrder", Value: "InOrder", Fate: Kept, Here: part + "afterReady: the part before"},
		Field{Path: "spec.startupPolicy.startupPolicyOrder", Case: "pods with readiness probes", Fate: Differs, Why: probes},
		Field{Path: "spec.network", Fate: Depends},
		Field{Path: "spec.network", Case: "names of pods", Fate: Dropped, Why: dns},
		Field{Path: "spec.network.enableDNSHostnames", Fate: Depends},
		Field{Path: "spec.network.subdomain", Fate: Depends},
		Field{Path: "spec.network.publishNotReadyAddresses", Fate: Depends},
		Field{Path: "spec.coordinator", Fate: Dropped, Why: dns},
		Field{Path: "spec.volumeClaimPolicies", Fate: Dropped, Why: "Armada makes no claims: create them in the cluster of each executor, and name them in volumes"},
		Field{Path: "spec.suspend", Value: "false", Fate: Ignored, Why: "the jobs start when they are submitted"},
		Field{Path: "spec.suspend", Fate: Dropped, Why: "the jobs start when they are submitted: submit them later"},
		Field{Path: "spec.managedBy", Value: "jobset.sigs.k8s.io/jobset-controller", Fate: Ignored, Why: "Armada runs the pods"},
		Field{Path: "spec.managedBy", Fate: Dropped, Why: "Armada runs the pods"},
		Field{Path: "spec.ttlSecondsAfterFinished", Fate: Dropped, Why: "Armada forgets finished jobs by its own configuration"},
		Field{
			Path: "spec.replicatedJobs.template.spec.podFailurePolicy.rules." + reasonField, Fate: Kept, Proposed: true,
			Here: group + "rules.onReasons: PodFailurePolicy", Why: "Kubernetes does not have it; KEP-262 uses it in an example",
		},
	)
	rows = append(rows, under("spec.replicatedJobs.template.metadata", templateMetaFields(", where the pod template has no such annotation"))...)
	return append(rows, under("spec.replicatedJobs.template.spec", jobFields())...)
}
