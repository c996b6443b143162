package sqlite

import "github.com/refloat/refloat/internal/jobdb"

const whereColumns = "partition seq record log_ledger log_entry log_batch recording superseded "

func whereValues(w *jobdb.Where, v []any) []any {
	return append(v, int64(w.Partition), int64(w.Seq), int64(w.Record), w.Log.Ledger, w.Log.Entry, int64(w.Log.Batch), w.Recording, flag(w.Superseded))
}

func whereTargets(w *jobdb.Where, v []any) []any {
	return append(v, &w.Partition, unsigned{&w.Seq}, &w.Record, &w.Log.Ledger, &w.Log.Entry, &w.Log.Batch, &w.Recording, &w.Superseded)
}

var decisionTable = table[jobdb.Decision]{
	name: "decisions",
	columns: columns(whereColumns + `acted number requeue ledger entry batch
		queue job_set job_id run_id run_index time
		code policy rule rule_id limit_from rule_used rule_limit global_used global_limit
		container matcher skipped shadow generation policy_set
		delay_ms retry_after ready_after pod_name avoid_nodes`),
	values: func(d *jobdb.Decision, v []any) []any {
		return append(whereValues(&d.Where, v), flag(d.Acted), int64(d.Number), flag(d.Requeue),
			d.Position.Ledger, d.Position.Entry, int64(d.Position.Batch),
			d.Queue, d.JobSet, d.JobID, d.RunID, int64(d.RunIndex), d.Time,
			int64(d.Code), d.Policy, d.Rule, d.RuleID, int64(d.LimitFrom), int64(d.RuleUsed), int64(d.RuleLimit), int64(d.GlobalUsed), int64(d.GlobalLimit),
			d.Container, int64(d.Matcher), jobdb.EncodeStrings(d.Skipped), flag(d.Shadow), int64(d.Generation), d.PolicySet[:],
			d.DelayMS, d.RetryAfter, d.ReadyAfter, d.PodName, jobdb.EncodeStrings(d.AvoidNodes))
	},
	targets: func(d *jobdb.Decision, v []any) []any {
		return append(whereTargets(&d.Where, v), &d.Acted, unsigned{&d.Number}, &d.Requeue,
			&d.Position.Ledger, &d.Position.Entry, &d.Position.Batch,
			&d.Queue, &d.JobSet, &d.JobID, &d.RunID, &d.RunIndex, &d.Time,
			&d.Code, &d.Policy, &d.Rule, &d.RuleID, &d.LimitFrom, &d.RuleUsed, &d.RuleLimit, &d.GlobalUsed, &d.GlobalLimit,
			&d.Container, &d.Matcher, strs{&d.Skipped}, &d.Shadow, unsigned{&d.Generation}, fixed{d.PolicySet[:]},
			&d.DelayMS, &d.RetryAfter, &d.ReadyAfter, &d.PodName, strs{&d.AvoidNodes})
	},
}

var notDecidedTable = table[jobdb.NotDecided]{
	name:    "not_decided",
	columns: columns(whereColumns + `ledger entry batch queue job_set job_id run_id reason time`),
	values: func(n *jobdb.NotDecided, v []any) []any {
		return append(whereValues(&n.Where, v), n.Position.Ledger, n.Position.Entry, int64(n.Position.Batch),
			n.Queue, n.JobSet, n.JobID, n.RunID, int64(n.Reason), n.Time)
	},
	targets: func(n *jobdb.NotDecided, v []any) []any {
		return append(whereTargets(&n.Where, v), &n.Position.Ledger, &n.Position.Entry, &n.Position.Batch,
			&n.Queue, &n.JobSet, &n.JobID, &n.RunID, &n.Reason, &n.Time)
	},
}

var readyTable = table[jobdb.Ready]{
	name:    "ready",
	columns: columns(whereColumns + `acted ledger entry batch job_id run_id retry_after`),
	values: func(r *jobdb.Ready, v []any) []any {
		return append(whereValues(&r.Where, v), flag(r.Acted), r.Position.Ledger, r.Position.Entry, int64(r.Position.Batch),
			r.JobID, r.RunID, r.RetryAfter)
	},
	targets: func(r *jobdb.Ready, v []any) []any {
		return append(whereTargets(&r.Where, v), &r.Acted, &r.Position.Ledger, &r.Position.Entry, &r.Position.Batch,
			&r.JobID, &r.RunID, &r.RetryAfter)
	},
}

var parkedTable = table[jobdb.Parked]{
	name:    "parked",
	columns: columns(whereColumns + `ledger entry batch reason event raw`),
	values: func(p *jobdb.Parked, v []any) []any {
		return append(whereValues(&p.Where, v), p.Position.Ledger, p.Position.Entry, int64(p.Position.Batch),
			int64(p.Reason), int64(p.Event), p.Raw)
	},
	targets: func(p *jobdb.Parked, v []any) []any {
		return append(whereTargets(&p.Where, v), &p.Position.Ledger, &p.Position.Entry, &p.Position.Batch,
			&p.Reason, &p.Event, &p.Raw)
	},
}

var activationTable = table[jobdb.Activation]{
	name:    "activations",
	columns: columns(`partition seq record from_ledger from_entry from_batch generation digest horizon_ms semantics`),
	values: func(a *jobdb.Activation, v []any) []any {
		return append(v, int64(a.Partition), int64(a.Seq), int64(a.Record), a.From.Ledger, a.From.Entry, int64(a.From.Batch),
			int64(a.Generation), a.Digest[:], a.HorizonMS, int64(a.Semantics))
	},
	targets: func(a *jobdb.Activation, v []any) []any {
		return append(v, &a.Partition, unsigned{&a.Seq}, &a.Record, &a.From.Ledger, &a.From.Entry, &a.From.Batch,
			unsigned{&a.Generation}, fixed{a.Digest[:]}, &a.HorizonMS, &a.Semantics)
	},
}

var releaseTable = table[jobdb.Release]{
	name:    "releases",
	columns: columns(`partition seq from_ledger from_entry from_batch to_ledger to_entry to_batch messages made`),
	values: func(r *jobdb.Release, v []any) []any {
		return append(v, int64(r.Partition), int64(r.Seq), r.From.Ledger, r.From.Entry, int64(r.From.Batch),
			r.To.Ledger, r.To.Entry, int64(r.To.Batch), int64(r.Messages), r.When)
	},
	targets: func(r *jobdb.Release, v []any) []any {
		return append(v, &r.Partition, unsigned{&r.Seq}, &r.From.Ledger, &r.From.Entry, &r.From.Batch,
			&r.To.Ledger, &r.To.Entry, &r.To.Batch, unsigned{&r.Messages}, &r.When)
	},
}
