package sink

import (
	"context"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// Mirror keeps other tables of the same database, in the same transactions: what
// follows there from the same messages. Each partition has one of its own.
type Mirror interface {
	// Reset forgets all that it holds in memory: the transaction was rolled back,
	// or someone else wrote.
	Reset()
	// Take takes in a message that the rows took in. Jobs gives a job's row as it
	// stands then, or nil; it is good until Take returns.
	Take(m *Message, jobs func(id string) *jobdb.Job)
	// Write writes what follows from what was taken, and what is due. It comes
	// last in a transaction.
	Write(ctx context.Context, tx jobdb.Tx, when Moment) error
	// Due is when there is something to write though nothing is taken: zero, never;
	// in the past, at once.
	Due() time.Time
}

// Moment is when a mirror writes.
type Moment struct {
	Now time.Time
	At  eventlog.Position // up to where the transaction takes in events
	// End is the events' end, looked at after they were read. It is the beginning
	// where nothing was due.
	End eventlog.Position
}

// AtEnd says whether the transaction reaches the end of the events. Where nothing
// was due, it does not say so.
func (m Moment) AtEnd() bool { return m.End != eventlog.Start && m.End.Compare(m.At) <= 0 }

// CopyProperty is the property of a message by which a mirror says that it is a
// copy of decisions for the rest of Armada. Its events change no rows.
const CopyProperty = "refloat-copy"

// isCopy says whether a message was written by a mirror.
func isCopy(m *eventlog.Message) bool {
	for _, p := range m.Properties {
		if p.Key == CopyProperty {
			return true
		}
	}
	return false
}

func (p *part) mirrored(m *Message) {
	if p.mirror == nil || m.Superseded || m.Events == nil || isCopy(&m.Log) {
		return
	}
	p.mirror.Take(m, func(id string) *jobdb.Job {
		if j := p.rows.find(id); j != nil {
			return &j.Job
		}
		return nil
	})
}

func (w *Writer) mirrorDue(p *part) bool {
	if p.mirror == nil {
		return false
	}
	due := p.mirror.Due()
	return !due.IsZero() && !due.After(w.cfg.Now())
}

func (w *Writer) mirror(ctx context.Context, tx jobdb.Tx, p *part) error {
	if p.mirror == nil {
		return nil
	}
	when := Moment{Now: w.cfg.Now(), At: p.batch.place.Events, End: eventlog.Start}
	if w.mirrorDue(p) {
		var err error
		if when.End, err = w.cfg.Events.End(p.number); err != nil {
			return fmt.Errorf("find the end of events: %w", err)
		}
	}
	if err := p.mirror.Write(ctx, tx, when); err != nil {
		return fmt.Errorf("write beside: %w", err)
	}
	return nil
}
