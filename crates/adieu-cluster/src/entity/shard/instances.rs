//! The instances of the entities of a shard: starts them, decides what follows their end, lets idle
//! ones end, and kills them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::after::After;
use super::life::{Ended, InstanceEnd};
use super::{Killed, Shard};
use crate::entity::Entity;
use crate::entity::mailbox::{Inner as Mailbox, Named, Pill, Slot, State};
use crate::entity::starts::Startable;
use crate::message::Command;
use crate::time::{Duration, Instant, now};
use crate::transport::Refusal;

/// The pause after the first instance that failed before it opened a mail, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

impl<C: Command> Shard<C> {
    /// Starts the entity of a region whose entity runs without mail.
    pub(crate) fn start_resident(&self, id: &str) {
        self.change(|inner, after| {
            if inner.admission.open().is_none() || inner.slots.contains(id) {
                return;
            }
            inner.admission.enter();
            let slot = Arc::new(Slot::new(id.into(), Pill::None, now()));
            inner.slots.insert(Named(Arc::clone(&slot)));
            after.start.push(slot);
        });
    }

    pub(super) fn start(&self, slot: &Arc<Slot<C>>) {
        let Some(this) = self.this.upgrade() else { return };
        match self.core.here.starts.permit(now()) {
            true if this.spawn(slot) => {}
            true => self.core.here.starts.ended(),
            false => self.core.here.starts.wait(this, slot.name()),
        }
    }

    /// Spawns the next instance of an entity. The start was permitted, and is counted. Returns whether
    /// the entity was waiting for it: since the start was decided, another start may have come first, or
    /// the entity was killed.
    fn spawn(self: &Arc<Self>, slot: &Arc<Slot<C>>) -> bool {
        let (epoch, instance) = {
            let inner = self.lock();
            let current = inner.slots.get(slot.id());
            let is_current = current.is_some_and(|Named(current)| Arc::ptr_eq(current, slot));
            let mut mailbox = slot.lock();
            if !is_current || mailbox.is_killed || mailbox.state != State::Waiting {
                return false;
            }
            mailbox.state = State::Busy;
            mailbox.since = now();
            mailbox.has_opened = false;
            mailbox.instance = mailbox.instance.wrapping_add(1);
            (inner.epoch, mailbox.instance)
        };
        self.core.tally.started.fetch_add(1, Ordering::Relaxed);
        let entity = Entity { shard: Arc::clone(self), slot: Arc::clone(slot), epoch };
        let ended = Ended::new(Arc::clone(self), Arc::clone(slot));
        // Not under the lock: a runtime that has ended drops the task at once, which takes the lock.
        let spawner = self.core.spawner.as_ref();
        let Some(task) = spawner.and_then(|spawner| spawner.spawn(entity, ended)) else {
            return true;
        };
        let mut mailbox = slot.lock();
        if mailbox.is_killed {
            task.abort();
        } else if mailbox.instance == instance {
            mailbox.task = Some(task);
        }
        true
    }

    /// Decides what follows an instance that has ended.
    pub(super) fn ended(&self, slot: &Arc<Slot<C>>, how: InstanceEnd) {
        self.core.here.starts.ended();
        let has_failed = matches!(how, InstanceEnd::Failed(_));
        if let InstanceEnd::Failed(error) = &how {
            self.core.tally.failed.fetch_add(1, Ordering::Relaxed);
            (self.core.here.failed)(&self.core.name, slot.id(), error.clone());
        }
        self.change(|inner, after| {
            let mut mailbox = slot.lock();
            mailbox.task = None;
            let is_over = mailbox.is_killed || how == InstanceEnd::Dropped;
            let is_open = inner.admission.open().is_some();
            let runs_again = is_open && self.core.is_resident && has_failed;
            if is_over || (mailbox.queue.is_empty() && !runs_again) {
                // A mailbox that was killed is empty, except for what a draining shard has admitted since.
                let dropped = Killed::take(slot, &mut mailbox, now(), after);
                drop(mailbox);
                let dead = dropped.dead_letters as u64;
                self.core.tally.dead_letters.fetch_add(dead, Ordering::Relaxed);
                if dropped.asks + dropped.dead_letters > 0 {
                    inner.dropped.push(dropped);
                }
                inner.slots.remove(slot.id());
                inner.admission.leave();
                after.is_drained = inner.admission.inside() == 0;
                return;
            }
            mailbox.state = State::Waiting;
            mailbox.pill = inner.pill();
            if mailbox.has_opened && !runs_again {
                after.start.push(Arc::clone(slot));
            } else {
                // An instance that opened nothing would fail again and again.
                let pause = PAUSE.0 * (1 << mailbox.failures.min(8));
                mailbox.failures = mailbox.failures.saturating_add(1);
                after.pause = Some((Arc::clone(slot), now() + pause.min(PAUSE.1)));
            }
        });
    }

