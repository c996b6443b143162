package app_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// TestSlackOfPolicies: an ingester that writes Armada's tables takes the termination slack from
// the policies, also in a process of its own.
func TestSlackOfPolicies(t *testing.T) {
	t.Parallel()
	const policies = `
{kind: RetrySettings, spec: {terminationSlack: 1000h, defaultPolicyName: lost}}
---
{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: lost}, spec: {retryLimit: 3, rules: [{action: Retry, onConditions: [Preempted]}]}}
`
	for _, apart := range []bool{false, true} {
		url := pgtest.Database(t)
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close(context.Background()) })
			err = schema.Create(t.Context(), conn)
		}
		if err != nil {
			t.Fatal(err)
		}
		c := app.Config{
			Data: app.Dir(filepath.Join(t.TempDir(), "data")), Policies: writeFile(t, t.TempDir(), "p.yaml", policies), Feeds: []string{recordingFile("preempted")},
			JobDB: url, IngestMode: "holdback", Evaluate: true, Ingest: true, ExitWhenDrained: true, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		}
		if apart {
			first := c
			first.JobDB, first.IngestMode = "", ""
			if err := app.Run(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			c.Policies, c.Feeds, c.Evaluate = "", nil, false
		}
		if err := app.Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		var all, waiting int
		const query = `SELECT count(*), count(*) FILTER (WHERE pod_until > (extract(epoch FROM now()) + 999 * 3600) * 1e9)
			FROM refloat_waits w WHERE NOT EXISTS (SELECT FROM refloat_ready r WHERE r.job_id = w.job_id)`
		if err := conn.QueryRow(t.Context(), query).Scan(&all, &waiting); err != nil {
			t.Fatal(err)
		}
		if all == 0 || waiting != all {
			t.Errorf("apart %v: of %d pending retries of preempted runs whose pods may be alive, %d wait for the slack of the policies", apart, all, waiting)
		}
	}
}
