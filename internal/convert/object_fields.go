package convert

// objectFields are the fields that all manifests of Kubernetes have.
func objectFields() []Field {
	const server = "written by the server"
	rows := []Field{
		{Path: "apiVersion", Treatment: Kept, Why: "says what the manifest is"},
		{Path: "kind", Treatment: Kept, Why: "says what the manifest is"},
		{Path: "metadata", Treatment: Inside},
		{Path: "metadata.name", Treatment: Kept, Here: "the name of the group: annotation refloat.github.io/group"},
		{Path: "metadata.generateName", Treatment: Depends},
		{Path: "metadata.generateName", Case: "without a name", Treatment: Differs, Why: "no server completes it here: each time that you submit, use another --job-set"},
		{Path: "metadata.generateName", Case: "with a name", Treatment: Ignored, Why: "the server has completed it"},
		{Path: "metadata.namespace", Treatment: Kept, Here: "jobs.namespace; default where it is not set"},
		{Path: "metadata.labels", Treatment: Kept, Here: "jobs.labels, where the pod template has no such label", Why: "Armada has no object for the whole, so its jobs have them"},
		{Path: "metadata.annotations", Treatment: Kept, Here: "jobs.annotations, where the pod template has no such annotation"},
		{Path: "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]", Treatment: Ignored, Why: "written by kubectl"},
		{Path: "metadata.annotations[batch.kubernetes.io/job-tracking]", Treatment: Ignored, Why: server},
		{Path: "metadata.ownerReferences", Treatment: Ignored, Why: "Armada's jobs have no owner"},
		{Path: "metadata.ownerReferences", Case: "the controller that makes it is converted too", Treatment: Dropped, Why: "it is left out, because the group that its controller becomes has its jobs"},
		{Path: "metadata.ownerReferences", Case: "another controller makes it", Treatment: Differs, Why: "a controller made it and may restart it: what that is configured to do is not known here"},
		{Path: "metadata.finalizers", Treatment: Ignored, Why: "controllers of a cluster wait for them; there is no object here"},
		{Path: "status", Treatment: Ignored, Why: "what a run of it has done"},
	}
	for _, name := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"} {
		rows = append(rows, Field{Path: "metadata." + name, Treatment: Ignored, Why: server})
	}
	return rows
}

// jobLabels are the labels by which the Job controller finds its pods.
func jobLabels() []string {
	return []string{"batch.kubernetes.io/controller-uid", "controller-uid", "batch.kubernetes.io/job-name", "job-name"}
}

// templateMetaFields are the fields of a template's metadata. What it says of labels and annotations is here.
func templateMetaFields(here string) []Field {
	rows := []Field{
		{Path: "labels", Treatment: Kept, Here: "jobs.labels"},
		{Path: "annotations", Treatment: Kept, Here: "jobs.annotations" + here},
	}
	for _, name := range jobLabels() {
		rows = append(rows, Field{Path: "labels[" + name + "]", Treatment: Ignored, Why: "each job has its own"})
	}
	for _, name := range []string{
		"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
		"selfLink", "managedFields", "ownerReferences", "finalizers",
	} {
		rows = append(rows, Field{Path: name, Treatment: Ignored, Why: "has no effect in a template"})
	}
	return rows
}
