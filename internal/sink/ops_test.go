package sink_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// TestOps runs the scenarios in testdata/ops. Each file is one partition; each
// message gets an envelope of its own. Everything goes three ways, which must
// agree: folded in memory, written by writers that start anew for each message,
// and by one that keeps everything in memory.
func TestOps(t *testing.T) {
	datadriven.Walk(t, "testdata/ops", func(t *testing.T, path string) {
		s := newScenario(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			switch d.Cmd {
			case "apply":
				// apply [queue=Q] [set=S] [t=SECONDS] [garbage]: one message; its lines are
				// events and, after ">", the records that answer it (build_test.go has
				// them). Prints each row that it changed.
				return s.apply(d)
			case "unanswered":
				// unanswered [queue=Q] [set=S] [t=SECONDS] [garbage]: a message as of apply, but no envelope
				// answers it yet.
				s.publish(d)
				return s.step()
			case "release":
				// release [t=SECONDS]: time passes until what was published up to then (default:
				// all) must wait no longer.
				return s.release(d)
			case "answer":
				// answer [messages=N]: an envelope for the first N (default: all) of the
				// messages that are not answered.
				return s.answer(d)
			case "activate":
				// activate generation=N | semantics=N: an envelope without input.
				return s.activate(d)
			case "costs":
				// costs: prints what runs held since the last time.
				return s.costs()
			case "job":
				// job ID: prints all of a job and its runs.
				return s.job(d.CmdArgs[0].Key)
			}
			d.Fatalf(t, "no verb is called %q", d.Cmd)
			return ""
		})
	})
}

type scenario struct {
	t                 *testing.T
	events, decisions *memTopic
	chain             *chainWriter
	writers           []*sink.Writer
	stores            []*memStore
	now               int64
	clock             time.Time
	waiting           []waiting // not answered
	before            *jobdb.Contents
	seen              int // costs
}

// waiting is a message that no envelope answers yet.
type waiting struct {
	at      eventlog.Position
	records []chain.Record
}

const releaseAfter = 8 * time.Nanosecond

func newScenario(t *testing.T) *scenario {
	s := &scenario{t: t, events: newTopic(1), decisions: newTopic(1), before: &jobdb.Contents{}}
	s.chain = newChain(t, s.decisions, 0)
	s.stores = []*memStore{newMemStore(), newMemStore()}
	s.writers = []*sink.Writer{s.writer(0), s.writer(1)}
	return s
}

