package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/model"
	"github.com/refloat/refloat/internal/test/modelrecord"
)

// This file reads logs without the code under test, as far as there is another
// way: protobuf-go for envelopes and events, and protocol.md 1 to 3 in one plain loop.

// chained is what the accepted envelopes of a partition hold.
type chained struct {
	records     []model.Record
	activations []activated
	envelopes   int
	claims      int
	ignored     int
	answered    uint64 // messages
}

// activated is a policy generation, or a version of the semantics, in force from before a
// message on.
type activated struct {
	before     uint64 // index of the message
	semantics  uint32 // 0: a generation
	generation uint64
	digest     []byte
}

func readAll(t *testing.T, topic eventlog.Topic, p int) []eventlog.Message {
	t.Helper()
	r, err := topic.Open(p, eventlog.Start)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []eventlog.Message
	chunk := make([]eventlog.Message, 256)
	for {
		n, err := r.Read(chunk)
		if err != nil {
			t.Fatalf("partition %d: %v", p, err)
		}
		if n == 0 {
			return all
		}
		all = append(all, chunk[:n]...)
	}
}

// scan reads a partition's decision log and checks that its envelopes follow
// one another and answer each message of the input once, in order.
func scan(t *testing.T, input, decisions []eventlog.Message) chained {
	t.Helper()
	var c chained
	var seq, epoch uint64
	link, owner := make([]byte, 32), []byte(nil)
	var inTo *pb.Position
	for _, m := range decisions {
		var e pb.Envelope
		if err := proto.Unmarshal(m.Payload, &e); err != nil {
			t.Fatalf("decision log at %v: %v", m.Position, err)
		}
		records := make([]*pb.Record, len(e.Records))
		for i, b := range e.Records {
			records[i] = &pb.Record{}
			if err := proto.Unmarshal(b, records[i]); err != nil {
				t.Fatalf("decision log at %v: record %d: %v", m.Position, i, err)
			}
		}
		claim := (*pb.OwnerClaim)(nil)
		if len(records) == 1 {
			claim = records[0].GetOwnerClaim()
		}
		fits := e.Seq == seq+1 && bytes.Equal(e.Link, link) && proto.Equal(e.InFrom, inTo)
		if claim != nil {
			fits = fits && claim.Epoch == epoch+1 && claim.LastSeq == seq && bytes.Equal(claim.LastLink, link)
		} else {
			fits = fits && e.Epoch == epoch && bytes.Equal(e.Owner, owner)
		}
		if !fits {
			c.ignored++
			continue
		}
		if claim != nil {
			c.claims++
		}
		hash := sha256.Sum256(m.Payload)
		seq, epoch, link, owner, inTo = e.Seq, e.Epoch, hash[:], e.Owner, e.InTo
		c.take(t, e.Records)
		c.envelopes, c.answered = c.envelopes+1, c.answered+e.InCount
		if c.answered > 0 {
			if c.answered > uint64(len(input)) {
				t.Fatalf("envelope %d answers %d messages of %d", seq, c.answered, len(input))
			}
			if at := input[c.answered-1].Position; pos(inTo) != at {
				t.Fatalf("envelope %d answers up to %v, message %d stands at %v", seq, pos(inTo), c.answered-1, at)
			}
		}
	}
	return c
}

func pos(p *pb.Position) eventlog.Position {
	if p == nil {
		return eventlog.Start
	}
	return eventlog.Position{Ledger: p.Ledger, Entry: p.Entry, Batch: p.Batch}
}

func (c *chained) take(t *testing.T, records [][]byte) {
	t.Helper()
	for _, b := range records {
		r, err := chain.DecodeRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		switch r := r.(type) {
		case *chain.PolicyActivated:
			c.activations = append(c.activations, activated{before: c.answered, generation: r.Generation, digest: r.Digest[:]})
		case *chain.SemanticsActivated:
			c.activations = append(c.activations, activated{before: c.answered, semantics: r.Version})
		default:
			if r.FromInput() && modelrecord.Has(r) {
				c.records = append(c.records, modelrecord.Of(r))
			}
		}
	}
}

