// Package export writes rows of a job database as Parquet and CSV, with the same columns.
package export

import (
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
)

// timeOf makes a time of a row's column; 0 is unknown.
func timeOf(ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	at := time.Unix(0, ns).UTC()
	return &at
}

// Decision is a decision as exports have it.
type Decision struct {
	Partition  int64      `parquet:"partition"`
	Number     int64      `parquet:"number"`
	FailedAt   time.Time  `parquet:"failed_at,timestamp(nanosecond)"`
	Queue      string     `parquet:"queue,dict"`
	JobSet     string     `parquet:"job_set,dict"`
	JobID      string     `parquet:"job_id"`
	RunID      string     `parquet:"run_id"`
	RunIndex   int64      `parquet:"run_index"`
	Decision   string     `parquet:"decision,dict"`
	Code       string     `parquet:"code,dict"`
	Policy     string     `parquet:"policy,dict"`
	Rule       string     `parquet:"rule,dict"`
	Reason     string     `parquet:"reason"`
	DelayMS    int64      `parquet:"delay_ms"`
	RetryAfter *time.Time `parquet:"retry_after,optional,timestamp(nanosecond)"`
	RuleUsed   *int64     `parquet:"rule_used,optional"`
	RuleLimit  *int64     `parquet:"rule_limit,optional"`
	GlobalUsed int64      `parquet:"global_used"`
	GlobalMax  int64      `parquet:"global_limit"`
	AvoidNodes string     `parquet:"avoid_nodes"` // separated by commas
	Shadow     bool       `parquet:"shadow"`
	Effective  bool       `parquet:"effective"`
	Generation int64      `parquet:"policy_generation"`
	Group      string     `parquet:"group,dict"`
	Part       string     `parquet:"part,dict"`
	Replica    *int64     `parquet:"replica,optional"`
	Index      *int64     `parquet:"member_index,optional"`
	UnitReason string     `parquet:"unit_reason,dict"`
	Action     string     `parquet:"group_action,dict"`
}

// DecisionOf returns the row of a decision.
func DecisionOf(d *jobdb.Decision) Decision {
	shown := audit.DecisionOf(d.Partition, &d.Decision)
	return Decision{
		Partition: int64(d.Partition), Number: int64(d.Number), FailedAt: time.Unix(0, d.Time).UTC(), Queue: d.Queue, JobSet: d.JobSet, JobID: d.JobID,
		RunID: d.RunID, RunIndex: int64(d.RunIndex), Decision: shown.Decision, Code: shown.Code, Policy: d.Policy, Rule: d.Rule, Reason: shown.Reason,
		DelayMS: d.DelayMS, RetryAfter: timeOf(d.RetryAfter), GlobalUsed: int64(d.GlobalUsed), GlobalMax: int64(d.GlobalLimit),
		AvoidNodes: strings.Join(d.AvoidNodes, ","), Shadow: d.Shadow, Effective: d.Acted, Generation: int64(d.Generation),
		Group: shown.Group, Part: shown.Part, Replica: wide(shown.Replica), Index: wide(shown.Index), UnitReason: shown.UnitReason, Action: shown.GroupAction,
		RuleUsed: wide(shown.RuleUsed), RuleLimit: wide(shown.RuleLimit),
	}
}

func wide(n *uint32) *int64 {
	if n == nil {
		return nil
	}
	return new(int64(*n))
}

// Run is a run as exports have it.
type Run struct {
	Partition   int64      `parquet:"partition"`
	JobID       string     `parquet:"job_id"`
	RunID       string     `parquet:"run_id"`
	RunIndex    int64      `parquet:"run_index"`
	State       string     `parquet:"state,dict"`
	Executor    string     `parquet:"executor,dict"`
	Node        string     `parquet:"node,dict"`
	Pool        string     `parquet:"pool,dict"`
	Leased      *time.Time `parquet:"leased,optional,timestamp(nanosecond)"`
	Running     *time.Time `parquet:"running,optional,timestamp(nanosecond)"`
	Ended       *time.Time `parquet:"ended,optional,timestamp(nanosecond)"`
	Preempted   bool       `parquet:"preempted"`
	Error       string     `parquet:"error,dict"`
	Category    string     `parquet:"category,dict"`
	Subcategory string     `parquet:"subcategory,dict"`
	Message     string     `parquet:"message"`
	Outcome     string     `parquet:"outcome,dict"`
	Decision    *int64     `parquet:"decision,optional"`         // its number
	CPUHours    *float64   `parquet:"cpu_hours,optional"`        // of a core, from the lease to the end
	MemoryHours *float64   `parquet:"memory_gib_hours,optional"` // as cpu_hours
	GPUHours    *float64   `parquet:"gpu_hours,optional"`        // as cpu_hours, of a device
}

