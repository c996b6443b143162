// Package suite tries policies on invented failures: the tests of
// *_test.yaml files, what they reach, and what they would not notice.
//
// A [Trial] is one job that fails as told. Its failures become Armada's events,
// the evaluator's own Step decides them, and audit's own Explain says why:
// nothing here matches or counts. A [Suite] is a file of tests, read as strictly
// as policies are; [Suite.Run] tells what came otherwise than expected.
// [Mutants] are the same policies with one thing wrong: a good suite goes red on
// each. [Coverage] lists the rules that no test reached.
//
// There is no I/O and no clock here: files come in as bytes, and time is what
// the tests say.
package suite
