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
	// AtEnd: the transaction reaches the end of the events log, which was looked
	// at after its messages were read. It is only found out where something is due.
	AtEnd bool
}

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
	when := Moment{Now: w.cfg.Now()}
	if w.mirrorDue(p) {
		end, err := w.cfg.Events.End(p.number)
		if err != nil {
			return fmt.Errorf("find the end of events: %w", err)
		}
		when.AtEnd = end.Compare(p.batch.place.Events) <= 0
	}
	if err := p.mirror.Write(ctx, tx, when); err != nil {
		return fmt.Errorf("write beside: %w", err)
	}
	return nil
}
