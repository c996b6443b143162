// Package suite runs policies on invented failures: the tests in *_test.yaml files,
// their coverage, and the mutants that they do not detect.
//
// A [Trial] is one job that fails as specified. Its failures become Armada's events,
// the evaluator's own Step decides them, and audit's Explain explains the decision:
// this package neither matches nor counts. A [Suite] is a file of tests, parsed as
// strictly as policies; [Suite.Run] reports deviations from what is expected.
// [Mutants] are the same policies with one change each: a good suite fails on each of
// them. [Coverage] lists the rules that no test reached.
//
// The package uses no I/O and no clock: files come in as bytes, and tests specify the
// time.
package suite
