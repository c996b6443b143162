package api_test

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	eventpb "github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/model"
)

// mustBeSeen is what a hundred histories hold, or they show too little.
var mustBeSeen = []string{
	"does not count", "unknown", "nothing to do", "replica restarted", "owner restarted", "activation", "decision", "requeue by a policy",
	"killed", "paused", "answer OK", "answer Aborted", "answer AlreadyExists", "answer NotFound", "answer FailedPrecondition",
}

// check holds the chain against the policies log and the naive model: each
// decision's policy set is the one that was activated last, which is what the log
// has at that place; generations never go back; killed is killed, and paused waits.
func (s *storm) check() {
	s.poll()
	if v, err := audit.Verify(context.Background(), audit.Logs{Events: s.events, Decisions: s.decisions, Policies: s.policies}, 0); err != nil || v.Waiting > 0 {
		s.fail("deciding again: %d messages wait: %w", v.Waiting, err)
		return
	}
	f, err := follow.Open(s.events, s.decisions, 0, follow.Beginning)
	if err != nil {
		s.fail("%w", err)
		return
	}
	defer f.Close()
	w := walk{s: s, st: emptyState(), model: model.New(model.Policies{}), pauses: map[string]int64{}}
	for s.err == nil {
		batch, err := f.Next()
		if err != nil {
			s.fail("%w", err)
		}
		if batch == nil {
			break
		}
		w.batch(batch)
	}
	if s.err == nil && w.answered != len(s.fed) {
		s.fail("%d of %d messages are answered", w.answered, len(s.fed))
	}
}

// walk goes along the chain.
type walk struct {
	s        *storm
	st       *state // in force
	model    *model.Model
	answered int              // messages
	pauses   map[string]int64 // until when the retry of a run had to wait
}

func (w *walk) batch(st *follow.Batch) {
	s := w.s
	var got, want []string
	front := true
	at := func(r chain.Record) int { // the place of its message
		for i := range st.Messages {
			if p, ok := chain.PositionOf(r); ok && st.Messages[i].OriginPosition() == p {
				return w.answered + i
			}
		}
		s.fail("envelope %d: %T names no message of it", st.Envelope.Seq, r)
		return w.answered
	}
	for _, r := range st.Records {
		switch r := r.(type) {
		case *chain.PolicyActivated:
			next := s.at(r.Generation)
			switch {
			case !front:
				s.fail("envelope %d: generation %d is activated in the middle", st.Envelope.Seq, r.Generation)
			case next == nil:
				s.fail("envelope %d: generation %d is activated, which does not count", st.Envelope.Seq, r.Generation)
			case r.Generation <= w.st.number:
				s.fail("envelope %d: generation %d is activated after %d", st.Envelope.Seq, r.Generation, w.st.number)
			case r.Digest != next.digest:
				s.fail("envelope %d: generation %d is activated with another digest than its content has", st.Envelope.Seq, r.Generation)
			default:
				s.seen["activation"]++
				w.st = next
				w.model.Use(next.naive(true))
			}
		case *chain.SemanticsActivated:
			w.model.UseVersion(int(r.Version))
		case *chain.Decision:
			got = append(got, fmt.Sprintf("%d %v %s/%s %v %s %s after %d", r.Number, r.Requeue, r.JobID, r.RunID, r.Code, r.Policy, r.Rule, r.RetryAfter))
			w.decision(r, s.floors[at(r)])
		case *chain.RetryReady:
			if until := w.pauses[r.JobID+"/"+r.RunID]; until != 0 {
				if r.RetryAfter < until {
					s.fail("%s/%s is ready at %d, in a pause until %d", r.JobID, r.RunID, r.RetryAfter, until)
				}
			}
		default:
		}
		front = front && !r.FromInput()
		if s.err != nil {
			return
		}
	}
	for range st.Messages {
		for _, r := range w.model.Step(s.fed[w.answered]) {
			if r.Kind == model.JobRequeued || r.Kind == model.JobFailed {
				want = append(want, fmt.Sprintf("%d %v %s/%s %s %s %s after %d", r.Number, r.Kind == model.JobRequeued, r.JobID, r.RunID, r.Code, r.Policy, r.Rule, r.RetryAfter))
			}
		}
		w.answered++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.fail("envelope %d, by generation %d:\n%q\nthe model has\n%q", st.Envelope.Seq, w.st.number, got, want)
	}
}

