// Package jobdb is the job database as plain Go rows, with the interfaces that
// its writer (package sink) and its readers need. It knows no driver: SQLite
// stands in jobdb/sqlite, and jobdbtest is the suite that every job database
// must pass.
//
// Invariant: the rows of a partition are one deterministic fold of its events,
// its decision chain and its releases up to the Place that stands beside them.
// Rows and place change in one transaction, the place by compare-and-set, so
// whoever writes, however often and however interrupted, leaves the same rows.
// Of the three, only the releases come from this database: when one is made
// depends on a clock, so it is a row, and the rest follows from it.
//
// Every row carries its partition: a job lives in one (SEMANTICS 1), and what
// a stranger writes about the same id elsewhere stays apart.
//
// Times are Unix nanoseconds; 0 means "not yet" or "not known".
package jobdb
