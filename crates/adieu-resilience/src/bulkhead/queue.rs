//! Decides which calls enter a bulkhead, which wait, and which are shed.
//!
//! # Why the queue needs no timer
//!
//! A queue is congested when it has contained calls for [`CONGESTED_AFTER`] without a break. While a
//! call waits, the queue is not empty. So when a call begins to wait, it is already known when the
//! queue will be congested, and how long the call may wait at most. Each waiting call has one timer,
//! which expires even if no slot is ever released.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How important a call is. Calls of a higher criticality enter a bulkhead first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Criticality {
    /// Work that can be left out: prefetching, statistics.
    BestEffort,
    /// Everything else.
    #[default]
    Normal,
    /// Work that must not be shed as long as there is other work to shed.
    Critical,
}

/// After how much time without being empty a queue is congested. In a queue that is not congested, a
/// call may also wait for this long.
pub(crate) const CONGESTED_AFTER: Duration = Duration::from_millis(100);

/// The calls inside a bulkhead, and those that wait. A waiting call is woken through a `W`.
#[derive(Debug)]
pub(crate) struct Queue<W> {
    limit: usize,
    inside: usize,
    capacity: usize,
    /// By criticality; in each, in the order of arrival.
    waiting: [VecDeque<Waiting<W>>; 3],
    /// The instant since which the queue has not been empty.
    busy_since: Option<Instant>,
    last_ticket: u64,
}

#[derive(Debug)]
struct Waiting<W> {
    ticket: Ticket,
    until: Instant,
    waker: W,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    criticality: Criticality,
    number: u64,
}

/// A call that waits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place<W> {
    pub(crate) ticket: Ticket,
    /// When the call is shed.
    pub(crate) until: Instant,
    /// The call that was shed to make room.
    pub(crate) shed: Option<W>,
}

/// A call that has left the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<W> {
    /// It is inside now.
    Enter(W),
    /// Its time was up.
    Shed(W),
}

/// The queue has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

// === impl Queue ===

impl<W> Queue<W> {
    pub(crate) fn new(limit: usize, capacity: usize) -> Self {
        let waiting = [const { VecDeque::new() }; 3];
        Self { limit, inside: 0, capacity, waiting, busy_since: None, last_ticket: 0 }
    }

    pub(crate) fn inside(&self) -> usize {
        self.inside
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Sets the limit. Ask for [`Queue::next`] afterwards.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Enters, if there is a slot and no call waits for it.
    pub(crate) fn enter(&mut self) -> bool {
        let is_free = self.inside < self.limit && self.waiting() == 0;
        self.inside += usize::from(is_free);
        is_free
    }

    /// Waits, for as long as the queue allows, and no longer than until `deadline`.
    pub(crate) fn wait(
        &mut self,
        now: Instant,
        criticality: Criticality,
        deadline: Option<Instant>,
        waker: W,
    ) -> Result<Place<W>, Full> {
        let mut shed = None;
        if self.waiting() >= self.capacity {
            shed = Some(self.shed_below(criticality).ok_or(Full)?);
        }
        let busy_since = *self.busy_since.get_or_insert(now);
        let congested_at = busy_since + CONGESTED_AFTER;
        let patience = (now + patience_of(criticality)).max(congested_at);
        let until = patience.min(now + CONGESTED_AFTER);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        self.last_ticket += 1;
        let ticket = Ticket { criticality, number: self.last_ticket };
        self.waiting[criticality as usize].push_back(Waiting { ticket, until, waker });
        Ok(Place { ticket, until, shed })
    }

    /// A call has left the bulkhead. Ask for [`Queue::next`] afterwards.
    pub(crate) fn leave(&mut self) {
        self.inside -= 1;
    }

    /// A waiting call went away, or its time was up. False if it had left the queue before.
    pub(crate) fn forget(&mut self, ticket: Ticket) -> bool {
        let waiting = &mut self.waiting[ticket.criticality as usize];
        let at = waiting.iter().position(|waiting| waiting.ticket == ticket);
        let found = at.and_then(|at| waiting.remove(at)).is_some();
        self.note_empty();
        found
    }

    /// Returns the next call that leaves the queue, if there is a slot for it. To be repeated until
    /// `None`.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Next<W>> {
        if self.inside >= self.limit {
            return None;
        }
        let is_congested = self.is_congested(now);
        let waiting = self.waiting.iter_mut().rev().find(|waiting| !waiting.is_empty())?;
        // While the queue is congested, the newest call enters first, because its caller is the most
        // likely to be still waiting.
        let next = if is_congested { waiting.pop_back() } else { waiting.pop_front() };
        let Waiting { until, waker, .. } = next?;
        self.note_empty();
        if until <= now {
            return Some(Next::Shed(waker));
        }
        self.inside += 1;
        Some(Next::Enter(waker))
    }

    fn is_congested(&self, now: Instant) -> bool {
        self.busy_since.is_some_and(|since| now.saturating_duration_since(since) >= CONGESTED_AFTER)
    }

    /// Makes room for a call of this criticality: removes the oldest of the least critical calls, if it
    /// is less critical.
    fn shed_below(&mut self, criticality: Criticality) -> Option<W> {
        let below = &mut self.waiting[..criticality as usize];
        let least = below.iter_mut().find(|waiting| !waiting.is_empty())?;
        least.pop_front().map(|waiting| waiting.waker)
    }

    fn note_empty(&mut self) {
        if self.waiting() == 0 {
            self.busy_since = None;
        }
    }
}

/// Returns how long a call may wait in a congested queue.
fn patience_of(criticality: Criticality) -> Duration {
    Duration::from_millis(match criticality {
        Criticality::BestEffort => 1,
        Criticality::Normal => 5,
        Criticality::Critical => 20,
    })
}

#[cfg(test)]
mod tests;
