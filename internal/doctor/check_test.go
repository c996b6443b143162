package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

const (
	events    = "persistent://t/n/events"
	decisions = "persistent://t/n/decisions"
	policies  = "persistent://t/n/policies"
)

func known[T any](v T) Fact[T] { return Fact[T]{Value: v} }

func denied[T any]() Fact[T] { return Fact[T]{Err: fmt.Errorf("GET x: 403: %w", ErrDenied)} }

// goodTopic is a correctly configured topic, with a consumer on each partition.
func goodTopic(name string, n int, subscriptions ...string) Topic {
	t := Topic{
		Name: name, Partitions: known(n), Retention: known(Retention{-1, -1}), TTL: known(0),
		Quotas: known(map[string]Quota{}), Compaction: known(int64(0)), Offload: known(Offload{Driver: "aws-s3", Bytes: -1, Seconds: -1}), Inactive: known(Inactive{}),
		MarkDelete: known(Persistence{MarkDeleteRate: 1, AckQuorum: 2}), MaxMessage: known(int64(0)),
		Stats: known(make([]Stats, n)), Ledgers: known(make([]Ledgers, n)),
	}
	for p := range n {
		t.Ledgers.Value[p].Compacted.ID = -1
		t.Stats.Value[p].Deduplication = "Disabled"
		t.Stats.Value[p].Subscriptions = map[string]Subscription{}
		for _, name := range subscriptions {
			t.Stats.Value[p].Subscriptions[name] = Subscription{
				Type: "Failover", Active: "me", Durable: true, Consumers: []Consumer{{"other", "/10.0.0.2:1", "then"}, {"me", "/10.0.0.1:1", "then"}},
			}
		}
	}
	return t
}

// good is a deployment for which every check passes.
func good() *Facts {
	f := &Facts{
		Service: known("pulsar://h:6650"),
		Version: known("4.0.8"),
		Broker: known(map[string]string{
			"managedLedgerNewEntriesCheckDelayInMillis": "0", "keepAliveIntervalSeconds": "10", "activeConsumerFailoverDelayTimeMillis": "1000",
			"maxMessageSize":                             "5242880",
			"brokerEntryMetadataInterceptors":            "[org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor]",
			"exposingBrokerEntryMetadataToClientEnabled": "true",
		}),
		Bookie:    known(map[string]string{"journalSyncData": "true"}),
		Events:    goodTopic(events, 3, EvaluatorSubscription, IngesterSubscription),
		Decisions: goodTopic(decisions, 3, IngesterSubscription),
		Policies:  goodTopic(policies, 1),
	}
	for p := range 3 {
		f.Decisions.Stats.Value[p].Publishers = []Publisher{{Name: "owner", Mode: modeExclusive, Address: "/10.0.0.1:2", Since: "then"}}
		f.Decisions.Claims = append(f.Decisions.Claims, known(&Claim{Epoch: 1, Partitions: 3, Answered: eventlog.Position{Ledger: 3}}))
		f.Events.Beginnings = append(f.Events.Beginnings, known(eventlog.Start))
	}
	return f
}

// archived makes decisions finite, and archived up to a ledger of partition 1; ledgers 4 and 5 are held, with
// ten entries after the first one's.
func (f *Facts) archived(minutes int64, age time.Duration, ledger int64) {
	f.Decisions.Retention.Value = Retention{minutes, -1}
	f.Decisions.Ledgers.Value[1].Ledgers = []Ledger{{ID: 4, Entries: 10}, {ID: 5, Entries: 11}}
	f.Archive = &Archived{Dir: "/a", Age: age, Decisions: map[int]eventlog.Position{1: {Ledger: ledger}}}
}

func offload(bytes, seconds int64, lag time.Duration) Offload {
	ms := lag.Milliseconds()
	return Offload{Driver: "aws-s3", Bytes: bytes, Seconds: seconds, Lag: &ms}
}

// TestOffloadKept: what harms nothing is no finding.
func TestOffloadKept(t *testing.T) {
	t.Parallel()
	kept, none := offload(1, 1, 0), offload(1, 1, 0)
	kept.Lag, none.Driver = nil, ""
	for _, o := range []Offload{kept, none} {
		f := good()
		f.Decisions.Offload.Value = o
		if found := Check(f); Worst(found) != OK {
			t.Errorf("%+v: %s", o, printed(found))
		}
	}
}