// RunOf returns the row of a run.
func RunOf(r *jobdb.HeldRun) Run {
	row := Run{
		Partition: int64(r.Partition), JobID: r.JobID, RunID: r.RunID, RunIndex: int64(r.Index), State: r.State.String(), Executor: r.Executor,
		Node: r.Node, Pool: r.Pool, Leased: timeOf(r.Times.Leased), Running: timeOf(r.Times.Running), Ended: timeOf(r.Times.Ended),
		Preempted: r.Flags.Preempted, Error: r.Error.Reason, Category: r.Error.Category, Subcategory: r.Error.Subcategory, Message: r.Error.Message,
		Outcome: r.Outcome.String(),
	}
	if r.Decision != 0 {
		row.Decision = new(int64(r.Decision))
	}
	if held := jobdb.SpentBy(r.Requests, r.Times); held.Known() {
		row.CPUHours, row.MemoryHours, row.GPUHours = new(held.CPUHours()), new(held.MemoryHours()), new(held.GPUHours())
	}
	return row
}

// Job is a job as exports have it.
type Job struct {
	Partition  int64      `parquet:"partition"`
	JobID      string     `parquet:"job_id"`
	Queue      string     `parquet:"queue,dict"`
	JobSet     string     `parquet:"job_set,dict"`
	State      string     `parquet:"state,dict"`
	Final      bool       `parquet:"final"`
	Submitted  *time.Time `parquet:"submitted,optional,timestamp(nanosecond)"`
	Ended      *time.Time `parquet:"ended,optional,timestamp(nanosecond)"`
	RetryAfter *time.Time `parquet:"retry_after,optional,timestamp(nanosecond)"`
	Runs       int64      `parquet:"runs"`
	Priority   int64      `parquet:"priority"`
	Namespace  string     `parquet:"namespace,dict"`
	GangID     string     `parquet:"gang_id,dict"`
	Group      string     `parquet:"group,dict"`
	Part       string     `parquet:"part,dict"`
	Replica    *int64     `parquet:"replica,optional"`
	Index      *int64     `parquet:"member_index,optional"`
	Armada     string     `parquet:"armada_error,dict"`   // of its own verdict, if it failed the job
	CPU        *float64   `parquet:"cpu,optional"`        // requested: cores
	Memory     *float64   `parquet:"memory_gib,optional"` // requested
	GPU        *float64   `parquet:"gpu,optional"`        // requested: devices
}

// JobOf returns the row of a job.
func JobOf(j *jobdb.Job) Job {
	row := Job{
		Partition: int64(j.Partition), JobID: j.JobID, Queue: j.Queue, JobSet: j.JobSet, State: j.State.String(), Final: j.Final,
		Submitted: timeOf(j.Times.Submitted), Ended: timeOf(j.Times.Ended), RetryAfter: timeOf(j.Queueing.RetryAfter), Runs: int64(j.Queueing.Runs),
		Priority: j.Queueing.Priority, Namespace: j.Submit.Namespace, GangID: j.Submit.GangID, Armada: j.Armada.Reason,
	}
	if r := j.Submit.Requests; r != nil {
		row.CPU, row.Memory, row.GPU = new(float64(r.CPU)/1000), new(float64(r.Memory)/1024), new(float64(r.GPU)/1000)
	}
	if m := &j.Member; m.GroupID != "" {
		row.Group, row.Part, row.Replica, row.Index = m.Group, m.Part, new(int64(m.Replica)), new(int64(m.Index))
	}
	return row
}
