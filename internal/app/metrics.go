package app

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/sink"
)

// Metrics holds what an operator asks of a node: decisions, lag, latencies, and what was ignored or parked.
type Metrics struct {
	registry   *prometheus.Registry
	decisions  *prometheus.CounterVec
	notDecided *prometheus.CounterVec
	parked     *prometheus.CounterVec
	ignored    *prometheus.CounterVec
	answered   *prometheus.CounterVec
	readBack   *prometheus.HistogramVec
	live       *prometheus.GaugeVec
	losses     *prometheus.CounterVec
	rows       *prometheus.CounterVec
	ingest     *prometheus.HistogramVec
	eventTime  *prometheus.GaugeVec
	unusable   prometheus.Counter
	damage     *prometheus.CounterVec
	scrubbed   *prometheus.CounterVec
	scrubEnd   *prometheus.GaugeVec

	since       *prometheus.GaugeVec
	generation  *prometheus.GaugeVec
	refused     *prometheus.GaugeVec
	notWritten  *prometheus.GaugeVec
	notMirrored *prometheus.CounterVec
	controlled  *prometheus.CounterVec
	notFollowed *prometheus.GaugeVec
	lag         *prometheus.GaugeVec
	behind      *prometheus.GaugeVec
	commit      *prometheus.HistogramVec
	ingestLag   *prometheus.GaugeVec
	ingests     *prometheus.GaugeVec
	retries     *prometheus.CounterVec
	away        *prometheus.GaugeVec
	released    *prometheus.CounterVec
	saved       *prometheus.GaugeVec
	savedBytes  *prometheus.GaugeVec
	notSaved    *prometheus.CounterVec

	followFailing *prometheus.GaugeVec
	followRead    *prometheus.GaugeVec
	followNot     *prometheus.GaugeVec
	followDefault *prometheus.GaugeVec
	filesRefused  *prometheus.GaugeVec

	mu      sync.Mutex
	reached map[int]reached // by partition, of the evaluator
	written map[int]reached // by partition, of the ingester

	healthy atomic.Bool
	ready   atomic.Bool
	health  health
}

