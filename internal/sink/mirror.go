package sink

import (
	"context"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// Mirror writes Armada's tables in the same database, in the same transactions, from the
// same messages. Each partition has its own.
type Mirror interface {
	// Reset discards everything in memory: the transaction was rolled back, or another
	// writer wrote.
	Reset()
	// Read puts into Mirrored what follows from a message alone, before it is applied, if there is
	// time for that: Collect does it else.
	Read(m *Message)
	// Collect processes a message that was applied to the rows. Jobs returns a job's
	// current row, or nil; it is valid until Collect returns.
	Collect(m *Message, jobs func(id string) *jobdb.Job)
	// Write writes the result of what was taken, and what is due. It is the last step
	// of a transaction.
	Write(ctx context.Context, tx jobdb.Tx, when Moment) error
	// Due returns when there will be something to write even if nothing is taken: zero
	// means never, a time in the past means at once.
	Due() time.Time
	// Keeps returns which of these jobs Armada's tables still have.
	Keeps(ctx context.Context, tx jobdb.Tx, jobs []string) (map[string]bool, error)
}

// Moment is the time and position at which a mirror writes.
type Moment struct {
	Now time.Time
	At  eventlog.Position // the position up to which the transaction applies events
	// End is the events' end, determined after they were read; only if something was due.
	End    eventlog.Position
	HasEnd bool
}

// AtEnd reports whether the transaction reaches the end of the events. If nothing was
// due, it returns false.
func (m Moment) AtEnd() bool { return m.HasEnd && m.End.Compare(m.At) <= 0 }

// CopyProperty is the property by which a mirror marks a message as a copy of decisions
// for the rest of Armada. The events of a copy change no rows.
const CopyProperty = "refloat-copy"

// IsCopy reports whether a mirror wrote a message.
func IsCopy(m *eventlog.Message) bool {
	for _, p := range m.Properties {
		if p.Key == CopyProperty {
			return true
		}
	}
	return false
}

// mirrors reports whether a message changes Armada's tables.
func (p *part) mirrors(m *Message) bool {
	return p.mirror != nil && !m.Superseded && m.Events != nil && !IsCopy(&m.Log)
}

func (p *part) mirrored(m *Message) {
	if !p.mirrors(m) {
		return
	}
	p.mirror.Collect(m, func(id string) *jobdb.Job {
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
	when := Moment{Now: w.cfg.Now(), At: p.batch.positions.Events}
	if w.mirrorDue(p) {
		var err error
		if when.End, err = w.cfg.Events.End(p.number); err != nil {
			return fmt.Errorf("find the end of events: %w", err)
		}
		when.HasEnd = true
	}
	if err := p.mirror.Write(ctx, tx, when); err != nil {
		return fmt.Errorf("update Armada's tables: %w", err)
	}
	return nil
}
