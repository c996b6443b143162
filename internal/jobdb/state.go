package jobdb

import "fmt"

// JobState is where a job stands, as a scheduler that honours our decisions
// sees it.
type JobState uint8

// The states of a job. Their numbers are stored: never change one.
const (
	UnknownJob   JobState = iota // named by events, but no SubmitJob and no run was seen
	JobQueued                    // waits for a run; not before RetryAfter
	JobLeased                    // its latest run is known
	JobPending                   // its latest run's pod was created
	JobRunning                   // its latest run's pod runs
	JobSucceeded                 // ended
	JobFailed                    // ended by us, by a rejection or in a release; or Armada's verdict, where none of ours stands
	JobCancelled                 // ended
)

var jobStates = [...]string{"Unknown", "Queued", "Leased", "Pending", "Running", "Succeeded", "Failed", "Cancelled"}

// String is the state's name.
func (s JobState) String() string { return nameOf(jobStates[:], uint8(s), "JobState") }

// Terminal says whether the job is over, at least by Armada's verdict.
func (s JobState) Terminal() bool { return s >= JobSucceeded }

// ParseJobState finds a state by its name.
func ParseJobState(name string) (JobState, error) {
	for i, n := range jobStates {
		if n == name {
			return JobState(i), nil
		}
	}
	return UnknownJob, fmt.Errorf("no job state is called %q", name)
}

// JobStates are all states, in order.
func JobStates() []JobState {
	all := make([]JobState, len(jobStates))
	for i := range all {
		all[i] = JobState(i)
	}
	return all
}

// RunState is where a run stands.
type RunState uint8

// The states of a run. Their numbers are stored: never change one.
const (
	UnknownRun   RunState = iota // only the end of its pod was reported
	RunLeased                    // known
	RunPending                   // its pod was created
	RunRunning                   // its pod runs
	RunSucceeded                 // ended well
	RunFailed                    // ended without success
	RunCancelled                 // its job was cancelled while it ran, and no end of it was reported yet
)

var runStates = [...]string{"Unknown", "Leased", "Pending", "Running", "Succeeded", "Failed", "Cancelled"}

// String is the state's name.
func (s RunState) String() string { return nameOf(runStates[:], uint8(s), "RunState") }

// Ended says whether an end of the run was reported (SEMANTICS 1).
func (s RunState) Ended() bool { return s == RunSucceeded || s == RunFailed }

// Outcome is what was made of a failed run.
type Outcome uint8

// The outcomes of a failed run. Their numbers are stored: never change one.
const (
	NoOutcome Outcome = iota // it did not fail
	Requeued                 // JobRequeued
	Refused                  // JobFailed
	LeftAlone                // NotDecided
	Released                 // its failure was released: no decision on it counts
)

var outcomes = [...]string{"None", "Requeued", "Refused", "NotDecided", "Released"}

// String is the outcome's name.
func (o Outcome) String() string { return nameOf(outcomes[:], uint8(o), "Outcome") }

func nameOf(names []string, n uint8, kind string) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%s(%d)", kind, n)
}
