// Package evaluator decides the failed runs of a partition.
//
// Its core is pure. Processor.Step folds one message into the projection, decides
// each run that failed in it, applies each decision, and returns the records.
// Processor.Replay does the same with decisions that are already in the log. Live
// processing, restart, takeover, audit and what-if analysis all use these two.
//
// Owner wraps the core in the life cycle of one partition, as a state machine that
// never blocks: restore, catch up with the decision log, claim, then publish, read
// back, commit, sync, acknowledge (PROTOCOL 6 to 10). Run is the loop that waits.
//
// Invariant: an owner commits only what the decision log says; a decision is
// effective when it has been read back as accepted, never before.
package evaluator
