package cutover_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/armada/cutover"
	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/doctor"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

// TestThereAndBack: Armada's ingester runs for a while, then ours, then Armada's again
// to the end. The tables equal those of an undisturbed Armada.
func TestThereAndBack(t *testing.T) {
	for _, c := range []struct {
		recording string
		batch     uint
	}{{"plain", 7}, {"chaos", 3}, {"preempted", 1}} {
		t.Run(c.recording, func(t *testing.T) { thereAndBack(t, c.recording, c.batch) })
	}
}

func thereAndBack(t *testing.T, name string, batch uint) {
	w := newWorld(t, 3)
	w.publish(readRecording(t, name), batch)
	undisturbed := armadaDB(t)
	var half, three, end []eventlog.Position
	var next []eventlog.Position // after three
	var middle []eventlog.Position
	for p := range 3 {
		all := w.positions(p)
		if len(all) == 0 { // no messages, now or later
			w.subscribe(w.events.PartitionName(p), subscription).Close()
			half, three, end, next, middle = append(half, eventlog.Start), append(three, eventlog.Start), append(end, eventlog.Start), append(next, eventlog.Start), append(middle, eventlog.Start)
			continue
		}
		h, q := entryEnd(all, len(all)/2), entryEnd(all, 3*len(all)/4)
		half, three, end, next = append(half, all[h]), append(three, all[q]), append(end, all[len(all)-1]), append(next, all[q+1])
		middle = append(middle, all[q-1])
		if q <= h+1 || q+1 >= len(all) {
			t.Fatalf("partition %d has %d messages", p, len(all))
		}
		w.armadaIngests("undisturbed", undisturbed, p, end[p])
		w.armadaIngests(subscription, w.JobDB, p, half[p])
	}

	// A rehearsal writes nothing.
	rehearsed, err := w.Start(t.Context(), true)
	w.must(err)
	if rehearsed.Database.Ours || len(rehearsed.Steps) != 4 || rehearsed.Partitions[1].Applied.At != half[1] {
		t.Fatalf("rehearsed: %+v, half %v", rehearsed, half)
	}
	if state, err := w.Inspect(t.Context()); err != nil || state.Database.Ours {
		t.Fatalf("the rehearsal made tables; %v", err)
	}
	before := rows(t, w.JobDB)
	_, err = w.Start(t.Context(), false)
	w.must(err)
	again, err := w.Start(t.Context(), false)
	refused(t, again, err, "already has a position")

	if n := w.count("SELECT count(*) FROM refloat_mirror WHERE since = '" + half[1].String() + "' AND partition = 1"); n != 1 {
		t.Error("the mirror does not begin where ours does")
	}
	r := w.refloat(writer.Passthrough)
	r.ingestTo(half)
	equalRows(t, before, rows(t, w.JobDB)) // what Armada applied is not applied again
	if superseded := w.count("SELECT count(*) FROM refloat_decisions WHERE NOT superseded"); superseded != 0 {
		t.Errorf("%d decisions on what was taken in before are not superseded", superseded)
	}
	if batch > 1 {
		r.ingestTo(middle)
		report, err := w.Back(t.Context(), false)
		if err == nil || !strings.Contains(report.Findings[0].What, "in the middle of a batch") {
			t.Fatalf("in the middle of a batch: %v, %+v", err, report)
		}
	}
	r.ingestTo(three)
	rehearsal, err := w.Back(t.Context(), true)
	w.must(err)
	if s := rehearsal.Steps; len(s) != 5 || s[4].Done || !s[0].Done || s[1].Done != (half[0] == three[0]) || half[0] != three[0] && !strings.Contains(s[1].What, three[0].String()) {
		t.Errorf("rehearsed: %+v", s)
	}
	if state, err := w.Inspect(t.Context()); err != nil || state.Partitions[2].Applied.At != half[2] {
		t.Fatalf("the rehearsal moved a cursor; %v", err)
	}
	_, err = w.Back(t.Context(), false)
	w.must(err)
	w.allDone("run again", "move subscription")
	for p := range 3 {
		if end[p] == eventlog.Start {
			continue
		}
		if first := w.armadaIngests(subscription, w.JobDB, p, end[p]); first != next[p] {
			t.Errorf("partition %d: Armada's ingester goes on with %v, want %v", p, first, next[p])
		}
	}
	w.allDone("run when Armada's ingester has gone on", "subscription")
	equalRows(t, rows(t, undisturbed), rows(t, w.JobDB))

	// Ours does not resume by accident; it starts over at Armada's position.
	if _, err := r.db.Begin(t.Context(), 1); !errors.Is(err, jobdb.ErrRolledBack) || !strings.Contains(err.Error(), "refloatctl cutover start") {
		t.Errorf("begin after it was given back: %v", err)
	}
	decisions := w.count("SELECT count(*) FROM refloat_decisions")
	report, err := w.Start(t.Context(), true)
	w.must(err)
	if s := report.Steps; len(s) != 5 || !strings.Contains(s[1].What, "empty them") || w.count("SELECT count(*) FROM refloat_decisions") != decisions {
		t.Errorf("rehearsed: %+v", s)
	}
	_, err = w.Start(t.Context(), false)
	w.must(err)
	if n := w.count("SELECT count(*) FROM refloat_decisions"); n != 0 {
		t.Errorf("%d decisions are left of %d", n, decisions)
	}
	again, err = w.Start(t.Context(), false)
	refused(t, again, err, "already has a position")
	anew := w.refloat(writer.Passthrough)
	anew.ingestTo(end)
	equalRows(t, rows(t, undisturbed), rows(t, w.JobDB))
}