// modelled is what the naive model says of the messages, under the generations
// that were in force.
func modelled(t *testing.T, messages []model.Message, activations []activated, sets map[string]model.Policies) []model.Record {
	t.Helper()
	m := model.New(model.Policies{})
	var out []model.Record
	for i, msg := range messages {
		for len(activations) > 0 && activations[0].before == uint64(i) {
			a := activations[0]
			activations = activations[1:]
			if a.semantics != 0 {
				m.UseVersion(int(a.semantics))
				continue
			}
			p, ok := sets[string(a.digest)]
			if !ok {
				t.Fatalf("generation %d has digest %x, which nobody wrote", a.generation, a.digest)
			}
			m.Use(p)
		}
		records := m.Step(msg)
		modelrecord.Normalize(records)
		out = append(out, records...)
	}
	return out
}

// compareRecords compares the log with the model, number for number.
func compareRecords(t *testing.T, p int, want, got []model.Record) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) {
			t.Errorf("partition %d: the log has %d records, the model %d", p, len(got), len(want))
			return
		}
		w, g := want[i], got[i]
		if !reflect.DeepEqual(w, g) {
			t.Errorf("partition %d: record %d of %d (-model +log):\n%s", p, i, len(want), cmp.Diff(w, g))
			return
		}
	}
}

// runKey identifies a run.
type runKey struct{ job, run string }

// failedRuns are the runs of wanted jobs that ended by a failure, read from the
// messages by protobuf-go and nothing else.
func failedRuns(messages []eventlog.Message, wanted func(job string) bool) map[runKey]bool {
	ended, failed := map[runKey]bool{}, map[runKey]bool{}
	end := func(job, run string, failure bool) {
		k := runKey{job, run}
		if !wanted(job) || ended[k] {
			return
		}
		ended[k] = true
		if failure {
			failed[k] = true
		}
	}
	for _, m := range messages {
		var seq pb.EventSequence
		if proto.Unmarshal(m.Payload, &seq) != nil {
			continue
		}
		for _, ev := range seq.Events {
			switch e := ev.Event.(type) {
			case *pb.Event_JobRunSucceeded:
				end(e.JobRunSucceeded.JobId, e.JobRunSucceeded.RunId, false)
			case *pb.Event_JobRunPreempted:
				end(e.JobRunPreempted.PreemptedJobId, e.JobRunPreempted.PreemptedRunId, true)
			case *pb.Event_JobRunErrors:
				if slices.ContainsFunc(e.JobRunErrors.Errors, func(x *pb.Error) bool { return x.Terminal }) {
					end(e.JobRunErrors.JobId, e.JobRunErrors.RunId, true)
				}
			}
		}
	}
	return failed
}

// oneRecordEach checks that each failed run has exactly one record, and no
// other run has any.
func oneRecordEach(t *testing.T, p int, failed map[runKey]bool, records []model.Record, wanted func(job string) bool) {
	t.Helper()
	count := map[runKey]int{}
	for _, r := range records {
		if r.Kind == model.JobRequeued || r.Kind == model.JobFailed || r.Kind == model.NotDecided {
			if wanted(r.JobID) {
				count[runKey{r.JobID, r.RunID}]++
			}
		}
	}
	for k := range failed {
		if count[k] != 1 {
			t.Errorf("partition %d: run %s of job %s failed and has %d records", p, k.run, k.job, count[k])
		}
	}
	for k := range maps.Keys(count) {
		if !failed[k] {
			t.Errorf("partition %d: run %s of job %s did not fail and has %d records", p, k.run, k.job, count[k])
		}
	}
}

