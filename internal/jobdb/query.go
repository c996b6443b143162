package jobdb

import (
	"context"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
)

// Reader is a job database as its readers use it, also from other processes
// while a writer works.
type Reader interface {
	// View calls read with queries that all see one state of the database.
	View(ctx context.Context, read func(Queries) error) error
	Close() error
}

// Queries read rows. Those with visit call it for each row, in the order
// named, and stop at its first error, which they return as it is.
type Queries interface {
	// Jobs visits jobs by job id, then partition.
	Jobs(filter JobFilter, visit func(*Job) error) error
	// Runs visits the runs of a job in the order in which they became known.
	Runs(partition int, job string, visit func(*Run) error) error
	// Decisions visits decisions in partition and log order.
	Decisions(filter RecordFilter, visit func(*Decision) error) error
	// NotDecided visits in partition and log order.
	NotDecided(filter RecordFilter, visit func(*NotDecided) error) error
	// Ready visits in partition and log order.
	Ready(filter RecordFilter, visit func(*Ready) error) error
	// Parked visits in partition and log order.
	Parked(filter RecordFilter, visit func(*Parked) error) error
	// Activations visits in partition and log order.
	Activations(filter RecordFilter, visit func(*Activation) error) error
	// Releases visits in partition and log order.
	Releases(filter RecordFilter, visit func(*Release) error) error
	// Places are those of all partitions that were ever written, by partition.
	Places() ([]PartitionPlace, error)
	// Summary counts.
	Summary() (*Summary, error)
	// Contents are all rows of one partition.
	Contents(partition int) (*Contents, error)
}

// Moded are Queries of a database that has Armada's own tables beside ours.
type Moded interface {
	// IngestMode is the mode in which an ingester writes them, by its --mode; empty:
	// none does, or it did not say.
	IngestMode(partition int) (string, error)
}

// JobFilter narrows a list of jobs; its zero value takes all.
type JobFilter struct {
	JobID     string
	Queue     string
	JobSet    string
	States    []JobState // none: all
	WaitingAt int64      // only queued jobs whose RetryAfter is later than this time
	After     string     // only job ids above this one, to page on
	Limit     int        // 0: no limit
}

// RecordFilter narrows a list of records; its zero value takes all.
type RecordFilter struct {
	JobID string // not for parked records, activations and releases
	RunID string // likewise
	// From and To are decision numbers, both inclusive, for decisions only;
	// To 0: no end.
	From, To  uint64
	Partition *int // nil: all
	Last      int  // only so many, the last ones; 0: all
}

// PartitionPlace is the place of one partition.
type PartitionPlace struct {
	Partition int
	Place     Place
}

// Summary counts what is in a job database.
type Summary struct {
	Decisions  []DecisionCount // by kind, code, policy, rule
	Jobs       []JobCount      // by state
	NotDecided []NotDecidedCount
	Parked     []ParkedCount
	Runs       uint64
	Ready      uint64
	Releases   uint64
	Superseded uint64 // of all decisions, those that came too late for a release
}

// DecisionCount counts decisions of one sort.
type DecisionCount struct {
	Requeue      bool
	Shadow       bool
	Code         policy.Code
	Policy, Rule string
	Count        uint64
}

// JobCount counts the jobs of one state.
type JobCount struct {
	State JobState
	Count uint64
}

// NotDecidedCount counts the runs left alone for one reason.
type NotDecidedCount struct {
	Reason chain.NotDecidedReason
	Count  uint64
}

// ParkedCount counts what was parked for one reason.
type ParkedCount struct {
	Reason events.ParkReason
	Count  uint64
}
