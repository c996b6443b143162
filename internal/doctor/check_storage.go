package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/plural"
)

// storage checks everything that could delete messages.
func (c *checks) storage() {
	f := c.facts
	for _, t := range []*Topic{&f.Events, &f.Decisions, &f.Policies} {
		if !t.Partitions.Known() {
			continue
		}
		if t == &f.Events {
			c.eventsRetention()
		} else {
			c.retention(t)
		}
		c.ttl(t)
		c.inactive(t)
		c.compaction(t)
		c.offload(t)
		if t != &f.Policies {
			c.quota(t)
		}
	}
}

func (c *checks) retention(t *Topic) {
	const code = "RD020"
	r := t.Retention
	why := "this log is the source of truth: without its beginning no evaluator can start without state, and no decision can be verified"
	switch {
	case !r.Known():
		c.unknown(code, t.Name, "its retention", r.Err, "without unlimited retention messages are lost: runs could be decided twice, and decisions could not be verified")
	case r.Value.Infinite():
		c.ok(code, t.Name, "is retained for ever")
	case t == &c.facts.Policies:
		c.bad(code, t.Name, "is retained "+retentionText(r.Value), "policies are read from here at each start: without its beginning they are unknown, and generations get other numbers",
			createTopics+", which retains it for ever")
	case c.facts.Archive == nil:
		c.bad(code, t.Name, "is retained "+retentionText(r.Value)+", and no archive is known", why,
			"if refloatctl archive create copies it in time, pass --archive DIR to doctor; if not, "+createTopics+", which retains it for ever")
	case c.archived(code, t, c.facts.Archive.Decisions):
		c.ok(code, t.Name, "is retained "+retentionText(r.Value)+", and what is older is in "+c.facts.Archive.Dir)
	}
}

func (c *checks) eventsRetention() {
	const code = "RD021"
	t := &c.facts.Events
	r := t.Retention
	fix := func(days int) string {
		return fmt.Sprintf("%s and --retain-events %dd", createTopics, days)
	}
	switch {
	case !r.Known():
		c.unknown(code, t.Name, "its retention", r.Err, "")
	case r.Value.Infinite():
		c.ok(code, t.Name, "is retained for ever")
	case c.facts.Archive != nil && !c.archived(code, t, c.facts.Archive.Events):
	case r.Value.None():
		c.warn(code, t.Name, "is deleted as soon as evaluators and ingesters have acknowledged it",
			"restoring an older checkpoint, rebuilding a job database and archiving need older events, which no subscription retains",
			fix(7)+" (at least the age of the oldest checkpoint that you may restore, and the time between two runs of refloatctl archive create)")
	default:
		c.warn(code, t.Name, "is retained "+retentionText(r.Value),
			"that must be longer than the age of the oldest checkpoint that you may restore, and than the time between two runs of refloatctl archive create; unacknowledged messages are kept in addition",
			"if it is not, "+fix(7))
	}
}

// archived checks that an archive has everything that a topic no longer holds, and gets the rest
// before it is deleted. It reports whether it found nothing wrong.
func (c *checks) archived(code string, t *Topic, to map[int]eventlog.Position) bool {
	a, r := c.facts.Archive, t.Retention.Value
	if !t.Ledgers.Known() {
		c.unknown(code, t.Name, "what it still holds", t.Ledgers.Err, "whether it was archived before it was deleted is unknown")
		return false
	}
	archive := "run refloatctl archive create " + a.Dir + " with the same --pulsar flags"
	var gone []int
	waiting := int64(0)
	for p, l := range t.Ledgers.Value {
		at, ok := to[p]
		if !ok {
			at = eventlog.Start
		}
		n := l.after(at)
		if waiting += n; n > 0 && len(l.Ledgers) > 0 && ok && l.Ledgers[0].ID > at.Ledger {
			gone = append(gone, p)
		}
	}
	kept := time.Duration(r.Minutes) * time.Minute
	const why = "what is deleted before it is archived can never be verified again"
	switch {
	case len(gone) > 0:
		c.bad(code, t.Name, fmt.Sprintf("%s: the archive %s ends before what the topic still holds", partitionsOf(gone), a.Dir), why, archive+": it says whether something in between is missing")
	case r.None() || r.MB >= 0:
		if t == &c.facts.Events {
			return true // the check of its retention says it
		}
		c.bad(code, t.Name, "is retained "+retentionText(r), "an archive needs a time within which it is copied", createTopics+" and --retain-decisions 90d")
	case waiting > 0 && a.Age >= kept:
		c.bad(code, t.Name, fmt.Sprintf("is retained %s, and %s not archived: the last range is from %s ago", retentionText(r), plural.Of(waiting, "message is", "messages are"), durationText(a.Age.Round(time.Minute))), why, archive)
	case waiting > 0 && a.Age >= kept/2:
		c.warn(code, t.Name, fmt.Sprintf("is retained %s, and the last range of the archive is from %s ago", retentionText(r), durationText(a.Age.Round(time.Minute))), why, archive+", and do so regularly")
	default:
		return true
	}
	return false
}

