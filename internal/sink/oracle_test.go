package sink_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

var recordings = []string{"plain", "chaos", "retried", "preempted"}

const recordingsDir = "../../testdata/recordings"

func lines(t testing.TB, path string, visit func([]byte)) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	s := bufio.NewScanner(z)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		visit(s.Bytes())
	}
	if err := s.Err(); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// readRecording puts a recording into a topic of three partitions.
func readRecording(t testing.TB, name string) *memTopic {
	topic := newTopic(3)
	lines(t, filepath.Join(recordingsDir, name+".jsonl.gz"), func(line []byte) {
		var m struct {
			Partition     int
			Ledger, Entry int64
			Batch         int32
			Key           string
			PublishTime   time.Time `json:"publish_time"`
			Payload       []byte
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		topic.append(m.Partition, eventlog.Message{
			Position: eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch},
			Publish:  m.PublishTime.UnixNano(), Key: m.Key, Payload: m.Payload,
		})
	})
	return topic
}

// cover answers all input of a topic, so many messages at a time, without records.
func cover(t *testing.T, events *memTopic, batch int) *memTopic {
	decisions := newTopic(events.Partitions())
	for p := range events.Partitions() {
		c := newChain(t, decisions, p)
		for ms := events.parts[p].messages; len(ms) > 0; {
			n := min(batch, len(ms))
			c.answer(ms[n-1].Position, n)
			ms = ms[n:]
		}
	}
	return decisions
}

type armadaJob struct {
	Job     string `json:"job_id"`
	JobSet  string `json:"job_set"`
	Queue   string
	Submit  int64 `json:"submitted"`
	Prio    int64 `json:"priority"`
	Queued  bool
	Version int64 `json:"queued_version"`
	Asked   bool  `json:"cancel_requested"`
	AskedBy bool  `json:"cancel_by_jobset_requested"`
	Cancel  bool  `json:"cancelled"`
	Succ    bool  `json:"succeeded"`
	Failed  bool
}

type armadaRun struct {
	Run       string `json:"run_id"`
	Job       string `json:"job_id"`
	Executor  string
	Node      string
	Pool      string
	Cancel    bool `json:"cancelled"`
	Pending   bool
	Running   bool
	Succ      bool `json:"succeeded"`
	Failed    bool
	Returned  bool
	Attempted bool    `json:"run_attempted"`
	Preempted bool    `json:"preempted"`
	Leased    *string `json:"leased_timestamp"`
	PendingAt *string `json:"pending_timestamp"`
	RunningAt *string `json:"running_timestamp"`
	PreemptAt *string `json:"preempted_timestamp"`
	Ended     *string `json:"terminated_timestamp"`
}

type oracle struct {
	jobs   map[string]*armadaJob
	runs   map[string]*armadaRun
	errors map[string]bool
}

