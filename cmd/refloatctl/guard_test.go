package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// fleet submits and runs jobs for an `up`, as a scheduler does: a retry starts when the job database says that it may.
type fleet struct {
	t       *testing.T
	dir     string // of what is fed, beside the data
	up      *process
	at      func(args ...string) result
	fed     int
	started map[string]int // runs by job
	// outcome says on which node a job's run is, and with which category it fails; "": it succeeds.
	outcome func(job string) (node, category string)
}

// newFleet starts an up with these settings, and a policy that retries at once.
func newFleet(t *testing.T, settings string) *fleet {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir, "policies/p.yaml", `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec: {defaultAction: Retry, retryLimit: 15, backoff: {initialDelay: 0s}}
---
kind: RetrySettings
spec: {defaultPolicyName: p, globalMaxRetries: 20, `+settings+`}
`)
	f := &fleet{t: t, dir: dir, started: map[string]int{}}
	f.start()
	return f
}

func (f *fleet) data() string { return filepath.Join(f.dir, "data") }

func (f *fleet) start() {
	f.t.Helper()
	f.up, f.at = served(f.t, f.data(), "--partitions", "2", "--policies", filepath.Join(f.dir, "policies"))
}

// crash kills the up with SIGKILL, and starts it again.
func (f *fleet) crash() {
	f.t.Helper()
	f.up.kill()
	f.start()
}

// feed feeds each job's events in a message.
func (f *fleet) feed(events map[string][]*pb.Event) {
	f.t.Helper()
	if len(events) == 0 {
		return
	}
	f.fed++
	now := time.Now()
	var entries []recording.Entry
	for job, all := range events {
		for _, e := range all {
			e.Created = &pb.Timestamp{Seconds: now.Unix(), Nanos: int32(now.Nanosecond())}
		}
		queue, _, _ := strings.Cut(job, "-")
		payload, err := proto.Marshal(&pb.EventSequence{Queue: queue, JobSetName: "of-" + queue, Events: all})
		if err != nil {
			f.t.Fatal(err)
		}
		partition := int(queue[len(queue)-1]) % 2
		entries = append(entries, recording.Entry{Partition: partition, Producer: "test", Message: eventlog.Message{
			Position: eventlog.Position{Ledger: 1, Entry: int64(len(entries)), Batch: -1}, Publish: now.UnixNano(), Key: "of-" + queue, Payload: payload,
		}})
	}
	file := filepath.Join(f.dir, fmt.Sprintf("%03d.jsonl.gz", f.fed))
	writeRecording(f.t, file, entries)
	ctl(f.t, "feed", file, "--data", f.data()).exits(f.t, exitFine)
}

func (f *fleet) submit(queue string, jobs int) {
	f.t.Helper()
	events := map[string][]*pb.Event{}
	for n := range jobs {
		job := fmt.Sprintf("%s-%02d", queue, n)
		events[job] = append([]*pb.Event{{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: job}}}}, f.run(job)...)
	}
	f.feed(events)
}

// run is the next run of a job.
func (f *fleet) run(job string) []*pb.Event {
	f.started[job]++
	run := fmt.Sprintf("%s-run-%02d", job, f.started[job])
	node, category := f.outcome(job)
	all := []*pb.Event{
		{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, ExecutorId: "e", NodeId: node}}},
		{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: job, RunId: run}}},
	}
	if category == "" {
		return append(all,
			&pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: run}}},
			&pb.Event{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: job}}})
	}
	failed := exitedRun(job, run, 1)
	failed.GetJobRunErrors().Errors[0].FailureCategory = category
	return append(all, failed)
}

// decisions are the codes of the decisions on each job, in order. No run has two.
func (f *fleet) decisions() map[string][]string {
	f.t.Helper()
	codes, runs := map[string][]string{}, map[string]bool{}
	for line := range strings.Lines(f.at("get", "decisions", "-o", "json", "--limit", "1000").exits(f.t, exitFine).out) { // oldest first
		o := jsonLine(f.t, line)
		if run := o.text("runId"); runs[run] {
			f.t.Fatalf("run %s is decided twice", run)
		} else {
			runs[run] = true
		}
		codes[o.text("jobId")] = append(codes[o.text("jobId")], o.text("code"))
	}
	return codes
}

// turn starts the retries that may start, and returns of which jobs.
func (f *fleet) turn() (began []string) {
	f.t.Helper()
	decided, events := f.decisions(), map[string][]*pb.Event{}
	for line := range strings.Lines(f.at("get", "jobs", "-o", "json", "--limit", "1000").exits(f.t, exitFine).out) {
		o := jsonLine(f.t, line)
		job := o.text("jobId")
		if o.text("state") != "Queued" || len(decided[job]) != f.started[job] {
			continue
		}
		after, err := time.Parse(time.RFC3339Nano, o.text("retryAfter"))
		if err != nil {
			f.t.Fatal(err)
		}
		if after.After(time.Now()) {
			continue
		}
		events[job] = f.run(job)
		began = append(began, job)
	}
	f.feed(events)
	return began
}

