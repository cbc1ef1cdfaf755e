//! Locks in Postgres: as rows, or as locks of sessions.

/// A column that makes the commit of its statement wait for the disk, where `synchronous_commit` is
/// off.
///
/// A server that crashes would otherwise lose grants and markers that it has acknowledged, and grant
/// a fence twice. The setting applies to one transaction, so it is safe behind poolers.
macro_rules! durable {
    () => {
        "CASE current_setting('synchronous_commit') WHEN 'off' THEN \
         set_config('synchronous_commit', 'local', true) END"
    };
}

mod connection;
mod pooler;
mod read;
mod rows;
mod session;
mod shared;

pub use connection::is_permanent;
pub use pooler::announced_session;
pub use rows::Postgres;
pub use session::PostgresSession;

/// The tables of both backends. They are created if they are missing and the user has the
/// permission; otherwise an administrator must create them.
///
/// A crash empties `adieu_sessions`, because it is unlogged, and keeps `adieu_leases`.
pub(crate) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS adieu_leases (
    key text PRIMARY KEY,
    owner text,
    fence bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    server_started timestamptz
);
CREATE UNLOGGED TABLE IF NOT EXISTS adieu_sessions (
    key text PRIMARY KEY,
    fence bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS adieu_markers (
    key text NOT NULL,
    name text NOT NULL,
    value text NOT NULL,
    fence bigint NOT NULL,
    PRIMARY KEY (key, name)
);
";
