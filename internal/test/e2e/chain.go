package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
)

// Run identifies a run.
type Run struct{ Job, ID string }

// Chain is what one partition of the decision log says so far, read plainly.
type Chain struct {
	Seq, Epoch uint64
	InTo       eventlog.Position // of the last accepted envelope
	Answered   uint64            // messages

	Claims, Activations, Parked, Accepted int // Accepted: histories
	Decisions, NotDecided                 int
	Records                               map[Run]int    // how many decide on a run, or say why not
	Ignored                               map[string]int // by reason, as package chain names them

	link   [32]byte
	owner  []byte
	groups groupScan
}

// NewChain is an empty chain.
func NewChain() *Chain {
	return &Chain{InTo: eventlog.Start, Records: map[Run]int{}, Ignored: map[string]int{}, groups: newGroupScan()}
}

// Offer reads the next message of the partition: protocol.md 1 to 3. It returns
// what was wrong with it, or nothing when it was accepted.
func (c *Chain) Offer(raw []byte) (ignored string, err error) {
	var e pb.Envelope
	if proto.Unmarshal(raw, &e) != nil || e.Seq == 0 || e.Epoch == 0 || len(e.ProtoReflect().GetUnknown()) > 0 || !checked(raw, e.Check) {
		return c.ignore("malformed"), nil
	}
	records := make([]*pb.Record, len(e.Records))
	for i, b := range e.Records {
		records[i] = &pb.Record{}
		if proto.Unmarshal(b, records[i]) != nil {
			return c.ignore("malformed"), nil
		}
	}
	var claim *pb.OwnerClaim
	if len(records) == 1 {
		claim = records[0].GetOwnerClaim()
	}
	switch {
	case claim != nil && claim.LastSeq > c.Seq:
		return "", fmt.Errorf("epoch %d was claimed at envelope %d, only %d are here", claim.Epoch, claim.LastSeq, c.Seq)
	case claim == nil && (e.Epoch > c.Epoch || e.Epoch == c.Epoch && !bytes.Equal(e.Owner, c.owner)):
		return "", fmt.Errorf("envelope %d is of epoch %d, whose claim is not here (the last is of epoch %d)", e.Seq, e.Epoch, c.Epoch)
	case claim == nil && e.Epoch < c.Epoch:
		return c.ignore("old_epoch"), nil
	case claim != nil && (claim.LastSeq != c.Seq || !bytes.Equal(claim.LastLink, c.link[:]) || claim.Epoch != c.Epoch+1):
		return c.ignore("lost_claim"), nil
	case e.Seq <= c.Seq:
		return c.ignore("repeated"), nil
	case e.Seq != c.Seq+1:
		return c.ignore("not_next"), nil
	case !bytes.Equal(e.Link, c.link[:]):
		return c.ignore("wrong_link"), nil
	case position(e.InFrom) != c.InTo:
		return c.ignore("wrong_range"), nil
	}
	c.Seq, c.Epoch, c.owner, c.InTo, c.link = e.Seq, e.Epoch, e.Owner, position(e.InTo), sha256.Sum256(raw)
	c.Answered += e.InCount
	for _, r := range records {
		c.take(r)
	}
	return "", nil
}

// checked says whether an envelope ends with the checksum of all before.
func checked(raw []byte, check uint32) bool {
	const number = 9
	end := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), uint64(check))
	body, ok := bytes.CutSuffix(raw, end)
	return ok && crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) == check
}

func (c *Chain) ignore(why string) string {
	c.Ignored[why]++
	return why
}

func (c *Chain) take(r *pb.Record) {
	c.groups.take(r)
	switch v := r.Record.(type) {
	case *pb.Record_JobRequeued:
		c.Decisions++
		c.Records[Run{v.JobRequeued.JobId, v.JobRequeued.RunId}]++
	case *pb.Record_JobFailed:
		c.Decisions++
		c.Records[Run{v.JobFailed.JobId, v.JobFailed.RunId}]++
	case *pb.Record_NotDecided:
		c.NotDecided++
		c.Records[Run{v.NotDecided.JobId, v.NotDecided.RunId}]++
	case *pb.Record_Parked:
		c.Parked++
	case *pb.Record_PolicyActivated:
		c.Activations++
	case *pb.Record_OwnerClaim:
		c.Claims++
	case *pb.Record_HistoryAccepted, *pb.Record_StateRebuilt:
		c.Accepted++
	}
}

func position(p *pb.Position) eventlog.Position {
	if p == nil {
		return eventlog.Start
	}
	return eventlog.Position{Ledger: p.Ledger, Entry: p.Entry, Batch: p.Batch}
}

// Failures are the runs that failed in one partition of events, read plainly: a
// run ends once, well or by a failure (semantics.md 1).
type Failures struct {
	Messages uint64
	ended    map[Run]bool // true: by a failure
}

// NewFailures is what an empty log says.
func NewFailures() *Failures { return &Failures{ended: map[Run]bool{}} }

// Read takes in the next message.
func (f *Failures) Read(payload []byte) {
	f.Messages++
	var seq pb.EventSequence
	if proto.Unmarshal(payload, &seq) != nil || seq.Queue == "" || seq.JobSetName == "" {
		return
	}
	for _, ev := range seq.Events {
		switch e := ev.Event.(type) {
		case *pb.Event_JobRunSucceeded:
			f.end(e.JobRunSucceeded.JobId, e.JobRunSucceeded.RunId, false)
		case *pb.Event_JobRunPreempted:
			f.end(e.JobRunPreempted.PreemptedJobId, e.JobRunPreempted.PreemptedRunId, true)
		case *pb.Event_JobRunErrors:
			for _, x := range e.JobRunErrors.Errors {
				if x.Terminal {
					f.end(e.JobRunErrors.JobId, e.JobRunErrors.RunId, true)
				}
			}
		}
	}
}

func (f *Failures) end(job, run string, failed bool) {
	r := Run{job, run}
	if _, before := f.ended[r]; job != "" && run != "" && !before {
		f.ended[r] = failed
	}
}

// Failed is how many runs failed.
func (f *Failures) Failed() (n int) {
	for _, failed := range f.ended {
		if failed {
			n++
		}
	}
	return n
}

// Violations are the runs that do not have the one record that they must have, and what is
// wrong with the records of groups.
func (f *Failures) Violations(c *Chain) (found []string) {
	found = append(found, c.groups.wrong...)
	for r, failed := range f.ended {
		if n := c.Records[r]; failed && n != 1 {
			found = append(found, fmt.Sprintf("run %s of job %s failed and has %d records, want 1", r.ID, r.Job, n))
		}
	}
	for r, n := range c.Records {
		if !f.ended[r] {
			found = append(found, fmt.Sprintf("run %s of job %s did not fail and has %d records", r.ID, r.Job, n))
		}
	}
	return found
}
