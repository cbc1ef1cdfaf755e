//! The bounds of a link: sizes, numbers of envelopes, and times.

use crate::time::Duration;

/// Texts that explain an answer are cut after this many bytes.
pub(crate) const LONGEST_TEXT: usize = 512;

/// The bounds of a link. Tests make them smaller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The longest payload of an envelope or a reply.
    pub(crate) message: usize,
    /// After this many bytes a frame takes no further envelope.
    pub(crate) frame: usize,
    /// How many envelopes may be queued or undecided.
    pub(crate) outstanding: usize,
    /// The largest sum of the sizes of queued and undecided envelopes.
    pub(crate) outstanding_bytes: usize,
    /// How many admitted asks may wait for their replies.
    pub(crate) unanswered: usize,
    /// While more bytes of answers than this are queued, no envelope is read.
    pub(crate) answer_bytes: usize,
    /// A link without envelopes is closed after this time.
    pub(crate) idle: Duration,
    /// How long connecting may take, and then being accepted.
    pub(crate) dial: Duration,
    /// How long a node waits for an unknown peer to appear in its view.
    pub(crate) unknown_peer: Duration,
    /// How long a peer may take to announce itself after it has connected.
    pub(crate) silence: Duration,
    /// How often a silent connection is probed, and how long its answer may take.
    pub(crate) probe: Duration,
    /// How long a link that is being closed waits for the other side.
    pub(crate) farewell: Duration,
    /// How long a peer may take to prepare for a shard.
    pub(crate) prepare: Duration,
    /// After this time without a link to a peer, that is logged.
    pub(crate) long_failure: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 4 * 1024 * 1024,
            frame: 64 * 1024,
            outstanding: 4_096,
            outstanding_bytes: 8 * 1024 * 1024,
            unanswered: 65_536,
            answer_bytes: 8 * 1024 * 1024,
            idle: Duration::from_secs(300),
            dial: Duration::from_secs(3),
            unknown_peer: Duration::from_secs(1),
            silence: Duration::from_secs(5),
            probe: Duration::from_secs(5),
            farewell: Duration::from_secs(1),
            prepare: Duration::from_secs(10),
            long_failure: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// Returns the size of the longest frame with envelopes: a payload as long as allowed, names and
    /// numbers.
    pub(crate) fn longest_frame(&self) -> usize {
        self.message + self.frame + 64 * 1024
    }

    /// Returns the size of the longest frame with answers: it may also refuse all outstanding envelopes.
    pub(crate) fn longest_answer(&self) -> usize {
        self.longest_frame() + self.outstanding * 2 * LONGEST_TEXT
    }
}
