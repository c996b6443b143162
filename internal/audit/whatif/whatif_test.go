package whatif_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/test/model"
)

// topic is an in-memory partition.
type topic []eventlog.Message

func (x *topic) put(payload []byte) {
	*x = append(*x, eventlog.Message{Position: eventlog.Position{Ledger: 9, Entry: int64(len(*x))}, Payload: payload})
}

func (*topic) Partitions() int { return 1 }

func (*topic) Beginning(int) (eventlog.Position, error) { return eventlog.Start, nil }

func (x *topic) End(int) (eventlog.Position, error) {
	if len(*x) == 0 {
		return eventlog.Start, nil
	}
	return (*x)[len(*x)-1].Position, nil
}

func (x *topic) Open(_ int, after eventlog.Position) (eventlog.Reader, error) {
	left := *x
	for len(left) > 0 && left[0].Position.Compare(after) <= 0 {
		left = left[1:]
	}
	return &reader{left: left}, nil
}

type reader struct {
	left  topic
	given [][]byte
}

func (r *reader) Read(dst []eventlog.Message) (int, error) {
	n := copy(dst, r.left)
	r.left = r.left[n:]
	for i := range dst[:n] {
		dst[i].Payload = bytes.Clone(dst[i].Payload)
		r.given = append(r.given, dst[i].Payload)
	}
	return n, nil
}

// Release overwrites what was returned, of which nothing must be kept.
func (r *reader) Release() {
	for _, payload := range r.given {
		for i := range payload {
			payload[i] = '#'
		}
	}
	r.given = nil
}

func (*reader) Changed() <-chan struct{} { return nil }
func (*reader) Close() error             { return nil }

func parse(t testing.TB, files ...policyfile.File) *policyfile.Set {
	t.Helper()
	set, err := policyfile.Parse(files)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func setOf(t testing.TB, h model.History) *policyfile.Set {
	t.Helper()
	var files []policyfile.File
	for _, f := range h.YAML() {
		files = append(files, policyfile.File{Name: f.Name, Data: f.Data})
	}
	return parse(t, files...)
}

func eventsOf(h model.History) (events topic) {
	for _, m := range h.Messages {
		events = append(events, eventlog.Message{Position: eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}, Publish: m.Publish, Payload: m.Payload})
	}
	return events
}

// decided is a deployment that decided a history by a policy set; from the middle on, an
// operator had killed the retries of a queue.
func decided(t testing.TB, events topic, set *policyfile.Set, semantics uint32, killed string) audit.Logs {
	t.Helper()
	r, err := audit.NewReplayer()
	if err != nil {
		t.Fatal(err)
	}
	decisions, policies, end := &topic{}, &topic{}, chain.Beginning
	put := func(e *chain.Envelope) {
		e.Seq, e.Link, e.InFrom, e.Epoch, e.Owner = end.Seq+1, end.Link, end.InTo, 1, chain.OwnerID{1}
		if e.InCount == 0 {
			e.InTo = e.InFrom
		}
		raw := e.Append(nil)
		end = chain.End{Seq: e.Seq, Link: chain.Link(raw), InTo: e.InTo}
		decisions.put(raw)
	}
	activate := func(generation uint64, overrides ...policylog.Override) {
		payload, err := policylog.Encode(&policylog.Proposal{Set: set, Overrides: overrides, Author: "test"})
		if err != nil {
			t.Fatal(err)
		}
		policies.put(payload)
		var plain []policyfile.Override
		for _, o := range overrides {
			plain = append(plain, o.Override)
		}
		inForce, err := set.WithOverrides(plain...)
		if err != nil {
			t.Fatal(err)
		}
		front := []chain.Record{
			&chain.SemanticsActivated{Version: semantics},
			&chain.PolicyActivated{Generation: generation, Digest: inForce.Digest(), HorizonMS: inForce.Horizon().Milliseconds()},
		}
		r.Activate(front)
		r.Rules = evaluator.Rules{Generation: generation, Set: inForce.Set}
		put(&chain.Envelope{Records: [][]byte{chain.AppendRecord(nil, front[0]), chain.AppendRecord(nil, front[1])}})
	}
	put(&chain.Envelope{Records: [][]byte{chain.AppendRecord(nil, &chain.OwnerClaim{Epoch: 1, Owner: chain.OwnerID{1}})}})
	activate(1)
	for i := range events {
		if i == len(events)/2 && killed != "" {
			activate(2, policylog.Override{Override: policyfile.Override{Queue: killed, Kill: true}})
		}
		out, err := r.Step(&events[i])
		if err != nil {
			t.Fatal(err)
		}
		e := &chain.Envelope{InTo: events[i].Position, InCount: 1}
		for _, b := range out.Bytes {
			e.Records = append(e.Records, bytes.Clone(b))
		}
		put(e)
	}
	return audit.Logs{Events: &events, Decisions: decisions, Policies: policies}
}

