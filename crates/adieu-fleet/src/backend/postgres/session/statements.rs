//! The SQL of session locks.
//!
//! `$1` is the name under which a lock is stored. Statements under a lease have the claim's owner and
//! fence as `$2` and `$3`, and the number of its session as `$4`: if another session executes them,
//! they have no effect.

/// The number of an advisory lock, from the name under which the lock is stored.
macro_rules! number {
    () => {
        "hashtextextended('adieu:' || $1, 0)"
    };
}

/// Whether the server has run without a crash since a lease was granted, so that a free advisory lock
/// means a released lease: the server start is the same, and a row exists that a crash would have
/// removed.
macro_rules! is_remembered {
    ($lease:literal) => {
        concat!(
            "(",
            $lease,
            ".server_started IS NOT DISTINCT FROM pg_postmaster_start_time() AND EXISTS (
                 SELECT FROM adieu_sessions
                 WHERE adieu_sessions.key = ",
            $lease,
            ".key AND adieu_sessions.fence = ",
            $lease,
            ".fence))"
        )
    };
}

/// Locks, and sets the end of the session in the same statement, so that no session holds the lock
/// without an end. `$2` is the time to live.
pub(super) const LOCK: &str = concat!(
    "SELECT set_config('idle_session_timeout', CASE WHEN pg_try_advisory_lock(",
    number!(),
    ") THEN $2 ELSE '0' END, false)"
);

pub(super) const UNLOCK: &str = concat!(
    "SELECT pg_advisory_unlock(",
    number!(),
    "), set_config('idle_session_timeout', '0', false)"
);

/// Records the grant under the advisory lock. No row is returned while a lease from before a crash
/// has not expired, because its holder may not have noticed the crash yet. `$3` is the time to live
/// in seconds.
pub(super) const RECORD: &str = concat!(
    "WITH signed AS (
        INSERT INTO adieu_leases AS lease (key, owner, fence, expires_at, server_started)
        SELECT $1, $2, 1, clock_timestamp() + make_interval(secs => $3),
               pg_postmaster_start_time()
        WHERE pg_backend_pid() = $4
        ON CONFLICT (key) DO UPDATE
        SET owner = excluded.owner, fence = lease.fence + 1,
            expires_at = excluded.expires_at, server_started = excluded.server_started
        WHERE lease.owner IS NULL OR lease.expires_at <= clock_timestamp() OR ",
    is_remembered!("lease"),
    " RETURNING key, fence, ",
    durable!(),
    " AS durable
    ), remembered AS (
        INSERT INTO adieu_sessions (key, fence) SELECT key, fence FROM signed
        ON CONFLICT (key) DO UPDATE SET fence = excluded.fence
    )
    SELECT fence, durable FROM signed"
);

/// `$5` is the time to live in seconds, `$6` the same as a setting.
pub(super) const RENEW: &str = concat!(
    "UPDATE adieu_leases SET expires_at = clock_timestamp() + make_interval(secs => $5)
     WHERE key = $1 AND owner = $2 AND fence = $3 AND pg_backend_pid() = $4
     RETURNING set_config('idle_session_timeout', $6, false), ",
    durable!()
);

pub(super) const RELEASE: &str = "
    UPDATE adieu_leases SET owner = NULL
    WHERE key = $1 AND owner = $2 AND fence = $3 AND pg_backend_pid() = $4
    RETURNING fence";

/// `$5` is the name of the marker, `$6` its value.
pub(super) const MARK: &str = concat!(
    "INSERT INTO adieu_markers (key, name, value, fence)
     SELECT key, $5, $6, fence FROM adieu_leases
     WHERE key = $1 AND owner = $2 AND fence = $3 AND pg_backend_pid() = $4
     FOR SHARE
     ON CONFLICT (key, name) DO UPDATE SET value = excluded.value, fence = excluded.fence
     RETURNING ",
    durable!()
);

/// Returns the holder, if a session has the advisory lock, or a lease from before a crash has not
/// expired.
pub(super) const HOLDER: &str = concat!(
    "SELECT owner, fence, extract(epoch FROM expires_at - clock_timestamp())::float8
     FROM adieu_leases, (SELECT ",
    number!(),
    " AS number) AS lock
     WHERE key = $1 AND (
         (owner IS NOT NULL AND expires_at > clock_timestamp() AND NOT ",
    is_remembered!("adieu_leases"),
    ")
         OR EXISTS (SELECT FROM pg_locks
         WHERE locktype = 'advisory' AND granted AND objsubid = 1
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
         AND classid::int8 = (number >> 32) & 4294967295
         AND objid::int8 = number & 4294967295))"
);
