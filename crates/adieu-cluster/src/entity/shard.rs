//! One shard on this node, from both sides: the messages that this node sends to it, and, while this
//! node owns it, the entities in it.
//!
//! Both sides share one lock, because a message to an entity of this node passes both at once.

mod after;
mod core;
mod deadlines;
mod finish;
mod instances;
mod life;
mod owning;
mod requests;
#[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only HTTP is routed"))]
mod running;
mod sending;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use adieu_core::adapter::lock;
use after::After;
pub(crate) use core::{Core, Function, Spawner, Tally};
use deadlines::Deadlines;
#[cfg(feature = "actors")]
pub(crate) use life::STOPPED;
pub(crate) use owning::Pass;
use running::Running;
#[cfg(feature = "http")]
pub(crate) use running::{Inside, Requests, Stopped};
pub(crate) use sending::{Path, Sent, SentTell};
use sending::{Sending, take_back};
pub(crate) use status::Killed;
use tokio_util::sync::CancellationToken;

use super::mailbox::Named;
use super::timers::Timed;
use crate::grant::Grant;
use crate::message::Command;
use crate::records::ShardId;
use crate::region::Admission;
use crate::route::Route;
use crate::store::Revision;
use crate::time::Instant;
use crate::transport::{Answer, Envelope, MessageId};

/// One shard of a region on this node.
pub(crate) struct Shard<C: Command> {
    core: Arc<Core<C>>,
    number: u32,
    inner: Mutex<Inner<C>>,
    /// A reference to itself, for values that outlive a call.
    this: Weak<Self>,
}

struct Inner<C: Command> {
    // --- the sender's side ---
    route: Route,
    sending: HashMap<u64, Sending<C>>,
    /// The deadlines of the asks that went straight into mailboxes.
    deadlines: Deadlines<C>,

    // --- the owner's side ---
    /// The grant in the last view.
    grant: Grant,
    admission: Admission,
    held: HashMap<MessageId, Arrived<C>>,
    /// The epoch under which the entities run.
    epoch: Revision,
    slots: HashSet<Named<C>>,
    /// The instances that ended with mail because this node may no longer act, until they are reported.
    dropped: Vec<Killed>,
    passes: usize,
    /// Fires when the shard is to be handed over.
    closing: CancellationToken,
    running: Running,

    /// When the timers of this node call next.
    timer: Option<Instant>,
}

/// A message that has arrived.
struct Arrived<C> {
    envelope: Envelope,
    /// The command of a message of another node, or why it cannot be decoded. It was decoded before
    /// the shard was locked, because that runs code of the application. `None` for a message of this
    /// node, which its entity decodes, and for an HTTP request.
    command: Option<Result<C, String>>,
    from: From,
}

/// The sender of a message, which gets the answer.
enum From {
    There(Box<dyn Answer>),
    /// To the sender's side of this shard.
    Here,
}

// === impl Shard ===

impl<C: Command> Shard<C> {
    pub(crate) fn new(core: Arc<Core<C>>, number: u32) -> Arc<Self> {
        let inner = Inner {
            route: Route::default(),
            sending: HashMap::new(),
            deadlines: Deadlines::default(),
            grant: Grant::default(),
            admission: Admission::default(),
            held: HashMap::new(),
            epoch: Revision::default(),
            slots: HashSet::new(),
            dropped: Vec::new(),
            passes: 0,
            closing: CancellationToken::new(),
            running: Running::default(),
            timer: None,
        };
        Arc::new_cyclic(|this| Self { core, number, inner: Mutex::new(inner), this: this.clone() })
    }

    pub(super) fn core(&self) -> &Core<C> {
        &self.core
    }

    pub(crate) fn id(&self) -> ShardId {
        ShardId { region: Arc::clone(&self.core.name), number: self.number }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<C>> {
        lock(&self.inner)
    }

    /// Changes the shard under its lock, and then runs the effects that must not run under it.
    fn change<T>(&self, change: impl FnOnce(&mut Inner<C>, &mut After<C>) -> T) -> T {
        let mut after = After::default();
        let result = {
            let mut inner = self.lock();
            let result = change(&mut inner, &mut after);
            self.set_timer(&mut inner);
            result
        };
        after.run(self);
        result
    }

    /// Registers the next due instant with the timers of this node.
    fn set_timer(&self, inner: &mut Inner<C>) {
        let wake = [inner.route.wake(), inner.admission.wake(), inner.deadlines.first()];
        if let Some(at) = wake.into_iter().flatten().min() {
            self.call_at(inner, at);
        }
    }

    fn call_at(&self, inner: &mut Inner<C>, at: Instant) {
        if inner.timer.is_none_or(|timer| at < timer) {
            inner.timer = Some(at);
            self.core.here.timers.add(at, self.this.clone() as Weak<dyn Timed>);
        }
    }
}

impl<C: Command> Timed for Shard<C> {
    fn advance(&self, now: Instant) {
        self.change(|inner, after| {
            if inner.timer.is_some_and(|timer| timer <= now) {
                inner.timer = None;
            }
            inner.deadlines.expire(now, after);
            let mut decided = Vec::new();
            inner.admission.advance(now, &mut decided);
            self.decided(inner, decided, after);
            let mut effects = Vec::new();
            let Inner { route, sending, .. } = &mut *inner;
            route.advance(now, |id| take_back(sending, id), &mut effects);
            self.carry_out(inner, effects, now, after);
        });
    }
}

impl<C: Command> fmt::Debug for Shard<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("Shard")
            .field("id", &self.id().to_string())
            .field("epoch", &inner.epoch)
            .field("entities", &inner.slots.len())
            .finish_non_exhaustive()
    }
}
