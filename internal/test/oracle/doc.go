// Package oracle runs rows of other systems' own tests (testdata/oracles) as
// tests of ours, and proves that they can fail.
//
// A suite reads a row's inputs, lets our code decide, and compares what the row
// expects. It leaves a row out only by a predicate over the row's own fields,
// with a reason. An input field that the suite does not know leaves the row out
// as well: what a test does not read, it must not seem to prove. So a new row of
// the same schema passes, fails or is left out without a change of the test.
//
// After the rows come their mutations: each expected value of each row that
// passed is changed, one at a time, and the suite must then report the row.
// Expected fields that are none of our decisions are listed by the suite with a
// reason, and only they are not changed.
package oracle
