package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// register makes metrics named refloat_….
type register struct{ factory promauto.Factory }

func (r register) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return r.factory.NewCounterVec(prometheus.CounterOpts{Name: "refloat_" + name, Help: help}, labels)
}

func (r register) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return r.factory.NewGaugeVec(prometheus.GaugeOpts{Name: "refloat_" + name, Help: help}, labels)
}

func (r register) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return r.factory.NewHistogramVec(prometheus.HistogramOpts{
		Name: "refloat_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
	}, labels)
}

// evaluatorMetrics are about deciding: decisions, ownership and lag.
type evaluatorMetrics struct {
	decisions    *prometheus.CounterVec
	notDecided   *prometheus.CounterVec
	parked       *prometheus.CounterVec
	ignored      *prometheus.CounterVec
	answered     *prometheus.CounterVec
	readBack     *prometheus.HistogramVec
	commit       *prometheus.HistogramVec
	live         *prometheus.GaugeVec
	losses       *prometheus.CounterVec
	since        *prometheus.GaugeVec
	refused      *prometheus.GaugeVec
	lag          *prometheus.GaugeVec
	behind       *prometheus.GaugeVec
	generation   *prometheus.GaugeVec
	unusable     prometheus.Counter
	filesRefused *prometheus.GaugeVec
}

func newEvaluatorMetrics(r register) evaluatorMetrics {
	return evaluatorMetrics{
		decisions:  r.counter("decisions_total", "Decisions that were read back and committed. With shadow=false, JobRequeued retries the job and JobFailed fails it for good, unless the decision is superseded, which only the job database shows.", "decision", "code", "shadow"),
		notDecided: r.counter("not_decided_total", "Failed runs that were not decided, by reason.", "reason"),
		parked:     r.counter("parked_total", "Messages and events that could not be processed, by reason.", "reason"),
		ignored:    r.counter("ignored_envelopes_total", "Messages of the decision log that were not accepted, by reason.", "why"),
		answered:   r.counter("answered_messages_total", "Input messages covered by committed envelopes.", "partition"),
		readBack:   r.histogram("read_back_seconds", "Time from publishing an envelope to reading it back.", "partition"),
		commit:     r.histogram("commit_seconds", "Time from reading an envelope back to its state being durable.", "partition"),
		live:       r.gauge("partition_live", "1 while this node owns the partition and decides.", "partition"),
		losses:     r.counter("partition_phases_total", "Times a partition entered a phase of ownership.", "partition", "phase"),
		since:      r.gauge("owner_since_timestamp_seconds", "When this process became the owner of the partition; 0 while it is not.", "partition"),
		refused:    r.gauge("refused", "1 while the partition is stopped until an operator acts, by reason.", "partition", "reason"),
		lag:        r.gauge("lag_seconds", "Age of the oldest undecided event of the partition; 0 when there is none.", "partition"),
		behind:     r.gauge("lag_messages", "Log entries of events after the last decided one. A batch is one entry.", "partition"),
		generation: r.gauge("policy_generation", "Policy generation in force.", "partition"),
		unusable: r.factory.NewCounter(prometheus.CounterOpts{
			Name: "refloat_policy_generations_unusable_total", Help: "Policy generations that were skipped because they are unusable.",
		}),
		filesRefused: r.gauge("policy_files_refused", "1 while the policy files are not in force, by reason: takes_away (no policy is left, or one that is named is missing), invalid, unreadable.", "reason"),
	}
}

// ingesterMetrics are about writing the job database, and Armada's tables in it.
type ingesterMetrics struct {
	rows        *prometheus.CounterVec
	costSeries  *seriesBound
	runHours    *prometheus.CounterVec
	runUnknown  *prometheus.CounterVec
	ingest      *prometheus.HistogramVec
	eventTime   *prometheus.GaugeVec
	ingestLag   *prometheus.GaugeVec
	ingests     *prometheus.GaugeVec
	retries     *prometheus.CounterVec
	away        *prometheus.GaugeVec
	released    *prometheus.CounterVec
	prunedJobs  *prometheus.CounterVec
	prunedRows  *prometheus.CounterVec
	notWritten  *prometheus.GaugeVec
	notMirrored *prometheus.CounterVec
	controlled  *prometheus.CounterVec
	notFollowed *prometheus.GaugeVec
}

