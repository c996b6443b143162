package table

import (
	"github.com/refloat/refloat/internal/jobdb"
)

const whereColumns = "partition seq record log_ledger log_entry log_batch recording superseded "

func where(w *jobdb.Where, v []any) []any {
	return append(at(&w.Log, append(v, &w.Partition, &w.Seq, &w.Record)), &w.Recording, &w.Superseded)
}

// Decisions are decisions.
var Decisions = Of[jobdb.Decision]{
	Name: "decisions",
	Columns: columns(whereColumns + `acted number requeue ledger entry batch
		queue job_set job_id run_id run_index time
		code policy rule rule_id limit_from rule_used rule_limit global_used global_limit
		container matcher skipped shadow generation policy_set
		delay_ms retry_after ready_after pod_name avoid_nodes nodes_left_out group_id member group_verdict budget`),
	Fields: func(d *jobdb.Decision, v []any) []any {
		v = at(&d.Position, append(where(&d.Where, v), &d.Acted, &d.Number, &d.Requeue))
		return append(v, &d.Queue, &d.JobSet, &d.JobID, &d.RunID, &d.RunIndex, &d.Time,
			(*uint8)(&d.Code), &d.Policy, &d.Rule, &d.RuleID, (*uint8)(&d.LimitFrom), &d.RuleUsed, &d.RuleLimit, &d.GlobalUsed, &d.GlobalLimit,
			&d.Container, (*uint8)(&d.Matcher), &d.Skipped, &d.Shadow, &d.Generation, &d.PolicySet,
			&d.DelayMS, &d.RetryAfter, &d.ReadyAfter, &d.PodName, &d.AvoidNodes, &d.NodesLeftOut,
			&d.GroupID, &d.Member, &d.Group, &d.Budget)
	},
}

// NotDecided are failed runs without a decision.
var NotDecided = Of[jobdb.NotDecided]{
	Name:    "not_decided",
	Columns: columns(whereColumns + `ledger entry batch queue job_set job_id run_id reason time`),
	Fields: func(n *jobdb.NotDecided, v []any) []any {
		return append(at(&n.Position, where(&n.Where, v)), &n.Queue, &n.JobSet, &n.JobID, &n.RunID, (*uint8)(&n.Reason), &n.Time)
	},
}

// Ready are retries whose old run is gone.
var Ready = Of[jobdb.Ready]{
	Name:    "ready",
	Columns: columns(whereColumns + `acted ledger entry batch job_id run_id retry_after`),
	Fields: func(r *jobdb.Ready, v []any) []any {
		return append(at(&r.Position, append(where(&r.Where, v), &r.Acted)), &r.JobID, &r.RunID, &r.RetryAfter)
	},
}

// GroupRecords are records of groups other than decisions.
var GroupRecords = Of[jobdb.GroupRecord]{
	Name:    "group_records",
	Columns: columns(whereColumns + `acted name group_id job_id run_id raw`),
	Fields: func(r *jobdb.GroupRecord, v []any) []any {
		return append(where(&r.Where, v), &r.Acted, &r.Name, &r.GroupID, &r.JobID, &r.RunID, &r.Raw)
	},
}

// Parked are messages and events that could not be processed.
var Parked = Of[jobdb.Parked]{
	Name:    "parked",
	Columns: columns(whereColumns + `ledger entry batch reason event raw digest length`),
	Fields: func(p *jobdb.Parked, v []any) []any {
		return append(at(&p.Position, where(&p.Where, v)), (*uint8)(&p.Reason), &p.Event, &p.Raw, (*[32]byte)(&p.Digest), &p.Length)
	},
}

// Activations put policies and versions of the semantics into force.
var Activations = Of[jobdb.Activation]{
	Name:    "activations",
	Columns: columns(`partition seq record from_ledger from_entry from_batch generation digest horizon_ms semantics`),
	Fields: func(a *jobdb.Activation, v []any) []any {
		return append(at(&a.From, append(v, &a.Partition, &a.Seq, &a.Record)), &a.Generation, &a.Digest, &a.HorizonMS, &a.Semantics)
	},
}

// OriginQuery finds where the release of no messages from the beginning ends, for the
// partition in the first argument. See [jobdb.Origin].
const OriginQuery = "SELECT to_ledger, to_entry, to_batch FROM %sreleases WHERE partition = %s AND from_ledger = -1 AND messages = 0"

// Releases are ranges of events that the rows include although the chain had not
// answered them.
var Releases = Of[jobdb.Release]{
	Name:    "releases",
	Columns: columns(`partition seq from_ledger from_entry from_batch to_ledger to_entry to_batch messages made`),
	Fields: func(r *jobdb.Release, v []any) []any {
		return append(at(&r.To, at(&r.From, append(v, &r.Partition, &r.Seq))), &r.Messages, &r.When)
	},
}
