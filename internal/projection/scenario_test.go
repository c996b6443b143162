package projection

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/refloat/refloat/events"
)

const second = int64(1e9)

// TestFold runs the scenarios in testdata/fold: messages, what is decided on
// the runs that failed in them, and what is remembered.
func TestFold(t *testing.T) {
	datadriven.Walk(t, "testdata/fold", func(t *testing.T, path string) {
		s := newScenario(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			switch d.Cmd {
			case "message":
				// message [t=SECONDS] [queue=Q] [set=S]: folds one message, a second after the
				// last one if t is not named. Its lines are events (see event) and, after ">",
				// the decisions on the runs that are to be decided, in order (see decision).
				// Prints what it brought, and each job and run that changed.
				return s.message()
			case "horizon":
				// horizon SECONDS: a policy set with another horizon came into force.
				s.state.Horizon = s.int(d.CmdArgs[0].Key) * second
				return s.changes()
			case "restart":
				// restart: commits, and goes on with nothing in memory. Prints the store's keys.
				s.restart()
				return s.keys()
			}
			d.Fatalf(t, "no verb is called %q", d.Cmd)
			return ""
		})
	})
}

type scenario struct {
	t      *testing.T
	d      *datadriven.TestData
	store  *Memory
	state  *State
	now    int64 // seconds
	before map[string]string
}

