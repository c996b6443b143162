package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/sink"
)

// Config configures a Writer.
type Config struct {
	Partition int
	Mode      Mode
	// NodeLabel is Armada's scheduling.nodeIdLabel. Default [schedulerdb.NodeLabel].
	NodeLabel string
	// Copies, if set, publishes copies to events, and returns when they are durable.
	Copies func(ctx context.Context, partition int, copies []eventlog.Message) error
	// Slack returns the termination slack of the newest policies. nil: it is 0.
	Slack func() (time.Duration, error)
	Hooks Hooks
}

// Hooks observe a Writer; nil is off.
type Hooks struct {
	// Parked is called for each message or event that Armada's ingester would skip,
	// crash on, or retry for ever.
	Parked func(partition int, at eventlog.Position, f schedulerdb.Finding)
	// Unable is called for each retry that cannot be written to Armada's tables.
	Unable func(partition int, err error)
	// NotCopied is called for each decision that is not copied to events.
	NotCopied func(partition int, err error)
}

// Writer implements [sink.Mirror] on PostgreSQL.
type Writer struct {
	cfg       Config
	converter *schedulerdb.Converter
	actions   []action
	due       int64             // Unix nanoseconds; never: no retry is pending
	since     eventlog.Position // decisions on messages up to here are not copied to events
	known     bool              // since, due and holding are loaded
	hasHeld   bool              // members may be held before their first start
}

// New returns the Writer of a partition. Its tables are part of our schema (package
// jobdb/postgres).
func New(cfg Config) *Writer {
	if cfg.NodeLabel == "" {
		cfg.NodeLabel = schedulerdb.NodeLabel
	}
	return &Writer{cfg: cfg, converter: schedulerdb.NewConverter()}
}

// Reset implements [sink.Mirror]. The next transaction is due at once, and looks up
// what else is due.
func (m *Writer) Reset() { m.actions, m.due, m.known = nil, 0, false }

// Due implements [sink.Mirror].
func (m *Writer) Due() time.Time {
	if m.due == never {
		return time.Time{}
	}
	return time.Unix(0, m.due)
}

// converted is what a message does to Armada's tables, whatever was decided.
type converted struct {
	effects  []schedulerdb.Effect
	findings []schedulerdb.Finding
}

// Read implements [sink.Mirror].
func (m *Writer) Read(msg *sink.Message) {
	effects, findings := m.converter.Convert(&msg.Log, msg.Events)
	msg.Mirrored = converted{effects, findings}
}

// Collect implements [sink.Mirror].
func (m *Writer) Collect(msg *sink.Message, jobs func(id string) *jobdb.Job) {
	if msg.Mirrored == nil {
		m.Read(msg)
	}
	c := msg.Mirrored.(converted)
	for _, f := range c.findings {
		if m.cfg.Hooks.Parked != nil {
			m.cfg.Hooks.Parked(m.cfg.Partition, msg.Log.Position, f)
		}
	}
	if msg.Released {
		m.actions = append(m.actions, voidHolds{})
	}
	t := collector{Writer: m, msg: msg, jobs: jobs, decide: m.cfg.Mode != Passthrough && !msg.Released}
	again := map[int]bool{}
	for _, event := range msg.Again {
		again[event] = true
	}
	for _, e := range c.effects {
		if _, submits := e.Op.(*schedulerdb.InsertJob); submits && m.cfg.Mode != Passthrough && again[e.Event] {
			// A repeated SubmitJob says nothing new. Applying it would reset the
			// versions, and the scheduler ignores rows with lower versions.
			continue
		}
		t.effect(e)
	}
	if t.decide {
		for i, r := range msg.Records {
			if msg.Acted[i] {
				t.record(r)
			}
		}
	}
}

// collector is a message that is being processed.
type collector struct {
	*Writer
	msg    *sink.Message
	jobs   func(id string) *jobdb.Job
	decide bool // decisions are effective

	// What the message says; nil: not looked up yet.
	preempted  map[jobdb.RunKey]bool   // runs that the scheduler ended
	heldHere   map[string]bool         // jobs with a MemberHeld
	endedHere  map[group.Key]string    // groups that end, and a sentence on why
	gracesHere map[start]time.Duration // see graces
}

// add appends an action. Armada's tables cannot hold text that PostgreSQL rejects, so
// there is nothing to do for such a job.
func (t *collector) add(a action) {
	if storable(a.job()) {
		t.actions = append(t.actions, a)
	}
}

func storable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

func storableOf(texts []string) (good []string) {
	for _, text := range texts {
		if storable(text) {
			good = append(good, text)
		}
	}
	return good
}

