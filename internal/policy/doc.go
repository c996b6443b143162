// Package policy decides what becomes of a failed run.
//
// A [Set] is everything that operators wrote: policies, queues and settings.
// [Parse] reads it from files, [ParseCanonical] from the log. It never changes
// after that and may be used by many goroutines.
//
// [Set.Evaluate] takes the facts of one failure and what was granted to its
// job before, and returns the one [Verdict] on it; [Set.Explain] returns the
// same verdict with the reason why each rule before it did not match.
//
// What must hold:
//   - The same Set, Failure and Counts give the same Verdict, on any machine,
//     in any year. There is no clock, no randomness, no I/O and no map order
//     in it. Time is Failure.Time, jitter comes from the run id.
//   - [Set.Canonical] holds all that can change a verdict, and nothing else:
//     equal canonical bytes decide equally.
//
// The package does not fold events, does not count, does not know protobuf
// and does not render decisions for people.
//
// Where to look: verdict.go has the facts and the verdict, evaluate.go the
// order of a decision, match.go the matchers, delay.go the arithmetic; set.go
// and compile.go what a Set looks like inside. spec.go and flat.go are the
// formats of the files, leaf.go and choice.go their scalars; parse.go and
// decode.go read them, canonical.go writes them, lint.go warns. load.go is the
// only I/O.
package policy
