// Package cutover lets our ingester replace Armada's scheduler ingester on the same
// tables, and rolls that back.
//
// The position of Armada's ingester is its subscription's cursor on each partition
// of events. Start makes it the position of our rows, with an empty release that
// records what Armada's ingester had applied: our ingester then applies exactly the
// messages after it. Back ends all pending retries in Armada's tables and moves the
// cursor to just after what our ingester applied. Armada's subscription exists all
// the time, so the broker keeps what Armada did not read.
//
// Invariant: each message of events is applied to Armada's tables by one of the two
// ingesters, in order, and none is skipped. (The beginning of a batch that Armada's
// ingester was processing when it stopped may be applied again, as Armada's own
// ingester does.) In case of doubt the package refuses, and writes nothing.
//
// Inspect queries the broker and the database; pure code checks the results; a rehearsal
// ends before the first write. The package starts and stops no process.
package cutover
