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
// What bounds the cost: a file has 512 KiB at most, a policy 1000 rules, and what
// its patterns take is bounded too (pattern.go). A policy depends on nothing but
// its text, so a Set takes over from the one before it what is the same, and only
// what changed is decoded and compiled; an index (index.go) spares a decision the
// rules that cannot match.
//
// Where to look: verdict.go has the facts and the verdict, evaluate.go the
// order of a decision, match.go the matchers, index.go which rules are tried,
// delay.go the arithmetic; set.go and compile.go what a Set looks like inside.
// spec.go and flat.go are the formats of the files, leaf.go, pattern.go and
// choice.go their scalars; parse.go and decode.go read them, canonical.go writes
// them for the log and reader.go reads that, lint.go warns. load.go is the only
// I/O.
package policy