func retentionText(r Retention) string {
	switch {
	case r.Infinite():
		return "for ever"
	case r.None():
		return "only until all subscriptions have acknowledged it"
	case r.MB < 0:
		return "for " + durationText(time.Duration(r.Minutes)*time.Minute)
	case r.Minutes < 0:
		return fmt.Sprintf("up to %d MB", r.MB)
	}
	return fmt.Sprintf("for %s and up to %d MB", durationText(time.Duration(r.Minutes)*time.Minute), r.MB)
}

// durationText formats a duration in the largest unit that divides it.
func durationText(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}} {
		if d >= u.unit && d%u.unit == 0 {
			return fmt.Sprintf("%d %s", d/u.unit, u.name)
		}
	}
	return d.String()
}

func (c *checks) ttl(t *Topic) {
	const code = "RD022"
	switch ttl := t.TTL; {
	case !ttl.Known():
		c.unknown(code, t.Name, "its message TTL", ttl.Err, "a TTL acknowledges messages that we have not read")
	case ttl.Value > 0:
		c.bad(code, t.Name, "messages expire after "+durationText(time.Duration(ttl.Value)*time.Second),
			"the broker then acknowledges messages that we have not read, and may delete them",
			"pulsar-admin topicPolicies set-message-ttl --ttl 0 "+t.Name)
	default:
		c.ok(code, t.Name, "messages do not expire")
	}
}

func (c *checks) quota(t *Topic) {
	const code = "RD023"
	if !t.Quotas.Known() {
		c.unknown(code, t.Name, "its backlog quota", t.Quotas.Err, "a quota can block producers, or drop messages")
		return
	}
	found := false
	for _, kind := range []string{quotaBySize, quotaByAge} {
		q, ok := t.Quotas.Value[kind]
		limit, limited := q.limit(kind)
		if !ok || !limited {
			continue
		}
		found = true
		fix := fmt.Sprintf("pulsar-admin topicPolicies set-backlog-quota --type %s --limit -1 --limitTime -1 --policy producer_request_hold %s", kind, t.Name)
		switch {
		case q.Policy == quotaEviction:
			c.bad(code, t.Name, "drops the oldest messages of a backlog "+limit, "events would be skipped, or decisions never ingested", fix)
		case t == &c.facts.Events:
			c.warn(code, t.Name, "blocks producers when the backlog is "+limit, "while evaluators are down, Armada itself then stops", fix)
		default:
			c.warn(code, t.Name, "blocks producers when the backlog is "+limit, "while ingesters are down, evaluators then stop", fix)
		}
	}
	if !found {
		c.ok(code, t.Name, "has no backlog quota")
	}
}

func (q Quota) limit(kind string) (text string, limited bool) {
	if kind == quotaByAge {
		return "older than " + durationText(time.Duration(q.Seconds)*time.Second), q.Seconds > 0
	}
	return fmt.Sprintf("larger than %s", bytesText(q.Bytes)), q.Bytes > 0
}

