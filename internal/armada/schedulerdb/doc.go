// Package schedulerdb says what Armada's scheduler ingester does to its database, so
// that an unmodified Armada scheduler can run on what we write.
//
// A Converter turns one message of events into operations (Op) on Armada's
// tables. The caller may leave some out or add its own before it gives them to
// package store, which writes them. What Armada's ingester would crash on, or try
// for ever, becomes a Finding instead.
//
// Invariant: the rows are those that Armada's ingester leaves when it is given
// the same messages one at a time, in order. How they are cut into batches does
// not show. (Armada's own batches can show, since within one it moves operations
// forward past others. What it does within a message is done here too.)
//
// What differs by nature: serial and last_modified, which a trigger of Armada's
// takes from a sequence and from the clock, and the bytes, though not the
// content, of columns that hold protobuf maps or zlib.
//
// The package is pure: no clock, no I/O. It decides nothing.
package schedulerdb
