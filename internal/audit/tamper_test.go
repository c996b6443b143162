package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/test/model"
)

// place is a record of a world.
type place struct{ envelope, record int }

// records lists the records from input that a test asks for.
func (w *world) records(want func(chain.Record) bool) (found []place) {
	for i, e := range w.envelopes {
		for k, raw := range e.Records {
			if r, err := chain.DecodeRecord(raw); err == nil && r.FromInput() && want(r) {
				found = append(found, place{i, k})
			}
		}
	}
	return found
}

func isDecision(r chain.Record) bool { _, ok := r.(*chain.Decision); return ok }
func isNotDecided(r chain.Record) bool {
	_, ok := r.(*chain.NotDecided)
	return ok
}
func isAny(chain.Record) bool { return true }

// middle is one of the places, neither the first nor the last one.
func middle(places []place) place {
	if len(places) < 3 {
		panic("the history has too few such records")
	}
	return places[len(places)/2]
}

// together are two records of one envelope.
func (w *world) together(want func(chain.Record) bool) (a, b place) {
	all := w.records(want)
	for i := 1; i < len(all); i++ {
		if all[i].envelope == all[i-1].envelope {
			return all[i-1], all[i]
		}
	}
	panic("no envelope has two")
}

func (w *world) at(p place) []byte { return w.envelopes[p.envelope].Records[p.record] }

// edit changes a record.
func (w *world) edit(p place, do func(chain.Record) chain.Record) {
	w.change(p.envelope, func(e *chain.Envelope) {
		r, err := chain.DecodeRecord(bytes.Clone(e.Records[p.record]))
		if err != nil {
			panic(err)
		}
		e.Records[p.record] = chain.AppendRecord(nil, do(r))
	})
}

func (w *world) editDecision(do func(*chain.Decision)) {
	w.edit(middle(w.records(isDecision)), func(r chain.Record) chain.Record {
		do(r.(*chain.Decision))
		return r
	})
}

func (w *world) drop(p place) {
	w.change(p.envelope, func(e *chain.Envelope) { e.Records = slices.Delete(e.Records, p.record, p.record+1) })
}

func (w *world) insert(p place, raw []byte) {
	w.change(p.envelope, func(e *chain.Envelope) { e.Records = slices.Insert(e.Records, p.record, raw) })
}

// renumber gives decisions dense numbers again.
func (w *world) renumber() {
	n := uint64(0)
	for _, p := range w.records(isDecision) {
		n++
		w.edit(p, func(r chain.Record) chain.Record {
			r.(*chain.Decision).Number = n
			return r
		})
	}
}

// republish replaces a generation in the policies log.
func (w *world) republish(generation int, set *policyfile.Set) {
	payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "test", Time: 0})
	if err != nil {
		panic(err)
	}
	w.policies[generation-1].Payload = payload
}

// anotherSet is a policy set that no history has.
func anotherSet() *policyfile.Set {
	s, err := policyfile.Parse([]policyfile.File{{Name: "p.yaml", Data: []byte("{kind: RetrySettings, spec: {globalMaxRetries: 1}}")}})
	if err != nil {
		panic(err)
	}
	return s
}

// tampering changes a log as somebody would who can compute all checksums; raw, if it is
// set, changes it after that, as a disk would.
type tampering struct {
	name string
	do   func(w *world)
	raw  func(w *world, log topic) topic
	want audit.Kind
}

func flipped(log topic, i int) topic {
	log[i].Payload = bytes.Clone(log[i].Payload)
	log[i].Payload[len(log[i].Payload)/2] ^= 4
	return log
}

