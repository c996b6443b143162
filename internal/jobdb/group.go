package jobdb

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
)

// Group is a group of jobs (docs/reference/semantics.md, Groups). Key: Partition, ID.
//
// A group that was forgotten and whose name is used again replaces the row; Binding then
// tells its members and units from those before.
type Group struct {
	Partition   int
	ID          string // GroupID of the next three
	Queue       string
	JobSet      string
	Name        string
	Binding     uint64 // the envelope that bound the name; 0: it was bound before the rows start
	Policy      string // "": a gang without a group policy, or bound before the rows start
	Digest      [32]byte
	Shape       policy.Shape // no parts: one of open size, or unknown
	State       policy.GroupState
	Reason      policy.UnitReason // of its end, or of the last unit that was left failed
	Rule        string            // of its end, or of the last unit that was left failed
	Generation  uint32            // restarts of the whole group
	Restarts    uint32            // by rules
	Counted     uint32            // of them, those that count towards MaxRestarts
	MaxRestarts uint32            // of the policy when it bound the group, or was asked last
	Updated     eventlog.Position // as Job.Updated
}

// GroupID names a group in a column: half of SHA-256, in hex.
func GroupID(queue, jobSet, name string) string {
	var b []byte
	for _, s := range []string{queue, jobSet, name} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Unit is one replica of a part of a group. Key: Partition, ID.
type Unit struct {
	Partition int
	ID        string // UnitID of the group, Part and Replica
	GroupID   string
	Binding   uint64 // of the group
	Part      string
	Replica   uint32
	// State does not show a success: a unit has succeeded when as many members as must
	// (Shape) have. See [Unit.StateWith].
	State      UnitState
	Reason     policy.UnitReason // why it failed last
	Generation uint32
	Restarts   uint32 // by `restarts` of the part
	Retries    uint32 // granted to its members since the last restart, against retryLimit
	Taken      string // the indexes of its members, as Indexes writes them
}

// UnitID names a unit in a column.
func UnitID(group, part string, replica uint32) string {
	return fmt.Sprintf("%s/%d/%s", group, replica, part)
}

// UnitState is the state of a unit.
type UnitState uint8

// The states of a unit. Their numbers are stored: never change one.
const (
	UnitActive UnitState = iota
	UnitSucceeded
	UnitFailed // and left so
)

// String returns the state's name.
func (s UnitState) String() string {
	return policy.NameAt([]string{"Active", "Succeeded", "Failed"}, uint8(s), "UnitState")
}

// StateWith returns the state of a unit of which the members with these indexes succeeded.
func (u *Unit) StateWith(succeeded policy.Indexes, shape *policy.Shape) UnitState {
	if p := shape.Part(u.Part); p != nil && u.State == UnitActive && p.Enough(succeeded) {
		return UnitSucceeded
	}
	return u.State
}

// Membership is what a job is in its group; zero: it is in none.
type Membership struct {
	GroupID    string
	Binding    uint64
	Group      string
	Part       string
	Replica    uint32
	Index      uint32
	Generation uint32 // of its unit, as the last record about the job said
	State      MemberState
	// Restarting: it was told to start again, and its next run is not known yet.
	// Whatever its latest run still does has no effect.
	Restarting bool
}

// MemberState is what a group knows of a member.
type MemberState uint8

// The states of a member. Their numbers are stored: never change one.
const (
	NoMember         MemberState = iota
	MemberActive                 // neither held nor over
	MemberHeld                   // may not start yet
	MemberSucceeded              // over
	MemberFailed                 // over: failed for good, and its unit did not fail at once by that alone
	MemberUnitFail               // over: failed for good, and that failed its unit
	MemberCancelled              // over, and never restarted: cancelled or rejected
	MemberStopped                // over: stopped with its unit or group
	MemberUnanswered             // in no group: its submission was released, and the chain has not said yet whether it is in the one that it names
)

var memberStates = [...]string{"None", "Active", "Held", "Succeeded", "Failed", "FailedUnit", "Cancelled", "Stopped", "Unanswered"}

// String returns the state's name.
func (s MemberState) String() string { return policy.NameAt(memberStates[:], uint8(s), "MemberState") }

// Over reports whether the member is over.
func (s MemberState) Over() bool { return s >= MemberSucceeded && s != MemberUnanswered }

// MemberShown returns the state of a member as every list shows it: one that was stopped, and whose run succeeded all the
// same, has succeeded, as its job has. (Its unit does not count it, because it was over: [Unit.StateWith].)
func (j *Job) MemberShown() MemberState {
	if j.Member.State == MemberStopped && j.State == JobSucceeded {
		return MemberSucceeded
	}
	return j.Member.State
}

// Terminating reports whether a member was told to stop, or to start again, while a run of
// it has not reported its end.
func (j *Job) Terminating() bool {
	return j.Queueing.OpenRuns > 0 && (j.State == JobQueued || j.State == JobHeld || j.State == JobStopping)
}

// GroupRecord is a record of a group other than a decision: chain.GroupBound,
// GroupFinding, MemberChange, UnitEnded or GroupEnded. Or it is an OrderAnswered, which has no group.
type GroupRecord struct {
	Where
	Acted   bool   // of MemberChange and OrderAnswered: it changed the job
	Name    string // of the record
	GroupID string
	JobID   string // "" of UnitEnded and GroupEnded
	RunID   string // of MemberChange and OrderAnswered
	Raw     []byte // the record, as in the decision log
}

// Record returns the record itself.
func (r *GroupRecord) Record() (chain.Record, error) {
	rec, err := chain.DecodeRecord(r.Raw)
	if err != nil {
		return nil, fmt.Errorf("record %d of envelope %d: %w", r.Where.Record, r.Seq, err)
	}
	return rec, nil
}

// NewGroupRecord returns the row of a record, without its place; nil if it is none of a
// group, and no answer to an order.
func NewGroupRecord(r chain.Record) *GroupRecord {
	var row *GroupRecord
	switch r := r.(type) {
	case *chain.GroupBound:
		row = &GroupRecord{Name: "GroupBound", GroupID: GroupID(r.Queue, r.JobSet, r.Group), JobID: r.JobID}
	case *chain.GroupFinding:
		row = &GroupRecord{Name: "GroupFinding", GroupID: GroupID(r.Queue, r.JobSet, r.Group), JobID: r.JobID}
	case *chain.MemberChange:
		row = &GroupRecord{Name: r.Change.String(), GroupID: GroupID(r.Queue, r.JobSet, r.Member.Group), JobID: r.JobID, RunID: r.RunID}
	case *chain.UnitEnded:
		row = &GroupRecord{Name: "UnitEnded", GroupID: GroupID(r.Queue, r.JobSet, r.Member.Group)}
	case *chain.OrderAnswered:
		row = &GroupRecord{Name: "OrderAnswered", JobID: r.JobID, RunID: r.RunID}
	case *chain.GroupEnded:
		row = &GroupRecord{Name: "GroupEnded", GroupID: GroupID(r.Queue, r.JobSet, r.Group)}
	default:
		return nil
	}
	row.Raw = chain.AppendRecord(nil, r)
	return row
}
