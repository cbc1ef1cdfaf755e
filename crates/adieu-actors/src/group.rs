//! The actor systems and worker threads of one shutdown, which are drained together.
//!
//! Accepted work of one system may send messages to another one. So no member closes its admission
//! before no member has work, and no member completes its report before the actors of all members
//! have ended: until then it may refuse messages, which its report has to contain.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use adieu_core::Reason;
use adieu_core::adapter::lock;
use tokio::sync::watch;

use crate::quiet::Activity;

/// The actor systems and worker threads of one shutdown. The shutdown owns it, see
/// `Shutdown::extension`.
pub(crate) struct Group {
    members: Mutex<Vec<Weak<dyn Member>>>,
    progress: watch::Sender<Progress>,
}

/// An actor system, or a pool of worker threads.
pub(crate) trait Member: Send + Sync {
    /// Returns whether a shutdown for this reason drains the member.
    fn is_drained_for(&self, reason: &Reason) -> bool;

    /// Lets the actors of this member send to members whose drain has begun.
    fn announce_drain(&self);

    /// Refuses messages from outside the group, from now on. The drain of all members was announced.
    fn begin_drain(&self);

    /// Adds the nodes and queues of this member.
    fn add_to(&self, activity: &mut Activity);

    /// Returns whether a message was ever sent to this member. If not, it has no work.
    fn has_worked(&self) -> bool;

    /// Takes the description of messages that this member refused or lost after its report was
    /// completed. The next call describes only later ones.
    fn take_unreported(&self) -> Option<String>;
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Whether the phase `actor-system-terminate` has begun.
    is_draining: bool,
    /// How many members have actors that have not ended.
    unfinished: usize,
}

/// A member that has actors, until it is dropped.
#[derive(Debug)]
pub(crate) struct Unfinished(watch::Sender<Progress>);

// === impl Group ===

impl Default for Group {
    fn default() -> Self {
        Self { members: Mutex::default(), progress: watch::Sender::new(Progress::default()) }
    }
}

