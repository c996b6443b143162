// Package app puts the parts together on one machine: the three logs, the
// state and the job database in one data directory, and the loops over them.
// The programs in cmd/ read flags and call it.
//
// It holds no logic of its own: what is decided, and in what order it becomes
// durable, is in evaluator and sink.
package app
