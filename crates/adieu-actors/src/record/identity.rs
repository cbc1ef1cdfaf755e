//! The identity of an actor, for tasks that an actor spawns.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::current::{current_node, run_as_node};
use super::{HasRecord, Record};
use crate::path::NodePath;

/// The identity of the actor whose code runs, to be carried into tasks and threads that it starts.
///
/// During a drain, actors accept messages only from actors that are being drained. A task that an
/// actor has spawned is not an actor, so its messages are refused, unless it runs in the name of
/// the actor. While such a task runs, the actor has work, and the drain waits for it.
///
/// ```
/// use adieu_actors::{ActorSystem, Identity, Timeouts, task::{Inbox, task}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let system = ActorSystem::new("shop");
/// let mail = system.spawn("mail", task(8, async |mut inbox: Inbox<u32>| {
///     while let Some(order) = inbox.recv().await {
///         order.done();
///     }
/// })).await?;
/// let orders = system.spawn("orders", task(8, async move |mut inbox: Inbox<u32>| {
///     while let Some(order) = inbox.recv().await {
///         let (mail, me) = (mail.clone(), Identity::current().expect("inside an actor"));
///         tokio::spawn(me.scope(order.process(async move |order| mail.send(order).await)));
///     }
/// })).await?;
/// orders.send(7).await?;
/// let report = system.shutdown(Timeouts::STATELESS).await?;
/// assert!(report.is_clean(), "{report}");
/// assert_eq!(report.drained(), 2);
/// # Ok(())
/// # }
/// ```
pub struct Identity {
    node: Arc<dyn HasRecord>,
}

pin_project! {
    /// A future that runs in the name of an actor. Returned by [`Identity::scope`].
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct Scoped<F> {
        #[pin]
        work: F,
        // After the work: when it is dropped, the actor may have no work left.
        identity: Identity,
    }
}

// === impl Identity ===

impl Identity {
    /// Returns the identity of the actor whose code runs here, or `None` if no actor of a system runs
    /// here. While the identity exists, its actor has work.
    #[must_use]
    pub fn current() -> Option<Self> {
        current_node().map(Self::new)
    }

    fn new(node: Arc<dyn HasRecord>) -> Self {
        let record = node.record();
        record.scopes.fetch_add(1, Ordering::SeqCst);
        record.note_work();
        Self { node }
    }

    /// Returns the path of the actor.
    #[must_use]
    pub fn path(&self) -> &NodePath {
        self.record().path()
    }

    /// Runs a future in the name of the actor, for example in a task of its own.
    pub fn scope<F: Future>(self, work: F) -> Scoped<F> {
        Scoped { work, identity: self }
    }

    /// Runs a function in the name of the actor, for example in `tokio::task::spawn_blocking`.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        run_as_node(&self.node, work)
    }

    fn record(&self) -> &Record {
        self.node.record()
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.node))
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        self.record().scopes.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(self.path()).finish()
    }
}

// === impl Scoped ===

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.identity.run(|| this.work.poll(cx))
    }
}

impl<F> fmt::Debug for Scoped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scoped").field(self.identity.path()).finish()
    }
}
