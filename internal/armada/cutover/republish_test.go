package cutover_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/eventlog"
)

// TestRepublished: jobs whose SubmitJob has expired are republished. Armada's ingester
// would have skipped these messages. Our evaluators decide the next failure of such a
// job, even if the failure names no node, and do not mistake an older run for the
// current one.
func TestRepublished(t *testing.T) {
	w := newWorld(t, 3)
	w.rules += "---\nkind: RetrySettings\nspec: {defaultPolicyName: all}\n"
	entries := readRecording(t, "chaos")
	w.publish(entries[:300], 5)
	for p := range 3 {
		w.armadaIngests(subscription, w.JobDB, p, w.end(p))
	}
	// One job has had another run before, and one has lost its metadata.
	conn := connect(t, w.JobDB)
	running := `FROM runs r JOIN jobs j USING (job_id) WHERE NOT j.terminated AND NOT r.terminated AND NOT j.queued
		AND position('failFast'::bytea IN j.scheduling_info) = 0`
	var job, run, node, queue, set string
	w.must(conn.QueryRow(t.Context(), "SELECT job_id, run_id, node, j.queue, j.job_set "+running+" ORDER BY 1 LIMIT 1").Scan(&job, &run, &node, &queue, &set))
	var other, otherSet string
	w.must(conn.QueryRow(t.Context(), "SELECT job_id, j.job_set "+running+" AND job_id <> $1 ORDER BY 1 LIMIT 1", job).Scan(&other, &otherSet))
	for _, sql := range []string{
		`INSERT INTO runs (run_id, job_id, created, job_set, queue, executor, node, pool, failed, cancelled, running, succeeded, returned, run_attempted, preempted, pending)
			SELECT 'before', job_id, created - 1, job_set, queue, executor, node, pool, true, false, true, false, false, true, false, true FROM runs WHERE run_id = '` + run + `'`,
		"DELETE FROM job_metadata WHERE job_id = '" + other + "'",
	} {
		_, err := conn.Exec(t.Context(), sql)
		w.must(err)
	}
	live := w.count("SELECT count(*) FROM jobs WHERE NOT terminated")
	before := rows(t, w.JobDB)
	w.truncate()

	plan, err := w.Start(t.Context(), true)
	w.must(err)
	steps := fmt.Sprint(plan.Steps)
	if want := fmt.Sprintf("republish %d jobs", live); !strings.Contains(steps, want) || len(w.held()) != 0 {
		t.Fatalf("rehearsed: %s, want %q, and nothing published", steps, want)
	}
	report, err := w.Start(t.Context(), false)
	w.must(err)
	if found := fmt.Sprint(report.Findings); !strings.Contains(found, "1 of them cannot be republished") || !strings.Contains(found, other) {
		t.Errorf("findings %s, want the job without metadata", found)
	}
	republished := w.republished()
	if len(republished) != live-1 || slices.Contains(republished, other) {
		t.Errorf("%d jobs were told of, want %d", len(republished), live-1)
	}

	r := w.refloat(writer.HoldBack)
	r.ingestTo(w.ends())
	equalRows(t, before, rows(t, w.JobDB)) // republishing changes nothing
	if n := w.count("SELECT count(*) FROM refloat_jobs WHERE known"); n != live-1 {
		t.Errorf("%d jobs are known, want %d", n, live-1)
	}

	w.send(queue, set, runErrors(job, "before", &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}}}))
	w.send(queue, otherSet, runErrors(other, "any", &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}}}))
	w.send(queue, set, runErrors(job, run, &pb.Error{Terminal: true, Reason: &pb.Error_MaxRunsExceeded{MaxRunsExceeded: &pb.MaxRunsExceeded{}}}))
	r.ingestTo(w.ends())
	decided := func(id string) (found []string) {
		all, err := conn.Query(t.Context(), "SELECT run_id || ' ' || requeue || ' ' || acted FROM refloat_decisions WHERE job_id = $1 ORDER BY number", id)
		w.must(err)
		defer all.Close()
		for all.Next() {
			var text string
			w.must(all.Scan(&text))
			found = append(found, text)
		}
		return found
	}
	if got, want := decided(job), []string{run + " true true"}; !slices.Equal(got, want) {
		t.Errorf("decided %q, want %q", got, want)
	}
	if got := decided(other); len(got) != 0 || w.count("SELECT count(*) FROM refloat_not_decided WHERE job_id = '"+other+"'") != 1 {
		t.Errorf("a job that was not told of: decided %q", got)
	}
	if n := w.count("SELECT count(*) FROM jobs WHERE queued AND NOT terminated AND job_id = '" + job + "'"); n != 1 {
		t.Error("the job is not in Armada's queue")
	}
	if n := w.count(fmt.Sprintf("SELECT count(*) FROM refloat_runs WHERE job_id = '%s' AND run_id = '%s' AND node = '%s'", job, run, node)); n != 1 {
		t.Errorf("the run's node is not known to be %s", node)
	}
}

func runErrors(job, run string, err *pb.Error) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{err}}}}
}

func (w *world) send(queue, set string, ev *pb.Event) {
	w.Helper()
	payload, err := proto.Marshal(&pb.EventSequence{Queue: queue, JobSetName: set, Events: []*pb.Event{ev}})
	w.must(err)
	producer, err := w.cluster.Client().CreateProducer(pulsar.ProducerOptions{Topic: w.events.PartitionName(eventlog.PartitionFor(set, 3))})
	w.must(err)
	defer producer.Close()
	_, err = producer.Send(w.Context(), &pulsar.ProducerMessage{Key: set, Payload: payload, EventTime: time.Now()})
	w.must(err)
}

func (w *world) end(p int) eventlog.Position {
	w.Helper()
	at, err := w.events.End(p)
	w.must(err)
	return at
}

func (w *world) ends() (ends []eventlog.Position) {
	w.Helper()
	for p := range w.events.Partitions() {
		ends = append(ends, w.end(p))
	}
	return ends
}

// held returns the payloads of the messages that the topic holds.
func (w *world) held() (payloads [][]byte) {
	w.Helper()
	for p := range w.events.Partitions() {
		if w.end(p) == eventlog.Start {
			continue
		}
		at, err := w.events.Beginning(p)
		w.must(err)
		r, err := eventlog.ToEnd(w.Context(), w.events).Open(p, at)
		w.must(err)
		chunk := make([]eventlog.Message, 64)
		for {
			n, err := r.Read(chunk)
			w.must(err)
			if n == 0 {
				break
			}
			for _, m := range chunk[:n] {
				payloads = append(payloads, m.Payload)
			}
		}
		w.must(r.Close())
	}
	return payloads
}

// republished returns the jobs that were republished.
func (w *world) republished() (jobs []string) {
	w.Helper()
	for _, payload := range w.held() {
		seq, err := events.Read(payload)
		w.must(err)
		for i, ev := range seq.Events {
			if ev.Kind != events.SubmitJob {
				continue
			}
			jobs = append(jobs, ev.JobID)
			spec := seq.Full(i).GetKnownJob().GetMainObject().GetPodSpec().GetPodSpec()
			if len(spec.GetContainers()) > 0 || spec.GetAffinity() != nil || len(spec.GetTolerations()) > 0 || len(spec.GetNodeSelector()) > 0 {
				w.Errorf("job %s is republished with its containers, or its placement", ev.JobID)
			}
		}
	}
	return jobs
}