    /// Drops every instance, and answers the mail that is not opened. Returns what was killed, and the
    /// instances that were dropped before with mail.
    pub(crate) fn kill(&self) -> Vec<Killed> {
        self.change(|inner, after| {
            let (now, mut killed, mut removed) = (now(), Vec::new(), 0);
            inner.slots.retain(|Named(slot)| {
                let mut mailbox = slot.lock();
                if mailbox.is_killed {
                    return true;
                }
                mailbox.is_killed = true;
                mailbox.pill = Pill::Drain;
                killed.push(Killed::take(slot, &mut mailbox, now, after));
                after.abort.extend(mailbox.task.take());
                // An entity that waits has no task whose end would remove it.
                let waits = mailbox.state == State::Waiting;
                removed += usize::from(waits);
                !waits
            });
            (0..removed).for_each(|_| inner.admission.leave());
            after.kill = inner.running.kill(now, &mut killed);
            after.is_drained = inner.admission.inside() == 0;
            after.cancel = Some(inner.closing.clone());
            let dead = killed.iter().map(|it| it.dead_letters as u64).sum();
            self.core.tally.dead_letters.fetch_add(dead, Ordering::Relaxed);
            // Their mail was counted when they ended.
            killed.append(&mut inner.dropped);
            killed
        })
    }

    /// Lets entities end that were idle for that long.
    pub(crate) fn end_idle(&self, now: Instant, idle: Duration) {
        self.change(|inner, after| {
            after.wake.extend(inner.slots.iter().filter_map(|Named(slot)| {
                let mut mailbox = slot.lock();
                let idle_for = mailbox.idle_for(now)?;
                if idle_for < idle {
                    // The memory of a burst is not kept for as long as the entity.
                    mailbox.queue.shrink_to_fit();
                    return None;
                }
                mailbox.end_after_mail(Pill::Idle)
            }));
        });
    }

    /// Adds the idle entities, with for how long they have been idle.
    pub(crate) fn idle(&self, now: Instant, to: &mut Vec<(Duration, u32, Arc<str>)>) {
        to.extend(self.lock().slots.iter().filter_map(|Named(slot)| {
            Some((slot.lock().idle_for(now)?, self.number, slot.name()))
        }));
    }

    /// Lets an entity end if it is idle.
    pub(crate) fn evict(&self, id: &str, now: Instant) {
        self.change(|inner, after| {
            let Some(Named(slot)) = inner.slots.get(id) else { return };
            let mut mailbox = slot.lock();
            if mailbox.idle_for(now).is_some() {
                after.wake.extend(mailbox.end_after_mail(Pill::Idle));
            }
        });
    }
}

const MOVING: Refusal = Refusal::Moving { newer: None };

impl Killed {
    /// Empties the mailbox of an instance that is dropped: asks did not run, tells are lost.
    fn take<C: Command>(
        slot: &Slot<C>,
        mailbox: &mut Mailbox<C>,
        now: Instant,
        after: &mut After<C>,
    ) -> Self {
        let queue = std::mem::take(&mut mailbox.queue);
        let asks = queue.iter().filter(|letter| letter.to.is_ask()).count();
        let is_busy = matches!(mailbox.state, State::Busy | State::Ending);
        let dead_letters = queue.len() - asks;
        after.unopened.extend(queue.into_iter().map(|it| (it, MOVING)));
        let busy = is_busy.then(|| now.saturating_duration_since(mailbox.since));
        Self { id: slot.name(), busy, asks, dead_letters }
    }
}

impl<C: Command> Startable for Shard<C> {
    fn start_waiting(self: Arc<Self>, id: &str) -> bool {
        let slot = {
            let inner = self.lock();
            inner.slots.get(id).map(|Named(slot)| Arc::clone(slot))
        };
        slot.is_some_and(|slot| self.spawn(&slot))
    }
}
