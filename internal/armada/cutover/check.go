package cutover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/armada/schedulerdb/pgstore"
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

// checkStart says what is in the way of our ingester.
func checkStart(s *State) []Finding {
	c := &checks{State: s}
	c.tables()
	if c.begun() {
		return c.found
	}
	var older int64
	for _, p := range s.toTake() {
		c.stopped(p, "stop all of Armada's scheduler ingesters (scale them to 0), and run this again")
		c.exact(p)
		c.decided(p)
		older += p.Older
	}
	if s.Decisions != nil {
		c.note("decisions", "our ingester cannot start: "+s.Decisions.Error(), "refloatctl topics create, with the same --pulsar flags, before the evaluators are started")
	}
	if older > 0 {
		c.note("jobs", fmt.Sprintf("%d of %d jobs that are not over were submitted before the first message that events holds, or about then: evaluators are told of them from Armada's tables", older, s.Database.Live), "")
	}
	return c.found
}

func (c *checks) tables() {
	if err := c.Database.Problem; err != nil {
		fix := "use the version of Refloat that is made for this version of Armada"
		switch {
		case errors.Is(err, pgstore.ErrForeign):
			fix = "name Armada's scheduler database by --job-db"
		case errors.Is(err, pgstore.ErrOlder):
			fix = "let Armada's scheduler migrate its database (scheduler migrateDatabase) first"
		}
		c.refuse(jobDatabase, err.Error(), fix)
	}
}

// controlAlone: events are ours, and control-plane is not yet.
func (s *State) controlAlone() bool {
	return placed(s.Partitions) && s.Database.GivenBack == 0 && len(s.Control) > 0 && !placed(s.Control)
}

// toTake are the partitions that are to be taken over, if nothing refuses it: all,
// or those of control-plane alone.
func (s *State) toTake() (take []*Partition) {
	switch {
	case !placed(s.Partitions) || s.givenBack():
		return s.All()
	case s.controlAlone():
		for i := range s.Control {
			take = append(take, &s.Control[i])
		}
	}
	return take
}

// All are the partitions of both topics.
func (s *State) All() (all []*Partition) {
	for _, topic := range [][]Partition{s.Partitions, s.Control} {
		for i := range topic {
			all = append(all, &topic[i])
		}
	}
	return all
}

func placed(topic []Partition) bool {
	return slices.ContainsFunc(topic, func(p Partition) bool { return p.Place != nil })
}

// begun: our ingester has a place already, wherever it needs one.
func (c *checks) begun() bool {
	var places []string
	for _, p := range c.Partitions {
		if p.Place != nil {
			places = append(places, fmt.Sprintf("%d: events up to %v", p.Number, p.Place.Events))
		}
	}
	switch {
	case len(places) == 0 || c.controlAlone():
		return false
	case c.Database.GivenBack == 0:
		c.refuse(jobDatabase, "our ingester has a place already (partition "+strings.Join(places, ", ")+")",
			"if this was started before, start our ingester; to start anew, give it back first: refloatctl cutover back")
		return true
	case !c.givenBack():
		c.refuse(jobDatabase, "giving back began at "+when(c.Database.GivenBack)+" and was not done", "finish it: refloatctl cutover back")
		return true
	}
	c.note(jobDatabase, "was given back at "+when(c.Database.GivenBack)+": our tables are emptied, and begin anew", "")
	return false
}

func when(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

func (c *checks) stopped(p *Partition, fix string) {
	if n := len(p.Cursor.Consumers); n > 0 {
		c.refuse(p.name(), fmt.Sprintf("subscription %s has %d consumers: %s", c.Subscription, n, strings.Join(p.Cursor.Consumers, ", ")), fix)
	}
}

func (c *checks) exact(p *Partition) {
	const again = "start Armada's ingester again, let it go on for a moment, stop it, and run this again"
	switch {
	case p.Cursor.Missing:
		c.refuse(p.name(), "has no subscription "+c.Subscription, "name that of Armada's scheduler ingester by --subscription; if Armada never ran on this topic, let it run once")
	case p.Taken.Why != nil:
		c.refuse(p.name(), "where Armada's ingester stands cannot be told: "+p.Taken.Why.Error(), again)
	case p.Cursor.Holes != "":
		c.refuse(p.name(), fmt.Sprintf("subscription %s has acknowledged messages beyond its position %s: %s", c.Subscription, p.Cursor.MarkDelete, p.Cursor.Holes), again)
	case p.Taken.Deleted:
		c.note(p.name(), fmt.Sprintf("events does not hold position %s any more; since brokers delete only what is acknowledged, Armada's ingester had all up to the first message that is held", p.Cursor.MarkDelete), "")
	}
}

// givenBack says whether there is nothing left to do: it is noted, no job waits,
// and Armada's ingester stands where ours does, or has gone on.
func (s *State) givenBack() bool {
	for _, p := range s.All() {
		if p.Place == nil && !p.Control || p.Place != nil && !p.isBack() {
			return false
		}
	}
	return s.Database.Waits == 0 && s.Database.GivenBack != 0
}

func (p *Partition) isBack() bool {
	switch {
	case p.Taken.Why != nil || p.Cursor.Missing:
		return false
	case p.PlaceAt.Deleted: // behind a cursor that has gone on, brokers do that
		return p.Taken.At.Compare(p.Place.Events) >= 0
	}
	return p.PlaceAt.Why == nil && p.Taken.At.Compare(p.PlaceAt.At) >= 0
}

// checkBack says what is in the way of Armada's ingester.
func (s *Site) checkBack(state *State) []Finding {
	c := &checks{State: state}
	c.tables()
	if state.givenBack() {
		return c.found
	}
	for _, p := range state.All() {
		if p.Place == nil && p.Control {
			continue // ours did nothing in it
		}
		if p.Place == nil {
			c.refuse(p.name(), "our ingester has no place in it", "nothing was taken over here; see refloatctl cutover plan")
			continue
		}
		if n := len(p.Ingesters); n > 0 {
			c.refuse(p.name(), fmt.Sprintf("our ingester runs: %s", strings.Join(p.Ingesters, ", ")), "stop all ingesters of ours, and run this again")
		}
		c.stopped(p, "stop all of Armada's scheduler ingesters until this is done")
		switch {
		case p.isBack(): // also where our position was deleted: Armada's is not before it
		case s.leaves(p):
			c.note(p.name(), fmt.Sprintf("position %v of our ingester is not in the topic: Armada's goes on from where its subscription stands, as --leave-cursor says", p.Place.Events), "")
		case p.PlaceAt.Why != nil && p.PlaceAt.Gone:
			c.refuse(p.name(), "Armada's ingester cannot go on from where ours stands: "+p.PlaceAt.Why.Error(),
				"if the topic was made again, or emptied by force, let Armada's ingester go on from where its subscription stands: refloatctl cutover back --leave-cursor")
		case p.PlaceAt.Why != nil:
			c.refuse(p.name(), "Armada's ingester cannot go on from where ours stands: "+p.PlaceAt.Why.Error(),
				"start our ingester and the evaluators again, let them go on for a moment, stop our ingester, and run this again: a job that is submitted a second time would be queued a second time")
		case p.Cursor.Missing:
			c.refuse(p.name(), "has no subscription "+s.Subscription, "create it (pulsar-admin topics create-subscription), or name the right one by --subscription")
		}
	}
	return c.found
}
