//! Platforms without Unix signals: installing them is an error.

use std::io;

use super::{Signal, SignalError};

pub(super) const TERM: i32 = 15;
pub(super) const INT: i32 = 2;
pub(super) const HUP: i32 = 1;
pub(super) const QUIT: i32 = 3;
pub(super) const USR1: i32 = 10;
pub(super) const USR2: i32 = 12;

pub(crate) struct Listener;

impl Listener {
    pub(crate) fn start(
        _signals: Vec<Signal>,
        _handle: impl Fn(Signal) -> bool + Send + 'static,
    ) -> Result<Self, SignalError> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this platform has no Unix signals").into())
    }

    pub(crate) fn signals(&self) -> &[Signal] {
        &[]
    }

    pub(crate) fn stop(self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn name(_signal: i32) -> Option<&'static str> {
    None
}

#[expect(clippy::disallowed_methods, clippy::exit, reason = "the one way out on this platform")]
pub(crate) fn end_now(code: u8) -> ! {
    std::process::exit(i32::from(code))
}
