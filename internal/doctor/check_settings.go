package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/chain"
)

// The largest message that the broker must take: Pulsar's own default.
const maxMessageBytes = 5 << 20

// What a take-over may cost by a setting before it is a finding.
const (
	keepAliveSeconds = 10
	failoverMillis   = 1000
	markDeletesASec  = 0.1
)

// settings checks the brokers' configuration, as far as it shows.
func (c *checks) settings() {
	f := c.facts
	c.deduplication()
	c.journal()
	if !f.Broker.Known() {
		return // RD003 says so
	}
	c.number("RD030", "managedLedgerNewEntriesCheckDelayInMillis", 0,
		func(v int64) string {
			return fmt.Sprintf("who reads at the end of a topic waits up to %d ms for what was just written", v)
		},
		"each decision is later by that on average half, twice: the event is read late, and the decision read back late")
	c.number("RD032", "keepAliveIntervalSeconds", keepAliveSeconds,
		func(v int64) string {
			return fmt.Sprintf("a process that hangs is noticed after %s", durationText(2*time.Duration(v)*time.Second))
		},
		"so long its partitions may stand still, where no standby notices before")
	c.number("RD033", "activeConsumerFailoverDelayTimeMillis", failoverMillis,
		func(v int64) string {
			return fmt.Sprintf("a partition changes hands after %s", time.Duration(v)*time.Millisecond)
		},
		"when an evaluator ends, its partitions stand still for that long; 0 is safe for Refloat")
	c.markDelete()
	c.messageSize()
	c.numbering()
}

// number checks a setting that should not be above a limit.
func (c *checks) number(code, setting string, limit int64, what func(int64) string, why string) {
	text, ok := c.facts.Broker.Value[setting]
	v, err := strconv.ParseInt(text, 10, 64)
	switch {
	case !ok:
		c.warn(code, setting, "is not known: this broker has no such setting", "", "")
	case err != nil:
		c.warn(code, setting, fmt.Sprintf("is %q, which is no number", text), "", "")
	case v > limit:
		c.warn(code, setting, fmt.Sprintf("is %d: %s", v, what(v)), why, fmt.Sprintf("set %s=%d in broker.conf, and restart the brokers", setting, limit))
	default:
		c.ok(code, setting, fmt.Sprintf("is %d", v))
	}
}

func (c *checks) markDelete() {
	const code, setting = "RD034", "managedLedgerDefaultMarkDeleteRateLimit"
	for _, t := range []*Topic{&c.facts.Events, &c.facts.Decisions} {
		if !t.Partitions.Known() {
			continue
		}
		rate := t.MarkDelete.Value.MarkDeleteRate
		switch {
		case !t.MarkDelete.Known():
			c.unknown(code, t.Name, "how often acknowledgements are stored", t.MarkDelete.Err, "")
		case rate > 0 && rate < markDeletesASec:
			c.warn(code, t.Name, fmt.Sprintf("acknowledgements are stored every %s", durationText(time.Duration(float64(time.Second)/rate))),
				"after a broker's restart the subscriptions stand that far back; nothing is decided twice, but ledgers go later",
				fmt.Sprintf("set %s=%g in broker.conf, or by pulsar-admin topicPolicies set-persistence", setting, markDeletesASec))
		default:
			c.ok(code, t.Name, "acknowledgements are stored often enough")
		}
	}
}

func (c *checks) messageSize() {
	const code, setting = "RD035", "maxMessageSize"
	least := func(about string, v int64, fix string) {
		what := "is " + bytesText(v)
		switch {
		case v < chain.MaxEnvelopeBytes+64<<10: // and what the broker counts besides the payload
			c.bad(code, about, what, fmt.Sprintf("an owner publishes up to %s at once, and stops at an envelope that is refused", bytesText(chain.MaxEnvelopeBytes)), fix)
		case v < maxMessageBytes:
			c.warn(code, about, what, "the answer to a single large event may be refused", fix)
		default:
			c.ok(code, about, what)
		}
	}
	v, err := strconv.ParseInt(c.facts.Broker.Value[setting], 10, 64)
	if err != nil {
		c.warn(code, setting, "is not known: the broker does not tell", "", "")
	} else {
		least(setting, v, fmt.Sprintf("set %s=%d in broker.conf (and nettyMaxFrameSizeBytes above it in bookkeeper.conf), and restart both", setting, maxMessageBytes))
	}
	for _, t := range []*Topic{&c.facts.Decisions, &c.facts.Policies} {
		if t.MaxMessage.Known() && t.MaxMessage.Value > 0 {
			least(t.Name, t.MaxMessage.Value, "pulsar-admin topicPolicies remove-max-message-size "+t.Name)
		}
	}
}

