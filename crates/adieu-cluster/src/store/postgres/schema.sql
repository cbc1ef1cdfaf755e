-- What the store keeps. Functions end with the number of their version: replicas of two versions of
-- adieu may use one database during a deployment, so a function that changes gets a new name.

-- One row for each table. Its lock puts commits into one order, without gaps.
CREATE TABLE IF NOT EXISTS adieu_cluster_tables (
    name text PRIMARY KEY,
    revision bigint NOT NULL DEFAULT 0,
    -- Changes up to this revision are deleted.
    forgotten bigint NOT NULL DEFAULT 0
);

CREATE TABLE IF NOT EXISTS adieu_cluster_sessions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_name text NOT NULL,
    ttl interval NOT NULL,
    ends_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS adieu_cluster_sessions_by_end
    ON adieu_cluster_sessions (table_name, ends_at);

CREATE TABLE IF NOT EXISTS adieu_cluster_records (
    table_name text NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    created bigint NOT NULL,
    changed bigint NOT NULL,
    session bigint,
    PRIMARY KEY (table_name, key)
);
CREATE INDEX IF NOT EXISTS adieu_cluster_records_by_session
    ON adieu_cluster_records (session) WHERE session IS NOT NULL;

-- A change without a value is a deletion.
CREATE TABLE IF NOT EXISTS adieu_cluster_changes (
    table_name text NOT NULL,
    revision bigint NOT NULL,
    position bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text,
    created bigint,
    session bigint,
    PRIMARY KEY (table_name, revision, position)
);

