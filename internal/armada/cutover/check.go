package cutover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
)

type checks struct {
	*State
	found []Finding
}

func (c *checks) refuse(about, what, fix string) {
	c.found = append(c.found, Finding{true, about, what, fix})
}

func (c *checks) note(about, what, fix string) {
	c.found = append(c.found, Finding{false, about, what, fix})
}

func (p *Partition) name() string {
	if p.Control {
		return fmt.Sprintf("control-plane, partition %d", p.Number)
	}
	return fmt.Sprintf("partition %d", p.Number)
}

const jobDatabase = "job database"

// checkStart finds what prevents a cut-over.
func checkStart(s *State) []Finding {
	c := &checks{State: s}
	c.tables()
	if c.tookOver() {
		return c.found
	}
	var older int64
	for _, p := range s.toTakeOver() {
		c.stopped(p, "stop all of Armada's scheduler ingesters (scale them to 0), and run this command again")
		c.exact(p)
		c.decided(p)
		older += p.Older
	}
	if s.Decisions != nil {
		c.note("decisions", "our ingester cannot start yet: "+s.Decisions.Error(), "run refloatctl topics create with the same --pulsar flags before you start the evaluators")
	}
	if older > 0 {
		c.note("jobs", fmt.Sprintf("%d of %d unfinished jobs were submitted before, or at about the time of, the first message that events holds: they are republished from Armada's tables", older, s.Database.Live), "")
	}
	return c.found
}

func (c *checks) tables() {
	if err := c.Database.Problem; err != nil {
		fix := "use a version of Refloat that supports this version of Armada"
		switch {
		case errors.Is(err, pgstore.ErrForeign):
			fix = "pass Armada's scheduler database as --job-db"
		case errors.Is(err, pgstore.ErrOlder):
			fix = "let Armada's scheduler migrate its database (scheduler migrateDatabase) first"
		}
		c.refuse(jobDatabase, err.Error(), fix)
	}
}

// onlyControlLeft reports whether we have taken over events but not control-plane.
func (s *State) onlyControlLeft() bool {
	return placed(s.Partitions) && s.Database.RolledBack == 0 && len(s.Control) > 0 && !placed(s.Control)
}

// toTakeOver returns the partitions to take over if nothing refuses it: all, or only those
// of control-plane.
func (s *State) toTakeOver() (take []*Partition) {
	switch {
	case !placed(s.Partitions) || s.rolledBack():
		return s.All()
	case s.onlyControlLeft():
		for i := range s.Control {
			take = append(take, &s.Control[i])
		}
	}
	return take
}

// All returns the partitions of both topics.
func (s *State) All() (all []*Partition) {
	for _, topic := range [][]Partition{s.Partitions, s.Control} {
		for i := range topic {
			all = append(all, &topic[i])
		}
	}
	return all
}

func placed(topic []Partition) bool {
	return slices.ContainsFunc(topic, func(p Partition) bool { return p.Positions != nil })
}

// tookOver reports whether our ingester already has every position that it needs.
func (c *checks) tookOver() bool {
	var positions []string
	for _, p := range c.Partitions {
		if p.Positions != nil {
			positions = append(positions, fmt.Sprintf("%d: events up to %v", p.Number, p.Positions.Events))
		}
	}
	switch {
	case len(positions) == 0 || c.onlyControlLeft():
		return false
	case c.Database.RolledBack == 0:
		c.refuse(jobDatabase, "our ingester already has a position (partition "+strings.Join(positions, ", ")+")",
			"after an earlier cutover start, start our ingester; to start over, first run refloatctl cutover back")
		return true
	case !c.rolledBack():
		c.refuse(jobDatabase, "a roll-back began at "+when(c.Database.RolledBack)+" and did not finish", "run refloatctl cutover back to finish it")
		return true
	}
	c.note(jobDatabase, "was rolled back at "+when(c.Database.RolledBack)+": start empties our tables", "")
	return false
}

