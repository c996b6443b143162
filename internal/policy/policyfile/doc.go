// Package policyfile reads and writes what operators write: policies, group
// policies, queues and settings, in files (semantics.md 13, semantics.md 12.2) and in the
// canonical encoding of the log.
//
// A [Set] is the engine's [policy.Set] together with the text it was made from.
// [Parse] reads files, [ParseCanonical] the log. A Set is immutable; [Set.With],
// [Set.Without] and similar methods return a new one, resource by resource.
//
// Invariants:
//   - [Set.Canonical] holds everything that can affect a verdict, and nothing else:
//     equal canonical bytes decide equally.
//   - Every mistake is reported with its position, its path and its fix, and a file
//     with mistakes is not used.
//
// Costs are bounded: a file has at most 512 KiB, a policy at most 1000 rules, and the
// size of its patterns is limited too. A policy depends only on its text, so a Set
// reuses unchanged policies of its predecessor, and decodes and compiles only changed
// ones.
//
// Where to look: spec.go, group.go and flat.go define the formats of the files, leaf.go,
// pattern.go and choice.go their scalars; parse.go and decode.go read them,
// canonical.go writes them for the log and reader.go reads that; set.go passes them
// to the engine; lint.go warns. load.go has the only I/O.
package policyfile
