package evaluator_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
)

// scenarioStart is when the scenarios of groups begin: 2027-01-15T08:00:00Z.
const scenarioStart = 1_800_000_000

// TestGroupScenarios runs the scenarios in testdata/groups under each version of the semantics that
// has groups. Each history is then decided in more ways, which must give the same bytes and leave the
// same state: with the state read back before each message, and from the log alone, replayed and rebuilt.
func TestGroupScenarios(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/groups", func(t *testing.T, path string) {
		s := &groupScenario{t: t}
		for version := uint32(3); version <= evaluator.SemanticsVersion; version++ {
			s.worlds = append(s.worlds, newGroupWorld(t, version))
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			switch d.Cmd {
			case "policies":
				// policies: puts the policy files in its lines into force.
				s.use(d.Input)
				return ""
			case "message":
				// message [t=SECONDS]: a message, one second after the last one if t is not named. Its lines
				// are events (see event). Prints its records, by version where the versions differ.
				return s.message()
			case "restart":
				// restart: a newer version is activated in the oldest of the worlds.
				s.worlds[0].activate(evaluator.SemanticsVersion)
				return ""
			}
			d.Fatalf(t, "no verb is called %q", d.Cmd)
			return ""
		})
		for _, w := range s.worlds {
			w.again(t, reloadedWay)
			w.again(t, replayedWay)
			w.again(t, rebuiltWay)
		}
	})
}

type groupScenario struct {
	t      *testing.T
	d      *datadriven.TestData
	now    int64
	worlds []*groupWorld
}

// groupWorld is a scenario under one version of the semantics.
type groupWorld struct {
	version uint32 // with which it began
	store   *projection.Memory
	p       *evaluator.Processor
	steps   []groupStep
}

// groupStep is something that happened: an activation, or a message with its records.
type groupStep struct {
	rules   *evaluator.Rules // of an activation of policies
	front   []chain.Record
	message *eventlog.Message
	out     evaluator.Logged
}

func newGroupWorld(t *testing.T, version uint32) *groupWorld {
	t.Helper()
	w := &groupWorld{version: version, store: projection.NewMemory()}
	state, err := projection.NewState(w.store, projection.NoWatermark, evaluator.DefaultHorizon)
	if err != nil {
		t.Fatal(err)
	}
	w.p = &evaluator.Processor{State: state}
	w.activate(version)
	return w
}

func (w *groupWorld) activate(version uint32) {
	w.apply(groupStep{front: []chain.Record{&chain.SemanticsActivated{Version: version}}})
}

func (w *groupWorld) apply(s groupStep) {
	if s.rules != nil {
		w.p.Rules = *s.rules
	}
	w.p.Activate(s.front)
	w.steps = append(w.steps, s)
}

func (s *groupScenario) use(text string) {
	set, err := parse([]model.File{{Name: "scenario.yaml", Data: []byte(text)}})
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	for _, w := range s.worlds {
		generation := w.p.Progress.Generation + 1
		w.apply(groupStep{
			rules: &evaluator.Rules{Generation: generation, Set: set.Set},
			front: []chain.Record{&chain.PolicyActivated{Generation: generation, Digest: set.Digest(), HorizonMS: set.Horizon().Milliseconds()}},
		})
	}
}

