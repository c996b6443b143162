package writer_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pb"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/rowtest"
)

// TestOracle plays each recording, with the decisions of forRecordings, into a
// database. In Passthrough the rows equal those of Armada's own ingester. In the other
// modes a decision explains each difference: the expected rows are Armada's, except for
// the columns in which a simple model of the same history with decisions (story, below)
// differs from the model without.
func TestOracle(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain", "chaos", "retried", "preempted"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := recorded(t, name, forRecordings)
			for mode, as := range map[writer.Mode]string{writer.Passthrough: "Passthrough", writer.HoldBack: "HoldBack", writer.Direct: "Direct"} {
				t.Run(as, func(t *testing.T) {
					want := rowtest.Oracle(t, filepath.Join(recordings, name+".rows.jsonl.gz"))
					changed := 0
					if mode != writer.Passthrough {
						changed = explain(t, want, read(t, h, writer.Passthrough), read(t, h, mode))
						if changed == 0 {
							t.Error("no decision changes anything")
						}
					}
					got := h.written(t, mode)
					if mode != writer.Passthrough {
						members := h.members(t)
						members.remove(want)
						members.remove(got)
					}
					n := rowtest.Compare(t, want, got)
					t.Logf("%d columns of Armada's changed by decisions; %d equal, %d more once decoded", changed, n.Same, n.Decoded)
				})
			}
		})
	}
}

// members are the jobs that groups restarted, stopped or held: story does not know groups.
// Every gang is one.
type members map[string]bool