func newIngesterMetrics(r register, limit int) ingesterMetrics {
	return ingesterMetrics{
		rows:        r.counter("jobdb_rows_total", "Rows written to the job database.", "partition"),
		costSeries:  &seriesBound{limit: limit},
		runHours:    r.counter("run_hours_total", "Hours of a core, of a GiB of memory and of a GPU that runs held from lease to end, by Armada's category of the failure (of a retry, of the one that it was granted for) and by how they ended: failed, retry_succeeded, or retry_lost, which failed (then it is in failed too) or was cancelled. Beyond --policy-series, labels are other.", "kind", "queue", "category", "resource"),
		runUnknown:  r.counter("run_hours_unknown_runs_total", "Runs whose hours are unknown and not in refloat_run_hours_total.", "kind", "queue", "category"),
		ingest:      r.histogram("jobdb_transaction_seconds", "Time to load, write and commit one transaction.", "partition"),
		eventTime:   r.gauge("jobdb_last_event_timestamp_seconds", "Publish time of the last message written to the job database.", "partition"),
		ingestLag:   r.gauge("jobdb_lag_messages", "Log entries of decisions that are not yet in the job database.", "partition"),
		ingests:     r.gauge("jobdb_partition_active", "1 while this process writes the partition to the job database.", "partition"),
		retries:     r.counter("jobdb_retries_total", "Retries of writing a partition to the job database.", "partition"),
		away:        r.gauge("jobdb_unavailable", "1 while the job database cannot be written and is retried, by state.", "state"),
		released:    r.counter("jobdb_released_messages_total", "Events written to the job database without a decision, because none came within --release-after.", "partition"),
		prunedJobs:  r.counter("jobdb_pruned_jobs_total", "Jobs that were over and were deleted from the job database, by --retain.", "partition"),
		prunedRows:  r.counter("jobdb_pruned_rows_total", "Rows of pruned jobs that were deleted from the job database.", "partition"),
		notWritten:  r.gauge("jobdb_refused", "1 while the partition is not written to the job database until an operator acts, by reason.", "partition", "reason"),
		notMirrored: r.counter("armada_left_out_total", "Events and retries that could not be written to Armada's tables, by kind.", "kind"),
		controlled:  r.counter("control_total", "Operator requests applied from Armada's control-plane topic, by kind.", "kind"),
		notFollowed: r.gauge("control_refused", "1 while a partition of Armada's control-plane topic is not followed until an operator acts, by reason.", "partition", "reason"),
	}
}

// diskMetrics are about what is on disk: checkpoints, and damage that was found.
type diskMetrics struct {
	saved      *prometheus.GaugeVec
	savedBytes *prometheus.GaugeVec
	notSaved   *prometheus.CounterVec
	damage     *prometheus.CounterVec
	scrubbed   *prometheus.CounterVec
	scrubEnd   *prometheus.GaugeVec
}

func newDiskMetrics(r register) diskMetrics {
	return diskMetrics{
		saved:      r.gauge("checkpoint_timestamp_seconds", "When the newest checkpoint was taken.", "partition"),
		savedBytes: r.gauge("checkpoint_bytes", "Size of the newest checkpoint.", "partition"),
		notSaved:   r.counter("checkpoint_failures_total", "Checkpoints that could not be saved.", "partition"),
		damage:     r.counter("damage_total", "Damage found on disk: in a log (the process stops), the state or the job database (both are set aside and rebuilt).", "what"),
		scrubbed:   r.counter("scrubbed_bytes_total", "Bytes on disk that the scrubber verified against their checksums.", "what"),
		scrubEnd:   r.gauge("scrub_completed_timestamp_seconds", "When the scrubber last completed a round; 0: not yet.", "what"),
	}
}

// followMetrics are about following the policies of an Armada.
type followMetrics struct {
	followFailing *prometheus.GaugeVec
	followRead    *prometheus.GaugeVec
	followNot     *prometheus.GaugeVec
	followDefault *prometheus.GaugeVec
}

func newFollowMetrics(r register) followMetrics {
	return followMetrics{
		followFailing: r.gauge("follow_armada_failing", "1 while the policies of the followed Armada cannot be read.", "armada"),
		followRead:    r.gauge("follow_armada_last_read_timestamp_seconds", "When the followed Armada's policies were last read; 0: not since this process started.", "armada"),
		followNot:     r.gauge("follow_armada_not_understood", "Policies and bindings of the followed Armada that cannot be used here.", "armada"),
		followDefault: r.gauge("follow_armada_default_missing", "1 while the settings name a default policy that the followed Armada does not have.", "armada"),
	}
}

