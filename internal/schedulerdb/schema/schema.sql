-- Armada's scheduler database after its 41 migrations (commit 207cc9e04).
-- The tables, columns and indexes are Armada's; in a deployment, Armada's own
-- migrator makes them. This file is for tests and for development.

CREATE TABLE jobs (
    job_id                     text             NOT NULL PRIMARY KEY,
    job_set                    text             NOT NULL,
    queue                      text             NOT NULL,
    user_id                    text             NOT NULL,
    submitted                  bigint           NOT NULL, -- Unix nanoseconds
    priority                   bigint           NOT NULL,
    queued                     boolean          NOT NULL DEFAULT false,
    queued_version             integer          NOT NULL DEFAULT 0,
    cancel_requested           boolean          NOT NULL DEFAULT false,
    cancelled                  boolean          NOT NULL DEFAULT false,
    cancel_by_jobset_requested boolean          NOT NULL DEFAULT false,
    succeeded                  boolean          NOT NULL DEFAULT false,
    failed                     boolean          NOT NULL DEFAULT false,
    scheduling_info            bytea            NOT NULL, -- JobSchedulingInfo
    scheduling_info_version    integer          NOT NULL DEFAULT 0,
    serial                     bigserial        NOT NULL,
    last_modified              timestamptz      NOT NULL,
    validated                  boolean          NOT NULL DEFAULT false,
    pools                      text[],
    bid_price                  double precision NOT NULL DEFAULT 0,
    cancel_user                varchar(512),
    price_band                 integer          NOT NULL DEFAULT 0,
    terminated                 boolean          GENERATED ALWAYS AS (cancelled OR succeeded OR failed) STORED,
    cancel_reason              varchar(512),
    reprioritise_user          varchar(512)
) WITH (fillfactor = 70);

ALTER TABLE jobs ALTER COLUMN scheduling_info SET STORAGE EXTERNAL;
ALTER TABLE jobs ALTER COLUMN queue SET STATISTICS 1000;
ALTER TABLE jobs ALTER COLUMN job_set SET STATISTICS 1000;
CREATE UNIQUE INDEX idx_jobs_serial ON jobs (serial) WITH (fillfactor = 80);
CREATE INDEX idx_jobs_queue_jobset ON jobs (queue, job_set) WITH (fillfactor = 80);
CREATE INDEX idx_jobs_terminal ON jobs (serial, terminated) WITH (fillfactor = 60);
CREATE INDEX idx_queue_job_set_job_id_terminated ON jobs (queue, job_set, job_id, terminated) WITH (fillfactor = 60);
CREATE STATISTICS stx_jobs_queue_job_set ON queue, job_set FROM jobs;

CREATE TABLE runs (
    run_id                   text        NOT NULL PRIMARY KEY,
    job_id                   text        NOT NULL,
    created                  bigint      NOT NULL DEFAULT 0, -- Unix nanoseconds
    job_set                  text        NOT NULL,
    executor                 text        NOT NULL,
    node                     text        NOT NULL,
    cancelled                boolean     NOT NULL DEFAULT false,
    running                  boolean     NOT NULL DEFAULT false,
    succeeded                boolean     NOT NULL DEFAULT false,
    failed                   boolean     NOT NULL DEFAULT false,
    returned                 boolean     NOT NULL DEFAULT false,
    run_attempted            boolean     NOT NULL DEFAULT false,
    serial                   bigserial   NOT NULL,
    last_modified            timestamptz NOT NULL,
    leased_timestamp         timestamptz,
    pending_timestamp        timestamptz,
    running_timestamp        timestamptz,
    terminated_timestamp     timestamptz,
    scheduled_at_priority    integer,
    preempted                boolean     NOT NULL DEFAULT false,
    pending                  boolean     NOT NULL DEFAULT false,
    preempted_timestamp      timestamptz,
    pod_requirements_overlay bytea, -- PodRequirements
    preempt_requested        boolean     NOT NULL DEFAULT false,
    queue                    text        NOT NULL DEFAULT '',
    pool                     text        NOT NULL DEFAULT '',
    terminated               boolean     NOT NULL GENERATED ALWAYS AS (cancelled OR succeeded OR failed) STORED,
    preempt_reason           text,
    preempt_user             varchar(512)
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX idx_runs_serial ON runs (serial) WITH (fillfactor = 80);
CREATE INDEX idx_runs_job_id ON runs (job_id) WITH (fillfactor = 80);
CREATE INDEX idx_runs_job_set ON runs (job_set) WITH (fillfactor = 80);
CREATE INDEX idx_runs_queue_jobset ON runs (queue, job_set) WITH (fillfactor = 80);
CREATE INDEX idx_runs_queue_jobset_jobid_terminated ON runs (queue, job_set, job_id, terminated) WITH (fillfactor = 80);
CREATE INDEX idx_runs_terminated ON runs (executor, terminated, serial) WITH (fillfactor = 80);

CREATE TABLE job_metadata (
    job_id         text  NOT NULL PRIMARY KEY,
    submit_message bytea NOT NULL, -- zlib(SubmitJob)
    groups         bytea           -- zlib(gob([]string))
);

ALTER TABLE job_metadata ALTER COLUMN submit_message SET STORAGE EXTERNAL;
ALTER TABLE job_metadata ALTER COLUMN groups SET STORAGE EXTERNAL;

CREATE TABLE job_run_errors (
    run_id text  NOT NULL PRIMARY KEY,
    job_id text  NOT NULL,
    error  bytea NOT NULL -- zlib(Error), the run's terminal one
) WITH (fillfactor = 70);

ALTER TABLE job_run_errors ALTER COLUMN error SET STORAGE EXTERNAL;
CREATE INDEX idx_job_run_errors_job_id ON job_run_errors (job_id) WITH (fillfactor = 80);

CREATE TABLE markers (
    group_id     uuid        NOT NULL,
    partition_id integer     NOT NULL,
    created      timestamptz DEFAULT now(),
    PRIMARY KEY (group_id, partition_id)
);

CREATE TABLE executors (
    executor_id  text        NOT NULL PRIMARY KEY,
    last_request bytea, -- zlib(LeaseRequest)
    last_updated timestamptz NOT NULL
);

CREATE TABLE executor_settings (
    executor_id   text        NOT NULL PRIMARY KEY,
    cordoned      boolean     NOT NULL DEFAULT false,
    cordon_reason text        NOT NULL DEFAULT '',
    set_by_user   text        NOT NULL DEFAULT '',
    set_at_time   timestamptz NOT NULL DEFAULT now()
);

-- The scheduler finds what is new by its serial, so every row that is written
-- takes the next one.
CREATE FUNCTION trg_increment_serial_set_last_modified() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.serial := nextval(format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME || '_serial_seq'));
    NEW.last_modified := now();
    RETURN NEW;
END
$$;

CREATE TRIGGER next_serial_on_insert_jobs BEFORE INSERT OR UPDATE ON jobs
    FOR EACH ROW EXECUTE FUNCTION trg_increment_serial_set_last_modified();
CREATE TRIGGER next_serial_on_insert_runs BEFORE INSERT OR UPDATE ON runs
    FOR EACH ROW EXECUTE FUNCTION trg_increment_serial_set_last_modified();

-- What Armada's migrator reads: the number of its last migration.
CREATE SEQUENCE database_version START WITH 0 MINVALUE 0;
SELECT setval('database_version', 41);
