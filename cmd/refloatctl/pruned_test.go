package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/jobdb"
)

// prune lets an ingester prune a drained data directory. The horizon of its policies is a
// second of stream time, so most of the recording is older.
func prune(t *testing.T, data string, retain time.Duration) (pruned uint64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, app.Config{Data: app.Dir(data), Ingest: true, Retain: app.Retain{For: retain}, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	}()
	until(t, "jobs are pruned", func() bool {
		n := uint64(0)
		err := (&deployment{data: data}).viewJobs(t.Context(), func(q jobdb.Queries) error {
			all, err := q.Positions()
			for _, p := range all {
				n += p.Positions.Pruned.Jobs
			}
			return err
		})
		pruned = n
		return err == nil && n > 0
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return pruned
}

// TestRetain: pruned jobs are no difference to verify, other missing ones are; explain
// derives a pruned job from the logs, and says that it was pruned where there are none.
func TestRetain(t *testing.T) {
	t.Parallel()
	policies, data := filepath.Join(t.TempDir(), "policies"), filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(policies, os.DirFS("../../examples/policies")); err != nil {
		t.Fatal(err)
	}
	settings, err := os.ReadFile(filepath.Join(policies, "settings.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, policies, "settings.yaml", strings.Replace(string(settings), "horizon: 24h", "horizon: 1s", 1))
	ctl(t, "up", "--data", data, "--policies", policies, "--feed", recordingFile("retried"), "--exit-when-drained", "--quiet").exits(t, exitFine)
	explained := map[string]string{}
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
		job := jsonLine(t, line).text("jobId")
		explained[job] = ctl(t, "explain", job, "--data", data).exits(t, exitFine).out
	}
	n := prune(t, data, 2*time.Second)
	verify := func() result { return ctl(t, "jobdb", "verify", "--data", data) }
	verify().exits(t, exitFine).prints(t, "pruned; none of them ended after ", ": equal\n")

	gone, there := "", ""
	for job, before := range explained {
		if ctl(t, "get", "job", job, "--data", data).code == exitFine {
			there = job
			continue
		}
		gone = job
		after := ctl(t, "explain", job, "--data", data).exits(t, exitFine).prints(t, "the job was pruned").out
		var kept []string
		for line := range strings.Lines(after) {
			if !strings.Contains(line, "the job was pruned") {
				kept = append(kept, line)
			}
		}
		if strings.Join(kept, "") != before {
			t.Errorf("before it was pruned:\n%s\nafter:\n%s", before, after)
		}
		ctl(t, "explain", job, "--data", data, "-o", "json").exits(t, exitFine).prints(t, `"pruned":true`)
	}
	t.Logf("%d jobs pruned; of %d decided ones, %q is gone and %q is not", n, len(explained), gone, there)
	if gone == "" {
		t.Fatal("no decided job was pruned")
	}
	url := "sqlite://" + app.Dir(data).JobDB()
	ctl(t, "explain", gone, "--job-db", url).exits(t, exitFinding).prints(t, "is not in the job database", "has pruned", "give --pulsar URL or --data DIR")
	ctl(t, "get", "job", gone, "--data", data).exits(t, exitFinding).prints(t, "has pruned", "they had ended by ")
	ctl(t, "explain", "no-such-job", "--data", data).exits(t, exitFinding).prints(t, "is not in the job database")

	// One more job is missing than was pruned.
	change(t, data, "UPDATE positions SET pruned_jobs = pruned_jobs - 1 WHERE pruned_jobs > 0")
	verify().exits(t, exitFinding).prints(t, "Pruned.Jobs is ")
	change(t, data, "UPDATE positions SET pruned_jobs = pruned_jobs + 1 WHERE pruned_ended > 0")
	verify().exits(t, exitFine)
	job := strings.TrimSpace(firstLeft(t, data))
	change(t, data, "DELETE FROM jobs WHERE job_id = '"+job+"'")
	verify().exits(t, exitFinding).prints(t, job)
}

// firstLeft is a job that is still in the database.
func firstLeft(t *testing.T, data string) string {
	t.Helper()
	line, _, _ := strings.Cut(ctl(t, "get", "jobs", "--data", data, "-o", "json").exits(t, exitFine).out, "\n")
	return jsonLine(t, line+"\n").text("jobId")
}

// TestRetainUsage: what --retain accepts.
func TestRetainUsage(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"0s", "-1h", "30d", "never"} {
		ctl(t, "up", "--data", t.TempDir(), "--retain", bad).exits(t, exitUsage).prints(t, "--retain", "720h, forever or auto")
	}
	for text, want := range map[string]app.Retain{"auto": {}, "forever": {Forever: true}, "720h": {For: 720 * time.Hour}} {
		if got, err := app.ParseRetain(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
