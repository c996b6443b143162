package postgres

import "github.com/refloat/refloat/internal/jobdb/table"

// application is stored in refloat_schema to identify the tables as ours.
const application = "refloat job database"

// migrations migrate the tables from version i to i+1. A released migration never
// changes, but for what it counts if the last one counts all rows again: a new version is a new entry.
//
// Jobs, runs and positions are updated often, so their pages keep room for the new
// version of a row (fillfactor): then no index needs an update.
var migrations = []string{`
CREATE TABLE refloat_schema (application text NOT NULL, version integer NOT NULL);
INSERT INTO refloat_schema VALUES ('` + application + `', 0);

-- The position of each partition's rows; every transaction moves it by compare-and-set.
CREATE TABLE refloat_positions (
	partition integer PRIMARY KEY,
	seq bigint NOT NULL, link bytea NOT NULL, epoch bigint NOT NULL, owner bytea NOT NULL,
	in_to_ledger bigint NOT NULL, in_to_entry bigint NOT NULL, in_to_batch integer NOT NULL,
	decision_ledger bigint NOT NULL, decision_entry bigint NOT NULL, decision_batch integer NOT NULL,
	event_ledger bigint NOT NULL, event_entry bigint NOT NULL, event_batch integer NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE refloat_jobs (
	job_id text COLLATE "C" NOT NULL, partition integer NOT NULL, queue text COLLATE "C" NOT NULL, job_set text COLLATE "C" NOT NULL,
	known boolean NOT NULL, state smallint NOT NULL, final boolean NOT NULL, cancel_requested boolean NOT NULL,
	submitted bigint NOT NULL, ended bigint NOT NULL,
	priority bigint NOT NULL, queued_version bigint NOT NULL, retry_after bigint NOT NULL, avoid_nodes text NOT NULL,
	runs bigint NOT NULL, open_runs bigint NOT NULL, latest_run text NOT NULL, decision bigint NOT NULL,
	namespace text NOT NULL, retry_policies text NOT NULL, fail_fast text NOT NULL,
	gang_id text NOT NULL, gang_cardinality text NOT NULL, init_containers text NOT NULL, grace_seconds bigint NOT NULL,
	armada_failed boolean NOT NULL, armada_at bigint NOT NULL, armada_run text NOT NULL, armada_reason text NOT NULL,
	armada_message text NOT NULL, armada_category text NOT NULL, armada_subcategory text NOT NULL,
	updated_ledger bigint NOT NULL, updated_entry bigint NOT NULL, updated_batch integer NOT NULL,
	long_keys text NOT NULL,
	PRIMARY KEY (job_id, partition)
) WITH (fillfactor = 70);
CREATE INDEX refloat_jobs_set ON refloat_jobs (queue, job_set);
CREATE INDEX refloat_jobs_waiting ON refloat_jobs (retry_after) WHERE retry_after <> 0;

CREATE TABLE refloat_runs (
	job_id text COLLATE "C" NOT NULL, run_id text COLLATE "C" NOT NULL, partition integer NOT NULL,
	run_index bigint NOT NULL, state smallint NOT NULL, executor text NOT NULL, node text NOT NULL, pool text NOT NULL,
	leased bigint NOT NULL, pending bigint NOT NULL, running bigint NOT NULL, ended bigint NOT NULL,
	preempted_at bigint NOT NULL, gone bigint NOT NULL,
	preempted boolean NOT NULL, returned boolean NOT NULL, attempted boolean NOT NULL, cancelled boolean NOT NULL,
	error_reason text NOT NULL, error_message text NOT NULL, error_category text NOT NULL, error_subcategory text NOT NULL,
	kubernetes_reason text NOT NULL, error_node text NOT NULL, preempt_reason text NOT NULL, containers text NOT NULL, error bytea,
	outcome smallint NOT NULL, shadow boolean NOT NULL, decision bigint NOT NULL,
	long_keys text NOT NULL,
	PRIMARY KEY (job_id, run_id, partition)
) WITH (fillfactor = 70);

CREATE TABLE refloat_decisions (
	partition integer NOT NULL, seq bigint NOT NULL, record bigint NOT NULL,
	log_ledger bigint NOT NULL, log_entry bigint NOT NULL, log_batch integer NOT NULL, recording text NOT NULL, superseded boolean NOT NULL,
	acted boolean NOT NULL, number bigint NOT NULL, requeue boolean NOT NULL,
	ledger bigint NOT NULL, entry bigint NOT NULL, batch integer NOT NULL,
	queue text COLLATE "C" NOT NULL, job_set text COLLATE "C" NOT NULL, job_id text COLLATE "C" NOT NULL, run_id text COLLATE "C" NOT NULL,
	run_index bigint NOT NULL, time bigint NOT NULL,
	code smallint NOT NULL, policy text COLLATE "C" NOT NULL, rule text COLLATE "C" NOT NULL, rule_id text NOT NULL, limit_from smallint NOT NULL,
	rule_used bigint NOT NULL, rule_limit bigint NOT NULL, global_used bigint NOT NULL, global_limit bigint NOT NULL,
	container text NOT NULL, matcher smallint NOT NULL, skipped text NOT NULL, shadow boolean NOT NULL,
	generation bigint NOT NULL, policy_set bytea NOT NULL,
	delay_ms bigint NOT NULL, retry_after bigint NOT NULL, ready_after bigint NOT NULL, pod_name text NOT NULL, avoid_nodes text NOT NULL,
	long_keys text NOT NULL,
	PRIMARY KEY (partition, number)
);
CREATE INDEX refloat_decisions_job ON refloat_decisions (job_id);

CREATE TABLE refloat_not_decided (
	partition integer NOT NULL, seq bigint NOT NULL, record bigint NOT NULL,
	log_ledger bigint NOT NULL, log_entry bigint NOT NULL, log_batch integer NOT NULL, recording text NOT NULL, superseded boolean NOT NULL,
	ledger bigint NOT NULL, entry bigint NOT NULL, batch integer NOT NULL,
	queue text COLLATE "C" NOT NULL, job_set text COLLATE "C" NOT NULL, job_id text COLLATE "C" NOT NULL, run_id text COLLATE "C" NOT NULL,
	reason smallint NOT NULL, time bigint NOT NULL,
	long_keys text NOT NULL,
	PRIMARY KEY (partition, seq, record)
);
CREATE INDEX refloat_not_decided_job ON refloat_not_decided (job_id);

CREATE TABLE refloat_ready (
	partition integer NOT NULL, seq bigint NOT NULL, record bigint NOT NULL,
	log_ledger bigint NOT NULL, log_entry bigint NOT NULL, log_batch integer NOT NULL, recording text NOT NULL, superseded boolean NOT NULL,
	acted boolean NOT NULL, ledger bigint NOT NULL, entry bigint NOT NULL, batch integer NOT NULL,
	job_id text COLLATE "C" NOT NULL, run_id text COLLATE "C" NOT NULL, retry_after bigint NOT NULL,
	long_keys text NOT NULL,
	PRIMARY KEY (partition, seq, record)
);
CREATE INDEX refloat_ready_job ON refloat_ready (job_id);

CREATE TABLE refloat_parked (
	partition integer NOT NULL, seq bigint NOT NULL, record bigint NOT NULL,
	log_ledger bigint NOT NULL, log_entry bigint NOT NULL, log_batch integer NOT NULL, recording text NOT NULL, superseded boolean NOT NULL,
	ledger bigint NOT NULL, entry bigint NOT NULL, batch integer NOT NULL,
	reason smallint NOT NULL, event bigint NOT NULL, raw bytea,
	PRIMARY KEY (partition, seq, record)
);

CREATE TABLE refloat_activations (
	partition integer NOT NULL, seq bigint NOT NULL, record bigint NOT NULL,
	from_ledger bigint NOT NULL, from_entry bigint NOT NULL, from_batch integer NOT NULL,
	generation bigint NOT NULL, digest bytea NOT NULL, horizon_ms bigint NOT NULL, semantics bigint NOT NULL,
	PRIMARY KEY (partition, seq, record)
);

CREATE TABLE refloat_releases (
	partition integer NOT NULL, seq bigint NOT NULL,
	from_ledger bigint NOT NULL, from_entry bigint NOT NULL, from_batch integer NOT NULL,
	to_ledger bigint NOT NULL, to_entry bigint NOT NULL, to_batch integer NOT NULL,
	messages bigint NOT NULL, made bigint NOT NULL,
	PRIMARY KEY (partition, from_ledger, from_entry, from_batch)
);
`, `
-- What package writer keeps beside Armada's tables.
CREATE TABLE refloat_mirror (
	partition integer PRIMARY KEY,
	since     text NOT NULL -- decisions on messages up to here are not copied to events
);
CREATE TABLE refloat_waits (
	partition   integer NOT NULL,
	job_id      text    NOT NULL,
	run_id      text    NOT NULL,
	number      bigint  NOT NULL, -- of the decision
	policy      text    NOT NULL,
	retry_after bigint  NOT NULL, -- times are Unix nanoseconds
	avoid       text[]  NOT NULL,
	copied      boolean NOT NULL, -- to be copied to events when it is queued
	forgetting  boolean NOT NULL, -- to be queued when the scheduler has forgotten the job
	waiting     boolean NOT NULL, -- its requirements fit no node
	raises      integer NOT NULL, -- checks for a new run still to come; each but the last bumps queued_version
	raise_at    bigint  NOT NULL,
	due         bigint  NOT NULL,
	PRIMARY KEY (partition, job_id)
) WITH (fillfactor = 70);
CREATE INDEX ON refloat_waits (partition, due);
`, `
-- When the tables were rolled back to Armada's own ingester, in Unix nanoseconds: then none
-- of ours writes. NULL: they are ours.
ALTER TABLE refloat_positions ADD COLUMN given_back bigint;
`, `
-- The position of package controlplane in each partition of Armada's control-plane topic.
CREATE TABLE refloat_control (
	partition integer PRIMARY KEY,
	ledger bigint NOT NULL, entry bigint NOT NULL, batch integer NOT NULL
);
`, `
-- How the ingester writes Armada's tables, from which readers derive the name of a
-- retry's pod: holdback, direct or passthrough. NULL: unknown.
ALTER TABLE refloat_mirror ADD COLUMN mode text;
`, `
-- For payloads that do not fit into a message of the decision log: SHA-256 and length.
ALTER TABLE refloat_parked ADD COLUMN digest bytea NOT NULL DEFAULT '\x0000000000000000000000000000000000000000000000000000000000000000', ADD COLUMN length bigint NOT NULL DEFAULT 0;
`, `
-- Nodes to avoid that a decision does not name.
ALTER TABLE refloat_decisions ADD COLUMN nodes_left_out bigint NOT NULL DEFAULT 0;
`, `
-- Jobs that are over can be pruned: what was, and which message created a row. ended and
-- known change at most once or twice in a job's life, so most updates touch no index.
ALTER TABLE refloat_positions ADD COLUMN pruned_jobs bigint NOT NULL DEFAULT 0,
	ADD COLUMN pruned_ledger bigint NOT NULL DEFAULT 0, ADD COLUMN pruned_entry bigint NOT NULL DEFAULT 0, ADD COLUMN pruned_batch integer NOT NULL DEFAULT 0,
	ADD COLUMN pruned_ended bigint NOT NULL DEFAULT 0, ADD COLUMN pruned_at bigint NOT NULL DEFAULT 0;
ALTER TABLE refloat_jobs ADD COLUMN since_ledger bigint NOT NULL DEFAULT -1, ADD COLUMN since_entry bigint NOT NULL DEFAULT -1,
	ADD COLUMN since_batch integer NOT NULL DEFAULT -1;
CREATE INDEX refloat_jobs_ended ON refloat_jobs (partition, ended, job_id) WHERE ended <> 0;
CREATE INDEX refloat_jobs_unsubmitted ON refloat_jobs (partition, job_id) WHERE NOT known;
`, `
-- Groups of jobs. A column grp is the name of a group.
CREATE TABLE refloat_groups (
	group_id text COLLATE "C" NOT NULL, partition integer NOT NULL,
	queue text COLLATE "C" NOT NULL, job_set text COLLATE "C" NOT NULL, grp text COLLATE "C" NOT NULL,
	binding bigint NOT NULL, policy text NOT NULL, digest bytea NOT NULL, shape text NOT NULL,
	state smallint NOT NULL, reason smallint NOT NULL, rule text NOT NULL,
	generation bigint NOT NULL, restarts bigint NOT NULL, counted bigint NOT NULL, asked boolean NOT NULL, max_restarts bigint NOT NULL,
	updated_ledger bigint NOT NULL, updated_entry bigint NOT NULL, updated_batch integer NOT NULL,
	long_keys text NOT NULL,
	PRIMARY KEY (group_id, partition)
) WITH (fillfactor = 70);
CREATE INDEX refloat_groups_set ON refloat_groups (queue, job_set);

CREATE TABLE refloat_units (
	unit_id text COLLATE "C" NOT NULL, partition integer NOT NULL, group_id text COLLATE "C" NOT NULL, binding bigint NOT NULL,
	part text NOT NULL, replica bigint NOT NULL, state smallint NOT NULL, reason smallint NOT NULL,
	generation bigint NOT NULL, restarts bigint NOT NULL, retries bigint NOT NULL, taken text NOT NULL,
	PRIMARY KEY (unit_id, partition)
) WITH (fillfactor = 70);
CREATE INDEX refloat_units_group ON refloat_units (group_id);

CREATE TABLE refloat_group_records (
	partition integer NOT NULL, seq bigint NOT NULL, record bigint NOT NULL,
	log_ledger bigint NOT NULL, log_entry bigint NOT NULL, log_batch integer NOT NULL, recording text NOT NULL, superseded boolean NOT NULL,
	acted boolean NOT NULL, name text NOT NULL, group_id text COLLATE "C" NOT NULL,
	job_id text COLLATE "C" NOT NULL, run_id text COLLATE "C" NOT NULL, raw bytea,
	long_keys text NOT NULL,
	PRIMARY KEY (partition, seq, record)
);
CREATE INDEX refloat_group_records_group ON refloat_group_records (group_id);
CREATE INDEX refloat_group_records_job ON refloat_group_records (job_id);

ALTER TABLE refloat_jobs ADD COLUMN group_id text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN binding bigint NOT NULL DEFAULT 0,
	ADD COLUMN grp text NOT NULL DEFAULT '', ADD COLUMN part text NOT NULL DEFAULT '', ADD COLUMN replica bigint NOT NULL DEFAULT 0,
	ADD COLUMN member_index bigint NOT NULL DEFAULT 0, ADD COLUMN generation bigint NOT NULL DEFAULT 0,
	ADD COLUMN member_state smallint NOT NULL DEFAULT 0, ADD COLUMN restarting boolean NOT NULL DEFAULT false;
CREATE INDEX refloat_jobs_group ON refloat_jobs (group_id, ended) WHERE group_id <> '';

ALTER TABLE refloat_decisions ADD COLUMN group_id text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN member text NOT NULL DEFAULT '',
	ADD COLUMN group_verdict text NOT NULL DEFAULT '';
CREATE INDEX refloat_decisions_group ON refloat_decisions (group_id) WHERE group_id <> '';
`, `
-- Members that are held before their first start: their row in Armada's table jobs, which
-- is not written yet. A restarted member that is held is a row of refloat_waits.
CREATE TABLE refloat_held (
	partition integer NOT NULL,
	job_id    text NOT NULL,
	queue     text NOT NULL,
	job_set   text NOT NULL,
	submitted bytea NOT NULL, -- schedulerdb.InsertJob, as JSON
	PRIMARY KEY (partition, job_id)
);
CREATE INDEX ON refloat_held (queue, job_set);
`, `
-- max_restarts is known from the start.
ALTER TABLE refloat_groups DROP COLUMN asked;
`, `
-- Lists of decisions by time, and those of a queue.
CREATE INDEX refloat_decisions_time ON refloat_decisions (time, partition, number);
CREATE INDEX refloat_decisions_queue ON refloat_decisions (queue, time, partition, number);
`, `
-- Lists of jobs by submission, those of a queue, and by their end; of runs by lease; and
-- of decisions of a rule. None of these columns changes where no other index has it, so
-- updates still touch no index.
CREATE INDEX refloat_jobs_submitted ON refloat_jobs (submitted, job_id, partition);
CREATE INDEX refloat_jobs_queue ON refloat_jobs (queue, submitted, job_id, partition);
CREATE INDEX refloat_jobs_over ON refloat_jobs (ended, job_id, partition) WHERE ended <> 0;
CREATE INDEX refloat_runs_leased ON refloat_runs (leased, job_id);
CREATE INDEX refloat_decisions_rule ON refloat_decisions (rule, time, partition, number);
`, `
-- When pods have ended whose executors learn only from Armada's tables that their run is
-- over; 0: there are none. The retry starts no earlier.
ALTER TABLE refloat_waits ADD COLUMN pod_until bigint NOT NULL DEFAULT 0;
`, `
-- An index for each order of a list, and for each thing that lists select by (table/select.go). fate is the state of what
-- failed or was cancelled, else 0: unlike the state it changes once, so most updates still touch no index. Of texts of any
-- length, an index has the beginning: an entry has at most 2704 bytes.
ALTER TABLE refloat_jobs ADD COLUMN fate smallint GENERATED ALWAYS AS (CASE WHEN state IN (6, 7) THEN state ELSE 0 END) STORED;
ALTER TABLE refloat_runs ADD COLUMN fate smallint GENERATED ALWAYS AS (CASE WHEN state IN (5, 6) THEN state ELSE 0 END) STORED;
DROP INDEX refloat_jobs_set, refloat_jobs_waiting, refloat_jobs_over, refloat_runs_leased;
CREATE INDEX refloat_jobs_set ON refloat_jobs (job_set, queue);
CREATE INDEX refloat_jobs_waiting ON refloat_jobs (retry_after, job_id, partition);
CREATE INDEX refloat_jobs_over ON refloat_jobs (ended, job_id, partition);
CREATE INDEX refloat_jobs_runs ON refloat_jobs (runs, job_id, partition);
CREATE INDEX refloat_jobs_fate ON refloat_jobs (fate, ended, job_id, partition) WHERE fate <> 0;
CREATE INDEX refloat_jobs_grp ON refloat_jobs (substr(grp, 1, 100), submitted, job_id, partition) WHERE grp <> '';
CREATE INDEX refloat_runs_leased ON refloat_runs (leased, job_id, run_id, partition);
CREATE INDEX refloat_runs_ended ON refloat_runs (ended, job_id, run_id, partition);
CREATE INDEX refloat_runs_fate ON refloat_runs (fate, leased, job_id, run_id, partition) WHERE fate <> 0;
CREATE INDEX refloat_runs_node ON refloat_runs (substr((CASE WHEN error_node <> '' THEN error_node ELSE node END), 1, 100), leased, job_id, run_id, partition);
CREATE INDEX refloat_runs_category ON refloat_runs (substr(error_category, 1, 100), leased, job_id, run_id, partition) WHERE error_category <> '';
CREATE INDEX refloat_decisions_code ON refloat_decisions (code, time, partition, number);
CREATE INDEX refloat_decisions_policy ON refloat_decisions (policy, time, partition, number);
CREATE INDEX refloat_decisions_set ON refloat_decisions (job_set, time, partition, number);
CREATE INDEX refloat_groups_name ON refloat_groups (substr(grp, 1, 100)) WHERE grp <> '';
CREATE INDEX refloat_groups_in_set ON refloat_groups (job_set);
CREATE INDEX refloat_groups_state ON refloat_groups (state);
CREATE INDEX refloat_groups_policy ON refloat_groups (substr(policy, 1, 100)) WHERE policy <> '';
CREATE INDEX refloat_groups_rule ON refloat_groups (substr(rule, 1, 100)) WHERE rule <> '';
CREATE INDEX refloat_groups_restarts ON refloat_groups (restarts, queue, job_set);
`, `
-- Kept counts of decisions by hour: of 0 all, of 1 each queue, of 2 each policy (table/hours.go).
CREATE TABLE refloat_decision_hours (
	of smallint NOT NULL, queue text COLLATE "C" NOT NULL, policy text COLLATE "C" NOT NULL, hour bigint NOT NULL, partition integer NOT NULL,
	requeue boolean NOT NULL, shadow boolean NOT NULL, acted boolean NOT NULL, decisions bigint NOT NULL, long_keys text NOT NULL,
	PRIMARY KEY (of, queue, policy, hour, partition, requeue, shadow, acted)
);
INSERT INTO refloat_decision_hours SELECT 0, '', '', time / 3600000000000, partition, requeue, shadow, acted, count(*), '' FROM refloat_decisions GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
INSERT INTO refloat_decision_hours SELECT 1, queue, '', time / 3600000000000, partition, requeue, shadow, acted, count(*), '' FROM refloat_decisions GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
INSERT INTO refloat_decision_hours SELECT 2, '', policy, time / 3600000000000, partition, requeue, shadow, acted, count(*), '' FROM refloat_decisions GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
`, `
-- What retry budgets said about a decision (jobdb.EncodeBudget).
ALTER TABLE refloat_decisions ADD COLUMN budget text NOT NULL DEFAULT '';
`, `
-- Kept sums of what runs held, by day, of 0 each queue, 1 policy, 2 rule, 3 node and 4 category (table/cost.go); of jobs, what
-- they request, and the failure that their latest run is a retry after (jobdb/cost.go).
ALTER TABLE refloat_jobs ADD COLUMN requests text NOT NULL DEFAULT '', ADD COLUMN retry text NOT NULL DEFAULT '';
CREATE TABLE refloat_cost_days (
	of smallint NOT NULL, about text COLLATE "C" NOT NULL, day bigint NOT NULL, partition integer NOT NULL, kind smallint NOT NULL,
	runs bigint NOT NULL, unknown bigint NOT NULL, cpu bigint NOT NULL, memory bigint NOT NULL, gpu bigint NOT NULL, long_keys text NOT NULL,
	PRIMARY KEY (of, about, kind, day, partition)
);
`, `
-- Kept counts (table/counts.go), in place of those of decisions by hour, whose pruned decisions stay in them. Failed and cancelled jobs
-- of a queue by their end.
CREATE TABLE refloat_counts (
	of smallint NOT NULL, queue text COLLATE "C" NOT NULL, job_set text COLLATE "C" NOT NULL, about text COLLATE "C" NOT NULL, hour bigint NOT NULL,
	policy text COLLATE "C" NOT NULL, rule text COLLATE "C" NOT NULL, code smallint NOT NULL, kind smallint NOT NULL, partition integer NOT NULL,
	n bigint NOT NULL, pruned bigint NOT NULL, long_keys text NOT NULL DEFAULT '',
	PRIMARY KEY (of, queue, job_set, about, hour, policy, rule, code, kind, partition)
);
INSERT INTO refloat_counts (of, queue, job_set, about, hour, policy, rule, code, kind, partition, n, pruned) SELECT 0, '', '', '', time / 3600000000000, policy, rule, code, CASE WHEN requeue THEN 1 ELSE 0 END + CASE WHEN shadow THEN 2 ELSE 0 END + CASE WHEN acted THEN 4 ELSE 0 END, partition, count(*), 0 FROM refloat_decisions GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10;
INSERT INTO refloat_counts (of, queue, job_set, about, hour, policy, rule, code, kind, partition, n, pruned) SELECT 1, queue, '', '', time / 3600000000000, policy, rule, code, CASE WHEN requeue THEN 1 ELSE 0 END + CASE WHEN shadow THEN 2 ELSE 0 END + CASE WHEN acted THEN 4 ELSE 0 END, partition, count(*), 0 FROM refloat_decisions GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10;
INSERT INTO refloat_counts (of, queue, job_set, about, hour, policy, rule, code, kind, partition, n, pruned) SELECT 0, '', '', '', h.hour, h.policy, '', 0, CASE WHEN h.requeue THEN 1 ELSE 0 END + CASE WHEN h.shadow THEN 2 ELSE 0 END + CASE WHEN h.acted THEN 4 ELSE 0 END, h.partition, 0, h.decisions - h.there FROM (SELECT h.*, coalesce((SELECT sum(n) FROM refloat_counts c WHERE c.of = 0 AND c.queue = '' AND c.policy = h.policy AND c.job_set = '' AND c.hour = h.hour AND c.kind = CASE WHEN h.requeue THEN 1 ELSE 0 END + CASE WHEN h.shadow THEN 2 ELSE 0 END + CASE WHEN h.acted THEN 4 ELSE 0 END AND c.partition = h.partition), 0) AS there FROM refloat_decision_hours h WHERE of = 2) AS h WHERE h.decisions > h.there ON CONFLICT (of, queue, job_set, about, hour, policy, rule, code, kind, partition) DO UPDATE SET pruned = excluded.pruned;
INSERT INTO refloat_counts (of, queue, job_set, about, hour, policy, rule, code, kind, partition, n, pruned) SELECT 1, h.queue, '', '', h.hour, '', '', 0, CASE WHEN h.requeue THEN 1 ELSE 0 END + CASE WHEN h.shadow THEN 2 ELSE 0 END + CASE WHEN h.acted THEN 4 ELSE 0 END, h.partition, 0, h.decisions - h.there FROM (SELECT h.*, coalesce((SELECT sum(n) FROM refloat_counts c WHERE c.of = 1 AND c.queue = h.queue AND c.job_set = '' AND c.hour = h.hour AND c.kind = CASE WHEN h.requeue THEN 1 ELSE 0 END + CASE WHEN h.shadow THEN 2 ELSE 0 END + CASE WHEN h.acted THEN 4 ELSE 0 END AND c.partition = h.partition), 0) AS there FROM refloat_decision_hours h WHERE of = 1) AS h WHERE h.decisions > h.there ON CONFLICT (of, queue, job_set, about, hour, policy, rule, code, kind, partition) DO UPDATE SET pruned = excluded.pruned;
DROP TABLE refloat_decision_hours;
CREATE INDEX refloat_jobs_fate_in_queue ON refloat_jobs (queue, fate, ended, job_id, partition) WHERE fate <> 0;
`, `
-- Counts by job set, node and category are kept by hour and by day, those of jobs by job set too, and of what was not decided by queue; the key has the hour before what is counted
-- (table/counts.go). Failed, cancelled and waiting jobs of a job set.
DELETE FROM refloat_counts WHERE of IN (3, 6, 7, 8);
ALTER TABLE refloat_counts DROP CONSTRAINT refloat_counts_pkey, ADD PRIMARY KEY (of, queue, job_set, hour, about, policy, rule, code, kind, partition);
CREATE INDEX refloat_jobs_fate_in_set ON refloat_jobs (job_set, queue, fate, ended, job_id, partition) WHERE fate <> 0;
CREATE INDEX refloat_jobs_waiting_in_set ON refloat_jobs (job_set, queue, retry_after, job_id, partition) WHERE retry_after > 0;
`, `
-- Decisions are counted by category too, in place of counts of categories alone. Lists of runs sort
-- those of a job.
DROP INDEX refloat_runs_leased, refloat_runs_ended, refloat_runs_fate, refloat_runs_node, refloat_runs_category;
CREATE INDEX refloat_runs_leased ON refloat_runs (leased, job_id);
CREATE INDEX refloat_runs_ended ON refloat_runs (ended, job_id);
CREATE INDEX refloat_runs_fate ON refloat_runs (fate, leased, job_id) WHERE fate <> 0;
CREATE INDEX refloat_runs_node ON refloat_runs (substr((CASE WHEN error_node <> '' THEN error_node ELSE node END), 1, 100), leased, job_id);
CREATE INDEX refloat_runs_category ON refloat_runs (substr(error_category, 1, 100), leased, job_id) WHERE error_category <> '';
` + table.Recount("refloat_"), `
-- Lists sort the rows of one time, but of those that have not ended only those of a job.
DROP INDEX refloat_jobs_submitted, refloat_jobs_queue, refloat_runs_leased, refloat_runs_fate, refloat_runs_node, refloat_runs_category;
CREATE INDEX refloat_jobs_submitted ON refloat_jobs (submitted);
CREATE INDEX refloat_jobs_queue ON refloat_jobs (queue, submitted);
CREATE INDEX refloat_runs_leased ON refloat_runs (leased);
CREATE INDEX refloat_runs_fate ON refloat_runs (fate, leased) WHERE fate <> 0;
CREATE INDEX refloat_runs_node ON refloat_runs (substr((CASE WHEN error_node <> '' THEN error_node ELSE node END), 1, 100), leased);
CREATE INDEX refloat_runs_category ON refloat_runs (substr(error_category, 1, 100), leased) WHERE error_category <> '';
`, `
-- Nor do the indexes of decisions but the one by time need more than it.
DROP INDEX refloat_decisions_queue, refloat_decisions_rule, refloat_decisions_code, refloat_decisions_policy, refloat_decisions_set;
CREATE INDEX refloat_decisions_queue ON refloat_decisions (queue, time);
CREATE INDEX refloat_decisions_rule ON refloat_decisions (rule, time);
CREATE INDEX refloat_decisions_code ON refloat_decisions (code, time);
CREATE INDEX refloat_decisions_policy ON refloat_decisions (policy, time);
CREATE INDEX refloat_decisions_set ON refloat_decisions (job_set, time);
`}
