// Package scenario describes the tests on an Armada as data: jobs, the steps applied to
// them and when, and how the jobs end. The rows are in testdata of
// internal/test/armadabox, which runs them on a real Armada; internal/armada/writer runs
// those that it can on the stand-in for its scheduler.
//
//	Load            reads the rows
//	Look            reads Armada's tables and ours for a job set
//	Scenario.Judge  compares them with what the row expects
//	Jobs.Always     checks what must hold for every job
package scenario
