// Package evaluator decides the failed runs of a partition.
//
// Its core is pure: Processor.Step folds one message into the projection,
// decides each run that failed in it, applies each decision, and returns the
// records; Processor.Replay does the same with the decisions that stand in the
// log. Live work, restart, takeover, audit and what-if all go through the two.
//
// Around it, Owner is one partition's life as a machine that never waits:
// restore, catch up with the decision log, claim, then publish, read back,
// commit, sync, acknowledge (PROTOCOL 6 to 10). Run is the loop that waits for it.
//
// Invariant: what an owner commits is what the decision log says; a decision
// counts when it was read back accepted, never before.
package evaluator