func (f *fleet) succeeded() bool {
	f.t.Helper()
	n := strings.Count(f.at("get", "jobs", "-o", "json", "--limit", "1000").exits(f.t, exitFine).out, `"state":"Succeeded"`)
	return n == len(f.started)
}

// verified stops the up, and verifies what it left.
func (f *fleet) verified() {
	f.t.Helper()
	stopped(f.t, f.up)
	ctl(f.t, "verify", "--data", f.data()).exits(f.t, exitFine)
	ctl(f.t, "jobdb", "verify", "--data", f.data()).exits(f.t, exitFine)
}

// TestGuardOutage: an outage of three queues opens their breakers, and what they hold is started by orders through the log: canaries that
// fail, canaries that pass, then the rest. A queue that mostly succeeds is not held. Whenever up is killed, the next one goes on, and
// nothing is decided twice.
func TestGuardOutage(t *testing.T) {
	t.Parallel()
	const hit, jobs = 3, 6
	f := newFleet(t, "breakers: {mode: Enforce, openAfter: 4, probe: 1s, ramp: 6s}")
	down := true
	f.outcome = func(job string) (node, category string) {
		if down && strings.HasPrefix(job, "hit") || job == "calm0-00" && f.started[job] == 1 {
			category = "image-pull"
		}
		return "n", category
	}
	f.submit("calm0", jobs)
	for q := range hit {
		f.submit(fmt.Sprintf("hit%d", q), jobs)
	}
	open := func() int { return strings.Count(f.at("get", "breakers", "-o", "json").exits(t, exitFine).out, "\n") }
	until(t, "the breakers of the outage are open", func() bool { return open() == hit })
	f.at("get", "breakers").prints(t, "image-pull", "hit0", "hit1", "hit2", "guard")

	// What failed before starts once more, and is held. Then only canaries start.
	until(t, "all but a success is held", func() bool {
		f.turn()
		held := 0
		for _, codes := range f.decisions() {
			if codes[len(codes)-1] == "BreakerHeld" {
				held++
			}
		}
		return held == hit*jobs
	})
	canaries := 0
	until(t, "canaries of two rounds failed", func() bool {
		began := f.turn()
		if n := len(began); n > 2*hit {
			t.Fatalf("%d canaries at once: %v", n, began)
		}
		if canaries == 0 && len(began) > 0 {
			f.crash() // with canaries on the way, or their decisions
		}
		canaries += len(began)
		return canaries > 2*2*hit
	})
	down = false
	until(t, "a breaker is closed", func() bool { f.turn(); return open() < hit })
	f.crash() // with most of what is held not started
	until(t, "all jobs have succeeded", func() bool { f.turn(); return f.succeeded() })
	until(t, "no breaker is open", func() bool { return open() == 0 })

	codes := f.decisions()
	if c := codes["calm0-00"]; !slices.Equal(c, []string{"DefaultRetry"}) {
		t.Errorf("the calm queue's failure was decided %v", c)
	}
	for job, c := range codes {
		if first := slices.Index(c, "BreakerHeld"); strings.HasPrefix(job, "hit") && (first < 1 || slices.ContainsFunc(c[first:], func(code string) bool { return code != "BreakerHeld" })) {
			t.Errorf("job %s was decided %v, want some retries, and then only what breakers hold", job, c)
		}
	}
	f.at("history").prints(t, "guard", "category image-pull of queue hit0 closes: ")
	f.verified()
}

// TestGuardNode: a node on which the jobs of two queues fail is avoided by the retry of a third one that failed elsewhere, also after up
// was killed, until somebody trusts it.
func TestGuardNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "protection: {mode: Enforce}")
	f.outcome = func(job string) (node, category string) {
		if n := job[len(job)-1]; n > '1' {
			return "good-" + string(n), ""
		}
		return "bad", "gpu"
	}
	f.submit("q0", 8)
	f.submit("q1", 8)
	until(t, "the node is a suspect", func() bool { return strings.Contains(f.at("get", "nodes").out, "bad") })
	f.at("get", "nodes").exits(t, exitFine).prints(t, "guard", "avoided")
	f.crash()
	avoids := func(queue string, want bool) {
		t.Helper()
		f.outcome = func(string) (node, category string) { return "good-9", "bug" }
		f.submit(queue, 1)
		until(t, "its failure is decided", func() bool { return len(f.decisions()[queue+"-00"]) > 0 })
		o := jsonLine(t, f.at("get", "job", queue+"-00", "-o", "json").exits(t, exitFine).out)
		if got := fmt.Sprint(o["avoidNodes"]); strings.Contains(got, "bad") != want {
			t.Errorf("the retry of %s avoids %s, want the suspect: %t", queue, got, want)
		}
	}
	avoids("q2", true)
	f.at("trust", "node", "bad", "--for", "24h", "--reason", "mended").exits(t, exitFine)
	until(t, "the node is trusted", func() bool { return strings.Contains(f.at("get", "nodes").out, "trusted") })
	avoids("q3", false)
	f.outcome = func(string) (node, category string) { return "good-2", "" }
	until(t, "all jobs have succeeded", func() bool { f.turn(); return f.succeeded() })
	f.at("get", "nodes").exits(t, exitFine).prints(t, "trusted", "mended")
	f.verified()
}