func TestGood(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range Check(good()) {
		seen[f.Code] = true
		if f.Severity != OK || f.Why != "" || f.Fix != "" {
			t.Errorf("finding %+v", f)
		}
	}
	want := strings.Fields("RD001 RD002 RD003 RD010 RD011 RD012 RD013 RD020 RD021 RD022 RD023 RD024 RD025 RD026 RD027 RD030 RD031 RD032 RD033 RD034 RD035 RD036 RD040 RD041 RD042 RD043 RD044 RD045 RD046 RD047")
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
	if Worst(Check(good())) != OK || Worst(nil) != OK || Worst([]Finding{{Severity: Warn}, {Severity: Error}, {}}) != Error {
		t.Error("Worst is wrong")
	}
}

// TestCheck breaks one thing at a time: the finding is reported with a fix, and nothing
// else changes.
func TestCheck(t *testing.T) {
	t.Parallel()
	sub := func(s *Stats, name string, change func(*Subscription)) {
		v := s.Subscriptions[name]
		change(&v)
		s.Subscriptions[name] = v
	}
	for _, c := range []struct {
		name  string
		spoil func(f *Facts)
		want  string // severity, code, and subject
		texts []string
		more  string // other codes that may change
	}{
		{"no connection", func(f *Facts) { f.Service = Fact[string]{Err: errors.New("connection\nrefused")} }, "error RD001 client", []string{"connection refused", "--pulsar"}, ""},
		{"no version", func(f *Facts) { f.Version = denied[string]() }, "warn RD002 broker", []string{"unknown", "403"}, ""},
		{"an old broker", func(f *Facts) { f.Version.Value = "2.11.4" }, "warn RD002 broker", []string{"2.11.4", "upgrade"}, ""},
		{"an odd version", func(f *Facts) { f.Version.Value = "new" }, "warn RD002 broker", []string{`"new"`}, ""},
		{"no configuration", func(f *Facts) { f.Broker = denied[map[string]string]() }, "warn RD003 broker", []string{"unknown", "as a user who may read it"}, "RD030 RD032 RD033 RD034 RD035 RD036"},

		{"no events", func(f *Facts) { f.Events = Topic{Name: events, Partitions: Fact[int]{Err: ErrNotFound}} }, "error RD010 " + events, []string{"does not exist", "--create-events"}, "RD013 RD021 RD022 RD023 RD024 RD025 RD027 RD034 RD040 RD042 RD045 RD046 RD011"},
		{"events denied", func(f *Facts) { f.Events = Topic{Name: events, Partitions: denied[int]()} }, "warn RD010 " + events, []string{"unknown"}, "RD013 RD021 RD022 RD023 RD024 RD025 RD027 RD034 RD040 RD042 RD045 RD046 RD011"},
		{"events without partitions", func(f *Facts) { f.Events.Partitions.Value = 0 }, "error RD010 " + events, []string{"not partitioned"}, "RD013 RD040 RD045 RD011"},
		{"events that lost partitions", func(f *Facts) { f.Events.Stats.Value[1] = Stats{Missing: true} }, "warn RD010 " + events, []string{"partition 1 of 3 do not exist"}, "RD042 RD043 RD024"},
		{"no decisions", func(f *Facts) { f.Decisions = Topic{Name: decisions, Partitions: Fact[int]{Err: ErrNotFound}} }, "error RD011 " + decisions, []string{"does not exist", "refloatctl topics create"}, "RD013 RD020 RD022 RD023 RD024 RD025 RD026 RD027 RD034 RD041 RD043 RD044"},
		{"decisions that lost partitions", func(f *Facts) { f.Decisions.Stats.Value[2] = Stats{Missing: true} }, "error RD011 " + decisions, []string{"partition 2 of 3"}, "RD044 RD024 RD043"},
		{"fewer decisions", func(f *Facts) { f.Decisions.Partitions.Value = 2 }, "error RD011 " + decisions, []string{"has 2 partitions, but events has 3", "--grow", "--accept-partitions 3"}, ""},
		{"more decisions", func(f *Facts) { f.Decisions.Partitions.Value = 5 }, "error RD011 " + decisions, []string{"has 5 partitions, but events has 3", "--pulsar-decisions"}, ""},
		{"no policies", func(f *Facts) { f.Policies = Topic{Name: policies, Partitions: Fact[int]{Err: ErrNotFound}} }, "error RD012 " + policies, []string{"does not exist"}, "RD020 RD022 RD024 RD025 RD027"},
		{"policies on two", func(f *Facts) { f.Policies.Partitions.Value = 2 }, "error RD012 " + policies, []string{"has 2 partitions", "--pulsar-policies"}, ""},
		{"events grew", func(f *Facts) { f.Decisions.Claims[0].Value.Partitions, f.Decisions.Claims[2].Value.Partitions = 2, 2 }, "error RD013 " + decisions, []string{"partitions 0, 2: claimed when events had 2 partitions; now it has 3", "--accept-partitions 3"}, ""},
		{"a claim that cannot be read", func(f *Facts) { f.Decisions.Claims[1] = Fact[*Claim]{Err: errors.New("damaged")} }, "warn RD013 " + decisions, []string{"partition 1", "damaged"}, "RD047"},

		{"decisions go", func(f *Facts) { f.Decisions.Retention.Value = Retention{} }, "error RD020 " + decisions, []string{"until all subscriptions", "topics create", "--archive DIR"}, ""},
		{"decisions go by time", func(f *Facts) { f.Decisions.Retention.Value = Retention{2880, -1} }, "error RD020 " + decisions, []string{"for 2 d"}, ""},
		{"decisions go by size", func(f *Facts) { f.Decisions.Retention.Value = Retention{-1, 100} }, "error RD020 " + decisions, []string{"up to 100 MB"}, ""},
		{"policies go", func(f *Facts) { f.Policies.Retention.Value = Retention{90, 100} }, "error RD020 " + policies, []string{"for 90 min and up to 100 MB", "policies are read"}, ""},
		{"decisions go, archived long ago", func(f *Facts) { f.archived(2880, 72*time.Hour, 5) }, "error RD020 " + decisions, []string{"for 2 d", "10 messages are not archived", "from 3 d ago", "archive create /a"}, ""},
		{"decisions go, archived a while ago", func(f *Facts) { f.archived(2880, 30*time.Hour, 5) }, "warn RD020 " + decisions, []string{"for 2 d", "from 30 h ago", "archive create /a"}, ""},
		{"decisions went before they were archived", func(f *Facts) { f.archived(2880, time.Hour, 3) }, "error RD020 " + decisions, []string{"partition 1: the archive /a ends before", "archive create /a"}, ""},
		{"decisions go by size, archived", func(f *Facts) {
			f.archived(2880, time.Hour, 5)
			f.Decisions.Retention.Value.MB = 7
		}, "error RD020 " + decisions, []string{"up to 7 MB", "--retain-decisions 90d"}, ""},
		{"decisions go, ledgers denied", func(f *Facts) {
			f.archived(2880, time.Hour, 5)
			f.Decisions.Ledgers = denied[[]Ledgers]()
		}, "warn RD020 " + decisions, []string{"what it still holds is unknown"}, ""},
		{"events went before they were archived", func(f *Facts) {
			f.archived(2880, time.Hour, 5)
			f.Events.Retention.Value = Retention{60, -1}
			f.Events.Ledgers.Value[2].Ledgers = []Ledger{{ID: 8, Entries: 4}}
			f.Archive.Events = map[int]eventlog.Position{2: {Ledger: 7, Entry: 3}}
		}, "error RD021 " + events, []string{"partition 2: the archive /a ends before"}, ""},
		{"policies go, archived", func(f *Facts) {
			f.archived(2880, time.Hour, 5)
			f.Policies.Retention.Value = Retention{2880, -1}
		}, "error RD020 " + policies, []string{"for 2 d", "topics create"}, ""},
		{"retention denied", func(f *Facts) { f.Decisions.Retention = denied[Retention]() }, "warn RD020 " + decisions, []string{"unknown", "as a user who may read it"}, ""},
		{"events go", func(f *Facts) { f.Events.Retention.Value = Retention{} }, "warn RD021 " + events, []string{"as soon as evaluators", "--retain-events 7d"}, ""},
		{"events go by time", func(f *Facts) { f.Events.Retention.Value = Retention{60, -1} }, "warn RD021 " + events, []string{"for 1 h", "longer than the age"}, ""},
		{"retention of events denied", func(f *Facts) { f.Events.Retention = denied[Retention]() }, "warn RD021 " + events, []string{"unknown"}, ""},
		{"TTL on events", func(f *Facts) { f.Events.TTL.Value = 3600 }, "error RD022 " + events, []string{"expire after 1 h", "set-message-ttl --ttl 0 " + events}, ""},
		{"TTL on decisions", func(f *Facts) { f.Decisions.TTL.Value = 90 }, "error RD022 " + decisions, []string{"1m30s"}, ""},
		{"TTL denied", func(f *Facts) { f.Policies.TTL = denied[int]() }, "warn RD022 " + policies, []string{"unknown"}, ""},
		{"a quota that drops", func(f *Facts) { f.Events.Quotas.Value[quotaBySize] = Quota{10 << 30, -1, quotaEviction} }, "error RD023 " + events, []string{"drops the oldest", "10 GiB", "--type destination_storage"}, ""},
		{"a quota that stops Armada", func(f *Facts) {
			f.Events.Quotas.Value[quotaBySize] = Quota{1000, -1, "producer_request_hold"}
		}, "warn RD023 " + events, []string{"1000 bytes", "Armada itself"}, ""},
		{"a quota that stops evaluators", func(f *Facts) { f.Decisions.Quotas.Value[quotaByAge] = Quota{10, 7200, "producer_exception"} }, "warn RD023 " + decisions, []string{"older than 2 h", "evaluators then stop", "--type message_age"}, ""},
		{"quota denied", func(f *Facts) { f.Decisions.Quotas = denied[map[string]Quota]() }, "warn RD023 " + decisions, []string{"unknown"}, ""},
		{"inactive policies go", func(f *Facts) {
			f.Policies.Inactive.Value = Inactive{"delete_when_no_subscriptions", 60, true}
			f.Policies.Retention.Value = Retention{60, 60}
		}, "error RD024 " + policies, []string{"for 1 min", "--disable-delete-while-inactive"}, "RD020"},
		{"inactive events without subscription", func(f *Facts) {
			f.Events.Inactive.Value = Inactive{"delete_when_no_subscriptions", 60, true}
			f.Events.Retention.Value = Retention{60, 60}
			clear(f.Events.Stats.Value[0].Subscriptions)
		}, "warn RD024 " + events, []string{"without a subscription", "topics create"}, "RD021 RD040 RD042 RD045"},
		{"inactive though subscribed", func(f *Facts) {
			f.Events.Inactive.Value = Inactive{deleteCaughtUp, 60, true}
			f.Events.Retention.Value = Retention{60, 60}
		}, "error RD024 " + events, []string{"have no backlog"}, "RD021"},
		{"inactive denied", func(f *Facts) { f.Policies.Inactive = denied[Inactive]() }, "warn RD024 " + policies, []string{"unknown"}, ""},
		{"compacted decisions", func(f *Facts) { f.Decisions.Compaction.Value = 1 << 20 }, "error RD025 " + decisions, []string{"1 MiB", "set-compaction-threshold --threshold 0"}, ""},
		{"compacted events", func(f *Facts) { f.Events.Compaction.Value = 1 << 10 }, "warn RD025 " + events, []string{"1 KiB"}, ""},
		{"compacted once", func(f *Facts) { f.Policies.Ledgers.Value[0].Compacted.ID = 7 }, "warn RD025 " + policies, []string{"has been compacted"}, ""},
		{"decisions go to a second storage", func(f *Facts) { f.Decisions.Offload.Value = offload(1<<20, -1, 4*time.Hour) }, "error RD027 " + decisions, []string{"offloaded to aws-s3", "4 h later", "remove-offload-policies"}, ""},
		{"policies go to a second storage by age", func(f *Facts) { f.Policies.Offload.Value = offload(-1, 0, 0) }, "error RD027 " + policies, nil, ""},
		{"events go to a second storage", func(f *Facts) { f.Events.Offload.Value = offload(0, -1, time.Minute) }, "warn RD027 " + events, []string{"1 min later"}, ""},
		{"offload denied", func(f *Facts) { f.Decisions.Offload = denied[Offload]() }, "warn RD027 " + decisions, []string{"unknown"}, ""},
		{"compaction denied", func(f *Facts) { f.Events.Compaction = denied[int64]() }, "warn RD025 " + events, []string{"unknown"}, ""},

		{"deduplication broken", func(f *Facts) { f.Decisions.Stats.Value[1].Deduplication = "Failed" }, "warn RD026 " + decisions, []string{`partition 1 is "Failed"`, "--disable"}, ""},
		{"stats denied", func(f *Facts) { f.Decisions.Stats = denied[[]Stats]() }, "warn RD026 " + decisions, []string{"unknown"}, "RD041 RD043 RD044"},
		{"slow tail", func(f *Facts) { f.Broker.Value["managedLedgerNewEntriesCheckDelayInMillis"] = "10" }, "warn RD030 managedLedgerNewEntriesCheckDelayInMillis", []string{"is 10", "up to 10 ms", "set managedLedgerNewEntriesCheckDelayInMillis=0 in broker.conf"}, ""},
		{"no such setting", func(f *Facts) { delete(f.Broker.Value, "managedLedgerNewEntriesCheckDelayInMillis") }, "warn RD030 managedLedgerNewEntriesCheckDelayInMillis", []string{"unknown"}, ""},
		{"no number", func(f *Facts) { f.Broker.Value["keepAliveIntervalSeconds"] = "long" }, "warn RD032 keepAliveIntervalSeconds", []string{`"long"`}, ""},
		{"unsynced journal", func(f *Facts) {
			f.Bookie.Value["journalSyncData"] = "false"
			f.Decisions.MarkDelete.Value.AckQuorum = 1
		}, "error RD031 journalSyncData", []string{"is false", "journalSyncData=true"}, ""},
		{"unsynced journals", func(f *Facts) { f.Bookie.Value["journalSyncData"] = "false" }, "warn RD031 journalSyncData", []string{"by 2 bookies", "of all of them"}, ""},
		{"journal not told", func(f *Facts) { delete(f.Bookie.Value, "journalSyncData") }, "warn RD031 journalSyncData", []string{"does not expose"}, ""},
		{"bookie not asked", func(f *Facts) { f.Bookie = Fact[map[string]string]{Err: ErrNotChecked} }, "warn RD031 journalSyncData", []string{"unknown", "--bookie"}, ""},
		{"bookie of standalone", func(f *Facts) { f.Bookie, f.Standalone = Fact[map[string]string]{Err: ErrNotChecked}, true }, "warn RD031 journalSyncData", []string{"unknown", "standalone.conf"}, ""},
		{"long keep-alive", func(f *Facts) { f.Broker.Value["keepAliveIntervalSeconds"] = "30" }, "warn RD032 keepAliveIntervalSeconds", []string{"after 1 min", "keepAliveIntervalSeconds=10"}, ""},
		{"slow fail-over", func(f *Facts) { f.Broker.Value["activeConsumerFailoverDelayTimeMillis"] = "5000" }, "warn RD033 activeConsumerFailoverDelayTimeMillis", []string{"after 5s"}, ""},
		{"lazy acknowledgements", func(f *Facts) { f.Events.MarkDelete.Value.MarkDeleteRate = 0.01 }, "warn RD034 " + events, []string{"every 1m40s"}, ""},
		{"acknowledgements denied", func(f *Facts) { f.Decisions.MarkDelete = denied[Persistence]() }, "warn RD034 " + decisions, []string{"unknown"}, ""},
		{"small messages", func(f *Facts) { f.Broker.Value["maxMessageSize"] = "1048576" }, "error RD035 maxMessageSize", []string{"is 1 MiB", "4500 KiB", "maxMessageSize=5242880"}, ""},
		{"smaller messages", func(f *Facts) { f.Broker.Value["maxMessageSize"] = "5000000" }, "warn RD035 maxMessageSize", []string{"5000000 bytes"}, ""},
		{"size not told", func(f *Facts) { delete(f.Broker.Value, "maxMessageSize") }, "warn RD035 maxMessageSize", []string{"unknown"}, ""},
		{"small decisions", func(f *Facts) { f.Decisions.MaxMessage.Value = 1 << 20 }, "error RD035 " + decisions, []string{"remove-max-message-size"}, ""},
		{"no numbers", func(f *Facts) { f.Broker.Value["brokerEntryMetadataInterceptors"] = "[]" }, "warn RD036 brokerEntryMetadataInterceptors", []string{"have no indexes", "AppendIndexMetadataInterceptor"}, ""},
		{"numbers kept back", func(f *Facts) { f.Broker.Value["exposingBrokerEntryMetadataToClientEnabled"] = "false" }, "warn RD036 brokerEntryMetadataInterceptors", []string{"exposingBrokerEntryMetadataToClientEnabled=true"}, ""},

		{"no subscription", func(f *Facts) { delete(f.Events.Stats.Value[1].Subscriptions, EvaluatorSubscription) }, "warn RD040 " + events, []string{"refloat-evaluator is missing on partition 1", "topics create"}, "RD042 RD043"},
		{"nothing retains events", func(f *Facts) {
			delete(f.Events.Stats.Value[1].Subscriptions, EvaluatorSubscription)
			f.Events.Retention.Value = Retention{}
		}, "error RD040 " + events, []string{"nothing retains events"}, "RD021 RD042 RD043"},
		{"a passing subscription", func(f *Facts) {
			sub(&f.Decisions.Stats.Value[2], IngesterSubscription, func(s *Subscription) { s.Durable = false })
		}, "error RD041 " + decisions, []string{"of partition 2 is not durable"}, ""},
		{"a strange consumer", func(f *Facts) {
			sub(&f.Events.Stats.Value[0], EvaluatorSubscription, func(s *Subscription) { s.Type = "Shared" })
		}, "error RD040 " + events, []string{"of type Shared", "another program"}, ""},
		{"no evaluator", func(f *Facts) {
			sub(&f.Events.Stats.Value[2], EvaluatorSubscription, func(s *Subscription) { s.Consumers, s.Backlog = nil, 7 })
		}, "warn RD042 " + events, []string{"no active evaluator for partition 2, with a backlog of 7 messages", "start evaluators"}, ""},
		{"no ingester", func(f *Facts) {
			sub(&f.Decisions.Stats.Value[0], IngesterSubscription, func(s *Subscription) { s.Active = "" })
		}, "warn RD044 " + decisions, []string{"no active ingester for partition 0"}, ""},
		{"a stranger publishes", func(f *Facts) { f.Decisions.Stats.Value[1].Publishers[0].Mode = "Shared" }, "error RD043 " + decisions, []string{"owner at 10.0.0.1:2 publishes to partition 1 as Shared"}, "RD043"},
		{"nothing holds events for ingesters", func(f *Facts) {
			delete(f.Events.Stats.Value[1].Subscriptions, IngesterSubscription)
			f.Events.Retention.Value = Retention{}
		}, "error RD045 " + events, []string{"refloat-ingester is missing on partition 1", "until they are in the job database"}, "RD021"},
		{"no subscription for ingesters", func(f *Facts) { delete(f.Events.Stats.Value[1].Subscriptions, IngesterSubscription) }, "warn RD045 " + events, []string{"only retention keeps"}, ""},
		{"held for nobody", func(f *Facts) {
			sub(&f.Events.Stats.Value[2], IngesterSubscription, func(s *Subscription) { s.Consumers, s.Backlog = nil, 7 })
		}, "warn RD046 " + events, []string{"7 messages of partition 2 are retained", "unsubscribe -s refloat-ingester " + events}, ""},
		{"all partitions are refused", func(f *Facts) {
			for p := range 3 {
				f.Events.Beginnings[p].Value = eventlog.Position{Ledger: 7, Batch: -1}
				delete(f.Events.Stats.Value[p].Subscriptions, EvaluatorSubscription)
				f.Events.Stats.Value[p].Subscriptions[EvaluatorSubscription] = Subscription{Type: "Failover", Durable: true} // it steps back
				f.Decisions.Stats.Value[p].Publishers = nil
			}
		}, "error RD047 " + events, []string{"evaluators refuse partitions 0, 1, 2 (history)", "begins after 7:0:-1", "up to 3:0:0", "--checkpoints", "--accept-history-from beginning"}, ""},
		{"a refused partition is tried again", func(f *Facts) {
			f.Events.Beginnings[1].Value = eventlog.Position{Ledger: 7, Batch: -1}
			f.Decisions.Stats.Value[1].Publishers[0].Address = "/10.0.0.9:2"
		}, "error RD047 " + events, []string{"evaluators refuse partition 1 (history)"}, ""},
		{"the first start on an old topic", func(f *Facts) {
			f.Events.Beginnings[1].Value = eventlog.Position{Ledger: 7, Batch: -1}
			f.Decisions.Claims[1].Value = nil
		}, "warn RD047 " + events, []string{"partition 1", "nothing is decided", "--accept-history-from beginning"}, ""},
		{"a beginning that cannot be read", func(f *Facts) { f.Events.Beginnings[1] = denied[eventlog.Position]() }, "warn RD047 " + events, []string{"unknown", "partition 1"}, ""},
		{"rolled back", func(f *Facts) {
			f.RolledBack = time.Unix(1_000_000, 0)
			for p := range 3 {
				sub(&f.Decisions.Stats.Value[p], IngesterSubscription, func(s *Subscription) { s.Consumers, s.Backlog = nil, 7 })
				sub(&f.Events.Stats.Value[p], IngesterSubscription, func(s *Subscription) { s.Consumers, s.Backlog = nil, 7 })
			}
		}, "warn RD044 " + decisions, []string{"rolled back to Armada's ingester at 1970-01-12T13:46:40Z", "refuse to start", "refloatctl cutover start"}, "RD046"},
		{"an old owner", func(f *Facts) { f.Decisions.Stats.Value[1].Publishers[0].Address = "/10.0.0.9:2" }, "warn RD043 " + decisions, []string{"10.0.0.9:2 holds partition 1 since then", "pulsar-admin topics unload"}, ""},
		{"no owner", func(f *Facts) { f.Decisions.Stats.Value[1].Publishers = nil }, "warn RD043 " + decisions, []string{"but no owner, for partition 1"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := good()
			c.spoil(f)
			found := Check(f)
			i := slices.IndexFunc(found, func(f Finding) bool {
				return fmt.Sprintf("%v %s %s", f.Severity, f.Code, f.About) == c.want
			})
			if i < 0 {
				t.Fatalf("no finding %q among\n%s", c.want, printed(found))
			}
			text := found[i].What + "\n" + found[i].Why + "\n" + found[i].Fix
			for _, s := range c.texts {
				if !strings.Contains(text, s) {
					t.Errorf("finding does not say %q:\n%s", s, text)
				}
			}
			// What else differs from the good deployment?
			for _, g := range found {
				if g.Severity != OK && g.Code != found[i].Code && !strings.Contains(c.more, g.Code) {
					t.Errorf("also found: %+v", g)
				}
			}
			if !slices.IsSortedFunc(found, func(a, b Finding) int { return int(b.Severity) - int(a.Severity) }) {
				t.Errorf("not sorted:\n%s", printed(found))
			}
		})
	}
}