func tamperings() []tampering {
	decision := func(do func(*chain.Decision)) func(*world) {
		return func(w *world) { w.editDecision(do) }
	}
	policy := func(n int, do func(*chain.PolicyActivated)) func(*world) {
		return func(w *world) { w.changePolicy(n, do) }
	}
	return []tampering{
		{"another run", decision(func(d *chain.Decision) { d.RunID += "x" }), nil, audit.RecordChanged},
		{"another job", decision(func(d *chain.Decision) { d.JobID += "x" }), nil, audit.RecordChanged},
		{"another verdict", decision(func(d *chain.Decision) { d.Requeue = !d.Requeue }), nil, audit.RecordChanged},
		{"a later retry", decision(func(d *chain.Decision) { d.RetryAfter++ }), nil, audit.RecordChanged},
		{"another rule", decision(func(d *chain.Decision) { d.Rule += "x" }), nil, audit.RecordChanged},
		{"another count", decision(func(d *chain.Decision) { d.GlobalUsed++ }), nil, audit.RecordChanged},
		{"another number", decision(func(d *chain.Decision) { d.Number++ }), nil, audit.RecordChanged},
		{"another queue", decision(func(d *chain.Decision) { d.Queue += "x" }), nil, audit.RecordChanged},
		{"in shadow", decision(func(d *chain.Decision) { d.Shadow = !d.Shadow }), nil, audit.RecordChanged},
		{"a node to avoid", decision(func(d *chain.Decision) { d.AvoidNodes = append(d.AvoidNodes, "n") }), nil, audit.RecordChanged},
		{"another position", decision(func(d *chain.Decision) { d.Position.Batch += 7 }), nil, audit.RecordChanged},
		{"not decided for another reason", func(w *world) {
			w.edit(middle(w.records(isNotDecided)), func(r chain.Record) chain.Record {
				n := r.(*chain.NotDecided)
				n.Reason = n.Reason%4 + 1
				return n
			})
		}, nil, audit.RecordChanged},
		{"a decision made one that was not decided", func(w *world) {
			w.edit(middle(w.records(isDecision)), func(r chain.Record) chain.Record {
				d := r.(*chain.Decision)
				return &chain.NotDecided{Position: d.Position, Queue: d.Queue, JobSet: d.JobSet, JobID: d.JobID, RunID: d.RunID, Reason: chain.Cancelled, Time: d.Time}
			})
		}, nil, audit.RecordChanged},
		{"the first record of an envelope dropped", func(w *world) { w.drop(place{w.answering(2), 0}) }, nil, audit.RecordDropped},
		{"the last record of an envelope dropped", func(w *world) {
			i := w.answering(2)
			w.drop(place{i, len(w.envelopes[i].Records) - 1})
		}, nil, audit.RecordDropped},
		{"a decision dropped, the rest renumbered", func(w *world) {
			w.drop(middle(w.records(isDecision)))
			w.renumber()
		}, nil, audit.RecordDropped},
		{"all records of an envelope dropped", func(w *world) {
			w.change(w.answering(2), func(e *chain.Envelope) { e.Records = nil })
		}, nil, audit.RecordDropped},
		{"a record twice in a row", func(w *world) {
			p := middle(w.records(isAny))
			w.insert(p, w.at(p))
		}, nil, audit.RecordDoubled},
		{"a decision twice, the rest renumbered", func(w *world) {
			p := middle(w.records(isDecision))
			w.insert(p, w.at(p))
			w.renumber()
		}, nil, audit.RecordDoubled},
		{"a record of an earlier envelope again", func(w *world) {
			w.insert(place{w.answering(3), 0}, w.at(place{w.answering(0), 0}))
		}, nil, audit.RecordDoubled},
		{"a record of a later envelope already", func(w *world) {
			w.insert(place{w.answering(0), 0}, w.at(place{w.answering(3), 0}))
		}, nil, audit.RecordDoubled},
		{"a decision in the place of another one", func(w *world) {
			a, b := w.together(isDecision)
			w.edit(b, func(chain.Record) chain.Record { r, _ := chain.DecodeRecord(w.at(a)); return r })
		}, nil, audit.RecordDoubled},
		{"two records swapped", func(w *world) {
			a, b := w.together(isAny)
			w.change(a.envelope, func(e *chain.Envelope) {
				e.Records[a.record], e.Records[b.record] = e.Records[b.record], e.Records[a.record]
			})
		}, nil, audit.RecordsReordered},
		{"two decisions swapped and renumbered", func(w *world) {
			a, b := w.together(isDecision)
			w.change(a.envelope, func(e *chain.Envelope) {
				e.Records[a.record], e.Records[b.record] = e.Records[b.record], e.Records[a.record]
			})
			w.renumber()
		}, nil, audit.RecordsReordered},
		{"a record moved to a later envelope", func(w *world) {
			from := place{w.answering(1), 0}
			raw := w.at(from)
			w.drop(from)
			w.insert(place{w.answering(3), 0}, raw)
		}, nil, audit.RecordsReordered},
		{"records of two envelopes swapped", func(w *world) {
			a, b := place{w.answering(1), 0}, place{w.answering(3), 0}
			x, y := w.at(a), w.at(b)
			w.drop(a)
			w.insert(a, y)
			w.drop(b)
			w.insert(b, x)
		}, nil, audit.RecordsReordered},
		{"an invented decision", func(w *world) {
			r, _ := chain.DecodeRecord(w.at(w.records(isDecision)[0]))
			d := *r.(*chain.Decision)
			d.JobID, d.RunID = "nobody", "none"
			w.insert(place{w.answering(2), 0}, chain.AppendRecord(nil, &d))
		}, nil, audit.RecordAdded},

		{"the digest of an activation", policy(1, func(r *chain.PolicyActivated) { r.Digest[0] ^= 1 }), nil, audit.PolicyChanged},
		{"the horizon of an activation", policy(1, func(r *chain.PolicyActivated) { r.HorizonMS++ }), nil, audit.PolicyChanged},
		{"a generation that is not there", policy(1, func(r *chain.PolicyActivated) { r.Generation = 7 }), nil, audit.PolicyChanged},
		{"an activation dropped", func(w *world) {
			i := w.activating(1)
			w.change(i, func(e *chain.Envelope) { e.Records = e.Records[:1] })
		}, nil, audit.PolicyChanged},
		{"the first activation dropped", func(w *world) {
			w.change(w.activating(0), func(e *chain.Envelope) { e.Records = e.Records[:1] })
		}, nil, audit.PolicyChanged},
		{"the generation that a decision names", decision(func(d *chain.Decision) { d.Generation++ }), nil, audit.PolicyChanged},
		{"the policy set that a decision names", decision(func(d *chain.Decision) { d.PolicySet[5] ^= 1 }), nil, audit.PolicyChanged},
		{"another text of a generation", func(w *world) { w.republish(2, anotherSet()) }, nil, audit.PolicyChanged},
		{"another text of a generation, and its activation", func(w *world) {
			set := anotherSet()
			w.republish(1, set)
			w.changePolicy(0, func(r *chain.PolicyActivated) {
				r.Digest, r.HorizonMS = set.Digest(), set.Horizon().Milliseconds()
			})
		}, nil, audit.PolicyChanged},
		{"a generation gone from the policies log", func(w *world) { w.policies = w.policies[:1] }, nil, audit.PolicyChanged},
		{"generations in the other order", func(w *world) { slices.Reverse(w.policies); w.renumberPolicies() }, nil, audit.PolicyChanged},
		{"no activation at all", func(w *world) {
			i := w.activating(0)
			w.envelopes = slices.Delete(w.envelopes, i, i+1)
		}, nil, audit.SemanticsChanged},

		{"an envelope left out, and its input skipped", func(w *world) {
			i := w.answering(2)
			w.envelopes = slices.Delete(w.envelopes, i, i+1)
		}, nil, audit.InputAdded},
		{"an envelope left out, its input given to the next", func(w *world) {
			i := w.answering(2)
			w.change(i+1, func(e *chain.Envelope) { e.InCount += w.envelopes[i].InCount })
			w.envelopes = slices.Delete(w.envelopes, i, i+1)
		}, nil, audit.RecordDropped},
		{"an envelope that covers one message more", func(w *world) {
			w.change(w.answering(2), func(e *chain.Envelope) { e.InCount++ })
		}, nil, audit.InputDropped},
		{"a message gone from events", func(w *world) { w.events = slices.Delete(slices.Clone(w.events), 7, 8) }, nil, audit.InputDropped},
		{"the end of events gone", func(w *world) { w.events = w.events[:len(w.events)-9] }, nil, audit.InputDropped},
		{"a message more in events", func(w *world) {
			m := w.events[7]
			m.Position.Batch += 1000
			w.events = slices.Insert(slices.Clone(w.events), 8, m)
		}, nil, audit.InputAdded},
		{"an event that cannot be read", func(w *world) {
			w.events = slices.Clone(w.events)
			for i := range w.events[:20] {
				w.events[i].Payload = []byte("\xff")
			}
		}, nil, audit.InputChanged},

		{"a bit flipped", nil, func(w *world, log topic) topic { return flipped(log, w.answering(2)) }, audit.EnvelopeDamaged},
		{"a bit of a claim flipped", nil, func(_ *world, log topic) topic { return flipped(log, 0) }, audit.EnvelopeDamaged},
		{"an envelope cut off", nil, func(w *world, log topic) topic {
			i := w.answering(2)
			log[i].Payload = log[i].Payload[:len(log[i].Payload)-3]
			return log
		}, audit.EnvelopeDamaged},
		{"an envelope dropped", nil, func(w *world, log topic) topic {
			i := w.answering(2)
			return slices.Delete(log, i, i+1)
		}, audit.EnvelopeDropped},
		{"the first envelope dropped", nil, func(_ *world, log topic) topic { return log[1:] }, audit.EnvelopeDropped},
		{"an activation's envelope dropped", nil, func(w *world, log topic) topic {
			i := w.activating(1)
			return slices.Delete(log, i, i+1)
		}, audit.EnvelopeDropped},
		{"two envelopes swapped", nil, func(w *world, log topic) topic {
			i := w.answering(2)
			log[i].Payload, log[i+1].Payload = log[i+1].Payload, log[i].Payload
			return log
		}, audit.EnvelopesReordered},
		{"a claim before its place", nil, func(w *world, log topic) topic {
			i := w.activating(1) - 1 // the second claim
			log[i].Payload, log[i-1].Payload = log[i-1].Payload, log[i].Payload
			return log
		}, audit.EnvelopesReordered},
		{"an envelope at the end", nil, func(w *world, log topic) topic {
			i, last := w.answering(2), len(log)-1
			moved := log[i].Payload
			for ; i < last; i++ {
				log[i].Payload = log[i+1].Payload
			}
			log[last].Payload = moved
			return log
		}, audit.EnvelopesReordered},
		{"an envelope with another epoch's owner, and its checksum", nil, func(w *world, log topic) topic {
			return rewritten(log, w.activating(0), func(e *chain.Envelope) {
				r, _ := chain.DecodeRecord(e.Records[0])
				r.(*chain.SemanticsActivated).Version = 1
				e.Records[0] = chain.AppendRecord(nil, r)
			})
		}, audit.EnvelopeChanged},
		{"another link, and its checksum", nil, func(w *world, log topic) topic {
			return rewritten(log, w.answering(2), func(e *chain.Envelope) { e.Link[0] ^= 1 })
		}, audit.EnvelopeChanged},
		{"another range, and its checksum", nil, func(w *world, log topic) topic {
			return rewritten(log, w.answering(2), func(e *chain.Envelope) { e.InFrom.Batch += 5; e.InTo.Ledger += 5 })
		}, audit.EnvelopeChanged},
	}
}