// TestGivenBackHalfway: a cursor that was not moved must be moved before ours may start
// over.
func TestGivenBackHalfway(t *testing.T) {
	w := newWorld(t, 1)
	entries := readRecording(t, "preempted")
	for i := range entries {
		entries[i].Partition = 0
	}
	w.publish(entries, 1)
	all := w.positions(0)
	w.armadaIngests(subscription, w.JobDB, 0, all[10])
	_, err := w.Start(t.Context(), false)
	w.must(err)
	w.refloat(writer.Passthrough).ingestTo(all[20:21])
	_, err = connect(t, w.JobDB).Exec(t.Context(), "UPDATE refloat_positions SET given_back = 1")
	w.must(err)
	r, err := w.Start(t.Context(), false)
	refused(t, r, err, "a roll-back began at 1970-01-01T00:00:00Z and did not finish")
	_, err = w.Back(t.Context(), false)
	w.must(err)
	w.allDone("again", "move subscription")
	r, err = w.Start(t.Context(), false)
	w.must(err)
	if got := r.Partitions[0].Applied.At; got != all[20] {
		t.Errorf("ours begins anew behind %v, want %v", got, all[20])
	}
}

// lastOf returns the last message of a partition among the first n entries.
func (w *world) lastOf(p, n int, entries []recording.Entry) eventlog.Position {
	w.Helper()
	last := -1
	for _, e := range entries[:n] {
		if e.Partition == p {
			last++
		}
	}
	return w.positions(p)[last]
}

// unload gives each partition a new ledger.
func (w *world) unload() error { return pulsartest.Shared(w.T).Unload(w.events.Name()) }

func (w *world) count(query string) (n int) {
	w.Helper()
	w.must(connect(w.T, w.JobDB).QueryRow(w.Context(), query).Scan(&n))
	return n
}

func (w *world) allDone(what, want string) {
	w.Helper()
	report, err := w.Back(w.Context(), false)
	w.must(err)
	for i, s := range report.Steps {
		if !s.Done || i > 0 && i < len(report.Steps)-1 && !strings.Contains(s.What, want) {
			w.Errorf("%s: %+v", what, s)
		}
	}
}