func newScenario(t *testing.T) *scenario {
	s := &scenario{t: t, store: NewMemory(), before: map[string]string{}}
	s.state = newState(t, s.store, NoWatermark, 100*second)
	return s
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newState(t fataler, kv KV, watermark, horizon int64) *State {
	t.Helper()
	state, err := NewState(kv, watermark, horizon)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func (s *scenario) int(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return n
}

func (s *scenario) message() string {
	queue, set, t := "q", "s", s.now+1
	s.d.MaybeScanArgs(s.t, "queue", &queue)
	s.d.MaybeScanArgs(s.t, "set", &set)
	s.d.MaybeScanArgs(s.t, "t", &t)
	s.now = t
	seq, decisions := &events.Sequence{Queue: queue, JobSet: set}, []Decided(nil)
	for line := range strings.Lines(s.d.Input) {
		words := strings.Fields(line)
		if words[0] == ">" {
			decisions = append(decisions, s.decision(words[1:]))
		} else {
			seq.Events = append(seq.Events, s.event(words))
		}
	}
	decide := func(f *Failure) Decided {
		if len(decisions) == 0 {
			s.d.Fatalf(s.t, "no decision is given on %s/%s", f.JobID, f.RunID)
		}
		d := decisions[0]
		decisions = decisions[1:]
		d.RetryAfter, d.ReadyAfter = d.RetryAfter+f.Time, d.ReadyAfter+f.Time
		return d
	}
	seq.Resolve(t * second)
	if err := s.state.Process(seq, Features{Durations: true}, decided{decide: decide}); err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	if len(decisions) > 0 {
		s.d.Fatalf(s.t, "%d decisions too many", len(decisions))
	}
	return s.happened() + s.changes()
}

// decided decides by a function, without groups.
type decided struct {
	Questions
	decide func(f *Failure) Decided
}

func (d decided) Decide(f *Failure) (Decided, error) { return d.decide(f), nil }

// happened shows the effects of the last message.
func (s *scenario) happened() string {
	var b strings.Builder
	for _, e := range s.state.Effects() {
		switch e := e.(type) {
		case *ParkedEvent:
			fmt.Fprintf(&b, "parked event %d: %v\n", e.Event, e.Reason)
		case *Failure:
			fmt.Fprintf(&b, "failed %s/%s: %s, t=%s%s\n", e.JobID, e.RunID, showSkip(e.Skip), seconds(e.Time), showFailure(e))
		case *Readiness:
			fmt.Fprintf(&b, "ready %s/%s: after %s\n", e.JobID, e.RunID, seconds(e.RetryAfter))
		default:
			s.d.Fatalf(s.t, "%T", e)
		}
	}
	return b.String()
}

// event reads a line: a verb, the job, the run where the event has one, and pairs.
func (s *scenario) event(words []string) events.Event {
	ev := events.Event{Raw: []byte(strings.Join(words, " "))}
	var pairs map[string]string
	name := func(n int) { // of n ids; "-" is an empty one
		for len(words) < n+1 {
			words = append(words, "-")
		}
		ids := []*string{&ev.JobID, &ev.RunID}[:n]
		for i, w := range words[1 : n+1] {
			if w != "-" {
				*ids[i] = w
			}
		}
		pairs = pairsOf(words[n+1:])
	}
	switch words[0] {
	case "submit":
		// submit JOB [policies=] [failFast=] [gang=ID/SIZE] [init=A,B] [grace=SECONDS]
		name(1)
		ev.Kind, ev.Submit = events.SubmitJob, &events.Submit{RetryPolicies: pairs["policies"], FailFast: pairs["failFast"]}
		ev.Submit.GangID, ev.Submit.GangCardinality, _ = strings.Cut(pairs["gang"], "/")
		if v := pairs["init"]; v != "" {
			ev.Submit.InitContainers = strings.Split(v, ",")
		}
		if v := pairs["grace"]; v != "" {
			ev.Submit.GraceSeconds = s.int(v)
		}
	case "lease": // lease JOB RUN [node=]
		name(2)
		ev.Kind, ev.Node = events.RunLeased, pairs["node"]
	case "assign": // assign JOB RUN
		name(2)
		ev.Kind = events.RunAssigned
	case "run": // run JOB RUN [node=]: JobRunRunning
		name(2)
		ev.Kind, ev.Node = events.RunRunning, pairs["node"]
	case "succeed": // succeed JOB RUN
		name(2)
		ev.Kind = events.RunSucceeded
	case "fail": // fail JOB RUN [as=pod|returned|attempted|expired|preempted|other] [node=]: JobRunErrors with a terminal error
		name(2)
		ev.Kind, ev.Error = events.RunErrors, errorOf(pairs)
	case "warn": // warn JOB RUN: JobRunErrors without a terminal error
		name(2)
		ev.Kind = events.RunErrors
	case "preempt": // preempt JOB RUN: JobRunPreempted
		name(2)
		ev.Kind = events.RunPreempted
	case "gone": // gone JOB RUN: JobRunTerminated
		name(2)
		ev.Kind = events.RunTerminated
	case "known-run", "ended-run": // known-run JOB RUN [node=]: a run that Armada's tables have; the newest comes first
		name(2)
		ev.Kind, ev.Node = events.KnownRun, pairs["node"]
		if words[0] == "ended-run" {
			ev.Kind = events.EndedRun
		}
	case "cancel": // cancel JOB: CancelJob
		name(1)
		ev.Kind = events.CancelJob
	case "cancelled": // cancelled JOB: CancelledJob
		name(1)
		ev.Kind = events.CancelledJob
	case "cancel-set": // cancel-set [queued] [pending] [running]: CancelJobSet of the message's queue and set
		ev.Kind = events.CancelJobSet
		for _, w := range words[1:] {
			ev.States |= map[string]events.JobStates{"queued": events.Queued, "pending": events.Pending, "running": events.Running}[w]
		}
	case "finish": // finish JOB: JobSucceeded
		name(1)
		ev.Kind = events.JobSucceeded
	case "verdict": // verdict JOB: JobErrors with a terminal error, the scheduler's own
		name(1)
		ev.Kind, ev.Error = events.JobErrors, &events.Error{}
	case "reject": // reject JOB: JobErrors with a terminal JobRejected
		name(1)
		ev.Kind, ev.Error = events.JobErrors, &events.Error{Reason: events.JobRejected}
	case "note": // note JOB: JobErrors without a terminal error
		name(1)
		ev.Kind = events.JobErrors
	case "other": // other: an event of a kind that changes nothing
		name(0)
	default:
		s.d.Fatalf(s.t, "no event is called %q", words[0])
	}
	at := s.now
	if v, ok := pairs["at"]; ok { // at=SECONDS: the event's own time, where it is not the message's
		at = s.int(v)
	}
	ev.Created = events.Timestamp{Present: true, Seconds: at}
	return ev
}

func errorOf(pairs map[string]string) *events.Error {
	e := &events.Error{Node: pairs["node"]}
	switch pairs["as"] {
	case "", "pod":
		e.Reason = events.PodError
	case "returned":
		e.Reason = events.PodLeaseReturned
	case "attempted":
		e.Reason, e.RunAttempted = events.PodLeaseReturned, true
	case "expired":
		e.Reason = events.LeaseExpired
	case "preempted":
		e.Reason = events.PreemptedError
	}
	return e
}

// decision reads requeue [rule=POLICY/RULE] [ignored] [delay=S] [grace=S] [shadow], where
// grace is what proof takes off the delay, or refuse [shadow].
func (s *scenario) decision(words []string) Decided {
	pairs := pairsOf(words[1:])
	_, shadow := pairs["shadow"]
	d := Decided{Requeue: words[0] == "requeue", Shadow: shadow}
	if !d.Requeue {
		return d
	}
	d.Policy, d.Rule, _ = strings.Cut(pairs["rule"], "/")
	_, d.Ignored = pairs["ignored"]
	delay, grace := int64(0), int64(0)
	if v := pairs["delay"]; v != "" {
		delay = s.int(v)
	}
	if v := pairs["grace"]; v != "" {
		grace = s.int(v)
	}
	d.RetryAfter, d.ReadyAfter = delay*second, (delay-grace)*second // from t on
	return d
}

func pairsOf(words []string) map[string]string {
	pairs := map[string]string{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		pairs[key] = value
	}
	return pairs
}

// changes are the lines of all that is remembered that were not there before,
// and those that are gone.
func (s *scenario) changes() string {
	var b strings.Builder
	now := s.remembered()
	for _, name := range slices.Sorted(maps.Keys(s.before)) {
		if _, ok := now[name]; !ok {
			fmt.Fprintf(&b, "forgotten: %s\n", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if s.before[name] != now[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, now[name])
		}
	}
	s.before = now
	if b.Len() == 0 {
		return "nothing changed\n"
	}
	return b.String()
}

// remembered is the state, in memory and in the store, one line for each job and run.
func (s *scenario) remembered() map[string]string {
	ids := map[string]bool{}
	for id := range s.state.recent {
		ids[id] = true
	}
	for id := range s.state.older {
		ids[id] = true
	}
	_ = s.store.Scan([]byte{jobKey}, []byte{jobKey + 1}, func(key, _ []byte) bool { ids[string(key[1:])] = true; return true })
	out := map[string]string{}
	for id := range ids {
		e := s.state.entry(id)
		if e.job == nil {
			continue
		}
		out["job "+id] = showJob(e.job)
		if r := e.job.Latest; r != nil {
			out["run "+id+"/"+r.ID] = showRun(r) + " latest"
		}
		prefix := appendRunPrefix(nil, id)
		_ = s.store.Scan(prefix, after(prefix), func(key, _ []byte) bool {
			if run := string(key[len(prefix):]); !e.whole {
				s.state.run(e, run) // loads it, if it is neither in memory nor the latest
			}
			return true
		})
		for _, r := range e.runs {
			out["run "+id+"/"+r.ID] = showRun(r)
		}
	}
	return out
}

func (s *scenario) restart() {
	b := s.store.NewBatch()
	n, err := s.state.Flush(b)
	if err == nil {
		err = s.store.Commit(b, nil)
	}
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	s.state.Committed(n)
	s.state = newState(s.t, s.store, s.state.Watermark, s.state.Horizon)
	if got := s.remembered(); !maps.Equal(got, s.before) {
		s.d.Fatalf(s.t, "remembered after a restart:\n%v\nbefore:\n%v", got, s.before)
	}
}

func (s *scenario) keys() string {
	var b strings.Builder
	_ = s.store.Scan([]byte{0}, []byte{0xff}, func(key, _ []byte) bool {
		fmt.Fprintf(&b, "%s\n", showKey(key))
		return true
	})
	if b.Len() == 0 {
		return "an empty store\n"
	}
	return b.String()
}

func showKey(key []byte) string {
	if t, job, ok := splitForgetKey(key); ok {
		return fmt.Sprintf("forget %s %d horizons after %s", job, t.weight, seconds(t.base))
	}
	kind := map[byte]string{jobKey: "job", runKey: "run", setKey: "set"}[key[0]]
	return kind + " " + string(bytes.ReplaceAll(key[1:], []byte{0, 1}, []byte(" ")))
}

func seconds(ns int64) string { return strconv.FormatFloat(float64(ns)/float64(second), 'f', -1, 64) }

func showSkip(s Skip) string {
	return [...]string{Decide: "decide", StaleRun: "StaleRun", Cancelled: "Cancelled", Ended: "Ended", UnknownJob: "UnknownJob"}[s]
}

func showFailure(f *Failure) string {
	var b strings.Builder
	if f.Node != "" {
		b.WriteString(" node=" + f.Node)
	}
	if f.Preempted {
		b.WriteString(" preempted")
	}
	if f.Error == nil {
		b.WriteString(" no-error")
	}
	if f.Ran {
		b.WriteString(" since=" + seconds(f.RunningSince))
	}
	return b.String()
}

// showJob is a job in one line; what is empty is left out.
func showJob(j *Job) string {
	var b strings.Builder
	if j.Known {
		fmt.Fprintf(&b, "%s/%s", j.Queue, j.Set)
	} else {
		fmt.Fprintf(&b, "not submitted, since %s", seconds(j.FirstSeen))
	}
	fmt.Fprintf(&b, " runs=%d open=%d", j.Runs, j.Open)
	for _, f := range []struct{ name, value string }{{"policies", j.RetryPolicies}, {"gang", j.GangID}, {"size", j.GangSize}} {
		if f.value != "" {
			fmt.Fprintf(&b, " %s=%s", f.name, f.value)
		}
	}
	if len(j.InitContainers) > 0 {
		fmt.Fprintf(&b, " init=%v", j.InitContainers)
	}
	if j.GraceSeconds != 0 {
		fmt.Fprintf(&b, " grace=%d", j.GraceSeconds)
	}
	if len(j.FailedNodes) > 0 {
		fmt.Fprintf(&b, " failed-on=%v", j.FailedNodes)
	}
	for _, r := range j.Rules {
		fmt.Fprintf(&b, " %s/%s=%d", r.Policy, r.Rule, r.Granted)
		if r.Ignored > 0 {
			fmt.Fprintf(&b, "+%d", r.Ignored)
		}
	}
	for _, f := range []struct {
		name  string
		value uint32
	}{{"granted", j.Granted}, {"legacy", j.LegacyReturns}} {
		if f.value != 0 {
			fmt.Fprintf(&b, " %s=%d", f.name, f.value)
		}
	}
	b.WriteString(flags("failFast", j.FailFast, "cancel-requested", j.CancelRequested, "cancelled", j.Cancelled))
	if j.Ended {
		b.WriteString(" ended@" + seconds(j.EndedAt))
	}
	if j.Verdict {
		b.WriteString(" verdict@" + seconds(j.VerdictAt))
	}
	return b.String()
}

// showRun is a run in one line; what is empty is left out.
func showRun(r *Run) string {
	var b strings.Builder
	if r.Seen {
		fmt.Fprintf(&b, "#%d %s", r.Index, [...]string{"open", "succeeded", "failed"}[r.End])
	} else {
		b.WriteString("not seen")
	}
	if r.LeasedNode != "" {
		b.WriteString(" leased=" + r.LeasedNode)
	}
	if r.RunningNode != "" {
		b.WriteString(" running=" + r.RunningNode)
	}
	if r.Running {
		b.WriteString(" since=" + seconds(r.RunningSince))
	}
	b.WriteString(flags("preempted", r.Preempted, "returned", r.Returned, "attempted", r.Attempted, "gone", r.Gone))
	if r.Outcome != Undecided {
		b.WriteString(" " + [...]string{"", "requeued", "refused", "left alone"}[r.Outcome])
	}
	if r.Outcome == Requeued {
		fmt.Fprintf(&b, " after=%s", seconds(r.RetryAfter))
		if r.ReadyAfter != r.RetryAfter {
			fmt.Fprintf(&b, " ready=%s", seconds(r.ReadyAfter))
		}
	}
	return b.String()
}

func flags(pairs ...any) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1].(bool) {
			b.WriteString(" " + pairs[i].(string))
		}
	}
	return b.String()
}
