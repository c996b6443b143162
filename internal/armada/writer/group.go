package writer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/schedulerdb"
)

// What the records of groups do to Armada's tables (semantics.md 12.10).

type (
	// hold keeps back the row of a member that may not start yet.
	hold struct{ *schedulerdb.InsertJob }
	// unhold lets a held member start.
	unhold struct {
		jobID      string
		retryAfter int64 // of the restart that it was held at
	}
	// restarted is a member that its group or gang starts again.
	restarted struct {
		*chain.MemberChange
		at          eventlog.Position // of the message
		avoid       []string
		held        bool
		byScheduler bool // the scheduler ended the run, and with it the job
		// grace is the longest of the members that start with it, if their pods may be
		// alive; 0: none is.
		grace time.Duration
	}
	// stopped is a member that is not to run any more.
	stopped struct {
		*chain.MemberChange
		at    eventlog.Position
		why   string
		ended bool // with its group, so nothing starts it again
	}
	// lateLease is a lease of a member that was stopped, which the scheduler made before.
	lateLease struct{ jobID, run string }
	// voidHolds lets all held members of the partition start.
	voidHolds struct{}
)

func (a hold) job() string      { return a.JobID }
func (a unhold) job() string    { return a.jobID }
func (a restarted) job() string { return a.JobID }
func (a stopped) job() string   { return a.JobID }
func (a lateLease) job() string { return a.jobID }
func (voidHolds) job() string   { return "" }

// member takes in a change of a member.
func (t *collector) member(r *chain.MemberChange) {
	if !storable(r.RunID) {
		return
	}
	j := t.jobs(r.JobID)
	switch r.Change {
	case chain.MemberJoined:
	case chain.MemberHeld: // its submission or its restart takes that into account
	case chain.MemberReleased:
		a := unhold{jobID: r.JobID}
		if j != nil {
			a.retryAfter = j.Queueing.RetryAfter
		}
		t.add(a)
	case chain.MemberRestart:
		a := restarted{
			MemberChange: r, at: t.msg.Log.Position, held: t.isHeld(r.JobID), byScheduler: t.byScheduler(r.JobID, r.RunID), grace: t.graces()[startOf(r)],
		}
		if j != nil {
			a.avoid = storableOf(j.Queueing.AvoidNodes)
		}
		t.add(a)
	case chain.MemberStopped:
		why, ended := t.ended()[groupOf(r)]
		if !ended {
			why = fmt.Sprintf("stopped: its unit of group %s has ended", groupName(r.Member.Group))
		}
		t.add(stopped{r, t.msg.Log.Position, why, ended})
	}
}

// groupName returns the name of a group as Armada's tables can hold it. That of a gang can be
// any text of any length, and a reason for a cancellation has at most 512 characters.
func groupName(name string) string {
	name = strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), "\x00", "\uFFFD")
	if all := []rune(name); len(all) > policy.MaxGroupName {
		return string(all[:policy.MaxGroupName]) + "…"
	}
	return name
}

// isHeld reports whether the message has a MemberHeld of a job that is in effect.
func (t *collector) isHeld(job string) bool {
	if t.heldHere == nil {
		t.heldHere = map[string]bool{}
		for i, r := range t.msg.Records {
			if m, ok := r.(*chain.MemberChange); ok && m.Change == chain.MemberHeld && t.msg.Acted[i] {
				t.heldHere[m.JobID] = true
			}
		}
	}
	return t.heldHere[job]
}

// start is when members of a group start again.
type start struct {
	group      group.Key
	retryAfter int64
}

func startOf(r *chain.MemberChange) start { return start{groupOf(r), r.RetryAfter} }

func groupOf(r *chain.MemberChange) group.Key {
	return group.Key{Queue: r.Queue, Set: r.JobSet, Name: r.Member.Group}
}

// graces returns the longest grace of pods that may be alive, of the members that the message
// starts again together: those of a gang, and those of a group that records give one time.
func (t *collector) graces() map[start]time.Duration {
	if t.gracesHere == nil {
		t.gracesHere = map[start]time.Duration{}
		for i, r := range t.msg.Records {
			m, ok := r.(*chain.MemberChange)
			if !ok || m.Change != chain.MemberRestart || !t.msg.Acted[i] {
				continue
			}
			// A run that reported its end has no pod. Of one that the scheduler ended, or that we
			// stop, the executor learns from what we write.
			if j := t.jobs(m.JobID); j != nil && (j.Queueing.OpenRuns > 0 || t.byScheduler(m.JobID, m.RunID)) {
				at := startOf(m)
				t.gracesHere[at] = max(t.gracesHere[at], graceOf(j))
			}
		}
	}
	return t.gracesHere
}

