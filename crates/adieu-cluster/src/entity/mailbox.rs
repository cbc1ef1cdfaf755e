//! The mailbox of one entity, and the state of its instance.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use adieu_core::adapter::lock;
use tokio::task::AbortHandle;

use super::letter::{Letter, ReplyTo};
use super::mail::Mail;
use super::nested::recent;
use crate::message::Command;
use crate::time::{Duration, Instant};
use crate::transport::Refusal;

/// One entity of a shard: its mailbox, and the state of its instance.
pub(crate) struct Slot<C: Command> {
    id: Arc<str>,
    inner: Mutex<Inner<C>>,
}

/// A slot in a set, found by its id.
pub(super) struct Named<C: Command>(pub(super) Arc<Slot<C>>);

/// The parts of a slot that change.
pub(super) struct Inner<C: Command> {
    pub(super) queue: VecDeque<Letter<C>>,
    waker: Option<Waker>,
    pub(super) task: Option<AbortHandle>,
    /// The instant since which the entity has been idle, or has handled the mail in hand.
    pub(super) since: Instant,
    /// Counts the instances, so that a task is not mistaken for its successor.
    pub(super) instance: u32,
    /// How many instances in a row have ended without having opened a mail.
    pub(super) failures: u8,
    pub(super) state: State,
    pub(super) pill: Pill,
    /// Whether the present instance has opened a mail.
    pub(super) has_opened: bool,
    /// Whether the instance is being dropped, and no other follows.
    pub(super) is_killed: bool,
    /// The work that must end after the task of the instance, before the instance counts as ended.
    #[cfg(feature = "actors")]
    pub(super) remainder: Option<Remainder>,
}

/// Work of an instance that its task has left behind: an actor that is being killed.
#[cfg(feature = "actors")]
pub(crate) type Remainder = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// The state of the instance of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The instance waits to be started.
    Waiting,
    /// It runs, and has not requested mail since `since`.
    Busy,
    /// It waits for mail.
    Idle,
    /// It has received the end of its mail. Mail that arrives now is for the next instance.
    Ending,
}

/// Whether an instance ends after its last mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pill {
    None,
    /// It was idle. Mail that arrives first keeps it alive.
    Idle,
    /// Its shard is handed over.
    Drain,
}

/// The action after a mail was put into a mailbox.
pub(super) enum Next {
    Nothing,
    Wake(Waker),
    Start,
}

// === impl Slot ===

impl<C: Command> Slot<C> {
    /// Returns an entity that has no instance yet.
    pub(super) fn new(id: Arc<str>, pill: Pill, now: Instant) -> Self {
        let inner = Inner {
            queue: VecDeque::new(),
            waker: None,
            task: None,
            since: now,
            instance: 0,
            failures: 0,
            state: State::Waiting,
            pill,
            has_opened: false,
            is_killed: false,
            #[cfg(feature = "actors")]
            remainder: None,
        };
        Self { id, inner: Mutex::new(inner) }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.id)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner<C>> {
        lock(&self.inner)
    }

    /// Returns the next mail; `None` if the instance should end. Passes mail that cannot be decoded to
    /// `unreadable`.
    pub(super) fn poll_next(
        &self,
        cx: &mut Context<'_>,
        unreadable: impl Fn(ReplyTo<C::Reply>, String),
    ) -> Poll<Option<Mail<C>>> {
        let now = recent();
        loop {
            let (letter, is_expired) = {
                let mut inner = self.lock();
                if inner.state == State::Ending {
                    return Poll::Ready(None);
                }
                match inner.queue.pop_front() {
                    Some(letter) if letter.to.is_ask() && letter.deadline <= now => (letter, true),
                    Some(letter) => {
                        inner.state = State::Busy;
                        inner.since = now;
                        inner.has_opened = true;
                        inner.failures = 0;
                        (letter, false)
                    }
                    None if inner.pill != Pill::None => {
                        inner.state = State::Ending;
                        inner.since = now;
                        return Poll::Ready(None);
                    }
                    None => {
                        if inner.state != State::Idle {
                            inner.state = State::Idle;
                            inner.since = now;
                        }
                        match &mut inner.waker {
                            Some(waker) => waker.clone_from(cx.waker()),
                            waker => *waker = Some(cx.waker().clone()),
                        }
                        return Poll::Pending;
                    }
                }
            };
            // Not under the lock: both run code of the application.
            if is_expired {
                letter.to.not_run(Refusal::Expired);
                continue;
            }
            match Mail::open(letter) {
                Ok(mail) => return Poll::Ready(Some(mail)),
                Err((to, error)) => unreadable(to, error),
            }
        }
    }
}

#[cfg(feature = "actors")]
impl<C: Command> Slot<C> {
    /// Sets the work that must end before the instance counts as ended.
    pub(crate) fn set_remainder(&self, remainder: Remainder) {
        self.lock().remainder = Some(remainder);
    }

    /// Returns whether the instance was killed.
    pub(crate) fn is_killed(&self) -> bool {
        self.lock().is_killed
    }

    pub(super) fn take_remainder(&self) -> Option<Remainder> {
        self.lock().remainder.take()
    }
}

// === impl Inner ===

impl<C: Command> Inner<C> {
    /// Puts a letter behind the others. The caller that created a `Waiting` entity starts it.
    pub(super) fn push(&mut self, letter: Letter<C>) -> Next {
        self.queue.push_back(letter);
        match self.state {
            State::Idle => {
                if self.pill == Pill::Idle {
                    self.pill = Pill::None;
                }
                self.wake()
            }
            State::Waiting if self.queue.len() == 1 => Next::Start,
            State::Waiting | State::Busy | State::Ending => Next::Nothing,
        }
    }

    /// Ends the instance after its last mail.
    pub(super) fn end_after_mail(&mut self, pill: Pill) -> Option<Waker> {
        self.pill = pill;
        match self.state {
            State::Idle => self.waker.take(),
            State::Waiting | State::Busy | State::Ending => None,
        }
    }

    /// Returns for how long the entity has had nothing to do; `None` if it has something to do.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let is_idle = self.state == State::Idle && self.queue.is_empty();
        (is_idle && self.pill == Pill::None).then(|| now.saturating_duration_since(self.since))
    }

    fn wake(&mut self) -> Next {
        self.waker.take().map_or(Next::Nothing, Next::Wake)
    }
}

// === impl Next ===

impl Next {
    /// Wakes the instance, or starts it.
    pub(super) fn run(self, start: impl FnOnce()) {
        match self {
            Self::Nothing => {}
            Self::Wake(waker) => waker.wake(),
            Self::Start => start(),
        }
    }
}

// === impl Named ===

impl<C: Command> Borrow<str> for Named<C> {
    fn borrow(&self) -> &str {
        self.0.id()
    }
}

impl<C: Command> Hash for Named<C> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id().hash(state);
    }
}

impl<C: Command> PartialEq for Named<C> {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl<C: Command> Eq for Named<C> {}