func readOracle(t testing.TB, name string) *oracle {
	o := &oracle{jobs: map[string]*armadaJob{}, runs: map[string]*armadaRun{}, errors: map[string]bool{}}
	lines(t, filepath.Join(recordingsDir, name+".rows.jsonl.gz"), func(line []byte) {
		var table struct {
			Table string
			Run   string `json:"run_id"`
		}
		var err error
		if err = json.Unmarshal(line, &table); err == nil {
			switch table.Table {
			case "jobs":
				j := &armadaJob{}
				err = json.Unmarshal(line, j)
				o.jobs[j.Job] = j
			case "runs":
				r := &armadaRun{}
				err = json.Unmarshal(line, r)
				o.runs[r.Run] = r
			case "job_run_errors":
				o.errors[table.Run] = true
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	})
	return o
}

// micros is a time as PostgreSQL keeps it; "-" when there is none.
func micros(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return time.Unix(0, ns).UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
}

func stamp(t testing.TB, s *string) string {
	if s == nil {
		return "-"
	}
	at, err := time.Parse(time.RFC3339Nano, *s)
	if err != nil {
		t.Fatal(err)
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// explained counts, per recording, the rows that differ for a reason.
var explained = map[string]map[string]int{
	// Armada's ingester marks every run of a cancelled job as cancelled, also
	// those that ended before, and writes the time of the cancellation over
	// their end. Ours keep the end that they had (semantics.md 1: a run ends once).
	"plain": {"run of a cancelled job, ended before": 203},
	// Armada's updates of unknown jobs do nothing. Ours keep that a job was asked
	// to be cancelled, for when it comes (semantics.md 1).
	"chaos":   {"asked to be cancelled, submitted before the recording": 5},
	"retried": {},
	// Preempted while it was about to succeed: Armada's row says both, with the
	// time of what came last. Ours says what came first.
	"preempted": {"two ends": 1},
}

// TestArmadaRows folds the recordings without any decision: then the rows must
// say what Armada's own ingester said.
func TestArmadaRows(t *testing.T) {
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, want := readRecording(t, name), readOracle(t, name)
			decisions := cover(t, events, 7)
			jobs, runs, left := 0, 0, map[string]int{}
			for p := range events.Partitions() {
				got, err := sink.Fold(events, decisions, p, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range got.Jobs {
					if want.jobs[j.JobID] == nil && !j.Known && j.CancelRequested && j.Queueing.Runs == 0 {
						left["asked to be cancelled, submitted before the recording"]++
						continue
					}
					jobs++
					compareJob(t, want.jobs[j.JobID], j)
				}
				for _, r := range got.Runs {
					runs++
					compareRun(t, want, r, left)
				}
			}
			if jobs != len(want.jobs) || runs != len(want.runs) {
				t.Errorf("%d jobs and %d runs, Armada has %d and %d", jobs, runs, len(want.jobs), len(want.runs))
			}
			if diff := cmp.Diff(explained[name], left); diff != "" {
				t.Errorf("explained differences (-want +got):\n%s", diff)
			}
		})
	}
}

func compareJob(t *testing.T, a *armadaJob, j *jobdb.Job) {
	if a == nil {
		t.Errorf("job %s is not Armada's", j.JobID)
		return
	}
	same(t, "job "+a.Job, []pair{
		{"queue", a.Queue, j.Queue},
		{"set", a.JobSet, j.JobSet},
		{"known", true, j.Known},
		{"submitted", micros(a.Submit), micros(j.Times.Submitted)},
		{"priority", a.Prio, j.Queueing.Priority},
		{"queued", a.Queued, j.State == jobdb.JobQueued},
		{"version", a.Version, j.Queueing.Version},
		{"cancel requested", a.Asked || a.AskedBy, j.CancelRequested},
		{"cancelled", a.Cancel, j.State == jobdb.JobCancelled},
		{"succeeded", a.Succ, j.State == jobdb.JobSucceeded},
		{"failed", a.Failed, j.State == jobdb.JobFailed},
		{"Armada's verdict", a.Failed, j.Armada.Failed},
	})
}

func compareRun(t *testing.T, o *oracle, r *jobdb.Run, left map[string]int) {
	a := o.runs[r.RunID]
	if a == nil {
		t.Errorf("run %s is not Armada's", r.RunID)
		return
	}
	cancelled, succeeded, ended := a.Cancel, a.Succ, stamp(t, a.Ended)
	switch {
	case a.Cancel && r.State.Ended() && micros(r.Times.Ended) < ended:
		left["run of a cancelled job, ended before"]++
		cancelled, ended = false, micros(r.Times.Ended)
	case a.Succ && a.Failed && r.State == jobdb.RunFailed && micros(r.Times.Ended) < ended:
		left["two ends"]++
		succeeded, ended = false, micros(r.Times.Ended)
	}
	same(t, "run "+a.Run, []pair{
		{"job", a.Job, r.JobID},
		{"executor", a.Executor, r.Executor},
		{"node", a.Node, r.Node},
		{"pool", a.Pool, r.Pool},
		{"pending", a.Pending, r.Times.Pending != 0},
		{"running", a.Running, r.Times.Running != 0},
		{"succeeded", succeeded, r.State == jobdb.RunSucceeded},
		{"failed", a.Failed, r.State == jobdb.RunFailed},
		{"returned", a.Returned, r.Flags.Returned},
		{"attempted", a.Attempted, r.Flags.Attempted},
		{"preempted", a.Preempted, r.Flags.Preempted},
		{"cancelled", cancelled, r.Flags.Cancelled},
		{"error", o.errors[a.Run], r.Error.Reason != ""},
		{"leased at", stamp(t, a.Leased), micros(r.Times.Leased)},
		{"pending at", stamp(t, a.PendingAt), micros(r.Times.Pending)},
		{"running at", stamp(t, a.RunningAt), micros(r.Times.Running)},
		{"preempted at", stamp(t, a.PreemptAt), micros(r.Times.Preempted)},
		{"ended at", ended, micros(r.Times.Ended)},
	})
}

type pair struct {
	what      string
	want, got any
}

func same(t *testing.T, row string, pairs []pair) {
	for _, p := range pairs {
		if p.want != p.got {
			t.Errorf("%s: %s is %v, Armada has %v", row, p.what, p.got, p.want)
		}
	}
}
