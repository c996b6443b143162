package pgstore

// {p}, {c} and {e} are rows that a statement gets as arrays (columns). The tables set serial,
// last_modified and terminated themselves.

const setPrioritySQL = `
UPDATE jobs SET priority = $3, reprioritise_user = $4
WHERE queue = $1 AND job_set = $2 AND NOT terminated`

// setCancelSQL, like all that asks for a cancellation, keeps who asked first, and why.
const setCancelSQL = `
UPDATE jobs SET cancel_by_jobset_requested = true, cancel_user = COALESCE(cancel_user, $5), cancel_reason = COALESCE(cancel_reason, $6)
WHERE queue = $1 AND job_set = $2 AND NOT terminated AND CASE WHEN queued OR job_id = ANY($7::text[]) THEN $3::boolean ELSE $4::boolean END`

// preemptSQL leaves out runs that end in this batch before they are asked for.
const preemptSQL = `
UPDATE runs SET preempt_requested = true, preempt_user = p.by, preempt_reason = p.reason
FROM {p}
WHERE runs.job_id = p.job_id AND runs.queue = p.queue AND runs.job_set = p.job_set AND NOT runs.terminated
    AND NOT EXISTS (SELECT FROM {e}
        WHERE e.run_id = runs.run_id AND e.number < p.number)`

// endPreemptionSQL leaves who asked, and why, as it is.
const endPreemptionSQL = `UPDATE runs SET preempt_requested = false WHERE run_id = ANY($1::text[]) AND preempt_requested`

const patchRunsSQL = `
UPDATE runs SET
    pending = runs.pending OR p.pending_at IS NOT NULL,
    pending_timestamp = COALESCE(p.pending_at, runs.pending_timestamp),
    running = runs.running OR p.running_at IS NOT NULL,
    running_timestamp = COALESCE(p.running_at, runs.running_timestamp),
    preempted = runs.preempted OR p.preempted_at IS NOT NULL,
    preempted_timestamp = COALESCE(p.preempted_at, runs.preempted_timestamp),
    succeeded = runs.succeeded AND NOT p.unsucceeded OR p.succeeded,
    failed = runs.failed OR p.failed,
    returned = runs.returned OR p.returned,
    run_attempted = runs.run_attempted OR p.attempted,
    terminated_timestamp = COALESCE(p.ended, runs.terminated_timestamp, p.stopped)
FROM {p}
WHERE runs.run_id = p.run_id`

// cancelRunsSQL comes after the patches: it keeps the end of a run that ended
// after its job was cancelled.
const cancelRunsSQL = `
UPDATE runs SET
    cancelled = true,
    terminated_timestamp = CASE WHEN c.later THEN runs.terminated_timestamp ELSE c.at END
FROM (
    SELECT r.run_id, c.at, COALESCE(e.number > c.number, false) AS later
    FROM {c}
    JOIN runs r ON r.job_id = c.job_id
    LEFT JOIN {e} ON e.run_id = r.run_id
) AS c
WHERE runs.run_id = c.run_id`

// hit: what was asked for is for this job, and it has not ended.
const hit = `(NOT jobs.terminated AND jobs.queue = p.queue AND jobs.job_set = p.job_set)`

// patchJobsSQL writes a row only where that changes it, or an end or a
// validation came.
const patchJobsSQL = `
UPDATE jobs SET
    queued = CASE WHEN p.queued_version > jobs.queued_version THEN p.queued ELSE jobs.queued END,
    queued_version = GREATEST(jobs.queued_version, p.queued_version),
    scheduling_info = CASE WHEN p.info_version > jobs.scheduling_info_version THEN p.info ELSE jobs.scheduling_info END,
    scheduling_info_version = GREATEST(jobs.scheduling_info_version, p.info_version),
    validated = jobs.validated OR p.validated,
    pools = CASE WHEN p.validated THEN p.pools::text[] ELSE jobs.pools END,
    cancelled = jobs.cancelled OR p.cancelled,
    succeeded = jobs.succeeded AND NOT p.revived OR p.succeeded,
    failed = jobs.failed AND NOT p.revived OR p.failed,
    cancel_requested = jobs.cancel_requested OR p.asked AND ` + hit + `,
    cancel_user = CASE WHEN p.asked AND ` + hit + ` THEN COALESCE(jobs.cancel_user, p.cancel_user) ELSE jobs.cancel_user END,
    cancel_reason = CASE WHEN p.asked AND ` + hit + ` THEN COALESCE(jobs.cancel_reason, p.cancel_reason) ELSE jobs.cancel_reason END,
    priority = CASE WHEN ` + hit + ` THEN COALESCE(p.priority, jobs.priority) ELSE jobs.priority END,
    reprioritise_user = CASE WHEN p.priority IS NOT NULL AND ` + hit + ` THEN p.reprioritise_user ELSE jobs.reprioritise_user END
FROM {p}
WHERE jobs.job_id = p.job_id AND (
    p.validated OR p.cancelled OR p.revived OR p.succeeded OR p.failed
    OR p.queued_version > jobs.queued_version OR p.info_version > jobs.scheduling_info_version
    OR ` + hit + ` AND (p.asked OR p.priority IS NOT NULL))`

