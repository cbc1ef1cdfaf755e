//! The same actor in every framework: it does what it is told, and writes down how it stops.

mod on_kameo;
mod on_ractor;
mod plain;

use std::sync::{Arc, Mutex};

use adieu_actors::{ActorSystem, SpawnError, Termination};
use futures_util::future::BoxFuture;
pub(crate) use on_kameo::Kameo;
pub(crate) use on_ractor::Ractor;
pub(crate) use plain::Plain;
use tokio::sync::Notify;

/// Something for an actor to do.
pub(crate) struct Job(pub(crate) Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>);

impl Job {
    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Self {
        Self(Box::new(move || Box::pin(work())))
    }

    /// Writes this down.
    pub(crate) fn say(log: &Log, text: impl Into<String>) -> Self {
        let (log, text) = (log.clone(), text.into());
        Self::new(move || async move { log.add(text) })
    }

    /// Never ends.
    pub(crate) fn forever() -> Self {
        Self::new(std::future::pending)
    }
}

/// What happened, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// How an actor behaves besides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) log: Log,
    /// It starts when this is notified.
    pub(crate) start: Option<Arc<Notify>>,
    pub(crate) panics_in_hook: bool,
    /// Room in its mailbox, where there is such a thing. None for the usual.
    pub(crate) room: Option<usize>,
}

impl Script {
    pub(crate) fn new(log: &Log) -> Self {
        Self { log: log.clone(), ..Self::default() }
    }

    async fn starts(&self) {
        if let Some(start) = &self.start {
            start.notified().await;
        }
    }

    fn stops(&self, name: &str) {
        self.log.add(format!("{name} stops"));
        assert!(!self.panics_in_hook, "in the hook");
    }
}

pub(crate) trait Framework: Send + 'static {
    /// Whether a stop hook runs in an actor that was killed.
    const HOOK_AFTER_KILL: bool;
    type Ref: Clone + Send + Sync + 'static;

    fn spawn(
        system: &ActorSystem,
        above: Option<&Self::Ref>,
        name: &str,
        script: Script,
    ) -> impl Future<Output = Result<Self::Ref, SpawnError>> + Send;

    /// False if it came too late.
    fn send(to: &Self::Ref, job: Job) -> impl Future<Output = bool> + Send;

    fn termination(of: &Self::Ref) -> Termination;

    fn told(of: &Self::Ref, job: Job) -> Termination;
}
