//! How much of a connection's answers the client has received.
//!
//! The connection's task records what it writes; the kernel knows how much of that the client has
//! acknowledged (see [`socket`](crate::socket)). On a platform that does not report it, bytes count
//! as acknowledged when the kernel has taken them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::socket::{Endpoints, SendQueues};

/// The bytes that have been written, and those of them that have been acknowledged. Only the
/// connection's own task records writes.
#[derive(Debug)]
pub(super) struct Delivery {
    /// The connection's addresses, if it is a TCP connection.
    endpoints: Option<Endpoints>,
    /// How many bytes have been written.
    written: AtomicU64,
    /// How many bytes had been written when the last byte of an answer was.
    answered: AtomicU64,
    /// Some bytes may not have reached the kernel.
    is_unflushed: AtomicBool,
    /// With HTTP/2, how many answers have begun and not ended.
    open_answers: AtomicUsize,
    /// How many of the unacknowledged bytes are the end of the stream, which belongs to no answer.
    end_of_stream: AtomicU64,
    last_progress: Mutex<Option<Progress>>,
}

/// How much the client had acknowledged when it was last seen to acknowledge more.
#[derive(Clone, Copy, Debug)]
struct Progress {
    bytes: u64,
    at: Instant,
}

impl Delivery {
    pub(super) fn new(endpoints: Option<Endpoints>) -> Self {
        Self {
            endpoints,
            written: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            is_unflushed: AtomicBool::new(false),
            open_answers: AtomicUsize::new(0),
            end_of_stream: AtomicU64::new(0),
            last_progress: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set_written(&self, bytes: u64) {
        self.written.store(bytes, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn set_answered(&self, bytes: u64) {
        self.answered.store(bytes, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn set_unflushed(&self, is_unflushed: bool) {
        self.is_unflushed.store(is_unflushed, Ordering::Relaxed);
    }

    pub(super) fn set_open_answers(&self, count: usize) {
        self.open_answers.store(count, Ordering::Relaxed);
    }

    /// Records that the end of the stream has been written, after `before` unacknowledged bytes.
    pub(super) fn record_end_of_stream(&self, queues: &SendQueues, before: u64) {
        let now = self.unacknowledged(queues).unwrap_or(before);
        self.end_of_stream.store(now.saturating_sub(before), Ordering::Relaxed);
    }

    /// Returns how many bytes of answers have been written and not acknowledged, if that is known.
    pub(super) fn unacknowledged(&self, queues: &SendQueues) -> Option<u64> {
        let queued = queues.unacknowledged(self.endpoints.as_ref()?)?;
        Some(queued.saturating_sub(self.end_of_stream.load(Ordering::Relaxed)))
    }

    /// Returns how many bytes of answers the client has acknowledged, and how many there are.
    pub(super) fn acknowledged(&self, queues: &SendQueues) -> (u64, u64) {
        // The queue is read first: bytes that are written meanwhile must not look acknowledged.
        let queued = self.unacknowledged(queues).unwrap_or(0);
        let answered = self.answered.load(Ordering::Relaxed);
        (answered.min(self.written().saturating_sub(queued)), answered)
    }

    /// Returns whether the client has acknowledged every answer to its last byte.
    pub(super) fn is_complete(&self, queues: &SendQueues) -> bool {
        let (acknowledged, answered) = self.acknowledged(queues);
        acknowledged >= answered
            && self.open_answers.load(Ordering::Relaxed) == 0
            && !self.is_unflushed.load(Ordering::Relaxed)
    }

    /// Returns for how long the client has not acknowledged anything new. The time counts from the
    /// first call.
    pub(super) fn stalled_for(&self, queues: &SendQueues, now: Instant) -> Duration {
        let (bytes, _) = self.acknowledged(queues);
        let mut last = self.last_progress.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = last.get_or_insert(Progress { bytes, at: now });
        if bytes > progress.bytes {
            *progress = Progress { bytes, at: now };
        }
        now.saturating_duration_since(progress.at)
    }
}
