//! A plain tokio task with a mailbox, in an [`ActorSystem`](crate::ActorSystem).
//!
//! ```
//! use adieu_actors::{ActorSystem, Timeouts, task::{Inbox, task}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let system = ActorSystem::new("shop");
//! let mail = system
//!     .spawn("mail", task(64, async |mut inbox: Inbox<String>| {
//!         while let Some(letter) = inbox.recv().await {
//!             println!("sending {letter}");
//!         }
//!         // All that was accepted has been processed. What stands here is the stop hook.
//!     }))
//!     .await?;
//! mail.send("hello".to_owned()).await?;
//! let report = system.shutdown(Timeouts::STATELESS).await?;
//! assert!(report.is_clean());
//! assert_eq!(report.drained(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! A message is handled when the next one is asked for, or when the task returns. A task that is
//! killed is dropped where it awaits.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use adieu_core::TaskResult;
use futures_util::FutureExt;
use pin_project_lite::pin_project;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::node::{BoxFuture, Ended, Node};
use crate::path::NodePath;
use crate::quiet::pause_after;
use crate::record::{Last, Record, Recorded, panic_text, within};
use crate::spawn::{Place, Spawn, SpawnError};
use crate::termination::{IntoTermination, Termination};

/// How long the end of a task waits for messages that are just being sent.
const LAST_MESSAGES: Duration = Duration::from_millis(100);

/// A task that has not started yet. Spawn it in a system, or below an actor.
#[must_use = "it does not start until it is spawned"]
pub struct Unstarted<M, F> {
    room: usize,
    body: F,
    message: std::marker::PhantomData<fn(M)>,
}

/// Sends messages to a task that was spawned through a system.
pub struct Mailbox<M> {
    sender: mpsc::Sender<M>,
    node: Arc<TaskNode>,
}

/// Receives the messages of a task.
pub struct Inbox<M> {
    receiver: Option<mpsc::Receiver<M>>,
    /// Gets the receiver when this is dropped.
    slot: Slot<M>,
    node: Arc<TaskNode>,
}

type Slot<M> = Arc<Mutex<Option<mpsc::Receiver<M>>>>;

/// Why a message was not sent. It is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task has stopped, or is about to")]
#[non_exhaustive]
pub struct SendError<M> {
    /// The message.
    pub message: M,
}

/// A task as a node.
struct TaskNode {
    record: Record,
    /// It is to return when it has processed its messages.
    stop: CancellationToken,
    killed: CancellationToken,
    /// Messages that are being sent, are in the mailbox, or are being processed.
    pending: AtomicU64,
    is_handling: AtomicBool,
    handled: AtomicU64,
}

/// Prepares a task with room for this many messages. Messages beyond that wait.
pub fn task<M, F, Fut, R>(room: usize, body: F) -> Unstarted<M, F>
where
    M: Send + 'static,
    F: FnOnce(Inbox<M>) -> Fut + Send,
    Fut: Future<Output = R> + Send + 'static,
    R: TaskResult,
{
    Unstarted { room: room.max(1), body, message: std::marker::PhantomData }
}

// === impl Unstarted ===

impl<M, F> fmt::Debug for Unstarted<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unstarted").field("room", &self.room).finish_non_exhaustive()
    }
}

impl<M, F, Fut, R> Spawn for Unstarted<M, F>
where
    M: Send + 'static,
    F: FnOnce(Inbox<M>) -> Fut + Send,
    Fut: Future<Output = R> + Send + 'static,
    R: TaskResult,
{
    type Ref = Mailbox<M>;

    async fn spawn_at(self, place: Place, path: NodePath) -> Result<Mailbox<M>, SpawnError> {
        let (sender, receiver) = mpsc::channel(self.room);
        let node = Arc::new(TaskNode {
            record: Record::new(path, &place.system.inner),
            stop: CancellationToken::new(),
            killed: CancellationToken::new(),
            pending: AtomicU64::new(0),
            is_handling: AtomicBool::new(false),
            handled: AtomicU64::new(0),
        });
        place.system.inner.join(Arc::clone(&node) as Arc<dyn Node>)?;
        let slot = Slot::default();
        let (receiver, inbox) = (Some(receiver), Arc::clone(&slot));
        let body = (self.body)(Inbox { receiver, slot: inbox, node: Arc::clone(&node) });
        let run = live(Arc::clone(&node), slot, body);
        let life = Life { run, last: Last::new(Arc::clone(&node)) };
        #[expect(clippy::disallowed_methods, reason = "its system joins it")]
        drop(tokio::spawn(life));
        Ok(Mailbox { sender, node })
    }
}

