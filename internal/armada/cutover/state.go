package cutover

import (
	"errors"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// ErrRefused reports that nothing was done; the report's findings say why.
var ErrRefused = errors.New("refused")

// Site is the deployment in which one ingester replaces another. Cluster (with an
// AdminURL), the names, JobDB and Now are required.
type Site struct {
	Cluster           *pulsarlog.Cluster
	Events, Decisions string // topics, short or full names
	Control           string // Armada's control-plane topic; empty: not touched
	Subscription      string // of Armada's scheduler ingester, on both topics
	JobDB             string // URL of Armada's scheduler database
	NodeLabel         string // Armada's scheduling.nodeIdLabel; empty: its default
	// LeaveCursor is an operator acknowledgement for Back: where a topic no longer
	// holds the position of our ingester, Armada's ingester continues from its
	// subscription's position, and messages in between are applied twice or not at all.
	LeaveCursor bool
	Now         func() time.Time
}

// State is what Inspect found.
type State struct {
	Subscription string
	Partitions   []Partition
	Control      []Partition // of the control-plane topic; none: it does not exist
	Database     Database
	// Decisions says why our ingester cannot follow the decisions topic yet; nil: it can.
	Decisions error
}

// Partition is one partition of events or of control-plane, with its readers.
type Partition struct {
	Number  int
	Control bool // a partition of control-plane; only Events of its Positions is used
	Cursor  Cursor
	// Applied is the last message that Armada's ingester has applied, or why it is
	// unknown.
	Applied Position
	// First is the publish time of the first message that the topic holds, in Unix
	// nanoseconds; 0: it holds none. Whole: no message before it was ever deleted.
	First int64
	Whole bool
	// Older is the number of unfinished jobs that were submitted before the first
	// message, or at about that time. Start republishes them.
	Older int64
	// Positions are those of our rows; nil: no rows were written yet. EventsAt is Positions.Events in a form
	// comparable with Applied.
	Positions *jobdb.Positions
	EventsAt  Position
	Ingesters []string // connected ingesters of ours
	// Decided is where our ingester would start in decisions: after the last envelope
	// that covers only messages which Armada's ingester has applied. Undecided: why
	// there is no such position. Start looks for it.
	Decided   follow.Positions
	Undecided error
}

// Position is a position between two messages of a partition, given as the message
// before it. Why: it does not exist. Positions of one Inspect can be compared.
type Position struct {
	At  eventlog.Position
	Why error
	// Deleted: its ledger was deleted. A broker deletes neither a ledger that holds
	// messages which a subscription has not acknowledged, nor one after another that it
	// keeps; so no message between a cursor and the next message is missing.
	Deleted bool
	// Gone: the topic has no such ledger or entry. It is another topic, or was emptied
	// by force.
	Gone bool
}

// Cursor is Armada's subscription on one partition.
type Cursor struct {
	Missing    bool
	MarkDelete string   // all messages up to it are acknowledged; ledger:entry
	Holes      string   // acknowledged ranges after it; empty: none
	Backlog    int64    // estimated number of unacknowledged messages
	Consumers  []string // connected consumers
}

// Database is what Inspect found in the job database.
type Database struct {
	Problem        error // with Armada's tables; nil: they are as expected
	Ours           bool  // our tables exist
	Live           int64 // unfinished jobs
	PendingRetries int64 // jobs with a pending retry in Armada's tables
	HeldMembers    int64 // members of groups that Armada's tables do not have yet
	// RolledBack is when our positions were rolled back, in Unix nanoseconds; 0: they
	// are in use.
	RolledBack int64
}

// Finding is a problem or a note for the operator.
type Finding struct {
	Refuses bool   `json:"refuses"`       // the command refuses while this is so
	About   string `json:"about"`         // a partition or another subject
	What    string `json:"what"`          // what was found
	Fix     string `json:"fix,omitempty"` // what to do about it; empty: nothing
}

// Step is one step of the procedure.
type Step struct {
	What string
	Done bool // already, before this call
}

// Report is what was found and done; in a rehearsal, or if the command refused, what
// would have been done.
type Report struct {
	*State
	Findings []Finding
	Steps    []Step
}

// Refused reports whether a finding refuses.
func (r *Report) Refused() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Refuses })
}
