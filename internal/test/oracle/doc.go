// Package oracle runs rows of other systems' own tests (testdata/oracles) as
// tests of ours, and proves that they can fail.
//
// A row must fit the schema of its file (testdata/oracles/schema.yaml). One that does not is an error that names file,
// row, field and what is wanted, and stops no other row; nor does a panic.
//
// A suite reads a row's inputs, lets our code decide, and compares the result with what
// the row expects. It leaves a row out only by a predicate over the row's own content, with
// a reason about our semantics. The row runs nevertheless: if it passes, it is not left out, and
// if every row that a reason holds for passes, the reason is an error. So a new row of the same schema
// passes, fails or is left out without a change of the test.
//
// Afterwards the suite mutates the rows: each expected value of each row that passed is
// changed, one at a time, and the suite must then report the row. The suite lists the
// expected fields that are not part of our decisions, with a reason; only those are
// not changed.
package oracle
