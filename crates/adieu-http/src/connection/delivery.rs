//! How much of a connection's responses the client has received.
//!
//! The connection's task records what it writes; the kernel reports how much of that the client has
//! acknowledged (see [`socket`](crate::socket)). On a platform that does not report it, bytes count
//! as acknowledged when the kernel has taken them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use adieu_core::adapter::lock;
use tokio::time::Instant;

use crate::socket::{Endpoints, SendQueue, SendQueues};

/// The bytes that have been written, and those of them that have been acknowledged. Only the
/// connection's own task records writes.
#[derive(Debug)]
pub(super) struct Delivery {
    /// The connection's addresses, if it is a TCP connection.
    endpoints: Option<Endpoints>,
    /// How many bytes have been written.
    written: AtomicU64,
    /// The position, in written bytes, of the end of the last response.
    answered: AtomicU64,
    /// Some bytes may not have reached the kernel.
    is_unflushed: AtomicBool,
    /// With HTTP/2, how many responses have begun and not ended.
    open_answers: AtomicUsize,
    /// How much the unacknowledged bytes grew when the end of the stream was written. These bytes
    /// belong to no response, so they are subtracted.
    end_of_stream: AtomicU64,
    watched: Mutex<Watched>,
}

/// The observations of the client since the server began to watch it.
#[derive(Debug, Default)]
struct Watched {
    last_progress: Option<Progress>,
    /// When the client was first seen not to answer the kernel's probes, if it has not since.
    unanswered_since: Option<Instant>,
}

/// How a client that has yet to receive a part of its response behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stall {
    /// How long it has not acknowledged anything new. A client that reads slowly pauses for seconds,
    /// because its kernel opens its window in large steps.
    pub(super) lasts: Duration,
    /// The client's kernel has answered neither a probe nor a retransmission for [`GONE`].
    pub(super) is_gone: bool,
}

/// After how long a client that answers no probe and no retransmission counts as gone.
const GONE: Duration = Duration::from_secs(5);

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
            watched: Mutex::default(),
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

    /// Returns how many bytes of responses have been written and not acknowledged, if that is known.
    pub(super) fn unacknowledged(&self, queues: &SendQueues) -> Option<u64> {
        Some(self.without_end_of_stream(queues.get(self.endpoints.as_ref()?)?))
    }

    fn without_end_of_stream(&self, queue: SendQueue) -> u64 {
        queue.unacknowledged.saturating_sub(self.end_of_stream.load(Ordering::Relaxed))
    }

    /// Returns how many bytes of responses the client has acknowledged, and how many there are.
    pub(super) fn acknowledged(&self, queues: &SendQueues) -> (u64, u64) {
        // The queue is read first: bytes that are written meanwhile must not look acknowledged.
        self.acknowledged_of(self.unacknowledged(queues).unwrap_or(0))
    }

    fn acknowledged_of(&self, queued: u64) -> (u64, u64) {
        let answered = self.answered.load(Ordering::Relaxed);
        (answered.min(self.written().saturating_sub(queued)), answered)
    }

    /// Returns whether the client has acknowledged every response to its last byte.
    pub(super) fn is_complete(&self, queues: &SendQueues) -> bool {
        let (acknowledged, answered) = self.acknowledged(queues);
        acknowledged >= answered
            && self.open_answers.load(Ordering::Relaxed) == 0
            && !self.is_unflushed.load(Ordering::Relaxed)
    }

    /// Watches the client. The times count from the first call.
    pub(super) fn watch(&self, queues: &SendQueues, now: Instant) -> Stall {
        let queue = self.endpoints.as_ref().and_then(|endpoints| queues.get(endpoints));
        let queued = queue.map_or(0, |queue| self.without_end_of_stream(queue));
        let (bytes, _) = self.acknowledged_of(queued);
        let mut watched = lock(&self.watched);
        let lasts = watched.progress(bytes, now);
        let is_gone = watched.unanswered_for(queue.unwrap_or_default(), now) >= GONE;
        Stall { lasts, is_gone }
    }
}

// === impl Watched ===

impl Watched {
    /// Returns for how long the client has not acknowledged more than `bytes`.
    fn progress(&mut self, bytes: u64, now: Instant) -> Duration {
        let progress = self.last_progress.get_or_insert(Progress { bytes, at: now });
        if bytes > progress.bytes {
            *progress = Progress { bytes, at: now };
        }
        now.saturating_duration_since(progress.at)
    }

    /// Returns for how long the client has not answered.
    fn unanswered_for(&mut self, queue: SendQueue, now: Instant) -> Duration {
        if !queue.is_unanswered {
            self.unanswered_since = None;
            return Duration::ZERO;
        }
        let since = self.unanswered_since.get_or_insert(now);
        // The client may have answered between two calls, and a later probe may be unanswered.
        if queue.since_answer < now.saturating_duration_since(*since) {
            *since = now;
        }
        now.saturating_duration_since(*since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Watches a client that is seen like this every second, and returns whether it is gone.
    fn is_gone(seen: impl Fn(u64) -> SendQueue) -> bool {
        let (mut watched, start) = (Watched::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        (0..60).any(|second| watched.unanswered_for(seen(second), at(second)) >= GONE)
    }

    fn probed(is_unanswered: bool, since_answer: u64) -> SendQueue {
        let since_answer = Duration::from_secs(since_answer);
        SendQueue { unacknowledged: 1, is_unanswered, since_answer }
    }

    #[test]
    fn a_client_that_answers_probes_is_not_gone() {
        // The kernel probes less and less often.
        assert!(!is_gone(|second| probed(false, second % 30)));
        // At each observation, the client has just answered a probe and not yet the next.
        assert!(!is_gone(|_| probed(true, 0)));
        // Some observations fall between a probe and its answer, long after the last answer.
        assert!(!is_gone(|second| probed(second % 20 == 19, second % 20)));
        assert!(!is_gone(|second| probed(second % 20 > 15, second % 20)));
    }

    #[test]
    fn a_client_that_does_not_answer_is_gone() {
        assert!(is_gone(|second| probed(true, second)));
        assert!(is_gone(|second| probed(second > 40, second)));
    }
}