// policyMetrics are for the authors of policies.
type policyMetrics struct {
	series          *seriesBound
	policyDecisions *prometheus.CounterVec
	beyond          prometheus.Counter
	delays          *prometheus.CounterVec
	budgets         *prometheus.CounterVec
	delay           prometheus.Histogram
	pending         *queueGauge
	left            *queueGauge
	killed          *queueGauge
	paused          *queueGauge
	written         *prometheus.GaugeVec
}

func newPolicyMetrics(r register, limit int) policyMetrics {
	byQueue := func(g *prometheus.GaugeVec) *queueGauge { return &queueGauge{gauge: g, limit: limit} }
	return policyMetrics{
		series:          &seriesBound{limit: limit},
		policyDecisions: r.counter("policy_decisions_total", "Decisions, as refloat_decisions_total counts them, by what decided them. Beyond --policy-series, labels are other.", "queue", "policy", "rule", "outcome", "code", "shadow"),
		beyond: r.factory.NewCounter(prometheus.CounterOpts{
			Name: "refloat_policy_decisions_other_total", Help: "Decisions that were counted under the queue other, because of --policy-series.",
		}),
		budgets: r.counter("budget_decisions_total", "Retries that retry budgets were asked about, by the budget that held them back the most and what it did. With shadow=true nothing was held back.", "budget", "effect", "shadow"),
		delays:  r.counter("policy_retry_delay_seconds_total", "Sum of the delays of retries, from the failure on.", "queue", "policy", "rule", "shadow"),
		delay: r.factory.NewHistogram(prometheus.HistogramOpts{
			Name: "refloat_policy_retry_delay_seconds", Help: "Delays of retries, from the failure on; those in shadow are not counted.", Buckets: prometheus.ExponentialBuckets(1, 4, 10),
		}),
		pending: byQueue(r.gauge("policy_retries_pending", "Jobs whose retry was granted and has no run yet: delayed until its time, or due.", "queue", "state")),
		left:    byQueue(r.gauge("policy_retries_pending_seconds", "Time until the last delayed retry of the queue is due.", "queue")),
		killed:  byQueue(r.gauge("policy_killed", "1 while retries are killed, of a queue or (scope all) of all queues, by the policies in force; for the queue other, how many queues.", "queue", "scope")),
		paused:  byQueue(r.gauge("policy_paused_until_timestamp_seconds", "Until when retries are paused, of a queue or (scope all) of all queues, by the policies in force.", "queue", "scope")),
		written: r.gauge("policy_generation_timestamp_seconds", "When the policy generation in force was written.", "generation"),
	}
}

// guardMetrics are those of the guard.
type guardMetrics struct {
	suspects   prometheus.Gauge
	suspicions *prometheus.CounterVec
	failures   prometheus.Counter
	breakers   prometheus.Gauge
	openings   *prometheus.CounterVec
	closings   prometheus.Counter
	starts     *prometheus.CounterVec
	canaries   *prometheus.CounterVec
}

// notifyMetrics are about notifications.
type notifyMetrics struct{ notified *prometheus.CounterVec }

func newNotifyMetrics(r register) notifyMetrics {
	m := notifyMetrics{r.counter("notifications_total", "Notifications that the receiver has taken (sent), and that it will not get (lost).", "outcome")}
	m.notified.WithLabelValues("sent")
	m.notified.WithLabelValues("lost")
	return m
}

func newGuardMetrics(r register) guardMetrics {
	return guardMetrics{
		suspects:   r.factory.NewGauge(prometheus.GaugeOpts{Name: "refloat_guard_suspects", Help: "Nodes that the guard suspects now."}),
		suspicions: r.counter("guard_suspicions_total", "Suspicions that the guard began or made longer, by the mode of protection.", "mode"),
		failures:   r.factory.NewCounter(prometheus.CounterOpts{Name: "refloat_guard_failures_total", Help: "Looks of the guard at run ends that failed."}),
		breakers:   r.factory.NewGauge(prometheus.GaugeOpts{Name: "refloat_guard_breakers", Help: "Breakers of the guard that are open now, one for each category of a queue."}),
		openings:   r.counter("guard_openings_total", "Breakers that the guard opened, by the mode of breakers.", "mode"),
		closings:   r.factory.NewCounter(prometheus.CounterOpts{Name: "refloat_guard_closings_total", Help: "Breakers that the guard closed because their canaries passed."}),
		starts:     r.counter("guard_starts_total", "Held retries that the guard ordered to start, by the reason.", "reason"),
		canaries:   r.counter("guard_canaries_total", "Canaries of which the result is known: passed, or failed of their breaker's category again.", "outcome"),
	}
}
