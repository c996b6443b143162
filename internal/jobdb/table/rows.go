package table

import (
	"slices"

	"github.com/refloat/refloat/internal/jobdb"
)

// Jobs are jobs.
var Jobs = Of[jobdb.Job]{
	Name: "jobs",
	Key:  []string{"job_id", "partition"},
	Columns: columns(`job_id partition queue job_set known state final cancel_requested submitted ended
		priority queued_version retry_after avoid_nodes runs open_runs latest_run decision
		namespace retry_policies fail_fast gang_id gang_cardinality init_containers grace_seconds
		armada_failed armada_at armada_run armada_reason armada_message armada_category armada_subcategory
		group_id binding grp part replica member_index generation member_state restarting
		updated_ledger updated_entry updated_batch since_ledger since_entry since_batch requests retry`),
	Fields: func(j *jobdb.Job, v []any) []any {
		q, s, a, m := &j.Queueing, &j.Submit, &j.Armada, &j.Member
		v = append(v, &j.JobID, &j.Partition, &j.Queue, &j.JobSet, &j.Known, (*uint8)(&j.State), &j.Final, &j.CancelRequested,
			&j.Times.Submitted, &j.Times.Ended,
			&q.Priority, &q.Version, &q.RetryAfter, &q.AvoidNodes, &q.Runs, &q.OpenRuns, &q.LatestRun, &q.Decision,
			&s.Namespace, &s.RetryPolicies, &s.FailFast, &s.GangID, &s.GangCardinality, &s.InitContainers, &s.GraceSeconds,
			&a.Failed, &a.At, &a.RunID, &a.Reason, &a.Message, &a.Category, &a.Subcategory,
			&m.GroupID, &m.Binding, &m.Group, &m.Part, &m.Replica, &m.Index, &m.Generation, (*uint8)(&m.State), &m.Restarting)
		return append(at(&j.Since, at(&j.Updated, v)), &s.Requests, &j.Retry)
	},
}

// Runs are the runs of jobs.
var Runs = Of[jobdb.Run]{
	Name: "runs",
	Key:  []string{"job_id", "run_id", "partition"},
	Columns: columns(`job_id run_id partition run_index state executor node pool
		leased pending running ended preempted_at gone
		preempted returned attempted cancelled
		error_reason error_message error_category error_subcategory kubernetes_reason error_node preempt_reason containers error
		outcome shadow decision`),
	Fields: func(r *jobdb.Run, v []any) []any {
		t, f, e := &r.Times, &r.Flags, &r.Error
		return append(v, &r.JobID, &r.RunID, &r.Partition, &r.Index, (*uint8)(&r.State), &r.Executor, &r.Node, &r.Pool,
			&t.Leased, &t.Pending, &t.Running, &t.Ended, &t.Preempted, &t.Gone,
			&f.Preempted, &f.Returned, &f.Attempted, &f.Cancelled,
			&e.Reason, &e.Message, &e.Category, &e.Subcategory, &e.KubernetesReason, &e.Node, &e.PreemptReason, &e.Containers, &e.Raw,
			(*uint8)(&r.Outcome), &r.Shadow, &r.Decision)
	},
}

// heldRuns are Runs to be read, with what their jobs request.
var heldRuns = Of[jobdb.HeldRun]{
	Name:    Runs.Name,
	Key:     Runs.Key,
	Columns: append(slices.Clip(Runs.Columns), "coalesce((SELECT x.requests FROM {jobs} x WHERE x.job_id = runs.job_id AND x.partition = runs.partition), '')"),
	Fields:  func(r *jobdb.HeldRun, v []any) []any { return append(Runs.Fields(&r.Run, v), &r.Requests) },
}

// Groups are groups of jobs.
var Groups = Of[jobdb.Group]{
	Name: "groups",
	Key:  []string{"group_id", "partition"},
	Columns: columns(`group_id partition queue job_set grp binding policy digest shape
		state reason rule generation restarts counted max_restarts updated_ledger updated_entry updated_batch`),
	Fields: func(g *jobdb.Group, v []any) []any {
		return at(&g.Updated, append(v, &g.ID, &g.Partition, &g.Queue, &g.JobSet, &g.Name, &g.Binding, &g.Policy, &g.Digest, &g.Shape,
			(*uint8)(&g.State), (*uint8)(&g.Reason), &g.Rule, &g.Generation, &g.Restarts, &g.Counted, &g.MaxRestarts))
	},
}

// Units are the replicas of the parts of groups.
var Units = Of[jobdb.Unit]{
	Name:    "units",
	Key:     []string{"unit_id", "partition"},
	Columns: columns(`unit_id partition group_id binding part replica state reason generation restarts retries taken`),
	Fields: func(u *jobdb.Unit, v []any) []any {
		return append(v, &u.ID, &u.Partition, &u.GroupID, &u.Binding, &u.Part, &u.Replica, (*uint8)(&u.State), (*uint8)(&u.Reason),
			&u.Generation, &u.Restarts, &u.Retries, &u.Taken)
	},
}

// Positions are those of the partitions' rows. Two are equal if all columns
// but those of the owner and of the decision log are equal; see Moved.
var Positions = Of[jobdb.PartitionPositions]{
	Name: "positions",
	Columns: columns(`partition seq link epoch owner in_to_ledger in_to_entry in_to_batch
		decision_ledger decision_entry decision_batch event_ledger event_entry event_batch
		pruned_jobs pruned_ledger pruned_entry pruned_batch pruned_ended pruned_at`),
	Fields: func(p *jobdb.PartitionPositions, v []any) []any {
		c := &p.Positions.Chain
		v = append(v, &p.Partition, &c.Seq, (*[32]byte)(&c.Link), &c.Epoch, (*[16]byte)(&c.Owner))
		v = at(&p.Positions.Events, at(&p.Positions.Decisions, at(&c.InTo, v)))
		return append(at(&p.Positions.Pruned.Through, append(v, &p.Positions.Pruned.Jobs)), &p.Positions.Pruned.Ended, &p.Positions.Pruned.When)
	},
}

// Move holds the parts of a statement that moves a partition's position: Set are the
// columns to set, When those that must hold their old values.
type Move struct {
	Set, When         []string
	SetArgs, WhenArgs []any // as returned by Plain
}

// Moved returns the compare-and-set of a position.
func Moved(partition int, from, to jobdb.Positions) Move {
	var m Move
	old, next := jobdb.PartitionPositions{Partition: partition, Positions: from}, jobdb.PartitionPositions{Partition: partition, Positions: to}
	olds, nexts := Positions.Fields(&old, nil), Positions.Fields(&next, nil)
	for i, c := range Positions.Columns {
		if c != "partition" {
			m.Set, m.SetArgs = append(m.Set, c), append(m.SetArgs, Plain(nexts[i]))
		}
		switch c {
		case "epoch", "owner", "decision_ledger", "decision_entry", "decision_batch": // they follow from the link
		default:
			m.When, m.WhenArgs = append(m.When, c), append(m.WhenArgs, Plain(olds[i]))
		}
	}
	return m
}