// rowsFollow checks that the job database is what the logs demand at its positions.
func rowsFollow(t *testing.T, data string) {
	t.Helper()
	logs, err := app.Dir(data).OpenLogs(0, app.Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	for p := range logs.Events.Partitions() {
		got := contents(t, data, p)
		if got.Positions.Chain.Seq == 0 {
			if got.Rows() > 0 {
				t.Errorf("partition %d: rows, but no positions", p)
			}
			continue
		}
		want, err := sink.Fold(logs.Events, logs.Decisions, p, got.Positions.Chain.Seq)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range sink.Compare(want, got) {
			if i == 20 {
				t.Errorf("… and more")
				break
			}
			t.Errorf("partition %d: %v", p, d)
		}
	}
}

// rowsComplete checks that the job database answers all events.
func rowsComplete(t *testing.T, data string) {
	t.Helper()
	for p, end := range ends(t, data) {
		if got := contents(t, data, p).Positions.Chain.InTo; got != end {
			t.Errorf("partition %d: the job database answers up to %v, the events end at %v", p, got, end)
		}
	}
}

// answered waits until the job database of a running up answers all events.
func answered(t *testing.T, data string) {
	t.Helper()
	for p, end := range ends(t, data) {
		until(t, "all events are answered", func() bool { return contents(t, data, p).Positions.Chain.InTo == end })
	}
}

// ends are the ends of the events, by partition.
func ends(t *testing.T, data string) []eventlog.Position {
	t.Helper()
	logs, err := app.Dir(data).OpenLogs(0, app.Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	all := make([]eventlog.Position, logs.Events.Partitions())
	for p := range all {
		all[p], err = logs.Events.End(p)
		must(t, err)
	}
	return all
}

func contents(t *testing.T, data string, p int) *jobdb.Contents {
	t.Helper()
	r, err := sqlite.OpenReader(context.Background(), app.Dir(data).JobDB())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all *jobdb.Contents
	err = r.View(context.Background(), func(q jobdb.Queries) error {
		all, err = q.Contents(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// followed checks everything that must hold of a drained data directory whose
// events are these, under policy sets by their digest, and counts its records.
func followed(t *testing.T, data string, messages [partitions][]model.Message, sets map[string]model.Policies, once func(job string) bool) totals {
	t.Helper()
	logs, err := app.Dir(data).OpenLogs(0, app.Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	sum := totals{kinds: map[model.Kind]int{}}
	for p := range logs.Events.Partitions() {
		input := readAll(t, logs.Events, p)
		sameInput(t, p, messages[p], input)
		c := scan(t, input, readAll(t, logs.Decisions, p))
		if c.answered != uint64(len(input)) {
			t.Errorf("partition %d: %d of %d messages are answered", p, c.answered, len(input))
		}
		compareRecords(t, p, modelled(t, messages[p], c.activations, sets), c.records)
		failed := failedRuns(input, once)
		oneRecordEach(t, p, failed, c.records, once)
		sum.add(c, len(failed))
	}
	rowsFollow(t, data)
	rowsComplete(t, data)
	return sum
}

// totals count over partitions.
type totals struct {
	kinds                                           map[model.Kind]int
	envelopes, claims, ignored, activations, failed int
	messages                                        uint64
}

func (s *totals) add(c chained, failed int) {
	for _, r := range c.records {
		s.kinds[r.Kind]++
	}
	s.envelopes, s.claims, s.ignored, s.messages = s.envelopes+c.envelopes, s.claims+c.claims, s.ignored+c.ignored, s.messages+c.answered
	s.activations, s.failed = s.activations+len(c.activations), s.failed+failed
}

// sameInput checks that the log holds what was fed, each message once.
func sameInput(t *testing.T, p int, want []model.Message, got []eventlog.Message) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("partition %d: %d messages in the log, %d were fed", p, len(got), len(want))
	}
	for i := range min(len(want), len(got)) {
		sameMessage(t, p, i, &want[i], &got[i])
	}
}

func sameMessage(t *testing.T, p, i int, want *model.Message, got *eventlog.Message) {
	t.Helper()
	o := got.Origin
	position := eventlog.Position{Ledger: want.Ledger, Entry: want.Entry, Batch: want.Batch}
	if o.Position != position || o.Publish != want.Publish || !bytes.Equal(got.Payload, want.Payload) {
		t.Fatalf("partition %d: message %d is %v of %s, published %d, %d bytes; want %v, published %d, %d bytes",
			p, i, o.Position, o.Recording, o.Publish, len(got.Payload), position, want.Publish, len(want.Payload))
	}
}