func printed(found []Finding) string {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%v %s %s: %s\n", f.Severity, f.Code, f.About, f.What)
	}
	return b.String()
}

// TestFine: deployments that look odd but are fine.
func TestFine(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *Facts){
		"archived in time": func(f *Facts) { f.archived(2880, time.Hour, 5) },
		"all of it archived, long ago": func(f *Facts) {
			f.archived(2880, 1000*time.Hour, 5)
			f.Archive.Decisions[1] = eventlog.Position{Ledger: 5, Entry: 10}
		},
		"archived, and deleted since": func(f *Facts) {
			f.archived(2880, 1000*time.Hour, 3)
			f.Decisions.Ledgers.Value[1] = Ledgers{Ledgers: []Ledger{{ID: 9}}, Compacted: ledgerID{-1}}
		},
		"kept, so not deleted":        func(f *Facts) { f.Policies.Inactive.Value = Inactive{deleteCaughtUp, 60, true} },
		"a quota without limit":       func(f *Facts) { f.Events.Quotas.Value[quotaBySize] = Quota{-1, -1, quotaEviction} },
		"an age without limit":        func(f *Facts) { f.Events.Quotas.Value[quotaByAge] = Quota{1 << 30, -1, quotaEviction} },
		"deduplicated":                func(f *Facts) { f.Decisions.Stats.Value[0].Deduplication = "Enabled" },
		"a partition not yet claimed": func(f *Facts) { f.Decisions.Claims[0] = Fact[*Claim]{} },
		"a claim that says nothing":   func(f *Facts) { f.Decisions.Claims[0].Value.Partitions = 0 },
		"no rate limit":               func(f *Facts) { f.Events.MarkDelete.Value.MarkDeleteRate = 0 },
		"subscribed, so not deleted": func(f *Facts) {
			f.Events.Inactive.Value = Inactive{"delete_when_no_subscriptions", 60, true}
		},
	} {
		f := good()
		change(f)
		if found := Check(f); Worst(found) != OK {
			t.Errorf("%s:\n%s", name, printed(found))
		}
	}
}

