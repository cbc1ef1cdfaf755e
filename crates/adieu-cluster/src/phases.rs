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

/// How many entities are named whose replies are awaited, for each region.
const NAMED: usize = 3;

/// Why a task of the cluster's phases failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum LeaveError {
    #[error("left the cluster without acknowledgement by {leader} within {}", Short(*within))]
    NotAcknowledged { leader: String, within: Duration },
    #[error("entities killed, because they did not end within {}: {entities}", Short(*within))]
    Killed { entities: String, within: Duration },
    #[error("messages without an outcome when this node was removed, after {}: {messages}", Short(*within))]
    Unsettled { messages: String, within: Duration },
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
    let owner = Arc::clone(shared);
    let spec = TaskSpec::new(removed.1).describe(move || owner.describe_removal());
    shutdown.add_task(removed.0, spec, move |cx| async move { this.be_removed(cx).await })?;

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

    fn describe_removal(&self) -> String {
        let (goal, singletons) = {
            let progress = self.progress.borrow();
            (*self.goal.borrow(), progress.singletons.join(", "))
        };
        match self.unsettled(u64::MAX) {
            Some(messages) if goal < Goal::BeRemoved => format!("waiting for replies: {messages}"),
            _ if singletons.is_empty() => "waiting for the store".to_owned(),
            _ => format!("still owns {singletons}"),
        }
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
        // The messages that this node has sent so far. Those that it sends from now on have the phases
        // that follow.
        self.settle(&cx, begun + within, self.here.next_number()).await;
        let killed = self.killed();
        killed.map_or(Ok(()), |entities| Err(LeaveError::Killed { entities, within }))
    }

    /// Waits until the messages of this node with lower numbers have their outcomes, because a node
    /// that was removed receives no more replies. A second signal ends the wait.
    async fn settle(&self, cx: &TaskCx, until: Instant, before: u64) {
        let hurried = cx.hurried();
        tokio::pin!(hurried);
        while now() < until
            && !self.progress.borrow().is_outside()
            && self.unsettled(before).is_some()
        {
            tokio::select! {
                biased;
                () = &mut hurried => return,
                () = tokio::time::sleep(SETTLE) => {}
            }
        }
    }

    /// Waits for the last replies, and then until this node is removed. New messages do not run: their
    /// replies could come too late.
    async fn be_removed(&self, cx: TaskCx) -> Result<(), LeaveError> {
        self.regions.all().iter().for_each(|region| region.refuse_new());
        let (begun, all) = (now(), cx.remaining());
        self.settle(&cx, begun + all.saturating_sub(reserve(all)), u64::MAX).await;
        let is_outside = self.progress.borrow().is_outside();
        let unsettled = self.unsettled(u64::MAX).filter(|_| !is_outside);
        let within = now().saturating_duration_since(begun);
        self.raise_goal(Goal::BeRemoved);
        self.reaches(|_| false).await;
        unsettled.map_or(Ok(()), |messages| Err(LeaveError::Unsettled { messages, within }))
    }

    /// Returns the messages of this node that have lower numbers and no outcome, in words.
    fn unsettled(&self, before: u64) -> Option<String> {
        let regions = self.regions.all().into_iter().filter_map(|region| {
            let (count, named) = region.unsettled(before, NAMED);
            let more = if count > named.len() { ", ..." } else { "" };
            let named = named.join(", ");
            (count > 0).then(|| format!("{count} to {} ({named}{more})", region.name()))
        });
        let regions: Vec<String> = regions.collect();
        (!regions.is_empty()).then(|| regions.join(", "))
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
