// Package store writes Armada's scheduler database: operations of package
// armadadb become rows in PostgreSQL, under the lock that Armada's own ingester
// takes.
//
// A batch of operations is folded into at most one write per row and table, and
// sent as a few statements over arrays. The caller gets the same transaction, for
// the place of a partition and for tables of its own.
//
// Invariant: the rows are those that the operations leave one at a time, in
// their order. How they are cut into batches does not show.
//
// The package decides nothing, keeps no positions, and does not try again: its
// errors say by their class whether that may help.
package store
