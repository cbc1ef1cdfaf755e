//! Tells systemd how it stands: ready, stopping, still at it, still alive.
//!
//! [`machine`] decides what to say, [`driver`] says it, through [`socket`].

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

/// Why systemd cannot be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// `NOTIFY_SOCKET` is neither a path nor an abstract name.
    #[error("failed to notify systemd: NOTIFY_SOCKET is {address:?}, not a path or an @name")]
    Address {
        /// What it is.
        address: OsString,
    },
    /// There is no socket to be had, or the address is too long.
    #[error("failed to notify systemd at {address:?}")]
    Socket {
        /// What `NOTIFY_SOCKET` is.
        address: OsString,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// `WATCHDOG_USEC` is not a number of microseconds.
    #[error("failed to keep systemd's watchdog: WATCHDOG_USEC is {value:?}, not a number above 0")]
    Watchdog {
        /// What it is.
        value: OsString,
    },
    /// Nobody could do it.
    #[error("failed to notify systemd: there is no runtime; make the shutdown inside one")]
    NoRuntime,
}

/// What systemd has asked for.
struct Asked {
    socket: Socket,
    /// How often it wants to hear that we are alive.
    watchdog: Option<Duration>,
}

// === impl Shutdown ===

impl Shutdown {
    /// Tells systemd how it stands, from now on; false if there is no systemd that wants to know.
    /// [`main`](crate::main) does so by itself.
    ///
    /// For a unit of `Type=notify`: `READY=1` when the process is first ready, so call
    /// [`Shutdown::started`]; `STOPPING=1` when the shutdown begins; `STATUS=` with what is waited
    /// for; more time while the shutdown gets somewhere, never beyond its own deadline; and with
    /// `WatchdogSec=`, that the runtime is alive. That goes on until the last handle of this
    /// shutdown is gone. It is said from the runtime, so that a wedged one falls silent, and never
    /// waits for systemd.
    ///
    /// The environment is left as it is: processes that are started from here inherit it.
    ///
    /// # Errors
    ///
    /// If what the environment says makes no sense, or there is no runtime to do it on.
    pub fn notify_systemd(&self) -> Result<bool, NotifyError> {
        let Some(asked) = Asked::read(|name| std::env::var_os(name), std::process::id())? else {
            return Ok(false);
        };
        let home = self.runtime().ok_or(NotifyError::NoRuntime)?;
        if let Some(lookout) = self.lookout() {
            // The runtime owns it; it ends with the shutdown's last handle.
            home.spawn(driver::attend(Arc::downgrade(self.shared()), lookout, asked));
        }
        Ok(true)
    }
}

/// Does so for [`main`](crate::main), which goes on without systemd.
pub(crate) fn attend(shutdown: &Shutdown) {
    if let Err(error) = shutdown.notify_systemd() {
        let error = chain(&error);
        shutdown.shared().journal().log(move || error!(error, "failed to notify systemd"));
    }
}

// === impl Asked ===

impl Asked {
    fn read(var: impl Fn(&str) -> Option<OsString>, pid: u32) -> Result<Option<Self>, NotifyError> {
        let var = |name| var(name).filter(|value| !value.is_empty());
        let Some(address) = var("NOTIFY_SOCKET") else { return Ok(None) };
        let socket = Socket::to(address)?;
        // Whoever started us may have been asked, and we have only inherited it.
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
        let asked = Asked::read(var, 42).map_err(|error| error.to_string())?;
        Ok(asked.map(|asked| asked.watchdog))
    }

    #[test]
    fn s80_the_watchdog_is_kept_only_by_whom_it_is_for() {
        let socket = ("NOTIFY_SOCKET", "/run/systemd/notify");
        let usec = ("WATCHDOG_USEC", "3000000");
        let every = Some(Some(Some(Duration::from_secs(3))));
        assert_eq!(read(&[usec]).ok(), Some(None), "nobody asks");
        assert_eq!(read(&[("NOTIFY_SOCKET", "")]).ok(), Some(None), "nobody asks");
        assert_eq!(read(&[socket]).ok(), Some(Some(None)));
        assert_eq!(read(&[socket, usec]).ok(), every);
        assert_eq!(read(&[socket, usec, ("WATCHDOG_PID", "42")]).ok(), every);
        assert_eq!(read(&[socket, usec, ("WATCHDOG_PID", "7")]).ok(), Some(Some(None)));
    }

    #[test]
    fn s78_what_makes_no_sense_is_named() {
        let cases: [(&[(&str, &str)], &str); 4] = [
            (&[("NOTIFY_SOCKET", "vsock:2:1234")], "NOTIFY_SOCKET is \"vsock:2:1234\""),
            (&[("NOTIFY_SOCKET", "@n"), ("WATCHDOG_USEC", "soon")], "WATCHDOG_USEC is \"soon\""),
            (&[("NOTIFY_SOCKET", "@n"), ("WATCHDOG_USEC", "0")], "WATCHDOG_USEC is \"0\""),
            (&[("NOTIFY_SOCKET", &format!("/{}", "x".repeat(200)))], "notify systemd at \"/xxx"),
        ];
        for (vars, said) in cases {
            let error = read(vars).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
