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
type Party struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Since   string `json:"since"`
}

// Clients lists the processes that work on a partition.
type Clients struct {
	Partition int   `json:"partition"`
	Evaluator Party `json:"evaluator,omitzero"` // the active consumer of events; empty: none
	Events    int64 `json:"eventsBehind"`       // undecided entries
	Owner     Party `json:"owner,omitzero"`     // the process that may publish decisions
	Ingester  Party `json:"ingester,omitzero"`
	Decisions int64 `json:"decisionsBehind"` // entries not ingested yet
	// Refused is why evaluators refuse the partition, as the label of refloat_refused: history or partitions; empty:
	// nothing that shows in the topics. Owner is empty then: a producer belongs to a process that tries again.
	Refused string `json:"refused,omitempty"`
}

// ClientsOf lists the processes that work on each partition, as far as known.
func ClientsOf(f *Facts) []Clients {
	events, decisions := f.Events.Stats.Value, f.Decisions.Stats.Value
	out := make([]Clients, max(len(events), len(decisions)))
	refused := f.refused()
	for p := range out {
		h := &out[p]
		h.Partition, h.Refused = p, refused[p]
		if p < len(events) {
			h.Evaluator, h.Events = consumerOf(events[p].Subscriptions[EvaluatorSubscription])
			if n, known := undecided(f, p); known {
				h.Events = n
			}
		}
		if p < len(decisions) {
			h.Ingester, h.Decisions = consumerOf(decisions[p].Subscriptions[IngesterSubscription])
			for _, o := range decisions[p].Publishers {
				if o.Mode == modeExclusive && h.Refused == "" {
					h.Owner = Party{cmp.Or(o.instance(), o.Name), address(o.Address), o.Since}
				}
			}
		}
	}
	return out
}

