package pgstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/schedulerdb"
)

// Beyond these, changes are sent before more are taken in.
const (
	maxRows  = 20_000
	maxBytes = 32 << 20
)

func (c *changes) full() bool {
	return c.size >= maxBytes || len(c.jobs)+len(c.runs) >= maxRows
}

func setwide(op schedulerdb.Op) bool {
	switch op.(type) {
	case *schedulerdb.SetSetPriority, *schedulerdb.RequestSetCancel:
		return true
	}
	return false
}

func (w *Writer) applySet(ctx context.Context, op schedulerdb.Op) error {
	var err error
	switch o := op.(type) {
	case *schedulerdb.SetSetPriority:
		_, err = w.tx.Exec(ctx, setPrioritySQL, o.Queue, o.JobSet, o.Priority, userOrNull(o.User))
	case *schedulerdb.RequestSetCancel:
		_, err = w.tx.Exec(ctx, setCancelSQL, o.Queue, o.JobSet, o.Queued, o.Leased, userOrNull(o.User), o.Reason, o.AsQueued)
	}
	return w.failed("write a job set", err)
}

// write sends the changes in one go.
func (w *Writer) write(ctx context.Context, c *changes) error {
	b := &pgx.Batch{}
	c.runStatements(b)
	c.jobStatements(b)
	c.newRunStatement(b)
	if len(c.unasked) > 0 {
		b.Queue(endPreemptionSQL, slices.Sorted(maps.Keys(c.unasked)))
	}
	c.errorStatement(b)
	for _, m := range c.markers {
		b.Queue(markerSQL, m.Group, m.Partition, m.Created)
	}
	if b.Len() == 0 {
		return nil
	}
	return w.failed("write", w.tx.SendBatch(ctx, b).Close())
}

func sorted[V any](m map[string]V) []V {
	values := make([]V, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[key])
	}
	return values
}

// runStatements change runs that are there.
func (c *changes) runStatements(b *pgx.Batch) {
	var patches, ended []*runChange
	for _, r := range sorted(c.runs) {
		if r.insert != nil {
			continue
		}
		patches = append(patches, r)
		if r.firstEnd != 0 {
			ended = append(ended, r)
		}
	}
	endedID := column(ended, func(r *runChange) string { return r.id })
	if ps := sorted(c.preemption); len(ps) > 0 {
		queue(b, preemptSQL, rows{"p", columns{
			{"job_id", "text", column(ps, func(p *preemptChange) string { return p.JobID })},
			{"queue", "text", column(ps, func(p *preemptChange) string { return p.Queue })},
			{"job_set", "text", column(ps, func(p *preemptChange) string { return p.JobSet })},
			{"by", "text", column(ps, func(p *preemptChange) *string { return userOrNull(p.User) })},
			{"reason", "text", column(ps, func(p *preemptChange) string { return p.Reason })},
			{"number", "int", column(ps, func(p *preemptChange) int { return p.number })},
		}}, rows{"e", columns{
			{"run_id", "text", endedID},
			{"number", "int", column(ended, func(r *runChange) int { return r.firstEnd })},
		}})
	}
	if len(patches) > 0 {
		stage := func(s schedulerdb.Stage) []*time.Time {
			return column(patches, func(r *runChange) *time.Time { return r.at[s] })
		}
		queue(b, patchRunsSQL, rows{"p", columns{
			{"run_id", "text", column(patches, func(r *runChange) string { return r.id })},
			{"pending_at", "timestamptz", stage(schedulerdb.Pending)},
			{"running_at", "timestamptz", stage(schedulerdb.Running)},
			{"preempted_at", "timestamptz", stage(schedulerdb.Preempted)},
			{"succeeded", "bool", column(patches, func(r *runChange) bool { return r.at[schedulerdb.Succeeded] != nil })},
			{"failed", "bool", column(patches, func(r *runChange) bool { return r.failed })},
			{"returned", "bool", column(patches, func(r *runChange) bool { return r.returned })},
			{"attempted", "bool", column(patches, func(r *runChange) bool { return r.attempted })},
			{"unsucceeded", "bool", column(patches, func(r *runChange) bool { return r.unsucceeded })},
			{"stopped", "timestamptz", column(patches, func(r *runChange) *time.Time { return r.stopped })},
			{"ended", "timestamptz", column(patches, func(r *runChange) *time.Time { return r.end })},
		}})
	}
	if len(c.cancelled) > 0 {
		jobs := slices.Sorted(maps.Keys(c.cancelled))
		queue(b, cancelRunsSQL, rows{"c", columns{
			{"job_id", "text", jobs},
			{"at", "timestamptz", column(jobs, func(id string) time.Time { return c.cancelled[id].at })},
			{"number", "int", column(jobs, func(id string) int { return c.cancelled[id].number })},
		}}, rows{"e", columns{
			{"run_id", "text", endedID},
			{"number", "int", column(ended, func(r *runChange) int { return r.ended })},
		}})
	}
}

