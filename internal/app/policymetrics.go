package app

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

// DefaultPolicySeries is the default of Config.PolicySeries in programs.
const DefaultPolicySeries = 2000

// PolicySeriesUsage is the help text of the flag.
const PolicySeriesUsage = "how many label combinations each refloat_policy_… metric, and of queue, category and kind refloat_run_hours_total, may have; what exceeds this is counted under the queue, policy, rule and category `other`"

// CheckPolicySeries refuses a number that the flag cannot have.
func CheckPolicySeries(n int) error {
	if n < 0 {
		return errors.New(strconv.Itoa(n) + ": want 0 or more; 0 counts everything under other")
	}
	return nil
}

// other is the label value under which everything beyond the bound is counted.
const other = "other"

// maxLabelBytes bounds a label value. Names are those of users, and may have any length.
const maxLabelBytes = 64

// labelOf returns a name as a label value: valid UTF-8 (Prometheus refuses any other) of at most maxLabelBytes bytes.
// A name that is changed ends in a digest, so that two of them stay apart.
func labelOf(name string) string {
	if len(name) <= maxLabelBytes && utf8.ValidString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	end := "…" + hex.EncodeToString(sum[:4])
	text := strings.ToValidUTF8(name[:min(len(name), maxLabelBytes)], "\uFFFD")
	cut := min(len(text), maxLabelBytes-len(end))
	for cut > 0 && cut < len(text) && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + end
}

// decided are the labels of a decision: queue, policy, rule, outcome, code and shadow.
type decided [6]string

// seriesBound decides which label combinations have a series of their own. The first ones do, up to the limit. Then
// the queue becomes other, so that policies and rules, which operators write, stay apart when a user invents queues;
// a quarter of the limit is kept for these. What does not fit there either loses policy and rule too. A series stays
// until the process ends, because a counter must not go back. The bound is safe for concurrent use.
type seriesBound struct {
	limit int

	mu    sync.Mutex
	held  map[decided]bool
	named int // of held, those with a queue of their own
}

// bound returns the labels to count under, and whether they are other than asked.
func (b *seriesBound) bound(labels decided) (_ decided, beyond bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[labels] {
		return labels, false
	}
	if b.named < b.limit-b.limit/4 {
		b.keep(labels)
		b.named++
		return labels, false
	}
	labels[0] = other
	if b.held[labels] {
		return labels, true
	}
	if len(b.held) < b.limit {
		b.keep(labels)
		return labels, true
	}
	labels[1], labels[2] = other, other
	return labels, true
}

func (b *seriesBound) keep(labels decided) {
	if b.held == nil {
		b.held = map[decided]bool{}
	}
	b.held[labels] = true
}

// decision counts a decision that is in the log.
func (m *policyMetrics) decision(d *chain.Decision) {
	outcome := "Fail"
	if d.Requeue {
		outcome = "Retry"
	}
	labels, beyond := m.series.bound(decided{
		labelOf(d.Queue), labelOf(d.Policy), labelOf(d.Rule), outcome, d.Code.String(), strconv.FormatBool(d.Shadow),
	})
	if beyond {
		m.beyond.Inc()
	}
	m.policyDecisions.WithLabelValues(labels[:]...).Inc()
	if u := d.Budget; u != nil {
		m.budgets.WithLabelValues(u.Budget, u.Effect.String(), strconv.FormatBool(d.Shadow || u.Noted)).Inc()
	}
	if d.Requeue {
		delay := max(0, float64(d.RetryAfter-d.Time)/1e9)
		if query.EffectInLog(d) == query.Retried {
			m.delay.Observe(delay)
		}
		m.delays.WithLabelValues(labels[0], labels[1], labels[2], labels[5]).Add(delay)
	}
}

// queueGauge shows one number of each queue: those of the first queues, and the rest as one.
type queueGauge struct {
	gauge *prometheus.GaugeVec
	limit int

	mu sync.Mutex
}

// queueValue is a number of a queue, with the rest of the labels.
type queueValue struct {
	queue string
	rest  []string
	value float64
}

// show replaces what is shown. Of more queues than the limit, those with the largest values are shown, and join makes
// one value of two of the others.
func (g *queueGauge) show(values []queueValue, join func(a, b float64) float64) {
	slices.SortStableFunc(values, func(a, b queueValue) int {
		return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.queue, b.queue))
	})
	type series struct{ queue, rest string }
	shown := map[series]queueValue{}
	for _, v := range values {
		v.queue = labelOf(v.queue)
		key := series{v.queue, strings.Join(v.rest, "\x00")}
		if _, ok := shown[key]; !ok && len(shown) >= g.limit {
			v.queue, key.queue = other, other
		}
		if was, ok := shown[key]; ok {
			v.value = join(was.value, v.value)
		}
		shown[key] = v
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gauge.Reset()
	for _, v := range shown {
		g.gauge.WithLabelValues(append([]string{v.queue}, v.rest...)...).Set(v.value)
	}
}

func sum(a, b float64) float64 { return a + b }

// overrides shows the kill switches and pauses of a set at a time. The scope tells a queue from all queues.
func (m *policyMetrics) overrides(set *policyfile.Set, now time.Time) {
	var killed, paused []queueValue
	for _, o := range set.OwnOverrides() {
		v := queueValue{queue: o.Name, rest: []string{"queue"}, value: 1}
		if o.Kind == policyfile.KindSettings {
			v.queue, v.rest = "", []string{"all"}
		}
		switch {
		case o.PausedUntil == 0:
			killed = append(killed, v)
		case o.PausedUntil > now.UnixNano():
			v.value = float64(o.PausedUntil) / 1e9
			paused = append(paused, v)
		}
	}
	m.killed.show(killed, sum)
	m.paused.show(paused, func(a, b float64) float64 { return max(a, b) })
}

// inForce shows when the generation in force was written.
func (m *policyMetrics) inForce(generation uint64, written int64) {
	m.written.Reset()
	if generation > 0 && written > 0 {
		m.written.WithLabelValues(strconv.FormatUint(generation, 10)).Set(float64(written) / 1e9)
	}
}

// retries shows the retries that wait.
func (m *policyMetrics) retries(all []jobdb.QueueRetries, now int64) {
	var pending, left []queueValue
	for _, q := range all {
		for _, v := range []queueValue{
			{q.Queue, []string{"delayed"}, float64(q.Delayed)},
			{q.Queue, []string{"due"}, float64(q.Jobs - q.Delayed)},
		} {
			if v.value > 0 {
				pending = append(pending, v)
			}
		}
		if q.Latest > now {
			left = append(left, queueValue{queue: q.Queue, value: float64(q.Latest-now) / 1e9})
		}
	}
	m.pending.show(pending, sum)
	m.left.show(left, func(a, b float64) float64 { return max(a, b) })
}
