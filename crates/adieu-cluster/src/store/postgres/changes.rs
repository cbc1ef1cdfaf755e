//! The changes of a table in Postgres: its history, read when a notification comes, when a session
//! may have ended, and every second in case a notification was lost.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use super::connector::Param;
use super::{NAME, Postgres, number_of, one, record, revision_of, unreadable};
use crate::store::{Change, Changes, Reply, Revision, StoreError, Update};

const WATCH: &str = "watch a table";

/// How often a reader reads the changes without a notification.
const POLL: Duration = Duration::from_secs(1);

/// The timeout of one read. It detects a connection on which nothing arrives.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct PostgresChanges {
    postgres: Postgres,
    prefix: String,
    after: Revision,
    /// A read that has begun. It is kept here, so that dropping the future of `next` does not lose it.
    look: Option<Reply<'static, Look>>,
    /// Notifications of the connection, and how many had arrived before the last read.
    notified: Option<(watch::Receiver<u64>, u64)>,
    next_look: Instant,
}

/// The result of reading the changes once.
struct Look {
    update: Option<Update>,
    /// How soon the next session ends, if none is kept.
    next_end: Option<Duration>,
    notified: (watch::Receiver<u64>, u64),
}

// === impl PostgresChanges ===

impl PostgresChanges {
    pub(super) fn new(postgres: Postgres, prefix: &str, after: Revision) -> Self {
        let (prefix, next_look) = (prefix.to_owned(), Instant::now());
        Self { postgres, prefix, after, look: None, notified: None, next_look }
    }

    async fn receive(&mut self) -> Result<Update, StoreError> {
        loop {
            if self.look.is_none() {
                self.wait().await;
            }
            let look = self.look.get_or_insert_with(|| {
                let (postgres, prefix) = (self.postgres.clone(), self.prefix.clone());
                Box::pin(look(postgres, prefix, self.after))
            });
            let looked = look.await;
            self.look = None;
            // After a failure, the caller decides when to read again.
            let Look { update, next_end, notified } = looked?;
            self.notified = Some(notified);
            self.next_look = Instant::now() + next_end.map_or(POLL, |end| end.min(POLL));
            if let Some(update) = update {
                if let Update::Changed { revision, .. } = &update {
                    self.after = *revision;
                }
                return Ok(update);
            }
        }
    }

    /// Waits until there may be something new.
    async fn wait(&mut self) {
        let notified = async {
            match &mut self.notified {
                // Also if the connection has ended.
                Some((count, seen)) => drop(count.wait_for(|count| count != seen).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = notified => {}
            () = tokio::time::sleep_until(self.next_look) => {}
        }
    }
}

impl Changes for PostgresChanges {
    fn next(&mut self) -> Reply<'_, Update> {
        Box::pin(self.receive())
    }
}

async fn look(postgres: Postgres, prefix: String, after: Revision) -> Result<Look, StoreError> {
    match tokio::time::timeout(PATIENCE, look_once(&postgres, &prefix, after)).await {
        Ok(looked) => looked,
        Err(_) => {
            let problem = format!("no answer within {PATIENCE:?}");
            Err(StoreError::unavailable(NAME, WATCH, problem))
        }
    }
}

async fn look_once(postgres: &Postgres, prefix: &str, after: Revision) -> Result<Look, StoreError> {
    // One statement sees one revision. Without changes, its one row has no key.
    const LOOK: &str = "
        SELECT change.key, change.value, change.created, change.revision, change.session,
               this.revision, this.forgotten,
               (SELECT extract(epoch FROM min(ends_at) - clock_timestamp())::float8
                FROM adieu_cluster_sessions WHERE table_name = $1)
        FROM adieu_cluster_tables AS this
        LEFT JOIN adieu_cluster_changes AS change
            ON change.table_name = this.name AND change.revision > $2
            AND starts_with(change.key, $3)
        WHERE this.name = $1 ORDER BY change.revision, change.position";
    let count = postgres.connector.connection().await?.notified();
    let seen = *count.borrow();
    postgres.expire(WATCH).await?;
    let params: [Param<'_>; 2] = [(&number_of(after), Type::INT8), (&prefix, Type::TEXT)];
    let rows = postgres.call(LOOK, &params, WATCH).await?;
    let read = || {
        let row = one(&rows)?;
        let next_end: Option<f64> = row.try_get(7)?;
        let next_end = next_end.map(|end| Duration::try_from_secs_f64(end).unwrap_or_default());
        let (now, forgotten) = (revision_of(row.try_get(5)?), revision_of(row.try_get(6)?));
        Ok((now, forgotten, next_end))
    };
    let (now, forgotten, next_end) = read().map_err(unreadable(WATCH))?;
    let update = if now < after {
        let problem = format!(
            "the revision is {now}, and was {after} before: the database was restored from a backup; \
             restart every process that uses the table"
        );
        return Err(StoreError::refused(NAME, WATCH, problem));
    } else if after < forgotten {
        Some(Update::Compacted)
    } else if now == after {
        None
    } else {
        let changes: Result<Vec<_>, Error> =
            rows.iter().filter_map(|row| change(row).transpose()).collect();
        let changes = changes.map_err(|error| unreadable(WATCH)(error.into()))?;
        Some(Update::Changed { revision: now, changes })
    };
    Ok(Look { update, next_end, notified: (count, seen) })
}

/// Reads a change, if the row has one.
fn change(row: &Row) -> Result<Option<Change>, Error> {
    let Some(key) = row.try_get::<_, Option<&str>>(0)? else { return Ok(None) };
    if row.try_get::<_, Option<&str>>(1)?.is_some() {
        return record(row).map(Change::Put).map(Some);
    }
    let revision = revision_of(row.try_get(3)?);
    Ok(Some(Change::Deleted { key: key.into(), revision }))
}