func (s *scenario) writer(i int) *sink.Writer {
	w, err := sink.New(sink.Config{
		Events: s.events, Decisions: s.decisions, DB: s.stores[i], KeepRows: 1 << 20,
		ReleaseAfter: releaseAfter, Now: func() time.Time { return s.clock },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

func (s *scenario) apply(d *datadriven.TestData) string {
	s.publish(d)
	return s.answer(d)
}

func (s *scenario) answer(d *datadriven.TestData) string {
	n := len(s.waiting)
	d.MaybeScanArgs(s.t, "messages", &n)
	var records []chain.Record
	for _, m := range s.waiting[:n] {
		records = append(records, m.records...)
	}
	s.chain.answer(s.waiting[n-1].at, n, records...)
	s.waiting = s.waiting[n:]
	return s.step()
}

func (s *scenario) release(d *datadriven.TestData) string {
	t := s.now / second
	d.MaybeScanArgs(s.t, "t", &t)
	s.clock = time.Unix(t, 0).Add(releaseAfter)
	return s.step()
}

// publish appends a message to events.
func (s *scenario) publish(d *datadriven.TestData) {
	queue, set, t := "q", "s", s.now/second+1
	d.MaybeScanArgs(s.t, "queue", &queue)
	d.MaybeScanArgs(s.t, "set", &set)
	d.MaybeScanArgs(s.t, "t", &t)
	s.now = t * second
	at := eventlog.Position{Ledger: 1, Entry: int64(len(s.events.parts[0].messages)) + 1, Batch: -1}
	m, records := build(queue, set, strings.Split(d.Input, "\n"), at, s.now)
	if d.HasArg("garbage") {
		m.Payload = []byte("\xff\xffgarbage")
	}
	s.events.append(0, m)
	s.waiting = append(s.waiting, waiting{at: at, records: records})
}

func (s *scenario) activate(d *datadriven.TestData) string {
	var generation, semantics uint64
	d.MaybeScanArgs(s.t, "generation", &generation)
	d.MaybeScanArgs(s.t, "semantics", &semantics)
	var r chain.Record = &chain.PolicyActivated{Generation: generation, HorizonMS: 1000}
	if semantics != 0 {
		r = &chain.SemanticsActivated{Version: uint32(semantics)}
	}
	s.chain.answer(s.chain.end.InTo, 0, r)
	return s.step()
}

// step lets all ways take what came, compares them and prints what changed.
func (s *scenario) step() string {
	var want *jobdb.Contents
	for i, w := range s.writers {
		_, err := w.Advance(context.Background(), 0)
		if err == nil {
			want, err = sink.Fold(s.events, s.decisions, 0, 0, s.stores[i].contents(0).Releases...)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		for _, diff := range sink.Compare(want, s.stores[i].contents(0)) {
			s.t.Errorf("writer %d: %v", i, diff)
		}
	}
	s.writers[0] = s.writer(0)
	out := s.changes(want)
	s.before = want
	return out
}

func (s *scenario) changes(now *jobdb.Contents) string {
	var b strings.Builder
	old := map[string]string{}
	for _, j := range s.before.Jobs {
		old["job "+j.JobID] = showJob(j)
	}
	for _, r := range s.before.Runs {
		old["run "+r.JobID+" "+r.RunID] = showRun(r)
	}
	for _, j := range now.Jobs {
		if line := showJob(j); old["job "+j.JobID] != line {
			b.WriteString(line)
		}
	}
	for _, r := range now.Runs {
		if line := showRun(r); old["run "+r.JobID+" "+r.RunID] != line {
			b.WriteString(line)
		}
	}
	for _, g := range s.before.Groups {
		old["group "+g.ID] = showGroup(g)
	}
	for _, u := range s.before.Units {
		old["unit "+u.ID] = showUnit(u)
	}
	for _, g := range now.Groups {
		if line := showGroup(g); old["group "+g.ID] != line {
			b.WriteString(line)
		}
	}
	for _, u := range now.Units {
		if line := showUnit(u); old["unit "+u.ID] != line {
			b.WriteString(line)
		}
	}
	for _, r := range now.GroupRecords[len(s.before.GroupRecords):] {
		if rec, err := r.Record(); err != nil || jobdb.NewGroupRecord(rec).Name != r.Name {
			s.t.Errorf("record %+v: %v", r, err)
		}
		fmt.Fprintf(&b, "%s %s acted=%v%s\n", r.Name, r.JobID, r.Acted, superseded(&r.Where))
	}
	for _, d := range now.Decisions[len(s.before.Decisions):] {
		fmt.Fprintf(&b, "decision %d on %s/%s: requeue=%v shadow=%v acted=%v%s\n", d.Number, d.JobID, d.RunID, d.Requeue, d.Shadow, d.Acted, superseded(&d.Where))
	}
	for _, n := range now.NotDecided[len(s.before.NotDecided):] {
		fmt.Fprintf(&b, "not decided %s/%s: %v%s\n", n.JobID, n.RunID, n.Reason, superseded(&n.Where))
	}
	for _, r := range now.Ready[len(s.before.Ready):] {
		fmt.Fprintf(&b, "ready %s/%s: %s acted=%v%s\n", r.JobID, r.RunID, seconds(r.RetryAfter), r.Acted, superseded(&r.Where))
	}
	for _, p := range now.Parked[len(s.before.Parked):] {
		fmt.Fprintf(&b, "parked %v event %d: %q%s\n", p.Reason, p.Event, p.Raw, superseded(&p.Where))
	}
	for _, r := range now.Releases[len(s.before.Releases):] {
		fmt.Fprintf(&b, "release after envelope %d: %d messages, %d to %d\n", r.Seq, r.Messages, r.From.Entry, r.To.Entry)
	}
	for _, a := range now.Activations[len(s.before.Activations):] {
		fmt.Fprintf(&b, "activation: generation %d, semantics %d from %v\n", a.Generation, a.Semantics, a.From)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func (s *scenario) costs() string {
	var out [2]strings.Builder
	for i, store := range s.stores {
		for _, c := range store.rest[0].Costs[s.seen:] {
			fmt.Fprintf(&out[i], "%v of %s for %+v at %s: cpu=%d memory=%d gpu=%d unknown=%d\n", c.Kind, c.Queue, c.Cause, seconds(c.Ended), c.CPU, c.Memory, c.GPU, c.Unknown)
		}
	}
	if out[0].String() != out[1].String() {
		s.t.Errorf("a writer that keeps everything in memory says\n%s", out[1].String())
	}
	s.seen = len(s.stores[0].rest[0].Costs)
	return out[0].String()
}

func superseded(w *jobdb.Where) string {
	if w.Superseded {
		return " superseded"
	}
	return ""
}

func (s *scenario) job(id string) string {
	var b strings.Builder
	for _, j := range s.before.Jobs {
		if j.JobID == id {
			b.WriteString(showJob(j))
			fmt.Fprintf(&b, "  submit: %+v\n  armada: %+v\n", j.Submit, j.Armada)
		}
	}
	for _, r := range s.before.Runs {
		if r.JobID == id {
			e := r.Error
			e.Raw = nil
			b.WriteString(showRun(r))
			fmt.Fprintf(&b, "  executor=%q pool=%q error: %+v raw: %d bytes\n", r.Executor, r.Pool, e, len(r.Error.Raw))
		}
	}
	return b.String()
}

func seconds(ns int64) string { return fmt.Sprintf("%gs", float64(ns)/float64(second)) }

// showJob is a job in one line; what is empty is left out.
func showJob(j *jobdb.Job) string {
	q := &j.Queueing
	line := fmt.Sprintf("job %s: %v v%d", j.JobID, j.State, q.Version)
	for _, f := range []struct {
		name string
		show bool
	}{{"final", j.Final}, {"unsubmitted", !j.Known}, {"cancel-requested", j.CancelRequested}} {
		if f.show {
			line += " " + f.name
		}
	}
	line += fmt.Sprintf(" %s/%s", j.Queue, j.JobSet)
	if q.Priority != 0 {
		line += fmt.Sprintf(" priority=%d", q.Priority)
	}
	if q.RetryAfter != 0 {
		line += " after=" + seconds(q.RetryAfter)
	}
	if len(q.AvoidNodes) > 0 {
		line += fmt.Sprintf(" avoid=%v", q.AvoidNodes)
	}
	if q.Runs > 0 {
		line += fmt.Sprintf(" runs=%d/%d latest=%s", q.OpenRuns, q.Runs, q.LatestRun)
	}
	if q.Decision != 0 {
		line += fmt.Sprintf(" decision=%d", q.Decision)
	}
	if j.Times.Ended != 0 {
		line += " ended=" + seconds(j.Times.Ended)
	}
	if m := &j.Member; m.GroupID != "" {
		line += fmt.Sprintf(" member=%s/%s/%d/%d gen=%d %v", m.Group, m.Part, m.Replica, m.Index, m.Generation, m.State)
		if m.Restarting {
			line += " restarting"
		}
	}
	if j.Armada.Failed {
		line += fmt.Sprintf(" armada-failed=%s/%s@%s", j.Armada.Reason, j.Armada.RunID, seconds(j.Armada.At))
	}
	return line + "\n"
}

// showGroup is a group in one line.
func showGroup(g *jobdb.Group) string {
	line := fmt.Sprintf("group %s: %v policy=%q gen=%d restarts=%d counted=%d/%d", g.Name, g.State, g.Policy, g.Generation, g.Restarts, g.Counted, g.MaxRestarts)
	if g.Reason != 0 || g.Rule != "" {
		line += fmt.Sprintf(" reason=%v rule=%q", g.Reason, g.Rule)
	}
	return line + "\n"
}

// showUnit is a unit in one line.
func showUnit(u *jobdb.Unit) string {
	return fmt.Sprintf("unit %s/%d: %v %v gen=%d restarts=%d retries=%d taken=%s\n", u.Part, u.Replica, u.State, u.Reason, u.Generation, u.Restarts, u.Retries, u.Taken)
}

// showRun is a run in one line; what is empty is left out.
func showRun(r *jobdb.Run) string {
	line := fmt.Sprintf("run %s/%s #%d: %v", r.JobID, r.RunID, r.Index, r.State)
	for _, f := range []struct {
		name string
		show bool
	}{{"preempted", r.Flags.Preempted}, {"returned", r.Flags.Returned}, {"attempted", r.Flags.Attempted}, {"cancelled", r.Flags.Cancelled}, {"shadow", r.Shadow}} {
		if f.show {
			line += " " + f.name
		}
	}
	if r.Node != "" {
		line += " node=" + r.Node
	}
	for _, f := range []struct {
		name string
		at   int64
	}{{"leased", r.Times.Leased}, {"pending", r.Times.Pending}, {"running", r.Times.Running}, {"preempted", r.Times.Preempted}, {"ended", r.Times.Ended}, {"gone", r.Times.Gone}} {
		if f.at != 0 {
			line += fmt.Sprintf(" %s=%s", f.name, seconds(f.at))
		}
	}
	if r.Error.Reason != "" {
		line += " error=" + r.Error.Reason
	}
	if r.Outcome != jobdb.NoOutcome {
		line += fmt.Sprintf(" outcome=%v", r.Outcome)
	}
	if r.Decision != 0 {
		line += fmt.Sprintf(" decision=%d", r.Decision)
	}
	return line + "\n"
}
