//! Calls the pages that adapters have published, with limits: their code may block or panic.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::adapter::{Command, CommandError, Metrics, NamedPage, Page, lock};
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::json::as_json;

/// The calls to one page that run at a time. So a page that blocks for ever uses few threads, and
/// the others are still answered.
const MAX_CALLS: usize = 4;

/// How long each call may take. The metrics of a page are part of a response that scrapers await for
/// about ten seconds.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
const METRICS_TIMEOUT: Duration = Duration::from_secs(2);

/// The calls to pages that are in progress.
#[derive(Default)]
pub(super) struct Calls(Mutex<BTreeMap<Arc<str>, Arc<Semaphore>>>);

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("panicked")]
    Panicked,
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
}

// === impl Calls ===

impl Calls {
    pub(super) async fn status(&self, page: NamedPage) -> Response<Bytes> {
        let name = Arc::clone(&page.0);
        match self.call(page, STATUS_TIMEOUT, |page| page.status()).await {
            Ok(status) => as_json(StatusCode::OK, &status),
            Err(error) => failed(&error, &format!("failed to read the status of {name}: {error}")),
        }
    }

    pub(super) async fn command(&self, page: NamedPage, command: Command) -> Response<Bytes> {
        let path = format!("{}/{}", page.0, command.name());
        let refused = |status, problem: &str| as_json(status, &json!({ "error": problem }));
        match self.call(page, COMMAND_TIMEOUT, move |page| page.run(&command)).await {
            Ok(Ok(done)) => as_json(StatusCode::OK, &done),
            Ok(Err(CommandError::Invalid(problem))) => refused(StatusCode::BAD_REQUEST, &problem),
            Ok(Err(CommandError::Refused(problem))) => refused(StatusCode::CONFLICT, &problem),
            Ok(Err(error)) => refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
            Err(error) => {
                let hint = "it may have been carried out; see its status";
                failed(&error, &format!("{path}: {error}; {hint}"))
            }
        }
    }

    /// Returns the metrics of all pages. A page that fails leaves a comment.
    pub(super) async fn metrics(self: &Arc<Self>, pages: Vec<NamedPage>) -> Metrics {
        let mut calls = JoinSet::new();
        for (at, page) in pages.into_iter().enumerate() {
            let (this, name) = (Arc::clone(self), Arc::clone(&page.0));
            calls.spawn(async move {
                let render = |page: &dyn Page| {
                    let mut metrics = Metrics::default();
                    page.metrics(&mut metrics);
                    metrics.to_string()
                };
                let rendered = this.call(page, METRICS_TIMEOUT, render).await;
                (at, rendered.unwrap_or_else(|error| format!("# metrics of {name}: {error}\n")))
            });
        }
        let mut rendered = calls.join_all().await;
        rendered.sort();
        let mut metrics = Metrics::default();
        for (_, text) in rendered {
            metrics.append(&text);
        }
        metrics
    }

    /// Calls a page on another thread, for a limited time.
    async fn call<T: Send + 'static>(
        &self,
        (name, page): NamedPage,
        within: Duration,
        call: impl FnOnce(&dyn Page) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let permits = {
            let mut all = lock(&self.0);
            Arc::clone(all.entry(name).or_insert_with(|| Arc::new(Semaphore::new(MAX_CALLS))))
        };
        let called = async {
            // Held by the thread, also if this future is dropped. The semaphore is never closed.
            let permit = permits.acquire_owned().await.ok();
            let called = tokio::task::spawn_blocking(move || {
                let result = call(&*page);
                drop(permit);
                result
            });
            called.await.map_err(|_| CallError::Panicked)
        };
        let timed_out = |_| CallError::TimedOut(within);
        tokio::time::timeout(within, called).await.map_err(timed_out)?
    }
}

fn failed(error: &CallError, problem: &str) -> Response<Bytes> {
    let status = match error {
        CallError::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        CallError::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
    };
    as_json(status, &json!({ "error": problem }))
}
