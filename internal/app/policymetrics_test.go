package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// seriesOf returns the series of a metric by their labels, as name=value, and what each counts.
func seriesOf(t *testing.T, m *Metrics, name string) map[string]float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			var labels []string
			for _, l := range s.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := s.GetCounter().GetValue() + s.GetGauge().GetValue()
			if h := s.GetHistogram(); h != nil {
				value = float64(h.GetSampleCount())
			}
			all[strings.Join(labels, " ")] = value
		}
	}
	return all
}

func total(series map[string]float64) (n float64) {
	for _, v := range series {
		n += v
	}
	return n
}

// TestPolicySeriesAreBounded: users who invent queues, with any bytes and any length, make few series; every decision
// is counted, and policies and rules stay apart.
func TestPolicySeriesAreBounded(t *testing.T) {
	t.Parallel()
	const limit, queues = 40, 5000
	m := NewMetrics(time.Now, limit)
	committed := m.owner(0, time.Now).Committed
	for i := range queues {
		rule := fmt.Sprint("rule", i%3)
		committed(evaluator.Commit{Envelope: &chain.Envelope{}, Records: []chain.Record{&chain.Decision{
			Queue: fmt.Sprintf("%s\xff%d", strings.Repeat("q", i%200), i), Policy: "p", Rule: rule,
			Code: policy.RuleRetry, Requeue: true, Time: 1e9, RetryAfter: 4e9,
		}}})
	}
	got := seriesOf(t, m, "refloat_policy_decisions_total")
	if len(got) > limit || total(got) != queues {
		t.Errorf("%d series count %v decisions, want at most %d that count %d", len(got), total(got), limit, queues)
	}
	for i := range 3 {
		if key := fmt.Sprintf("code=RuleRetry outcome=Retry policy=p queue=other rule=rule%d shadow=false", i); got[key] < queues/3-limit {
			t.Errorf("%s is %v of %v", key, got[key], slices.Sorted(maps.Keys(got)))
		}
	}
	if n := total(seriesOf(t, m, "refloat_policy_decisions_other_total")); n != queues-limit*3/4 {
		t.Errorf("%v decisions are counted under other, want %d", n, queues-limit*3/4)
	}
	if n := seriesOf(t, m, "refloat_policy_retry_delay_seconds_total"); total(n) != 3*queues || len(n) > limit {
		t.Errorf("delays: %d series, %v seconds, want %d", len(n), total(n), 3*queues)
	}
	if n := total(seriesOf(t, m, "refloat_policy_retry_delay_seconds")); n != queues {
		t.Errorf("the histogram has %v delays, want %d", n, queues)
	}
	// What nobody waits for is in no histogram.
	m.policy.decision(&chain.Decision{Queue: "q0", Policy: "p", Rule: "rule0", Code: policy.RuleRetry, Requeue: true, Shadow: true, Time: 1e9, RetryAfter: 4e9})
	if n := total(seriesOf(t, m, "refloat_policy_retry_delay_seconds")); n != queues {
		t.Errorf("with one in shadow, the histogram has %v delays, want %d", n, queues)
	}
	// Policies beyond the bound lose their names too.
	for i := range 1000 {
		m.policy.decision(&chain.Decision{Policy: fmt.Sprint("made up ", i), Code: policy.RuleFail})
	}
	if got = seriesOf(t, m, "refloat_policy_decisions_total"); len(got) > limit+2 || total(got) != queues+1001 {
		t.Errorf("%d series count %v decisions", len(got), total(got))
	}
	none := NewMetrics(time.Now, 0)
	none.policy.decision(&chain.Decision{Queue: "q", Policy: "p", Code: policy.RuleFail})
	if got := seriesOf(t, none, "refloat_policy_decisions_total"); got["code=RuleFail outcome=Fail policy=other queue=other rule=other shadow=false"] != 1 {
		t.Errorf("with a bound of 0: %v", got)
	}
}

func TestLabelOf(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 50)
	seen := map[string]string{}
	for _, name := range []string{"", "q", strings.Repeat("x", maxLabelBytes), long, long + "1", long + "2", "\xff", "\xfe", "a\xff" + long, strings.Repeat("\xff", 200)} {
		label := labelOf(name)
		if was, ok := seen[label]; ok {
			t.Errorf("%q and %q are both %q", was, name, label)
		}
		seen[label] = name
		if !utf8.ValidString(label) || len(label) > maxLabelBytes {
			t.Errorf("labelOf(%q) = %q, of %d bytes", name, label, len(label))
		}
		if utf8.ValidString(name) && len(name) <= maxLabelBytes && label != name {
			t.Errorf("labelOf(%q) = %q, want it as it is", name, label)
		}
	}
}

