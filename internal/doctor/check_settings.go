package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/chain"
)

// maxMessageBytes is the message size that the broker should accept: Pulsar's default.
const maxMessageBytes = 5 << 20

// Limits above which a setting that affects take-over is reported.
const (
	keepAliveSeconds = 10
	failoverMillis   = 1000
	markDeletesASec  = 0.1
)

// settings checks the brokers' configuration.
func (c *checks) settings() {
	f := c.facts
	c.deduplication()
	c.journal()
	if !f.Broker.Known() {
		return // reported as RD003
	}
	c.number("RD030", "managedLedgerNewEntriesCheckDelayInMillis", 0,
		func(v int64) string {
			return fmt.Sprintf("readers at the end of a topic wait up to %d ms for new messages", v)
		},
		"each decision is delayed twice, by half of that on average: when its event is read, and when it is read back")
	c.number("RD032", "keepAliveIntervalSeconds", keepAliveSeconds,
		func(v int64) string {
			return fmt.Sprintf("a hung process is detected after %s", durationText(2*time.Duration(v)*time.Second))
		},
		"its partitions may stand still for that long, unless a standby detects it earlier")
	c.number("RD033", "activeConsumerFailoverDelayTimeMillis", failoverMillis,
		func(v int64) string {
			return fmt.Sprintf("a partition fails over after %s", time.Duration(v)*time.Millisecond)
		},
		"when an evaluator stops, its partitions stand still for that long; 0 is safe for Refloat")
	c.markDelete()
	c.messageSize()
	c.numbering()
}

// number reports a setting above a limit.
func (c *checks) number(code, setting string, limit int64, what func(int64) string, why string) {
	text, ok := c.facts.Broker.Value[setting]
	v, err := strconv.ParseInt(text, 10, 64)
	switch {
	case !ok:
		c.warn(code, setting, "is unknown: this broker has no such setting", "", "")
	case err != nil:
		c.warn(code, setting, fmt.Sprintf("is %q, which is not a number", text), "", "")
	case v > limit:
		c.warn(code, setting, fmt.Sprintf("is %d: %s", v, what(v)), why, fmt.Sprintf("set %s=%d in broker.conf and restart the brokers", setting, limit))
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
				"after a broker restart, subscriptions resume that far back; nothing is decided twice, but ledgers are deleted later",
				fmt.Sprintf("set %s=%g in broker.conf, or use pulsar-admin topicPolicies set-persistence", setting, markDeletesASec))
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
		case v < chain.MaxEnvelopeBytes+64<<10: // allowance for metadata, which the broker counts too
			c.bad(code, about, what, fmt.Sprintf("an owner publishes envelopes of up to %s, and stops if the broker rejects one", bytesText(chain.MaxEnvelopeBytes)), fix)
		case v < maxMessageBytes:
			c.warn(code, about, what, "the broker may reject the envelope of a single large event", fix)
		default:
			c.ok(code, about, what)
		}
	}
	v, err := strconv.ParseInt(c.facts.Broker.Value[setting], 10, 64)
	if err != nil {
		c.warn(code, setting, "is unknown: the broker does not expose it", "", "")
	} else {
		least(setting, v, fmt.Sprintf("set %s=%d in broker.conf (and a larger nettyMaxFrameSizeBytes in bookkeeper.conf), and restart both", setting, maxMessageBytes))
	}
	for _, t := range []*Topic{&c.facts.Decisions, &c.facts.Policies} {
		if t.MaxMessage.Known() && t.MaxMessage.Value > 0 {
			least(t.Name, t.MaxMessage.Value, "pulsar-admin topicPolicies remove-max-message-size "+t.Name)
		}
	}
}

// numbering checks message indexes, by which a log proves that no message preceded its
// first one.
func (c *checks) numbering() {
	const code, setting = "RD036", "brokerEntryMetadataInterceptors"
	b := c.facts.Broker.Value
	if strings.Contains(b[setting], "AppendIndexMetadataInterceptor") && b["exposingBrokerEntryMetadataToClientEnabled"] == "true" {
		c.ok(code, setting, "messages have indexes, and clients see them")
		return
	}
	c.warn(code, setting, "messages have no indexes, or clients do not see them",
		"an evaluator without state or checkpoint starts only if it can prove that a topic is complete; without indexes the proof fails once the broker has reloaded the topic or deleted a ledger",
		"set "+setting+"=org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor and exposingBrokerEntryMetadataToClientEnabled=true in broker.conf before you create the topics")
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
		c.warn(code, t.Name, fmt.Sprintf("deduplication of %s is %q", partitionsOf(odd), state), "while it is neither enabled nor disabled, the broker may reject messages",
			"pulsar-admin topicPolicies set-deduplication --disable "+t.Name+" (Refloat does not need it)")
	case on:
		c.ok(code, t.Name, "has deduplication enabled, which does no harm; Refloat does not need it")
	default:
		c.ok(code, t.Name, "has deduplication disabled; Refloat does not need it")
	}
}

func (c *checks) journal() {
	const code, setting = "RD031", "journalSyncData"
	b := c.facts.Bookie
	const why = "without syncs, a power loss can lose acknowledged messages, and evaluators stop when events that they have decided are gone"
	if !b.Known() {
		fix := "check " + setting + " in bookkeeper.conf of each bookie (the default is true), or pass a bookie's HTTP address as --bookie"
		if c.facts.Standalone {
			fix = "check " + setting + " in standalone.conf: the shipped value is false; set it to true if the data matters"
		}
		c.warn(code, setting, "is unknown: "+oneLine(b.Err), why, fix)
		return
	}
	quorum := c.facts.Decisions.MarkDelete.Value.AckQuorum
	switch v, ok := b.Value[setting]; {
	case !ok:
		c.warn(code, setting, "is unknown: the bookie does not expose it", why, "check it in bookkeeper.conf")
	case v == "true":
		c.ok(code, setting, "is true")
	case quorum > 1:
		c.warn(code, setting, fmt.Sprintf("is %s; each message is acknowledged by %d bookies", v, quorum), why+"; that takes a simultaneous power loss of all of them", "set "+setting+"=true in bookkeeper.conf and restart the bookies")
	default:
		c.bad(code, setting, "is "+v, why, "set "+setting+"=true in bookkeeper.conf (or standalone.conf) and restart")
	}
}

// standalone reports whether a configuration is that of `pulsar standalone`.
func standalone(broker map[string]string) bool {
	return slices.Contains([]string{"rocksdb", "memory"}, strings.Split(broker["metadataStoreUrl"], ":")[0])
}
