// Package scenario is what tests try on an Armada, as data: jobs, what is done to
// them and when, and how they end. The rows are in testdata of internal/test/armadabox,
// which runs them on a real Armada; internal/armada/writer runs those that it can on
// the stand-in for its scheduler.
//
//	Load            the rows
//	Look            what Armada's tables and ours say of a job set
//	Scenario.Judge  is it as the row expects?
//	Jobs.Always     is it as it must be of every job?
package scenario
