package doctor

import (
	"fmt"
	"time"
)

// storage checks what could make messages disappear.
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
		if t != &f.Policies {
			c.quota(t)
		}
	}
}

func keepForEver(t *Topic) string {
	return "pulsar-admin topicPolicies set-retention --size -1 --time -1 " + t.Name
}

func (c *checks) retention(t *Topic) {
	const code = "RD020"
	r := t.Retention
	switch {
	case !r.Known():
		c.unknown(code, t.Name, "its retention", r.Err, "what is not kept for ever is lost: decisions could be made twice, or never be proven")
	case r.Value.Infinite():
		c.ok(code, t.Name, "is kept for ever")
	default:
		why := "this log is the truth: without its beginning no evaluator can start afresh, and no decision be proven"
		if t == &c.facts.Policies {
			why = "policies are read from here at each start: without its beginning they would be unknown"
		}
		c.bad(code, t.Name, "is kept "+retentionText(r.Value), why, keepForEver(t))
	}
}

func (c *checks) eventsRetention() {
	const code = "RD021"
	t := &c.facts.Events
	r := t.Retention
	switch {
	case !r.Known():
		c.unknown(code, t.Name, "its retention", r.Err, "")
	case r.Value.Infinite():
		c.ok(code, t.Name, "is kept for ever")
	case r.Value.None():
		c.warn(code, t.Name, "goes as soon as the evaluators and the ingesters have acknowledged it",
			"a machine that restores an older checkpoint, and a job database that is built anew, need events from before; no subscription holds those",
			"pulsar-admin topicPolicies set-retention --size -1 --time 7d "+t.Name+" (as old as the oldest checkpoint that is to be restored)")
	default:
		c.warn(code, t.Name, "is kept "+retentionText(r.Value),
			"it must outlast the oldest checkpoint that is to be restored; what evaluators and ingesters have not acknowledged is held besides",
			"if it does not: pulsar-admin topicPolicies set-retention with more, for "+t.Name)
	}
}

func retentionText(r Retention) string {
	switch {
	case r.None():
		return "only until all subscriptions have acknowledged it"
	case r.MB < 0:
		return "for " + durationText(time.Duration(r.Minutes)*time.Minute)
	case r.Minutes < 0:
		return fmt.Sprintf("up to %d MB", r.MB)
	}
	return fmt.Sprintf("for %s and up to %d MB", durationText(time.Duration(r.Minutes)*time.Minute), r.MB)
}

// durationText is a duration in the largest unit that it is a multiple of.
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
		c.unknown(code, t.Name, "its message TTL", ttl.Err, "a TTL acknowledges messages in our name, unread")
	case ttl.Value > 0:
		c.bad(code, t.Name, "messages expire after "+durationText(time.Duration(ttl.Value)*time.Second),
			"the broker then acknowledges them in our name, unread, and may delete them",
			"pulsar-admin topicPolicies set-message-ttl --ttl 0 "+t.Name)
	default:
		c.ok(code, t.Name, "messages do not expire")
	}
}

func (c *checks) quota(t *Topic) {
	const code = "RD023"
	if !t.Quotas.Known() {
		c.unknown(code, t.Name, "its backlog quota", t.Quotas.Err, "a quota can stop who publishes, or drop messages")
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
			c.bad(code, t.Name, "drops the oldest messages of a backlog "+limit, "events would be skipped, or decisions never be ingested", fix)
		case t == &c.facts.Events:
			c.warn(code, t.Name, "stops who publishes when the backlog is "+limit, "while evaluators are down, Armada itself comes to a halt then", fix)
		default:
			c.warn(code, t.Name, "stops who publishes when the backlog is "+limit, "while ingesters are down, evaluators come to a halt then", fix)
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

// inactive: a topic that has a subscription is not deleted, but for one mode,
// which takes no heed of subscriptions that have nothing to do; nor is one that is
// retained, unless it is empty, which costs nothing (seen on Pulsar 4.0.8).
func (c *checks) inactive(t *Topic) {
	const code = "RD024"
	const why = "a quiet night is enough, and with it goes the history"
	i := t.Inactive
	fix := fmt.Sprintf("pulsar-admin topicPolicies set-inactive-topic-policies --disable-delete-while-inactive --delete-mode delete_when_no_subscriptions --max-inactive-duration 1d %s", t.Name)
	pinned := t.Stats.Known() && len(t.Stats.Value) > 0
	for _, s := range t.Stats.Value {
		pinned = pinned && len(s.Subscriptions) > 0
	}
	switch {
	case !i.Known():
		c.unknown(code, t.Name, "whether it is deleted when nobody uses it", i.Err, why)
	case !i.Value.Delete:
		c.ok(code, t.Name, "is not deleted when nobody uses it")
	case t.Retention.Known() && t.Retention.Value.Infinite():
		c.ok(code, t.Name, "is kept for ever, so not deleted when nobody uses it, unless it is empty")
	case i.Value.Mode == deleteCaughtUp:
		c.bad(code, t.Name, fmt.Sprintf("is deleted when nobody uses it for %s and its subscriptions have nothing to do", durationText(time.Duration(i.Value.Seconds)*time.Second)), why, fix)
	case pinned:
		c.ok(code, t.Name, "has subscriptions, so is not deleted when nobody uses it")
	case t == &c.facts.Events:
		c.warn(code, t.Name, fmt.Sprintf("is deleted when nobody uses it for %s: it has partitions without a subscription", durationText(time.Duration(i.Value.Seconds)*time.Second)), why, createTopics)
	default:
		c.bad(code, t.Name, fmt.Sprintf("is deleted when nobody uses it for %s", durationText(time.Duration(i.Value.Seconds)*time.Second)), why, fix)
	}
}

func (c *checks) compaction(t *Topic) {
	const code = "RD025"
	fix := "pulsar-admin topicPolicies set-compaction-threshold --threshold 0 " + t.Name
	switch k := t.Compaction; {
	case !k.Known():
		c.unknown(code, t.Name, "whether it is compacted", k.Err, "")
	case k.Value > 0 && t == &c.facts.Events:
		c.warn(code, t.Name, "is compacted from "+bytesText(k.Value)+" on", "of a job set only the last message would stay, for who reads it compacted; it costs the broker and serves nobody here", fix)
	case k.Value > 0:
		c.bad(code, t.Name, "is compacted from "+bytesText(k.Value)+" on", "every message counts here, not the last of a key", fix)
	case t.compacted():
		c.warn(code, t.Name, "was compacted once", "somebody takes it for a table; Refloat reads what is not compacted", "find out who ran `pulsar-admin topics compact`")
	default:
		c.ok(code, t.Name, "is not compacted")
	}
}

func (t *Topic) compacted() bool {
	for _, l := range t.Ledgers.Value {
		if l.Compacted.ID >= 0 {
			return true
		}
	}
	return false
}
