package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/model"
)

// mirror does what package armada/writer does with decisions: it publishes copies of them
// to events within the transaction, those of some requeues in a later transaction. Its
// waits stand for the table refloat_waits.
type mirror struct {
	w     *world
	part  int
	taken []wait
	due   int64 // when the next wait ends; 0: not looked up
}

// wait is a decision to copy.
type wait struct {
	number  uint64
	due     int64 // 0: at once
	set     string
	payload []byte
}

// lateCopy is a copy that the broker stores later.
type lateCopy struct {
	at   int64
	part int
	wait wait
}

const noWait = int64(1<<63 - 1)

// forgetting is how long the copy of a requeue waits until the scheduler has forgotten the job.
const forgetting = 3000 * millisecond

func (m *mirror) Reset() { m.taken, m.due = nil, 0 }

func (m *mirror) Due() time.Time {
	if m.due == noWait {
		return time.Time{}
	}
	return time.Unix(0, m.due)
}

// Keeps says that the scheduler's tables have no job any more.
func (m *mirror) Keeps(context.Context, jobdb.Tx, []string) (map[string]bool, error) { return nil, nil }

// Read has nothing to prepare.
func (m *mirror) Read(*sink.Message) {}

// Collect notes the decisions that have an effect on the rows.
func (m *mirror) Collect(msg *sink.Message, jobs func(id string) *jobdb.Job) {
	w := m.w
	if isCopy(&msg.Log) || msg.Superseded {
		w.fail("the message at %v of partition %d is mirrored (a copy: %v, superseded: %v)", msg.Log.Position, m.part, isCopy(&msg.Log), msg.Superseded)
	}
	for _, r := range msg.Records {
		d, ok := r.(*chain.Decision)
		if !ok || d.Shadow || !d.Requeue && !w.direct {
			continue
		}
		j := jobs(d.JobID)
		if j == nil || j.Queueing.Decision != d.Number {
			continue
		}
		c := wait{number: d.Number, set: d.JobSet}
		t := d.Time
		if d.Requeue && !w.direct && w.one(3) {
			c.due = w.now + forgetting
			t = c.due
		}
		c.payload = copyOf(d, t)
		m.taken = append(m.taken, c)
	}
}

// copyOf is a decision in the form of Armada's own retries.
func copyOf(d *chain.Decision, t int64) []byte {
	at := &pb.Timestamp{Seconds: t / 1e9, Nanos: int32(t % 1e9)}
	failure := &pb.Error{Terminal: !d.Requeue, Reason: &pb.Error_PodError{PodError: &pb.PodError{Message: "copied"}}}
	seq := &pb.EventSequence{Queue: d.Queue, JobSetName: d.JobSet, Events: []*pb.Event{{
		Created: at, Event: &pb.Event_JobErrors{JobErrors: &pb.JobErrors{JobId: d.JobID, Errors: []*pb.Error{failure}}},
	}}}
	if d.Requeue {
		seq.Events = append(seq.Events, &pb.Event{
			Created: at, Event: &pb.Event_JobRequeued{JobRequeued: &pb.JobRequeued{JobId: d.JobID}},
		})
	}
	raw, err := proto.Marshal(seq)
	if err != nil {
		panic(err)
	}
	return raw
}

// Write publishes the copies that are due, and keeps the rest.
func (m *mirror) Write(_ context.Context, t jobdb.Tx, _ sink.Moment) error {
	w, x := m.w, t.(*tx)
	if x.broken {
		return errConnection
	}
	x.waits = maps.Clone(x.p.waits)
	if x.waits == nil {
		x.waits = map[uint64]wait{}
	}
	for _, c := range m.taken {
		x.waits[c.number] = c
	}
	m.taken, m.due = nil, noWait
	for _, number := range slices.Sorted(maps.Keys(x.waits)) {
		c := x.waits[number]
		if c.due > w.now {
			m.due = min(m.due, c.due)
			continue
		}
		if c.due > 0 {
			w.saw(SawCopyDue)
		}
		if err := w.publishCopy(m.part, c); err != nil {
			return fmt.Errorf("publish copies of decisions: %w", err)
		}
		x.copied = append(x.copied, number)
		delete(x.waits, number)
	}
	return nil
}

