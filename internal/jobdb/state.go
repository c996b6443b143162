package jobdb

import "github.com/refloat/refloat/internal/policy"

// JobState is the state of a job as seen by a scheduler that honours our decisions.
type JobState uint8

// The states of a job. Their numbers are stored: never change one.
const (
	UnknownJob   JobState = iota // named by events, without a SubmitJob or a run
	JobQueued                    // waits for a run; not before RetryAfter
	JobLeased                    // its latest run is known
	JobPending                   // its latest run's pod was created
	JobRunning                   // its latest run's pod runs
	JobSucceeded                 // ended
	JobFailed                    // by us, by a rejection or in a release; or by Armada's verdict if we have no decision
	JobCancelled                 // ended
	JobHeld                      // a member of a group that may not start yet
	JobStopping                  // a member of a group that was stopped; its end is not reported yet
)

var jobStates = [...]string{"Unknown", "Queued", "Leased", "Pending", "Running", "Succeeded", "Failed", "Cancelled", "Held", "Stopping"}

// String returns the state's name.
func (s JobState) String() string { return policy.NameAt(jobStates[:], uint8(s), "JobState") }

// Terminal reports whether the job has ended, at least by Armada's verdict.
func (s JobState) Terminal() bool { return s >= JobSucceeded && s <= JobCancelled }

// Waiting reports whether the job waits for a run, whether or not it may have one yet.
func (s JobState) Waiting() bool { return s == JobQueued || s == JobHeld }

// RunState is the state of a run.
type RunState uint8

// The states of a run. Their numbers are stored: never change one.
const (
	UnknownRun   RunState = iota // only the end of its pod was reported
	RunLeased                    // known
	RunPending                   // its pod was created
	RunRunning                   // its pod runs
	RunSucceeded                 // ended successfully
	RunFailed                    // ended without success
	RunCancelled                 // its job was cancelled while it ran, and its end has not been reported yet
)

var runStates = [...]string{"Unknown", "Leased", "Pending", "Running", "Succeeded", "Failed", "Cancelled"}

// String returns the state's name.
func (s RunState) String() string { return policy.NameAt(runStates[:], uint8(s), "RunState") }

// Ended reports whether the end of the run was reported (docs/reference/semantics.md).
func (s RunState) Ended() bool { return s == RunSucceeded || s == RunFailed }

// Outcome is what was decided about a failed run.
type Outcome uint8

// The outcomes of a failed run. Their numbers are stored: never change one.
const (
	NoOutcome Outcome = iota // it did not fail
	Requeued                 // JobRequeued
	Denied                   // JobFailed
	LeftAlone                // NotDecided
	Released                 // its failure was released: decisions on it have no effect
)

var outcomes = [...]string{"None", "Requeued", "Denied", "NotDecided", "Released"}

// String returns the outcome's name.
func (o Outcome) String() string { return policy.NameAt(outcomes[:], uint8(o), "Outcome") }
