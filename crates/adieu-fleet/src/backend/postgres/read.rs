//! Reads leases and markers from rows.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connection::{Param, failed};
use super::shared::SharedConnection;
use crate::lock_backend::{BackendError, Fence, Holder, Marker};
use crate::names::Owner;

/// The name of a holder that is not known (yet).
const UNKNOWN: &str = "unknown";

pub(super) fn fence(row: &Row, column: usize) -> Result<Fence, tokio_postgres::Error> {
    let fence: i64 = row.try_get(column)?;
    Ok(Fence::new(u64::try_from(fence).unwrap_or(0)))
}

/// Reads a holder from the columns owner, fence, and remaining seconds.
pub(super) fn holder(row: &Row) -> Result<Holder, tokio_postgres::Error> {
    let owner: Option<&str> = row.try_get(0)?;
    // Not zero, because the lock is held.
    let remaining = Duration::try_from_secs_f64(row.try_get(2)?).unwrap_or_default();
    Ok(Holder {
        owner: Owner::stored(owner.unwrap_or(UNKNOWN)),
        fence: fence(row, 1)?,
        remaining: remaining.max(Duration::from_millis(1)),
    })
}

/// Returns a holder for a lock that was refused and is free again when it is queried.
pub(super) fn unknown_holder() -> Holder {
    let owner = Owner::stored(UNKNOWN);
    Holder { owner, fence: Fence::NONE, remaining: Duration::from_millis(1) }
}

pub(super) async fn marker(
    backend: &'static str,
    connection: &SharedConnection,
    key: &str,
    name: &str,
) -> Result<Option<Marker>, BackendError> {
    const VERB: &str = "read a marker";
    const STATEMENT: &str = "SELECT value, fence FROM adieu_markers WHERE key = $1 AND name = $2";
    let params: [Param<'_>; 2] = [(&key, Type::TEXT), (&name, Type::TEXT)];
    let rows = connection.query(VERB, STATEMENT, &params).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let read = || Ok(Marker { value: row.try_get(0)?, fence: fence(row, 1)? });
    read().map(Some).map_err(failed(backend, VERB))
}
