// Package controlplane follows Armada's control-plane topic, by which operators ask for
// executors to be cordoned and for the jobs of an executor, a node or a queue to be
// preempted or cancelled, and does in Armada's tables what Armada's scheduler
// ingester does there. What each message means is package armadadb's.
//
// Each message is one transaction that also moves our position in the topic, in the
// table refloat_control, from where the message is read from; so a message that was
// applied is not applied again, whoever reads it.
//
// Invariant: each message takes effect once, in the order of its partition, on the
// rows as they stand then. One that cannot be used is passed over, and told.
//
// The package decides nothing on retries. A job that waits for one is in the queue
// to everyone: asked to be cancelled there, the scheduler ends it, and package
// mirror its wait.
package controlplane
