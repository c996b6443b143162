package doctor

import (
	"errors"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

func TestMain(m *testing.M) { os.Exit(pulsartest.Main(m)) }

// deployment is a namespace for this test on a real broker.
func deployment(t *testing.T) Deployment {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Pulsar broker")
	}
	b := pulsartest.Shared(t)
	tenant, namespace := path.Split(b.Namespace(t))
	c := pulsarlog.Config{ServiceURL: b.URL, AdminURL: b.AdminURL, Tenant: strings.Trim(tenant, "/"), Namespace: namespace, OperationTimeout: pulsartest.Patience}
	c.Instance = "this process"
	cluster, err := pulsarlog.Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	return Deployment{Admin: admin(t, c), Cluster: cluster, Service: b.URL, Events: "events", Decisions: "decisions", Policies: "policies"}
}

// carryOut plans and does all steps; it returns the ones that had something to do.
func carryOut(t *testing.T, d Deployment, w Spec) (did []string) {
	t.Helper()
	steps, err := Plan(t.Context(), d, w)
	if err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		if !steps[i].Done {
			did = append(did, steps[i].What)
		}
		if err := steps[i].Do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return did
}

func (d Deployment) request(t *testing.T, method, at string, body any) {
	t.Helper()
	if _, err := d.Admin.do(t.Context(), method, at, body); err != nil {
		t.Fatal(err)
	}
}

