//! Notifies systemd: ready, stopping, status, more time, alive.
//!
//! [`machine`] decides which messages to send, [`driver`] sends them through [`socket`].

mod driver;
mod machine;
mod socket;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use tracing::error;

use crate::coordinator::Shutdown;
use crate::task::chain;
use socket::Socket;

/// Why systemd cannot be notified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// `NOTIFY_SOCKET` is neither a path nor an abstract name.
    #[error("failed to notify systemd: NOTIFY_SOCKET is {address:?}, not a path or an @name")]
    Address {
        /// The value of `NOTIFY_SOCKET`.
        address: OsString,
    },
    /// No socket could be created, or the address is too long.
    #[error("failed to notify systemd at {address:?}")]
    Socket {
        /// The value of `NOTIFY_SOCKET`.
        address: OsString,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// `WATCHDOG_USEC` is not a number of microseconds.
    #[error(
        "failed to notify systemd's watchdog: WATCHDOG_USEC is {value:?}, not a number above 0"
    )]
    Watchdog {
        /// The value of `WATCHDOG_USEC`.
        value: OsString,
    },
    /// There is no runtime for the task that notifies systemd.
    #[error("failed to notify systemd: there is no runtime; create the shutdown inside one")]
    NoRuntime,
}

/// The settings that systemd passes in environment variables.
struct NotifySettings {
    socket: Socket,
    /// The interval in which systemd expects a sign of life.
    watchdog: Option<Duration>,
}

// === impl Shutdown ===

impl Shutdown {
    /// Notifies systemd from now on. Returns false if systemd did not request that.
    ///
    /// For a unit of `Type=notify`. [`main`](crate::main) calls this automatically. systemd gets:
    ///
    /// - `READY=1` when the process is ready for the first time, so call [`Shutdown::mark_started`];
    /// - `STOPPING=1` when the shutdown begins;
    /// - `STATUS=` with the tasks that are waited for;
    /// - requests for more time while tasks end, never beyond the deadline of the shutdown;
    /// - with `WatchdogSec=`, signs of life, from a task of the runtime, so that they stop when the
    ///   runtime is blocked.
    ///
    /// The notifications end when the last handle of this shutdown is dropped. Sending never waits
    /// for systemd. The environment variables are not removed, so child processes inherit them.
    ///
    /// # Errors
    ///
    /// If an environment variable of systemd is invalid, or there is no runtime.
    pub fn notify_systemd(&self) -> Result<bool, NotifyError> {
        let Some(settings) =
            NotifySettings::read(|name| std::env::var_os(name), std::process::id())?
        else {
            return Ok(false);
        };
        let home = self.runtime().ok_or(NotifyError::NoRuntime)?;
        if let Some(updates) = self.updates() {
            // The task ends when the last handle of the shutdown is dropped.
            home.spawn(driver::run(Arc::downgrade(self.shared()), updates, settings));
        }
        Ok(true)
    }
}

/// Notifies systemd for [`main`](crate::main), which logs an error and continues without systemd.
pub(crate) fn start_notifying(shutdown: &Shutdown) {
    if let Err(error) = shutdown.notify_systemd() {
        let error = chain(&error);
        shutdown.shared().journal().log(move || error!(error, "failed to notify systemd"));
    }
}

// === impl NotifySettings ===

impl NotifySettings {
    fn read(var: impl Fn(&str) -> Option<OsString>, pid: u32) -> Result<Option<Self>, NotifyError> {
        let var = |name| var(name).filter(|value| !value.is_empty());
        let Some(address) = var("NOTIFY_SOCKET") else { return Ok(None) };
        let socket = Socket::to(address)?;
        // A process inherits the variables of its parent, for which the watchdog may be meant.
        let is_for_us = var("WATCHDOG_PID").is_none_or(|of| of.to_str() == Some(&pid.to_string()));
        let watchdog = match var("WATCHDOG_USEC").filter(|_| is_for_us) {
            Some(value) => Some(micros(value)?),
            None => None,
        };
        Ok(Some(Self { socket, watchdog }))
    }
}

fn micros(value: OsString) -> Result<Duration, NotifyError> {
    let micros = value.to_str().and_then(|text| text.parse().ok()).filter(|micros| *micros > 0);
    micros.map(Duration::from_micros).ok_or(NotifyError::Watchdog { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Option<Option<Duration>>, String> {
        let var = |name: &str| vars.iter().find(|(var, _)| *var == name).map(|(_, v)| v.into());
        let settings = NotifySettings::read(var, 42).map_err(|error| error.to_string())?;
        Ok(settings.map(|settings| settings.watchdog))
    }

    #[test]
    fn s80_only_the_process_in_watchdog_pid_notifies_the_watchdog() {
        let socket = ("NOTIFY_SOCKET", "/run/systemd/notify");
        let usec = ("WATCHDOG_USEC", "3000000");
        let every = Some(Some(Some(Duration::from_secs(3))));
        assert_eq!(read(&[usec]).ok(), Some(None), "not requested");
        assert_eq!(read(&[("NOTIFY_SOCKET", "")]).ok(), Some(None), "not requested");
        assert_eq!(read(&[socket]).ok(), Some(Some(None)));
        assert_eq!(read(&[socket, usec]).ok(), every);
        assert_eq!(read(&[socket, usec, ("WATCHDOG_PID", "42")]).ok(), every);
        assert_eq!(read(&[socket, usec, ("WATCHDOG_PID", "7")]).ok(), Some(Some(None)));
    }

    #[test]
    fn s1410_an_invalid_variable_is_an_error_with_its_value() {
        let cases: [(&[(&str, &str)], &str); 4] = [
            (&[("NOTIFY_SOCKET", "vsock:2:1234")], "NOTIFY_SOCKET is \"vsock:2:1234\""),
            (&[("NOTIFY_SOCKET", "@n"), ("WATCHDOG_USEC", "soon")], "WATCHDOG_USEC is \"soon\""),
            (&[("NOTIFY_SOCKET", "@n"), ("WATCHDOG_USEC", "0")], "WATCHDOG_USEC is \"0\""),
            (&[("NOTIFY_SOCKET", &format!("/{}", "x".repeat(200)))], "notify systemd at \"/xxx"),
        ];
        for (vars, text) in cases {
            let error = read(vars).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
