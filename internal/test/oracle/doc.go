// Package oracle runs rows of other systems' own tests (testdata/oracles) as
// tests of ours, and proves that they can fail.
//
// A suite reads a row's inputs, lets our code decide, and compares the result with what
// the row expects. It skips a row only by a predicate over the row's own fields, with
// a reason. A row with an input field that the suite does not know is skipped too: a
// test must not seem to prove what it does not read. So a new row of the same schema
// passes, fails or is skipped without a change of the test.
//
// Afterwards the suite mutates the rows: each expected value of each row that passed is
// changed, one at a time, and the suite must then report the row. The suite lists the
// expected fields that are not part of our decisions, with a reason; only those are
// not changed.
package oracle