// rewritten changes an envelope, with its own checksum, but not those that name its hash.
func rewritten(log topic, i int, do func(e *chain.Envelope)) topic {
	e, err := chain.DecodeEnvelope(bytes.Clone(log[i].Payload))
	if err != nil {
		panic(err)
	}
	do(e)
	log[i].Payload = e.Append(nil)
	return log
}

func (w *world) renumberPolicies() {
	for i := range w.policies {
		w.policies[i].Position.Entry = int64(i)
	}
}

// TestTamperingIsNamed: whatever is done to the logs is found, and named rightly.
func TestTamperingIsNamed(t *testing.T) {
	t.Parallel()
	all := tamperings()
	if len(all) < 50 {
		t.Errorf("only %d tamperings", len(all))
	}
	for _, tt := range all {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3, 60)
			if tt.do != nil {
				tt.do(w)
			}
			log := *link(w.envelopes)
			if tt.raw != nil {
				log = tt.raw(w, log)
			}
			_, err := w.verify(&log)
			d, ok := errors.AsType[*audit.Difference](err)
			if !ok || d.Kind != tt.want {
				kind, _ := audit.KindOf(err)
				t.Fatalf("%q: %v, want %q", kind, err, tt.want)
			}
			if d.Kind == audit.RecordChanged && (d.Logged == nil || d.Derived == nil) {
				t.Errorf("%v: a reading is missing", err)
			}
		})
	}
}