func (t *collector) effect(e schedulerdb.Effect) {
	op := e.Op
	if o, ok := op.(*schedulerdb.SetQueued); ok && !o.Queued && t.cfg.Mode != Passthrough {
		l := lease{SetQueued: o}
		if j := t.jobs(o.JobID); j != nil {
			l.run = j.Queueing.LatestRun
		}
		t.add(l) // also in a release: it may end a pending retry
		if j := t.jobs(o.JobID); t.decide && j != nil && j.State == jobdb.JobStopping && storable(l.run) {
			t.add(lateLease{o.JobID, l.run})
		}
		return
	}
	if !t.decide {
		t.add(apply{op})
		return
	}
	switch o := op.(type) {
	case *schedulerdb.InsertJob:
		if t.isHeld(o.JobID) && t.cfg.Mode == HoldBack {
			t.add(hold{o})
			return
		}
	case *schedulerdb.MarkRun:
		if o.Stage == schedulerdb.Succeeded && t.stoppedByRestart(t.msg.Events.Events[e.Event].JobID, o.RunID) {
			return // the run was told to stop: its success changes nothing
		}
	case *schedulerdb.SucceedJob:
		if j := t.jobs(o.JobID); j != nil && j.Member.Restarting && j.State.Waiting() && storable(j.Queueing.LatestRun) {
			t.add(t.overruled(j))
			return
		}
	case *schedulerdb.FailJob:
		// An effective retry of the job's latest run overrides Armada's verdict, unless
		// it could not be written to Armada's tables.
		if j := t.jobs(o.JobID); j != nil && (j.Queueing.Decision != 0 || j.Member.Restarting) && j.State.Waiting() && storable(j.Queueing.LatestRun) {
			t.add(t.overruled(j))
			return
		}
	case *schedulerdb.SetQueued:
		if t.decided(o.JobID) {
			return // Armada's own requeue: our decision is effective
		}
	case *schedulerdb.SetSchedulingInfo:
		if t.decided(o.JobID) {
			return
		}
	case *schedulerdb.FailRun:
		if o.Returned && t.jobFailed(t.msg.Events.Events[e.Event].JobID, o.RunID) {
			// Armada requeues a returned lease by itself. Show it a failure.
			failed := *o
			failed.Returned, failed.Attempted = false, true
			op = &failed
		}
	}
	t.add(apply{op})
}

func (t *collector) overruled(j *jobdb.Job) overruled {
	return overruled{
		jobID: j.JobID, runID: j.Queueing.LatestRun, number: j.Queueing.Decision, retryAfter: j.Queueing.RetryAfter,
		avoid: storableOf(j.Queueing.AvoidNodes), held: j.State == jobdb.JobHeld, at: t.msg.Log.Position,
	}
}

func (t *collector) decided(job string) bool {
	j := t.jobs(job)
	return j != nil && (j.Queueing.Decision != 0 || j.Member.Restarting)
}

// jobFailed reports whether an enforced JobFailed is effective for a failed run, also if
// the message is a duplicate.
func (t *collector) jobFailed(job, run string) bool {
	j := t.jobs(job)
	return j != nil && j.Queueing.Decision != 0 && j.Queueing.LatestRun == run && j.State == jobdb.JobFailed
}

// byScheduler reports whether the message says that the scheduler ended a run. A message may
// name tens of thousands of runs, so it is read once.
func (t *collector) byScheduler(job, run string) bool {
	if t.preempted == nil {
		t.preempted = map[jobdb.RunKey]bool{}
		for i, ev := range t.msg.Events.Events {
			if ev.Kind == events.RunPreempted || ev.Kind == events.RunErrors &&
				slices.ContainsFunc(t.msg.Events.Full(i).GetJobRunErrors().GetErrors(), endedByScheduler) {
				t.preempted[jobdb.RunKey{JobID: ev.JobID, RunID: ev.RunID}] = true
			}
		}
	}
	return t.preempted[jobdb.RunKey{JobID: job, RunID: run}]
}

func endedByScheduler(e *pb.Error) bool {
	return e.GetJobRunPreemptedError() != nil || e.GetLeaseExpired() != nil || e.GetReconciliationError() != nil
}

