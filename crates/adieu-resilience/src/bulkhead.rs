//! A bulkhead: limits how many calls run at a time, with a queue for calls that wait.

mod aimd;
mod gradient;
mod queue;
mod sample;

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;

pub use queue::Criticality;
pub(crate) use sample::Sample;

use aimd::Aimd;
use gradient::Gradient;
use queue::{Next, Queue, Ticket};

use crate::status::BulkheadLoad;
use crate::striped::lock;
use crate::time::{Instant, LONGEST, now};

/// Limits how many calls run at a time, with a queue for calls that wait.
///
/// Without [`Bulkhead::queue`], a call over the limit is refused at once. Waiting calls enter in the
/// order of their [`Criticality`]. A call is shed after it has waited for 100 ms. If the queue has
/// contained calls for 100 ms without a break, a call is shed after a few milliseconds.
///
/// A bulkhead is local to its process: a fleet admits the sum of all limits.
///
/// ```
/// use adieu_resilience::Bulkhead;
///
/// let fixed = Bulkhead::of(64);
/// let adaptive = Bulkhead::adaptive(4..=64).queue(128);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a bulkhead does nothing until a policy has it"]
pub struct Bulkhead {
    limit: Kind,
    queue: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Fixed(u32),
    Gradient(RangeInclusive<u32>),
    Aimd(RangeInclusive<u32>, Duration),
}

/// The bulkhead of one key of a policy.
pub(crate) struct Compartment {
    state: Mutex<State>,
}

struct State {
    queue: Queue<oneshot::Sender<Word>>,
    limit: Limit,
}

enum Limit {
    Fixed,
    Gradient(Gradient),
    Aimd(Aimd),
}

/// The message to a waiting call.
#[derive(Debug)]
enum Word {
    Enter,
    Shed,
}

/// Why a call did not get a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    Full,
    Shed,
    Deadline,
}

/// A call inside a bulkhead. It leaves when this is dropped.
#[must_use = "the call leaves the bulkhead when the slot is dropped"]
pub(crate) struct Slot<'a> {
    of: &'a Compartment,
    has_waited: bool,
    sample: Option<Sample>,
    /// When the call ended, if it is known.
    ended: Option<Instant>,
}

/// A call in the queue. It leaves the queue when this is dropped.
struct Place<'a> {
    of: &'a Compartment,
    ticket: Ticket,
    word: oneshot::Receiver<Word>,
}

// === impl Bulkhead ===

impl Bulkhead {
    /// Creates a bulkhead with a fixed limit: at most this many calls at a time.
    pub fn of(limit: u32) -> Self {
        Self { limit: Kind::Fixed(limit), queue: 0 }
    }

    /// Creates a bulkhead whose limit follows the backend's latency, within this range. It begins at
    /// the lowest value.
    ///
    /// The limit grows while latency is at most 1.3 times the usual, and falls while it is higher,
    /// and when calls time out or are refused. The usual latency is an average over some minutes.
    /// While calls fill the limit, a higher latency does not become usual, because the limit itself
    /// may have caused it.
    ///
    /// The limit changes at most ten times a second. It grows by a fifth of a call or by 2 %, whichever is
    /// more: from 4 to 10 in 3 s, and from 4 to 64 in 13 s.
    pub fn adaptive(range: RangeInclusive<u32>) -> Self {
        Self { limit: Kind::Gradient(range), queue: 0 }
    }

    /// Creates a bulkhead whose limit grows by one while calls take at most `threshold`, and falls by a
    /// tenth when a call takes longer, times out or is refused. It stays within this range, and begins
    /// at the lowest value.
    pub fn aimd(range: RangeInclusive<u32>, threshold: Duration) -> Self {
        Self { limit: Kind::Aimd(range, threshold), queue: 0 }
    }

    /// Lets this many calls wait for a slot; none by default.
    ///
    /// A queue is for calls that arrive at once. Every call in it adds to the latency of those behind
    /// it, and until the queue has been congested for 100 ms, a call may wait that long: a queue much
    /// longer than such a burst makes an overloaded server slow for all. A server that gets more requests
    /// than it can answer gains nothing from a queue: the next request arrives at once. In front of a server
    /// with eight workers and 10 ms of work, a queue of eight adds 10 ms to the slowest answers, and none to
    /// their number (`scripts/bench resilience`).
    pub fn queue(mut self, calls: u32) -> Self {
        self.queue = calls;
        self
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.limit {
            Kind::Fixed(0) => Err("bulkhead: a limit of zero refuses every call".into()),
            Kind::Fixed(_) => Ok(()),
            Kind::Gradient(range) | Kind::Aimd(range, _)
                if *range.start() == 0 || range.is_empty() =>
            {
                let (least, most) = (range.start(), range.end());
                Err(format!(
                    "bulkhead: the range {least} to {most} is invalid: the lower limit must be at least 1, and not above the upper one"
                ))
            }
            Kind::Aimd(_, threshold) if threshold.is_zero() || *threshold > LONGEST => {
                Err(format!("bulkhead: a threshold of {threshold:?} is not from 1ns to a year"))
            }
            Kind::Gradient(_) | Kind::Aimd(..) => Ok(()),
        }
    }