// TestSamePoliciesSameDecisions: the policies that decided a history change nothing, over
// whatever history, with overrides of operators in between, by any version of the semantics.
func TestSamePoliciesSameDecisions(t *testing.T) {
	t.Parallel()
	histories := 60
	if testing.Short() {
		histories = 15
	}
	compared := uint64(0)
	for seed := range uint64(histories) {
		h := model.Generate(seed, model.Options{Republished: seed%3 == 0})
		set := setOf(t, h)
		events := eventsOf(h)
		killed := ""
		if seed%2 == 0 {
			killed = "batch"
		}
		logs := decided(t, events, set, uint32(seed%evaluator.SemanticsVersion+1), killed)
		if _, err := audit.Verify(t.Context(), logs, 0); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		candidates := []whatif.Candidate{{Name: "same", Set: set}, {Name: "again", Set: set}}
		o := whatif.Options{Candidates: candidates, Limit: 10}
		if killed == "" && seed%4 == 1 { // against policies, from events alone
			logs.Decisions, o.Against, o.Semantics = nil, &candidates[0], 2
		}
		results, err := whatif.Run(t.Context(), logs, o)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, r := range results {
			compared += r.Compared
			if r.Changed != 0 || r.NotCompared != 0 || len(r.Rows) != 0 || len(r.Jobs) != 0 || r.RetriesFewer+r.RetriesMore+r.RunsFewer != 0 {
				t.Errorf("seed %d: %+v", seed, r)
			}
		}
	}
	if compared < uint64(histories)*8 {
		t.Errorf("only %d failed runs were compared", compared)
	}
}

