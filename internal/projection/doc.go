// Package projection is Refloat's state of jobs: one record per job, and one per run
// that is no longer the job's latest, folded from events and decisions.
//
// State.Process processes one message: fold applies its events (to fold is to apply
// events to state, in log order), settle and apply process each failure and the decision
// on it. It is pure but for reads through a KV, from which State loads what is not in
// memory, and which a CancelJobSet scans; Flush writes changes to a Batch. Store keeps a partition's records in Pebble, Memory in memory: a law test
// checks that both end with the same records.
//
// Invariant: the state is a function of the events and the records of the decision
// log, whatever the batches, restarts and owners (see docs/reference/protocol.md). Counts come from records
// alone, never from a policy.
//
// Keys of one partition (job ids are escaped if something follows them):
//
//	m                       meta: positions, chain end, hashes, watermark
//	j <job>                 job, with its latest run
//	r <job> 00 01 <run>     runs of the job that are not its latest
//	s <queue> 00 01 <set> 00 01 <job>   the known jobs of a set
//	x <weight> <base> <job> expiry index: forget the job at base + weight × horizon
package projection
