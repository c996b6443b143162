package scheduling

import "time"

// Resources are amounts, one for each of Config.Resources and in that order. Missing ones at
// the end are zero. The unit is the caller's: thousandths of a CPU, bytes, devices.
type Resources []int64

// Config is what holds for all queues and nodes.
type Config struct {
	// Now is the time of the scheduling cycle; only Job.RetryAfter is compared with it.
	Now time.Time
	// Resources are the names of the resources, the scarcest first: nodes are compared by what is
	// free of the first, then of the second, and so on.
	Resources []string
	// PriorityClasses are all priority classes.
	PriorityClasses []PriorityClass
	// DefaultPriorityClass is the class of jobs that name none.
	DefaultPriorityClass string
	// LikeArmada follows Armada's scheduler, which does otherwise than its documentation says: see R22 in docs/internals/scheduling.md.
	LikeArmada bool
	// Resolution is what Armada rounds the available amounts down to when it looks for nodes: its indexedResources. Missing and zero ones
	// are not rounded. Only LikeArmada asks for it.
	Resolution Resources
}

// PriorityClass is an Armada priority class.
type PriorityClass struct {
	Name string
	// Priority is the urgency of its jobs: they can preempt jobs of any class with a lower one.
	Priority int32
	// IsFairSharePreemptible says whether its jobs can be preempted to restore fair shares.
	IsFairSharePreemptible bool
}

// Queue is a queue with all its jobs, both queued and running.
type Queue struct {
	Name string
	// PriorityFactor is the reciprocal of the queue's weight, in thousandths: 1500 is 1.5.
	PriorityFactor int64
	Jobs           []Job
}

// Job is a job that is queued or running.
type Job struct {
	// ID is unique among all jobs of all queues.
	ID string
	// PriorityClass is the name of the job's class; empty is the default one.
	PriorityClass string
	// Priority orders jobs of equal urgency in their queue: lower values come first, as in Armada.
	Priority int64
	// Submitted is when the job was first submitted. A job that runs again keeps it.
	Submitted time.Time
	// Started is when the run of a job that runs was scheduled; only LikeArmada asks for it. A Scheduler notes it itself.
	Started time.Time
	Request Resources
	// Gang is the gang of the job. The zero value is a gang of one.
	Gang Gang
	// RetryAfter is the time before which a queued job is not scheduled.
	RetryAfter time.Time
	// AvoidedNodes are the names of nodes on which the job is not scheduled. They need not exist.
	AvoidedNodes []string
	// Held says that a queued job may not be scheduled yet, because its group holds it.
	Held bool
}

// Gang says which gang a job belongs to; the jobs of a gang say the same. Gangs with the same ID in
// different queues are different gangs.
type Gang struct {
	// ID names the gang within its queue. Empty: the job is a gang of its own, and the other fields are zero.
	ID string
	// Cardinality is the number of jobs of the gang.
	Cardinality int
	// MinimumCardinality is how many of them must be scheduled together; zero stands for Cardinality.
	MinimumCardinality int
	// NodeUniformityLabel, if not empty, is the label that must have the same value on all nodes of the gang.
	NodeUniformityLabel string
}

// Node is a node over which to schedule.
type Node struct {
	// Name is unique.
	Name string
	// Total is what the node offers to jobs of Armada.
	Total Resources
	// Labels are the labels that gangs may require to be uniform.
	Labels map[string]string
}