impl Group {
    fn members(&self) -> MutexGuard<'_, Vec<Weak<dyn Member>>> {
        lock(&self.members)
    }

    fn present(&self) -> Vec<Arc<dyn Member>> {
        self.members().iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds a member. It drops the returned value when its actors have ended.
    pub(crate) fn join(&self, member: Weak<dyn Member>) -> Unfinished {
        self.members().push(member);
        self.progress.send_modify(|progress| progress.unfinished += 1);
        Unfinished(self.progress.clone())
    }

    /// Removes a member that the shutdown does not drain.
    pub(crate) fn remove(&self, member: &Weak<dyn Member>) {
        let is_other =
            |other: &Weak<dyn Member>| !std::ptr::addr_eq(other.as_ptr(), member.as_ptr());
        self.members().retain(is_other);
    }

    /// Begins the drain of all members that a shutdown for this reason drains. Every member calls
    /// it when its task in the phase begins: the first call is for all of them.
    pub(crate) fn begin_drain(&self, reason: &Reason) {
        let is_drained = |member: &Arc<dyn Member>| member.is_drained_for(reason);
        let (drained, others): (Vec<_>, Vec<_>) = self.present().into_iter().partition(is_drained);
        let is_other = |member: &Weak<dyn Member>| {
            others.iter().any(|other| std::ptr::addr_eq(member.as_ptr(), Arc::as_ptr(other)))
        };
        self.members().retain(|member| !is_other(member));
        drained.iter().for_each(|member| member.announce_drain());
        drained.iter().for_each(|member| member.begin_drain());
        self.progress.send_modify(|progress| progress.is_draining = true);
    }

    /// Returns whether the members are being drained together.
    pub(crate) fn is_draining(&self) -> bool {
        self.progress.borrow().is_draining
    }

    /// Returns the nodes and queues of all members.
    pub(crate) fn activity(&self) -> Activity {
        let mut activity = Activity::default();
        self.present().iter().for_each(|member| member.add_to(&mut activity));
        activity
    }

    pub(crate) fn has_worked(&self) -> bool {
        self.present().iter().any(|member| member.has_worked())
    }

    /// Waits until the actors of all members have ended, if the members are drained together.
    pub(crate) async fn all_ended(&self) {
        let mut progress = self.progress.subscribe();
        let is_over = |progress: &Progress| !progress.is_draining || progress.unfinished == 0;
        // It cannot fail: `self` holds the sender.
        let _ = progress.wait_for(is_over).await;
    }

    /// Takes the descriptions of messages that members refused or lost after their reports were
    /// completed.
    pub(crate) fn take_unreported(&self) -> Option<String> {
        let texts: Vec<_> =
            self.present().iter().filter_map(|member| member.take_unreported()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

// === impl Unfinished ===

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.send_modify(|progress| progress.unfinished -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use adieu_core::{Config, Shutdown};

    use super::*;
    use crate::{ActorSystem, Worker, WorkerThreads};

    /// A member that checks the order of the calls.
    struct Checks(Arc<AtomicU64>);

    const MEMBERS: u64 = 3;

    impl Member for Checks {
        fn is_drained_for(&self, _: &Reason) -> bool {
            true
        }

        fn announce_drain(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn begin_drain(&self) {
            assert_eq!(self.0.load(Ordering::Relaxed), MEMBERS, "announced to all members");
        }

        fn add_to(&self, _: &mut Activity) {}

        fn has_worked(&self) -> bool {
            false
        }

        fn take_unreported(&self) -> Option<String> {
            None
        }
    }

    #[tokio::test]
    async fn s1698_a_system_that_cannot_be_added_is_not_waited_for() {
        let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
        shutdown.run(Reason::Unknown).await.unwrap();
        assert!(ActorSystem::on(&shutdown, "late").is_err());
        let body = async |mut worker: Worker<u32>| while worker.recv().await.is_some() {};
        let threads = WorkerThreads::builder("late").count(1).start(body).unwrap();
        assert!(threads.on(&shutdown).is_err());
        let group = adieu_core::adapter::extension::<Group>(&shutdown);
        assert_eq!((group.progress.borrow().unfinished, group.present().len()), (0, 0));
    }

    /// Adds members to shutdowns. Whenever another thread sees the task of a member in the last phase, the
    /// member must be in the group: the phase may begin at once, and drain the group without it.
    fn is_member_when_its_task_is_seen<T>(add: impl Fn(&Shutdown) -> T) {
        let shutdowns: Vec<Shutdown> =
            (0..500).map(|_| Shutdown::configured(Config::for_tests()).unwrap()).collect();
        let turn = AtomicU64::new(0);
        let added = std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                for (number, shutdown) in (1..).zip(&shutdowns) {
                    let group = adieu_core::adapter::extension::<Group>(shutdown);
                    turn.store(number, Ordering::Release);
                    while shutdown.tasks().is_empty() {
                        std::hint::spin_loop();
                    }
                    let unfinished = group.progress.borrow().unfinished;
                    assert_eq!(unfinished, 1, "the task was added before its system joined");
                }
            });
            let mut added = Vec::new();
            for (number, shutdown) in (1..).zip(&shutdowns) {
                while turn.load(Ordering::Acquire) < number && !watching.is_finished() {
                    std::thread::yield_now();
                }
                added.push(add(shutdown));
            }
            watching.join().unwrap();
            added
        });
        drop(added);
    }

    #[tokio::test]
    async fn s1763_a_system_is_in_the_group_before_its_task_is_added() {
        is_member_when_its_task_is_seen(|shutdown| ActorSystem::on(shutdown, "shop").unwrap());
    }

    #[tokio::test]
    async fn s1763_worker_threads_are_in_the_group_before_their_task_is_added() {
        is_member_when_its_task_is_seen(|shutdown| {
            let body = async |mut worker: Worker<u32>| while worker.recv().await.is_some() {};
            let threads = WorkerThreads::builder("shop").count(1).start(body).unwrap();
            threads.on(shutdown).unwrap();
            threads
        });
    }

    // Otherwise the first member would refuse messages from the last, until its drain begins.
    #[test]
    fn s803_a_drain_is_announced_to_all_members_before_it_begins_in_one() {
        let (group, announced) = (Group::default(), Arc::default());
        let members: Vec<_> =
            (0..MEMBERS).map(|_| Arc::new(Checks(Arc::clone(&announced)))).collect();
        let join = |member: &Arc<Checks>| {
            let member: Weak<Checks> = Arc::downgrade(member);
            group.join(member)
        };
        let joined: Vec<_> = members.iter().map(join).collect();
        group.begin_drain(&Reason::Unknown);
        assert_eq!(announced.load(Ordering::Relaxed), MEMBERS);
        drop(joined);
    }
}
