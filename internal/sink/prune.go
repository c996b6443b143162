package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// Retention says for how long the rows of a job stay after the job is over. The zero
// value keeps them for ever.
type Retention struct {
	// For is the time since the job ended. It is at least the horizon of the policies in
	// force, so that neither events nor decisions refer to the job any more.
	For time.Duration
	// FollowArmada keeps a job, for the horizon at least, as long as Armada's tables have
	// it. It requires a Mirror, and excludes For.
	FollowArmada bool
}

// Prunes reports whether anything is ever pruned.
func (r Retention) Prunes() bool { return r.For > 0 || r.FollowArmada }

// Prune is one transaction that pruned jobs.
type Prune struct {
	Partition int
	Jobs      int
	Rows      int // theirs included
	Pruned    jobdb.Pruned
}

// defaultHorizon is the horizon until a policy generation is in force (semantics.md 1).
const defaultHorizon = 24 * time.Hour

// The weight of a job says after how many times the retention it is pruned, like the
// weight with which an evaluator forgets it (semantics.md 1).
const (
	notOver     = 0 // never
	over        = 1 // it ended, and so did its runs
	verdictOnly = 7 // only Armada says so, or the end of a run was never reported
)

func weightOf(j *jobdb.Job) int {
	switch {
	case !j.State.Terminal():
		return notOver
	case j.Final && j.Queueing.OpenRuns == 0:
		return over
	}
	return verdictOnly
}

// stray reports whether a row holds only events about a job whose SubmitJob never came,
// and of which no run is known. It has no time: it is pruned with the jobs that were over
// before its last event.
func stray(j *jobdb.Job) bool {
	return !j.Known && j.State == jobdb.UnknownJob && j.Queueing.OpenRuns == 0
}

// pruning is the progress of a partition's pruning: one pass over the jobs that have
// ended, then one over strays, in small transactions.
type pruning struct {
	at      time.Time // when the next transaction is due
	pass    jobdb.Candidates
	strays  eventlog.Position // strays up to here are as old as jobs that were pruned; the zero value: none
	took    time.Duration     // what the pass has spent on transactions that found nothing
	clamped time.Duration     // the horizon that was reported to be longer than the retention
}

const (
	pruneAtOnce = 2000            // candidates in one transaction
	pruneEvery  = time.Minute     // from one pass to the next, at most
	restOf      = 20              // and at least so many times as long as it looked in vain
	scanRest    = 4               // pause after a transaction that found nothing, in times of it
	pruneRows   = 5000            // rows of runs and decisions in one transaction, about
	retryPrune  = 5 * time.Second // after an error
)

// pruneDue reports whether a step of pruning is due.
func (w *Writer) pruneDue(p *part) bool {
	return w.cfg.Retain.Prunes() && !p.prune.at.After(w.cfg.Now())
}