// publishCopy publishes a copy and waits until it is durable. After an error it may be in
// the log all the same, at once or later; without one it may be there twice.
func (w *world) publishCopy(part int, c wait) error {
	later := func() {
		w.lateCopies = append(w.lateCopies, lateCopy{at: w.now + w.rng.Int64N(2*readBackTimeout), part: part, wait: c})
	}
	switch {
	case w.events.down():
		if w.one(2) {
			later()
		}
		return fmt.Errorf("%w: events", eventlog.ErrTransient)
	case w.has(FailedSends) && w.one(15):
		switch {
		case w.one(3):
			later()
		case w.one(2):
			w.landCopy(part, c)
		}
		return fmt.Errorf("%w: %w", eventlog.ErrTransient, errSend)
	case w.has(Crashes) && w.one(40):
		w.saw(SawCopyCrash)
		w.landCopy(part, c)
		w.db.disconnect()
		return errCrash
	}
	w.landCopy(part, c)
	if w.has(Duplicates) && w.one(10) {
		later()
	}
	return nil
}

// landCopies stores the copies that were on their way.
func (w *world) landCopies() {
	w.lateCopies = slices.DeleteFunc(w.lateCopies, func(l lateCopy) bool {
		if l.at > w.now || w.events.down() {
			return false
		}
		w.saw(SawCopyLate)
		w.landCopy(l.part, l.wait)
		return true
	})
}

func (w *world) landCopy(part int, c wait) {
	p := w.db.parts[part]
	if p.copied == nil {
		p.copied = map[uint64]int{}
	}
	if p.copied[c.number]++; p.copied[c.number] > 1 {
		w.saw(SawCopyTwice)
	}
	w.saw(SawCopy)
	publish := w.now
	if all := w.events.parts[part].all; w.mode == ownTimes && len(all) > 0 {
		publish = all[len(all)-1].Publish
	}
	at := w.events.append(part, eventlog.Message{
		Key: c.set, Payload: c.payload, Publish: publish,
		Properties: []eventlog.Property{{Key: sink.CopyProperty, Value: strconv.FormatUint(c.number, 10)}},
	})
	h := &w.histories[part]
	h.fed = append(h.fed, model.Message{Ledger: at.Ledger, Entry: at.Entry, Batch: at.Batch, Publish: publish, Payload: c.payload})
	w.logf("a copy of decision %d of partition %d is at %v", c.number, part, at)
}

func isCopy(m *eventlog.Message) bool {
	return slices.ContainsFunc(m.Properties, func(p eventlog.Property) bool { return p.Key == sink.CopyProperty })
}

// checkCopied checks, before a transaction takes effect, that each effective decision has a copy in events or a
// pending one, and that no other transaction has copied it.
func (p *dbPart) checkCopied(w *world, t *tx) {
	if w.faults&Copies == 0 {
		return
	}
	for _, number := range t.copied {
		if p.done[number] {
			w.fail("two transactions copy decision %d of partition %d", number, p.number)
		}
		if p.done == nil {
			p.done = map[uint64]bool{}
		}
		p.done[number] = true
	}
	p.waits = t.waits
	for _, c := range t.changes {
		for i, d := range c.Decisions {
			_, waits := t.waits[d.Number]
			if !d.Acted || !d.Requeue && !w.direct || waits || p.copied[d.Number] > 0 {
				continue
			}
			if slices.ContainsFunc(c.Decisions[i+1:], func(o *jobdb.Decision) bool { return o.JobID == d.JobID && o.Log == d.Log }) {
				continue // the next decision on the job replaces it at once
			}
			w.fail("decision %d of partition %d takes effect, and events hold no copy of it", d.Number, p.number)
		}
	}
}

// checkNotReleased: no release supersedes a decision that events hold a copy of, since the
// decision was in the chain before a release of its message could begin.
func (w *world) checkNotReleased(p int, decisions []*jobdb.Decision) {
	for _, d := range decisions {
		if d.Superseded && w.db.parts[p].copied[d.Number] > 0 {
			w.fail("decision %d of partition %d was copied to events, and is superseded by a release", d.Number, p)
		}
	}
}

// inert is the archive of events with copies that say nothing: the rows must be the same.
type inert struct{ archive }

func (a inert) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	r, err := a.archive.Open(p, after)
	return inertReader{r}, err
}

type inertReader struct{ eventlog.Reader }

func (r inertReader) Read(dst []eventlog.Message) (int, error) {
	n, err := r.Reader.Read(dst)
	for i := range dst[:n] {
		if isCopy(&dst[i]) {
			dst[i].Payload, dst[i].Properties = emptySequence, nil
		}
	}
	return n, err
}

var emptySequence, _ = proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "s", Events: []*pb.Event{{}}})