// TestFollowersPartWithTheirGroup: a candidate that restarts a group that had failed has no group
// that follows it, so that nothing is compared of the jobs that were submitted then.
func TestFollowersPartWithTheirGroup(t *testing.T) {
	t.Parallel()
	policies := func(most int) *policyfile.Set {
		return parse(t, policyfile.File{Name: "p.yaml", Data: fmt.Appendf(nil, "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: none}\nspec: {defaultAction: Fail}\n"+
			"---\nkind: RetrySettings\nspec: {defaultPolicyName: none}\n---\napiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: pair}\n"+
			"spec: {maxRestarts: %d, parts: [{name: main, members: 2}]}\n", most)})
	}
	var events topic
	publish := func(happened ...*pb.Event) {
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "s", Events: happened})
		if err != nil {
			t.Fatal(err)
		}
		events.put(payload)
	}
	submit := func(job string) *pb.Event {
		return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: job, ObjectMeta: &pb.ObjectMeta{Annotations: map[string]string{
			"refloat.github.io/group": "g", "refloat.github.io/group-policy": "pair",
		}}}}}
	}
	for _, attempt := range []string{"a", "b", "c"} {
		job := attempt + "0"
		publish(submit(job), submit(attempt+"1"), &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: job + "r"}}})
		publish(&pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: job + "r", Errors: []*pb.Error{{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}}}}}}})
	}
	logs := decided(t, events, policies(0), evaluator.SemanticsVersion, "")
	results, err := whatif.Run(t.Context(), logs, whatif.Options{Candidates: []whatif.Candidate{{Name: "one more", Set: policies(1)}}, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.Changed != 1 || r.NotCompared != 2 {
		t.Errorf("%d changed and %d not compared, want 1 and 2: %+v", r.Changed, r.NotCompared, r)
	}
	if r := results[0]; r.RetriesMore != 1 || r.RetriesFewer != 0 || r.Sides[0].Retries != 1 || r.Sides[1].Retries != 0 {
		t.Errorf("the restart of the group is one retry: %+v", r)
	}
}

// TestUntilTheyPart compares the first change of every job with a second opinion: a job
// whose decisions are equal in two separate replays is not listed, and the first decision
// that differs is.
func TestUntilTheyPart(t *testing.T) {
	t.Parallel()
	changed := 0
	for seed := range uint64(30) {
		h := model.Generate(seed, model.Options{})
		events, old := eventsOf(h), setOf(t, h)
		other := setOf(t, model.Generate(seed+1000, model.Options{}))
		verdicts := func(set *policyfile.Set) map[string]string {
			all := map[string]string{}
			_, err := audit.ReplayBy(t.Context(), &events, 0, audit.Rules{Set: set.Set, Semantics: 2}, func(_ *eventlog.Message, out *evaluator.Output) error {
				for _, r := range out.Records {
					if d, ok := r.(*chain.Decision); ok {
						all[d.JobID] += fmt.Sprint(d.Requeue && !d.Shadow, d.Shadow, ";")
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		a, b := verdicts(old), verdicts(other)
		results, err := whatif.Run(t.Context(), audit.Logs{Events: &events}, whatif.Options{
			Candidates: []whatif.Candidate{{Name: "other", Set: other}}, Against: &whatif.Candidate{Name: "old", Set: old}, Semantics: 2, Limit: 1 << 20,
		})
		if err != nil {
			t.Fatal(err)
		}
		parts := map[string]bool{}
		for _, c := range results[0].Jobs {
			if c.Parts && parts[c.JobID] {
				t.Errorf("seed %d: job %s parts twice", seed, c.JobID)
			}
			parts[c.JobID] = parts[c.JobID] || c.Parts
		}
		for job := range a {
			if a[job] != b[job] && (strings.HasPrefix(a[job], b[job]) || strings.HasPrefix(b[job], a[job])) {
				continue // one side knows the job for longer: their horizons differ
			}
			if differs := a[job] != b[job]; differs != parts[job] {
				t.Errorf("seed %d: job %s: %q and %q, parts: %v", seed, job, a[job], b[job], parts[job])
			} else if differs {
				changed++
			}
		}
	}
	if changed < 20 {
		t.Errorf("only %d jobs differ", changed)
	}
}

const oom = `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: infra}
spec:
  rules:
  - {name: oom, action: Retry, onConditions: [OOMKilled], retryLimit: LIMIT, backoff: {initialDelay: 10s}}
---
kind: RetrySettings
spec: {defaultPolicyName: infra}
`

func limited(t testing.TB, limit int) *policyfile.Set {
	t.Helper()
	return parse(t, policyfile.File{Name: "p.yaml", Data: []byte(strings.ReplaceAll(oom, "LIMIT", fmt.Sprint(limit)))})
}

// story is a history: jobs that run out of memory a number of times, a minute each, and
// then succeed, if they may.
func story(t testing.TB, failures ...int) (events topic) {
	t.Helper()
	now := int64(1_800_000_000)
	publish := func(evs ...*pb.Event) {
		now += 60
		for _, ev := range evs {
			ev.Created = &pb.Timestamp{Seconds: now}
		}
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "set", Events: evs})
		if err != nil {
			t.Fatal(err)
		}
		events.put(payload)
		events[len(events)-1].Publish = now * 1e9
	}
	for j, n := range failures {
		job := fmt.Sprint("job", j)
		submit := &pb.SubmitJob{JobId: job}
		if j != 1 { // of which it is unknown what it requests
			submit.MainObject = twoCores(t)
		}
		publish(&pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: submit}})
		for k := 0; ; k++ {
			run := fmt.Sprint(job, "-", k)
			publish(&pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, NodeId: "n"}}},
				&pb.Event{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: job, RunId: run}}})
			if k == n {
				publish(&pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: run}}},
					&pb.Event{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: job}}})
				break
			}
			publish(&pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{{
				Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{KubernetesReason: pb.KubernetesReason_OOM}},
			}}}}})
			if k == 5 {
				break // the limit that decided
			}
		}
	}
	return events
}