    pub(crate) fn build(&self) -> Compartment {
        let limit = match &self.limit {
            Kind::Fixed(_) => Limit::Fixed,
            Kind::Gradient(range) => Limit::Gradient(Gradient::new(range)),
            Kind::Aimd(range, threshold) => Limit::Aimd(Aimd::new(range, *threshold)),
        };
        let first = match &self.limit {
            Kind::Fixed(limit) => limit,
            Kind::Gradient(range) | Kind::Aimd(range, _) => range.start(),
        };
        let queue = Queue::new(*first as usize, self.queue as usize);
        Compartment { state: Mutex::new(State { queue, limit }) }
    }
}

// === impl Compartment ===

impl Compartment {
    /// Takes a slot, or waits for one.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait leaves the queue, and returns a slot that it was just given.
    pub(crate) async fn enter(
        &self,
        criticality: Criticality,
        deadline: Option<Instant>,
    ) -> Result<Slot<'_>, NoSlot> {
        let (mut place, until) = {
            let mut state = lock(&self.state);
            if state.queue.enter() {
                return Ok(Slot::new(self, false));
            }
            let (waker, word) = oneshot::channel();
            let place = state.queue.wait(now(), criticality, deadline, waker);
            let place = place.map_err(|queue::Full| NoSlot::Full)?;
            drop(state);
            if let Some(shed) = place.shed {
                // The call that waited may have gone away at this moment.
                let _ = shed.send(Word::Shed);
            }
            (Place { of: self, ticket: place.ticket, word }, place.until)
        };
        let until = tokio::time::Instant::from_std(until);
        match tokio::time::timeout_at(until, &mut place.word).await {
            Ok(Ok(Word::Enter)) => Ok(Slot::new(self, true)),
            Ok(Ok(Word::Shed) | Err(_)) | Err(_) => {
                let is_late = deadline.is_some_and(|deadline| deadline <= now());
                Err(if is_late { NoSlot::Deadline } else { NoSlot::Shed })
            }
        }
    }

    /// Lowers an adaptive limit to its lowest.
    pub(crate) fn reset(&self) {
        let mut state = lock(&self.state);
        let lowest = match &mut state.limit {
            Limit::Fixed => return,
            Limit::Gradient(gradient) => {
                gradient.reset();
                gradient.limit()
            }
            Limit::Aimd(aimd) => {
                aimd.reset();
                aimd.limit()
            }
        };
        state.queue.set_limit(lowest);
    }

    pub(crate) fn load(&self) -> BulkheadLoad {
        let state = lock(&self.state);
        let (inside, waiting) = (state.queue.inside(), state.queue.waiting());
        BulkheadLoad { inside, waiting, limit: state.queue.limit() }
    }

    fn leave(&self, now: Instant, sample: Option<Sample>) {
        let mut state = lock(&self.state);
        if let Some(sample) = sample {
            state.learn(now, sample);
        }
        state.queue.leave();
        while let Some(next) = state.queue.next(now) {
            // A waker runs code of the runtime.
            drop(state);
            let is_gone = match next {
                Next::Enter(waker) => waker.send(Word::Enter).is_err(),
                Next::Shed(waker) => {
                    let _ = waker.send(Word::Shed);
                    false
                }
            };
            state = lock(&self.state);
            if is_gone {
                state.queue.leave();
            }
        }
    }
}

// === impl State ===

impl State {
    fn learn(&mut self, now: Instant, sample: Sample) {
        let inside = self.queue.inside();
        let limit = match &mut self.limit {
            Limit::Fixed => return,
            Limit::Gradient(gradient) => {
                gradient.learn(now, sample, inside);
                gradient.limit()
            }
            Limit::Aimd(aimd) => {
                aimd.learn(now, sample, inside);
                aimd.limit()
            }
        };
        self.queue.set_limit(limit);
    }
}

// === impl Slot ===

impl<'a> Slot<'a> {
    fn new(of: &'a Compartment, has_waited: bool) -> Self {
        Self { of, has_waited, sample: None, ended: None }
    }

