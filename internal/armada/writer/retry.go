package writer

import (
	"time"

	"github.com/refloat/refloat/internal/schedulerdb"
)

// jobView is the part of a job's row in Armada's tables that plans need.
type jobView struct {
	id, queue, set string
	known          bool
	over           bool // it is finished
	cancelled      bool
	validated      bool // the scheduler has checked that it fits somewhere
	queued         bool
	version        int32         // queued_version
	infoVersion    int32         // scheduling_info_version
	submitted      []byte        // JobSchedulingInfo, version 0
	retry          *pendingRetry // nil: no retry is pending
	retryChanged   bool
	held           *schedulerdb.InsertJob // its row, while it is held before its first start
	heldChanged    bool
}

func (j *jobView) put(w *pendingRetry) {
	if w != nil && w.due() == never {
		w = nil
	}
	if j.retry != w || w != nil {
		j.retry, j.retryChanged = w, true
	}
}

// pendingRetry is a row of refloat_waits: a pending retry with a step that is still due.
type pendingRetry struct {
	runID      string // the failed one
	number     uint64 // the decision's number
	policy     string
	retryAfter int64 // Unix nanoseconds
	podUntil   int64 // when pods have ended whose end began with a write of ours; 0: there are none
	avoid      []string
	copied     bool // publish a copy when the job is queued
	delayed    bool // its requirements match no node until it is ready
	stage      stage
	nextAt     int64  // when the next step of its stage is due
	text       string // in place of the run's error; only until it is written
	checks     int    // expectingRun: the checks that are left; each but the last bumps the version
}

// stage is what a pending retry waits for, besides the end of a delay.
type stage int

const (
	settled      stage = iota // nothing: the scheduler starts the next run by itself
	forgetting                // the scheduler has failed the job and will have forgotten it at nextAt, when the job is queued
	expectingRun              // a new run, which is checked at nextAt
)

// stageOf returns the stage of a row.
func stageOf(isForgetting bool, checks int) stage {
	switch {
	case isForgetting:
		return forgetting
	case checks > 0:
		return expectingRun
	}
	return settled
}

func (w *pendingRetry) settle() { w.stage, w.checks = settled, 0 }

func (w *pendingRetry) forget(now int64) {
	w.stage, w.checks, w.nextAt = forgetting, 0, now+int64(forgetAfter)
}

func (w *pendingRetry) expectRun(now int64) {
	w.stage, w.checks, w.nextAt = expectingRun, maxChecks, now+int64(checkEvery)
}

// restarted returns the retry with the times of a restart.
func (w *pendingRetry) restarted(by *pendingRetry) *pendingRetry {
	later := *w
	later.retryAfter, later.podUntil = by.retryAfter, max(w.podUntil, by.podUntil)
	return &later
}

// ready returns when the next run may start.
func (w *pendingRetry) ready() int64 { return max(w.retryAfter, w.podUntil) }

// due returns when the next step is due, or never.
func (w *pendingRetry) due() int64 {
	at := never
	if w.stage != settled {
		at = w.nextAt
	}
	if w.delayed && w.stage != forgetting {
		at = min(at, w.ready())
	}
	return at
}

const never = int64(1<<63 - 1)

// Times of the two steps; see docs/operate.md.
const (
	// forgetAfter is how long the scheduler has to read its own failure of a job back
	// from the database, and to forget the job: a few of its cycles.
	forgetAfter = 3 * time.Second
	// checkEvery is the timeout for a new run, after which the version is bumped again.
	// A scheduler that accepts the job starts a run within a cycle or two.
	checkEvery = 5 * time.Second
	// maxChecks is the number of these checks; each but the last bumps the version.
	maxChecks = 6
	// leaseWithin is how long a lease may take to arrive that the scheduler made before it
	// saw the last bump. Its version is not above that of the row, so the wait stays until
	// then: without it the job would stay queued beside its run.
	leaseWithin = time.Minute
	// recheckAfter is the delay while newer events have not been read yet.
	recheckAfter = time.Second
	// maxWait keeps a time with a grace and a slack before afterAll.
	maxWait = 100 * 365 * 24 * time.Hour
)
