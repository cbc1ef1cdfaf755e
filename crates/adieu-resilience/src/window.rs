//! Counts pairs over the last ten buckets of time: calls and failures, requests and accepted ones,
//! calls and retries.
//!
//! Each thread counts in a ring of its own, with plain loads and stores, so adding writes to nothing
//! that another thread writes to. Only [`Window::sum`] reads all rings.
//!
//! # Invariants
//!
//! 1. A bucket leaves the window whole. The window is the current bucket and the nine before it.
//! 2. A bucket's counts belong to its tag. The writer resets the counts before it stores the tag, and
//!    adds after that. The reader loads the tag, the counts, and the tag again, and ignores the bucket
//!    if the tag has changed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::striped::Striped;
use crate::time::{Duration, Instant, nanos, nanos_since};

const BUCKETS: u32 = 10;

/// Counts of the last ten buckets of time.
pub(crate) struct Window {
    origin: Instant,
    /// How long a bucket is, in nanoseconds.
    bucket: u64,
    rings: Striped<Ring>,
}

/// Two counts that belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) all: i64,
    pub(crate) some: i64,
}

/// The buckets of one thread.
#[derive(Default)]
struct Ring([Bucket; BUCKETS as usize]);

#[derive(Default)]
struct Bucket {
    /// Epoch and number of the bucket; see [`Tag`].
    tag: AtomicU64,
    /// Both counts, as `i32`: a count can be taken back on another thread than it was made on.
    counts: AtomicU64,
}

/// The bucket of the counts: the epoch in the upper half, the number in the lower.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Tag {
    epoch: u32,
    number: u32,
}

// === impl Window ===

impl Window {
    /// An empty window of this length.
    pub(crate) fn new(origin: Instant, length: Duration) -> Self {
        let bucket = (nanos(length) / u64::from(BUCKETS)).max(1);
        Self { origin, bucket, rings: Striped::new() }
    }

    /// Adds to both counts at a time, which may be in the past. Counts of another epoch are apart.
    #[inline]
    pub(crate) fn add(&self, at: Instant, epoch: u32, all: i32, some: i32) {
        let tag = Tag { epoch, number: self.number(at) };
        self.rings.write(|ring| ring.bucket(tag.number).add(tag, all, some));
    }

    /// Returns the counts of an epoch in the window that ends now.
    pub(crate) fn sum(&self, now: Instant, epoch: u32) -> Pair {
        let current = self.number(now);
        let is_inside = |tag: Tag| tag.epoch == epoch && age(current, tag.number) < BUCKETS;
        let buckets = self.rings.iter().flat_map(|ring| &ring.0);
        buckets.filter_map(|bucket| bucket.read(is_inside)).fold(Pair::default(), |sum, counts| {
            Pair { all: sum.all + i64::from(counts.0), some: sum.some + i64::from(counts.1) }
        })
    }

    fn number(&self, at: Instant) -> u32 {
        // Wraps after 2^32 buckets: 49 days with the shortest of 1 ms. A bucket that old and not
        // written since is then counted once more.
        (nanos_since(self.origin, at) / self.bucket) as u32
    }
}

/// Returns how many buckets ago `number` was.
fn age(current: u32, number: u32) -> u32 {
    current.wrapping_sub(number)
}

// === impl Ring ===

impl Ring {
    fn bucket(&self, number: u32) -> &Bucket {
        &self.0[(number % BUCKETS) as usize]
    }
}

// === impl Bucket ===

impl Bucket {
    /// Only one thread at a time calls this.
    #[inline]
    fn add(&self, tag: Tag, all: i32, some: i32) {
        let known = Tag::of(self.tag.load(Ordering::Relaxed));
        if known != tag {
            // An addition to the past, whose bucket has left the window since.
            if known.epoch == tag.epoch && age(known.number, tag.number) < u32::MAX / 2 {
                return;
            }
            // Release: the counts of the new tag are never seen with the old one, nor the reverse.
            self.counts.store(0, Ordering::Release);
            self.tag.store(tag.packed(), Ordering::Release);
        }
        let (had, had_some) = unpack(self.counts.load(Ordering::Relaxed));
        let counts = pack(had.saturating_add(all), had_some.saturating_add(some));
        self.counts.store(counts, Ordering::Release);
    }

