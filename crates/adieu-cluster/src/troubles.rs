//! The requests to the store that fail at present, and the findings for the report of the shutdown.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use adieu_core::adapter::lock;

use crate::time::{Duration, Instant};

/// How often the same error of the same request is logged.
const LOG_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The requests whose last attempt failed, by the event that is logged.
    failing: BTreeMap<&'static str, Failing>,
    findings: Vec<String>,
}

#[derive(Debug)]
struct Failing {
    error: String,
    at: Instant,
    logged: Instant,
}

// === impl Troubles ===

impl Troubles {
    /// Stores that a request failed. Returns whether to log that: not if the same error was logged a
    /// moment ago.
    pub(crate) fn failed(&self, event: &'static str, error: &str, now: Instant) -> bool {
        let mut inner = self.lock();
        match inner.failing.get_mut(event) {
            Some(failing) if failing.error == error && now - failing.logged < LOG_AGAIN => {
                failing.at = now;
                false
            }
            _ => {
                let failing = Failing { error: error.to_owned(), at: now, logged: now };
                inner.failing.insert(event, failing);
                true
            }
        }
    }

    /// Stores that requests of these kinds succeed again.
    pub(crate) fn recovered(&self, events: &[&'static str]) {
        let mut inner = self.lock();
        events.iter().for_each(|event| drop(inner.failing.remove(event)));
    }

    /// Adds the last error of the store to what a node is waiting for.
    pub(crate) fn explained(&self, waiting_for: &str) -> String {
        let inner = self.lock();
        match inner.failing.values().max_by_key(|failing| failing.at) {
            Some(failing) => format!("{waiting_for}: {}", failing.error),
            None => waiting_for.to_owned(),
        }
    }

    /// Adds a line to the report of the shutdown, which is then not clean.
    pub(crate) fn find(&self, finding: String) {
        self.lock().findings.push(finding);
    }

    /// Takes the lines for the report that were added since the last call.
    pub(crate) fn take_findings(&self) -> Option<String> {
        let findings = std::mem::take(&mut self.lock().findings);
        (!findings.is_empty()).then(|| findings.join("; "))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::now;

    #[tokio::test(start_paused = true)]
    async fn s1271_the_same_error_is_logged_every_five_seconds() {
        let troubles = Troubles::default();
        let logged = |at_ms: u64, event, error| {
            troubles.failed(event, error, start() + Duration::from_millis(at_ms))
        };
        assert!(logged(0, "open", "full"));
        assert!(!logged(100, "open", "full"));
        assert!(logged(200, "commit", "full"), "another request");
        assert!(logged(300, "open", "cut"), "another error");
        assert!(!logged(5_200, "open", "cut"));
        assert!(logged(5_300, "open", "cut"));
        assert_eq!(troubles.explained("waiting"), "waiting: cut");
        troubles.recovered(&["open"]);
        assert_eq!(troubles.explained("waiting"), "waiting: full");
        troubles.recovered(&["commit"]);
        assert_eq!(troubles.explained("waiting"), "waiting");
    }

    /// The clock is paused, so that this is the same instant each time.
    fn start() -> Instant {
        now()
    }
}