func (h *tape) members(t *testing.T) members {
	t.Helper()
	m := members{}
	for p := range h.events.Partitions() {
		decided, err := sink.Fold(h.events, h.decisions, p, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range decided.GroupRecords {
			if strings.HasPrefix(r.Name, "Member") {
				m[r.JobID] = true
			}
		}
	}
	t.Logf("left out: %d members of groups", len(m))
	return m
}

func (m members) remove(rows rowtest.Rows) {
	for _, table := range rows {
		maps.DeleteFunc(table, func(key string, row rowtest.Row) bool {
			id, _ := row["job_id"].(string)
			return m[id] || m[key]
		})
	}
}

// written are Armada's tables after a tape, with the clock before all events.
func (h *tape) written(t *testing.T, mode writer.Mode) rowtest.Rows {
	t.Helper()
	url, conn := database(t)
	db, err := postgres.Open(t.Context(), url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	w, err := sink.New(sink.Config{
		Events: h.events, Decisions: h.decisions, DB: db, MaxRows: 500, Now: func() time.Time { return h.from },
		Mirror: func(partition int) sink.Mirror {
			return writer.New(writer.Config{Partition: partition, Mode: mode, Hooks: writer.Hooks{
				Unable: func(_ int, err error) { t.Error(err) },
				Parked: func(_ int, at eventlog.Position, f schedulerdb.Finding) { t.Errorf("%v: %v", at, f) },
			}})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for p := range h.events.Partitions() {
		for progress := true; progress; {
			if progress, err = w.Advance(context.Background(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return rowtest.Database(t, conn)
}

// story is a simple model of what a history does to jobs, one operation at a time:
//
//  1. An enforced JobRequeued queues the job, one version higher, after its whole
//     message was processed, with its requirements as submitted, one version higher, and
//     with these nodes avoided. HoldBack adds the selector until RetryAfter, if that is
//     later than the decision's time. Requirements that always were as submitted do not
//     change.
//  2. If the same message fails the job, the scheduler has failed it: HoldBack leaves
//     the job out of the queue until a later time, which does not come in this test.
//  3. While an enforced JobRequeued is effective for the latest run, Armada's JobErrors
//     do not fail the job. While any enforced decision is, Armada's JobRequeued has no
//     effect.
//  4. A lease ends that. If the job has a pending retry, the lease also takes it out of
//     the queue, whatever the version.
//  5. An enforced JobFailed fails the job in Direct. In HoldBack the scheduler does; it
//     sees a returned lease as a failed run. So it does in Direct.
//  6. An enforced JobRequeued ends the request to preempt its run.
//  7. Everything else is as in Armada, on the jobs in their current state: a job with a
//     retry has not ended, so it can be cancelled, and can get another priority.
type story struct {
	mode   writer.Mode
	jobs   map[string]*outcome
	shown  map[string]bool // runs that were returned, and are shown as failed
	leased map[string]bool // runs
	ended  map[string]bool // runs that are retried
}

type outcome struct {
	queue, set           string
	queued               bool
	version, infoVersion int32
	submitted, info      []byte
	priority             int64
	priorityBy           string
	asked, askedBySet    bool
	by, why              string
	failed, succeeded    bool
	cancelled            bool
	standing             *jobdb.Decision // enforced, on the latest run
	waits                bool
}

func (f *outcome) over() bool { return f.failed || f.succeeded || f.cancelled }

// read applies a tape to the story; in Passthrough, without decisions.
func read(t *testing.T, h *tape, mode writer.Mode) *story {
	t.Helper()
	s := &story{mode: mode, jobs: map[string]*outcome{}, shown: map[string]bool{}, leased: map[string]bool{}, ended: map[string]bool{}}
	for p := range h.events.Partitions() {
		decided, err := sink.Fold(h.events, h.decisions, p, 0)
		if err != nil {
			t.Fatal(err)
		}
		acted := map[eventlog.Position][]*jobdb.Decision{}
		for _, d := range decided.Decisions {
			if d.Acted && mode != writer.Passthrough {
				acted[d.Log] = append(acted[d.Log], d)
			}
		}
		r, err := h.events.Open(p, eventlog.Start)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		c, messages := schedulerdb.NewConverter(), make([]eventlog.Message, 100)
		for {
			n, err := r.Read(messages)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			for i := range messages[:n] {
				effects, _ := c.Convert(&messages[i], nil)
				s.message(t, effects, acted[messages[i].Position])
			}
		}
	}
	return s
}

func (s *story) message(t *testing.T, effects []schedulerdb.Effect, decisions []*jobdb.Decision) {
	t.Helper()
	for _, d := range decisions {
		s.jobs[d.JobID].standing = d
	}
	failed := map[string]bool{} // jobs that Armada failed
	for _, e := range effects {
		if o, ok := e.Op.(*schedulerdb.FailJob); ok {
			failed[o.JobID] = true
		}
		s.op(e.Op, decisions)
	}
	for _, d := range decisions {
		f := s.jobs[d.JobID]
		if d.Requeue && !f.over() {
			s.ended[d.RunID] = true
		}
		switch {
		case f.over():
		case !d.Requeue:
			f.failed = s.mode == writer.Direct
		case s.mode == writer.HoldBack && failed[d.JobID]:
			f.waits = true
		default:
			f.waits = s.mode == writer.HoldBack && d.RetryAfter > d.Time
			f.queued, f.version = true, f.version+1
			f.require(t, d.AvoidNodes, f.waits)
		}
	}
}

func (s *story) op(op schedulerdb.Op, decisions []*jobdb.Decision) {
	none := &outcome{}
	job := func(id string) *outcome {
		if f := s.jobs[id]; f != nil {
			return f
		}
		return none
	}
	each := func(queue, set string, do func(f *outcome)) {
		for _, f := range s.jobs {
			if f.queue == queue && f.set == set && !f.over() {
				do(f)
			}
		}
	}
	switch o := op.(type) {
	case *schedulerdb.InsertJob:
		s.jobs[o.JobID] = &outcome{queue: o.Queue, set: o.JobSet, queued: true, submitted: o.SchedulingInfo, info: o.SchedulingInfo, priority: o.Priority}
	case *schedulerdb.InsertRun:
		if f := job(o.JobID); !s.leased[o.RunID] {
			s.leased[o.RunID], f.standing = true, nil
		}
	case *schedulerdb.SetQueued:
		f := job(o.JobID)
		if o.Queued && f.standing != nil {
			return
		}
		version := o.Version
		if !o.Queued {
			if f.waits && f.queued {
				version = max(version, f.version+1)
			}
			f.waits = false
		}
		if version > f.version {
			f.queued, f.version = o.Queued, version
		}
	case *schedulerdb.SetSchedulingInfo:
		if f := job(o.JobID); f.standing == nil && o.Version > f.infoVersion {
			f.info, f.infoVersion = o.Info, o.Version
		}
	case *schedulerdb.SetPriority:
		if f := job(o.JobID); f.queue == o.Queue && f.set == o.JobSet && !f.over() {
			f.priority, f.priorityBy = o.Priority, o.User
		}
	case *schedulerdb.SetSetPriority:
		each(o.Queue, o.JobSet, func(f *outcome) { f.priority, f.priorityBy = o.Priority, o.User })
	case *schedulerdb.RequestCancel:
		if f := job(o.JobID); f.queue == o.Queue && f.set == o.JobSet && !f.over() {
			f.asked, f.by, f.why = true, o.User, o.Reason
		}
	case *schedulerdb.RequestSetCancel:
		each(o.Queue, o.JobSet, func(f *outcome) {
			if f.queued && o.Queued || !f.queued && o.Leased {
				f.askedBySet, f.by, f.why = true, o.User, o.Reason
			}
		})
	case *schedulerdb.SucceedJob:
		job(o.JobID).succeeded = true
	case *schedulerdb.CancelJob:
		job(o.JobID).cancelled = true
	case *schedulerdb.FailJob:
		if f := job(o.JobID); f.standing == nil || !f.standing.Requeue || f.over() {
			f.failed = true
		}
	case *schedulerdb.FailRun:
		for _, d := range decisions {
			if d.RunID == o.RunID && !d.Requeue && o.Returned {
				s.shown[o.RunID] = true
			}
		}
	}
}

// require rewrites the requirements.
func (f *outcome) require(t *testing.T, avoid []string, waits bool) {
	t.Helper()
	if !waits && len(avoid) == 0 && f.infoVersion == 0 {
		return
	}
	var info pb.JobSchedulingInfo
	if err := proto.Unmarshal(f.submitted, &info); err != nil {
		t.Fatal(err)
	}
	pod := info.ObjectRequirements[0].GetPodRequirements()
	if waits {
		if pod.NodeSelector == nil {
			pod.NodeSelector = map[string]string{}
		}
		pod.NodeSelector["refloat.github.io/waits-for-its-retry-time"] = "true"
	}
	if len(avoid) > 0 {
		if pod.GetAffinity() != nil {
			t.Fatal("no job of the recordings has an affinity of its own")
		}
		pod.Affinity = &pb.Affinity{NodeAffinity: &pb.NodeAffinity{Required: &pb.NodeSelector{Terms: []*pb.NodeSelectorTerm{{
			MatchExpressions: []*pb.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: "NotIn", Values: avoid}},
		}}}}}
	}
	f.infoVersion++
	info.Version = uint32(f.infoVersion)
	var err error
	if f.info, err = proto.Marshal(&info); err != nil {
		t.Fatal(err)
	}
}

// row is an outcome in the oracle's form.
func (f *outcome) row() rowtest.Row {
	text := func(s string) any {
		if s == "" {
			return nil // never said
		}
		return s
	}
	number := func(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }
	return rowtest.Row{
		"queued": f.queued, "queued_version": number(int64(f.version)),
		"scheduling_info": base64.StdEncoding.EncodeToString(f.info), "scheduling_info_version": number(int64(f.infoVersion)),
		"priority": number(f.priority), "reprioritise_user": text(f.priorityBy),
		"cancel_requested": f.asked, "cancel_by_jobset_requested": f.askedBySet, "cancel_user": text(f.by), "cancel_reason": text(f.why),
		"failed": f.failed, "succeeded": f.succeeded, "cancelled": f.cancelled, "terminated": f.over(),
	}
}

// explain applies the changes of decisions to Armada's rows, and counts the columns.
func explain(t *testing.T, rows rowtest.Rows, without, with *story) (changed int) {
	t.Helper()
	for id, f := range with.jobs {
		before := without.jobs[id].row()
		for column, value := range f.row() {
			if !cmp.Equal(before[column], value) {
				rows["jobs"][id][column] = value
				changed++
			}
		}
	}
	for run := range with.shown {
		rows["runs"][run]["returned"], rows["runs"][run]["run_attempted"] = false, true
		changed += 2
	}
	for run := range with.ended {
		if rows["runs"][run]["preempt_requested"] == true {
			rows["runs"][run]["preempt_requested"] = false
			changed++
		}
	}
	return changed
}