// importedRuns is a job of which a cut-over published three runs, the newest first, and
// the failure of that run: version 1 of the semantics names its next pod in another way.
func importedRuns(t *testing.T, job string, entry int64) []model.Message {
	t.Helper()
	run := func(n int) *pb.KnownRun { return &pb.KnownRun{JobId: job, RunId: fmt.Sprint(job, n), Node: "n"} }
	return messagesOf(t, entry, []*pb.Event{
		{Event: &pb.Event_KnownJob{KnownJob: &pb.SubmitJob{JobId: job}}}, {Event: &pb.Event_KnownRun{KnownRun: run(2)}}, {Event: &pb.Event_EndedRun{EndedRun: run(1)}},
	}, []*pb.Event{failedRun(job, job+"2")})
}

// failedGang is the failure of a gang's member: version 3 of the semantics has groups.
func failedGang(t *testing.T, job string, entry int64) []model.Message {
	t.Helper()
	submit := &pb.SubmitJob{JobId: job, ObjectMeta: &pb.ObjectMeta{Annotations: map[string]string{events.AnnotationGangID: job, events.AnnotationGangCardinality: "2"}}}
	return messagesOf(t, entry, []*pb.Event{
		{Event: &pb.Event_SubmitJob{SubmitJob: submit}}, {Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: job + "r", NodeId: "n"}}},
	}, []*pb.Event{failedRun(job, job+"r")})
}

