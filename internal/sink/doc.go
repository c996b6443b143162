// Package sink is the ingester: it follows the decision chain of each partition
// and writes events and decisions together into a job database (protocol.md 11).
//
// Rows.Apply is the pure part: it applies one message of events, with the records for
// that message, to rows. The Writer loads rows, applies whole envelopes and writes the
// changes, with both positions, in one transaction; Fold does the same in memory from
// the beginning; Compare reports each difference.
//
// With Config.ReleaseAfter, the Writer does not wait for the chain indefinitely: a
// release ingests older messages without a decision, as Armada would without us, and
// is stored as a row (protocol.md 13). Later decisions on those messages are kept as
// superseded and have no effect.
//
// With Config.Retain, the Writer prunes jobs that are over, in transactions of their own
// (ADR 18); Want derives what is left.
//
// Invariant: the rows follow from the two logs and the releases alone, except that jobs
// that are over may be missing. Batches, crashes, second writers and repeated reads leave
// the same rows.
//
// The rows show the jobs as a scheduler that honours our decisions sees them. Our
// decision takes precedence over Armada's verdict, which is stored beside it. Where we
// have made no effective decision (shadow, NotDecided, no failed run, released),
// Armada's verdicts and requeues apply.
//
// The package makes no decisions, publishes nothing and knows no driver.
package sink