    /// Returns whether the call has waited for the slot.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Sets when the call ended, and the sample for an adaptive limit.
    pub(crate) fn end(&mut self, now: Instant, sample: Option<Sample>) {
        (self.ended, self.sample) = (Some(now), sample);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.of.leave(self.ended.unwrap_or_else(now), self.sample.take());
    }
}

// === impl Place ===

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let is_waiting = lock(&self.of.state).queue.forget(self.ticket);
        if is_waiting {
            return;
        }
        // After this, the sender detects that the waiter has gone. A slot that was sent before is
        // received here.
        self.word.close();
        if let Ok(Word::Enter) = self.word.try_recv() {
            self.of.leave(now(), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Criticality::Normal;
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn load(bulkhead: &Compartment) -> (usize, usize, usize) {
        let BulkheadLoad { inside, waiting, limit } = bulkhead.load();
        (inside, waiting, limit)
    }

    #[tokio::test(start_paused = true)]
    async fn s722_a_call_over_the_limit_waits_and_enters_when_another_leaves() {
        let bulkhead = Bulkhead::of(1).queue(1).build();
        let slot = bulkhead.enter(Normal, None).await.unwrap();
        let leaves = async {
            tokio::time::sleep(ms(30)).await;
            drop(slot);
        };
        let began = now();
        let (entered, refused, ()) =
            tokio::join!(bulkhead.enter(Normal, None), bulkhead.enter(Normal, None), leaves);
        assert_eq!(now() - began, ms(30));
        assert_eq!(refused.err(), Some(NoSlot::Full));
        assert_eq!(load(&bulkhead), (1, 0, 1));
        drop(entered);
        assert_eq!(load(&bulkhead), (0, 0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn s726_a_waiting_call_is_shed_although_no_slot_is_released() {
        let bulkhead = Bulkhead::of(1).queue(10).build();
        let _slot = bulkhead.enter(Normal, None).await.unwrap();
        let began = now();
        assert_eq!(bulkhead.enter(Normal, None).await.err(), Some(NoSlot::Shed));
        assert_eq!((now() - began).as_millis(), 100);
        assert_eq!(load(&bulkhead), (1, 0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn s727_a_waiting_call_ends_at_its_deadline() {
        let bulkhead = Bulkhead::of(1).queue(10).build();
        let _slot = bulkhead.enter(Normal, None).await.unwrap();
        let began = now();
        let late = bulkhead.enter(Normal, Some(began + ms(20))).await;
        assert_eq!(late.err(), Some(NoSlot::Deadline));
        assert_eq!((now() - began).as_millis(), 20);
    }

    // A slot that is granted to a call which is dropped before it is polled again goes to the next.
    #[tokio::test(start_paused = true)]
    async fn s702_a_place_in_the_queue_is_given_up_when_it_is_dropped() {
        let bulkhead = Bulkhead::of(1).queue(10).build();
        let slot = bulkhead.enter(Normal, None).await.unwrap();
        let mut waiting = Box::pin(bulkhead.enter(Normal, None));
        let mut granted = Box::pin(bulkhead.enter(Normal, None));
        let mut next = Box::pin(bulkhead.enter(Normal, None));
        for place in [&mut granted, &mut waiting, &mut next] {
            assert!(futures_poll(place.as_mut()).is_none());
        }
        assert_eq!(load(&bulkhead), (1, 3, 1));
        drop(waiting);
        assert_eq!(load(&bulkhead), (1, 2, 1));
        drop(slot); // The slot was sent to `granted`, which was not polled since.
        assert_eq!(load(&bulkhead), (1, 1, 1));
        drop(granted);
        let slot = next.await.unwrap();
        assert_eq!(load(&bulkhead), (1, 0, 1));
        drop(slot);
        assert_eq!(load(&bulkhead), (0, 0, 1));
    }

    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    // Threads that enter, wait, give up and leave: the number inside never exceeds the limit, and
    // no call remains inside.
    #[test]
    fn s722_no_more_than_the_limit_are_inside_on_many_threads() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_time()
            .build()
            .unwrap();
        let bulkhead = std::sync::Arc::new(Bulkhead::of(3).queue(20).build());
        let inside = std::sync::Arc::new(AtomicUsize::new(0));
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for task in 0..16u64 {
                let (bulkhead, inside) = (bulkhead.clone(), inside.clone());
                tasks.spawn(async move {
                    let mut random = fastrand::Rng::with_seed(task);
                    for _ in 0..3_000 {
                        let enter = bulkhead.enter(Normal, None);
                        let patience = Duration::from_micros(random.u64(0..300));
                        if let Ok(Ok(_slot)) = tokio::time::timeout(patience, enter).await {
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                            tokio::task::yield_now().await;
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap();
            }
        });
        assert_eq!(load(&bulkhead), (0, 0, 3));
    }
}
