//! The effects after the lock of a shard was released. Code of the application runs here.

use std::sync::Arc;
use std::task::Waker;

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::finish::Finish;
use super::running::Admitted;
use super::{Arrived, Shard};
use crate::entity::letter::Letter;
use crate::entity::mailbox::{Next, Slot};
use crate::entity::reply::Outlet;
use crate::message::{Command, Unknown};
use crate::route::Outcome;
use crate::time::Instant;
use crate::transport::{Answer, Refusal};

/// The effects to run after the lock was released.
pub(super) struct After<C: Command> {
    pub(super) wake: Vec<Waker>,
    pub(super) start: Vec<Arc<Slot<C>>>,
    /// An entity that failed, and when it starts again.
    pub(super) pause: Option<(Arc<Slot<C>>, Instant)>,
    pub(super) abort: Vec<AbortHandle>,
    pub(super) cancel: Option<CancellationToken>,
    /// Ends the requests of a shard that is killed.
    pub(super) kill: Option<CancellationToken>,
    pub(super) refuse: Vec<(Box<dyn Answer>, Refusal)>,
    /// Mail that no instance has opened, and why.
    pub(super) unopened: Vec<(Letter<C>, Refusal)>,
    pub(super) finish: Vec<(Finish<C::Reply>, Outcome)>,
    /// Asks that end after an instance has opened them, and why.
    pub(super) ended: Vec<(Arc<Outlet<C::Reply>>, Unknown)>,
    /// HTTP requests that were admitted.
    pub(super) requests: Vec<Admitted>,
    /// Commands of messages that were refused. Their destructors are code of the application.
    pub(super) discarded: Vec<C>,
    /// Messages in whose place their repetitions are held.
    pub(super) replaced: Vec<Arrived<C>>,
    pub(super) is_drained: bool,
}

// === impl After ===

impl<C: Command> Default for After<C> {
    fn default() -> Self {
        Self {
            wake: Vec::new(),
            start: Vec::new(),
            pause: None,
            abort: Vec::new(),
            cancel: None,
            kill: None,
            refuse: Vec::new(),
            unopened: Vec::new(),
            finish: Vec::new(),
            ended: Vec::new(),
            requests: Vec::new(),
            discarded: Vec::new(),
            replaced: Vec::new(),
            is_drained: false,
        }
    }
}

impl<C: Command> After<C> {
    /// Wakes or starts the entity that has received mail.
    pub(super) fn received(&mut self, slot: &Arc<Slot<C>>, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Wake(waker) => self.wake.push(waker),
            Next::Start => self.start.push(Arc::clone(slot)),
        }
    }

    pub(super) fn run(self, shard: &Shard<C>) {
        let Self {
            wake,
            start,
            pause,
            abort,
            cancel,
            kill,
            refuse,
            unopened,
            finish,
            ended,
            requests,
            discarded,
            replaced,
            is_drained,
        } = self;
        drop(replaced);
        drop(discarded);
        for fires in [cancel, kill].into_iter().flatten() {
            fires.cancel();
        }
        for (answer, refusal) in refuse {
            answer.refuse(refusal);
        }
        for (letter, refusal) in unopened {
            letter.to.not_run(refusal);
        }
        for (finish, outcome) in finish {
            finish.finish(outcome);
        }
        for (outlet, why) in ended {
            outlet.finish(Err(why.into()));
        }
        abort.iter().for_each(AbortHandle::abort);
        wake.into_iter().for_each(Waker::wake);
        for slot in start {
            shard.start(&slot);
        }
        if let Some((slot, at)) = pause
            && let Some(this) = shard.this.upgrade()
        {
            shard.core.here.starts.pause(this, slot.name(), at);
        }
        for request in requests {
            drop(shard.core.here.spawn(request.run()));
        }
        if is_drained {
            shard.core.here.drained.notify_one();
        }
    }
}
