package doctor

import (
	"cmp"
	"fmt"
	"net"
	"strings"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/plural"
)

// Party is a process as the broker sees it.
type Party struct{ Name, Address, Since string }

// Holder lists the processes that work on a partition.
type Holder struct {
	Partition int
	Evaluator Party // the active consumer of events; empty: none
	Events    int64 // undecided entries
	Owner     Party // the process that may publish decisions
	Ingester  Party
	Decisions int64 // entries not ingested yet
}

// Holders lists the processes that work on each partition, as far as known.
func Holders(f *Facts) []Holder {
	events, decisions := f.Events.Stats.Value, f.Decisions.Stats.Value
	out := make([]Holder, max(len(events), len(decisions)))
	for p := range out {
		h := &out[p]
		h.Partition = p
		if p < len(events) {
			h.Evaluator, h.Events = held(events[p].Subscriptions[EvaluatorSubscription])
			if n, known := undecided(f, p); known {
				h.Events = n
			}
		}
		if p < len(decisions) {
			h.Ingester, h.Decisions = held(decisions[p].Subscriptions[IngesterSubscription])
			for _, o := range decisions[p].Publishers {
				if o.Mode == modeExclusive {
					h.Owner = Party{cmp.Or(o.instance(), o.Name), address(o.Address), o.Since}
				}
			}
		}
	}
	return out
}

// held returns a subscription's active consumer and its backlog. A consumer never
// acknowledges the last entry that it has processed, since that position must stay
// provable.
func held(s Subscription) (Party, int64) {
	c, ok := s.active()
	behind := s.Backlog
	if ok {
		behind = max(0, behind-1)
	}
	return Party{c.Name, address(c.Address), c.Since}, behind
}

// undecided counts the entries of events after those that the decision log covers. With
// checkpoints, acknowledgements lag behind that.
func undecided(f *Facts, p int) (int64, bool) {
	claims, ledgers := f.Decisions.Claims, f.Events.Ledgers.Value
	if p >= len(claims) || p >= len(ledgers) || !claims[p].Known() {
		return 0, false
	}
	if claims[p].Value == nil {
		return ledgers[p].after(eventlog.Start), true
	}
	return ledgers[p].after(claims[p].Value.Answered), true
}

// address returns host:port without the slash that Java prints.
func address(s string) string { return strings.TrimPrefix(s, "/") }

func host(s string) string {
	h, _, err := net.SplitHostPort(address(s))
	if err != nil {
		return address(s)
	}
	return h
}

// sameProcess reports whether an owner can be the active evaluator: it has the same
// instance name or, without a name, the same host.
func sameProcess(owner Publisher, active Consumer) bool {
	if name := owner.instance(); name != "" {
		return name == active.Name
	}
	return host(owner.Address) == host(active.Address)
}

// holding checks that every partition has its processes, and no others.
func (c *checks) holding() {
	f := c.facts
	c.subscription("RD040", &f.Events, EvaluatorSubscription)
	c.active("RD042", &f.Events, EvaluatorSubscription, "evaluator", "failed runs are not decided there")
	c.owners()
	c.subscription("RD041", &f.Decisions, IngesterSubscription)
	c.active("RD044", &f.Decisions, IngesterSubscription, "ingester", "the job database does not advance there")
	c.subscription("RD045", &f.Events, IngesterSubscription)
	c.heldForNobody()
}

func (c *checks) subscription(code string, t *Topic, name string) {
	if !t.Partitions.Known() || t.Partitions.Value == 0 {
		return
	}
	if !t.Stats.Known() {
		c.unknown(code, t.Name, "whether it has the subscription "+name, t.Stats.Err, "")
		return
	}
	var missing, passing, strange []int
	kind := ""
	for p, s := range t.Stats.Value {
		switch sub, ok := s.Subscriptions[name]; {
		case s.Missing: // reported as RD010 to RD012
		case !ok:
			missing = append(missing, p)
		case !sub.Durable:
			passing = append(passing, p)
		case len(sub.Consumers) > 0 && sub.Type != "Failover":
			strange, kind = append(strange, p), sub.Type
		}
	}
	switch {
	case len(missing) > 0 && t == &c.facts.Events && t.Retention.Known() && t.Retention.Value.None():
		c.bad(code, t.Name, fmt.Sprintf("the subscription %s is missing on %s", name, partitionsOf(missing)), "nothing retains events there until "+until(name)+": neither a subscription nor retention", createTopics)
	case len(missing) > 0:
		c.warn(code, t.Name, fmt.Sprintf("the subscription %s is missing on %s", name, partitionsOf(missing)), "only retention keeps messages there until they are processed", createTopics)
	case len(passing) > 0:
		c.bad(code, t.Name, fmt.Sprintf("the subscription %s of %s is not durable", name, partitionsOf(passing)), "it ends with its consumers, and retains nothing", "stop its consumers, then "+createTopics)
	case len(strange) > 0:
		c.bad(code, t.Name, fmt.Sprintf("the subscription %s of %s is of type %s", name, partitionsOf(strange), kind), "another program uses our subscription and acknowledges our messages; our consumers cannot connect", "find the consumer with pulsar-admin topics stats, and stop it")
	default:
		c.ok(code, t.Name, "has the subscription "+name)
	}
}

