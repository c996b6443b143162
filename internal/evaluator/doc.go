// Package evaluator decides the failed runs of a partition.
//
// Its core is pure. Processor.Step folds one message into the projection, decides
// each run that failed in it, applies each decision, and returns the records.
// Processor.Replay does the same with decisions that are already in the log. Live
// processing, restart, takeover, audit and what-if analysis all use these two. (Only
// after a loss of input that an operator accepted, Processor.Rebuild applies decisions
// without comparing anything.)
//
// Owner wraps the core in the life cycle of one partition, as a state machine that
// never waits for a log: restore, catch up with the decision log, claim, then publish,
// read back, commit (apply to the store, not fsynced), sync (fsync), acknowledge
// (protocol.md 6 to 10, docs/reference/protocol.md). Run is the loop that waits.
//
// Invariant: an owner commits only what the decision log says; a decision is
// effective when it has been read back as accepted, never before.
//
// Where to look: step.go has the pure core, owner.go the phases, live.go the order of
// writes, refuse.go why a partition is refused, rebuild.go lost input.
package evaluator
