package jobdb

import (
	"context"
	"errors"

	"github.com/refloat/refloat/internal/eventlog"
)

// The classes of errors. An implementation wraps them with details.
var (
	// ErrMoved: the position is not the expected one, because another process wrote.
	// Nothing was written; read the position again and continue from there.
	ErrMoved = errors.New("another process has moved the position")
	// ErrUnavailable: the database is locked, full or unreachable; a retry may help.
	ErrUnavailable = errors.New("job database is unavailable")
	// ErrForeign: this is not a job database of ours.
	ErrForeign = errors.New("not a refloat job database")
	// ErrNewer: a newer version of the program wrote the database.
	ErrNewer = errors.New("job database has a newer schema")
	// ErrAbsent: there is no job database yet, or one without tables: the first writer
	// creates them.
	ErrAbsent = errors.New("there is no job database yet")
	// ErrOlder: a writer must migrate the database before it can be read.
	ErrOlder = errors.New("job database has an older schema")
	// ErrRolledBack: the database was rolled back to Armada's own ingester, and ours
	// must not write it.
	ErrRolledBack = errors.New("job database was rolled back to Armada's ingester")
	// ErrReadOnly: the database cannot be written. Together with ErrUnavailable: it, or
	// the server that replaces it, may become writable.
	ErrReadOnly = errors.New("job database is read-only")
	// ErrDamaged: the database does not hold what was written to it. It is a fold of
	// the logs, so it can be rebuilt from them.
	ErrDamaged = errors.New("job database is damaged")
	// ErrDenied: the database denies this user access, or denies writing.
	ErrDenied = errors.New("job database denies this user access")
)

// Store is a job database as its writer uses it.
type Store interface {
	// Begin opens a transaction on one partition. It takes the partition's lock first,
	// so what the transaction reads stays true until it ends.
	Begin(ctx context.Context, partition int) (Tx, error)
}

// Tx is one transaction on one partition. It ends with Commit or Rollback; a Rollback
// after the end has no effect.
type Tx interface {
	// Positions returns the positions of the partition's rows.
	Positions() Positions
	// Origin returns the position up to which another ingester had applied the events
	// before the rows start, as recorded by a release of no messages from the
	// beginning; eventlog.Start: there is none.
	Origin(ctx context.Context) (eventlog.Position, error)
	// Load returns the rows that exist.
	Load(ctx context.Context, keys Keys) (*Found, error)
	Pruning
	// Write inserts or replaces rows. After an error, the transaction can only be rolled back.
	Write(ctx context.Context, changes *Changes) error
	// Commit moves the position by compare-and-set and ends the transaction. ErrMoved:
	// nothing was written. After any other error it is unknown whether the transaction
	// took effect.
	Commit(ctx context.Context, from, to Positions) error
	Rollback() error
}

// Sender is a Tx that can write while its caller does something else.
type Sender interface {
	// Send is Write, but for its result, which wait returns. Until then the transaction must not be used.
	Send(ctx context.Context, changes *Changes) (wait func() error)
}

// Pruning is the part of a transaction that prunes jobs.
type Pruning interface {
	// Clock returns what the age of jobs is counted from.
	Clock(ctx context.Context) (Clock, error)
	// Candidates returns jobs that may be pruned. It leaves out jobs with a pending retry
	// in Armada's tables.
	Candidates(ctx context.Context, which Candidates) ([]Job, error)
	// Delete deletes everything about these jobs of the partition: their runs, decisions,
	// NotDecided and Ready records included. It returns the number of rows.
	Delete(ctx context.Context, jobs, groups []string) (rows int, err error)
}

// Clock is the time in a partition's rows.
type Clock struct {
	LastEnd   int64 // the latest end of a job; 0: none has ended
	HorizonMS int64 // of the policy generation in force; 0: none is
}

// Candidates selects jobs that may be pruned.
type Candidates struct {
	// Unsubmitted selects jobs without a SubmitJob, by id, instead of those that have ended.
	Unsubmitted bool
	EndedBy     int64 // the latest end
	// Only jobs after this end and id.
	AfterEnd int64
	AfterJob string
	Limit    int
}

// Keys names the rows that a fold may read.
type Keys struct {
	Jobs []string
	Runs []RunKey
	// OpenRunsOf asks for all runs of these jobs without a reported end.
	OpenRunsOf []string
	// Sets asks for all jobs of these sets that were submitted and have not ended.
	Sets []SetKey
	// Groups and Units are ids.
	Groups, Units []string
}

// RunKey names a run within a partition.
type RunKey struct{ JobID, RunID string }

// SetKey names a job set within a partition.
type SetKey struct{ Queue, JobSet string }

// Found are the rows that Load found, in no particular order, each at least once.
type Found struct {
	Jobs   []Job
	Runs   []Run
	Groups []Group
	Units  []Unit
}

// Changes are rows to be written, each once. Jobs, runs, groups and units replace the row
// with the same key; the others are new.
type Changes struct {
	Jobs        []*Job
	Runs        []*Run
	Decisions   []*Decision
	NotDecided  []*NotDecided
	Parked      []*Parked
	Ready       []*Ready
	Activations []*Activation
	Releases    []*Release
	Groups      []*Group
	Units       []*Unit
	// GroupRecords are records of groups other than decisions.
	GroupRecords []*GroupRecord
	// Costs are not rows: they are added to kept sums. Nor are Replaced, which are subtracted from kept counts: what was counted of
	// the rows that Jobs replace.
	Costs    []*Cost
	Replaced []CountedJob
	// Recounted are those of Runs whose node or category may change although something was decided on them before. Kept counts follow.
	Recounted []RunKey
}

// Rows returns the number of rows to be written.
func (c *Changes) Rows() int {
	return len(c.Jobs) + len(c.Runs) + len(c.Decisions) + len(c.NotDecided) + len(c.Parked) + len(c.Ready) + len(c.Activations) + len(c.Releases) +
		len(c.Groups) + len(c.Units) + len(c.GroupRecords)
}

// Contents are all rows of one partition, jobs, runs, groups and units by key, the others in
// log order.
type Contents struct {
	Partition int
	Positions Positions
	Changes
	Miscounted []Miscount // where kept counts are not those of the rows
}

// CountedJob is what kept counts count of a job.
type CountedJob struct {
	Partition int
	Queue     string
	JobSet    string
	State     JobState
	Waiting   bool // with a pending retry
}

// Counted returns what is counted of the job.
func (j *Job) Counted() CountedJob {
	return CountedJob{j.Partition, j.Queue, j.JobSet, j.State, j.Queueing.RetryAfter > 0}
}

// Miscount is a kept count that is wrong.
type Miscount struct {
	Of        string // its key
	Want, Got int64
}
