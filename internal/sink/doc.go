// Package sink is the ingester: it follows the decision chain of each partition
// and writes events and decisions together into a job database (PROTOCOL 11).
//
// Rows.Apply is the pure part: one message of events with the records that
// answer it changes rows. The Writer loads rows, applies whole envelopes and
// writes what changed, with both positions, in one transaction; Fold does the
// same in memory from the beginning; Compare names each difference.
//
// Where Config.ReleaseAfter says so, the Writer does not wait for the chain for
// ever: a release takes in what is older than that without any decision, as
// Armada has it without us, and is a row (PROTOCOL 13). What the chain says of
// those messages later is kept as superseded and changes nothing.
//
// Invariant: the rows follow from the two logs and the releases alone. Batches,
// crashes, second writers and repeated reads leave the same rows.
//
// What the rows mean: the job database as a scheduler that honours our
// decisions sees it. A decision stands above Armada's verdict, which is kept
// beside it. Where there is none of ours (shadow, NotDecided, no failed run,
// released), Armada's verdicts and requeues count.
//
// The package does not decide, publishes nothing and knows no driver.
package sink
