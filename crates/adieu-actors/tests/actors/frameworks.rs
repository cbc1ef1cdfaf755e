//! The same actor in every framework: it runs the jobs that it is sent, and logs when it stops.

/// Makes a test of each of these functions, for kameo, for ractor and for nodes of your own.
macro_rules! on_all_frameworks {
    ($($test:ident),* $(,)?) => {
        on_kameo_and_ractor![$($test),*];
        mod on_plain_tokio {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test::<crate::frameworks::Plain>().await;
            })*
        }
    };
}

/// Makes a test of each of these functions, for kameo and for ractor.
macro_rules! on_kameo_and_ractor {
    ($($test:ident),* $(,)?) => {
        mod on_kameo {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test::<crate::frameworks::Kameo>().await;
            })*
        }
        mod on_ractor {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test::<crate::frameworks::Ractor>().await;
            })*
        }
    };
}

/// Makes a test of each of these functions, for kameo, for ractor and for plain tasks.
macro_rules! on_all_actors {
    ($($test:ident),* $(,)?) => {
        on_kameo_and_ractor![$($test),*];
        mod on_tasks {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test::<crate::frameworks::Tasks>().await;
            })*
        }
    };
}

mod on_kameo;
mod on_ractor;
mod plain;
mod tasks;

use std::sync::{Arc, Mutex};

use adieu_actors::{ActorSystem, Spawn, SpawnError, Termination};
use futures_util::future::BoxFuture;
pub(crate) use on_kameo::Kameo;
pub(crate) use on_ractor::Ractor;
pub(crate) use plain::Plain;
pub(crate) use tasks::Tasks;
use tokio::sync::Notify;

/// A job for an actor.
pub(crate) struct Job(pub(crate) Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>);

impl Job {
    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Self {
        Self(Box::new(move || Box::pin(work())))
    }

    /// Adds a line to the log.
    pub(crate) fn log(log: &Log, text: impl Into<String>) -> Self {
        let (log, text) = (log.clone(), text.into());
        Self::new(move || async move { log.add(text) })
    }

    /// Never ends.
    pub(crate) fn forever() -> Self {
        Self::new(std::future::pending)
    }
}

/// The events of a test, in order.
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

/// The behaviour of an actor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) log: Log,
    /// Notified when the actor may start.
    pub(crate) start: Option<Arc<Notify>>,
    pub(crate) panics_in_hook: bool,
    /// Whether an actor of kameo continues after a panic of a handler.
    pub(crate) continues: bool,
    /// The capacity of its mailbox, if the framework has bounded ones. `None` is the default.
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
    /// Whether the stop hook of a killed actor runs.
    const HOOK_AFTER_KILL: bool;
    /// Whether an actor can continue after a panic.
    const CONTINUES: bool = false;
    type Ref: Clone + Send + Sync + 'static;

    fn spawn(
        system: &ActorSystem,
        parent: Option<&Self::Ref>,
        name: &str,
        script: Script,
    ) -> impl Future<Output = Result<Self::Ref, SpawnError>> + Send;

    /// Returns false if the actor refused the job.
    fn send(to: &Self::Ref, job: Job) -> impl Future<Output = bool> + Send;

    /// Sends a job and waits for its end, if the framework supports that. Returns false if the actor
    /// refused the job.
    fn ask(to: &Self::Ref, job: Job) -> impl Future<Output = bool> + Send {
        Self::send(to, job)
    }

    fn termination(of: &Self::Ref) -> Termination;

    fn stopped_by(of: &Self::Ref, job: Job) -> Termination;
}

/// Frameworks whose actors can have children of another framework.
pub(crate) trait Mixes: Framework {
    fn unstarted(name: &str, script: Script) -> impl Spawn<Ref = Self::Ref> + 'static;

    fn spawn_below<S: Spawn + 'static>(
        parent: &Self::Ref,
        name: &str,
        actor: S,
    ) -> impl Future<Output = Result<S::Ref, SpawnError>> + Send;
}
