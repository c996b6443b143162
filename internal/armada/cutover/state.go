package cutover

import (
	"errors"
	"time"

	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// ErrRefused is for what is not done; the report's findings say why.
var ErrRefused = errors.New("refused")

// Site is where one ingester takes the place of another. Cluster, with an
// AdminURL, the names, JobDB and Now are required.
type Site struct {
	Cluster           *pulsarlog.Cluster
	Events, Decisions string // topics, short or full names
	Control           string // Armada's control-plane topic; empty: it is left alone
	Subscription      string // that of Armada's scheduler ingester, on both of its topics
	JobDB             string // URL of Armada's scheduler database
	NodeLabel         string // Armada's scheduling.nodeIdLabel; empty: its default
	// LeaveCursor is an operator's acknowledgement for Back: where the position of our
	// ingester is not in a topic any more, Armada's goes on from where its subscription
	// stands, and what lies between is taken in twice or not at all.
	LeaveCursor bool
	Now         func() time.Time
}

// State is what Look found.
type State struct {
	Subscription string
	Partitions   []Partition
	Control      []Partition // of the control-plane topic; none: it is not there
	Database     Database
	// Decisions is why our ingester cannot follow the decisions topic yet; nil: it can.
	Decisions error
}

// Partition is one partition of events, or of control-plane, with those who read it.
type Partition struct {
	Number  int
	Control bool // it is of control-plane; of its place only Events is used
	Cursor  Cursor
	// Taken is the last message that Armada's ingester has taken in, or why that
	// cannot be told.
	Taken Position
	// First is when the first message that the topic holds was published, in Unix
	// nanoseconds; 0: it holds none. Whole: none was ever deleted before it.
	First int64
	Whole bool
	// Older is how many jobs that are not over were submitted before the first
	// message, or about then: Start tells of them.
	Older int64
	// Place is where our rows stand; nil: nowhere yet. PlaceAt is it as Taken has it.
	Place     *jobdb.Place
	PlaceAt   Position
	Ingesters []string // of ours, connected
	// Decided is where our ingester would begin in decisions: behind the last envelope
	// that answers nothing but what Armada's ingester has taken in. Undecided: it
	// cannot begin, and why. Start looks for it.
	Decided   follow.Place
	Undecided error
}

// Position is a place between two messages of a partition, as the last message
// before it; Why: it is not there. Positions of one look can be compared.
type Position struct {
	At  eventlog.Position
	Why error
	// Deleted: the ledger in which it stood was deleted. A broker deletes none that
	// holds what a subscription did not acknowledge, nor one behind another that it
	// keeps; so for a cursor, nothing is missing up to the next message.
	Deleted bool
	// Gone: the topic has no such ledger or entry, so it is another topic, or was
	// emptied by force.
	Gone bool
}

// Cursor is Armada's subscription on one partition.
type Cursor struct {
	Missing    bool
	MarkDelete string   // up to there all is acknowledged; ledger:entry
	Holes      string   // what is acknowledged beyond it; empty: nothing
	Backlog    int64    // about how many messages it did not acknowledge
	Consumers  []string // connected
}

// Database is what stands in the job database.
type Database struct {
	Problem error // with Armada's tables; nil: they are as we know them
	Ours    bool  // there are tables of ours
	Live    int64 // jobs that are not over
	Waits   int64 // of them, those whose retry waits in Armada's tables
	// GivenBack is when our places were given back, in Unix nanoseconds; 0: they are ours.
	GivenBack int64
}

// Finding is something that a person should know.
type Finding struct {
	Refuses bool   // nothing is done while it is the case
	About   string // a partition, or another thing
	What    string // is the case
	Fix     string // what to do; empty: nothing
}

// Step is one thing that is done.
type Step struct {
	What string
	Done bool // before already
}

// Report is what was found, and what was done: in a rehearsal, or where it was
// refused, what would have been.
type Report struct {
	*State
	Findings []Finding
	Steps    []Step
}

// Refused says whether a finding refuses.
func (r *Report) Refused() bool {
	for _, f := range r.Findings {
		if f.Refuses {
			return true
		}
	}
	return false
}
