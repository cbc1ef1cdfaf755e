//! The tasks of the cluster's phases: leave, be acknowledged, hand over, be removed.
//!
//! A task does nothing if the node never joined, has left or is down. It ends when the node has
//! reached the stage that it waits for, or at the timeout of its phase.

use std::sync::Arc;

use adieu_core::{AddTaskError, Phase, Short, Shutdown, TaskCx, TaskSpec};

use crate::counters::InstanceState;
use crate::member::{Goal, Stage};
use crate::records::Drain;
use crate::shared::{DrainTime, Progress, Shared};
use crate::time::{Duration, Instant, now, sleep_until};
use crate::waiting;

/// How often a node that leaves looks whether its messages are settled.
const SETTLE: Duration = Duration::from_millis(5);

/// Why a task of the cluster's phases failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum LeaveError {
    #[error("left the cluster without acknowledgement by {leader} within {}", Short(*within))]
    NotAcknowledged { leader: String, within: Duration },
    #[error("entities killed, because they did not end within {}: {entities}", Short(*within))]
    Killed { entities: String, within: Duration },
    #[error("singletons dropped, because they did not end within {}: {names}", Short(*within))]
    Dropped { names: String, within: Duration },
}

/// The phases in which a node has a task, each with the name of the task.
pub const TASKS: [(Phase, &str); 5] = [
    (Phase::CLUSTER_SHARDING_SHUTDOWN_REGION, "cluster: hand over regions"),
    (Phase::CLUSTER_LEAVE, "cluster: leave"),
    (Phase::CLUSTER_EXITING, "cluster: hand over singletons"),
    (Phase::CLUSTER_EXITING_DONE, "cluster: be removed"),
    (Phase::CLUSTER_SHUTDOWN, "cluster: close"),
];

/// Adds the tasks to the phases.
pub(crate) fn add(shutdown: &Shutdown, shared: &Arc<Shared>) -> Result<(), AddTaskError> {
    let [regions, leave, singletons, removed, close] = TASKS;
    let task = |name, describe: fn(&Progress) -> String| {
        let shared = Arc::clone(shared);
        TaskSpec::new(name).describe(move || describe(&shared.progress.borrow()))
    };

    let this = Arc::clone(shared);
    let describes = Arc::clone(shared);
    let spec = TaskSpec::new(regions.1).describe(move || describes.describe_hand_over());
    shutdown.add_task(regions.0, spec, move |cx| async move { this.drain_regions(cx).await })?;

    let this = Arc::clone(shared);
    let spec = task(leave.1, |_| "waiting for the store".to_owned());
    shutdown.add_task(leave.0, spec, move |_| async move {
        this.raise_goal(Goal::Leave);
        this.reaches(|it| it.stage >= Some(Stage::Leaving)).await;
    })?;

    let this = Arc::clone(shared);
    let owner = Arc::clone(shared);
    let spec = TaskSpec::new(singletons.1).describe(move || owner.describe_exit());
    shutdown.add_task(singletons.0, spec, move |cx| async move { this.exit(cx).await })?;

    let this = Arc::clone(shared);
    let spec = task(removed.1, |it| match it.singletons.is_empty() {
        true => "waiting for the store".to_owned(),
        false => format!("still owns {}", it.singletons.join(", ")),
    });
    shutdown.add_task(removed.0, spec, move |cx| async move {
        this.settle(cx.remaining() / 2).await;
        this.raise_goal(Goal::BeRemoved);
        this.reaches(|_| false).await;
    })?;

    let this = Arc::clone(shared);
    let owner = Arc::clone(shared);
    let spec = TaskSpec::new(close.1).describe(move || owner.describe_close());
    shutdown.add_task(close.0, spec, move |_| async move {
        this.close.cancel();
        this.tasks.close();
        this.tasks.wait().await;
    })?;
    Ok(())
}

impl Shared {
    /// Waits until this node has reached a stage, or is not in the cluster.
    async fn reaches(&self, mut is_there: impl FnMut(&Progress) -> bool) {
        let mut progress = self.progress.subscribe();
        let done = progress.wait_for(|it| it.is_outside() || is_there(it)).await;
        // The sender belongs to `self`, so the wait cannot fail.
        drop(done);
    }

