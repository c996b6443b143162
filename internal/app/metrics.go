package app

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// Metrics holds what an operator asks of a node.
type Metrics struct {
	registry *prometheus.Registry
	evaluatorMetrics
	ingesterMetrics
	diskMetrics
	followMetrics
	policy policyMetrics
	guard  guardMetrics
	notifyMetrics

	mu      sync.Mutex
	reached map[int]reached // by partition, of the evaluator
	written map[int]reached // by partition, of the ingester

	healthy atomic.Bool
	ready   atomic.Bool
	health  health
}

// NewMetrics registers the metrics, all named refloat_…. The metrics of policies have at most policySeries label
// combinations each, and a few for what exceeds them.
func NewMetrics(now func() time.Time, policySeries int) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r := register{promauto.With(registry)}
	m := &Metrics{
		registry:         registry,
		evaluatorMetrics: newEvaluatorMetrics(r),
		ingesterMetrics:  newIngesterMetrics(r, policySeries),
		diskMetrics:      newDiskMetrics(r),
		followMetrics:    newFollowMetrics(r),
		policy:           newPolicyMetrics(r, policySeries),
		guard:            newGuardMetrics(r),
		notifyMetrics:    newNotifyMetrics(r),
		health:           health{now: now},
		reached:          map[int]reached{},
		written:          map[int]reached{},
	}
	for _, what := range []string{damagedLog, damagedState, damagedJobDB} {
		m.damage.WithLabelValues(what)
	}
	m.healthy.Store(true)
	return m
}

// owner returns the hooks of one partition's owner.
func (m *Metrics) owner(partition int, now func() time.Time) evaluator.Hooks {
	p := strconv.Itoa(partition)
	for _, why := range chain.AllIgnored() {
		m.ignored.WithLabelValues(why.String())
	}
	return evaluator.Hooks{
		Committed: func(c evaluator.Commit) {
			m.answered.WithLabelValues(p).Add(float64(c.Envelope.InCount))
			m.readBack.WithLabelValues(p).Observe(c.Waited.Seconds())
			m.reach(m.reached, partition, reached{at: c.Envelope.InTo, published: c.Published})
			for _, r := range c.Records {
				m.count(p, r)
			}
		},
		Ignored: func(why chain.Ignored) { m.ignored.WithLabelValues(why.String()).Inc() },
		Phase: func(phase string) {
			m.losses.WithLabelValues(p, phase).Inc()
			live, since := 0.0, 0.0
			if phase == evaluator.Live {
				live, since = 1, float64(now().UnixNano())/1e9
				refuse(m.refused, partition, nil)
			}
			m.live.WithLabelValues(p).Set(live)
			m.health.works(evaluatorOf(partition), live == 1)
			m.since.WithLabelValues(p).Set(since)
			if phase == evaluator.Standby {
				m.leave(partition)
			}
		},
		Began: func(generation uint64, decided eventlog.Position) {
			m.generation.WithLabelValues(p).Set(float64(generation))
			m.reach(m.reached, partition, reached{at: decided})
		},
	}
}

func (m *Metrics) count(p string, r chain.Record) {
	switch r := r.(type) {
	case *chain.Decision:
		m.decisions.WithLabelValues(r.Kind(), r.Code.String(), strconv.FormatBool(r.Shadow)).Inc()
		m.policy.decision(r)
	case *chain.NotDecided:
		m.notDecided.WithLabelValues(r.Reason.String()).Inc()
	case *chain.PolicyActivated:
		m.generation.WithLabelValues(p).Set(float64(r.Generation))
	case *chain.Parked:
		m.parked.WithLabelValues(r.Reason.String()).Inc()
	}
}

// ingester returns the hooks of the ingester.
func (m *Metrics) ingester(now func() time.Time) sink.Hooks {
	return sink.Hooks{
		Now: now,
		Committed: func(b sink.Batch) {
			p := strconv.Itoa(b.Partition)
			m.reach(m.written, b.Partition, reached{at: b.Positions.Decisions, published: b.Published})
			m.rows.WithLabelValues(p).Add(float64(b.Rows))
			m.cost(b.Costs)
			m.ingest.WithLabelValues(p).Observe(b.Took.Seconds())
			if b.Published != 0 {
				m.eventTime.WithLabelValues(p).Set(float64(b.Published) / 1e9)
			}
		},
	}
}

// cost adds what runs held.
func (m *Metrics) cost(costs []*jobdb.Cost) {
	for _, c := range costs {
		labels, _ := m.costSeries.bound(decided{labelOf(c.Queue), labelOf(c.Category), "", c.Kind.String()})
		of := func(resource string) prometheus.Counter {
			return m.runHours.WithLabelValues(labels[3], labels[0], labels[1], resource)
		}
		m.runUnknown.WithLabelValues(labels[3], labels[0], labels[1]).Add(float64(c.Unknown))
		of("cpu").Add(c.CPUHours())
		of("memory_gib").Add(c.MemoryHours())
		of("gpu").Add(c.GPUHours())
	}
}

// Handler serves /metrics, /healthz (the process runs) and /readyz (it has started its work and can do it).
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", answer(&m.healthy))
	mux.HandleFunc("/readyz", m.serveReady)
	return mux
}

func answer(ok *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !ok.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("not yet\n"))
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	}
}