// graceOf returns the termination grace period of a job's pods (docs/reference/semantics.md).
func graceOf(j *jobdb.Job) time.Duration {
	if j == nil {
		return policy.Grace(0)
	}
	return policy.Grace(j.Submit.GraceSeconds)
}

// ended returns the groups that end in the message, and a sentence on why.
func (t *collector) ended() map[group.Key]string {
	if t.endedHere == nil {
		t.endedHere = map[group.Key]string{}
		for _, r := range t.msg.Records {
			if g, ok := r.(*chain.GroupEnded); ok {
				t.endedHere[group.Key{Queue: g.Queue, Set: g.JobSet, Name: g.Group}] = sentence(g)
			}
		}
	}
	return t.endedHere
}

func sentence(g *chain.GroupEnded) string {
	text := fmt.Sprintf("its group %s has %s", groupName(g.Group), map[policy.GroupState]string{
		policy.GroupSucceeded: "succeeded", policy.GroupFailed: "failed", policy.GroupHalted: "been halted",
	}[g.State])
	if g.Reason != policy.NoUnitReason {
		text += ": " + g.Reason.String()
	}
	if g.Rule != "" {
		text += fmt.Sprintf(" (rule %s)", g.Rule)
	}
	return text
}

// stoppedByRestart reports whether a restart has told a run to stop, and no other run was leased since.
func (t *collector) stoppedByRestart(job, run string) bool {
	j := t.jobs(job)
	return j != nil && j.Member.Restarting && j.Queueing.LatestRun == run
}

// ofStoppedRun reports whether the run is one that a restart told to stop.
func (a requeue) ofStoppedRun() bool { return a.Code == policy.GroupRestart && a.Group == nil }

// waitFor makes a job that waits do so for longer.
func (j *jobView) waitFor(w *pendingRetry, retryAfter int64) {
	if w != nil && w.delayed && w.retryAfter < retryAfter {
		later := *w
		later.retryAfter = retryAfter
		j.put(&later)
	}
}

// untilUnheld is the retryAfter of a member that a restart holds back.
const untilUnheld = afterAll

func (w *pendingRetry) isHeld() bool { return w.retryAfter == untilUnheld }

// member does what a record of a group says.
func (p *plan) member(a action) {
	if _, ok := a.(voidHolds); ok {
		for _, id := range slices.Sorted(maps.Keys(p.jobs)) {
			p.unhold(p.jobs[id], p.now)
		}
		return
	}
	j := p.jobs[a.job()]
	if j == nil {
		return
	}
	switch a := a.(type) {
	case hold:
		if !j.known && j.held == nil {
			j.held, j.heldChanged = a.InsertJob, true
		}
	case unhold:
		p.unhold(j, a.retryAfter)
	case restarted:
		p.restart(j, a)
	case ordered:
		p.order(j, a)
	case stopped:
		p.stop(j, a)
	case lateLease:
		if j.known && j.over && !j.cancelled {
			p.apply(&schedulerdb.StopRun{RunID: a.run, At: p.time()})
		}
	}
}

func (p *plan) time() time.Time { return time.Unix(0, p.now).UTC() }

// submit writes the row of a held member, as Armada's ingester would have done.
func (p *plan) submit(j *jobView) {
	if j.held != nil {
		op := j.held
		j.held, j.heldChanged = nil, true
		p.apply(op)
	}
}

// unhold lets a held member start, at a time if a restart held it.
func (p *plan) unhold(j *jobView, retryAfter int64) {
	p.submit(j)
	if j.retry != nil && j.retry.isHeld() {
		w := *j.retry
		w.retryAfter = retryAfter
		j.put(&w)
	}
}

// toHeld applies an operation to members that have no row yet, and reports whether that was
// all of it. A cancellation needs the row, so that the scheduler reports it.
func (p *plan) toHeld(op schedulerdb.Op) (all bool) {
	switch o := op.(type) {
	case *schedulerdb.RequestCancel:
		if j := p.heldIn(o.JobID, o.Queue, o.JobSet); j != nil {
			p.submit(j)
		}
	case *schedulerdb.SetPriority:
		if j := p.heldIn(o.JobID, o.Queue, o.JobSet); j != nil {
			j.reprioritise(o.Priority)
			return true
		}
	case *schedulerdb.RequestSetCancel:
		p.eachHeld(o.Queue, o.JobSet, func(j *jobView) {
			if o.Queued {
				p.submit(j)
			}
		})
	case *schedulerdb.SetSetPriority:
		p.eachHeld(o.Queue, o.JobSet, func(j *jobView) { j.reprioritise(o.Priority) })
	}
	return false
}

