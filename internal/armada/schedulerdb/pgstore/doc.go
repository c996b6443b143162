// Package pgstore writes Armada's scheduler database: operations of package
// armadadb become rows in PostgreSQL, under the lock that Armada's own ingester
// takes.
//
// It writes inside a transaction of the caller's, beside tables of the caller's
// own. A batch of operations is folded into at most one write per row and table,
// and sent as a few statements over arrays.
//
// Invariant: the rows are those that the operations leave one at a time, in
// their order. How they are cut into batches does not show.
//
// The package decides nothing, keeps no positions, opens and ends no transaction
// and does not try again: its errors say by their class whether that may help.
package pgstore
