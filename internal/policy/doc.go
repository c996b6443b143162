// Package policy decides what happens after a failed run.
//
// A [Set] contains everything that operators wrote: policies, group policies, queues and settings. [Compile] turns
// a [Definition] into a policy, [CompileGroup] a [GroupDefinition] into a group policy, and [New] makes a set of
// them; package policyfile reads definitions from files and from the log. A Set is immutable and safe for concurrent use.
//
// [Set.Evaluate] takes the facts of one failure and the retries already granted to its job, and returns the
// [Verdict]; [Set.Explain] returns the same verdict and the reason why each earlier rule did not match.
//
// Invariant: the same Set, Failure and Counts give the same Verdict, on any machine and at any time. The package
// uses no clock, no randomness, no I/O and no map order. Time is Failure.Time; jitter is derived from the run id.
//
// The package does not read files, fold events or keep counts; it does not know protobuf and does not render
// decisions for people.
//
// Where to look: verdict.go has the facts and the verdict, evaluate.go the order of a decision, matcher.go what a
// matcher is (conditions.go, exitcodes.go, message.go, labels.go and runduration.go have the matchers) and proof.go what is proven of
// them, index.go the choice of rules to try, delay.go the arithmetic; definition.go has the input of a set and set.go
// its internal form; outline.go has what lint and mutation tests see of a set, explain.go how Explain collects, names.go
// the names in files. ARCHITECTURE.md ("Where to change what") lists all places of a new matcher.
package policy
