// Package sim is a simulation of PROTOCOL: logs, owners, ingesters, their disks
// and their job database in one goroutine, with all choices from one seed.
//
// What it runs is the real code: evaluator.Owner, sink.Writer, and the chain
// and follow packages below them. What it replaces are the seams: the logs
// (whose readers lag, and whose sends land late, twice, never, or although they
// failed), the owners' stores (which lose what was not synced), the job
// database (whose commits end with an unknown result) and the clock.
//
// A run has two halves. In the first, faults of the kinds that the seed drew
// happen at any moment. In the second, nothing fails any more, and all must come
// to rest in a bounded number of steps. Then the logs are read once more by
// plain code of this package and by the naive model, and everything that any
// actor holds is compared with them.
//
// Invariant: the same seed and faults give the same run, step by step.
package sim
