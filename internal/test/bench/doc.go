// Package bench measures several packages together: replay compared with plain
// protobuf decoding, and the state store at several numbers of jobs. It holds only
// tests and benchmarks.
//
// A machine's speed changes during a measurement. So compared workloads run in pairs,
// in one process, in alternating order (x y y x …), and the result is the median of the
// pairs' ratios with its bootstrap interval. Ratios are
// of the process's CPU time, which excludes the time of other programs; those of the
// wall clock are printed beside them. First, one side runs against itself: if that
// interval exceeds 5 %, the result is marked void.
package bench
