package jobdb

import (
	"context"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
)

// Reader is a job database as its readers use it, also from other processes and while a
// writer works.
type Reader interface {
	// View calls read with queries that all see one snapshot of the database.
	View(ctx context.Context, read func(Queries) error) error
	Close() error
}

// Queries read rows. Methods with visit call it for each row, in the named order; they
// stop at its first error, and return it unwrapped.
type Queries interface {
	// JobList visits a page of jobs. It returns what the next page begins after; nil: there
	// is none. So do the other lists.
	JobList(c *Criteria, p Page, visit func(*Job) error) (next []any, err error)
	RunList(c *Criteria, p Page, visit func(*Run) error) (next []any, err error)
	// HeldRunList is RunList, with what the job of each run requests. It is for all of a list: it looks each job up.
	HeldRunList(c *Criteria, p Page, visit func(*HeldRun) error) (next []any, err error)
	DecisionList(c *Criteria, p Page, visit func(*Decision) error) (next []any, err error)
	GroupList(c *Criteria, p Page, visit func(*Group) error) (next []any, err error)
	// Top counts the effective decisions that the criteria select, by one of Tops, those
	// with the most retries first. 0: no limit. jobs: it counts their jobs too, for which it reads all of them.
	Top(by string, c *Criteria, limit int, jobs bool) ([]Top, error)
	// Names returns up to so many names of one sort (Named) that contain a text, whatever the case; first those that begin
	// with it, and all for "". more: there may be others; it looks at MaxNames names that do not begin with the text.
	Names(of, text string, limit int) (names []string, more bool, err error)
	// CountJobs counts the jobs that the criteria select.
	CountJobs(c *Criteria) (uint64, error)
	// CountRuns counts the runs that the criteria select.
	CountRuns(c *Criteria) (uint64, error)
	// CountDecisions counts the decisions that the criteria select, by kind, effect, code, policy and rule.
	CountDecisions(c *Criteria) ([]DecisionCount, error)
	// QueuesInShadow returns the queues with decisions in shadow, by name.
	QueuesInShadow() ([]string, error)
	// Hours returns the decisions of each hour that has any, by effect, in the order of time. They are kept counts, so pruned
	// decisions are still among them.
	Hours(f HourFilter) ([]HourCount, error)
	// Costs returns what runs held, by key and kind. They are kept sums, so pruned runs are still in them.
	Costs(f CostFilter) ([]CostSum, error)
	// Runs visits the runs of a job in the order in which they became known.
	Runs(partition int, job string, visit func(*Run) error) error
	// Decisions visits decisions in partition and log order.
	Decisions(filter RecordFilter, visit func(*Decision) error) error
	// NotDecided visits them in partition and log order.
	NotDecided(filter RecordFilter, visit func(*NotDecided) error) error
	// Ready visits them in partition and log order.
	Ready(filter RecordFilter, visit func(*Ready) error) error
	// Parked visits them in partition and log order.
	Parked(filter RecordFilter, visit func(*Parked) error) error
	// Activations visits them in partition and log order.
	Activations(filter RecordFilter, visit func(*Activation) error) error
	// Releases visits them in partition and log order.
	Releases(filter RecordFilter, visit func(*Release) error) error
	// Units visits the units of a group.
	Units(g *Group, visit func(*Unit) error) error
	// Members visits the members of a group by job id.
	Members(g *Group, visit func(*Job) error) error
	// GroupRecords visits records of groups other than decisions, in partition and log order.
	GroupRecords(filter RecordFilter, visit func(*GroupRecord) error) error
	// Positions returns the positions of all partitions that were ever written, by
	// partition.
	Positions() ([]PartitionPositions, error)
	// Retries visits the queues with retries that have no run yet, in any of these
	// partitions, those with the most first. Delayed are those that start after now, in
	// Unix nanoseconds.
	Retries(partitions []int, now int64, visit func(*QueueRetries) error) error
	// Counted returns the kept counts of some queues; none: of all.
	Counted(queues []string) (Counted, error)
	// Summary counts all rows, for which it reads some of them.
	Summary() (*Summary, error)
	// Contents returns all rows of one partition.
	Contents(partition int) (*Contents, error)
}

// Named are the sorts of names that Names finds: of everything that has a row, not only of what failed.
var Named = []string{"queue", "set", "group", "node", "category", "policy", "rule"}

// MaxNames bounds the names that Names looks at for those that contain a text.
const MaxNames = 10_000

// Moded is implemented by Queries of a database that also has Armada's own tables.
type Moded interface {
	// IngestMode returns the mode in which an ingester writes Armada's tables, as in
	// --mode; empty: no ingester does, or its mode is unknown.
	IngestMode(partition int) (string, error)
	// InArmada reports whether Armada's tables still have a job.
	InArmada(job string) (bool, error)
}

// RecordFilter selects records; the zero value selects all.
type RecordFilter struct {
	JobID string // not for parked records, activations and releases
	RunID string // as JobID
	// From and To are decision numbers, both inclusive, for decisions only;
	// To 0: no end.
	From, To  uint64
	Partition *int // nil: all
	// Group selects what is about one group, for decisions and records of groups only.
	Group *Group
	Seq   uint64 // with Group: only of this envelope; 0: all
	Last  int    // only the last so many; 0: all
}

// PartitionPositions are the positions of one partition.
type PartitionPositions struct {
	Partition int
	Positions Positions
}

// QueueRetries counts the granted retries of a queue that have no run yet.
type QueueRetries struct {
	Queue   string
	Jobs    uint64
	Delayed uint64 // of Jobs, those that may not start yet
	Latest  int64  // when the last one may start, Unix nanoseconds
}

// Counted is what kept counts say of a job database.
type Counted struct {
	Decisions  []DecisionCount // as CountDecisions returns them
	Jobs       []JobCount      // by state
	NotDecided []NotDecidedCount
}

// Summary counts the rows of a job database.
type Summary struct {
	Counted
	Parked   []ParkedCount
	Runs     uint64
	Ready    uint64
	Releases uint64
}

// DecisionCount counts decisions of one kind, effect, code, policy and rule.
type DecisionCount struct {
	Requeue      bool
	Shadow       bool
	Acted        bool
	Code         policy.Code
	Policy, Rule string
	Count        uint64
}

// HourFilter selects hours.
type HourFilter struct {
	Queue, Policy string // one of them, or neither: all decisions
	Rule          string // of the policy; "": all
	// From is the first hour, To the one after the last; 0: no limit.
	From, To int64
}

// HourOf returns the hour of a time in Unix nanoseconds, counted from 1970.
func HourOf(time int64) int64 { return time / 3600e9 }

// HourCount counts the decisions of an hour, of one kind and effect, by HourOf of the failure.
type HourCount struct {
	Hour    int64
	Requeue bool
	Shadow  bool
	Acted   bool
	Count   uint64
}

// JobCount counts the jobs of one state.
type JobCount struct {
	State JobState
	Count uint64
}

// NotDecidedCount counts the failed runs that were not decided for one reason.
type NotDecidedCount struct {
	Reason chain.NotDecidedReason
	Count  uint64
}

// ParkedCount counts what was parked for one reason.
type ParkedCount struct {
	Reason events.ParkReason
	Count  uint64
}
