package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// TestOrders: an operator has a job retried that failed for good, and gives up one that waits. The decision log answers.
func TestOrders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, policies := filepath.Join(dir, "now.jsonl.gz"), filepath.Join(dir, "policies")
	writeFile(t, dir, "policies/p.yaml", `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec:
  rules:
  - {name: seven, action: Retry, onExitCodes: {operator: In, values: [7]}, backoff: {initialDelay: 9m}}
---
kind: RetrySettings
spec: {defaultPolicyName: p}
`)
	now := time.Now().UnixNano()
	var entries []recording.Entry
	for i, ev := range []*pb.Event{
		{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: "01old"}}},
		exitedRun("01old", "run-o", 1),
		{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: "01failed"}}},
		{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: "01waits"}}},
		exitedRun("01failed", "run-a", 1),
		exitedRun("01waits", "run-b", 7),
	} {
		set, at := "s", now
		if i < 2 {
			set, at = "old", now-int64(25*time.Hour) // more than one horizon
		}
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: set, Events: []*pb.Event{ev}})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, recording.Entry{Producer: "test", Message: eventlog.Message{
			Position: eventlog.Position{Ledger: 1, Entry: int64(i), Batch: -1}, Publish: at, Key: set, Payload: payload,
		}})
	}
	writeRecording(t, file, entries)
	data := filepath.Join(dir, "data")
	p, at := served(t, data, "--partitions", "1", "--policies", policies, "--feed", file)
	until(t, "all jobs are decided", func() bool {
		return strings.Count(ctl(t, "get", "decisions", "--data", data, "-o", "json").out, "\n") == 3
	})
	at("retry", "01old", "--reason", "x", "--dry-run").exits(t, exitEnvironment).prints(t, "01old refused, UnknownJob: the job ended at", "was forgotten one horizon (24h0m0s) later")

	at("retry", "01failed").exits(t, exitUsage).prints(t, "--reason TEXT is required")
	at("retry", "--reason", "x").exits(t, exitUsage).prints(t, "whole job ids")
	at("retry", "--group", "g", "--reason", "x").exits(t, exitUsage).prints(t, "start and end together")
	at("retry", "01failed", "01waits", "--reason", "x").exits(t, exitEnvironment).prints(t, "none is ordered; raise max")
	at("retry", "01fail", "--reason", "x").exits(t, exitEnvironment).prints(t, "01fail refused, NotFound: no job has the id 01fail: give the whole id")
	at("retry", "01waits", "--reason", "x").exits(t, exitEnvironment).prints(t, "01waits refused, Retrying: ")
	at("give-up", "01failed", "--reason", "x").exits(t, exitEnvironment).prints(t, "01failed refused, Failed: ")
	at("retry", "--queue", "q", "--job-set", "s", "--reason", "x", "--dry-run").exits(t, exitFine).prints(t, "01failed ordered (dry run)", "1 job, 0 refused")
	at("give-up", "--queue", "q", "--job-set", "S", "--reason", "x").exits(t, exitUsage).prints(t, `--job-set: no job set is called "S": did you mean s?`)
	at("start", "--queue", "qq", "--job-set", "s", "--reason", "x").exits(t, exitUsage).prints(t, `--queue: no queue is called "qq"`)
	at("get", "job", "01failed").exits(t, exitFine).prints(t, "Failed")

	answered := func(job, text string) {
		t.Helper()
		until(t, "the order on "+job+" is answered", func() bool { return strings.Contains(at("explain", job).out, text) })
	}
	at("retry", "01failed", "--reason", "the registry is back", "--request-id", "INC-1").exits(t, exitFine).prints(t, "01failed ordered", "order INC-1")
	answered("01failed", "(the registry is back): it runs again, not before")
	at("get", "job", "01failed").exits(t, exitFine).prints(t, "Queued")
	at("retry", "01failed", "--reason", "again", "--request-id", "INC-1").exits(t, exitEnvironment).prints(t, "Retrying")
	at("start", "01failed", "--reason", "x", "--over", "2h").exits(t, exitEnvironment).prints(t, "over: want a duration from 0 to 1h")
	at("start", "--queue", "q", "--job-set", "s", "--max", "2", "--over", "1m", "--reason", "why wait").exits(t, exitFine).prints(t, "01waits ordered", "0 refused")
	answered("01waits", "ordered to start the retry of job 01waits after run run-b (why wait): it runs again, not before")
	until(t, "the job database has the earlier time", func() bool {
		o := jsonLine(t, at("get", "job", "01waits", "-o", "json").out)
		after, err := time.Parse(time.RFC3339Nano, o.text("retryAfter"))
		return err == nil && after.Before(time.Unix(0, now).Add(8*time.Minute))
	})
	at("give-up", "01waits", "--reason", "wrong input").exits(t, exitFine).prints(t, "01waits ordered")
	answered("01waits", "(wrong input): it does not run again")
	at("retry", "01waits", "--reason", "x").exits(t, exitEnvironment).prints(t, "01waits refused, Cancelled: ")
	until(t, "the job database has the cancellation", func() bool { return strings.Contains(at("get", "job", "01waits").out, "its cancellation is requested") })
	stopped(t, p)
	ctl(t, "verify", "--data", data).exits(t, exitFine)
	ctl(t, "jobdb", "verify", "--data", data).exits(t, exitFine)
}

// exitedRun is a run that ended with an exit code.
func exitedRun(job, run string, code int32) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{{
		Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{ContainerErrors: []*pb.ContainerError{{
			ObjectMeta: &pb.ObjectMeta{Name: "main"}, ExitCode: code,
		}}}},
	}}}}}
}
