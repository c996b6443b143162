// Package jobdb defines the rows of the job database as plain Go values, and the
// interfaces that its writer (package sink) and its readers need. It knows no driver:
// jobdb/sqlite and jobdb/postgres implement it, and jobdbtest is the test suite that
// every job database must pass.
//
// Invariant: the rows of a partition are one deterministic fold of its events, its
// decision chain and its releases, up to the Positions that are stored with them. Rows and
// position change in one transaction, the position by compare-and-set, so the rows are
// the same whoever writes them, however often and however interrupted. Of the three
// inputs, only the releases come from this database: when one is made depends on a
// clock, so each is stored as a row, and the rest follows from it.
//
// Every row includes its partition: a job lives in one partition (semantics.md 1), and
// foreign messages about the same id in another partition stay separate.
//
// Times are Unix nanoseconds; 0 means "not yet" or "unknown".
package jobdb
