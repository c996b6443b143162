// Package sim is a simulation of the protocol (docs/reference/protocol.md): logs, owners, ingesters, their disks
// and their job database in one goroutine, with all choices from one seed.
//
// It runs the real code: evaluator.Owner, sink.Writer, and the chain and follow
// packages below them. It replaces their interfaces to the outside: the logs (whose
// readers lag, and whose sends arrive late, twice, never, or although they reported an
// error), the owners' stores (which lose what was not synced), the job database (whose
// commits end with an unknown result) and the clock.
//
// A run has two halves. In the first, faults of the kinds that the seed drew happen at
// any moment. In the second, nothing fails, and everything must come to rest within a
// bounded number of steps. Then plain code of this package and the reference model
// read the logs again, and the state of every actor is compared with the result.
//
// Invariant: the same seed and faults give the same run, step by step.
package sim
