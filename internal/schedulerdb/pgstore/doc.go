// Package pgstore writes Armada's scheduler database: it applies operations of package
// schedulerdb to PostgreSQL, under the lock that Armada's own ingester takes.
//
// It writes within a transaction of the caller, who may write other tables in it. A
// batch of operations is folded into at most one write per row and table, and sent as
// a few statements over arrays.
//
// Invariant: the rows are those that the operations produce one at a time, in order.
// Batch boundaries make no difference.
//
// The package makes no decisions, keeps no positions, begins and ends no transaction,
// and does not retry: the class of an error tells whether a retry may help.
package pgstore