func bytesText(n int64) string {
	for _, u := range []struct {
		name string
		unit int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.unit && n%u.unit == 0 {
			return fmt.Sprintf("%d %s", n/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// inactive checks the deletion of inactive topics. Brokers do not delete a topic with a
// subscription, except in the mode that ignores subscriptions without backlog; nor a
// topic with retention, unless it is empty, which costs nothing (seen on Pulsar 4.0.8).
func (c *checks) inactive(t *Topic) {
	const code = "RD024"
	const why = "a quiet night is enough to lose the history"
	i := t.Inactive
	fix := fmt.Sprintf("pulsar-admin topicPolicies set-inactive-topic-policies --disable-delete-while-inactive --delete-mode delete_when_no_subscriptions --max-inactive-duration 1d %s", t.Name)
	pinned := t.Stats.Known() && len(t.Stats.Value) > 0
	for _, s := range t.Stats.Value {
		pinned = pinned && len(s.Subscriptions) > 0
	}
	switch {
	case !i.Known():
		c.unknown(code, t.Name, "whether it is deleted while inactive", i.Err, why)
	case !i.Value.Delete:
		c.ok(code, t.Name, "is not deleted while inactive")
	case t.Retention.Known() && t.Retention.Value.Infinite():
		c.ok(code, t.Name, "is retained for ever, so it is not deleted while inactive, unless it is empty")
	case i.Value.Mode == deleteCaughtUp:
		c.bad(code, t.Name, fmt.Sprintf("is deleted if it is inactive for %s and its subscriptions have no backlog", durationText(time.Duration(i.Value.Seconds)*time.Second)), why, fix)
	case pinned:
		c.ok(code, t.Name, "has subscriptions, so it is not deleted while inactive")
	case t == &c.facts.Events:
		c.warn(code, t.Name, fmt.Sprintf("is deleted if it is inactive for %s: it has partitions without a subscription", durationText(time.Duration(i.Value.Seconds)*time.Second)), why, createTopics)
	default:
		c.bad(code, t.Name, fmt.Sprintf("is deleted if it is inactive for %s", durationText(time.Duration(i.Value.Seconds)*time.Second)), why, fix)
	}
}

func (c *checks) compaction(t *Topic) {
	const code = "RD025"
	fix := "pulsar-admin topicPolicies set-compaction-threshold --threshold 0 " + t.Name
	switch k := t.Compaction; {
	case !k.Known():
		c.unknown(code, t.Name, "whether it is compacted", k.Err, "")
	case k.Value > 0 && t == &c.facts.Events:
		c.warn(code, t.Name, "is compacted from "+bytesText(k.Value)+" on", "a compacted read returns only the last message of each job set; Refloat never reads that way, so it only costs the broker", fix)
	case k.Value > 0:
		c.bad(code, t.Name, "is compacted from "+bytesText(k.Value)+" on", "every message matters, not only the last one of a key", fix)
	case t.compacted():
		c.warn(code, t.Name, "has been compacted", "someone treats it as a table; Refloat reads the uncompacted messages", "find out who ran `pulsar-admin topics compact`")
	default:
		c.ok(code, t.Name, "is not compacted")
	}
}

func (c *checks) offload(t *Topic) {
	const code = "RD027"
	o := t.Offload.Value
	auto := o.Driver != "" && (o.Bytes >= 0 || o.Seconds >= 0)
	switch {
	case !t.Offload.Known():
		c.unknown(code, t.Name, "whether it is offloaded", t.Offload.Err, "")
	case !auto:
		c.ok(code, t.Name, "is not offloaded")
	case o.Lag == nil:
		c.ok(code, t.Name, "is offloaded to "+o.Driver+", and the bookies keep their copies")
	default:
		report := c.bad
		if t == &c.facts.Events {
			report = c.warn
		}
		report(code, t.Name, fmt.Sprintf("is offloaded to %s, and the bookies delete their copies %s later", o.Driver, durationText(time.Duration(*o.Lag)*time.Millisecond)),
			"every message matters: what expires or is lost there is gone, and an evaluator without state waits for that storage",
			"pulsar-admin topicPolicies remove-offload-policies "+t.Name+", or pulsar-admin namespaces set-offload-threshold --size -1 if the namespace sets it")
	}
}

func (t *Topic) compacted() bool {
	return slices.ContainsFunc(t.Ledgers.Value, func(l Ledgers) bool { return l.Compacted.ID >= 0 })
}