// record takes in a record that changed its job.
func (t *collector) record(r chain.Record) {
	switch r := r.(type) {
	case *chain.Decision:
		switch {
		case !storable(r.RunID):
		case r.Requeue:
			t.add(requeue{r, t.msg.Log.Position, t.byScheduler(r.JobID, r.RunID), graceOf(t.jobs(r.JobID))})
		default:
			t.add(fail{r, t.msg.Log.Position})
		}
	case *chain.RetryReady:
		if j := t.jobs(r.JobID); j == nil || j.Submit.GangID == "" { // a gang waits for all of its pods
			t.add(proven{r})
		}
	case *chain.OrderAnswered:
		if storable(r.RunID) {
			t.add(ordered{r, t.msg.Log.Position})
		}
	case *chain.MemberChange:
		t.member(r)
	}
}

var errOtherDB = errors.New("the job database is not PostgreSQL: pass --job-db postgres://…")

// Write implements [sink.Mirror].
func (m *Writer) Write(ctx context.Context, tx jobdb.Tx, when sink.Moment) error {
	pg, ok := tx.(interface{ Conn() pgx.Tx })
	if !ok {
		return errOtherDB
	}
	w := writing{Writer: m, conn: pg.Conn(), armada: pgstore.In(pg.Conn()), when: when}
	if !m.known {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	var copies []copyOf
	for _, step := range []func(context.Context) (*plan, error){w.planActions, w.planDue} {
		p, err := step(ctx)
		if err != nil {
			return err
		}
		if p == nil {
			continue
		}
		if err := w.loadErrors(ctx, p.copies); err != nil {
			return err
		}
		if err := w.write(ctx, p); err != nil {
			return err
		}
		copies = append(copies, p.copies...)
	}
	m.actions = m.actions[:0]
	if err := w.publish(ctx, copies); err != nil {
		return err
	}
	return w.readDue(ctx)
}

// writing is one transaction.
type writing struct {
	*Writer
	conn    pgx.Tx
	armada  *pgstore.Writer
	when    sink.Moment
	changed bool // pending retries have changed
}

func (w *writing) plan(jobs map[string]*jobView) *plan {
	return &plan{
		mode: w.cfg.Mode, label: w.cfg.NodeLabel, now: w.when.Now.UnixNano(), atEnd: w.when.AtEnd(),
		copying: w.cfg.Copies != nil, since: w.since, jobs: jobs, errors: map[string][]byte{},
	}
}

// planActions plans the actions of the messages; nil: there are none.
func (w *writing) planActions(ctx context.Context) (*plan, error) {
	if len(w.actions) == 0 {
		return nil, nil
	}
	jobs, err := w.load(ctx, w.actions)
	if err != nil {
		return nil, err
	}
	p := w.plan(jobs)
	if w.waitsForPods() && w.cfg.Slack != nil {
		if p.slack, err = w.cfg.Slack(); err != nil {
			return nil, fmt.Errorf("read the termination slack: %w", err)
		}
	}
	for _, a := range w.actions {
		p.do(a)
	}
	return p, nil
}

// waitsForPods reports whether actions have to wait for pods to end.
func (m *Writer) waitsForPods() bool {
	return m.cfg.Mode == HoldBack && slices.ContainsFunc(m.actions, func(a action) bool {
		switch a := a.(type) {
		case requeue:
			return a.byScheduler
		case restarted:
			return a.grace > 0
		}
		return false
	})
}

// planDue plans what is due; nil: nothing is.
func (w *writing) planDue(ctx context.Context) (*plan, error) {
	if w.due > w.when.Now.UnixNano() {
		return nil, nil
	}
	w.changed = true // look up the next due time, even if nothing is due now
	jobs, ids, err := w.loadDue(ctx)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	p := w.plan(jobs)
	for _, id := range ids {
		p.advance(jobs[id])
	}
	return p, nil
}

func (w *writing) write(ctx context.Context, p *plan) error {
	if err := w.armada.Apply(ctx, p.ops); err != nil {
		return w.failed("write Armada's tables", err)
	}
	for _, err := range p.unable {
		if w.cfg.Hooks.Unable != nil {
			w.cfg.Hooks.Unable(w.cfg.Partition, err)
		}
	}
	if err := w.writeHolds(ctx, p.jobs); err != nil {
		return err
	}
	return w.writeRetries(ctx, p.jobs)
}

// publish copies decisions to events, under Armada's lock, so that the first copy
// precedes the next lease.
func (w *writing) publish(ctx context.Context, copies []copyOf) error {
	if len(copies) == 0 || w.cfg.Copies == nil {
		return nil // a pending retry of another mode may want a copy
	}
	messages, err := w.messages(copies)
	if err != nil || len(messages) == 0 {
		return err
	}
	if err := w.cfg.Copies(ctx, w.cfg.Partition, messages); err != nil {
		return fmt.Errorf("publish copies of decisions: %w", err)
	}
	return nil
}
