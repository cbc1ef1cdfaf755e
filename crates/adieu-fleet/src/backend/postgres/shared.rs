//! A connection that all requests share, replaced when it is lost.

use std::sync::{Arc, Mutex, MutexGuard};

use adieu_core::adapter::lock;
use tokio_postgres::Row;

use super::connection::{Connection, Connector, Param, failed};
use crate::lock_backend::BackendError;

pub(super) struct SharedConnection {
    connector: Connector,
    current: Mutex<Option<Arc<Connection>>>,
    connecting: tokio::sync::Mutex<()>,
}

/// A request in progress. If it is dropped without a response, the connection is not used again.
struct Request<'a> {
    shared: &'a SharedConnection,
    connection: Arc<Connection>,
    is_answered: bool,
}

// === impl SharedConnection ===

impl SharedConnection {
    pub(super) fn new(connector: Connector) -> Self {
        let (current, connecting) = (Mutex::new(None), tokio::sync::Mutex::new(()));
        Self { connector, current, connecting }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        lock(&self.current)
    }

    fn current(&self) -> Option<Arc<Connection>> {
        self.slot().clone().filter(|connection| !connection.client.is_closed())
    }

    /// Returns the connection. Connects and creates the tables if necessary.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, BackendError> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        // One request connects; the others wait and use its connection.
        let _turn = self.connecting.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let connection = Arc::new(self.connector.connect().await?);
        connection.prepare().await?;
        *self.slot() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    pub(super) async fn query(
        &self,
        verb: &'static str,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, BackendError> {
        let connection = self.connection().await?;
        let mut request = Request { shared: self, connection, is_answered: false };
        let response = request.connection.query(statement, params).await;
        request.is_answered =
            response.as_ref().map_or_else(|error| error.code().is_some(), |_| true);
        response.map_err(failed(self.connector.backend, verb))
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // Also if the caller stopped waiting: the server may be unreachable.
        let mut current = self.shared.slot();
        if current.as_ref().is_some_and(|it| Arc::ptr_eq(it, &self.connection)) {
            *current = None;
        }
    }
}