// TestEdges: cursors at the beginning, at the end, and of topics with a new ledger
// after an unload.
func TestEdges(t *testing.T) {
	w := newWorld(t, 3)
	entries := readRecording(t, "chaos")
	for p := range 3 { // a subscription without any reads
		w.subscribe(w.events.PartitionName(p), subscription).Close()
	}
	w.publish(entries[:200], 5)
	all := w.positions(1)
	w.armadaIngests(subscription, w.JobDB, 1, all[len(all)-1]) // partition 1 is at the end, and in a full ledger
	w.must(w.unload())
	w.publish(entries[200:400], 5)
	all = w.positions(2)
	w.armadaIngests(subscription, w.JobDB, 2, all[len(all)-1]) // partition 2 is at the end
	at := []eventlog.Position{eventlog.Start, w.lastOf(1, 200, entries), all[len(all)-1]}

	report, err := w.Start(t.Context(), false)
	w.must(err)
	for p := range at {
		if got := report.Partitions[p].Applied.At; got != at[p] {
			t.Errorf("partition %d: Armada stands at %v, want %v", p, got, at[p])
		}
	}
	// Ours applied nothing: all positions stay.
	report, err = w.Back(t.Context(), true)
	w.must(err)
	for i, s := range report.Steps[:4] {
		if !s.Done || i > 0 && !strings.Contains(s.What, "move subscription") {
			t.Errorf("at once: %+v", s)
		}
	}
	r := w.refloat(writer.Passthrough)
	var end []eventlog.Position
	for p := range 3 {
		at, err := w.events.End(p)
		w.must(err)
		end = append(end, at)
	}
	r.ingestTo(end)
	if n := w.count("SELECT count(*) FROM refloat_releases WHERE messages = 0 AND seq = 0"); n != 2 {
		t.Errorf("%d releases, want 2", n)
	}
	_, err = w.Back(t.Context(), false)
	w.must(err)
	state, err := w.Inspect(t.Context())
	w.must(err)
	for p := range end {
		if got := state.Partitions[p]; got.Applied.At != end[p] || got.Cursor.Backlog != 0 {
			t.Errorf("partition %d: Armada stands at %+v, want %v", p, got, end[p])
		}
	}
	w.publish(entries[400:], 5)
	for p := range 3 {
		all := w.positions(p)
		first := w.armadaIngests(subscription, w.JobDB, p, all[len(all)-1])
		for i := range all[:len(all)-1] {
			if all[i] == end[p] && first != all[i+1] {
				t.Errorf("partition %d: Armada's ingester goes on with %v, want %v", p, first, all[i+1])
			}
		}
	}
	undisturbed := armadaDB(t)
	for p := range 3 {
		all := w.positions(p)
		w.armadaIngests("undisturbed", undisturbed, p, all[len(all)-1])
	}
	equalRows(t, rows(t, undisturbed), rows(t, w.JobDB))
}

