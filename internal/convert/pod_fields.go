package convert

// The cases of annotations of any object.
const (
	reservedCase = "an annotation of Armada or Refloat"
	jobIDCase    = "a value with {JobId}"
)

// podTemplateFields are the fields of a PodTemplateSpec: what Armada does with each.
func podTemplateFields() []Field {
	rows := []Field{
		{Path: "metadata", Fate: Inside},
		{Path: "metadata.annotations", Case: reservedCase, Fate: Dropped, Why: "the prefixes armadaproject.io/ and refloat.github.io/ are reserved for what convert writes there"},
		{Path: "metadata.annotations", Case: jobIDCase, Fate: Differs, Why: "Armada replaces {JobId} in annotations by the id of the job"},
		{Path: "spec", Fate: Inside},
	}
	return append(append(rows, under("metadata", templateMetaFields(""))...), under("spec", podFields())...)
}

func podFields() []Field {
	const (
		asIs      = "podSpec"
		scheduler = "Armada's scheduler chooses the node and does not look at it; the cluster's own scheduler may then refuse that node"
		armadaOwn = "Armada's scheduler decides that"
	)
	rows := []Field{
		{Path: "containers", Fate: Kept, Here: asIs},
		{Path: "initContainers", Fate: Kept, Here: asIs},
		{Path: "ephemeralContainers", Fate: Forbidden, Here: "remove it", Why: "a template cannot have ephemeral containers"},

		{Path: "restartPolicy", Fate: Depends, Here: "Never", Why: "each failure is decided by policies, so no container restarts by itself"},
		{Path: "restartPolicy", Value: "Never", Fate: Kept, Here: asIs},
		{Path: "restartPolicy", Case: "containers restart in their pod", Fate: Differs, Here: "Never", Why: "the failure of a container ends the run, and a retry is a new pod, maybe on another node and without the files of the old one"},
		{Path: "terminationGracePeriodSeconds", Fate: Kept, Here: "podSpec; 30 where it is not set", Why: "Armada's own default is 1"},
		{Path: "terminationGracePeriodSeconds", Case: "out of Armada's range", Fate: Differs, Why: "Armada accepts 1 to 300"},
		{Path: "activeDeadlineSeconds", Fate: Kept, Here: asIs, Why: "where it is not set, Armada sets one: 3 days, unless it is configured otherwise"},
		{Path: "affinity", Fate: Inside},
		{Path: "affinity.nodeAffinity", Fate: Inside},
		{Path: "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution", Fate: Kept, Here: asIs},
		{Path: "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", Fate: Dropped, Why: "Armada refuses jobs with preferred node affinity"},
		{Path: "affinity.podAffinity", Fate: Differs, Here: asIs, Why: scheduler},
		{Path: "affinity.podAntiAffinity", Fate: Differs, Here: asIs, Why: scheduler},
		{Path: "topologySpreadConstraints", Fate: Differs, Here: asIs, Why: scheduler},
		{Path: "nodeSelector", Fate: Kept, Here: asIs},
		{Path: "tolerations", Fate: Kept, Here: asIs},
		{Path: "nodeName", Fate: Dropped, Why: armadaOwn},
		{Path: "schedulerName", Fate: Dropped, Why: armadaOwn},
		{Path: "schedulerName", Value: "default-scheduler", Fate: Ignored, Why: armadaOwn},
		{Path: "schedulingGroup", Fate: Dropped, Why: armadaOwn + ": a gang of Armada is made of a Volcano Job"},
		{Path: "evictionResponders", Fate: Dropped, Why: "Armada's API does not have it"},
		{Path: "hostnameOverride", Fate: Dropped, Why: "Armada's API does not have it: use hostname"},
		{Path: "schedulingGates", Fate: Dropped, Why: "nobody would open them: hold a part back with `after`"},
		{Path: "priorityClassName", Fate: Depends},
		{Path: "priorityClassName", Case: "a class of the cluster", Fate: Dropped, Why: "Armada has priority classes of its own, and refuses others: the jobs get its default; name one of Armada's, armada-…, to keep it"},
		{Path: "priorityClassName", Case: "a class of Armada", Fate: Kept, Here: asIs},
		{Path: "priority", Fate: Ignored, Why: "follows from the priority class"},
		{Path: "preemptionPolicy", Value: "PreemptLowerPriority", Fate: Ignored, Why: armadaOwn},
		{Path: "preemptionPolicy", Fate: Dropped, Why: armadaOwn},
		{Path: "resources", Fate: Dropped, Why: "Armada drops resources of the whole pod, unless it is configured to keep them: write them at the containers"},
		{Path: "resourceClaims", Fate: Differs, Here: asIs, Why: "Armada's scheduler does not count devices that are claimed: the claims must exist in the cluster of each executor"},
		{Path: "serviceAccountName", Fate: Kept, Here: "podSpec: the account must exist in the cluster of each executor"},
		{Path: "serviceAccount", Fate: Kept, Here: asIs},
		{Path: "volumes", Fate: Kept, Here: "podSpec: claims, ConfigMaps and Secrets must exist in the cluster of each executor"},
		{Path: "hostname", Fate: Kept, Here: asIs},
		{Path: "subdomain", Fate: Kept, Here: "podSpec: a headless Service of that name must exist in the cluster of each executor"},
	}
	for _, name := range []string{
		"automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "imagePullSecrets", "os",
		"overhead", "readinessGates", "runtimeClassName", "securityContext", "setHostnameAsFQDN", "shareProcessNamespace",
	} {
		rows = append(rows, Field{Path: name, Fate: Kept, Here: asIs})
	}
	for _, list := range []string{"containers", "initContainers"} {
		rows = append(
			rows,
			Field{Path: list + ".restartPolicyRules", Fate: Dropped, Why: "each failure is decided by policies, so no container restarts by itself: write them as rules of a podFailurePolicy"},
			Field{Path: list + ".resources", Fate: Kept, Here: asIs},
			Field{Path: list + ".resources", Case: "nothing is requested", Fate: Differs, Why: "Armada refuses a container that requests nothing: write what it needs"},
			Field{Path: list + ".resources", Case: "too little memory", Fate: Differs, Why: "Armada refuses less than 1Mi, unless it is configured otherwise"},
			Field{Path: list + ".resources.requests", Fate: Kept, Here: asIs},
			Field{Path: list + ".resources.requests", Case: "requests without limits", Fate: Differs, Why: "Armada wants limits equal to requests"},
			Field{Path: list + ".resources.requests", Case: "requests below limits", Fate: Differs, Why: "Armada wants requests equal to limits"},
			Field{Path: list + ".ports", Fate: Kept, Here: asIs},
			Field{Path: list + ".ports", Case: "a port of two containers", Fate: Dropped, Why: "Armada accepts each containerPort once in a pod; the container listens all the same"},
		)
	}
	rows = append(rows,
		Field{Path: "containers.restartPolicy", Fate: Dropped, Why: "each failure is decided by policies, so no container restarts by itself"},
		Field{Path: "containers.restartPolicy", Value: "Never", Fate: Ignored, Why: "is what happens anyway"},
		Field{Path: "initContainers.resources", Case: "whole cpus", Fate: Differs, Why: "Armada refuses an init container with a whole number of cpus, unless it is configured otherwise"},
	)
	return rows
}
