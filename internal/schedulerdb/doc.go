// Package schedulerdb defines what Armada's scheduler ingester does to its database, so
// that an unmodified Armada scheduler can run on what we write.
//
// A Converter turns one message of events into operations (Op) on Armada's tables. The
// caller may omit some or add its own before it passes them to package pgstore, which
// writes them. A message on which Armada's ingester would crash, or retry forever,
// becomes a Finding instead.
//
// Invariant: the rows are those that Armada's ingester writes if it receives the same
// messages one at a time, in order. Batch boundaries make no difference. (Armada's own
// batches can make one, because it moves operations forward past others within a batch.
// What it does within a message is done here too.)
//
// Unavoidable differences: serial and last_modified, which a trigger of Armada's
// takes from a sequence and from the clock, and the bytes, though not the content, of
// columns that hold protobuf maps or zlib.
//
// The package is pure: no clock, no I/O. It makes no decisions.
package schedulerdb
