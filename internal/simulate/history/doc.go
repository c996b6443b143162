// Package history makes inputs of the simulator from a recorded history of events: its jobs as a
// workload, the nodes that its runs name as a cluster, and a generated workload fitted to it.
//
// Invariant: what it returns is a function of the messages. What it had to assume stands beside it,
// as sentences.
//
// Not here: decisions. A history's run is what Armada reported, whoever decided that it takes place.
package history
