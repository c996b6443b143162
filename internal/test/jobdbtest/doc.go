// Package jobdbtest is the test suite that every job database must pass: positions
// by compare-and-set, two writers, rollback, replaced rows, text of every kind,
// large batches, readers beside a writer, every query.
package jobdbtest
