package doctor

import (
	"cmp"
	"fmt"
	"net"
	"strings"

	"github.com/refloat/refloat/internal/eventlog"
)

// Party is a process as the broker sees it.
type Party struct{ Name, Address, Since string }

// Holder is who works on a partition.
type Holder struct {
	Partition int
	Evaluator Party // the active consumer of events; empty: nobody
	Events    int64 // entries that are not decided
	Owner     Party // who may publish decisions, by the name of its process
	Ingester  Party
	Decisions int64 // entries that are not ingested
}

// Holders lists who holds what, as far as it is known.
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

// held is who works on a partition, and how far behind. A consumer never acknowledges
// the newest entry that it is done with, since its position there must stay provable.
func held(s Subscription) (Party, int64) {
	c, ok := s.active()
	behind := s.Backlog
	if ok {
		behind = max(0, behind-1)
	}
	return Party{c.Name, address(c.Address), c.Since}, behind
}

// undecided counts the entries of events after those that the decision log answers:
// with checkpoints, acknowledgements say that later.
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

// address is host:port; Java prints a slash before.
func address(s string) string { return strings.TrimPrefix(s, "/") }

func host(s string) string {
	h, _, err := net.SplitHostPort(address(s))
	if err != nil {
		return address(s)
	}
	return h
}

// sameProcess says whether an owner may be the active evaluator: it has its name, or,
// where it does not say, is on its machine.
func sameProcess(owner Publisher, active Consumer) bool {
	if name := owner.instance(); name != "" {
		return name == active.Name
	}
	return host(owner.Address) == host(active.Address)
}

// holding checks that somebody works, and nobody else.
func (c *checks) holding() {
	f := c.facts
	c.subscription("RD040", &f.Events, EvaluatorSubscription)
	c.active("RD042", &f.Events, EvaluatorSubscription, "evaluator", "failed runs wait undecided")
	c.owners()
	c.subscription("RD041", &f.Decisions, IngesterSubscription)
	c.active("RD044", &f.Decisions, IngesterSubscription, "ingester", "the job database stands still there")
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
		case s.Missing: // RD010 and others say so
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
		c.bad(code, t.Name, fmt.Sprintf("the subscription %s is missing on %s", name, partitionsOf(missing)), "nothing holds events there until "+until(name)+", and retention does not either", createTopics)
	case len(missing) > 0:
		c.warn(code, t.Name, fmt.Sprintf("the subscription %s is missing on %s", name, partitionsOf(missing)), "only retention holds messages there until they are worked on", createTopics)
	case len(passing) > 0:
		c.bad(code, t.Name, fmt.Sprintf("the subscription %s of %s is not durable", name, partitionsOf(passing)), "it ends with its consumers, and holds nothing", "end who subscribed so, and then "+createTopics)
	case len(strange) > 0:
		c.bad(code, t.Name, fmt.Sprintf("the subscription %s of %s is of type %s", name, partitionsOf(strange), kind), "somebody else uses our subscription, and acknowledges messages in our name; ours cannot connect", "find the consumer by pulsar-admin topics stats, and end it")
	default:
		c.ok(code, t.Name, "has the subscription "+name)
	}
}

// until is what a subscription on events holds them for.
func until(subscription string) string {
	if subscription == IngesterSubscription {
		return "they are in the job database"
	}
	return "they are decided"
}

// heldForNobody: what ingesters have not acknowledged is kept, also where none will
// ever run again.
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
		c.ok(code, t.Name, "nothing is held for ingesters that do not run")
		return
	}
	c.warn(code, t.Name, fmt.Sprintf("%s of %s are held for ingesters, and none is connected", plural(int(backlog), "message", "messages"), partitionsOf(nobody)),
		"they are kept, whatever retention says, until an ingester has put them into the job database",
		"start ingesters; only if none is ever to run again (after `cutover back`, say): pulsar-admin topics unsubscribe -s "+IngesterSubscription+" "+t.Name)
}

func (c *checks) active(code string, t *Topic, name, who, why string) {
	if !t.Stats.Known() || len(t.Stats.Value) == 0 {
		return // RD040 and RD041 say so
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
		c.ok(code, t.Name, fmt.Sprintf("each of %s has an %s", plural(len(t.Stats.Value), "partition", "partitions"), who))
		return
	}
	c.warn(code, t.Name, fmt.Sprintf("nobody is active as %s of %s; %s wait there", who, partitionsOf(idle), plural(int(backlog), "message", "messages")), why, "start "+who+"s with the same --pulsar flags")
}

// owners checks who may publish decisions: exactly one, exclusively, and where
// the active evaluator is.
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
			"only an owner publishes decisions, exclusively; what a stranger writes is ignored, but keeps owners out", "end that producer")
	}
	if len(elsewhere) > 0 {
		c.warn(code, t.Name, fmt.Sprintf("%s at %s holds %s since %s, and another process is the active evaluator", cmp.Or(old.instance(), old.Name), address(old.Address), partitionsOf(elsewhere), old.Since),
			"an old owner has not let go: nothing is decided there until it does, or the broker notices that it is gone",
			"wait for the brokers' keep-alive; then end the old process, or pulsar-admin topics unload "+t.Name)
	}
	if len(none) > 0 {
		c.warn(code, t.Name, fmt.Sprintf("nobody holds the right to publish to %s, though there is an active evaluator", partitionsOf(none)),
			"it is catching up, or cannot claim", "run this again in a minute; if it stays so, read the evaluator's log")
	}
	if len(strange)+len(elsewhere)+len(none) == 0 {
		c.ok(code, t.Name, "nobody publishes but owners")
	}
}