// NewMetrics registers the metrics, all named refloat_….
func NewMetrics(now func() time.Time) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refloat_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "refloat_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "refloat_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, labels)
	}
	m := &Metrics{
		health:     health{now: now},
		registry:   prometheus.NewRegistry(),
		decisions:  counter("decisions_total", "Decisions that were read back and committed.", "decision", "code", "shadow"),
		notDecided: counter("not_decided_total", "Failed runs that were not decided, by reason.", "reason"),
		parked:     counter("parked_total", "Messages and events that could not be processed, by reason.", "reason"),
		ignored:    counter("ignored_envelopes_total", "Messages of the decision log that were not accepted, by reason.", "why"),
		answered:   counter("answered_messages_total", "Input messages covered by committed envelopes.", "partition"),
		readBack:   histogram("read_back_seconds", "Time from publishing an envelope to reading it back.", "partition"),
		live:       gauge("partition_live", "1 while this node owns the partition and decides.", "partition"),
		losses:     counter("partition_phases_total", "Times a partition entered a phase of ownership.", "partition", "phase"),
		rows:       counter("jobdb_rows_total", "Rows written to the job database.", "partition"),
		ingest:     histogram("jobdb_transaction_seconds", "Time to load, write and commit one transaction.", "partition"),
		eventTime:  gauge("jobdb_last_event_timestamp_seconds", "Publish time of the last message written to the job database.", "partition"),
		unusable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "refloat_policy_generations_unusable_total", Help: "Policy generations that were skipped because they are unusable.",
		}),
		damage:      counter("damage_total", "Damage found on disk: in a log (the process stops), the state or the job database (both are set aside and rebuilt).", "what"),
		scrubbed:    counter("scrubbed_bytes_total", "Bytes on disk that the scrubber verified against their checksums.", "what"),
		scrubEnd:    gauge("scrub_completed_timestamp_seconds", "When the scrubber last completed a round; 0: not yet.", "what"),
		since:       gauge("owner_since_timestamp_seconds", "When this process became the owner of the partition; 0 while it is not.", "partition"),
		generation:  gauge("policy_generation", "Policy generation in force.", "partition"),
		refused:     gauge("refused", "1 while the partition is stopped until an operator acts, by reason.", "partition", "reason"),
		notWritten:  gauge("jobdb_refused", "1 while the partition is not written to the job database until an operator acts, by reason.", "partition", "reason"),
		notMirrored: counter("armada_left_out_total", "Events and retries that could not be written to Armada's tables, by kind.", "kind"),
		controlled:  counter("control_total", "Operator requests applied from Armada's control-plane topic, by kind.", "kind"),
		notFollowed: gauge("control_refused", "1 while a partition of Armada's control-plane topic is not followed until an operator acts, by reason.", "partition", "reason"),
		lag:         gauge("lag_seconds", "Age of the oldest undecided event of the partition; 0 when there is none.", "partition"),
		behind:      gauge("lag_messages", "Log entries of events after the last decided one. A batch is one entry.", "partition"),
		commit:      histogram("commit_seconds", "Time from reading an envelope back to its state being durable.", "partition"),
		ingestLag:   gauge("jobdb_lag_messages", "Log entries of decisions that are not yet in the job database.", "partition"),
		ingests:     gauge("jobdb_partition_active", "1 while this process writes the partition to the job database.", "partition"),
		retries:     counter("jobdb_retries_total", "Retries of writing a partition to the job database.", "partition"),
		away:        gauge("jobdb_unavailable", "1 while the job database cannot be written and is retried, by state.", "state"),
		released:    counter("jobdb_released_messages_total", "Events written to the job database without a decision, because none came within --release-after.", "partition"),
		saved:       gauge("checkpoint_timestamp_seconds", "When the newest checkpoint was taken.", "partition"),
		savedBytes:  gauge("checkpoint_bytes", "Size of the newest checkpoint.", "partition"),
		notSaved:    counter("checkpoint_failures_total", "Checkpoints that could not be saved.", "partition"),
		reached:     map[int]reached{},
		written:     map[int]reached{},

		followFailing: gauge("follow_armada_failing", "1 while the policies of the followed Armada cannot be read.", "armada"),
		followRead:    gauge("follow_armada_last_read_timestamp_seconds", "When the followed Armada's policies were last read; 0: not since this process started.", "armada"),
		followDefault: gauge("follow_armada_default_missing", "1 while the settings name a default policy that the followed Armada does not have.", "armada"),
		filesRefused:  gauge("policy_files_refused", "1 while the policy files are not in force, by reason: takes_away (no policy is left, or one that is named is missing), invalid, unreadable.", "reason"),
		followNot:     gauge("follow_armada_not_understood", "Policies and bindings of the followed Armada that cannot be used here.", "armada"),
	}
	m.registry.MustRegister(m.damage, m.scrubbed, m.scrubEnd, m.decisions, m.notDecided, m.parked, m.ignored, m.answered, m.readBack, m.live, m.losses,
		m.rows, m.ingest, m.eventTime, m.unusable, m.since, m.generation, m.refused, m.notWritten, m.notMirrored, m.controlled, m.notFollowed, m.lag, m.behind, m.commit,
		m.ingestLag, m.ingests, m.retries, m.away, m.released, m.saved, m.savedBytes, m.notSaved,
		m.followFailing, m.followRead, m.followNot, m.followDefault, m.filesRefused, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
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
			m.since.WithLabelValues(p).Set(since)
			if phase == evaluator.Standby {
				m.leave(partition)
			}
		},
		InForce: func(generation uint64) { m.generation.WithLabelValues(p).Set(float64(generation)) },
	}
}

func (m *Metrics) count(p string, r chain.Record) {
	switch r := r.(type) {
	case *chain.Decision:
		kind := "JobFailed"
		if r.Requeue {
			kind = "JobRequeued"
		}
		m.decisions.WithLabelValues(kind, r.Code.String(), strconv.FormatBool(r.Shadow)).Inc()
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
			m.reach(m.written, b.Partition, reached{at: b.Place.Decisions, published: b.Published})
			m.rows.WithLabelValues(p).Add(float64(b.Rows))
			m.ingest.WithLabelValues(p).Observe(b.Took.Seconds())
			if b.Published != 0 {
				m.eventTime.WithLabelValues(p).Set(float64(b.Published) / 1e9)
			}
		},
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