const insertJobsSQL = `
INSERT INTO jobs (job_id, queued, queued_version, scheduling_info, scheduling_info_version, validated, pools, cancelled,
    succeeded, failed, cancel_requested, cancel_user, cancel_reason, priority, reprioritise_user, queue, job_set,
    user_id, submitted, price_band, cancel_by_jobset_requested, bid_price)
SELECT job_id, queued, queued_version, info, info_version, validated, pools::text[], cancelled,
    succeeded, failed, asked, cancel_user, cancel_reason, priority, reprioritise_user, queue, job_set,
    user_id, submitted, price_band, false, 0
FROM {p}
ON CONFLICT (job_id) DO UPDATE SET
    queued = excluded.queued, queued_version = excluded.queued_version,
    scheduling_info = excluded.scheduling_info, scheduling_info_version = excluded.scheduling_info_version,
    validated = excluded.validated, pools = excluded.pools,
    cancelled = excluded.cancelled, succeeded = excluded.succeeded, failed = excluded.failed,
    cancel_requested = excluded.cancel_requested, cancel_by_jobset_requested = excluded.cancel_by_jobset_requested,
    cancel_user = excluded.cancel_user, cancel_reason = excluded.cancel_reason,
    priority = excluded.priority, reprioritise_user = excluded.reprioritise_user,
    queue = excluded.queue, job_set = excluded.job_set, user_id = excluded.user_id,
    submitted = excluded.submitted, price_band = excluded.price_band, bid_price = excluded.bid_price`

const insertMetadataSQL = `
INSERT INTO job_metadata (job_id, submit_message, groups)
SELECT job_id, submit_message, groups FROM {p}
ON CONFLICT (job_id) DO UPDATE SET submit_message = excluded.submit_message, groups = excluded.groups`

const insertRunsSQL = `
INSERT INTO runs (run_id, job_id, created, job_set, queue, executor, node, pool, scheduled_at_priority,
    pod_requirements_overlay, leased_timestamp, pending_timestamp, running_timestamp, preempted_timestamp,
    terminated_timestamp, pending, running, preempted, cancelled, succeeded, failed, returned, run_attempted,
    preempt_requested, preempt_reason, preempt_user)
SELECT run_id, job_id, created, job_set, queue, executor, node, pool, scheduled_at_priority,
    overlay, leased_at, pending_at, running_at, preempted_at,
    ended, pending_at IS NOT NULL, running_at IS NOT NULL, preempted_at IS NOT NULL, cancelled, succeeded, failed, returned, attempted,
    asked, reason, by
FROM {p}
ON CONFLICT (run_id) DO UPDATE SET
    job_id = excluded.job_id, created = excluded.created, job_set = excluded.job_set, queue = excluded.queue,
    executor = excluded.executor, node = excluded.node, pool = excluded.pool,
    scheduled_at_priority = excluded.scheduled_at_priority, pod_requirements_overlay = excluded.pod_requirements_overlay,
    leased_timestamp = excluded.leased_timestamp, pending_timestamp = excluded.pending_timestamp,
    running_timestamp = excluded.running_timestamp, preempted_timestamp = excluded.preempted_timestamp,
    terminated_timestamp = excluded.terminated_timestamp,
    pending = excluded.pending, running = excluded.running, preempted = excluded.preempted,
    cancelled = excluded.cancelled, succeeded = excluded.succeeded, failed = excluded.failed,
    returned = excluded.returned, run_attempted = excluded.run_attempted,
    preempt_requested = excluded.preempt_requested, preempt_reason = excluded.preempt_reason, preempt_user = excluded.preempt_user`

const insertErrorsSQL = `
INSERT INTO job_run_errors (run_id, job_id, error)
SELECT run_id, job_id, error FROM {p}
ON CONFLICT (run_id) DO UPDATE SET job_id = excluded.job_id, error = excluded.error`

const markerSQL = `INSERT INTO markers (group_id, partition_id, created) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
