package sqlite

import "github.com/refloat/refloat/internal/jobdb/table"

// applicationID marks a file as our job database: "RFLT".
const applicationID = 0x52464c54

// migrations migrate a database from version i to i+1. A released migration never
// changes, but for what it counts if the last one counts all rows again: a new version is a new entry.
var migrations = []string{`
CREATE TABLE refloat_schema (version INTEGER NOT NULL) STRICT;
INSERT INTO refloat_schema VALUES (0);

-- Where each partition's rows stand; compared and set with every transaction.
CREATE TABLE positions (
	partition INTEGER PRIMARY KEY,
	seq INTEGER NOT NULL, link BLOB NOT NULL, epoch INTEGER NOT NULL, owner BLOB NOT NULL,
	event_ledger INTEGER NOT NULL, event_entry INTEGER NOT NULL, event_batch INTEGER NOT NULL,
	decision_ledger INTEGER NOT NULL, decision_entry INTEGER NOT NULL, decision_batch INTEGER NOT NULL
) STRICT;

CREATE TABLE jobs (
	job_id TEXT NOT NULL, partition INTEGER NOT NULL, queue TEXT NOT NULL, job_set TEXT NOT NULL,
	known INTEGER NOT NULL, state INTEGER NOT NULL, final INTEGER NOT NULL, cancel_requested INTEGER NOT NULL,
	submitted INTEGER NOT NULL, ended INTEGER NOT NULL,
	priority INTEGER NOT NULL, queued_version INTEGER NOT NULL, retry_after INTEGER NOT NULL, avoid_nodes TEXT NOT NULL,
	runs INTEGER NOT NULL, open_runs INTEGER NOT NULL, latest_run TEXT NOT NULL, decision INTEGER NOT NULL,
	namespace TEXT NOT NULL, retry_policies TEXT NOT NULL, fail_fast TEXT NOT NULL,
	gang_id TEXT NOT NULL, gang_cardinality TEXT NOT NULL, init_containers TEXT NOT NULL, grace_seconds INTEGER NOT NULL,
	armada_failed INTEGER NOT NULL, armada_at INTEGER NOT NULL, armada_run TEXT NOT NULL, armada_reason TEXT NOT NULL,
	armada_message TEXT NOT NULL, armada_category TEXT NOT NULL, armada_subcategory TEXT NOT NULL,
	updated_ledger INTEGER NOT NULL, updated_entry INTEGER NOT NULL, updated_batch INTEGER NOT NULL,
	PRIMARY KEY (job_id, partition)
) STRICT;
CREATE INDEX jobs_set ON jobs (queue, job_set);
CREATE INDEX jobs_waiting ON jobs (retry_after) WHERE retry_after <> 0;

CREATE TABLE runs (
	job_id TEXT NOT NULL, run_id TEXT NOT NULL, partition INTEGER NOT NULL,
	run_index INTEGER NOT NULL, state INTEGER NOT NULL, executor TEXT NOT NULL, node TEXT NOT NULL, pool TEXT NOT NULL,
	leased INTEGER NOT NULL, pending INTEGER NOT NULL, running INTEGER NOT NULL, ended INTEGER NOT NULL,
	preempted_at INTEGER NOT NULL, gone INTEGER NOT NULL,
	preempted INTEGER NOT NULL, returned INTEGER NOT NULL, attempted INTEGER NOT NULL, cancelled INTEGER NOT NULL,
	error_reason TEXT NOT NULL, error_message TEXT NOT NULL, error_category TEXT NOT NULL, error_subcategory TEXT NOT NULL,
	kubernetes_reason TEXT NOT NULL, error_node TEXT NOT NULL, preempt_reason TEXT NOT NULL, containers TEXT NOT NULL, error BLOB,
	outcome INTEGER NOT NULL, shadow INTEGER NOT NULL, decision INTEGER NOT NULL,
	PRIMARY KEY (job_id, run_id, partition)
) STRICT;

CREATE TABLE decisions (
	partition INTEGER NOT NULL, seq INTEGER NOT NULL, record INTEGER NOT NULL,
	log_ledger INTEGER NOT NULL, log_entry INTEGER NOT NULL, log_batch INTEGER NOT NULL, recording TEXT NOT NULL,
	acted INTEGER NOT NULL, number INTEGER NOT NULL, requeue INTEGER NOT NULL,
	ledger INTEGER NOT NULL, entry INTEGER NOT NULL, batch INTEGER NOT NULL,
	queue TEXT NOT NULL, job_set TEXT NOT NULL, job_id TEXT NOT NULL, run_id TEXT NOT NULL, run_index INTEGER NOT NULL, time INTEGER NOT NULL,
	code INTEGER NOT NULL, policy TEXT NOT NULL, rule TEXT NOT NULL, rule_id TEXT NOT NULL, limit_from INTEGER NOT NULL,
	rule_used INTEGER NOT NULL, rule_limit INTEGER NOT NULL, global_used INTEGER NOT NULL, global_limit INTEGER NOT NULL,
	container TEXT NOT NULL, matcher INTEGER NOT NULL, skipped TEXT NOT NULL, shadow INTEGER NOT NULL,
	generation INTEGER NOT NULL, policy_set BLOB NOT NULL,
	delay_ms INTEGER NOT NULL, retry_after INTEGER NOT NULL, ready_after INTEGER NOT NULL, pod_name TEXT NOT NULL, avoid_nodes TEXT NOT NULL,
	PRIMARY KEY (partition, number)
) STRICT;
CREATE INDEX decisions_job ON decisions (job_id);

CREATE TABLE not_decided (
	partition INTEGER NOT NULL, seq INTEGER NOT NULL, record INTEGER NOT NULL,
	log_ledger INTEGER NOT NULL, log_entry INTEGER NOT NULL, log_batch INTEGER NOT NULL, recording TEXT NOT NULL,
	ledger INTEGER NOT NULL, entry INTEGER NOT NULL, batch INTEGER NOT NULL,
	queue TEXT NOT NULL, job_set TEXT NOT NULL, job_id TEXT NOT NULL, run_id TEXT NOT NULL, reason INTEGER NOT NULL, time INTEGER NOT NULL,
	PRIMARY KEY (partition, seq, record)
) STRICT;
CREATE INDEX not_decided_job ON not_decided (job_id);

CREATE TABLE ready (
	partition INTEGER NOT NULL, seq INTEGER NOT NULL, record INTEGER NOT NULL,
	log_ledger INTEGER NOT NULL, log_entry INTEGER NOT NULL, log_batch INTEGER NOT NULL, recording TEXT NOT NULL,
	acted INTEGER NOT NULL, ledger INTEGER NOT NULL, entry INTEGER NOT NULL, batch INTEGER NOT NULL,
	job_id TEXT NOT NULL, run_id TEXT NOT NULL, retry_after INTEGER NOT NULL,
	PRIMARY KEY (partition, seq, record)
) STRICT;
CREATE INDEX ready_job ON ready (job_id);

CREATE TABLE parked (
	partition INTEGER NOT NULL, seq INTEGER NOT NULL, record INTEGER NOT NULL,
	log_ledger INTEGER NOT NULL, log_entry INTEGER NOT NULL, log_batch INTEGER NOT NULL, recording TEXT NOT NULL,
	ledger INTEGER NOT NULL, entry INTEGER NOT NULL, batch INTEGER NOT NULL,
	reason INTEGER NOT NULL, event INTEGER NOT NULL, raw BLOB,
	PRIMARY KEY (partition, seq, record)
) STRICT;

CREATE TABLE activations (
	partition INTEGER NOT NULL, seq INTEGER NOT NULL, record INTEGER NOT NULL,
	from_ledger INTEGER NOT NULL, from_entry INTEGER NOT NULL, from_batch INTEGER NOT NULL,
	generation INTEGER NOT NULL, digest BLOB NOT NULL, horizon_ms INTEGER NOT NULL, semantics INTEGER NOT NULL,
	PRIMARY KEY (partition, seq, record)
) STRICT;
`, `
-- Releases: the rows may stand beyond what the chain answered.
ALTER TABLE positions RENAME COLUMN event_ledger TO in_to_ledger;
ALTER TABLE positions RENAME COLUMN event_entry TO in_to_entry;
ALTER TABLE positions RENAME COLUMN event_batch TO in_to_batch;
ALTER TABLE positions ADD COLUMN event_ledger INTEGER NOT NULL DEFAULT -1;
ALTER TABLE positions ADD COLUMN event_entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE positions ADD COLUMN event_batch INTEGER NOT NULL DEFAULT -1;
UPDATE positions SET event_ledger = in_to_ledger, event_entry = in_to_entry, event_batch = in_to_batch;

CREATE TABLE releases (
	partition INTEGER NOT NULL, seq INTEGER NOT NULL,
	from_ledger INTEGER NOT NULL, from_entry INTEGER NOT NULL, from_batch INTEGER NOT NULL,
	to_ledger INTEGER NOT NULL, to_entry INTEGER NOT NULL, to_batch INTEGER NOT NULL,
	messages INTEGER NOT NULL, made INTEGER NOT NULL,
	PRIMARY KEY (partition, from_ledger, from_entry, from_batch)
) STRICT;

ALTER TABLE decisions ADD COLUMN superseded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE not_decided ADD COLUMN superseded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ready ADD COLUMN superseded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE parked ADD COLUMN superseded INTEGER NOT NULL DEFAULT 0;
CREATE INDEX decisions_superseded ON decisions (partition) WHERE superseded <> 0;
`, `
-- What is superseded is counted together with the decisions.
DROP INDEX decisions_superseded;
`, `
-- From here on, each page ends with a checksum (prepare).
SELECT 4;
`, `
-- Of what does not fit into a message of the decision log: SHA-256 and length.
ALTER TABLE parked ADD COLUMN digest BLOB NOT NULL DEFAULT X'0000000000000000000000000000000000000000000000000000000000000000';
ALTER TABLE parked ADD COLUMN length INTEGER NOT NULL DEFAULT 0;
`, `
-- Nodes to avoid that a decision does not name.
ALTER TABLE decisions ADD COLUMN nodes_left_out INTEGER NOT NULL DEFAULT 0;
`, `
-- Jobs that are over can be pruned: what was, and which message created a row.
ALTER TABLE positions ADD COLUMN pruned_jobs INTEGER NOT NULL DEFAULT 0;
ALTER TABLE positions ADD COLUMN pruned_ledger INTEGER NOT NULL DEFAULT 0;
ALTER TABLE positions ADD COLUMN pruned_entry INTEGER NOT NULL DEFAULT 0;
ALTER TABLE positions ADD COLUMN pruned_batch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE positions ADD COLUMN pruned_ended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE positions ADD COLUMN pruned_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN since_ledger INTEGER NOT NULL DEFAULT -1;
ALTER TABLE jobs ADD COLUMN since_entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE jobs ADD COLUMN since_batch INTEGER NOT NULL DEFAULT -1;
CREATE INDEX jobs_ended ON jobs (partition, ended, job_id) WHERE ended <> 0;
CREATE INDEX jobs_unsubmitted ON jobs (partition, job_id) WHERE NOT known;
`, `
-- Groups of jobs. A column grp is the name of a group.
CREATE TABLE groups (
	group_id TEXT NOT NULL, partition INTEGER NOT NULL, queue TEXT NOT NULL, job_set TEXT NOT NULL, grp TEXT NOT NULL,
	binding INTEGER NOT NULL, policy TEXT NOT NULL, digest BLOB NOT NULL, shape TEXT NOT NULL,
	state INTEGER NOT NULL, reason INTEGER NOT NULL, rule TEXT NOT NULL,
	generation INTEGER NOT NULL, restarts INTEGER NOT NULL, counted INTEGER NOT NULL, asked INTEGER NOT NULL, max_restarts INTEGER NOT NULL,
	updated_ledger INTEGER NOT NULL, updated_entry INTEGER NOT NULL, updated_batch INTEGER NOT NULL,
	PRIMARY KEY (group_id, partition)
) STRICT;
CREATE INDEX groups_set ON groups (queue, job_set, grp);

CREATE TABLE units (
	unit_id TEXT NOT NULL, partition INTEGER NOT NULL, group_id TEXT NOT NULL, binding INTEGER NOT NULL,
	part TEXT NOT NULL, replica INTEGER NOT NULL, state INTEGER NOT NULL, reason INTEGER NOT NULL,
	generation INTEGER NOT NULL, restarts INTEGER NOT NULL, retries INTEGER NOT NULL, taken TEXT NOT NULL,
	PRIMARY KEY (unit_id, partition)
) STRICT;
CREATE INDEX units_group ON units (group_id);

CREATE TABLE group_records (
	partition INTEGER NOT NULL, seq INTEGER NOT NULL, record INTEGER NOT NULL,
	log_ledger INTEGER NOT NULL, log_entry INTEGER NOT NULL, log_batch INTEGER NOT NULL, recording TEXT NOT NULL, superseded INTEGER NOT NULL,
	acted INTEGER NOT NULL, name TEXT NOT NULL, group_id TEXT NOT NULL,
	job_id TEXT NOT NULL, run_id TEXT NOT NULL, raw BLOB,
	PRIMARY KEY (partition, seq, record)
) STRICT;
CREATE INDEX group_records_group ON group_records (group_id);
CREATE INDEX group_records_job ON group_records (job_id);

ALTER TABLE jobs ADD COLUMN group_id TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN binding INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN grp TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN part TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN replica INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN member_index INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN member_state INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN restarting INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_group ON jobs (group_id, ended) WHERE group_id <> '';

ALTER TABLE decisions ADD COLUMN group_id TEXT NOT NULL DEFAULT '';
ALTER TABLE decisions ADD COLUMN member TEXT NOT NULL DEFAULT '';
ALTER TABLE decisions ADD COLUMN group_verdict TEXT NOT NULL DEFAULT '';
CREATE INDEX decisions_group ON decisions (group_id) WHERE group_id <> '';
`, `
-- max_restarts is known from the start.
ALTER TABLE groups DROP COLUMN asked;
`, `
-- Lists of decisions by time, and those of a queue.
CREATE INDEX decisions_time ON decisions (time, partition, number);
CREATE INDEX decisions_queue ON decisions (queue, time, partition, number);
`, `
-- Lists of jobs by submission, those of a queue, and by their end; of runs by lease; and
-- of decisions of a rule.
CREATE INDEX jobs_submitted ON jobs (submitted, job_id, partition);
CREATE INDEX jobs_queue ON jobs (queue, submitted, job_id, partition);
CREATE INDEX jobs_over ON jobs (ended, job_id, partition) WHERE ended <> 0;
CREATE INDEX runs_leased ON runs (leased, job_id);
CREATE INDEX decisions_rule ON decisions (rule, time, partition, number);
`, `
-- An index for each order of a list, and for each thing that lists select by (table/select.go). fate is the state of what
-- failed or was cancelled, else 0.
ALTER TABLE jobs ADD COLUMN fate INTEGER GENERATED ALWAYS AS (CASE WHEN state IN (6, 7) THEN state ELSE 0 END) VIRTUAL;
ALTER TABLE runs ADD COLUMN fate INTEGER GENERATED ALWAYS AS (CASE WHEN state IN (5, 6) THEN state ELSE 0 END) VIRTUAL;
DROP INDEX jobs_set;
DROP INDEX jobs_waiting;
DROP INDEX jobs_over;
DROP INDEX runs_leased;
CREATE INDEX jobs_set ON jobs (job_set, queue);
CREATE INDEX jobs_waiting ON jobs (retry_after, job_id, partition);
CREATE INDEX jobs_over ON jobs (ended, job_id, partition);
CREATE INDEX jobs_runs ON jobs (runs, job_id, partition);
CREATE INDEX jobs_fate ON jobs (fate, ended, job_id, partition) WHERE fate <> 0;
CREATE INDEX jobs_grp ON jobs (substr(grp, 1, 100), submitted, job_id, partition) WHERE grp <> '';
CREATE INDEX runs_job ON runs (job_id, run_index, run_id, partition);
CREATE INDEX runs_leased ON runs (leased, job_id, run_id, partition);
CREATE INDEX runs_ended ON runs (ended, job_id, run_id, partition);
CREATE INDEX runs_fate ON runs (fate, leased, job_id, run_id, partition) WHERE fate <> 0;
CREATE INDEX runs_node ON runs (substr((CASE WHEN error_node <> '' THEN error_node ELSE node END), 1, 100), leased, job_id, run_id, partition);
CREATE INDEX runs_category ON runs (substr(error_category, 1, 100), leased, job_id, run_id, partition) WHERE error_category <> '';
CREATE INDEX decisions_code ON decisions (code, time, partition, number);
CREATE INDEX decisions_policy ON decisions (policy, time, partition, number);
CREATE INDEX decisions_set ON decisions (job_set, time, partition, number);
CREATE INDEX groups_name ON groups (substr(grp, 1, 100)) WHERE grp <> '';
CREATE INDEX groups_in_set ON groups (job_set);
CREATE INDEX groups_state ON groups (state);
CREATE INDEX groups_policy ON groups (substr(policy, 1, 100)) WHERE policy <> '';
CREATE INDEX groups_rule ON groups (substr(rule, 1, 100)) WHERE rule <> '';
CREATE INDEX groups_restarts ON groups (restarts, queue, job_set, grp, partition);
`, `
-- Kept counts of decisions by hour: of 0 all, of 1 each queue, of 2 each policy (table/hours.go).
CREATE TABLE decision_hours (
	of INTEGER NOT NULL, queue TEXT NOT NULL, policy TEXT NOT NULL, hour INTEGER NOT NULL, partition INTEGER NOT NULL,
	requeue INTEGER NOT NULL, shadow INTEGER NOT NULL, acted INTEGER NOT NULL, decisions INTEGER NOT NULL,
	PRIMARY KEY (of, queue, policy, hour, partition, requeue, shadow, acted)
) STRICT, WITHOUT ROWID;
INSERT INTO decision_hours SELECT 0, '', '', time / 3600000000000, partition, requeue, shadow, acted, count(*) FROM decisions GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
INSERT INTO decision_hours SELECT 1, queue, '', time / 3600000000000, partition, requeue, shadow, acted, count(*) FROM decisions GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
INSERT INTO decision_hours SELECT 2, '', policy, time / 3600000000000, partition, requeue, shadow, acted, count(*) FROM decisions GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
`, `
-- What retry budgets said about a decision (jobdb.EncodeBudget).
ALTER TABLE decisions ADD COLUMN budget TEXT NOT NULL DEFAULT '';
`, `
-- Kept sums of what runs held, by day, of 0 each queue, 1 policy, 2 rule, 3 node and 4 category (table/cost.go); of jobs, what
-- they request, and the failure that their latest run is a retry after (jobdb/cost.go).
ALTER TABLE jobs ADD COLUMN requests TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN retry TEXT NOT NULL DEFAULT '';
CREATE TABLE cost_days (
	of INTEGER NOT NULL, about TEXT NOT NULL, day INTEGER NOT NULL, partition INTEGER NOT NULL, kind INTEGER NOT NULL,
	runs INTEGER NOT NULL, unknown INTEGER NOT NULL, cpu INTEGER NOT NULL, memory INTEGER NOT NULL, gpu INTEGER NOT NULL,
	PRIMARY KEY (of, about, kind, day, partition)
) STRICT, WITHOUT ROWID;
`, `
-- Kept counts (table/counts.go), in place of those of decisions by hour, whose pruned decisions stay in them. Failed and cancelled jobs
-- of a queue by their end.
CREATE TABLE counts (
	of INTEGER NOT NULL, queue TEXT NOT NULL, job_set TEXT NOT NULL, about TEXT NOT NULL, hour INTEGER NOT NULL,
	policy TEXT NOT NULL, rule TEXT NOT NULL, code INTEGER NOT NULL, kind INTEGER NOT NULL, partition INTEGER NOT NULL,
	n INTEGER NOT NULL, pruned INTEGER NOT NULL,
	PRIMARY KEY (of, queue, job_set, about, hour, policy, rule, code, kind, partition)
) STRICT, WITHOUT ROWID;
INSERT INTO counts (of, queue, job_set, about, hour, policy, rule, code, kind, partition, n, pruned) SELECT 0, '', '', '', time / 3600000000000, policy, rule, code, CASE WHEN requeue THEN 1 ELSE 0 END + CASE WHEN shadow THEN 2 ELSE 0 END + CASE WHEN acted THEN 4 ELSE 0 END, partition, count(*), 0 FROM decisions GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10;
INSERT INTO counts (of, queue, job_set, about, hour, policy, rule, code, kind, partition, n, pruned) SELECT 1, queue, '', '', time / 3600000000000, policy, rule, code, CASE WHEN requeue THEN 1 ELSE 0 END + CASE WHEN shadow THEN 2 ELSE 0 END + CASE WHEN acted THEN 4 ELSE 0 END, partition, count(*), 0 FROM decisions GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10;
INSERT INTO counts (of, queue, job_set, about, hour, policy, rule, code, kind, partition, n, pruned) SELECT 0, '', '', '', h.hour, h.policy, '', 0, CASE WHEN h.requeue THEN 1 ELSE 0 END + CASE WHEN h.shadow THEN 2 ELSE 0 END + CASE WHEN h.acted THEN 4 ELSE 0 END, h.partition, 0, h.decisions - h.there FROM (SELECT h.*, coalesce((SELECT sum(n) FROM counts c WHERE c.of = 0 AND c.queue = '' AND c.policy = h.policy AND c.job_set = '' AND c.hour = h.hour AND c.kind = CASE WHEN h.requeue THEN 1 ELSE 0 END + CASE WHEN h.shadow THEN 2 ELSE 0 END + CASE WHEN h.acted THEN 4 ELSE 0 END AND c.partition = h.partition), 0) AS there FROM decision_hours h WHERE of = 2) AS h WHERE h.decisions > h.there ON CONFLICT (of, queue, job_set, about, hour, policy, rule, code, kind, partition) DO UPDATE SET pruned = excluded.pruned;
INSERT INTO counts (of, queue, job_set, about, hour, policy, rule, code, kind, partition, n, pruned) SELECT 1, h.queue, '', '', h.hour, '', '', 0, CASE WHEN h.requeue THEN 1 ELSE 0 END + CASE WHEN h.shadow THEN 2 ELSE 0 END + CASE WHEN h.acted THEN 4 ELSE 0 END, h.partition, 0, h.decisions - h.there FROM (SELECT h.*, coalesce((SELECT sum(n) FROM counts c WHERE c.of = 1 AND c.queue = h.queue AND c.job_set = '' AND c.hour = h.hour AND c.kind = CASE WHEN h.requeue THEN 1 ELSE 0 END + CASE WHEN h.shadow THEN 2 ELSE 0 END + CASE WHEN h.acted THEN 4 ELSE 0 END AND c.partition = h.partition), 0) AS there FROM decision_hours h WHERE of = 1) AS h WHERE h.decisions > h.there ON CONFLICT (of, queue, job_set, about, hour, policy, rule, code, kind, partition) DO UPDATE SET pruned = excluded.pruned;
DROP TABLE decision_hours;
CREATE INDEX jobs_fate_in_queue ON jobs (queue, fate, ended, job_id, partition) WHERE fate <> 0;
`, `
-- Counts by job set, node and category are kept by hour and by day, those of jobs by job set too, and of what was not decided by queue; the key has the hour before what is counted
-- (table/counts.go). Failed, cancelled and waiting jobs of a job set.
ALTER TABLE counts RENAME TO old_counts;
CREATE TABLE counts (
	of INTEGER NOT NULL, queue TEXT NOT NULL, job_set TEXT NOT NULL, hour INTEGER NOT NULL, about TEXT NOT NULL,
	policy TEXT NOT NULL, rule TEXT NOT NULL, code INTEGER NOT NULL, kind INTEGER NOT NULL, partition INTEGER NOT NULL,
	n INTEGER NOT NULL, pruned INTEGER NOT NULL,
	PRIMARY KEY (of, queue, job_set, hour, about, policy, rule, code, kind, partition)
) STRICT, WITHOUT ROWID;
INSERT INTO counts (of, queue, job_set, hour, about, policy, rule, code, kind, partition, n, pruned) SELECT of, queue, job_set, hour, about, policy, rule, code, kind, partition, n, pruned FROM old_counts WHERE of NOT IN (3, 6, 7, 8);
DROP TABLE old_counts;
CREATE INDEX jobs_fate_in_set ON jobs (job_set, queue, fate, ended, job_id, partition) WHERE fate <> 0;
CREATE INDEX jobs_waiting_in_set ON jobs (job_set, queue, retry_after, job_id, partition) WHERE retry_after > 0;
`, `
-- Decisions are counted by category too, in place of counts of categories alone.
` + table.Recount("")}