// === impl Mailbox ===

impl<M: Send + 'static> Mailbox<M> {
    /// Sends a message, waiting for room. One that is refused is a dead letter.
    ///
    /// # Errors
    ///
    /// If the task has ended or is about to. During a drain only actors that are being drained can
    /// send. The message is in the error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it resolves, the message was not sent.
    pub async fn send(&self, message: M) -> Result<(), SendError<M>> {
        let node = &*self.node;
        // Counted before the door is looked at; see `Door`.
        let sending = Sending::new(node);
        if node.record.admits()
            && let Ok(room) = self.sender.reserve().await
        {
            room.send(message);
            sending.sent();
            return Ok(());
        }
        drop(sending);
        node.record.came_too_late(std::any::type_name::<M>());
        Err(SendError { message })
    }

    /// Returns where the task is in the tree.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        self.node.path()
    }

    /// Returns the task as a node.
    #[must_use]
    pub fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node) as Arc<dyn Node>
    }

    /// Resolves when the task has returned, failed or been killed.
    pub async fn terminated(&self) -> Ended {
        self.node.terminated().await
    }

    /// Spawns an actor below this task, and resolves when it has started.
    ///
    /// # Errors
    ///
    /// As [`ActorSystem::spawn`](crate::ActorSystem::spawn); also if this task has ended or been
    /// told to stop.
    pub async fn spawn<S: Spawn>(&self, name: &str, actor: S) -> Result<S::Ref, SpawnError> {
        self.node.record.place(name)?.spawn(name, actor).await
    }
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), node: Arc::clone(&self.node) }
    }
}

impl<M> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mailbox").field(self.node.path()).finish()
    }
}

impl<M> IntoTermination for &Mailbox<M> {
    fn into_termination(self) -> Termination {
        Termination::of(Arc::clone(&self.node) as Arc<dyn Node>)
    }
}

/// Counts a message while it is being sent.
struct Sending<'a>(&'a TaskNode);

impl<'a> Sending<'a> {
    fn new(node: &'a TaskNode) -> Self {
        node.pending.fetch_add(1, Ordering::SeqCst);
        node.record.note_work();
        Self(node)
    }

    /// It is counted until it has been processed.
    fn sent(self) {
        std::mem::forget(self);
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Ordering::SeqCst);
    }
}

// === impl Inbox ===

impl<M> Inbox<M> {
    /// Returns the next message, or `None` when the task is to return: it has been told to stop and
    /// has processed what was accepted, or every [`Mailbox`] was dropped.
    ///
    /// Cancel safe.
    pub async fn recv(&mut self) -> Option<M> {
        self.node.done();
        let receiver = self.receiver.as_mut()?;
        let message = tokio::select! {
            biased;
            () = self.node.stop.cancelled(), if !receiver.is_closed() => {
                receiver.close();
                receiver.recv().await
            }
            message = receiver.recv() => message,
        };
        self.node.is_handling.store(message.is_some(), Ordering::SeqCst);
        message
    }

    /// Returns a token that fires when the task is to return, for tasks that wait for other things
    /// as well.
    #[must_use]
    pub fn stopping(&self) -> CancellationToken {
        self.node.stop.clone()
    }
}

impl<M> fmt::Debug for Inbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inbox").field(self.node.path()).finish()
    }
}

/// Whatever runs the task counts what is left.
impl<M> Drop for Inbox<M> {
    fn drop(&mut self) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = self.receiver.take();
    }
}