func (w *walk) decision(d *chain.Decision, floor uint64) {
	s := w.s
	s.seen["decision"]++
	switch {
	case d.Generation != w.st.number || d.Generation != 0 && d.PolicySet != w.st.digest:
		s.fail("decision %d names generation %d and digest %x; in force is %d with %x", d.Number, d.Generation, d.PolicySet, w.st.number, w.st.digest)
	case !s.policies.lags && d.Generation < floor:
		s.fail("decision %d is by generation %d, and %d was acknowledged before its failure came", d.Number, d.Generation, floor)
	}
	if d.Code == policy.KillSwitch {
		s.seen["killed"]++
	}
	if !d.Requeue || d.Policy == "" {
		return
	}
	s.seen["requeue by a policy"]++
	if w.st.killed(d.Queue) {
		s.fail("decision %d (%v) lets a retry through that generation %d kills", d.Number, d.Code, w.st.number)
	}
	delete(w.pauses, d.JobID+"/"+d.RunID)
	if until := w.st.paused(d.Queue); until > d.Time {
		s.seen["paused"]++
		w.pauses[d.JobID+"/"+d.RunID] = until
		if d.RetryAfter < until {
			s.fail("decision %d retries at %d, in the pause of generation %d until %d", d.Number, d.RetryAfter, w.st.number, until)
		}
	}
}

// last is the decision log's last decision.
func (s *storm) last() *chain.Decision {
	f, err := follow.Open(s.events, s.decisions, 0, follow.Beginning)
	if err != nil {
		s.fail("%w", err)
		return nil
	}
	defer f.Close()
	var d *chain.Decision
	for {
		st, err := f.Next()
		if err != nil || st == nil {
			return d
		}
		for _, r := range st.Records {
			if r, ok := r.(*chain.Decision); ok {
				d = r
			}
		}
	}
}

// overridesHold: a kill and a pause hold the next failure, and after a release retries
// come again.
func (s *storm) overridesHold() {
	all := model.Policies{
		Policies: []model.Policy{{Name: "all", DefaultAction: "Retry", RetryLimit: new(100)}},
		Queues:   []model.Queue{{Name: "ml", RetryPolicies: []string{"all"}}},
		Settings: &model.Settings{GlobalMaxRetries: new(100)},
	}
	docs, err := docsOf(all)
	if err != nil {
		s.fail("%w", err)
		return
	}
	until := s.now - s.now%1e6 + 3600e9
	steps := []struct {
		op   *operation
		code policy.Code
		from int64 // the earliest time of a retry
		to   int64 // the latest
	}{
		{s.releasing("", true), policy.UnknownCode, 0, 0},
		{s.applying(docs, true, 0), policy.DefaultRetry, 0, until - 1},
		{s.braking("ml", true, 0), policy.KillSwitch, 0, 0},
		{s.releasing("ml", false), policy.DefaultRetry, 0, until - 1},
		{s.braking("", false, until), policy.DefaultRetry, until, until},
		{s.releasing("", false), policy.DefaultRetry, 0, until - 1},
	}
	for i, step := range steps {
		r := s.replicas[s.rng.IntN(len(s.replicas))]
		step.op.dry, step.op.number = false, len(s.ops)
		s.ops = append(s.ops, step.op)
		if !r.ready() {
			s.fail("%v does not start", r)
			return
		}
		s.try(step.op, r)
		if step.op.refused && i > 0 {
			s.fail("%v was not done", step.op)
		}
		if step.code == policy.UnknownCode {
			continue
		}
		s.now += 1e9
		s.send(failure(fmt.Sprintf("last-%d", i), int64(i), s.now))
		s.drain()
		d := s.last()
		if s.err != nil {
			return
		}
		if d == nil || d.Code != step.code || d.Requeue && (d.RetryAfter < step.from || d.RetryAfter > step.to) {
			s.fail("after %v: %+v, want %v", step.op, d, step.code)
			return
		}
	}
}

// failure is a message in which a job is submitted and its run fails.
func failure(job string, n, at int64) model.Message {
	created := &eventpb.Timestamp{Seconds: at / 1e9, Nanos: int32(at % 1e9)}
	payload, err := proto.Marshal(&eventpb.EventSequence{Queue: "ml", JobSetName: "set", Events: []*eventpb.Event{
		{Created: created, Event: &eventpb.Event_SubmitJob{SubmitJob: &eventpb.SubmitJob{JobId: job}}},
		{Created: created, Event: &eventpb.Event_JobRunLeased{JobRunLeased: &eventpb.JobRunLeased{JobId: job, RunId: job + "-run"}}},
		{Created: created, Event: &eventpb.Event_JobRunErrors{JobRunErrors: &eventpb.JobRunErrors{
			JobId: job, RunId: job + "-run",
			Errors: []*eventpb.Error{{Terminal: true, Reason: &eventpb.Error_PodError{PodError: &eventpb.PodError{Message: "failed"}}}},
		}}},
	}})
	if err != nil {
		panic(err)
	}
	return model.Message{Ledger: 1 << 40, Entry: n, Batch: -1, Publish: at, Payload: payload}
}