// restartedInPause is the success of a unit that runs again, and of which another member runs,
// during a pause: version 4 of the semantics has that wait less.
func restartedInPause(t *testing.T, job string, entry int64) []model.Message {
	t.Helper()
	var start []*pb.Event
	for _, id := range []string{job, job + "peer"} {
		annotations := map[string]string{events.AnnotationGroup: job, events.AnnotationGroupPolicy: "again"}
		start = append(start,
			&pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: id, ObjectMeta: &pb.ObjectMeta{Annotations: annotations}}}},
			&pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: id, RunId: id + "r", NodeId: "n"}}})
	}
	return messagesOf(t, entry, start, []*pb.Event{{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: job + "r"}}}})
}

func failedRun(job, run string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{{
		Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}},
	}}}}}
}

func messagesOf(t *testing.T, entry int64, each ...[]*pb.Event) (messages []model.Message) {
	t.Helper()
	for i, events := range each {
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "set", Events: events})
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, model.Message{Ledger: 7, Entry: entry + int64(i), Batch: -1, Publish: 1e18 + entry, Payload: payload})
	}
	return messages
}

// retryAll is a policy set that retries everything.
const retryAll = "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: all}\nspec: {defaultAction: Retry}\n" +
	"---\nkind: RetrySettings\nspec: {defaultPolicyName: all}\n" +
	"---\nkind: Queue\nname: ml\npausedUntil: 2100-01-01T00:00:00Z\n" +
	"---\napiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: again}\n" +
	"spec: {parts: [{name: main, members: 2, minMembers: 1, restarts: {on: Always, limit: 1}}]}\n"

// TestSemanticsAreNamed: logs that say that another version decided.
func TestSemanticsAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ decided, recorded uint32 }{{1, 2}, {2, 1}, {2, 3}, {3, 2}, {3, 4}, {4, 3}} {
		history := failedGang
		switch c.decided + c.recorded {
		case 1 + 2:
			history = importedRuns
		case 3 + 4:
			history = restartedInPause
		}
		var messages []model.Message
		for i := range int64(4) {
			messages = append(messages, history(t, fmt.Sprint("j", i), 10*i)...)
		}
		files := []model.File{{Name: "p.yaml", Data: []byte(retryAll)}}
		w := worldOf(t, c.decided, messages, files, files)
		w.answer(t, rand.New(rand.NewPCG(1, 2)))
		for n := range 2 {
			w.change(w.activating(n), func(e *chain.Envelope) {
				e.Records[0] = chain.AppendRecord(nil, &chain.SemanticsActivated{Version: c.recorded})
			})
		}
		_, err := w.verify(link(w.envelopes))
		if kind, _ := audit.KindOf(err); kind != audit.SemanticsChanged {
			t.Errorf("decided by %d, the log says %d: %q, %v", c.decided, c.recorded, kind, err)
		}
	}
}

// TestRepeatedEnvelope: an envelope that stands in the log again is ignored by every
// reader, and is counted.
func TestRepeatedEnvelope(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 60)
	log := *link(w.envelopes)
	log.put(log[len(log)-1].Payload)
	v, err := w.verify(&log)
	if err != nil || v.Ignored[chain.Repeated] != 1 {
		t.Errorf("%+v, %v", v, err)
	}
}

// failing is a topic of which a reader finds an error.
type failing struct {
	*topic
	err error
}

func (x failing) Open(int, eventlog.Position) (eventlog.Reader, error) { return failed{x.err}, nil }

type failed struct{ err error }

func (r failed) Read([]eventlog.Message) (int, error) { return 0, r.err }
func (failed) Changed() <-chan struct{}               { return nil }
func (failed) Close() error                           { return nil }

// TestUnreadable: checksums that do not fit are a difference, and what cannot be read for
// another reason is none.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 12)
	for _, c := range []struct {
		err  error
		want audit.Kind
	}{{fmt.Errorf("segment 3: %w", eventlog.ErrCorrupt), audit.LogDamaged}, {eventlog.ErrTrimmed, audit.InputGone}, {errors.New("no route to host"), ""}} {
		for _, logs := range []audit.Logs{
			{Events: failing{&w.events, c.err}, Decisions: link(w.envelopes), Policies: &w.policies},
			{Events: &w.events, Decisions: failing{link(w.envelopes), c.err}, Policies: &w.policies},
		} {
			_, err := audit.Verify(t.Context(), logs, 0)
			if kind, _ := audit.KindOf(err); kind != c.want || !errors.Is(err, c.err) {
				t.Errorf("%v: %q, %v", c.err, kind, err)
			}
		}
	}
}