func (j *jobView) reprioritise(priority int64) {
	op := *j.held
	op.Priority = priority
	j.held, j.heldChanged = &op, true
}

func (p *plan) heldIn(id, queue, set string) *jobView {
	if j := p.jobs[id]; j != nil && j.held != nil && j.held.Queue == queue && j.held.JobSet == set {
		return j
	}
	return nil
}

func (p *plan) eachHeld(queue, set string, do func(*jobView)) {
	for _, id := range slices.Sorted(maps.Keys(p.jobs)) {
		if j := p.heldIn(id, queue, set); j != nil {
			do(j)
		}
	}
}

var (
	errGone     = errors.New("its row was pruned from Armada's tables: keep rows of finished jobs for as long as their group may restart")
	errNotAgain = errors.New("it was cancelled")
	errTooEarly = errors.New("the scheduler has not checked yet where it fits: it may start before its group lets it")
)

// restart makes a member queued again, whatever its run does (semantics.md 12.6).
func (p *plan) restart(j *jobView, a restarted) {
	after := a.RetryAfter
	if a.held {
		after = untilUnheld
	}
	w := &pendingRetry{
		runID: a.RunID, policy: groupName(a.Member.Group), retryAfter: after, podUntil: p.podUntil(a.grace), avoid: a.avoid, copied: p.copied(a.at),
		text: fmt.Sprintf("the run was stopped: group %s restarts it (generation %d)", groupName(a.Member.Group), a.Member.Generation),
	}
	w.delayed = p.mode == HoldBack && w.ready() > p.now
	switch {
	case j.held != nil:
		if !a.held {
			p.submit(j)
		}
	case !j.known:
		p.cannot(j, errGone)
	case j.cancelled:
		p.cannot(j, errNotAgain)
	case j.retry != nil && j.retry.stage == forgetting:
		j.put(j.retry.restarted(w))
	case j.queued && !j.over:
		p.delay(j, w)
	default:
		p.again(j, w, a.byScheduler && !j.over)
	}
}

func (p *plan) cannot(j *jobView, err error) {
	p.unable = append(p.unable, fmt.Errorf("job %s: its group restarts it: %w", j.id, err))
}

// delay makes a job that is in the queue wait.
func (p *plan) delay(j *jobView, w *pendingRetry) {
	switch {
	case j.retry != nil && j.retry.delayed:
		j.put(j.retry.restarted(w))
	case !w.delayed:
	case !j.validated && w.runID == "":
		p.cannot(j, errTooEarly)
	default:
		if j.retry != nil {
			w = j.retry.restarted(w)
			w.delayed = true
		}
		if _, err := p.info(j, w); err != nil {
			p.unable = append(p.unable, &unableError{job: j.id, err: err})
			return
		}
		j.put(w)
	}
}

// again ends the run of a job as failed, and queues the job.
func (p *plan) again(j *jobView, w *pendingRetry, byScheduler bool) {
	if w.runID != "" {
		p.apply(&schedulerdb.EndPreemption{RunID: w.runID})
		p.apply(&schedulerdb.StopRun{RunID: w.runID, At: p.time()})
	}
	wasOver := j.over
	if wasOver {
		p.apply(&schedulerdb.ReviveJob{JobID: j.id})
	}
	switch {
	case p.mode == Direct:
		p.queue(j, w, p.now)
	case byScheduler:
		w.delayed = false
		w.forget(p.now)
	case p.queue(j, w, p.now) && wasOver:
		w.expectRun(p.now) // the scheduler may not have forgotten it yet
	}
	j.put(w)
}

// stop ends a member that is not over. With its group it is cancelled. Otherwise it fails,
// because the scheduler starts a job that has failed again, and one that was cancelled
// possibly not.
func (p *plan) stop(j *jobView, a stopped) {
	p.submit(j)
	switch {
	case !j.known || j.over:
	case a.ended:
		p.apply(&schedulerdb.RequestCancel{JobID: j.id, Queue: j.queue, JobSet: j.set, User: "refloat", Reason: a.why})
		if p.copied(a.at) {
			p.copy(copyOf{jobID: j.id, queue: j.queue, set: j.set, policy: groupName(a.Member.Group), at: p.now, cancel: true, text: a.why})
		}
	default:
		if a.RunID != "" {
			p.apply(&schedulerdb.EndPreemption{RunID: a.RunID})
			p.apply(&schedulerdb.StopRun{RunID: a.RunID, At: p.time()})
		}
		p.apply(&schedulerdb.FailJob{JobID: j.id})
		if p.copied(a.at) {
			p.copy(copyOf{
				jobID: j.id, runID: a.RunID, queue: j.queue, set: j.set, policy: groupName(a.Member.Group), at: p.now, text: a.why,
			})
		}
	}
}
