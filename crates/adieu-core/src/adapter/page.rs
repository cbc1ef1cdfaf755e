//! Pages: what adapters show on the admin port, and the commands that they accept there.

use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::{Command, CommandError, Metrics};
use crate::coordinator::Shutdown;
use crate::sync::lock;

/// A part of the process that the admin port shows, and that operators can change: a cluster, a set of
/// policies.
///
/// The admin port calls these methods on threads of its own, inside a tokio runtime of its own, and
/// waits for a limited time. So they may block, and a panic fails only the request. They must not hold
/// a [`Shutdown`], which owns the page; use [`WeakShutdown`](crate::WeakShutdown).
///
/// ```
/// use adieu_core::{Shutdown, adapter};
/// use serde_json::{Value, json};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[derive(Default)]
/// struct Cache {
///     entries: AtomicU64,
/// }
///
/// impl adapter::Page for Cache {
///     fn status(&self) -> Value {
///         json!({ "entries": self.entries.load(Ordering::Relaxed) }) // GET /cache
///     }
///
///     fn commands(&self) -> &'static [(&'static str, &'static str)] {
///         &[("clear", "removes all entries")]
///     }
///
///     fn run(&self, command: &adapter::Command) -> Result<Value, adapter::CommandError> {
///         assert_eq!(command.name(), "clear"); // POST /cache/clear
///         self.entries.store(0, Ordering::Relaxed);
///         Ok(self.status())
///     }
///
///     fn metrics(&self, metrics: &mut adapter::Metrics) {
///         let entries = self.entries.load(Ordering::Relaxed);
///         metrics.gauge("cache_entries", "Entries in the cache.").sample(&[], entries);
///     }
/// }
///
/// let shutdown = Shutdown::new();
/// adapter::publish(&shutdown, "cache", Cache::default())?;
/// # Ok::<(), adapter::PublishError>(())
/// ```
pub trait Page: Send + Sync + 'static {
    /// Returns the state, for `GET /NAME`.
    fn status(&self) -> Value;

    /// Lists the commands: the name of each, and its effect in a few words.
    fn commands(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Carries out a command, for `POST /NAME/COMMAND?argument=value`. It is called only with the
    /// commands of [`commands`](Page::commands), and only if the caller may change the process.
    ///
    /// # Errors
    ///
    /// If the arguments are not valid, or the command failed. The error is the body of the response.
    fn run(&self, command: &Command) -> Result<Value, CommandError> {
        Err(CommandError::invalid(format!("there is no command {}", command.name())))
    }

    /// Adds the metrics, for `GET /metrics`.
    fn metrics(&self, _metrics: &mut Metrics) {}
}

/// Why a page was not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The name cannot be part of a path.
    #[error("{name:?} is not a valid name of a page: use lower-case letters, digits and -")]
    Name {
        /// The name.
        name: String,
    },
    /// The shutdown already has a page of this name.
    #[error("the shutdown already has a page {name}: publish one page that shows both")]
    Taken {
        /// The name.
        name: String,
    },
}

/// A page with its name.
pub type NamedPage = (Arc<str>, Arc<dyn Page>);

/// The pages of one shutdown.
#[derive(Default)]
struct Pages(Mutex<Vec<NamedPage>>);

/// Publishes a page on the admin port, under `/NAME`. It stays until the shutdown is dropped.
///
/// A name that the admin port uses itself, such as `shutdown`, is not shown.
///
/// # Errors
///
/// If the name is not valid, or taken.
pub fn publish(
    shutdown: &Shutdown,
    name: impl Into<String>,
    page: impl Page,
) -> Result<(), PublishError> {
    let name = name.into();
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(is_allowed) {
        return Err(PublishError::Name { name });
    }
    let all = shutdown.extension::<Pages>();
    let mut pages = lock(&all.0);
    if pages.iter().any(|(taken, _)| **taken == *name) {
        return Err(PublishError::Taken { name });
    }
    pages.push((name.into(), Arc::new(page)));
    Ok(())
}

/// Returns the pages of a shutdown, in the order in which they were published.
#[must_use]
pub fn pages(shutdown: &Shutdown) -> Vec<NamedPage> {
    lock(&shutdown.extension::<Pages>().0).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Blank;

    impl Page for Blank {
        fn status(&self) -> Value {
            Value::Null
        }
    }

    #[test]
    fn a_name_is_published_once_and_must_fit_into_a_path() {
        let shutdown = Shutdown::new();
        assert_eq!(publish(&shutdown, "blank", Blank), Ok(()));
        let again = publish(&shutdown, "blank", Blank).unwrap_err();
        assert_eq!(again, PublishError::Taken { name: "blank".into() });
        for name in ["", "Blank", "a/b", "a b", "ä"] {
            let error = publish(&shutdown, name, Blank).unwrap_err();
            assert_eq!(error, PublishError::Name { name: name.into() });
        }
        let names: Vec<_> = pages(&shutdown).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["blank".into()]);
        assert!(pages(&Shutdown::new()).is_empty());
    }
}