// twoCores is a pod that requests two cores.
func twoCores(t testing.TB) *pb.KubernetesMainObject {
	t.Helper()
	cores := "2"
	resources, err := proto.Marshal(&pb.ResourceRequirements{Requests: map[string]*pb.Quantity{"cpu": {Text: &cores}}})
	if err != nil {
		t.Fatal(err)
	}
	container, err := proto.Marshal(&pb.Container{Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	return &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: &pb.PodSpec{Containers: [][]byte{container}}}}
}

// TestStory: what a smaller and a larger limit would have done.
func TestStory(t *testing.T) {
	t.Parallel()
	// job0 succeeds after 1 failure, job1 after 4, job2 fails for good at its sixth.
	logs := decided(t, story(t, 1, 4, 6), limited(t, 5), 2, "")
	results, err := whatif.Run(t.Context(), logs, whatif.Options{
		Candidates: []whatif.Candidate{{Name: "2", Set: limited(t, 2)}, {Name: "9", Set: limited(t, 9)}}, Limit: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	// Two retries of job1 and three of job2 fewer: two runs of job1 (a minute each), of
	// which the second succeeded, and three of job2.
	r := results[0]
	if r.Changed != 2 || r.RetriesFewer != 5 || r.RunsFewer != 5 || r.RunSeconds != 300 || r.RetriesMore != 0 ||
		r.Ended != (whatif.Outcomes{Succeeded: 1, Failed: 1}) || r.NotCompared != 4 {
		t.Errorf("limit 2: %+v", r)
	}
	if len(r.Rows) != 1 || r.Rows[0].Cause != "OOMKilled" || r.Rows[0].Queue != "ml" || r.Rows[0].Rule != "oom" || r.Rows[0].Count != 2 {
		t.Errorf("limit 2: %+v", r.Rows)
	}
	// Eleven failed runs; of them, four are not compared.
	if want := []whatif.RuleUse{{Policy: "infra", Rule: "oom", Decided: 7, Retried: 7, Candidate: 7, WouldRetry: 5}}; !slices.Equal(r.Rules, want) {
		t.Errorf("limit 2: %+v, want %+v", r.Rules, want)
	}
	if len(r.Jobs) != 2 || r.Jobs[0].JobID != "job1" || r.Jobs[0].RunID != "job1-2" || r.Jobs[0].Decided.Outcome != whatif.Retry || r.Jobs[0].Candidate.Code != "RuleLimit" || !r.Jobs[0].Parts {
		t.Errorf("limit 2: %+v", r.Jobs)
	}
	if r := results[1]; r.Changed != 1 || r.RetriesMore != 1 || r.RetriesFewer != 0 || r.RunsFewer != 0 || r.Jobs[0].RunID != "job2-5" {
		t.Errorf("limit 9: %+v", r)
	}
}

// TestPages: the changes in pages are those in one.
func TestPages(t *testing.T) {
	t.Parallel()
	logs := decided(t, story(t, 4, 4, 4, 4, 4), limited(t, 5), 2, "")
	page := func(o whatif.Options) *whatif.Result {
		o.Candidates = []whatif.Candidate{{Name: "2", Set: limited(t, 2)}}
		results, err := whatif.Run(t.Context(), logs, o)
		if err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	all := page(whatif.Options{Limit: 100})
	var got []string
	for skip, n := 0, 0; ; n++ {
		r := page(whatif.Options{Limit: 2, Skip: skip})
		for _, c := range r.Jobs {
			got = append(got, c.JobID)
		}
		if skip = r.Next; skip == 0 || n > 5 {
			break
		}
	}
	if len(all.Jobs) != 5 || all.Next != 0 || fmt.Sprint(got) != "[job0 job1 job2 job3 job4]" {
		t.Errorf("%v, in one: %+v", got, all.Jobs)
	}
	if r := page(whatif.Options{Limit: 9, Queue: "other"}); r.Compared != 0 || r.Changed != 0 {
		t.Errorf("another queue: %+v", r)
	}
	third := all.Jobs[2]
	if r := page(whatif.Options{Limit: 9, From: atOf(t, third.Time)}); r.Changed != 3 || r.Jobs[0].JobID != "job2" {
		t.Errorf("from the third on: %+v", r)
	}
	if r := page(whatif.Options{Limit: 9, To: atOf(t, third.Time)}); r.Changed != 3 || r.Ended.Open != 1 || r.Ended.Succeeded != 2 {
		t.Errorf("up to the third: %+v", r)
	}
}

func atOf(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixNano()
}

// TestEitherSideIsTheBaseline: what happened is what happened, whichever side is compared with which: the runs behind a retry that
// took place are known, with what became of the job, and so is where the history has none.
func TestEitherSideIsTheBaseline(t *testing.T) {
	t.Parallel()
	// Of five failures each, limit 2 stops at the third; the history retried job0 and job1 further, but job2 ended at its sixth.
	events := story(t, 3, 5, 6, 1)
	run := func(against, candidate int) *whatif.Result {
		results, err := whatif.Run(t.Context(), audit.Logs{Events: &events}, whatif.Options{
			Candidates: []whatif.Candidate{{Name: "candidate", Set: limited(t, candidate)}}, Against: &whatif.Candidate{Name: "against", Set: limited(t, against)}, Semantics: 2, Limit: 10,
		})
		if err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	want := whatif.Outcomes{Succeeded: 2, Failed: 1}
	fewer, more := run(5, 2), run(2, 5)
	if fewer.RetriesFewer != 1+3+3 || fewer.RunsFewer != 7 || fewer.RunSeconds != 420 || fewer.Ended != want || fewer.RetriesMore+fewer.RunsMore != 0 || fewer.RunOn != (whatif.Outcomes{}) {
		t.Errorf("a smaller limit: %+v", fewer)
	}
	if more.RetriesMore != fewer.RetriesFewer || more.RunsMore != fewer.RunsFewer || more.RunSecondsMore != fewer.RunSeconds || more.RunOn != fewer.Ended || more.RetriesFewer+more.RunsFewer != 0 {
		t.Errorf("the other way round: %+v", more)
	}
	// The history has nothing behind the sixth failure of job2.
	if r := run(2, 9); r.RunOn != (whatif.Outcomes{Succeeded: 2, Open: 1}) || r.RetriesMore != 8 {
		t.Errorf("a larger limit than the history's: %+v", r)
	}
	// It fails the job, and ends before the retry that the larger limit grants: that is pending.
	end := events[len(events)-1].Publish
	events = append(events, jobErrors(t, "job2", end))
	if r := run(2, 9); r.RunOn != (whatif.Outcomes{Succeeded: 2, Open: 1}) {
		t.Errorf("a larger limit than the history's, which failed the job at its end: %+v", r)
	}
	// It goes on without that retry.
	later := jobErrors(t, "other", end+int64(time.Hour))
	later.Position.Entry++
	events = append(events, later)
	if r := run(2, 9); r.RunOn != (whatif.Outcomes{Succeeded: 2, Unknown: 1}) {
		t.Errorf("a larger limit than the history's, which failed the job: %+v", r)
	}
	if r := run(9, 2); r.Ended != (whatif.Outcomes{Succeeded: 2, Unknown: 1}) {
		t.Errorf("against a larger limit than the history's, which failed the job: %+v", r)
	}
}

// jobErrors is the verdict of Armada's scheduler on a job.
func jobErrors(t *testing.T, job string, publish int64) eventlog.Message {
	t.Helper()
	e := &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}}}
	payload, err := proto.Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "set", Events: []*pb.Event{{
		Created: &pb.Timestamp{Seconds: publish/1e9 + 1}, Event: &pb.Event_JobErrors{JobErrors: &pb.JobErrors{JobId: job, Errors: []*pb.Error{e}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return eventlog.Message{Position: eventlog.Position{Ledger: 9, Entry: 1 << 20}, Publish: publish + 1e9, Payload: payload}
}
