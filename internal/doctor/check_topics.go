package doctor

import (
	"errors"
	"fmt"

	"github.com/refloat/refloat/internal/plural"
)

const createTopics = "run refloatctl topics create with the same --pulsar flags"

func (c *checks) brokers() {
	f := c.facts
	switch {
	case f.Service.Known():
		c.ok("RD001", "client", "can connect to "+f.Service.Value)
	case errors.Is(f.Service.Err, ErrNotChecked):
		c.unknown("RD001", "client", "whether it can connect", f.Service.Err, "")
	default:
		c.bad("RD001", "client", "cannot connect: "+oneLine(f.Service.Err),
			"evaluators and ingesters use this connection, not the admin API",
			"check --pulsar and the credentials (--pulsar-token-file and others)")
	}
	if f.Version.Known() {
		c.version(f.Version.Value)
	} else {
		c.unknown("RD002", "broker", "its version", f.Version.Err, "")
	}
	if f.Broker.Known() {
		c.ok("RD003", "broker", "its configuration can be read")
	} else {
		c.unknown("RD003", "broker", "its configuration", f.Broker.Err, "settings that affect latency and take-over time are not checked")
	}
}

func (c *checks) version(v string) {
	var major, minor int
	if n, _ := fmt.Sscanf(v, "%d.%d", &major, &minor); n != 2 {
		c.warn("RD002", "broker", fmt.Sprintf("its version %q cannot be parsed", v), "", "")
		return
	}
	if major < 3 {
		c.warn("RD002", "broker", "version "+v, "Refloat is tested with Pulsar 4.0, and was never tried with versions before 3.0", "upgrade the cluster")
		return
	}
	c.ok("RD002", "broker", "version "+v)
}

func (c *checks) topics() {
	f := c.facts
	c.exists("RD010", &f.Events, "there are no failures to decide", createTopics+" and --create-events --partitions N, unless Armada creates it")
	c.exists("RD011", &f.Decisions, "evaluators cannot start", createTopics)
	c.exists("RD012", &f.Policies, "evaluators cannot start", createTopics)
	if e, d := f.Events.Partitions, f.Decisions.Partitions; e.Known() && d.Known() && e.Value > 0 && d.Value > 0 {
		c.equalCounts(e.Value, d.Value)
	}
	if p := f.Policies.Partitions; p.Known() && p.Value > 1 {
		c.bad("RD012", f.Policies.Name, "has "+plural.Of(p.Value, "partition"),
			"policy generations need the order of a single partition", "pass a topic with one partition as --pulsar-policies")
	}
	c.claims()
}

func (c *checks) exists(code string, t *Topic, why, fix string) {
	switch p := t.Partitions; {
	case errors.Is(p.Err, ErrNotFound):
		c.bad(code, t.Name, "does not exist", why, fix)
	case !p.Known():
		c.unknown(code, t.Name, "whether it exists", p.Err, "")
	case p.Value == 0:
		c.bad(code, t.Name, "is not partitioned", "Refloat needs a partitioned topic, even with one partition",
			"if it is empty, delete it; then "+createTopics)
	case len(t.missing()) > 0:
		c.missing(code, t)
	case code == "RD010":
		c.ok(code, t.Name, "has "+plural.Of(p.Value, "partition"))
	case code == "RD012" && p.Value == 1:
		c.ok(code, t.Name, "has 1 partition")
	}
}

// missing reports partitions that the topic's metadata counts but the broker does not
// have: they were never used, or the broker deleted them while they were inactive.
func (c *checks) missing(code string, t *Topic) {
	report := c.bad
	if t == &c.facts.Events {
		report = c.warn // nobody may have published yet
	}
	report(code, t.Name, fmt.Sprintf("%s of %d do not exist", partitionsOf(t.missing()), t.Partitions.Value),
		"they were never used, or the broker deleted them and their messages while nobody used them", createTopics)
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
		c.ok("RD011", name, fmt.Sprintf("has %s, like events", plural.Of(decisions, "partition")))
	case events > decisions:
		c.bad("RD011", name, fmt.Sprintf("has %s, but events has %d", plural.Of(decisions, "partition"), events),
			"each partition of events needs its own partition of decisions; evaluators do not start",
			"run refloatctl topics create --grow with the same --pulsar flags, then start the evaluators once with "+acceptPartitions(events))
	default:
		c.bad("RD011", name, fmt.Sprintf("has %s, but events has %d", plural.Of(decisions, "partition"), events),
			"partitions cannot be removed from a topic, so these two topics do not belong together",
			"pass the right topics as --pulsar-events and --pulsar-decisions, or start over with a new decisions topic")
	}
}

func acceptPartitions(n int) string { return fmt.Sprintf("--accept-partitions %d", n) }

// claims compares the partition count of events with the one that owners recorded.
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
		case claim.Value == nil || claim.Value.Partitions == 0: // never claimed, or by an owner that did not record it
		case claim.Value.Partitions != now:
			other, was = append(other, p), claim.Value.Partitions
		default:
			claimed++
		}
	}
	name := f.Decisions.Name
	if len(other) > 0 {
		c.bad("RD013", name, fmt.Sprintf("%s: claimed when events had %s; now it has %d", partitionsOf(other), plural.Of(was, "partition"), now),
			"with another partition count, a job set may move to a partition that does not know its jobs; evaluators stop there",
			"if events was grown on purpose and all older job sets have ended, start the evaluators once with "+acceptPartitions(now))
	}
	if len(unknown) > 0 {
		c.unknown("RD013", name, "the partition count recorded by the owners of "+partitionsOf(unknown)+"", why, "a changed partition count of events would go unnoticed")
	}
	if len(other)+len(unknown) == 0 {
		c.ok("RD013", name, fmt.Sprintf("%d of %s are claimed, all with %s of events", claimed, plural.Of(len(f.Decisions.Claims), "partition"), plural.Of(now, "partition")))
	}
}
