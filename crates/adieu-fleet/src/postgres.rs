//! Locks in Postgres: as rows, or as locks of a session.

mod connection;
mod rows;
mod session;

pub use rows::Postgres;
pub use session::PostgresSession;

/// What both need. It is made when it is not there; who may not make tables has it made by others.
pub(crate) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS adieu_leases (
    key text PRIMARY KEY,
    owner text,
    fence bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    server_started timestamptz
);
CREATE TABLE IF NOT EXISTS adieu_markers (
    key text NOT NULL,
    name text NOT NULL,
    value text NOT NULL,
    fence bigint NOT NULL,
    PRIMARY KEY (key, name)
);
";