    fn read(&self, is_wanted: impl Fn(Tag) -> bool) -> Option<(i32, i32)> {
        let tag = self.tag.load(Ordering::Acquire);
        if !is_wanted(Tag::of(tag)) {
            return None;
        }
        let counts = self.counts.load(Ordering::Acquire);
        (self.tag.load(Ordering::Acquire) == tag).then(|| unpack(counts))
    }
}

// === impl Tag ===

impl Tag {
    fn of(packed: u64) -> Self {
        Self { epoch: (packed >> 32) as u32, number: packed as u32 }
    }

    fn packed(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.number)
    }
}

fn pack(all: i32, some: i32) -> u64 {
    u64::from(all.cast_unsigned()) << 32 | u64::from(some.cast_unsigned())
}

fn unpack(counts: u64) -> (i32, i32) {
    (((counts >> 32) as u32).cast_signed(), (counts as u32).cast_signed())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTH: Duration = Duration::from_secs(10);

    fn origin() -> Instant {
        crate::time::now()
    }

    proptest! {
        // The model is a list of what happened when, which is scanned for each sum.
        #[test]
        fn s703_the_window_sums_like_a_list_of_all_calls(
            calls in prop::collection::vec((0u64..3_000, any::<bool>(), 0u32..3), 1..200),
        ) {
            let origin = origin();
            let window = Window::new(origin, LENGTH);
            let mut list = Vec::new();
            let mut at = 0;
            for (later, failed, epoch) in calls {
                at += later;
                // Epochs only rise, as generations do.
                let epoch = epoch.max(list.last().map_or(0, |(_, _, epoch)| *epoch));
                let now = origin + Duration::from_millis(at);
                window.add(now, epoch, 1, i32::from(failed));
                list.push((at / 1_000, failed, epoch));
                let inside = |(bucket, _, of): &&(u64, bool, u32)| {
                    *of == epoch && bucket + 9 >= at / 1_000
                };
                let all = list.iter().filter(inside).count() as i64;
                let some = list.iter().filter(inside).filter(|(_, failed, _)| *failed).count() as i64;
                prop_assert_eq!(window.sum(now, epoch), Pair { all, some });
            }
        }
    }

    #[test]
    fn a_count_is_taken_back_from_its_own_bucket_on_any_thread() {
        let origin = origin();
        let window = Window::new(origin, LENGTH);
        let at = |secs| origin + Duration::from_secs(secs);
        window.add(at(0), 0, 1, 0);
        window.add(at(5), 0, 1, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| window.add(at(0), 0, -1, 0));
        });
        assert_eq!(window.sum(at(5), 0).all, 1);
        assert_eq!(window.sum(at(12), 0).all, 1, "the one that was taken back would have left");
        // The bucket of second 0 is that of second 10 now.
        window.add(at(10), 0, 1, 0);
        window.add(at(0), 0, -1, 0);
        assert_eq!(window.sum(at(12), 0).all, 2);
    }

    #[test]
    fn counts_of_many_threads_add_up_while_they_are_read() {
        let origin = origin();
        let window = Window::new(origin, LENGTH);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for call in 0..20_000u64 {
                        window.add(origin + Duration::from_millis(call / 20), 0, 1, 1);
                    }
                });
            }
            for _ in 0..200 {
                let Pair { all, some } = window.sum(origin + Duration::from_secs(1), 0);
                assert!(all == some && (0..=80_000).contains(&all), "{all} {some}");
            }
        });
        let sum = window.sum(origin + Duration::from_secs(1), 0);
        assert_eq!(sum, Pair { all: 80_000, some: 80_000 });
    }
}
