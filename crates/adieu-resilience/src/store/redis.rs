//! A store in Redis: one script for each question, which runs where the state is.

use redis::Script;
use redis::aio::ConnectionLike;

use super::{Store, StoreError};
use crate::rate::{Gcra, Shared, Taken, Wait};

pub(super) const TAKE: &str = include_str!("redis/take.lua");

/// Shares through a Redis server, by a connection that can be cloned and connects again.
pub(crate) struct Redis<C> {
    connection: C,
    take: Script,
}

/// Granted, then as text: the wait, how far the state is ahead, and its tolerance, in nanoseconds.
pub(super) type Answer = (u32, String, String, String);

// === impl Redis ===

impl<C> Redis<C> {
    pub(crate) fn new(connection: C) -> Self {
        Self { connection, take: Script::new(TAKE) }
    }
}

impl<C> Store for Redis<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    async fn take(&self, key: &str, limit: &Gcra, wanted: u32) -> Result<Taken, StoreError> {
        let (interval, tolerance) = limit.figures();
        let mut invocation = self.take.key(key);
        invocation.arg(interval).arg(tolerance).arg(wanted);
        let mut connection = self.connection.clone();
        let answer: Answer = invocation.invoke_async(&mut connection).await.map_err(failed)?;
        read(answer, 0).map_err(failed)
    }
}

/// Reads an answer. The time of the state counts from `now`.
pub(super) fn read(answer: Answer, now: u64) -> Result<Taken, std::num::ParseIntError> {
    let (granted, wait, ahead, tolerance) = answer;
    let (ahead, tolerance): (u64, u64) = (ahead.parse()?, tolerance.parse()?);
    let state = (ahead > 0).then_some(Shared { time: now + ahead, tolerance });
    Ok(Taken { granted, wait: Wait(wait.parse()?), state })
}

fn failed(source: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError { store: "redis", verb: "take permits", source: Box::new(source) }
}
