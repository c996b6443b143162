// Package bench measures what several packages do together: replay against
// plain protobuf decoding, and the state store at several numbers of jobs. It
// holds tests and benchmarks only.
//
// A machine's speed changes while it measures. So what is compared runs in
// pairs, in one process, in turns (x y y x …), and what is reported is the
// median of the pairs' ratios with its bootstrap interval (PROOF, "Measuring
// honestly"). Ratios are of the process's CPU time, in which other programs'
// turns do not stand; those of the wall clock are printed beside them. Before,
// one side runs against itself: where that interval passes 5 %, the result is
// marked void.
package bench
