//! Connections to the server itself, without a pooler.

use super::super::connection::{Connection, failed};
use super::super::pooler::announced_session;
use super::NAME;
use crate::lock_backend::BackendError;

/// A connection to the server itself, and the number of its session.
pub(super) struct Direct {
    pub(super) connection: Connection,
    pub(super) session: i32,
}

// === impl Direct ===

impl Direct {
    /// Accepts a connection if there is no pooler between this process and the server.
    pub(super) async fn new(connection: Connection) -> Result<Self, BackendError> {
        const VERB: &str = "connect";
        let announced = announced_session(&connection.client).await;
        let rows = connection.query("SELECT pg_backend_pid()", &[]).await;
        let rows = rows.map_err(failed(NAME, VERB))?;
        let session = rows.first().map(|row| row.try_get::<_, i32>(0)).transpose();
        match session.map_err(failed(NAME, VERB))? {
            Some(session) if announced == Some(session) => Ok(Self { connection, session }),
            answered => {
                let number = |number: Option<i32>| number.map_or("none".into(), |n| n.to_string());
                let problem = format!(
                    "the connection goes through a pooler: session {} was announced, but session {} \
                     responds; connect to the server directly, or use `Postgres`, which works behind \
                     poolers",
                    number(announced),
                    number(answered)
                );
                Err(BackendError::permanent(NAME, VERB, problem))
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.connection.client.is_closed()
    }

    /// Returns whether this error means that the session has ended, and its lock with it.
    pub(super) fn has_ended(&self, error: &tokio_postgres::Error) -> bool {
        let ended_by_server = error.code().is_some_and(|code| {
            // idle_session_timeout; an administrator, a crash, or a restart.
            ["57P05", "57P01", "57P02", "57P03"].contains(&code.code())
        });
        self.is_closed() || error.is_closed() || ended_by_server
    }
}