// until says until when a subscription on events retains them.
func until(subscription string) string {
	if subscription == IngesterSubscription {
		return "they are in the job database"
	}
	return "they are decided"
}

// heldForNobody finds messages that are retained for ingesters although none may ever
// run again.
func (c *checks) heldForNobody() {
	const code = "RD046"
	t := &c.facts.Events
	if !t.Stats.Known() || len(t.Stats.Value) == 0 {
		return
	}
	var nobody []int
	backlog := int64(0)
	for p, s := range t.Stats.Value {
		if sub, ok := s.Subscriptions[IngesterSubscription]; ok && len(sub.Consumers) == 0 && sub.Backlog > 0 {
			nobody, backlog = append(nobody, p), backlog+sub.Backlog
		}
	}
	if len(nobody) == 0 {
		c.ok(code, t.Name, "no messages are retained for ingesters that do not run")
		return
	}
	c.warn(code, t.Name, fmt.Sprintf("%s of %s are retained for ingesters, but none is connected", plural.Of(backlog, "message", "messages"), partitionsOf(nobody)),
		"they are kept, regardless of retention, until an ingester has written them to the job database",
		"start ingesters; only if none will ever run again (for example after `cutover back`): pulsar-admin topics unsubscribe -s "+IngesterSubscription+" "+t.Name)
}

func (c *checks) active(code string, t *Topic, name, who, why string) {
	if !t.Stats.Known() || len(t.Stats.Value) == 0 {
		return // reported as RD040 or RD041
	}
	var idle []int
	backlog := int64(0)
	for p, s := range t.Stats.Value {
		sub := s.Subscriptions[name]
		if _, ok := sub.active(); !ok {
			idle, backlog = append(idle, p), backlog+sub.Backlog
		}
	}
	if len(idle) == 0 {
		c.ok(code, t.Name, fmt.Sprintf("each of %s has an %s", plural.Of(len(t.Stats.Value), "partition"), who))
		return
	}
	c.warn(code, t.Name, fmt.Sprintf("there is no active %s for %s, with a backlog of %s", who, partitionsOf(idle), plural.Of(backlog, "message", "messages")), why, "start "+who+"s with the same --pulsar flags")
}

// owners checks who may publish decisions: exactly one exclusive producer, in the same
// process as the active evaluator.
func (c *checks) owners() {
	const code = "RD043"
	t := &c.facts.Decisions
	if !t.Stats.Known() || len(t.Stats.Value) == 0 {
		return
	}
	var strange, none, elsewhere []int
	var stranger, old Publisher
	for p, s := range t.Stats.Value {
		var active Consumer
		ok := false
		if p < len(c.facts.Events.Stats.Value) {
			active, ok = c.facts.Events.Stats.Value[p].Subscriptions[EvaluatorSubscription].active()
		}
		owned := false
		for _, who := range s.Publishers {
			switch {
			case who.Mode != modeExclusive:
				strange, stranger = append(strange, p), who
			case ok && !sameProcess(who, active):
				elsewhere, old = append(elsewhere, p), who
				owned = true
			default:
				owned = true
			}
		}
		if ok && !owned {
			none = append(none, p)
		}
	}
	if len(strange) > 0 {
		c.bad(code, t.Name, fmt.Sprintf("%s at %s publishes to %s as %s", stranger.Name, address(stranger.Address), partitionsOf(strange), stranger.Mode),
			"only an owner may publish decisions, exclusively; other messages are ignored, but the producer blocks owners", "stop that producer")
	}
	if len(elsewhere) > 0 {
		c.warn(code, t.Name, fmt.Sprintf("%s at %s holds %s since %s, but another process is the active evaluator", cmp.Or(old.instance(), old.Name), address(old.Address), partitionsOf(elsewhere), old.Since),
			"the previous owner has not released them: nothing is decided there until it does, or until the broker notices that it is dead",
			"wait for the brokers' keep-alive; if that does not help, stop the old process, or run pulsar-admin topics unload "+t.Name)
	}
	if len(none) > 0 {
		c.warn(code, t.Name, fmt.Sprintf("there is an active evaluator, but no owner, for %s", partitionsOf(none)),
			"it is catching up, or cannot claim the partition", "run this again in a minute; if nothing has changed, check the evaluator's log")
	}
	if len(strange)+len(elsewhere)+len(none) == 0 {
		c.ok(code, t.Name, "only owners publish")
	}
}