// TestOverrideMetrics: kill switches and pauses in force show, those of other queues as one beyond the bound, and what
// is over does not.
func TestOverrideMetrics(t *testing.T) {
	t.Parallel()
	now := time.Unix(5000, 0)
	m := NewMetrics(time.Now, 2)
	set, err := policyfile.Empty().WithOverrides(
		policyfile.Override{Kill: true},
		policyfile.Override{Queue: "a", Kill: true, PausedUntil: 4000e9}, policyfile.Override{Queue: "b", Kill: true}, policyfile.Override{Queue: "c", Kill: true},
		policyfile.Override{Queue: "d", PausedUntil: 6000e9},
	)
	if err != nil {
		t.Fatal(err)
	}
	m.policy.overrides(set, now)
	m.policy.inForce(7, 3e9)
	m.policy.inForce(8, 4e9)
	for name, want := range map[string]map[string]float64{
		"refloat_policy_killed":                         {"queue= scope=all": 1, "queue=a scope=queue": 1, "queue=other scope=queue": 2},
		"refloat_policy_paused_until_timestamp_seconds": {"queue=d scope=queue": 6000},
		"refloat_policy_generation_timestamp_seconds":   {"generation=8": 4},
	} {
		if got := seriesOf(t, m, name); !maps.Equal(got, want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	m.policy.overrides(policyfile.Empty(), now)
	if got := seriesOf(t, m, "refloat_policy_killed"); len(got) > 0 {
		t.Errorf("after the overrides were lifted: %v", got)
	}
}

// TestRetryMetrics: the retries that wait are those of the job database, in the partitions that this process writes.
func TestRetryMetrics(t *testing.T) {
	t.Parallel()
	c := Config{Data: Dir(t.TempDir()), PolicySeries: 2, Now: func() time.Time { return time.Unix(100, 0) }}
	db, err := OpenJobDB(t.Context(), c.Data.JobDBURL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for partition, rows := range [][]jobdb.Job{
		{
			{JobID: "a1", Queue: "a", Queueing: jobdb.Queueing{RetryAfter: 160e9}},
			{JobID: "a2", Queue: "a", Queueing: jobdb.Queueing{RetryAfter: 130e9}},
			{JobID: "a3", Queue: "a", Queueing: jobdb.Queueing{RetryAfter: 90e9}},
			{JobID: "a4", Queue: "a"},
			{JobID: "b1", Queue: "b", Queueing: jobdb.Queueing{RetryAfter: 110e9}},
			{JobID: "b2", Queue: "b", Queueing: jobdb.Queueing{RetryAfter: 110e9}},
			{JobID: "c1", Queue: "c", Queueing: jobdb.Queueing{RetryAfter: 400e9}},
			{JobID: "d1", Queue: "d", Queueing: jobdb.Queueing{RetryAfter: 300e9}},
		},
		{{JobID: "elsewhere", Queue: "a", Queueing: jobdb.Queueing{RetryAfter: 900e9}}},
	} {
		tx, err := db.Begin(t.Context(), partition)
		if err != nil {
			t.Fatal(err)
		}
		changes := &jobdb.Changes{}
		for i := range rows {
			rows[i].Partition, rows[i].State, rows[i].Known = partition, jobdb.JobQueued, true
			changes.Jobs = append(changes.Jobs, &rows[i])
		}
		to := tx.Positions()
		to.Chain.Seq++
		if err := errors.Join(tx.Write(t.Context(), changes), tx.Commit(t.Context(), tx.Positions(), to)); err != nil {
			t.Fatal(err)
		}
	}
	n := &node{Config: c, metrics: NewMetrics(c.Now, c.PolicySeries)}
	n.showRetries(t.Context())
	if got := seriesOf(t, n.metrics, "refloat_policy_retries_pending"); len(got) > 0 {
		t.Errorf("retries wait in partitions of others: %v", got)
	}
	n.metrics.written[0] = reached{}
	n.showRetries(t.Context())
	for name, want := range map[string]map[string]float64{
		"refloat_policy_retries_pending":         {"queue=a state=delayed": 2, "queue=b state=delayed": 2, "queue=other state=delayed": 2, "queue=other state=due": 1},
		"refloat_policy_retries_pending_seconds": {"queue=other": 300, "queue=a": 60},
	} {
		if got := seriesOf(t, n.metrics, name); !maps.Equal(got, want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