// numbering is how a log proves that nothing was before its first message.
func (c *checks) numbering() {
	const code, setting = "RD036", "brokerEntryMetadataInterceptors"
	b := c.facts.Broker.Value
	if strings.Contains(b[setting], "AppendIndexMetadataInterceptor") && b["exposingBrokerEntryMetadataToClientEnabled"] == "true" {
		c.ok(code, setting, "messages are numbered, and the client sees the numbers")
		return
	}
	c.warn(code, setting, "messages are not numbered, or not for clients",
		"an evaluator without state or checkpoint starts only where a topic provably reaches back to its beginning; without numbers the proof fails once the broker has loaded the topic anew or deleted a ledger",
		"set "+setting+"=org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor and exposingBrokerEntryMetadataToClientEnabled=true in broker.conf before the topics are made")
}

func (c *checks) deduplication() {
	const code = "RD026"
	t := &c.facts.Decisions
	if !t.Partitions.Known() || t.Partitions.Value == 0 {
		return
	}
	if !t.Stats.Known() {
		c.unknown(code, t.Name, "whether it is deduplicated", t.Stats.Err, "")
		return
	}
	var odd []int
	state := ""
	on := false
	for p, s := range t.Stats.Value {
		switch s.Deduplication {
		case "Enabled":
			on = true
		case "Disabled", "Initialized", "":
		default:
			odd, state = append(odd, p), s.Deduplication
		}
	}
	switch {
	case len(odd) > 0:
		c.warn(code, t.Name, fmt.Sprintf("deduplication of %s is %q", partitionsOf(odd), state), "while it is neither on nor off, the broker may refuse to publish",
			"pulsar-admin topicPolicies set-deduplication --disable "+t.Name+" (Refloat does not need it)")
	case on:
		c.ok(code, t.Name, "is deduplicated, which does no harm; Refloat does not need it")
	default:
		c.ok(code, t.Name, "is not deduplicated; Refloat does not need it")
	}
}

func (c *checks) journal() {
	const code, setting = "RD031", "journalSyncData"
	b := c.facts.Bookie
	const why = "a message counts when the broker has acknowledged it; without a sync, a loss of power takes such messages back, and evaluators stop, because decisions answer events that are gone"
	if !b.Known() {
		fix := "look for " + setting + " in bookkeeper.conf of each bookie (its default is true), or name a bookie's web address by --bookie"
		if c.facts.Standalone {
			fix = "look for " + setting + " in standalone.conf, which ships with false: set it to true where the data is worth something"
		}
		c.warn(code, setting, "is not known: "+oneLine(b.Err), why, fix)
		return
	}
	quorum := c.facts.Decisions.MarkDelete.Value.AckQuorum
	switch v, ok := b.Value[setting]; {
	case !ok:
		c.warn(code, setting, "is not known: the bookie does not tell", why, "look for it in bookkeeper.conf")
	case v == "true":
		c.ok(code, setting, "is true")
	case quorum > 1:
		c.warn(code, setting, fmt.Sprintf("is %s; each message is acknowledged by %d bookies", v, quorum), why+"; that takes a loss of power of all of them at once", "set "+setting+"=true in bookkeeper.conf, and restart the bookies")
	default:
		c.bad(code, setting, "is "+v, why, "set "+setting+"=true in bookkeeper.conf (standalone.conf), and restart")
	}
}

// standalone says whether a configuration is that of `pulsar standalone`.
func standalone(broker map[string]string) bool {
	return slices.Contains([]string{"rocksdb", "memory"}, strings.Split(broker["metadataStoreUrl"], ":")[0])
}
