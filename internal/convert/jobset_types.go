package convert

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types of JobSet, jobset.x-k8s.io/v1alpha2. Its Go module cannot be had here, so these are our own: the fields of
// v0.11, and the actions of KEP-262 that are still to come.

type jobSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              jobSetSpec `json:"spec"`
	Status            jobStatus  `json:"status"`
}

// jobStatus is never read.
type jobStatus struct{}

type jobSetSpec struct {
	ReplicatedJobs          []replicatedJob     `json:"replicatedJobs"`
	Network                 *jobSetNetwork      `json:"network"`
	SuccessPolicy           *jobSetSuccess      `json:"successPolicy"`
	FailurePolicy           *jobSetFailure      `json:"failurePolicy"`
	StartupPolicy           *jobSetStartup      `json:"startupPolicy"`
	Suspend                 *bool               `json:"suspend"`
	Coordinator             *jobSetCoordinator  `json:"coordinator"`
	ManagedBy               *string             `json:"managedBy"`
	TTLSecondsAfterFinished *int32              `json:"ttlSecondsAfterFinished"`
	VolumeClaimPolicies     []volumeClaimPolicy `json:"volumeClaimPolicies"`
}

type replicatedJob struct {
	Name      string                  `json:"name"`
	GroupName string                  `json:"groupName"`
	Template  batchv1.JobTemplateSpec `json:"template"`
	Replicas  *int32                  `json:"replicas"`
	DependsOn []jobSetDependency      `json:"dependsOn"`
}

type jobSetDependency struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

type jobSetNetwork struct {
	EnableDNSHostnames       *bool  `json:"enableDNSHostnames"`
	Subdomain                string `json:"subdomain"`
	PublishNotReadyAddresses *bool  `json:"publishNotReadyAddresses"`
}

type jobSetSuccess struct {
	Operator             string   `json:"operator"`
	TargetReplicatedJobs []string `json:"targetReplicatedJobs"`
}

type jobSetFailure struct {
	MaxRestarts     int32        `json:"maxRestarts"`
	RestartStrategy string       `json:"restartStrategy"`
	Rules           []jobSetRule `json:"rules"`
}

type jobSetRule struct {
	Name                        string   `json:"name"`
	Action                      string   `json:"action"`
	OnJobFailureReasons         []string `json:"onJobFailureReasons"`
	OnJobFailureMessagePatterns []string `json:"onJobFailureMessagePatterns"`
	TargetReplicatedJobs        []string `json:"targetReplicatedJobs"`
}

type jobSetStartup struct {
	StartupPolicyOrder string `json:"startupPolicyOrder"`
}

type jobSetCoordinator struct {
	ReplicatedJob string `json:"replicatedJob"`
	JobIndex      int    `json:"jobIndex"`
	PodIndex      int    `json:"podIndex"`
}

type volumeClaimPolicy struct {
	Templates       []corev1.PersistentVolumeClaim `json:"templates"`
	RetentionPolicy *volumeRetentionPolicy         `json:"retentionPolicy"`
}

type volumeRetentionPolicy struct {
	WhenDeleted *string `json:"whenDeleted"`
}
