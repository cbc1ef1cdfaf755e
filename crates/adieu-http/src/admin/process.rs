//! The identity of the process that answers, which distinguishes replicas, and a process from its
//! successor.

use serde_json::{Value, json};
use tokio::time::Instant;

/// The process that answers.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    host: Option<String>,
    since: Instant,
}

impl Process {
    /// Takes the name from the executable.
    pub(super) fn current() -> Self {
        let executable = std::env::current_exe().ok();
        let name = executable.as_deref().and_then(|path| path.file_stem());
        let name = name.map_or_else(|| "service".into(), |name| name.to_string_lossy());
        Self { name: name.into_owned(), host: host(), since: Instant::now() }
    }

    /// Returns the part of `/shutdown`. A successor differs by its uptime, because in containers every
    /// process has the same number.
    pub(super) fn view(&self) -> Value {
        let Self { name, host, since } = self;
        let uptime = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        json!({ "name": name, "host": host, "pid": std::process::id(), "uptime_ms": uptime })
    }
}

/// Returns the name of the machine; in Kubernetes that is the name of the pod.
#[cfg(target_os = "linux")]
fn host() -> Option<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    (!host.is_empty()).then_some(host)
}

#[cfg(not(target_os = "linux"))]
fn host() -> Option<String> {
    std::env::var("HOSTNAME").ok()
}
