// Package controlplane follows Armada's control-plane topic, by which operators cordon
// executors, and preempt or cancel the jobs of an executor, a node or a queue. It makes
// the same changes to Armada's tables as Armada's scheduler ingester. Package
// schedulerdb defines what each message means.
//
// Each message is applied in one transaction that also advances our position in the
// topic, in the table refloat_control. Readers start from that position, so no message
// is applied twice, whoever reads it.
//
// Invariant: each message takes effect once, in the order of its partition, on the
// rows as they are at that time. A message that cannot be processed is skipped and
// reported.
//
// The package has nothing to do with retry decisions. A job with a pending retry is in
// the queue like any other: if it is cancelled there, the scheduler ends the job, and
// package writer ends its pending retry.
package controlplane
