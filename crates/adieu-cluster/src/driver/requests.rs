//! The requests of a node to its store: its session, the table and commits; and how those that fail are
//! logged.

use std::pin::Pin;
use std::sync::Arc;

use adieu_core::adapter::error_text;

use super::Driver;
use crate::member::Next;
use crate::node::Node;
use crate::proposal::{Proposal, Wake};
use crate::shared::{Failure, Shared};
use crate::store::{Changes, Session, Snapshot, StoreError, Update};
use crate::time::{Instant, now};
use crate::waiting;

// The requests to the store that can fail, as they are logged.
pub(super) const NOT_OPENED: &str = "store not available; retrying";
pub(super) const NOT_KEPT: &str = "session not kept; retrying";
pub(super) const NOT_LOADED: &str = "cluster table not loaded; retrying";
pub(super) const NOT_READ: &str = "cluster record not understood; retrying";
pub(super) const NOT_WATCHED: &str = "cluster changes lost; loading the table";
pub(super) const NOT_COMMITTED: &str = "commit not answered";

pub(super) type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;
pub(super) type Loaded = Result<(Snapshot, Box<dyn Changes>), StoreError>;

/// Opens a session. Retries until it succeeds, the error is permanent, or the node is closed.
pub(super) async fn open(shared: &Shared) -> Option<(Session, Instant)> {
    let ttl = shared.settings.ttl;
    loop {
        let sent = now();
        let opened = tokio::select! {
            biased;
            () = shared.close.cancelled() => return None,
            opened = tokio::time::timeout(ttl / 3, shared.store.open(ttl)) => opened,
        };
        let error = match opened {
            Ok(Ok(session)) => {
                shared.troubles.recovered(&[NOT_OPENED]);
                return Some((session, sent));
            }
            Ok(Err(error)) => error,
            Err(_) => no_answer(shared, "open a session"),
        };
        if !error.may_pass() {
            shared.progress.send_modify(|it| it.failure = Some(Failure::Store(error)));
            return None;
        }
        warn_of(shared, &error, NOT_OPENED);
        let waiting_for = shared.troubles.explained(waiting::STORE);
        shared.progress.send_modify(|it| it.waiting_for = Some(waiting_for));
        tokio::time::sleep(ttl / 20).await;
    }
}

// === impl Driver ===

impl Driver {
    pub(super) fn keep(&mut self, node: &mut Node, now: Instant, wake: &mut Wake) {
        match node.keep(now) {
            Next::Wait(until) => wake.at(until),
            Next::Lost => self.standing.lose(),
            Next::Keep(_) if self.keeping.is_some() => wake.at(node.valid_until()),
            Next::Keep(patience) => {
                let (shared, session) = (Arc::clone(&self.shared), self.session.clone());
                wake.at(node.valid_until());
                self.keeping = Some(Box::pin(async move {
                    let kept = tokio::time::timeout(patience, shared.store.keep(&session)).await;
                    let kept = kept.unwrap_or_else(|_| Err(no_answer(&shared, "keep a session")));
                    (now, kept)
                }));
            }
        }
    }

    pub(super) fn load(&mut self, node: &mut Node, now: Instant, wake: &mut Wake) {
        let needs_load = node.needs_load(now, wake) || self.changes.is_none();
        if !needs_load || self.loading.is_some() {
            return;
        }
        if let Some(retry) = self.retry_load_at.filter(|retry| now < *retry) {
            return wake.at(retry);
        }
        node.load_started();
        let shared = Arc::clone(&self.shared);
        self.loading = Some(Box::pin(async move {
            let prefix = shared.keys.prefix();
            let load = async {
                let snapshot = shared.store.load(prefix).await?;
                let changes = shared.store.changes(prefix, snapshot.revision).await?;
                Ok((snapshot, changes))
            };
            let loaded = tokio::time::timeout(shared.settings.ttl, load).await;
            loaded.unwrap_or_else(|_| Err(no_answer(&shared, "load a table")))
        }));
    }

    pub(super) fn commit(&mut self, Proposal { what, commit }: Proposal) {
        let shared = Arc::clone(&self.shared);
        self.committing = Some(Box::pin(async move {
            let patience = shared.settings.ttl / 3;
            let answer = tokio::time::timeout(patience, shared.store.commit(&commit)).await;
            (what, answer.unwrap_or_else(|_| Err(no_answer(&shared, "commit"))))
        }));
    }

    /// A record of a newer build: the view cannot be trusted, so the table is loaded again, in case
    /// the record changes.
    pub(super) fn cannot_read(&mut self, node: &mut Node, error: &crate::view::UnreadableRecord) {
        warn_of(&self.shared, error, NOT_READ);
        self.changes = None;
        self.retry_load_at = Some(now() + self.shared.settings.ttl / 3);
        node.load_failed();
    }
}

/// Closes the session. If that fails, the session expires.
pub(super) async fn close_session(shared: &Shared, session: &Session) {
    const NOT_CLOSED: &str = "session not closed; it expires";
    let patience = shared.settings.ttl / 3;
    match tokio::time::timeout(patience, shared.store.close(session)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn_of(shared, &error, NOT_CLOSED),
        Err(_) => warn_of(shared, &no_answer(shared, "close a session"), NOT_CLOSED),
    }
}

pub(super) async fn ready<T>(pending: &mut Pending<T>) -> T {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

pub(super) async fn next(changes: &mut Option<Box<dyn Changes>>) -> Result<Update, StoreError> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

fn no_answer(shared: &Shared, verb: &'static str) -> StoreError {
    StoreError::unavailable(shared.store.name(), verb, "no answer in time")
}

pub(super) fn warn_of(
    shared: &Shared,
    error: &(dyn std::error::Error + 'static),
    event: &'static str,
) {
    let (cluster, error) = (Arc::clone(&shared.cluster), error_text(error));
    if shared.troubles.failed(event, &error, now()) {
        shared.log(move || tracing::warn!(%cluster, error, "{event}"));
    }
}