// consumerOf returns a subscription's active consumer and its backlog. A consumer never
// acknowledges the last entry that it has processed, since that position must stay
// provable.
func consumerOf(s Subscription) (Party, int64) {
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

// The reasons for which evaluators refuse a partition that show in the topics.
const (
	refusedHistory    = "history"
	refusedPartitions = "partitions"
)

// refused returns why evaluators refuse partitions until an operator acts, by partition. It judges the topics as an
// evaluator does before it claims a partition. Processes report their refusals only in /readyz and refloat_refused.
func (f *Facts) refused() map[int]string {
	out := map[int]string{}
	for p, claim := range f.Decisions.Claims {
		if !claim.Known() || claim.Value == nil {
			continue
		}
		switch was, now := claim.Value.Partitions, f.Events.Partitions; {
		case was != 0 && now.Known() && now.Value != 0 && was != now.Value: // RD013
			out[p] = refusedPartitions
		case p < len(f.Events.Beginnings) && f.Events.Beginnings[p].Known() && f.Events.Beginnings[p].Value.Compare(claim.Value.Answered) > 0:
			out[p] = refusedHistory
		}
	}
	return out
}

// history checks that events still reach back to the end of the decision log.
func (c *checks) history() {
	const code = "RD047"
	const why = "nobody can decide the events that are gone; evaluators stop there until an operator acts"
	t, claims := &c.facts.Events, c.facts.Decisions.Claims
	if t.Beginnings == nil || claims == nil {
		return // the connection or the topics are reported
	}
	var refused, first, unknown []int
	var err error
	for p, begin := range t.Beginnings {
		switch {
		case !begin.Known():
			unknown, err = append(unknown, p), begin.Err
		case p >= len(claims): // reported as RD011
		case !claims[p].Known():
			unknown, err = append(unknown, p), claims[p].Err
		case claims[p].Value == nil && begin.Value != eventlog.Start:
			first = append(first, p)
		case c.facts.refused()[p] == refusedHistory:
			refused = append(refused, p)
		}
	}
	if len(refused) > 0 {
		p := refused[0]
		c.bad(code, t.Name, fmt.Sprintf("evaluators refuse %s (%s): partition %d begins after %v, the decision log covers it up to %v",
			partitionsOf(refused), refusedHistory, p, t.Beginnings[p].Value, claims[p].Value.Answered), why,
			"restore a checkpoint that closes the gap (--checkpoints), or start the evaluators once with --accept-history-from beginning to go on without these events (docs/operate.md, RefloatPartitionRefused)")
	}
	if len(first) > 0 {
		c.warn(code, t.Name, fmt.Sprintf("the first messages of %s are deleted, and nothing is decided there yet", partitionsOf(first)),
			"evaluators refuse to begin there: without a decision log, they cannot tell whether these messages were ever decided",
			"if no decisions were lost, start the evaluators once with --accept-history-from beginning; otherwise, restore the decisions topic first (docs/operate.md, RefloatPartitionRefused)")
	}
	if len(unknown) > 0 {
		c.unknown(code, t.Name, "whether events reach back to the end of the decision log on "+partitionsOf(unknown), err, why)
	}
	if len(refused)+len(first)+len(unknown) == 0 {
		c.ok(code, t.Name, "reaches back to the end of the decision log")
	}
}

// clients checks that every partition has its processes, and no others.
func (c *checks) clients() {
	f := c.facts
	c.subscription("RD040", &f.Events, EvaluatorSubscription)
	c.active("RD042", &f.Events, EvaluatorSubscription, "evaluator", "failed runs are not decided there")
	c.owners()
	c.subscription("RD041", &f.Decisions, IngesterSubscription)
	c.active("RD044", &f.Decisions, IngesterSubscription, "ingester", "the job database does not advance there")
	c.subscription("RD045", &f.Events, IngesterSubscription)
	c.retainedForNobody()
	c.history()
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

// retainedForNobody finds messages that are retained for ingesters although none may ever
// run again.
func (c *checks) retainedForNobody() {
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
		c.startIngesters()+"; only if none will ever run again: pulsar-admin topics unsubscribe -s "+IngesterSubscription+" "+t.Name)
}

// startIngesters says how ingesters can run.
func (c *checks) startIngesters() string {
	if at := c.facts.RolledBack; !at.IsZero() {
		return "start no ingesters (" + rolledBack(at) + "): " + takeOver
	}
	return "start ingesters with the same --pulsar flags (after `cutover back` they refuse to start: --job-db URL shows whether that is so)"
}

func (c *checks) active(code string, t *Topic, name, who, why string) {
	if !t.Stats.Known() || len(t.Stats.Value) == 0 {
		return // reported as RD040 or RD041
	}
	var idle []int
	backlog := int64(0)
	var refused map[int]string // by evaluators; reported as RD013 and RD047
	fix := c.startIngesters()
	if name == EvaluatorSubscription {
		refused = c.facts.refused()
		fix = "start evaluators with the same --pulsar flags; if some run, their /readyz says whether they refuse a partition, and why"
	}
	skipped := false
	for p, s := range t.Stats.Value {
		sub := s.Subscriptions[name]
		switch _, ok := sub.active(); {
		case ok:
		case refused[p] != "":
			skipped = true
		default:
			idle, backlog = append(idle, p), backlog+sub.Backlog
		}
	}
	if len(idle) == 0 && skipped {
		return
	}
	if len(idle) == 0 {
		c.ok(code, t.Name, fmt.Sprintf("each of %s has an %s", plural.Of(len(t.Stats.Value), "partition"), who))
		return
	}
	c.warn(code, t.Name, fmt.Sprintf("there is no active %s for %s, with a backlog of %s", who, partitionsOf(idle), plural.Of(backlog, "message", "messages")), why, fix)
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
	refused := c.facts.refused()
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
			case refused[p] != "": // a process that tries again
				owned = true
			case ok && !sameProcess(who, active):
				elsewhere, old = append(elsewhere, p), who
				owned = true
			default:
				owned = true
			}
		}
		if ok && !owned && refused[p] == "" {
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
			"it is catching up, or cannot claim the partition", "run this again in a minute; if nothing has changed, the evaluator's /readyz and its log say why")
	}
	if len(strange)+len(elsewhere)+len(none) == 0 {
		c.ok(code, t.Name, "only owners publish")
	}
}