func (c *changes) jobStatements(b *pgx.Batch) {
	var fresh, patches []*jobChange
	for _, j := range sorted(c.jobs) {
		switch {
		case j.insert != nil:
			fresh = append(fresh, j)
		case j.changed():
			patches = append(patches, j)
		}
	}
	if len(patches) > 0 {
		queue(b, patchJobsSQL, rows{"p", append(jobColumns(patches), columns{
			{"revived", "bool", column(patches, func(j *jobChange) bool { return j.revived })},
			{"queue", "text", column(patches, func(j *jobChange) string { return j.queue })},
			{"job_set", "text", column(patches, func(j *jobChange) string { return j.set })},
		}...)})
	}
	if len(fresh) > 0 {
		text := func(value func(*schedulerdb.InsertJob) string) []string {
			return column(fresh, func(j *jobChange) string { return value(j.insert) })
		}
		queue(b, insertJobsSQL, rows{"p", append(jobColumns(fresh), columns{
			{"queue", "text", text(func(o *schedulerdb.InsertJob) string { return o.Queue })},
			{"job_set", "text", text(func(o *schedulerdb.InsertJob) string { return o.JobSet })},
			{"user_id", "text", text(func(o *schedulerdb.InsertJob) string { return o.UserID })},
			{"submitted", "bigint", column(fresh, func(j *jobChange) int64 { return j.insert.Submitted })},
			{"price_band", "int", column(fresh, func(j *jobChange) int32 { return j.insert.PriceBand })},
		}...)})
		queue(b, insertMetadataSQL, rows{"p", columns{
			{"job_id", "text", text(func(o *schedulerdb.InsertJob) string { return o.JobID })},
			{"submit_message", "bytea", column(fresh, func(j *jobChange) []byte { return j.insert.SubmitMessage })},
			{"groups", "bytea", column(fresh, func(j *jobChange) []byte { return j.insert.Groups })},
		}})
	}
}

// changed says whether a patch changes anything.
func (j *jobChange) changed() bool {
	return j.terminated() || j.conditional || j.revived || j.queued != nil || j.info != nil || j.validated != nil
}

// jobColumns are the columns that new rows and patches share, with NULL for what
// a patch leaves as it is.
func jobColumns(jobs []*jobChange) columns {
	return columns{
		{"job_id", "text", column(jobs, func(j *jobChange) string { return j.id })},
		{"queued", "bool", column(jobs, func(j *jobChange) bool { return j.queued == nil || j.queued.Queued })},
		{"queued_version", "int", column(jobs, func(j *jobChange) *int32 {
			switch {
			case j.queued != nil:
				return &j.queued.Version
			case j.insert != nil:
				return new(int32)
			}
			return nil
		})},
		{"info", "bytea", column(jobs, func(j *jobChange) []byte {
			switch {
			case j.info != nil:
				return j.info.Info
			case j.insert != nil:
				return j.insert.SchedulingInfo
			}
			return nil
		})},
		{"info_version", "int", column(jobs, func(j *jobChange) *int32 {
			switch {
			case j.info != nil:
				return &j.info.Version
			case j.insert != nil:
				return &j.insert.SchedulingInfoVersion
			}
			return nil
		})},
		{"validated", "bool", column(jobs, func(j *jobChange) bool { return j.validated != nil })},
		{"pools", "text", column(jobs, func(j *jobChange) *string {
			if j.validated == nil || j.validated.Pools == nil {
				return nil
			}
			return new(arrayText(j.validated.Pools))
		})},
		{"cancelled", "bool", column(jobs, func(j *jobChange) bool { return j.cancelled })},
		{"succeeded", "bool", column(jobs, func(j *jobChange) bool { return j.succeeded })},
		{"failed", "bool", column(jobs, func(j *jobChange) bool { return j.failed })},
		{"asked", "bool", column(jobs, func(j *jobChange) bool { return j.cancel != nil })},
		{"cancel_user", "text", column(jobs, func(j *jobChange) *string {
			if j.cancel == nil {
				return nil
			}
			return userOrNull(j.cancel.User)
		})},
		{"cancel_reason", "text", column(jobs, func(j *jobChange) *string {
			if j.cancel == nil {
				return nil
			}
			return &j.cancel.Reason
		})},
		{"priority", "bigint", column(jobs, func(j *jobChange) *int64 {
			switch {
			case j.priority != nil:
				return &j.priority.Priority
			case j.insert != nil:
				return &j.insert.Priority
			}
			return nil
		})},
		{"reprioritise_user", "text", column(jobs, func(j *jobChange) *string {
			if j.priority == nil {
				return nil
			}
			return userOrNull(j.priority.User)
		})},
	}
}