func (s *groupScenario) message() string {
	at := s.now + 1
	s.d.MaybeScanArgs(s.t, "t", &at)
	s.now = at
	var happened []*pb.Event
	for line := range strings.Lines(s.d.Input) {
		happened = append(happened, s.event(strings.Fields(line)))
	}
	m := hostileMessage(s.t, int(at), happened)
	printed := make([]string, len(s.worlds))
	for i, w := range s.worlds {
		step := groupStep{message: &eventlog.Message{Position: eventlog.Position{Ledger: 1, Entry: int64(len(w.steps)), Batch: -1}, Publish: (scenarioStart + at) * 1e9, Payload: m.Payload}}
		out, err := w.p.Step(step.message)
		if err != nil {
			s.d.Fatalf(s.t, "version %d: %v", w.version, err)
		}
		step.out = clone(out.Records, out.Bytes)
		w.steps = append(w.steps, step)
		for _, r := range step.out.Records {
			printed[i] += groupLine(r) + "\n"
		}
	}
	if !slices.ContainsFunc(printed, func(text string) bool { return text != printed[0] }) {
		return printed[0]
	}
	all := ""
	for i, text := range printed {
		if i > 1 && text == printed[i-1] {
			continue // as the version before
		}
		if text == "" {
			text = "nothing\n"
		}
		all += fmt.Sprintf("version %d:\n  %s\n", s.worlds[i].version, strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  "))
	}
	return all
}

// event reads one event:
//
//	submit JOB [group=G] [group-policy=P] [part=P] [replica=N] [index=N] [gang=ID/SIZE] [grace=SECONDS]
//	lease|running|fail|expire|preempt|succeed|terminated JOB RUN
//	cancel JOB
func (s *groupScenario) event(words []string) *pb.Event {
	job := words[1]
	run := ""
	if len(words) > 2 {
		run = words[2]
	}
	switch words[0] {
	case "submit":
		submitted := hostile{"id": job}
		grace := int64(0)
		for _, word := range words[2:] {
			name, value, _ := strings.Cut(word, "=")
			switch name {
			case "gang":
				submitted["armadaproject.io/gangId"], submitted["armadaproject.io/gangCardinality"], _ = strings.Cut(value, "/")
			case "grace":
				grace, _ = strconv.ParseInt(value, 10, 64)
			default:
				submitted[name] = value
			}
		}
		ev := submitted.submission(0)
		ev.GetSubmitJob().MainObject = &pb.KubernetesMainObject{PodSpec: &pb.PodSpecWithAvoidList{PodSpec: &pb.PodSpec{TerminationGracePeriodSeconds: grace}}}
		return ev
	case "lease":
		return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run}}}
	case "running":
		return &pb.Event{Event: &pb.Event_JobRunRunning{JobRunRunning: &pb.JobRunRunning{JobId: job, RunId: run}}}
	case "fail", "expire":
		failed := &pb.Error{Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{}}}
		if words[0] == "expire" {
			failed.Reason = &pb.Error_LeaseExpired{LeaseExpired: &pb.LeaseExpired{}}
		}
		return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{failed}}}}
	case "preempt":
		return &pb.Event{Event: &pb.Event_JobRunPreempted{JobRunPreempted: &pb.JobRunPreempted{PreemptedJobId: job, PreemptedRunId: run}}}
	case "succeed":
		return &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: run}}}
	case "terminated":
		return &pb.Event{Event: &pb.Event_JobRunTerminated{JobRunTerminated: &pb.JobRunTerminated{JobId: job, RunId: run}}}
	case "cancel":
		return &pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: job}}}
	}
	s.d.Fatalf(s.t, "no event is called %q", words[0])
	return nil
}

