//! Writes to the standard output.
//!
//! A reader that closes its end of a pipe has seen enough, and is not an error. Every other output
//! that cannot be written is: a full disk, and a standard output that is closed.

use std::io::{ErrorKind, Result, Write};

use crate::ending::Failure;

/// Writes the result of a command.
pub(crate) fn print(text: &str) -> std::result::Result<(), Failure> {
    delivered(write(text)).map(drop)
}

/// Writes to the standard output, with colours only at a terminal and if `NO_COLOR` is not set.
pub(crate) fn write(text: &str) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    closed::check()?;
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Returns false if the reader has closed the pipe.
pub(crate) fn delivered(written: Result<()>) -> std::result::Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::unable(format!("failed to write the output: {error}"))),
    }
}

/// Detects a standard output that was closed when the process started (`adieu plan >&-`).
///
/// Before `main`, the Rust runtime opens `/dev/null` in place of a closed standard stream. Every
/// write would then succeed, and that file cannot be distinguished from one that the caller chose. So
/// the descriptor is examined before the runtime starts, by an entry in the list of functions that
/// the loader calls.
#[cfg(unix)]
mod closed {
    use std::sync::atomic::{AtomicBool, Ordering};

    static IS_CLOSED: AtomicBool = AtomicBool::new(false);

    #[expect(unsafe_code, reason = "the list of the loader can only be extended by its section")]
    #[used]
    #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
    #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
    static RECORD: extern "C" fn() = record;

    /// Allocates nothing and cannot panic: the runtime does not exist yet.
    extern "C" fn record() {
        let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
        IS_CLOSED.store(is_closed, Ordering::Relaxed);
    }

    pub(super) fn check() -> std::io::Result<()> {
        match IS_CLOSED.load(Ordering::Relaxed) {
            true => Err(rustix::io::Errno::BADF.into()),
            false => Ok(()),
        }
    }
}

#[cfg(not(unix))]
mod closed {
    pub(super) fn check() -> std::io::Result<()> {
        Ok(())
    }
}