// TestRefused: everything that prevents Start or Back.
func TestRefused(t *testing.T) {
	w := newWorld(t, 1)
	entries := readRecording(t, "preempted")
	for i := range entries {
		entries[i].Partition = 0
	}
	start := func(want ...string) {
		t.Helper()
		r, err := w.Start(t.Context(), false)
		refused(t, r, err, want...)
		if r.Database.Ours {
			t.Error("there are tables of ours")
		}
	}
	back := func(want ...string) {
		t.Helper()
		r, err := w.Back(t.Context(), false)
		refused(t, r, err, want...)
	}
	w.publish(entries[:40], 4)
	start("there is no subscription scheduler-ingester")
	all := w.positions(0)
	w.armadaIngests(subscription, w.JobDB, 0, all[entryEnd(all, 19)])
	back("our ingester has no position in it")

	// Armada's ingester is connected.
	consumer := w.subscribe(w.events.PartitionName(0), subscription)
	start("subscription scheduler-ingester has 1 consumer: ")
	// It acknowledges one message of a batch, which the client does not send to the
	// broker, and the next batch.
	for range 8 {
		m, err := consumer.Receive(t.Context())
		w.must(err)
		if i := m.ID().EntryID(); i == all[entryEnd(all, 19)].Entry+2 || m.ID().BatchIdx() == 0 {
			w.must(consumer.AckID(m.ID()))
		}
	}
	consumer.Close()
	start("has acknowledged messages ahead of its position")
	consumer = w.subscribe(w.events.PartitionName(0), subscription)
	for range 4 {
		m, err := consumer.Receive(t.Context())
		w.must(err)
		w.must(consumer.AckID(m.ID()))
	}
	consumer.Close()

	// The tables have an unknown version.
	conn := connect(t, w.JobDB)
	_, err := conn.Exec(t.Context(), "SELECT setval('database_version', 40)")
	w.must(err)
	start("run Armada's migrations")
	_, err = conn.Exec(t.Context(), "SELECT setval('database_version', 41)")
	w.must(err)

	report, err := w.Start(t.Context(), false)
	w.must(err)
	if got, want := report.Partitions[0].Applied.At, all[entryEnd(all, 19)+8]; got != want {
		t.Errorf("Armada stands at %v, want %v", got, want)
	}
	w.refloat(writer.HoldBack).ingestTo([]eventlog.Position{all[len(all)-1]})

	decisions, err := w.cluster.Open("decisions")
	w.must(err)
	ours := w.subscribe(decisions.PartitionName(0), doctor.IngesterSubscription)
	back("our ingester is connected")
	ours.Close()
	consumer = w.subscribe(w.events.PartitionName(0), subscription)
	back("subscription scheduler-ingester has 1 consumer: ")
	consumer.Close()

	// A pending retry is ended by back.
	var job string
	var version int
	w.must(conn.QueryRow(t.Context(), "SELECT job_id, scheduling_info_version FROM jobs WHERE NOT terminated ORDER BY 1 LIMIT 1").Scan(&job, &version))
	_, err = conn.Exec(t.Context(), `INSERT INTO refloat_waits (partition, job_id, run_id, number, policy, retry_after, avoid, copied, forgetting, waiting, raises, raise_at, due)
		VALUES (0, $1, 'r', 1, 'p', 4102444800000000000, '{node-1}', false, false, true, 0, 0, 4102444800000000000)`, job)
	w.must(err)
	late := w.publishLateCopy(job)
	report, err = w.Back(t.Context(), false)
	w.must(err)
	if n := w.count(fmt.Sprintf("SELECT scheduling_info_version FROM jobs WHERE job_id = '%s'", late)); n != 10 {
		t.Errorf("version %d of the requirements of a job with a late copy, want 10", n)
	}
	if s := report.Steps[0]; s.Done || !strings.Contains(s.What, "end 1 pending retry,") {
		t.Errorf("step %+v", s)
	}
	if n := w.count("SELECT count(*) FROM refloat_waits"); n != 0 {
		t.Errorf("%d jobs wait", n)
	}
	if n := w.count(fmt.Sprintf("SELECT scheduling_info_version FROM jobs WHERE job_id = '%s'", job)); n != version+2 { // above a copy that was not committed
		t.Errorf("version %d of the requirements, want %d", n, version+2)
	}
	w.allDone("again", "move subscription")

	other := w.Site
	other.JobDB = "sqlite:///x"
	if _, err := other.Inspect(t.Context()); err == nil || !strings.Contains(err.Error(), "postgres://") {
		t.Errorf("SQLite: %v", err)
	}
}

