//! Closes a connection so that the client receives its whole response.
//!
//! Two things can destroy a response that has been written. If the client is still sending, the kernel
//! answers its unread bytes with a reset; so they are read and discarded for a while. And the machine
//! or its network may be gone soon after the process; so the connection stays open until the client
//! has acknowledged the last byte.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::Conn;

/// How long, and how many bytes, are read and discarded from a client that is still sending after
/// it has been answered.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 16 << 20;

/// How often the acknowledgement of the last byte is checked, at first and later.
const FIRST_CHECK: Duration = Duration::from_millis(1);
const CHECK: Duration = Duration::from_millis(100);

/// If a connection closes before the shutdown has begun, and has written at most this in total, it
/// is closed without waiting for acknowledgements: the kernel still sends the bytes.
const LITTLE: u64 = 64 * 1024;

/// A connection whose last byte has been written.
#[derive(Debug)]
pub(super) struct Closing {
    linger: Linger,
    /// The client had not acknowledged all of its response when the end was written.
    awaits_acknowledgement: bool,
    /// Created when the lingering is over and the client has yet to acknowledge.
    acknowledgement: Option<Acknowledgement>,
}

/// Reads and discards what the client is still sending.
#[derive(Debug)]
struct Linger {
    until: Pin<Box<Sleep>>,
    bytes: usize,
}

/// Checks now and then whether the client has acknowledged the last byte.
#[derive(Debug)]
struct Acknowledgement {
    check: Pin<Box<Sleep>>,
    pause: Duration,
}

/// Returns how many bytes the client has yet to acknowledge, as far as closing the connection has to
/// wait for them.
pub(super) fn unacknowledged(conn: &Conn) -> u64 {
    let is_little = conn.delivery.written() < LITTLE;
    if is_little && !conn.is_winding_down() {
        return 0;
    }
    conn.unacknowledged().unwrap_or(0)
}

// === impl Closing ===

impl Closing {
    /// Begins when the end of the stream has been written, after `unacknowledged` bytes that the
    /// client has yet to acknowledge.
    pub(super) fn new(conn: &Conn, unacknowledged: u64) -> Self {
        conn.ends_by_close.store(false, Ordering::Relaxed);
        let awaits_acknowledgement = unacknowledged > 0;
        if awaits_acknowledgement {
            conn.delivery.record_end_of_stream(&conn.server.queues, unacknowledged);
        }
        let linger = Linger { until: Box::pin(sleep(LINGER)), bytes: LINGER_BYTES };
        Self { linger, awaits_acknowledgement, acknowledgement: None }
    }

    /// Waits until the connection can be closed.
    pub(super) fn poll<I: AsyncRead + Unpin>(
        &mut self,
        io: &mut I,
        conn: &Conn,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        // The lingering is over when the acknowledgement is waited for, and must not begin again.
        if self.acknowledgement.is_none() {
            ready!(self.linger.poll(io, conn, cx));
        }
        if !self.awaits_acknowledgement {
            return Poll::Ready(());
        }
        loop {
            if conn.unacknowledged().unwrap_or(0) == 0 {
                return Poll::Ready(());
            }
            if let Some(reason) = conn.given_up(Instant::now()) {
                if conn.is_winding_down() {
                    conn.report_cut(reason);
                }
                return Poll::Ready(());
            }
            let waits = self.acknowledgement.get_or_insert_with(|| Acknowledgement {
                check: Box::pin(sleep(FIRST_CHECK)),
                pause: FIRST_CHECK,
            });
            ready!(waits.check.as_mut().poll(cx));
            waits.pause = CHECK.min(waits.pause * 2);
            waits.check.as_mut().reset(Instant::now() + waits.pause);
        }
    }
}

// === impl Linger ===

impl Linger {
    fn poll<I: AsyncRead + Unpin>(
        &mut self,
        io: &mut I,
        conn: &Conn,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut discarded = [0; 8 * 1024];
        while self.bytes > 0 {
            let mut buf = ReadBuf::new(&mut discarded);
            match Pin::new(&mut *io).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.bytes = self.bytes.saturating_sub(buf.filled().len());
                }
                // Only a client whose request was refused before its end may still be sending.
                Poll::Pending if conn.is_client_sending() => return self.until.as_mut().poll(cx),
                Poll::Ready(_) | Poll::Pending => return Poll::Ready(()),
            }
        }
        Poll::Ready(())
    }
}
