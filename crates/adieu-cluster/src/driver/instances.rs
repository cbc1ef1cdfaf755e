//! Starts, stops, drops and joins the singletons of this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use adieu_core::adapter::error_text;
use adieu_fleet::Fence;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::counters::InstanceState;
use crate::node::Node;
use crate::proposal::Wake;
use crate::records::ShardId;
use crate::region::{Held, ShardState};
use crate::shared::Shared;
use crate::singleton::{BoxError, SingletonCx, panic_text};
use crate::standing::Standing;
use crate::store::Revision;
use crate::time::{Duration, Instant};

/// A task of an instance that was joined.
pub(super) type Joined = Result<(ShardId, Revision, Ended), JoinError>;

/// The singletons of this node.
pub(super) struct Instances {
    shared: Arc<Shared>,
    standing: Arc<Standing>,
    tasks: JoinSet<(ShardId, Revision, Ended)>,
    running: BTreeMap<ShardId, Running>,
}

struct Running {
    epoch: Revision,
    stop: CancellationToken,
    state: RunState,
    failures: u32,
}

enum RunState {
    Runs(AbortHandle),
    /// The instance failed, and starts again at this time.
    Pauses(Instant),
    /// The instance has returned, and does not start again under this fence.
    Finished,
}

pub(super) enum Ended {
    Returned,
    Failed(BoxError),
    /// It was dropped, because this node may no longer act.
    Dropped,
}

// === impl Instances ===

impl Instances {
    pub(super) fn new(shared: &Arc<Shared>, standing: &Arc<Standing>) -> Self {
        Self {
            shared: Arc::clone(shared),
            standing: Arc::clone(standing),
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
        }
    }