// TestNothingKnown: with the right to connect only, everything is reported as unknown.
func TestNothingKnown(t *testing.T) {
	t.Parallel()
	nothing := Fact[int]{Err: ErrDenied}
	f := &Facts{
		Service: Fact[string]{Err: ErrNotChecked}, Version: denied[string](), Broker: denied[map[string]string](), Bookie: denied[map[string]string](),
		Events: Topic{Name: events, Partitions: nothing}, Decisions: Topic{Name: decisions, Partitions: nothing}, Policies: Topic{Name: policies, Partitions: nothing},
	}
	for _, g := range Check(f) {
		if g.Severity != Warn || !strings.Contains(g.What, "unknown") && !strings.Contains(g.What, "not checked") {
			t.Errorf("finding %+v", g)
		}
	}
	if len(ClientsOf(f)) != 0 {
		t.Error("somebody holds what is not known")
	}
}

// ledgersOf pairs ids with entries.
func ledgersOf(pairs ...int64) []Ledger {
	var all []Ledger
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, Ledger{ID: pairs[i], Entries: pairs[i+1]})
	}
	return all
}

func TestClients(t *testing.T) {
	t.Parallel()
	f := good()
	f.Events.Stats.Value[1].Subscriptions = nil
	f.Decisions.Stats.Value[2].Publishers = append(f.Decisions.Stats.Value[2].Publishers, Publisher{Name: "stranger", Mode: "Shared"})
	s := f.Decisions.Stats.Value[0].Subscriptions[IngesterSubscription]
	s.Backlog = 9 // the newest is never acknowledged
	f.Decisions.Stats.Value[0].Subscriptions[IngesterSubscription] = s
	f.Decisions.Stats.Value[0].Publishers[0].Metadata = map[string]string{pulsarlog.InstanceProperty: "me"}
	for p := range f.Events.Ledgers.Value {
		f.Events.Ledgers.Value[p].CurrentEntries = 5 // the stats of an open ledger report 0
		f.Events.Ledgers.Value[p].Ledgers = ledgersOf(10, 10, 11, 0)
	}
	for p, answered := range []eventlog.Position{{Ledger: 11, Entry: 4}, eventlog.Start, {Ledger: 11, Entry: 0, Batch: 7}} {
		f.Decisions.Claims[p].Value.Answered = answered
	}
	e := f.Events.Stats.Value[0].Subscriptions[EvaluatorSubscription]
	e.Backlog = 1 // idle
	f.Events.Stats.Value[0].Subscriptions[EvaluatorSubscription] = e
	me, owner := Party{"me", "10.0.0.1:1", "then"}, Party{"owner", "10.0.0.1:2", "then"}
	f.Events.Beginnings[2].Value = eventlog.Position{Ledger: 11, Entry: 1, Batch: -1}
	want := []Clients{
		{0, me, 0, Party{"me", "10.0.0.1:2", "then"}, me, 8, ""}, // the producer names its instance
		{1, Party{}, 15, owner, me, 0, ""},                       // nothing is decided
		{2, me, 4, Party{}, me, 0, "history"},                    // the first entry of the second ledger is; its producer only tries
	}
	if got := ClientsOf(f); !slices.Equal(got, want) {
		t.Errorf("ClientsOf = %+v, want %+v", got, want)
	}
}