// groupLine renders a record; times are seconds after the start.
func groupLine(r chain.Record) string {
	after := func(at int64) string { return time.Duration(at - scenarioStart*1e9).String() }
	place := func(m *chain.Member) string { return fmt.Sprintf("%s %s/%d", m.Group, m.Part, m.Replica) }
	verdict := func(v *chain.GroupVerdict) string {
		line := fmt.Sprintf("%s, %s", v.Reason, v.Action)
		if v.Rule != "" {
			line += " by " + v.Rule
		}
		return line + fmt.Sprintf(", %d/%d", v.RestartsUsed, v.MaxRestarts)
	}
	switch r := r.(type) {
	case *chain.Decision:
		line := fmt.Sprintf("JobFailed %s/%s %s", r.JobID, r.RunID, r.Code)
		if r.Requeue {
			line = fmt.Sprintf("JobRequeued %s/%s %s after %s, delay %v", r.JobID, r.RunID, r.Code, after(r.RetryAfter), time.Duration(r.DelayMS)*time.Millisecond)
			if r.ReadyAfter != r.RetryAfter {
				line += ", with proof " + after(r.ReadyAfter)
			}
		}
		if r.Group != nil {
			line += fmt.Sprintf(" (%s: %s)", place(r.Member), verdict(r.Group))
		}
		return line
	case *chain.NotDecided:
		return fmt.Sprintf("NotDecided %s/%s %s", r.JobID, r.RunID, r.Reason)
	case *chain.RetryReady:
		return fmt.Sprintf("RetryReady %s/%s after %s", r.JobID, r.RunID, after(r.RetryAfter))
	case *chain.GroupBound:
		return fmt.Sprintf("GroupBound %s by %s", r.Group, r.JobID)
	case *chain.GroupFinding:
		return fmt.Sprintf("GroupFinding %s: %s %s", r.Group, r.JobID, r.Reason)
	case *chain.MemberChange:
		line := fmt.Sprintf("%s %s (%s/%d)", r.Change, r.JobID, place(&r.Member), r.Member.Index)
		if r.Change == chain.MemberRestart {
			line += " after " + after(r.RetryAfter)
		}
		return line
	case *chain.UnitEnded:
		return fmt.Sprintf("UnitEnded %s: %s", place(&r.Member), verdict(&r.Verdict))
	case *chain.GroupEnded:
		return fmt.Sprintf("GroupEnded %s: %s %s", r.Group, r.State, r.Reason)
	}
	return fmt.Sprintf("%T", r)
}

// The ways to decide a history again: from the policies, or from the log alone.
const (
	reloadedWay = "reloaded"
	replayedWay = "replayed"
	rebuiltWay  = "rebuilt"
)

