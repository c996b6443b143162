package sqlite

import "github.com/refloat/refloat/internal/jobdb"

var jobTable = table[jobdb.Job]{
	name: "jobs",
	key:  []string{"job_id", "partition"},
	columns: columns(`job_id partition queue job_set known state final cancel_requested submitted ended
		priority queued_version retry_after avoid_nodes runs open_runs latest_run decision
		namespace retry_policies fail_fast gang_id gang_cardinality init_containers grace_seconds
		armada_failed armada_at armada_run armada_reason armada_message armada_category armada_subcategory
		updated_ledger updated_entry updated_batch`),
	values: func(j *jobdb.Job, v []any) []any {
		q, s, a := &j.Queueing, &j.Submit, &j.Armada
		return append(v, j.JobID, int64(j.Partition), j.Queue, j.JobSet, flag(j.Known), int64(j.State), flag(j.Final), flag(j.CancelRequested),
			j.Times.Submitted, j.Times.Ended,
			q.Priority, q.Version, q.RetryAfter, jobdb.EncodeStrings(q.AvoidNodes), int64(q.Runs), int64(q.OpenRuns), q.LatestRun, int64(q.Decision),
			s.Namespace, s.RetryPolicies, s.FailFast, s.GangID, s.GangCardinality, jobdb.EncodeStrings(s.InitContainers), s.GraceSeconds,
			flag(a.Failed), a.At, a.RunID, a.Reason, a.Message, a.Category, a.Subcategory,
			j.Updated.Ledger, j.Updated.Entry, int64(j.Updated.Batch))
	},
	targets: func(j *jobdb.Job, v []any) []any {
		q, s, a := &j.Queueing, &j.Submit, &j.Armada
		return append(v, &j.JobID, &j.Partition, &j.Queue, &j.JobSet, &j.Known, &j.State, &j.Final, &j.CancelRequested,
			&j.Times.Submitted, &j.Times.Ended,
			&q.Priority, &q.Version, &q.RetryAfter, strs{&q.AvoidNodes}, &q.Runs, &q.OpenRuns, &q.LatestRun, unsigned{&q.Decision},
			&s.Namespace, &s.RetryPolicies, &s.FailFast, &s.GangID, &s.GangCardinality, strs{&s.InitContainers}, &s.GraceSeconds,
			&a.Failed, &a.At, &a.RunID, &a.Reason, &a.Message, &a.Category, &a.Subcategory,
			&j.Updated.Ledger, &j.Updated.Entry, &j.Updated.Batch)
	},
}

var runTable = table[jobdb.Run]{
	name: "runs",
	key:  []string{"job_id", "run_id", "partition"},
	columns: columns(`job_id run_id partition run_index state executor node pool
		leased pending running ended preempted_at gone
		preempted returned attempted cancelled
		error_reason error_message error_category error_subcategory kubernetes_reason error_node preempt_reason containers error
		outcome shadow decision`),
	values: func(r *jobdb.Run, v []any) []any {
		t, f, e := &r.Times, &r.Flags, &r.Error
		return append(v, r.JobID, r.RunID, int64(r.Partition), int64(r.Index), int64(r.State), r.Executor, r.Node, r.Pool,
			t.Leased, t.Pending, t.Running, t.Ended, t.Preempted, t.Gone,
			flag(f.Preempted), flag(f.Returned), flag(f.Attempted), flag(f.Cancelled),
			e.Reason, e.Message, e.Category, e.Subcategory, e.KubernetesReason, e.Node, e.PreemptReason, jobdb.EncodeContainers(e.Containers), e.Raw,
			int64(r.Outcome), flag(r.Shadow), int64(r.Decision))
	},
	targets: func(r *jobdb.Run, v []any) []any {
		t, f, e := &r.Times, &r.Flags, &r.Error
		return append(v, &r.JobID, &r.RunID, &r.Partition, &r.Index, &r.State, &r.Executor, &r.Node, &r.Pool,
			&t.Leased, &t.Pending, &t.Running, &t.Ended, &t.Preempted, &t.Gone,
			&f.Preempted, &f.Returned, &f.Attempted, &f.Cancelled,
			&e.Reason, &e.Message, &e.Category, &e.Subcategory, &e.KubernetesReason, &e.Node, &e.PreemptReason, containers{&e.Containers}, &e.Raw,
			&r.Outcome, &r.Shadow, unsigned{&r.Decision})
	},
}

type placeRow struct {
	partition int
	jobdb.Place
}

var placeTable = table[placeRow]{
	name: "positions",
	columns: columns(`partition seq link epoch owner in_to_ledger in_to_entry in_to_batch
		decision_ledger decision_entry decision_batch event_ledger event_entry event_batch`),
	values: func(p *placeRow, v []any) []any {
		return append(v, int64(p.partition), int64(p.Chain.Seq), p.Chain.Link[:], int64(p.Chain.Epoch), p.Chain.Owner[:],
			p.Chain.InTo.Ledger, p.Chain.InTo.Entry, int64(p.Chain.InTo.Batch),
			p.Decisions.Ledger, p.Decisions.Entry, int64(p.Decisions.Batch),
			p.Events.Ledger, p.Events.Entry, int64(p.Events.Batch))
	},
	targets: func(p *placeRow, v []any) []any {
		return append(v, &p.partition, unsigned{&p.Chain.Seq}, fixed{p.Chain.Link[:]}, unsigned{&p.Chain.Epoch}, fixed{p.Chain.Owner[:]},
			&p.Chain.InTo.Ledger, &p.Chain.InTo.Entry, &p.Chain.InTo.Batch,
			&p.Decisions.Ledger, &p.Decisions.Entry, &p.Decisions.Batch,
			&p.Events.Ledger, &p.Events.Entry, &p.Events.Batch)
	},
}
