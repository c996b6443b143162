// Package policy decides what becomes of a failed run.
//
// A [Set] is everything that operators wrote: policies, queues and settings.
// [Compile] makes a policy of its [Definition] and [New] a set of policies;
// package policyfile reads definitions from files and from the log. A Set never
// changes and may be used by many goroutines.
//
// [Set.Evaluate] takes the facts of one failure and what was granted to its
// job before, and returns the one [Verdict] on it; [Set.Explain] returns the
// same verdict with the reason why each rule before it did not match.
//
// What must hold: the same Set, Failure and Counts give the same Verdict, on any
// machine, in any year. There is no clock, no randomness, no I/O and no map order
// in it. Time is Failure.Time, jitter comes from the run id.
//
// The package does not read files, fold events or count, does not know protobuf
// and does not render decisions for people.
//
// Where to look: verdict.go has the facts and the verdict, evaluate.go the
// order of a decision, match.go the matchers, index.go which rules are tried,
// delay.go the arithmetic; definition.go is what a set is built from and set.go
// what it looks like inside.
package policy