-- Sets the revision of a table that this transaction has locked, deletes changes that are old, and
-- wakes those that wait for changes.
CREATE OR REPLACE FUNCTION adieu_cluster_advance_1(the_table text, the_revision bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    oldest bigint := the_revision - 4096;
BEGIN
    UPDATE adieu_cluster_tables SET revision = the_revision WHERE name = the_table;
    IF the_revision % 64 = 0 AND oldest > 0 THEN
        DELETE FROM adieu_cluster_changes WHERE table_name = the_table AND revision <= oldest;
        UPDATE adieu_cluster_tables SET forgotten = greatest(forgotten, oldest)
        WHERE name = the_table;
    END IF;
    PERFORM pg_notify('adieu_cluster', the_table);
END $$;

-- Deletes the records of sessions that were deleted, in one revision. The table is locked.
CREATE OR REPLACE FUNCTION adieu_cluster_end_1(the_table text, latest bigint, ended bigint[])
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    deleted bigint;
BEGIN
    WITH gone AS (
        DELETE FROM adieu_cluster_records
        WHERE table_name = the_table AND session = ANY (ended) RETURNING key
    ), logged AS (
        INSERT INTO adieu_cluster_changes (table_name, revision, position, key)
        SELECT the_table, latest + 1, row_number() OVER (ORDER BY key), key FROM gone
        RETURNING 1
    )
    SELECT count(*) INTO deleted FROM logged;
    IF deleted = 0 THEN
        RETURN latest;
    END IF;
    PERFORM adieu_cluster_advance_1(the_table, latest + 1);
    RETURN latest + 1;
END $$;

-- Locks a table until the end of the transaction, ends the sessions whose time is up, and returns
-- the revision. Each statement below sees what was committed before the lock was granted.
CREATE OR REPLACE FUNCTION adieu_cluster_lock_1(the_table text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    latest bigint;
    ended bigint[];
BEGIN
    SELECT revision INTO STRICT latest FROM adieu_cluster_tables WHERE name = the_table FOR UPDATE;
    WITH expired AS (
        DELETE FROM adieu_cluster_sessions
        WHERE table_name = the_table AND ends_at <= clock_timestamp() RETURNING id
    )
    SELECT array_agg(id) INTO ended FROM expired;
    IF ended IS NULL THEN
        RETURN latest;
    END IF;
    RETURN adieu_cluster_end_1(the_table, latest, ended);
END $$;

-- Ends the sessions whose time is up. It locks the table only if there are any.
CREATE OR REPLACE FUNCTION adieu_cluster_expire_1(the_table text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM adieu_cluster_sessions
        WHERE table_name = the_table AND ends_at <= clock_timestamp()
    ) THEN
        PERFORM adieu_cluster_lock_1(the_table);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION adieu_cluster_close_1(the_table text, the_session bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    latest bigint := adieu_cluster_lock_1(the_table);
BEGIN
    DELETE FROM adieu_cluster_sessions WHERE table_name = the_table AND id = the_session;
    IF FOUND THEN
        PERFORM adieu_cluster_end_1(the_table, latest, ARRAY[the_session]);
    END IF;
END $$;

-- Applies a commit if its comparisons hold. `outcome` is `done` with the revision, `conflict`, or
-- `no session` with the session that has ended.
CREATE OR REPLACE FUNCTION adieu_cluster_commit_1(
    the_table text, compares jsonb, writes jsonb, OUT outcome text, OUT number bigint
) LANGUAGE plpgsql AS $$
DECLARE
    latest bigint := adieu_cluster_lock_1(the_table);
BEGIN
    PERFORM FROM jsonb_to_recordset(compares) AS compare (key text, kind text, at bigint)
    LEFT JOIN adieu_cluster_records AS record
        ON record.table_name = the_table AND record.key = compare.key
    WHERE (CASE compare.kind
        WHEN 'absent' THEN record.key IS NULL
        WHEN 'created' THEN record.created IS NOT DISTINCT FROM compare.at
        WHEN 'not created' THEN record.created IS DISTINCT FROM compare.at
        WHEN 'unchanged' THEN record.changed IS NOT DISTINCT FROM compare.at
    END) IS NOT TRUE;
    IF FOUND THEN
        outcome := 'conflict';
        RETURN;
    END IF;

    SELECT write.session INTO number FROM jsonb_to_recordset(writes) AS write (session bigint)
    WHERE write.session IS NOT NULL AND NOT EXISTS (
        SELECT FROM adieu_cluster_sessions AS session
        WHERE session.table_name = the_table AND session.id = write.session
    ) LIMIT 1;
    IF FOUND THEN
        outcome := 'no session';
        RETURN;
    END IF;

    outcome := 'done';
    number := latest;
    IF jsonb_array_length(writes) = 0 THEN
        RETURN;
    END IF;
    number := latest + 1;

    DELETE FROM adieu_cluster_records AS record
    USING jsonb_to_recordset(writes) AS write (key text, value text)
    WHERE record.table_name = the_table AND record.key = write.key AND write.value IS NULL;

    -- A record that is replaced keeps its session, unless it is put under another one.
    INSERT INTO adieu_cluster_records AS record
        (table_name, key, value, created, changed, session)
    SELECT the_table, write.key, write.value, number, number, write.session
    FROM jsonb_to_recordset(writes) AS write (key text, value text, session bigint)
    WHERE write.value IS NOT NULL
    ON CONFLICT (table_name, key) DO UPDATE
    SET value = excluded.value, changed = excluded.changed,
        session = coalesce(excluded.session, record.session);

    INSERT INTO adieu_cluster_changes
        (table_name, revision, position, key, value, created, session)
    SELECT the_table, number, write.position, write.item ->> 'key',
           record.value, record.created, record.session
    FROM jsonb_array_elements(writes) WITH ORDINALITY AS write (item, position)
    LEFT JOIN adieu_cluster_records AS record
        ON record.table_name = the_table AND record.key = write.item ->> 'key';

    PERFORM adieu_cluster_advance_1(the_table, number);
END $$;

-- Deletes the changes up to the present.
CREATE OR REPLACE FUNCTION adieu_cluster_compact_1(the_table text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    latest bigint := adieu_cluster_lock_1(the_table);
BEGIN
    DELETE FROM adieu_cluster_changes WHERE table_name = the_table;
    UPDATE adieu_cluster_tables SET forgotten = latest WHERE name = the_table;
END $$;
