// Package app assembles the parts, and the loops over them: on one machine the three logs, the state and the job
// database in one data directory, or the topics of a Pulsar cluster (pulsar.go). The programs in cmd/ read flags and call it.
//
// It contains no decision logic: evaluator and sink define what is decided, and the order in which it becomes
// durable.
package app