    /// Waits for the next instance to end; `None` if none runs.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub(super) async fn join_next(&mut self) -> Option<Joined> {
        self.tasks.join_next().await
    }

    pub(super) fn abort_all(&mut self) {
        self.tasks.abort_all();
    }

    /// Starts, stops and drops singletons, as the machine has decided.
    pub(super) fn reconcile(
        &mut self,
        node: &mut Node,
        is_good: bool,
        now: Instant,
        wake: &mut Wake,
    ) {
        let singletons = self.shared.singletons();
        let held: BTreeMap<ShardId, Held> = node
            .held()
            .filter(|(shard, _)| singletons.contains_key(&shard.region))
            .map(|(shard, held)| (shard.clone(), held))
            .collect();
        drop(singletons);
        for (shard, running) in &self.running {
            let is_held = held.get(shard).is_some_and(|held| held.epoch == running.epoch);
            if !is_held || !is_good || self.shared.kill.is_cancelled() {
                running.stop.cancel();
                if let RunState::Runs(task) = &running.state {
                    task.abort();
                }
            }
        }
        // An entry is kept while its task runs, even if this node no longer owns the shard.
        self.running.retain(|shard, running| {
            matches!(running.state, RunState::Runs(_))
                || held.get(shard).is_some_and(|held| held.epoch == running.epoch)
        });
        for (shard, held) in held {
            match held.state {
                ShardState::Open if is_good => self.open(&shard, held.epoch, now, wake),
                ShardState::Closing => {
                    let running = self.running.get(&shard);
                    let task = running.map(|running| {
                        running.stop.cancel();
                        &running.state
                    });
                    if !matches!(task, Some(RunState::Runs(_))) {
                        node.drained(&shard, held.epoch);
                    }
                }
                ShardState::Open | ShardState::Drained => {}
            }
        }
        self.publish();
    }

    /// Updates the states of the instances for the status.
    fn publish(&self) {
        let state = |running: &Running| match &running.state {
            RunState::Runs(_) if running.stop.is_cancelled() => InstanceState::Stopping,
            RunState::Runs(_) => InstanceState::Running,
            RunState::Pauses(_) => InstanceState::Failed,
            RunState::Finished => InstanceState::Ended,
        };
        let states = self.running.iter().map(|(shard, it)| (Arc::clone(&shard.region), state(it)));
        self.shared.counters.set_instances(states.collect());
    }

    /// Adds the instances that nothing has stopped to the report of the shutdown: the phase in which
    /// they end may be disabled.
    pub(super) fn report_unstopped(&self) {
        let runs = |it: &Running| matches!(it.state, RunState::Runs(_)) && !it.stop.is_cancelled();
        let names = self.running.iter().filter(|(_, it)| runs(it)).map(|(shard, _)| &*shard.region);
        let names = names.collect::<Vec<_>>().join(", ");
        if !names.is_empty() && self.shared.has_begun() {
            let dropped = format!("singletons dropped without having been stopped: {names}");
            self.shared.troubles.find(dropped);
        }
    }

    fn open(&mut self, shard: &ShardId, epoch: Revision, now: Instant, wake: &mut Wake) {
        let failures = match self.running.get(shard) {
            Some(Running { state: RunState::Pauses(until), failures, .. }) => {
                if now < *until {
                    return wake.at(*until);
                }
                *failures
            }
            Some(_) => return,
            None => 0,
        };
        let Some(work) = self.shared.singletons().get(&shard.region).cloned() else { return };
        let stop = CancellationToken::new();
        let fence = Fence::new(epoch.get());
        let (standing, name) = (Arc::clone(&self.standing), Arc::clone(&shard.region));
        let cx = SingletonCx::new(Arc::clone(&name), fence, stop.clone(), Arc::clone(&standing));
        let key = shard.clone();
        let task = self.tasks.spawn(async move {
            // The future is created inside the guard, so that even the code before its first `await`
            // runs only while this node may act.
            let ended = standing.guard(async move { work(cx).await }).await;
            let ended = match ended {
                Some(Ok(())) => Ended::Returned,
                Some(Err(error)) => Ended::Failed(error),
                None => Ended::Dropped,
            };
            (key, epoch, ended)
        });
        self.shared.counters.singleton_started(&name);
        let cluster = Arc::clone(&self.shared.cluster);
        self.shared.log(move || {
            tracing::info!(%cluster, singleton = %name, %fence, "singleton started");
        });
        let running = Running { epoch, stop, state: RunState::Runs(task), failures };
        self.running.insert(shard.clone(), running);
    }

    /// Records how an instance ended.
    pub(super) fn ended(&mut self, ended: Joined, now: Instant) {
        let (shard, epoch, ended) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // The error of a task that was aborted or panicked does not contain its shard.
                let found = self.running.iter().find(|(_, running)| {
                    matches!(&running.state, RunState::Runs(task) if task.id() == error.id())
                });
                let Some((shard, running)) = found else { return };
                let (shard, epoch) = (shard.clone(), running.epoch);
                let ended = match error.try_into_panic() {
                    Ok(panic) => Ended::Failed(panic_text(&*panic).into()),
                    Err(_) => Ended::Dropped,
                };
                (shard, epoch, ended)
            }
        };
        let Some(running) = self.running.get_mut(&shard) else { return };
        if running.epoch != epoch {
            return;
        }
        let (cluster, name) = (Arc::clone(&self.shared.cluster), Arc::clone(&shard.region));
        let fence = Fence::new(epoch.get());
        if matches!(ended, Ended::Failed(_)) {
            self.shared.counters.singleton_failed(&name);
        }
        running.state = match ended {
            Ended::Failed(error) if !running.stop.is_cancelled() => {
                running.failures += 1;
                let pause = Duration::from_secs(1 << running.failures.min(6)) / 2;
                let error = error_text(&*error);
                self.shared.log(move || {
                    tracing::error!(%cluster, singleton = %name, %fence, ?pause, error, "singleton failed; restarting");
                });
                RunState::Pauses(now + pause)
            }
            Ended::Failed(error) => {
                let error = error_text(&*error);
                if self.shared.has_begun() {
                    let failed = format!("singleton {name} failed while it stopped: {error}");
                    self.shared.troubles.find(failed);
                }
                self.shared.log(move || {
                    tracing::error!(%cluster, singleton = %name, %fence, error, "singleton failed while it stopped");
                });
                RunState::Finished
            }
            Ended::Returned => {
                self.shared.log(move || {
                    tracing::info!(%cluster, singleton = %name, %fence, "singleton ended");
                });
                RunState::Finished
            }
            Ended::Dropped => {
                let reason = match () {
                    () if self.shared.kill.is_cancelled() => "it did not end in time",
                    () if !self.standing.is_good() => "this node may no longer act",
                    () => "this node no longer owns it",
                };
                self.shared.log(move || {
                    tracing::warn!(%cluster, singleton = %name, %fence, reason, "singleton dropped");
                });
                RunState::Finished
            }
        };
        self.publish();
    }

    /// Logs the instances that could not be joined.
    pub(super) fn leave_behind(&self) {
        let names: Vec<_> = self.running.keys().map(ToString::to_string).collect();
        let cluster = Arc::clone(&self.shared.cluster);
        self.shared.log(move || {
            let why = "they block their threads";
            tracing::error!(%cluster, singletons = ?names, why, "singletons abandoned");
        });
    }
}