/// Runs the task to its end, and counts what it leaves behind.
async fn live<M, R: TaskResult>(node: Arc<TaskNode>, slot: Slot<M>, body: impl Future<Output = R>) {
    let ended = {
        let body = AssertUnwindSafe(async { body.await.into_result() }).catch_unwind();
        tokio::select! {
            biased;
            () = node.killed.cancelled() => Ended::Killed,
            ended = body => {
                let ended = match ended {
                    Ok(Ok(())) => {
                        node.done();
                        Ended::Stopped
                    }
                    Ok(Err(error)) => {
                        node.done();
                        Ended::Failed { error: error.to_string().into() }
                    }
                    Err(panic) => Ended::Failed { error: panic_text(&*panic).into() },
                };
                node.record.let_children_end_first().await;
                ended
            }
        }
    };
    node.interrupted(std::any::type_name::<M>());
    let receiver = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(mut receiver) = receiver {
        // Senders that have found room are about to send; others are refused.
        receiver.close();
        let mut left = 0;
        while let Ok(Some(message)) = tokio::time::timeout(LAST_MESSAGES, receiver.recv()).await {
            drop(message);
            left += 1;
        }
        node.pending.fetch_sub(left, Ordering::SeqCst);
        node.record.left_behind(None, Some(std::any::type_name::<M>()), left);
    }
    node.record.ending.say(ended);
}

// === impl TaskNode ===

impl TaskNode {
    /// The message that was being processed is done.
    fn done(&self) {
        if self.is_handling.swap(false, Ordering::SeqCst) {
            self.handled.fetch_add(1, Ordering::SeqCst);
            self.pending.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The message that was being processed will not be done.
    fn interrupted(&self, message: &'static str) {
        if self.is_handling.swap(false, Ordering::SeqCst) {
            self.record.interrupted(None, message);
            self.pending.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Recorded for TaskNode {
    fn record(&self) -> &Record {
        &self.record
    }
}

impl Node for TaskNode {
    fn path(&self) -> &NodePath {
        self.record.path()
    }

    fn begin_drain(&self) {
        self.record.door.begin_drain();
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            tokio::select! {
                biased;
                () = self.until_quiet() => {}
                () = self.record.settling.reached() => {}
            }
        })
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        self.record.close_door();
        self.stop.cancel();
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {
        self.record.close_door();
        self.killed.cancel();
    }

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(self.record.ending.wait())
    }

    fn has_terminated(&self) -> Option<Ended> {
        self.record.ending.get()
    }

    fn queued(&self) -> Option<usize> {
        let handling = u64::from(self.is_handling.load(Ordering::SeqCst));
        usize::try_from(self.pending.load(Ordering::SeqCst).saturating_sub(handling)).ok()
    }

    fn handled(&self) -> Option<u64> {
        Some(self.handled.load(Ordering::SeqCst))
    }

    fn dead_letters(&self) -> Option<u64> {
        Some(self.record.dead.load(Ordering::Relaxed))
    }

    fn quiet(&self) -> Option<u64> {
        if self.record.settling.is_reached() {
            return Some(u64::MAX);
        }
        let is_busy = self.pending.load(Ordering::SeqCst) > 0;
        (!is_busy).then(|| self.handled.load(Ordering::SeqCst))
    }

    fn idle(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            self.until_quiet().await;
            self.handled.load(Ordering::SeqCst)
        })
    }
}

impl TaskNode {
    async fn until_quiet(&self) {
        let began = tokio::time::Instant::now();
        while self.record.ending.get().is_none() && self.quiet().is_none() {
            tokio::time::sleep(pause_after(began)).await;
        }
    }
}

pin_project! {
    /// The life of a task, which runs as code of its node.
    struct Life<F> {
        #[pin]
        run: F,
        // Last: it says that all else is gone.
        last: Last<TaskNode>,
    }
}

impl<F: Future<Output = ()>> Future for Life<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        within(this.last.node(), || this.run.poll(cx))
    }
}