// pruneStep prunes some jobs in a transaction of its own. The transaction moves the
// position, so other writers do not use what they hold in memory of those jobs.
func (w *Writer) pruneStep(ctx context.Context, p *part) (err error) {
	start := w.cfg.Now()
	p.prune.at = start.Add(retryPrune)
	tx, err := w.cfg.DB.Begin(ctx, p.number)
	if err != nil {
		return fmt.Errorf("begin to prune: %w", err)
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	if tx.Positions() != p.positions {
		return jobdb.ErrMoved
	}
	found, gone, err := w.prunable(ctx, tx, p)
	if err != nil {
		return fmt.Errorf("find jobs to prune: %w", err)
	}
	done := Prune{Partition: p.number, Jobs: len(gone), Pruned: p.positions.Pruned}
	if len(gone) > 0 {
		if err := w.deleteJobs(ctx, tx, p, gone, &done); err != nil {
			return err
		}
	}
	w.scheduleNext(p, found, len(gone) > 0, w.cfg.Now().Sub(start))
	return nil
}

// pruned is pruneStep as a step of Advance.
func (w *Writer) pruned(ctx context.Context, p *part) (bool, error) {
	err := w.pruneStep(ctx, p)
	if errors.Is(err, jobdb.ErrMoved) {
		if w.cfg.Hooks.Moved != nil {
			w.cfg.Hooks.Moved(p.number)
		}
		return true, p.reset()
	}
	return err == nil, err
}

// deleteJobs deletes jobs and commits.
func (w *Writer) deleteJobs(ctx context.Context, tx jobdb.Tx, p *part, gone []jobdb.Job, done *Prune) (err error) {
	ids, to := make([]string, len(gone)), p.positions
	for i := range gone {
		j := &gone[i]
		ids[i] = j.JobID
		to.Pruned.Ended = max(to.Pruned.Ended, j.Times.Ended)
		if to.Pruned.Jobs == 0 || j.Updated.Compare(to.Pruned.Through) > 0 {
			to.Pruned.Through = j.Updated
		}
		to.Pruned.Jobs++
	}
	to.Pruned.When = w.cfg.Now().UnixNano()
	if done.Rows, err = tx.Delete(ctx, ids, groupsOf(gone)); err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	if err := w.hit("pruning"); err != nil {
		return err
	}
	if err := tx.Commit(ctx, p.positions, to); err != nil {
		return fmt.Errorf("commit what was pruned: %w", err)
	}
	p.positions, done.Pruned = to, to.Pruned
	p.rows.drop(ids)
	p.rows.dropGroups(gone)
	if !p.prune.pass.Unsubmitted {
		first := slices.MinFunc(gone, func(a, b jobdb.Job) int { return a.Updated.Compare(b.Updated) }).Updated
		if first.Compare(p.prune.strays) > 0 {
			p.prune.strays = first
		}
	}
	if w.cfg.Hooks.Pruned != nil {
		w.cfg.Hooks.Pruned(*done)
	}
	return w.hit("pruned")
}

// scheduleNext says when the next transaction is due. A full one is followed by another
// after a pause that leaves at least half of the time to other work.
func (w *Writer) scheduleNext(p *part, found int, deleted bool, took time.Duration) {
	pr, now := &p.prune, w.cfg.Now()
	if !deleted {
		pr.took += took
	}
	switch {
	case found == 0 && !pr.pass.Unsubmitted:
		pr.pass = jobdb.Candidates{Unsubmitted: true}
		pr.at = now
	case found == 0:
		every := pruneEvery
		if keep := w.cfg.Retain.For; keep > 0 {
			every = min(every, keep/8)
		}
		pr.at = now.Add(max(every, restOf*pr.took))
		pr.pass, pr.took = jobdb.Candidates{}, 0
	case deleted:
		pr.at = now.Add(took)
	default:
		pr.at = now.Add(scanRest * took)
	}
}

// prunable returns jobs to prune, and the number of candidates that it looked at; none:
// the pass has ended.
func (w *Writer) prunable(ctx context.Context, tx jobdb.Tx, p *part) (found int, gone []jobdb.Job, err error) {
	clock, err := tx.Clock(ctx)
	if err != nil {
		return 0, nil, err
	}
	keep, now := w.retained(p, clock), min(clock.LastEnd, w.cfg.Now().UnixNano())
	pass := &p.prune.pass
	pass.EndedBy, pass.Limit = now-int64(keep), pruneAtOnce
	jobs, err := tx.Candidates(ctx, *pass)
	if err != nil {
		return 0, nil, err
	}
	rows := 0
	for i := range jobs {
		j := &jobs[i]
		if rows += 1 + 2*int(j.Queueing.Runs); rows > pruneRows && found > 0 {
			break
		}
		found++
		pass.AfterEnd, pass.AfterJob = j.Times.Ended, j.JobID
		if p.positions.Chain.InTo.Compare(j.Updated) < 0 {
			continue // the chain may still answer what was released
		}
		if pass.Unsubmitted {
			if stray(j) && j.Updated.Compare(p.prune.strays) <= 0 {
				gone = append(gone, *j)
			}
			continue
		}
		if weight := weightOf(j); weight != notOver && j.Times.Ended <= now-saturated(keep, weight) {
			gone = append(gone, *j)
		}
	}
	if len(gone) > 0 && w.cfg.Retain.FollowArmada {
		gone, err = forgotten(ctx, tx, p.mirror, gone)
	}
	return found, gone, err
}

// forgotten leaves out the jobs that Armada's tables still have.
func forgotten(ctx context.Context, tx jobdb.Tx, mirror Mirror, jobs []jobdb.Job) (gone []jobdb.Job, err error) {
	ids := make([]string, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].JobID
	}
	kept, err := mirror.Keeps(ctx, tx, ids)
	for i := range jobs {
		if !kept[jobs[i].JobID] {
			gone = append(gone, jobs[i])
		}
	}
	return gone, err
}

// retained returns for how long jobs are kept: not less than the horizon.
func (w *Writer) retained(p *part, clock jobdb.Clock) time.Duration {
	horizon := defaultHorizon
	if clock.HorizonMS > 0 {
		horizon = time.Duration(saturated(time.Millisecond, int(min(clock.HorizonMS, 1<<53))))
	}
	keep := w.cfg.Retain.For
	if keep >= horizon {
		p.prune.clamped = 0
		return keep
	}
	if keep > 0 && p.prune.clamped != horizon && w.cfg.Hooks.Clamped != nil {
		w.cfg.Hooks.Clamped(p.number, horizon)
	}
	p.prune.clamped = horizon
	return horizon
}

func saturated(d time.Duration, n int) int64 {
	if int64(d) > (1<<62)/int64(n) {
		return 1 << 62
	}
	return int64(d) * int64(n)
}

// drop removes jobs that are not in the database any more. The lists of sets are not
// searched: they may keep ended jobs until the next generation.
func (r *Rows) drop(jobs []string) {
	for _, id := range jobs {
		delete(r.recent, id)
		delete(r.older, id)
	}
}

// groupsOf returns the groups of jobs, each once.
func groupsOf(jobs []jobdb.Job) (ids []string) {
	for i := range jobs {
		if id := jobs[i].Member.GroupID; id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// dropGroups removes the groups of pruned jobs from memory: they may have been pruned with
// them.
func (r *Rows) dropGroups(jobs []jobdb.Job) {
	for i := range jobs {
		if m := &jobs[i].Member; m.GroupID != "" {
			r.groups.drop(m.GroupID)
			r.units.drop(jobdb.UnitID(m.GroupID, m.Part, m.Replica))
		}
	}
}