// publishLateCopy publishes a copy of an uncommitted requeue, with waiting requirements
// of version 9, for another job. It returns that job.
func (w *world) publishLateCopy(not string) (job string) {
	w.Helper()
	var queue, set string
	var info []byte
	const query = "SELECT job_id, queue, job_set, scheduling_info FROM jobs WHERE NOT terminated AND job_id <> $1 LIMIT 1"
	w.must(connect(w.T, w.JobDB).QueryRow(w.Context(), query, not).Scan(&job, &queue, &set, &info))
	info, err := schedulerdb.Requirements(info, schedulerdb.Placement{Waiting: true, Version: 9})
	w.must(err)
	payload, err := proto.Marshal(&pb.EventSequence{Queue: queue, JobSetName: set, Events: []*pb.Event{
		{Event: &pb.Event_JobRequeued{JobRequeued: &pb.JobRequeued{JobId: job, UpdateSequenceNumber: 9, SchedulingInfo: info}}},
	}})
	w.must(err)
	w.publish([]recording.Entry{{Message: eventlog.Message{
		Key: set, Payload: payload, Properties: []eventlog.Property{{Key: sink.CopyProperty, Value: "1"}},
	}}}, 1)
	return job
}

// TestTrimmed: unfinished jobs whose SubmitJob has expired are counted, and ours starts
// at the beginning of the topic.
func TestTrimmed(t *testing.T) {
	w := newWorld(t, 3)
	entries := readRecording(t, "chaos")
	undisturbed := armadaDB(t)
	ingest := func(name, url string) (end []eventlog.Position) {
		for p := range 3 {
			at, err := w.events.End(p)
			w.must(err)
			w.armadaIngests(name, url, p, at)
			end = append(end, at)
		}
		return end
	}
	w.publish(entries[:300], 5)
	ingest("undisturbed", undisturbed)
	ingest(subscription, w.JobDB)
	live := w.count("SELECT count(*) FROM jobs WHERE NOT terminated")
	w.truncate()

	// The topic is empty, then has a new message.
	report, err := w.Start(t.Context(), true)
	if err != nil {
		t.Fatalf("%v: %+v %+v", err, report.Findings, report.Partitions)
	}
	if r := report; live == 0 || r.Database.Live != int64(live) || older(r) != int64(live) || r.Partitions[0].Whole || r.Partitions[0].First != 0 || r.Partitions[0].Applied.At.Entry != -1 || r.Partitions[0].Applied.At == eventlog.Start {
		t.Errorf("with nothing left: %+v, want %d live jobs", r.State, live)
	}
	w.publish(entries[300:], 5)
	end := ingest("undisturbed", undisturbed)
	report, err = w.Start(t.Context(), false)
	w.must(err)
	if n := older(report); n != int64(live) || !strings.Contains(fmt.Sprint(report.Findings), fmt.Sprintf("%d of %d unfinished jobs", live, live)) {
		t.Errorf("%d older jobs, want %d; findings %+v", n, live, report.Findings)
	}
	for _, p := range report.Partitions {
		if !strings.Contains(fmt.Sprint(report.Findings), "no longer holds position "+p.Cursor.MarkDelete) != !p.Applied.Deleted {
			t.Errorf("partition %d: findings %+v", p.Number, report.Findings)
		}
		if p.Whole || p.First == 0 || p.Applied.At == eventlog.Start || p.Applied.At.Batch != -1 {
			t.Errorf("partition %d: %+v", p.Number, p)
		}
	}
	r := w.refloat(writer.Passthrough)
	r.ingestTo(end)
	_, err = w.Back(t.Context(), false)
	w.must(err)
	equalRows(t, rows(t, undisturbed), rows(t, w.JobDB))
}

func older(r *cutover.Report) (n int64) {
	for _, p := range r.Partitions {
		n += p.Older
	}
	return n
}

// truncate deletes the topic's messages, including the trace that they existed.
func (w *world) truncate() {
	w.Helper()
	for p := range w.events.Partitions() {
		w.must(pulsartest.Shared(w.T).Truncate(w.events.PartitionName(p)))
	}
	w.must(w.events.Close())
	var err error
	w.events, err = w.cluster.Open("events")
	w.must(err)
}