    fn describe_exit(&self) -> String {
        let progress = self.progress.borrow();
        if self.kill.is_cancelled() && progress.singletons.is_empty() {
            return "singletons dropped; this node owns none".to_owned();
        }
        let waiting_for = progress.waiting_for.as_deref().unwrap_or_default();
        waiting_for.strip_prefix(waiting::LEAVE).unwrap_or(waiting_for).to_owned()
    }

    /// Describes what the end of the driver waits for. An instance that has ended blocks nothing,
    /// even if this node still owns its singleton.
    fn describe_close(&self) -> String {
        let instances = self.counters.instances();
        let runs = |state| matches!(state, InstanceState::Running | InstanceState::Stopping);
        let names = instances.iter().filter(|(_, state)| runs(**state)).map(|(name, _)| &**name);
        match (names.collect::<Vec<_>>().join(", ").as_str(), self.here.tasks.len()) {
            ("", 0) => "waiting for the store".to_owned(),
            ("", 1) => "an entity cannot be stopped: code that blocks".to_owned(),
            ("", entities) => format!("{entities} entities cannot be stopped: code that blocks"),
            (names, _) => format!("{names} cannot be stopped: code that blocks"),
        }
    }

    /// Hands the shards of regions over. Entities that do not end are killed before the end of the
    /// phase, early enough for their shards to be handed over, and for the report to name them.
    async fn drain_regions(&self, cx: TaskCx) -> Result<(), LeaveError> {
        let (begun, all) = (now(), cx.remaining());
        let owned = self.owned_shards();
        {
            let mut times = self.drain_times();
            times.regions = Some(drain_time(begun, all));
            times.owned = owned;
        }
        self.raise_goal(Goal::DrainRegions);
        self.reaches(|it| it.drain >= Drain::Regions && it.regions == 0).await;
        let within = all.saturating_sub(reserve(all));
        let killed = self.killed();
        killed.map_or(Ok(()), |entities| Err(LeaveError::Killed { entities, within }))
    }

    /// Waits until every message of this node has its outcome, because a node that was removed
    /// receives no more replies. New messages do not run: their replies could come too late.
    async fn settle(&self, within: Duration) {
        self.regions.all().iter().for_each(|region| region.refuse_new());
        let until = now() + within;
        let is_idle = || self.regions.all().iter().all(|region| region.is_idle());
        while now() < until && !self.progress.borrow().is_outside() && !is_idle() {
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// Waits for the acknowledgement, then hands the singletons over.
    ///
    /// Both share one phase. Half of its time is for the acknowledgement. Without an acknowledgement
    /// the node continues, because the hand-off does not depend on it. Before the end of the phase,
    /// singletons that do not stop are dropped, early enough to be handed over.
    async fn exit(&self, cx: TaskCx) -> Result<(), LeaveError> {
        let (begun, all) = (now(), cx.remaining());
        let acknowledged = tokio::select! {
            biased;
            () = self.reaches(|it| it.stage >= Some(Stage::Exiting)) => true,
            () = sleep_until(begun + all / 2) => false,
        };
        let leader = self.progress.borrow().leader.as_ref().map(ToString::to_string);
        let leader = leader.unwrap_or_else(|| "a leader".to_owned());
        self.drain_times().singletons = Some(drain_time(begun, all));
        self.raise_goal(Goal::DrainSingletons);
        let is_done = |it: &Progress| it.drain == Drain::Singletons && it.singletons.is_empty();
        let mut dropped = String::new();
        tokio::select! {
            biased;
            () = self.reaches(is_done) => {}
            () = sleep_until(begun + all.saturating_sub(reserve(all))) => {
                dropped = self.progress.borrow().singletons.join(", ");
                self.kill.cancel();
                self.reaches(is_done).await;
            }
        }
        match () {
            () if !dropped.is_empty() => {
                let within = all.saturating_sub(reserve(all));
                Err(LeaveError::Dropped { names: dropped, within })
            }
            () if !acknowledged => Err(LeaveError::NotAcknowledged { leader, within: all / 2 }),
            () => Ok(()),
        }
    }
}

/// Returns how long before the end of a phase the remaining instances are killed.
fn reserve(all: Duration) -> Duration {
    (all / 4).min(Duration::from_secs(1))
}

/// Returns the deadlines of a drain in a phase with this time.
fn drain_time(begun: Instant, all: Duration) -> DrainTime {
    let (nested_until, kill_at) = (begun + all / 2, begun + all.saturating_sub(reserve(all)));
    DrainTime { begun, nested_until, kill_at }
}
