// Package simulate shows what a policy set does to a cluster before it is in force: it runs a
// workload on a cluster in virtual time. Jobs arrive, scheduling.Schedule places and preempts
// them, runs succeed or fail by a failure model, and what happens reaches the evaluator's Step as
// Armada's events. Step decides, and its decisions are obeyed: a job runs again, not before its
// time and not on the nodes to avoid, or is lost.
//
// Invariant: a Result is a function of Options alone. Every choice is drawn from a hash of the seed
// and of what it is about (the third run of job 17), not of what was drawn before: candidates under
// one seed see the same jobs, and the n-th run of a job has the same luck under each of them.
//
// Not here: what a retry would really have done. That is a model; Assumptions lists what it assumes.
// (internal/test/sim is something else: it simulates the protocol of our own logs.)
package simulate