// arrayText is a text[] as PostgreSQL reads it.
func arrayText(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

func (c *changes) newRunStatement(b *pgx.Batch) {
	var runs []*runChange
	for _, r := range c.runs { //house:sorted below
		if r.insert != nil {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return
	}
	slices.SortFunc(runs, func(a, b *runChange) int { return cmp.Compare(a.id, b.id) })
	text := func(value func(*schedulerdb.InsertRun) string) []string {
		return column(runs, func(r *runChange) string { return value(r.insert) })
	}
	asked := func(value func(*schedulerdb.RequestPreemption) *string) []*string {
		return column(runs, func(r *runChange) *string {
			if r.preemption == nil {
				return nil
			}
			return value(r.preemption)
		})
	}
	is := func(value func(*runChange) bool) []bool { return column(runs, value) }
	stage := func(s schedulerdb.Stage) []*time.Time {
		return column(runs, func(r *runChange) *time.Time { return r.at[s] })
	}
	queue(b, insertRunsSQL, rows{"p", columns{
		{"run_id", "text", text(func(o *schedulerdb.InsertRun) string { return o.RunID })},
		{"job_id", "text", text(func(o *schedulerdb.InsertRun) string { return o.JobID })},
		{"created", "bigint", column(runs, func(r *runChange) int64 { return r.insert.Created })},
		{"job_set", "text", text(func(o *schedulerdb.InsertRun) string { return o.JobSet })},
		{"queue", "text", text(func(o *schedulerdb.InsertRun) string { return o.Queue })},
		{"executor", "text", text(func(o *schedulerdb.InsertRun) string { return o.Executor })},
		{"node", "text", text(func(o *schedulerdb.InsertRun) string { return o.Node })},
		{"pool", "text", text(func(o *schedulerdb.InsertRun) string { return o.Pool })},
		{"scheduled_at_priority", "int", column(runs, func(r *runChange) *int32 { return r.insert.ScheduledAtPriority })},
		{"overlay", "bytea", column(runs, func(r *runChange) []byte { return r.insert.PodRequirementsOverlay })},
		{"leased_at", "timestamptz", column(runs, func(r *runChange) time.Time { return r.insert.Leased })},
		{"pending_at", "timestamptz", stage(schedulerdb.Pending)},
		{"running_at", "timestamptz", stage(schedulerdb.Running)},
		{"preempted_at", "timestamptz", stage(schedulerdb.Preempted)},
		{"ended", "timestamptz", column(runs, func(r *runChange) *time.Time { return r.end })},
		{"cancelled", "bool", is(func(r *runChange) bool { return r.cancelled })},
		{"succeeded", "bool", is(func(r *runChange) bool { return r.at[schedulerdb.Succeeded] != nil })},
		{"failed", "bool", is(func(r *runChange) bool { return r.failed })},
		{"returned", "bool", is(func(r *runChange) bool { return r.returned })},
		{"attempted", "bool", is(func(r *runChange) bool { return r.attempted })},
		{"asked", "bool", is(func(r *runChange) bool { return r.preemption != nil })},
		{"reason", "text", asked(func(o *schedulerdb.RequestPreemption) *string { return &o.Reason })},
		{"by", "text", asked(func(o *schedulerdb.RequestPreemption) *string { return userOrNull(o.User) })},
	}})
}

func (c *changes) errorStatement(b *pgx.Batch) {
	if es := sorted(c.errors); len(es) > 0 {
		queue(b, insertErrorsSQL, rows{"p", columns{
			{"run_id", "text", column(es, func(e *schedulerdb.InsertRunError) string { return e.RunID })},
			{"job_id", "text", column(es, func(e *schedulerdb.InsertRunError) string { return e.JobID })},
			{"error", "bytea", column(es, func(e *schedulerdb.InsertRunError) []byte { return e.Error })},
		}})
	}
}
