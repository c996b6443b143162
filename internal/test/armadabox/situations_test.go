package armadabox_test

const (
	becauseRunning   = "jobs that run come first in their queue"
	becauseKeep      = "what is not `preemptible` is never preempted"
	becausePart      = "minimum cardinalities are not read"
	becauseRejoin    = "the requeued member of an evicted gang is selected with those that run"
	becauseUnplaced  = "those that run are selected with the requeued one, and lose their nodes if it finds none"
	becauseFilling   = "of nodes with equal victims, Armada takes that of the job that it would select last"
	becauseHead      = "jobs that run come first in their queue, whatever their class: when a2 is selected, a1 has its node again"
	becauseLonger    = "of jobs that run, those whose runs are older come first, whenever they were submitted"
	becauseProtected = "`LikeArmada` protects no part of a fair share"
	becauseUnlabeled = "a gang of one is a plain job, its label does not count"
)

// situations are run under a real Armada, each in a pool of its own.
var situations = []situation{
	{name: "two queues share a node", nodes: "n0 4", jobs: "a1 1; a2 1; a3 1; b1 1; b2 1; b3 1"},
	{name: "an odd place goes to the first queue by name", nodes: "n0 3", jobs: "a1 1; a2 1; b1 1; b2 1"},
	{name: "by weight: factor 2 gets half as much", nodes: "n0 6", jobs: "a1 1; a2 1; a3 1; a4 1; a5 1; v1 1; v2 1; v3 1; v4 1"},
	{name: "by weight: factor 3", nodes: "n0 8", jobs: "a1 1; a2 1; a3 1; a4 1; a5 1; a6 1; a7 1; w1 1; w2 1; w3 1; w4 1"},
	{name: "by weight: factor 3/2", nodes: "n0 5", jobs: "a1 1; a2 1; a3 1; a4 1; u1 1; u2 1; u3 1; u4 1; u5 1"},
	{name: "what a queue already has counts", nodes: "n0 4", jobs: "a1 2 on=n0 class=keep; a2 1; b1 1; b2 1"},
	{name: "the job to select counts in the fraction", nodes: "n0 4", jobs: "a1 3; b1 1; b2 1; b3 1"},
	{name: "a gang counts as a whole in the fraction", nodes: "n0 4", jobs: "a1 1 gang=g,3; a2 1 gang=g,3; a3 1 gang=g,3; b1 1; b2 1"},
	{name: "a queue without competition gets everything", nodes: "n0 3", jobs: "a1 1; a2 1; a3 1"},
	{name: "three queues", nodes: "n0 3; n1 3", jobs: "a1 1; a2 1; a3 1; b1 1; b2 1; b3 1; c1 1; c2 1; c3 1"},
	{name: "jobs of different sizes", nodes: "n0 6", jobs: "a1 2; a2 2; b1 1; b2 1; b3 1; b4 1"},

	{name: "in a queue: by class", nodes: "n0 1", jobs: "a1 1 class=low; a2 1; a3 1 class=high"},
	{name: "in a queue: by priority", nodes: "n0 1", jobs: "a1 1 priority=2; a2 1 priority=1; a3 1 priority=3"},
	{name: "in a queue: by time", nodes: "n0 1", jobs: "a1 1 at=9; a2 1 at=3; a3 1 at=5"},
	{name: "in a queue: by name", nodes: "n0 1", jobs: "a2 1 at=1; a1 1 at=1"},
	{name: "class before priority", nodes: "n0 1", jobs: "a1 1 priority=1; a2 1 class=high priority=9"},
	{name: "a job without room is passed over", nodes: "n0 2", jobs: "a1 3; a2 2"},
	{name: "a smaller job behind one without room", nodes: "n0 3", jobs: "a1 2; a2 2; a3 1"},

	{name: "urgent jobs of the queue with more come first", nodes: "n0 2", jobs: "a1 1 on=n0 class=keep; a2 1 class=high; b1 1"},
	{name: "preemption by urgency", nodes: "n0 1", jobs: "a1 1 on=n0; b1 1 class=high"},
	{name: "preemption by urgency in a queue", nodes: "n0 1", jobs: "a1 1 on=n0; a2 1 class=high"},
	{name: "an urgent job, its own queue's job and another's", nodes: "n0 1; n1 1", jobs: "a1 1 class=low on=n0; a2 1 class=high; b1 1 class=low on=n1", because: becauseHead},
	{name: "by urgency, though the other queue is below its share and protected", nodes: "n0 2", jobs: "a1 1 class=low on=n0; b1 1 class=keep on=n0; b2 1 class=high", protected: 1},
	{name: "the least urgent is preempted", nodes: "n0 2", jobs: "a1 1 on=n0; b1 1 class=low on=n0; c1 1 class=high"},
	{name: "no more than needed is preempted", nodes: "n0 3", jobs: "a1 1 class=low on=n0; a2 1 class=low on=n0; a3 1 class=low on=n0; b1 1 class=high"},
	{name: "not of a more urgent job", nodes: "n0 1", jobs: "a1 1 class=high on=n0; b1 1"},
	{name: "not among equals that are not preemptible", nodes: "n0 1", jobs: "a1 1 class=keep on=n0; b1 1 class=keep"},
	{name: "not of a class that is not preemptible, to fair share", nodes: "n0 2", jobs: "a1 1 class=keep on=n0; a2 1 class=keep on=n0; b1 1"},
	{name: "by urgency, of a class that is not preemptible", nodes: "n0 1", jobs: "a1 1 class=keep on=n0; b1 1 class=high", because: becauseKeep},
	{name: "by urgency, beside a class that is not preemptible", nodes: "n0 2", jobs: "a1 1 class=keep on=n0; a2 1 class=low on=n0; b1 1 class=high"},
	{name: "one that is not preemptible preempts", nodes: "n0 1", jobs: "a1 1 class=low on=n0; b1 1 class=keep"},
	{name: "what an urgent job leaves goes to the most urgent", nodes: "n0 4", jobs: "a1 3 on=n0; a2 1 class=low on=n0; b1 1 class=top; c1 2 class=low; c2 3"},

	{name: "preemption to fair share", nodes: "n0 4", jobs: "a1 1 on=n0; a2 1 on=n0; a3 1 on=n0; a4 1 on=n0; b1 1; b2 1; b3 1"},
	{name: "preemption to fair share, by weight", nodes: "n0 6", jobs: "a1 1 on=n0; a2 1 on=n0; a3 1 on=n0; a4 1 on=n0; a5 1 on=n0; a6 1 on=n0; v1 1; v2 1; v3 1"},
	{name: "the queue with most loses", nodes: "n0 4", jobs: "a1 1 on=n0; b1 1 on=n0; b2 1 on=n0; b3 1 on=n0; c1 1"},
	{name: "nobody has more than his share", nodes: "n0 2", jobs: "a1 1 on=n0; b1 1 on=n0; c1 1"},
	{name: "nobody has more than his share, protected", nodes: "n0 4", jobs: "a1 2 on=n0; a2 2 on=n0; b1 1; b2 1; b3 1", protected: 1},
	{name: "one preemption makes room for two", nodes: "n0 4", jobs: "a1 2 on=n0; a2 2 on=n0; b1 1; b2 1"},
	{name: "running jobs return if nothing else is to be scheduled", nodes: "n0 2; n1 2", jobs: "a1 2 on=n1; a2 2 on=n0"},
	{name: "an evicted job returns to its own node only", nodes: "n0 2; n1 4", jobs: "a1 2 on=n0; b1 4 on=n1; c1 1; c2 1"},
	{name: "room elsewhere: nobody is preempted", nodes: "n0 2; n1 2", jobs: "a1 2 on=n0; b1 2"},
	{name: "the victim runs on one of several nodes", nodes: "n0 2; n1 2", jobs: "a1 2 on=n0; a2 2 on=n1; b1 2"},
	{name: "victims of two queues", nodes: "n0 6", jobs: "a1 1 on=n0; a2 1 on=n0; a3 1 on=n0; b1 1 on=n0; b2 1 on=n0; b3 1 on=n0; c1 1; c2 1; c3 1"},
	{name: "one large job, victims of two queues", nodes: "n0 6", jobs: "a1 1 on=n0; a2 1 on=n0; a3 1 on=n0; b1 1 on=n0; b2 1 on=n0; b3 1 on=n0; c1 2"},
	{name: "one large urgent job, victims of two queues", nodes: "n0 6", jobs: "a1 1 class=low on=n0; a2 1 class=low on=n0; a3 1 class=low on=n0; b1 1 class=low on=n0; b2 1 class=low on=n0; b3 1 class=low on=n0; c1 2 class=high"},
	{name: "a requeued job beside a running one of its queue", nodes: "n0 1", jobs: "a1 1 at=2 on=n0; a2 1 at=1", because: becauseRunning},
	{name: "a requeued job of another queue", nodes: "n0 2", jobs: "a1 1 at=5 on=n0; a2 1 at=6 on=n0; b1 1 at=1"},
	{name: "a requeued job keeps its place among queued ones", nodes: "n0 2", jobs: "a1 1 on=n0; a2 1 at=9; a3 1 at=1"},

	{name: "the youngest run is preempted, though submitted first", nodes: "n0 2", jobs: "a1 1 on=n0 since=9; a2 1 on=n0 since=5; b1 1", because: becauseLonger},
	{name: "the youngest two of four runs", nodes: "n0 4", jobs: "a1 1 on=n0 since=20; a2 1 on=n0 since=10; a3 1 on=n0 since=15; a4 1 on=n0 since=12; b1 1; b2 1", because: becauseLonger},
	{name: "priority before the age of runs", nodes: "n0 2", jobs: "a1 1 priority=2 on=n0 since=1; a2 1 priority=1 on=n0 since=9; b1 1"},
	{name: "class before the age of runs", nodes: "n0 2", jobs: "a1 1 class=low on=n0 since=1; a2 1 on=n0 since=9; b1 1"},
	{name: "runs of one age, by submission", nodes: "n0 2", jobs: "a1 1 at=2 on=n0 since=9; a2 1 at=1 on=n0 since=9; b1 1"},
	{name: "the youngest run by urgency", nodes: "n0 2", jobs: "a1 1 class=low on=n0 since=9; a2 1 class=low on=n0 since=1; b1 1 class=high", because: becauseLonger},
	{name: "the youngest runs of two queues", nodes: "n0 6", jobs: "a1 1 on=n0 since=9; a2 1 on=n0 since=1; a3 1 on=n0 since=2; b1 1 on=n0 since=8; b2 1 on=n0 since=2; b3 1 on=n0 since=1; c1 1; c2 1", because: becauseLonger},
	{name: "a gang that is younger than its queue's jobs", nodes: "n0 4", jobs: "a1 1 gang=g,2 on=n0 since=9; a2 1 gang=g,2 on=n0 since=9; a3 1 on=n0 since=1; a4 1 on=n0 since=2; b1 1; b2 1", because: becauseLonger},
	{name: "a job that is younger than its queue's gang", nodes: "n0 4", jobs: "a1 1 on=n0 since=9; a2 1 on=n0 since=8; a3 1 gang=g,2 on=n0 since=1; a4 1 gang=g,2 on=n0 since=2; b1 1; b2 1", because: becauseLonger},
	{name: "a retried job runs for a shorter time than one that was submitted after it", nodes: "n0 3", jobs: "a1 1 at=1 on=n0 since=50; a2 1 at=5 on=n0 since=6; a3 1 at=7; b1 1 at=60; b2 1 at=61"},

	{name: "best fit", nodes: "n0 4; n1 2; n2 3", jobs: "a1 2"},
	{name: "best fit by what is free", nodes: "n0 4; n1 3", jobs: "a1 2 on=n0 class=keep; b1 1"},
	{name: "equal nodes", nodes: "n0 2; n1 2", jobs: "a1 1; a2 1; a3 1"},
	{name: "best fit by cpu, then memory", nodes: "n0 2/8; n1 2/4", jobs: "a1 1/1"},
	{name: "larger than any node", nodes: "n0 2; n1 2", jobs: "a1 3; a2 1"},
	{name: "without a request", nodes: "n0 1", jobs: "a1 1 on=n0 class=keep; a2 0"},
	{name: "memory is short", nodes: "n0 9/2", jobs: "a1 1/1; a2 1/2; a3 1/1"},

	{name: "a gang, all", nodes: "n0 1; n1 1", jobs: "a1 1 gang=g,2; a2 1 gang=g,2"},
	{name: "a gang, or nothing", nodes: "n0 1", jobs: "a1 1 gang=g,2; a2 1 gang=g,2; a3 1"},
	{name: "an incomplete gang", nodes: "n0 9", jobs: "a1 1 gang=g,3; a2 1 gang=g,3; a3 1"},
	{name: "minimum cardinality", nodes: "n0 2", jobs: "a1 1 gang=g,3,2; a2 1 gang=g,3,2; a3 1 gang=g,3,2", because: becausePart},
	{name: "node uniformity label", nodes: "n0 1 rack=r; n1 2 rack=s", jobs: "a1 1 gang=g,2,2,rack; a2 1 gang=g,2,2,rack"},
	{name: "node uniformity: no value has room", nodes: "n0 1 rack=r; n1 1 rack=s", jobs: "a1 1 gang=g,2,2,rack; a2 1 gang=g,2,2,rack"},
	{name: "node uniformity: the value without preemption", nodes: "n0 2 rack=r; n1 2 rack=s", jobs: "b1 1 on=n0; c1 1 gang=g,2,2,rack; c2 1 gang=g,2,2,rack"},
	{name: "a gang preempts", nodes: "n0 1; n1 1", jobs: "a1 1 class=low on=n0; b1 1 class=low on=n1; c1 1 gang=g,2; c2 1 gang=g,2", because: becauseFilling},
	{name: "a gang without room preempts nobody", nodes: "n0 1", jobs: "a1 1 class=low on=n0; c1 1 gang=g,2; c2 1 gang=g,2"},
	{name: "a gang is preempted as a whole", nodes: "n0 1; n1 1", jobs: "a1 1 class=low gang=g,2 on=n0; a2 1 class=low gang=g,2 on=n1; b1 1 class=high", because: becauseFilling},
	{name: "a requeued member beside a running gang, with room", nodes: "n0 3", jobs: "a1 1 gang=g,3 on=n0; a2 1 gang=g,3 on=n0; a3 1 gang=g,3", because: becauseRejoin},
	{name: "a requeued member beside a running gang, without room", nodes: "n0 2", jobs: "a1 1 gang=g,3 on=n0; a2 1 gang=g,3 on=n0; a3 1 gang=g,3", because: becauseUnplaced},

	{name: "a requeued member beside a running gang, protected", nodes: "n0 2", jobs: "a1 1 gang=g,3 on=n0; a2 1 gang=g,3 on=n0; a3 1 gang=g,3", protected: 1, because: becauseProtected},
	{name: "a gang of one with a label", nodes: "n0 1; n1 1 rack=r", jobs: "a1 1 gang=g,1,1,rack", because: becauseUnlabeled},
	{name: "avoided nodes", nodes: "n0 2; n1 3", jobs: "a1 1 avoid=n0"},
	{name: "all nodes avoided", nodes: "n0 2; n1 3", jobs: "a1 1 avoid=n0,n1"},
	{name: "an avoided node is not preempted on", nodes: "n0 1; n1 1", jobs: "a1 1 class=low on=n0; b1 1 class=low on=n1; c1 1 avoid=n0"},
	{name: "the dominant share: memory beside cpu", nodes: "n0 8/8", jobs: "a1 2/1; a2 2/1; a3 2/1; b1 1/4; b2 1/4; b3 1/4"},
	{name: "the dominant share of one queue is memory", nodes: "n0 10/4", jobs: "a1 1/1; a2 1/1; a3 1/1; b1 2/0; b2 2/0; b3 2/0; b4 2/0"},
}
