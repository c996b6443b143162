package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// letPass makes a data directory with a recording that an ingester released completely, because no evaluator ran.
func letPass(t *testing.T, recording string) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	ctl(t, "import", recordingFile(recording), "--log", app.Dir(data).Events()).exits(t, exitFine)
	logs, err := app.Dir(data).OpenLogs(0, app.Access{Events: true, Decisions: true, Policies: true})
	if err != nil {
		t.Fatal(err)
	}
	ends := map[int]eventlog.Position{}
	for p := range logs.Events.Partitions() {
		if ends[p], err = logs.Events.End(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := logs.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, app.Config{Data: app.Dir(data), Ingest: true, ReleaseAfter: time.Millisecond, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	}()
	until(t, "everything is released", func() bool {
		positions := map[int]eventlog.Position{}
		err := (&deployment{data: data}).viewJobs(t.Context(), func(q jobdb.Queries) error {
			all, err := q.Positions()
			for _, p := range all {
				positions[p.Partition] = p.Positions.Events
			}
			return err
		})
		for p, end := range ends {
			if err != nil || positions[p] != end {
				return false
			}
		}
		return true
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return data
}

// TestReleases: what came too late for a release is shown as that, and so is the
// release.
func TestReleases(t *testing.T) {
	t.Parallel()
	data := letPass(t, "retried")
	var job string
	for line := range strings.Lines(ctl(t, "get", "jobs", "--data", data, "-o", "json").exits(t, exitFine).out) {
		id := jsonLine(t, line).text("jobId")
		if r := ctl(t, "get", "job", id, "--data", data).exits(t, exitFine); strings.Contains(r.out, "released") {
			job = id
			break
		}
	}
	if job == "" {
		t.Fatal("no job's failure was released")
	}
	ctl(t, "get", "job", job, "--data", data, "-o", "json").exits(t, exitFine).prints(t, `"released":true`)
	ctl(t, "explain", job, "--data", data).exits(t, exitFinding).prints(t, "no run of job "+job+" was decided", "released to the job database without a decision")

	up := ctl(t, "up", "--data", data, "--policies", testPolicies, "--exit-when-drained").exits(t, exitFine)
	up.prints(t, "released without a decision, ", "decisions superseded: after the events were released", "get releases --data "+data)
	for _, p := range []string{"partition 0: ", "partition 1: ", "partition 2: "} {
		up.prints(t, p)
	}
	ctl(t, "jobdb", "verify", "--data", data).exits(t, exitFine)

	released := ctl(t, "get", "releases", "--data", data).exits(t, exitFine).prints(t, "PARTITION", "MESSAGES", "no decision came in time")
	lines := strings.Count(released.out, "\n") - 1
	asJSON := ctl(t, "get", "releases", "--data", data, "-o", "json").exits(t, exitFine)
	messages := int64(0)
	for line := range strings.Lines(asJSON.out) {
		o := jsonLine(t, line)
		messages += o.number("messages")
		if parseTime(t, o.text("made")).Before(time.Now().Add(-time.Hour)) || o.text("from") == o.text("to") {
			t.Errorf("a release is %s", line)
		}
	}
	total := int64(0)
	for _, m := range messagesOf(t, recordingFile("retried")) {
		total += int64(len(m))
	}
	if n := strings.Count(asJSON.out, "\n"); n != lines || messages != total {
		t.Errorf("%d releases of %d messages, the table has %d; there are %d messages", n, messages, lines, total)
	}
	if last := ctl(t, "get", "releases", "--data", data, "--last", "1", "-o", "json").exits(t, exitFine); !strings.HasSuffix(asJSON.out, last.out) || strings.Count(last.out, "\n") != 1 {
		t.Errorf("the last one is %s", last.out)
	}

	ctl(t, "get", "job", job, "--data", data).exits(t, exitFine).prints(t, "released; decision ", " superseded")
	ctl(t, "get", "job", job, "--data", data, "-o", "json").exits(t, exitFine).prints(t, `"supersededDecision":`, `"released":true`)
	ctl(t, "explain", job, "--data", data).exits(t, exitFine).prints(t, "superseded: the decision came too late and had no effect", " had been released, because no decision came in time")
	ctl(t, "explain", job, "--data", data, "-o", "json").exits(t, exitFine).prints(t, `"superseded":true`, `"release":{"partition":`)
	ctl(t, "get", "decisions", "--data", data, "--job", job).exits(t, exitFine).prints(t, text.Superseded)
	for line := range strings.Lines(ctl(t, "get", "decisions", "--all", "--data", data, "-o", "json").exits(t, exitFine).out) {
		if superseded, _ := jsonLine(t, line)["superseded"].(bool); !superseded {
			t.Errorf("not superseded: %s", line)
		}
	}

	// Where nothing was released, nothing is said of it.
	plain := drainedData(t)
	if r := ctl(t, "get", "decisions", "--all", "--data", plain, "-o", "json").exits(t, exitFine); strings.Contains(r.out, "superseded") {
		t.Error("superseded without a release")
	}
	if r := ctl(t, "get", "releases", "--data", plain, "-o", "json").exits(t, exitFine); r.out != "" {
		t.Errorf("releases without one: %s", r.out)
	}
}

// TestIngestModes: `up` writes into Armada's tables what its mode says.
func TestIngestModes(t *testing.T) {
	t.Parallel()
	ctl(t, "up", "--data", t.TempDir(), "--ingest-mode", "hold").exits(t, exitUsage).prints(t, `mode "hold"`, "holdback")
	ctl(t, "up", "--data", filepath.Join(t.TempDir(), "data"), "--policies", testPolicies, "--ingest-mode", "holdback").exits(t, exitEnvironment).prints(t, "give --job-db postgres://")
	for _, tt := range []struct {
		mode          string
		jobs, rebuilt bool   // Armada's table has jobs, and some of them with requirements of ours
		pod           string // of a retry, after the job's id
	}{
		{"direct", true, false, "-0-1"},
		{"holdback", true, true, "-0"},
		{"passthrough", true, false, "-0"},
		{"observe", false, false, "-0-1"},
		{"", true, false, "-0-1"},
	} {
		at := pgtest.Database(t)
		conn, err := pgx.Connect(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if err := schema.Create(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		args := []string{"up", "--data", filepath.Join(t.TempDir(), "data"), "--policies", testPolicies, "--feed", recordingFile("plain"), "--exit-when-drained", "--job-db", at}
		if tt.mode != "" {
			args = append(args, "--ingest-mode", tt.mode)
		}
		ctl(t, args...).exits(t, exitFine)
		var jobs, rebuilt, decisions int
		err = conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM refloat_waits WHERE waiting), (SELECT count(*) FROM refloat_decisions)`).Scan(&jobs, &rebuilt, &decisions)
		if err != nil || jobs > 0 != tt.jobs || rebuilt > 0 != tt.rebuilt || decisions == 0 {
			t.Errorf("mode %q: %d jobs in Armada's table, %d held back, %d decisions, %v", tt.mode, jobs, rebuilt, decisions, err)
		}
		var job string
		if err := conn.QueryRow(t.Context(), `SELECT job_id FROM refloat_decisions WHERE requeue AND run_index = 0 LIMIT 1`).Scan(&job); err != nil {
			t.Fatal(err)
		}
		ctl(t, "explain", job, "--run", "0", "--job-db", at).exits(t, exitFine).prints(t, " pod armada-"+job+tt.pod+", not before ")
		explanation := jsonLine(t, ctl(t, "explain", job, "--run", "0", "--job-db", at, "-o", "json").exits(t, exitFine).out)
		if explanation["nextPod"] != "armada-"+job+tt.pod || explanation["decision"].(map[string]any)["podName"] != "armada-"+job+"-0-1" {
			t.Errorf("mode %q: %v", tt.mode, explanation)
		}
		t.Logf("mode %q: %d jobs in Armada's table, %d held back, %d decisions", tt.mode, jobs, rebuilt, decisions)
	}
}