// again decides the history again, with the state read back before each message.
func (w *groupWorld) again(t *testing.T, way string) {
	t.Helper()
	store := projection.NewMemory()
	state, err := projection.NewState(store, projection.NoWatermark, evaluator.DefaultHorizon)
	if err != nil {
		t.Fatal(err)
	}
	p := &evaluator.Processor{State: state}
	for i, s := range w.steps {
		if s.rules != nil && way == reloadedWay {
			p.Rules = *s.rules
		}
		p.Activate(s.front)
		if s.message == nil {
			continue
		}
		if p.State, err = reloaded(store, p.State); err != nil {
			t.Fatal(err)
		}
		switch way {
		case rebuiltWay:
			if err := p.Rebuild([]eventlog.Message{*s.message}, &s.out); err != nil {
				t.Fatalf("version %d, %s, step %d: %v", w.version, way, i, err)
			}
			continue
		case replayedWay:
			rest := s.out
			if err := p.Replay(s.message, &rest); err != nil || len(rest.Records) > 0 {
				t.Fatalf("version %d, %s, step %d: %d records left, %v", w.version, way, i, len(rest.Records), err)
			}
			continue
		}
		out, err := p.Step(s.message)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(s.out.Bytes, clone(out.Records, out.Bytes).Bytes) {
			t.Fatalf("version %d, %s, step %d (-live +again):\n%s", w.version, way, i, cmp.Diff(rendered(s.out.Records), rendered(out.Records)))
		}
	}
	for _, s := range []struct {
		store *projection.Memory
		state *projection.State
	}{{w.store, w.p.State}, {store, p.State}} {
		if _, err := reloaded(s.store, s.state); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(stored(t, w.store), stored(t, store)); diff != "" {
		t.Errorf("version %d, %s: the state at the end (-live +again):\n%s", w.version, way, diff)
	}
}

// TestRebuiltFollower: a state that is rebuilt from the message on in which a second group was
// bound knows it by its name in the log, so that the next member joins it.
func TestRebuiltFollower(t *testing.T) {
	t.Parallel()
	in := func(job string) *pb.Event {
		return hostile{"id": job, "group": "g", "group-policy": "pair"}.submission(0)
	}
	s := &groupScenario{t: t, worlds: []*groupWorld{newGroupWorld(t, evaluator.SemanticsVersion)}}
	s.use(hostileGroups)
	whole := s.worlds[0]
	step := func(p *evaluator.Processor, n int, happened ...*pb.Event) (*eventlog.Message, evaluator.Logged) {
		t.Helper()
		m := hostileMessage(t, n, happened)
		message := &eventlog.Message{Position: eventlog.Position{Ledger: 1, Entry: int64(n), Batch: -1}, Publish: m.Publish, Payload: m.Payload}
		out, err := p.Step(message)
		if err != nil {
			t.Fatal(err)
		}
		return message, clone(out.Records, out.Bytes)
	}
	cancel := &pb.Event{Event: &pb.Event_CancelJob{CancelJob: &pb.CancelJob{JobId: "a0"}}}
	step(whole.p, 0, in("a0"), in("a1"))
	step(whole.p, 1, cancel)
	message, logged := step(whole.p, 2, in("b0"))

	rest := newGroupWorld(t, evaluator.SemanticsVersion)
	rest.p.Rules = whole.p.Rules
	if err := rest.p.Rebuild([]eventlog.Message{*message}, &logged); err != nil {
		t.Fatal(err)
	}
	var got []string
	_, logged = step(rest.p, 3, in("b1"))
	for _, r := range logged.Records {
		got = append(got, groupLine(r))
	}
	if want := []string{"MemberJoined b1 (g#2 main/0/1)"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRebuiltRestarts: a state that is rebuilt from an envelope is that of the owner which wrote it,
// also where the envelope restarts a member twice, in two messages or in one.
func TestRebuiltRestarts(t *testing.T) {
	t.Parallel()
	s := &groupScenario{t: t, worlds: []*groupWorld{newGroupWorld(t, evaluator.SemanticsVersion)}}
	s.use("kind: RetrySettings\nspec: {mode: Enforce}\n---\napiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: flow}\n" +
		"spec:\n  maxRestarts: 5\n  backoff: {initialDelay: 2s}\n  parts: [{name: main, replicas: 3}]\n")
	whole := s.worlds[0]
	var messages []eventlog.Message
	var envelope evaluator.Logged
	for _, lines := range [][]string{
		{"submit a group=g group-policy=flow", "submit b group=g group-policy=flow replica=1", "submit c group=g group-policy=flow replica=2"},
		{"lease a a0", "lease b b0", "lease c c0"},
		{"fail a a0"},
		{"lease a a1", "lease b b1"},
		{"fail a a1", "fail b b1"},
		{"lease a a2", "lease b b2"},
		{"fail a a2", "lease c c1", "fail b b2", "fail c c1"},
	} {
		var happened []*pb.Event
		for _, line := range lines {
			happened = append(happened, s.event(strings.Fields(line)))
		}
		n := len(messages)
		m := hostileMessage(t, n, happened)
		messages = append(messages, eventlog.Message{Position: eventlog.Position{Ledger: 1, Entry: int64(n), Batch: -1}, Publish: m.Publish, Payload: m.Payload})
		out, err := whole.p.Step(&messages[n])
		if err != nil {
			t.Fatal(err)
		}
		printed := clone(out.Records, out.Bytes)
		envelope.Records, envelope.Bytes = append(envelope.Records, printed.Records...), append(envelope.Bytes, printed.Bytes...)
	}
	times := map[string]map[int64]bool{}
	for _, r := range envelope.Records {
		if r, ok := r.(*chain.MemberChange); ok && r.Change == chain.MemberRestart && r.JobID == "c" {
			at := fmt.Sprint(r.Position)
			if times[at] == nil {
				times[at] = map[int64]bool{}
			}
			times[at][r.RetryAfter] = true
		}
	}
	if len(times) < 2 {
		t.Fatalf("restarts of c: %v", times)
	}
	rest := newGroupWorld(t, evaluator.SemanticsVersion)
	if err := rest.p.Rebuild(messages, &envelope); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*groupWorld{whole, rest} {
		if _, err := reloaded(w.store, w.p.State); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(stored(t, whole.store), stored(t, rest.store)); diff != "" {
		t.Errorf("-written +rebuilt:\n%s", diff)
	}
}
