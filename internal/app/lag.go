package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// reached is how far a partition is processed.
type reached struct {
	at        eventlog.Position
	published int64 // publish time of its last message, Unix nanoseconds; 0: it had none
}

func (m *Metrics) reach(where map[int]reached, partition int, to reached) {
	m.mu.Lock()
	defer m.mu.Unlock()
	to.published = cmp.Or(to.published, where[partition].published)
	where[partition] = to
}

// leave removes a partition that is now owned elsewhere.
func (m *Metrics) leave(partition int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.reached, partition)
	p := strconv.Itoa(partition)
	m.lag.DeleteLabelValues(p)
	m.behind.DeleteLabelValues(p)
}

func (m *Metrics) at(where map[int]reached, partition int) (reached, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := where[partition]
	return r, ok
}

// writing lists the partitions that this process has written to the job database, and still writes.
func (m *Metrics) writing() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.written))
}

func (m *Metrics) ingesting(partition int, active bool) {
	v := 0.0
	if active {
		v = 1
	}
	m.ingests.WithLabelValues(strconv.Itoa(partition)).Set(v)
	m.health.works(ingesterOf(partition), active)
	if !active {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.written, partition)
		m.ingestLag.DeleteLabelValues(strconv.Itoa(partition))
	}
}

func (m *Metrics) retried(log *slog.Logger, o *outage) func(int, error) {
	return func(partition int, err error) {
		m.retries.WithLabelValues(strconv.Itoa(partition)).Inc()
		if errors.Is(err, jobdb.ErrUnavailable) {
			o.away(partition, err)
			return
		}
		log.Warn("writing the partition failed; retrying", slog.Int("partition", partition), slog.Any("error", err))
	}
}

func (m *Metrics) releasedFrom(log *slog.Logger) func(jobdb.Release) {
	return func(r jobdb.Release) {
		m.released.WithLabelValues(strconv.Itoa(r.Partition)).Add(float64(r.Messages))
		log.Warn("events released without decisions", slog.Int("partition", r.Partition), slog.Uint64("messages", r.Messages),
			slog.String("from", r.From.String()), slog.String("to", r.To.String()))
	}
}

func (m *Metrics) checkpointSaved(partition int, info checkpoint.Info) {
	p := strconv.Itoa(partition)
	m.saved.WithLabelValues(p).Set(float64(info.Taken.UnixNano()) / 1e9)
	m.savedBytes.WithLabelValues(p).Set(float64(info.Bytes))
}

func (m *Metrics) checkpointFailed(partition int) {
	m.notSaved.WithLabelValues(strconv.Itoa(partition)).Inc()
}

const lagEvery = 5 * time.Second

// measureLag updates the lag metrics of the partitions owned here.
func (n *node) measureLag(ctx context.Context) error {
	for range every(ctx, lagEvery) {
		for p := range n.backend.Events.Partitions() {
			if r, ok := n.metrics.at(n.metrics.reached, p); ok {
				n.measureEvents(p, r)
			}
			if r, ok := n.metrics.at(n.metrics.written, p); ok {
				n.measureBehind(n.backend.Decisions, p, r, n.metrics.ingestLag.WithLabelValues(strconv.Itoa(p)).Set)
			}
		}
	}
	return nil
}

func (n *node) measureEvents(partition int, r reached) {
	end, err := n.backend.Events.End(partition)
	if err != nil {
		return // the owner gets the same error and reports it
	}
	p := strconv.Itoa(partition)
	if lag, known := n.lagOf(r, end); known {
		n.metrics.lag.WithLabelValues(p).Set(lag)
	}
	n.measureBehind(n.backend.Events, partition, r, n.metrics.behind.WithLabelValues(p).Set)
}

// lagOf returns by how many seconds a partition lags, of which end is the last position; 0: it does not. It is not known of
// one that was just taken over with messages left to decide.
func (n *node) lagOf(r reached, end eventlog.Position) (seconds float64, known bool) {
	switch {
	case end.Compare(r.at) <= 0:
		return 0, true
	case r.published == 0:
		return 0, false
	}
	return max(0, float64(n.Now().UnixNano()-r.published)/1e9), true
}

func (n *node) measureBehind(topic eventlog.Topic, partition int, r reached, set func(float64)) {
	if n.backend.Behind == nil {
		return
	}
	if behind, err := n.backend.Behind(topic, partition, r.at); err == nil {
		set(float64(behind))
	}
}

// measurePolicies updates the metrics of the policies in force, and of the retries that wait.
func (n *node) measurePolicies(ctx context.Context) error {
	var again time.Time
	for range every(ctx, lagEvery) {
		n.showPolicies()
		if began := n.Now(); n.Ingest && !began.Before(again) {
			n.showRetries(ctx)
			// A job database that is slow to answer is asked less often.
			again = n.Now().Add(max(retriesEvery, retriesPart*n.Now().Sub(began)))
		}
	}
	return nil
}

// The retries that wait are counted this often, or, if that is less often, for one part of the time.
const (
	retriesEvery = 15 * time.Second
	retriesPart  = 50
)

// showPolicies shows the overrides of the newest generation once a partition is decided by it.
func (n *node) showPolicies() {
	inForce := uint64(0)
	for _, p := range n.inForce.list() {
		inForce = max(inForce, p.Generation)
	}
	if inForce == 0 {
		return
	}
	number, set := n.policyLog.Newest()
	if number != inForce {
		return
	}
	n.metrics.policy.overrides(set, n.Now())
	if entries := n.policyLog.Entries(number - 1); len(entries) > 0 && entries[0].Number == number {
		n.metrics.policy.inForce(number, entries[0].Time)
	}
}

// showRetries counts the retries of the partitions that this process writes.
func (n *node) showRetries(ctx context.Context) {
	db, err := ReadJobDB(ctx, n.jobDB())
	if err != nil {
		return // the ingester reports it
	}
	defer func() { _ = db.Close() }()
	now, all := n.Now().UnixNano(), []jobdb.QueueRetries(nil)
	var rest jobdb.QueueRetries
	err = db.View(ctx, func(q jobdb.Queries) error {
		return q.Retries(n.metrics.writing(), now, func(r *jobdb.QueueRetries) error {
			if len(all) < n.PolicySeries {
				all = append(all, *r)
				return nil
			}
			rest.Jobs, rest.Delayed, rest.Latest = rest.Jobs+r.Jobs, rest.Delayed+r.Delayed, max(rest.Latest, r.Latest)
			return nil
		})
	})
	if err != nil {
		return
	}
	if rest.Jobs > 0 {
		rest.Queue = other
		all = append(all, rest)
	}
	n.metrics.policy.retries(all, now)
}

const recountEvery = 10 * time.Second

// watchPartitions stops the node when the number of partitions of events changes: from then on a job set's
// messages may go to another partition than its history.
func (n *node) watchPartitions(ctx context.Context) error {
	ticker := time.NewTicker(recountEvery)
	defer ticker.Stop()
	had := n.backend.Events.Partitions()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		switch has, err := n.backend.Recount(); {
		case err != nil:
			n.Log.Warn("number of partitions not read", slog.Any("error", err))
		case has != had:
			return fmt.Errorf("%w: events had %d, now has %d; `refloatctl doctor` says what to do", evaluator.ErrRepartitioned, had, has)
		}
	}
}
