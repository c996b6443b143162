// Package policyfile reads and writes what operators write: policies, queues and
// settings, in files (SEMANTICS 13) and in the canonical encoding of the log.
//
// A [Set] is the engine's [policy.Set] together with the text it was made from.
// [Parse] reads files, [ParseCanonical] the log. A Set never changes; [Set.With],
// [Set.Without] and their like make another one of it, resource by resource.
//
// What must hold:
//   - [Set.Canonical] holds all that can change a verdict, and nothing else:
//     equal canonical bytes decide equally.
//   - Every mistake is reported with its place, its path and its fix, and
//     nothing that has a mistake is used.
//
// What bounds the cost: a file has at most 512 KiB, a policy at most 1000 rules,
// and what its patterns take is bounded too. A policy depends on nothing but its
// text, so a Set takes over from the one before it what is the same, and only
// what changed is decoded and compiled.
//
// Where to look: spec.go and flat.go are the formats of the files, leaf.go,
// pattern.go and choice.go their scalars; parse.go and decode.go read them,
// canonical.go writes them for the log and reader.go reads that; set.go hands
// them to the engine; lint.go warns. load.go is the only I/O.
package policyfile
