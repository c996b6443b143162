package app

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/evaluator"
)

// TestReadiness: /readyz says what has not worked for a while, and since when.
func TestReadiness(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	m := NewMetrics(func() time.Time { return now }, 10)
	m.ready.Store(true)
	is := func(code int, body string) {
		t.Helper()
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
		if w.Code != code || w.Body.String() != body {
			t.Errorf("/readyz: %d %q, want %d %q", w.Code, w.Body.String(), code, body)
		}
	}
	is(200, "ok\n")
	m.health.report("policies", errors.New("no connection"))
	m.health.report("ended", context.Canceled)
	is(200, "ok\n") // it may be over in a moment
	now = now.Add(failingFor)
	m.health.report("policies", errors.New("still\nnone"))
	is(503, "policies: since 1970-01-12T13:46:40Z: still; none\n")
	m.health.works("partition 2", true)
	m.health.refused("partition 1", errors.New("trimmed"))
	m.health.report("policies", nil)
	now = now.Add(failingFor)
	is(200, "partition 1: since 1970-01-12T13:46:50Z: trimmed\n") // the others work
	m.health.refused("partition 1", nil)
	is(200, "ok\n")
}

// TestNothingWorks: a process all of whose partitions are refused is not ready; one partition that works is enough.
func TestNothingWorks(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	m := NewMetrics(func() time.Time { return now }, 10)
	m.ready.Store(true)
	ready := func(want bool) {
		t.Helper()
		if lines, got := m.health.failing(); got != want {
			t.Errorf("ready %t, want %t: %q", got, want, lines)
		}
	}
	ready(true) // no partition is placed here
	other := m.owner(2, m.health.now).Phase
	m.health.refused(evaluatorOf(1), errors.New("history"))
	ready(true) // it may be over in a moment
	now = now.Add(failingFor)
	ready(false)
	other(evaluator.Live)
	ready(true)
	other(evaluator.Standby)
	ready(false)
	m.ingesting(2, true)
	ready(true)
	m.ingesting(2, false)
	ready(false)
	m.health.refused(evaluatorOf(1), nil)
	ready(true)
}