// await gathers until exactly these findings other than OK remain: brokers need a
// moment to show a policy.
func await(t *testing.T, d Deployment, want ...string) {
	t.Helper()
	tick, timeout := time.NewTicker(100*time.Millisecond), time.After(pulsartest.Patience)
	defer tick.Stop()
	for {
		f, err := Gather(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		found := Check(f)
		var got []string
		for _, g := range found {
			if g.Severity != OK {
				name := g.About[strings.LastIndex(g.About, "/")+1:]
				got = append(got, g.Severity.String()+" "+g.Code+" "+name)
			}
		}
		if slices.Sort(got); slices.Equal(got, slices.Sorted(slices.Values(want))) {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("found %q, want %q:\n%s", got, want, printed(found))
		}
	}
}

// The findings of a fresh, idle deployment.
var idle = []string{"warn RD031 journalSyncData", "warn RD042 events", "warn RD044 decisions"}

func TestCreate(t *testing.T) {
	t.Parallel()
	d := deployment(t)
	if _, err := Plan(t.Context(), d, Spec{}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "--create-events") {
		t.Errorf("without events: %v", err)
	}
	if _, err := Plan(t.Context(), d, Spec{CreateEvents: true}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "--partitions") {
		t.Errorf("without a count: %v", err)
	}
	await(t, d, "error RD010 events", "error RD011 decisions", "error RD012 policies", "warn RD001 client", "warn RD031 journalSyncData")

	// A plan changes nothing.
	if _, err := Plan(t.Context(), d, Spec{CreateEvents: true, Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	if n := d.Admin.partitions(t.Context(), d.Cluster.TopicName("events")); !errors.Is(n.Err, ErrNotFound) {
		t.Fatalf("the plan created events: %+v", n)
	}
	if did := carryOut(t, d, Spec{CreateEvents: true, Partitions: 2}); len(did) != 15 {
		t.Errorf("did %d things: %q", len(did), did)
	}
	await(t, d, idle...)
	if did := carryOut(t, d, Spec{}); len(did) != 0 {
		t.Errorf("the second time did %q", did)
	}
	if _, err := Plan(t.Context(), d, Spec{Partitions: 3}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "has 2 partitions, not 3") {
		t.Errorf("another count: %v", err)
	}

	// Events grows.
	d.request(t, http.MethodPost, at(d, "events")+"/partitions", 3)
	if _, err := Plan(t.Context(), d, Spec{}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "--grow") || !strings.Contains(err.Error(), "--accept-partitions 3") {
		t.Errorf("after events grew: %v", err)
	}
	await(t, d, append([]string{"error RD011 decisions"}, idle...)...)
	if did := carryOut(t, d, Spec{Grow: true}); len(did) == 0 || !strings.Contains(did[0], "grow ") {
		t.Errorf("growing did %q", did)
	}
	await(t, d, idle...)
	d.request(t, http.MethodPost, at(d, "decisions")+"/partitions", 4)
	if _, err := Plan(t.Context(), d, Spec{Grow: true}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "do not belong together") {
		t.Errorf("after decisions grew: %v", err)
	}
}

// TestRetention: create sets the retention that it is told, and again for ever if it is told none; doctor
// accepts a finite one of decisions only with an archive that has what is deleted.
func TestRetention(t *testing.T) {
	t.Parallel()
	d := deployment(t)
	carryOut(t, d, Spec{CreateEvents: true, Partitions: 2})
	await(t, d, idle...)
	week, day := Retention{Minutes: 7 * 24 * 60, MB: -1}, Retention{Minutes: 24 * 60, MB: -1}
	if did := carryOut(t, d, Spec{RetainDecisions: week, RetainEvents: day}); len(did) != 2 || !strings.HasSuffix(did[0], "/events for 1 d") || !strings.HasSuffix(did[1], "/decisions for 7 d") {
		t.Errorf("did %q", did)
	}
	await(t, d, append([]string{"error RD020 decisions", "warn RD021 events"}, idle...)...)
	if did := carryOut(t, d, Spec{RetainDecisions: week}); len(did) != 0 {
		t.Errorf("the second time did %q", did)
	}
	f, err := Gather(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	f.Archive = &Archived{Dir: "/a", Age: 30 * 24 * time.Hour}
	for _, g := range Check(f) {
		if g.Code == "RD020" && g.Severity != OK {
			t.Errorf("an archive of decisions that hold nothing: %+v", g)
		}
	}

	topic, err := d.Cluster.Open("decisions")
	if err != nil {
		t.Fatal(err)
	}
	p, err := topic.Publisher(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish([]byte("not archived")); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := eventlog.Start; end == eventlog.Start; <-tick.C {
		if end, err = topic.End(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(p.Close(), topic.Close()); err != nil {
		t.Fatal(err)
	}
	if f, err = Gather(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	f.Archive = &Archived{Dir: "/a", Age: 30 * 24 * time.Hour}
	if !slices.ContainsFunc(Check(f), func(g Finding) bool {
		return g.Code == "RD020" && g.Severity == Error && strings.Contains(g.What, "1 message is not archived: the last range is from 30 d ago")
	}) {
		t.Errorf("an archive that is too old: %s", printed(Check(f)))
	}
	if did := carryOut(t, d, Spec{}); len(did) != 1 || !strings.HasSuffix(did[0], "/decisions for ever") {
		t.Errorf("without an option did %q", did)
	}
	await(t, d, append([]string{"warn RD021 events"}, idle...)...)
}

func at(d Deployment, topic string) string { return topicPath(d.Cluster.TopicName(topic)) }

// TestSpoiled: wrong settings of operators are found.
func TestSpoiled(t *testing.T) {
	t.Parallel()
	d := deployment(t)
	carryOut(t, d, Spec{CreateEvents: true, Partitions: 2})
	await(t, d, idle...)
	for _, c := range []struct {
		topic, policy string
		body          any
		want          string
	}{
		{"decisions", "retention", Retention{60, 60}, "error RD020 decisions"},
		{"policies", "retention", Retention{0, 0}, "error RD020 policies"},
		{"events", "retention", Retention{60, -1}, "warn RD021 events"},
		{"events", "messageTTL?messageTTL=60", nil, "error RD022 events"},
		{"events", "backlogQuota?backlogQuotaType=destination_storage", map[string]any{"limitSize": 1 << 30, "limitTime": -1, "policy": quotaEviction}, "error RD023 events"},
		{"decisions", "backlogQuota?backlogQuotaType=message_age", map[string]any{"limitSize": -1, "limitTime": 3600, "policy": "producer_exception"}, "warn RD023 decisions"},
		{"decisions", "compactionThreshold", 1 << 20, "error RD025 decisions"},
		{"policies", "compactionThreshold", 1 << 20, "error RD025 policies"},
		{"events", "compactionThreshold", 1 << 20, "warn RD025 events"},
		{"decisions", "offloadPolicies", map[string]any{"managedLedgerOffloadDriver": "filesystem", "managedLedgerOffloadThresholdInBytes": 1 << 20, "managedLedgerOffloadDeletionLagInMillis": 1000}, "error RD027 decisions"},
		{"decisions", "maxMessageSize", 1 << 20, "error RD035 decisions"},
	} {
		d.request(t, http.MethodPost, at(d, c.topic)+"/"+c.policy, c.body)
		await(t, d, append([]string{c.want}, idle...)...)
		// And back again.
		policy, _, _ := strings.Cut(c.policy, "?")
		switch policy {
		case "retention":
			d.request(t, http.MethodPost, at(d, c.topic)+"/"+policy, Retention{-1, -1})
		case "messageTTL":
			d.request(t, http.MethodPost, at(d, c.topic)+"/messageTTL?messageTTL=0", nil)
		default:
			d.request(t, http.MethodDelete, at(d, c.topic)+"/"+c.policy, nil)
		}
	}
	await(t, d, idle...)

	d.request(t, http.MethodDelete, topicPath(partition(d.Cluster.TopicName("events"), 1))+"/subscription/"+EvaluatorSubscription, nil)
	await(t, d, append([]string{"warn RD040 events"}, idle...)...)
	if did := carryOut(t, d, Spec{}); len(did) != 1 || !strings.Contains(did[0], "for partition 1") {
		t.Errorf("did %q", did)
	}
	await(t, d, idle...)

	topic, err := d.Cluster.Open("decisions")
	if err != nil {
		t.Fatal(err)
	}
	p, err := topic.Publisher(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Gather(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if h := ClientsOf(f); len(h) != 2 || h[0].Owner.Name != "this process" || h[0].Owner.Address == "" || h[0].Owner.Since == "" || h[1].Owner != (Party{}) {
		t.Errorf("holders %+v", h)
	}
	if err := errors.Join(p.Close(), topic.Close()); err != nil {
		t.Error(err)
	}
}