func when(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

func (c *checks) stopped(p *Partition, fix string) {
	if n := len(p.Cursor.Consumers); n > 0 {
		c.refuse(p.name(), fmt.Sprintf("subscription %s has %s: %s", c.Subscription, plural.Of(n, "consumer"), strings.Join(p.Cursor.Consumers, ", ")), fix)
	}
}

func (c *checks) exact(p *Partition) {
	const again = "start Armada's ingester, let it run for a moment, stop it, and run this command again"
	switch {
	case p.Cursor.Missing:
		c.refuse(p.name(), "there is no subscription "+c.Subscription, "pass the subscription of Armada's scheduler ingester as --subscription; if Armada never ran on this topic, let it run once")
	case p.Applied.Why != nil:
		c.refuse(p.name(), "the position of Armada's ingester is unknown: "+p.Applied.Why.Error(), again)
	case p.Cursor.Holes != "":
		c.refuse(p.name(), fmt.Sprintf("subscription %s has acknowledged messages ahead of its position %s: %s", c.Subscription, p.Cursor.MarkDelete, p.Cursor.Holes), again)
	case p.Applied.Deleted:
		c.note(p.name(), fmt.Sprintf("the topic no longer holds position %s; brokers delete only acknowledged messages, so Armada's ingester has applied everything before the first message that is left", p.Cursor.MarkDelete), "")
	}
}

// rolledBack reports whether a roll-back is complete: it is recorded, no retry is
// pending, no member held, and Armada's ingester is at our position or past it.
func (s *State) rolledBack() bool {
	for _, p := range s.All() {
		if p.Positions == nil && !p.Control || p.Positions != nil && !p.isBack() {
			return false
		}
	}
	return s.Database.PendingRetries == 0 && s.Database.HeldMembers == 0 && s.Database.RolledBack != 0
}

func (p *Partition) isBack() bool {
	switch {
	case p.Applied.Why != nil || p.Cursor.Missing:
		return false
	case p.EventsAt.Deleted: // brokers delete ledgers that a cursor has passed
		return p.Applied.At.Compare(p.Positions.Events) >= 0
	}
	return p.EventsAt.Why == nil && p.Applied.At.Compare(p.EventsAt.At) >= 0
}

// checkBack finds what prevents a roll-back.
func (s *Site) checkBack(state *State) []Finding {
	c := &checks{State: state}
	c.tables()
	if state.rolledBack() {
		return c.found
	}
	for _, p := range state.All() {
		if p.Positions == nil && p.Control {
			continue // our ingester applied nothing of it
		}
		if p.Positions == nil {
			c.refuse(p.name(), "our ingester has no position in it", "there is nothing to roll back; see refloatctl cutover plan")
			continue
		}
		if n := len(p.Ingesters); n > 0 {
			c.refuse(p.name(), fmt.Sprintf("our ingester is connected: %s", strings.Join(p.Ingesters, ", ")), "stop all of our ingesters, and run this command again")
		}
		c.stopped(p, "stop all of Armada's scheduler ingesters until the roll-back is done")
		switch {
		case p.isBack(): // also if our position was deleted: Armada's is not before it
		case s.keepsCursor(p):
			c.note(p.name(), fmt.Sprintf("the topic does not hold position %v of our ingester: Armada's continues from its subscription's position, as --leave-cursor says", p.Positions.Events), "")
		case p.EventsAt.Why != nil && p.EventsAt.Gone:
			c.refuse(p.name(), "Armada's ingester cannot continue from our ingester's position: "+p.EventsAt.Why.Error(),
				"if the topic was created again or emptied by force, run refloatctl cutover back --leave-cursor: Armada's ingester then continues from its subscription's position")
		case p.EventsAt.Why != nil:
			c.refuse(p.name(), "Armada's ingester cannot continue from our ingester's position: "+p.EventsAt.Why.Error(),
				"start our ingester and the evaluators again, let them run for a moment, stop our ingester, and run this command again: applying messages twice would queue a submitted job twice")
		case p.Cursor.Missing:
			c.refuse(p.name(), "there is no subscription "+s.Subscription, "create it (pulsar-admin topics create-subscription), or pass another name as --subscription")
		}
	}
	return c.found
}
