// Package app assembles the parts on one machine: the three logs, the state and the job database in one data
// directory, and the loops over them. The programs in cmd/ read flags and call it.
//
// It contains no decision logic: evaluator and sink define what is decided, and the order in which it becomes
// durable.
package app
