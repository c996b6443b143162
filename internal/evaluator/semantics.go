package evaluator

import (
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/projection"
)

// SemanticsVersion is the newest version of SEMANTICS that this program decides by.
// It decides by every earlier one as well: Step goes by the version that the log
// named last. An empty log begins with the newest.
//
// A new version is a new number in chain.NewestSemantics and, for each thing that it
// decides differently, a function here that asks for the version in force. What a
// released version decides never changes: the reference model has the same versions,
// and the law tests compare both over histories that change between them.
const SemanticsVersion = chain.NewestSemantics

// The first versions of SEMANTICS that decide something differently.
const (
	// sinceTrueRunIndex names the next pod by the number of runs that are known.
	// Before, it was the failed run's index plus one, which counts backwards where
	// runs were imported, since the newest is imported first (ADR 11).
	sinceTrueRunIndex = 2
)

// nextRunIndex is the index in the name of the pod of a failed run's successor
// (SEMANTICS 10).
func nextRunIndex(semantics uint32, f *projection.Failure) uint32 {
	if semantics < sinceTrueRunIndex {
		return f.Run.Index + 1
	}
	return f.Job.Runs
}

// nextSemantics is the version by which a log that named one (0: none) goes on: the
// one that it names, until an operator asks for a newer one. Activating a version
// locks out every program that does not know it, so an upgraded program does not do
// it unasked.
func nextSemantics(named, asked uint32) uint32 {
	switch {
	case named == 0 && asked == 0:
		return SemanticsVersion
	case named > asked:
		return named
	}
	return asked
}
