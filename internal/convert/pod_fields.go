package convert

// The cases of annotations of any object.
const (
	reservedCase = "an annotation of Armada or Refloat"
	jobIDCase    = "a value with {JobId}"
)

// podTemplateFields are the fields of a PodTemplateSpec: what Armada does with each.
func podTemplateFields() []Field {
	rows := []Field{
		{Path: "metadata", Treatment: Inside},
		{Path: "metadata.annotations", Case: reservedCase, Treatment: Dropped, Why: "the prefixes armadaproject.io/ and refloat.github.io/ are reserved for what convert writes there"},
		{Path: "metadata.annotations", Case: jobIDCase, Treatment: Differs, Why: "Armada replaces {JobId} in annotations by the id of the job"},
		{Path: "spec", Treatment: Inside},
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
		{Path: "containers", Treatment: Kept, Here: asIs},
		{Path: "initContainers", Treatment: Kept, Here: asIs},
		{Path: "ephemeralContainers", Treatment: Forbidden, Here: "remove it", Why: "a template cannot have ephemeral containers"},

		{Path: "restartPolicy", Treatment: Depends, Here: "Never", Why: "each failure is decided by policies, so no container restarts by itself"},
		{Path: "restartPolicy", Value: "Never", Treatment: Kept, Here: asIs},
		{Path: "restartPolicy", Case: "containers restart in their pod", Treatment: Differs, Here: "Never", Why: "the failure of a container ends the run, and a retry is a new pod, maybe on another node and without the files of the old one"},
		{Path: "terminationGracePeriodSeconds", Treatment: Kept, Here: "podSpec; 30 where it is not set", Why: "Armada's own default is 1"},
		{Path: "terminationGracePeriodSeconds", Case: "out of Armada's range", Treatment: Differs, Why: "Armada accepts 1 to 300"},
		{Path: "activeDeadlineSeconds", Treatment: Kept, Here: asIs, Why: "where it is not set, Armada sets one: 3 days, unless it is configured otherwise"},
		{Path: "affinity", Treatment: Inside},
		{Path: "affinity.nodeAffinity", Treatment: Inside},
		{Path: "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution", Treatment: Kept, Here: asIs},
		{Path: "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", Treatment: Dropped, Why: "Armada refuses jobs with preferred node affinity"},
		{Path: "affinity.podAffinity", Treatment: Differs, Here: asIs, Why: scheduler},
		{Path: "affinity.podAntiAffinity", Treatment: Differs, Here: asIs, Why: scheduler},
		{Path: "topologySpreadConstraints", Treatment: Differs, Here: asIs, Why: scheduler},
		{Path: "nodeSelector", Treatment: Kept, Here: asIs},
		{Path: "tolerations", Treatment: Kept, Here: asIs},
		{Path: "nodeName", Treatment: Dropped, Why: armadaOwn},
		{Path: "schedulerName", Treatment: Dropped, Why: armadaOwn},
		{Path: "schedulerName", Value: "default-scheduler", Treatment: Ignored, Why: armadaOwn},
		{Path: "schedulingGroup", Treatment: Dropped, Why: armadaOwn + ": a gang of Armada is made of a Volcano Job"},
		{Path: "evictionResponders", Treatment: Dropped, Why: "Armada's API does not have it"},
		{Path: "hostnameOverride", Treatment: Dropped, Why: "Armada's API does not have it: use hostname"},
		{Path: "schedulingGates", Treatment: Dropped, Why: "nobody would open them: hold a part back with `after`"},
		{Path: "priorityClassName", Treatment: Depends},
		{Path: "priorityClassName", Case: "a class of the cluster", Treatment: Dropped, Why: "Armada has priority classes of its own, and refuses others: the jobs get its default; name one of Armada's, armada-…, to keep it"},
		{Path: "priorityClassName", Case: "a class of Armada", Treatment: Kept, Here: asIs},
		{Path: "priority", Treatment: Ignored, Why: "follows from the priority class"},
		{Path: "preemptionPolicy", Value: "PreemptLowerPriority", Treatment: Ignored, Why: armadaOwn},
		{Path: "preemptionPolicy", Treatment: Dropped, Why: armadaOwn},
		{Path: "resources", Treatment: Dropped, Why: "Armada drops resources of the whole pod, unless it is configured to keep them: write them at the containers"},
		{Path: "resourceClaims", Treatment: Differs, Here: asIs, Why: "Armada's scheduler does not count devices that are claimed: the claims must exist in the cluster of each executor"},
		{Path: "serviceAccountName", Treatment: Kept, Here: "podSpec: the account must exist in the cluster of each executor"},
		{Path: "serviceAccount", Treatment: Kept, Here: asIs},
		{Path: "volumes", Treatment: Kept, Here: "podSpec: claims, ConfigMaps and Secrets must exist in the cluster of each executor"},
		{Path: "hostname", Treatment: Kept, Here: asIs},
		{Path: "subdomain", Treatment: Kept, Here: "podSpec: a headless Service of that name must exist in the cluster of each executor"},
	}
	for _, name := range []string{
		"automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "imagePullSecrets", "os",
		"overhead", "readinessGates", "runtimeClassName", "securityContext", "setHostnameAsFQDN", "shareProcessNamespace",
	} {
		rows = append(rows, Field{Path: name, Treatment: Kept, Here: asIs})
	}
	for _, list := range []string{"containers", "initContainers"} {
		rows = append(
			rows,
			Field{Path: list + ".restartPolicyRules", Treatment: Dropped, Why: "each failure is decided by policies, so no container restarts by itself: write them as rules of a podFailurePolicy"},
			Field{Path: list + ".resources", Treatment: Kept, Here: asIs},
			Field{Path: list + ".resources", Case: "nothing is requested", Treatment: Differs, Why: "Armada refuses a container that requests nothing: write what it needs"},
			Field{Path: list + ".resources", Case: "too little memory", Treatment: Differs, Why: "Armada refuses less than 1Mi, unless it is configured otherwise"},
			Field{Path: list + ".resources.requests", Treatment: Kept, Here: asIs},
			Field{Path: list + ".resources.requests", Case: "requests without limits", Treatment: Differs, Why: "Armada wants limits equal to requests"},
			Field{Path: list + ".resources.requests", Case: "requests below limits", Treatment: Differs, Why: "Armada wants requests equal to limits"},
			Field{Path: list + ".ports", Treatment: Kept, Here: asIs},
			Field{Path: list + ".ports", Case: "a port of two containers", Treatment: Dropped, Why: "Armada accepts each containerPort once in a pod; the container listens all the same"},
		)
	}
	rows = append(rows,
		Field{Path: "containers.restartPolicy", Treatment: Dropped, Why: "each failure is decided by policies, so no container restarts by itself"},
		Field{Path: "containers.restartPolicy", Value: "Never", Treatment: Ignored, Why: "is what happens anyway"},
		Field{Path: "initContainers.resources", Case: "whole cpus", Treatment: Differs, Why: "Armada refuses an init container with a whole number of cpus, unless it is configured otherwise"},
	)
	return rows
}
