package doctor

import (
	"errors"
	"fmt"
)

const createTopics = "refloatctl topics create, with the same --pulsar flags"

func (c *checks) brokers() {
	f := c.facts
	switch {
	case f.Service.Known():
		c.ok("RD001", "client", "reaches "+f.Service.Value)
	case errors.Is(f.Service.Err, ErrNotAsked):
		c.unknown("RD001", "client", "whether it gets through", f.Service.Err, "")
	default:
		c.bad("RD001", "client", "does not get through: "+oneLine(f.Service.Err),
			"evaluators and ingesters use this connection, not the admin API",
			"check --pulsar and the flags that say who we are (--pulsar-token-file and others)")
	}
	if f.Version.Known() {
		c.version(f.Version.Value)
	} else {
		c.unknown("RD002", "broker", "its version", f.Version.Err, "")
	}
	if f.Broker.Known() {
		c.ok("RD003", "broker", "its configuration can be read")
	} else {
		c.unknown("RD003", "broker", "its configuration", f.Broker.Err, "settings that cost latency or take-over time are not checked")
	}
}

func (c *checks) version(v string) {
	var major, minor int
	if n, _ := fmt.Sscanf(v, "%d.%d", &major, &minor); n != 2 {
		c.warn("RD002", "broker", fmt.Sprintf("its version %q is not understood", v), "", "")
		return
	}
	if major < 3 {
		c.warn("RD002", "broker", "version "+v, "Refloat is tested on Pulsar 4.0; nothing before 3.0 was ever tried", "upgrade the cluster")
		return
	}
	c.ok("RD002", "broker", "version "+v)
}

func (c *checks) topics() {
	f := c.facts
	c.exists("RD010", &f.Events, "there is nothing to decide", createTopics+" and --create-events --partitions N, unless Armada is to create it")
	c.exists("RD011", &f.Decisions, "evaluators cannot start", createTopics)
	c.exists("RD012", &f.Policies, "evaluators cannot start", createTopics)
	if e, d := f.Events.Partitions, f.Decisions.Partitions; e.Known() && d.Known() && e.Value > 0 && d.Value > 0 {
		c.equalCounts(e.Value, d.Value)
	}
	if p := f.Policies.Partitions; p.Known() && p.Value > 1 {
		c.bad("RD012", f.Policies.Name, fmt.Sprintf("has %d partitions", p.Value),
			"the order of policy generations is that of one partition", "name a topic with one partition by --pulsar-policies")
	}
	c.claims()
}

func (c *checks) exists(code string, t *Topic, why, fix string) {
	switch p := t.Partitions; {
	case errors.Is(p.Err, ErrNotThere):
		c.bad(code, t.Name, "does not exist", why, fix)
	case !p.Known():
		c.unknown(code, t.Name, "whether it exists", p.Err, "")
	case p.Value == 0:
		c.bad(code, t.Name, "is not partitioned", "Refloat works partition by partition, also on one",
			"delete it if it is empty, and then "+createTopics)
	case len(t.missing()) > 0:
		c.missing(code, t)
	case code == "RD010":
		c.ok(code, t.Name, "has "+plural(p.Value, "partition", "partitions"))
	case code == "RD012" && p.Value == 1:
		c.ok(code, t.Name, "has 1 partition")
	}
}

// missing: the count stands, but the broker has no such partitions: they were
// never used, or it deleted them when nobody used them.
func (c *checks) missing(code string, t *Topic) {
	report := c.bad
	if t == &c.facts.Events {
		report = c.warn // nobody may have published yet
	}
	report(code, t.Name, fmt.Sprintf("%s of %d do not exist", partitionsOf(t.missing()), t.Partitions.Value),
		"they were never used, or the broker deleted them when nobody used them, with all that they held", createTopics)
}

func (t *Topic) missing() []int {
	var out []int
	for p, s := range t.Stats.Value {
		if s.Missing {
			out = append(out, p)
		}
	}
	return out
}

func (c *checks) equalCounts(events, decisions int) {
	name := c.facts.Decisions.Name
	switch {
	case events == decisions:
		c.ok("RD011", name, fmt.Sprintf("has %s, as events", plural(decisions, "partition", "partitions")))
	case events > decisions:
		c.bad("RD011", name, fmt.Sprintf("has %s, events has %d", plural(decisions, "partition", "partitions"), events),
			"partition p of decisions answers partition p of events: evaluators do not start",
			"refloatctl topics create --grow, with the same --pulsar flags; then start the evaluators once with "+acceptPartitions(events))
	default:
		c.bad("RD011", name, fmt.Sprintf("has %s, events has %d", plural(decisions, "partition", "partitions"), events),
			"no topic can have fewer partitions again: these two do not belong together",
			"name the right topics by --pulsar-events and --pulsar-decisions, or begin anew with another decisions topic")
	}
}

func acceptPartitions(n int) string { return fmt.Sprintf("--accept-partitions %d", n) }

// claims compares the count of events with the one that owners wrote down.
func (c *checks) claims() {
	f := c.facts
	if !f.Events.Partitions.Known() || f.Events.Partitions.Value == 0 || f.Decisions.Claims == nil {
		return
	}
	now := f.Events.Partitions.Value
	var other, unknown []int
	was, claimed := 0, 0
	var why error
	for p, claim := range f.Decisions.Claims {
		switch {
		case !claim.Known():
			unknown, why = append(unknown, p), claim.Err
		case claim.Value == nil || claim.Value.Partitions == 0: // never owned, or by one that did not write it down
		case claim.Value.Partitions != now:
			other, was = append(other, p), claim.Value.Partitions
		default:
			claimed++
		}
	}
	name := f.Decisions.Name
	if len(other) > 0 {
		c.bad("RD013", name, fmt.Sprintf("%s was decided when events had %s; now it has %d", partitionsOf(other), plural(was, "partition", "partitions"), now),
			"with another count the same job set may go to another partition, where nothing is known of its jobs; evaluators stop there",
			"if events was meant to grow and the job sets of before have ended: start the evaluators once with "+acceptPartitions(now))
	}
	if len(unknown) > 0 {
		c.unknown("RD013", name, "what the owners of "+partitionsOf(unknown)+" wrote down", why, "a changed number of partitions of events would not show here")
	}
	if len(other)+len(unknown) == 0 {
		c.ok("RD013", name, fmt.Sprintf("%d of %s claimed, all with %s of events", claimed, plural(len(f.Decisions.Claims), "partition", "partitions"), plural(now, "partition", "partitions")))
	}
}
