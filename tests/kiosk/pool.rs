//! A pool of one connection to Postgres, which can be closed.

use std::sync::{Arc, Mutex, PoisonError};

use adieu::http::BoxError;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

pub(crate) struct Pool {
    client: Mutex<Option<Arc<Client>>>,
    /// Transfers the data of the connection. Ends with the pool.
    _driving: JoinSet<()>,
}

impl Pool {
    pub(crate) async fn connect(database: &str) -> Result<Self, BoxError> {
        let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
        let mut driving = JoinSet::new();
        driving.spawn(async move {
            // The next request reports the error.
            let _ = connection.await;
        });
        // These tests stop the service, not the server.
        client.batch_execute("SET synchronous_commit = off").await?;
        Ok(Self { client: Mutex::new(Some(Arc::new(client))), _driving: driving })
    }

    pub(crate) async fn store(&self, order: &str) -> Result<(), BoxError> {
        const STATEMENT: &str = "INSERT INTO orders (id) VALUES ($1) ON CONFLICT DO NOTHING";
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        client.ok_or("the pool is closed")?.execute(STATEMENT, &[&order]).await?;
        Ok(())
    }

    pub(crate) fn close(&self) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
