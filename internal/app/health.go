package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
)

// health collects what currently fails in this process, by part. Short failures, such as a reconnect, are not
// reported.
type health struct {
	now func() time.Time

	mu      sync.Mutex
	parts   map[string]ailment
	working map[string]bool // the evaluators and ingesters that work on a partition now
}

type ailment struct {
	since  time.Time
	err    string
	person bool // an operator has to act, and other partitions may work
}

// failingFor is how long a part may fail before the process is reported as not ready.
const failingFor = 10 * time.Second

// report records that a part fails, or with nil that it works.
func (h *health) report(part string, err error) { h.note(part, err, false) }

// refused records why a part is stopped until an operator acts; nil: it is not.
func (h *health) refused(part string, err error) { h.note(part, err, true) }

// refusal returns why a part is stopped until an operator acts; "": it is not.
func (h *health) refusal(part string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.parts[part]; a.person {
		return oneLine(a.err)
	}
	return ""
}

func (h *health) note(part string, err error, person bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, failed := h.parts[part]
	switch {
	case errors.Is(err, context.Canceled): // shutting down
	case err == nil:
		delete(h.parts, part)
	case failed:
		h.parts[part] = ailment{was.since, err.Error(), person}
	default:
		if h.parts == nil {
			h.parts = map[string]ailment{}
		}
		h.parts[part] = ailment{h.now(), err.Error(), person}
	}
}

// works records whether a part works on its partition now.
func (h *health) works(part string, now bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.working == nil {
		h.working = map[string]bool{}
	}
	if h.working[part] = now; !now {
		delete(h.working, part)
	}
}

// worksOn reports whether a part works on its partition now.
func (h *health) worksOn(part string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.working[part]
}

// failing lists what has failed for longer than failingFor, and reports whether the process can do its work all
// the same. If partitions are refused, it can while any other part works on one.
func (h *health) failing() (lines []string, ready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ready = true
	for _, part := range slices.Sorted(maps.Keys(h.parts)) {
		a := h.parts[part]
		if h.now().Sub(a.since) < failingFor {
			continue
		}
		ready = ready && a.person && len(h.working) > 0
		lines = append(lines, fmt.Sprintf("%s: since %s: %s", part, a.since.UTC().Format(time.RFC3339), oneLine(a.err)))
	}
	return lines, ready
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

// serveReady answers /readyz: 503 while an essential part fails, with one line for each such part.
func (m *Metrics) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !m.ready.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("not yet\n"))
		return
	}
	lines, ready := m.health.failing()
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if len(lines) == 0 {
		lines = []string{"ok"}
	}
	_, _ = w.Write([]byte(strings.Join(lines, "\n") + "\n"))
}

const (
	probeEvery   = 5 * time.Second
	probeTimeout = 10 * time.Second
)

// probe regularly checks what is otherwise used only on demand, so that failures show: the broker, and the
// policies log.
func (n *node) probe(ctx context.Context) error {
	for range every(ctx, probeEvery) {
		_, err := n.backend.Events.End(0)
		n.report("events", err)
		if n.policies != nil {
			n.report("policies", n.askPolicies(ctx))
		}
	}
	return nil
}

func (n *node) askPolicies(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := n.policies.Newest(ctx)
	return err
}

// report updates /readyz, and logs a part's changes.
func (n *node) report(part string, err error) {
	n.metrics.health.mu.Lock()
	_, failed := n.metrics.health.parts[part]
	n.metrics.health.mu.Unlock()
	n.metrics.health.report(part, err)
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil && !failed:
		n.Log.Warn("not working; retrying", slog.String("part", part), slog.Any("error", err))
	case err == nil && failed:
		n.Log.Info("works again", slog.String("part", part))
	}
}

// watch reports whether the broker grants a lease.
func (n *node) watch(ctx context.Context, part string, lease Lease) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			n.metrics.health.report(part, lease.Err())
		case <-ctx.Done():
			return
		}
	}
}

// mayRecover reports whether retrying may help against a log's error. An outage can look like a deleted topic or
// like refused credentials.
func mayRecover(err error) bool {
	return errors.Is(err, eventlog.ErrTransient) || errors.Is(err, pulsarlog.ErrGone) || errors.Is(err, pulsarlog.ErrDenied)
}
