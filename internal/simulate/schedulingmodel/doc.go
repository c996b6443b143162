// Package schedulingmodel is a second, plain implementation of Armada's scheduling algorithm,
// and a generator of instances to run it on. It is an oracle for tests of internal/simulate/scheduling:
// written from Armada's description and the readings in docs/internals/scheduling.md alone, in the most
// obvious way, sharing only the types of its input and result. R numbers in comments are
// readings of that page.
//
// Everything is recomputed from the mapping of jobs to nodes by linear scans, and fractions are
// rational numbers of any size.
package schedulingmodel
