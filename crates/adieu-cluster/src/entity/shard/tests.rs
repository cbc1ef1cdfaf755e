//! One shard of a node, without a cluster: starts that meet, and instances that end with their node.

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::*;
use crate::entity::letter::{Content, Letter, ReplyTo};
use crate::entity::mailbox::Slot;
use crate::entity::{Entity, Here, Starts};
use crate::records::NodeId;
use crate::standing::Standing;
use crate::time::{Duration, now};
use crate::transport::Peer;

#[derive(Serialize, Deserialize)]
struct Ping;

impl Command for Ping {
    type Reply = ();
}

const SECOND: Duration = Duration::from_secs(1);

/// A shard that is open. Each of its entities handles one mail for each permit.
struct Stage {
    shard: Arc<Shard<Ping>>,
    standing: Arc<Standing>,
    permits: Arc<Notify>,
}

impl Stage {
    fn new() -> Self {
        let id = NodeId::new("one").unwrap();
        let here = Arc::new(Here::new(id.clone(), Starts::new(100, 100), |_, _, _| {}, |_, _| {}));
        let standing = Arc::new(Standing::new(now(), now() + 100 * SECOND));
        here.begin();
        here.join(Arc::clone(&standing), Handle::current());
        let permits = Arc::new(Notify::new());
        let given = Arc::clone(&permits);
        let entity = move |mut me: Entity<Ping>| {
            let permits = Arc::clone(&given);
            async move {
                while let Some(mail) = me.next().await {
                    permits.notified().await;
                    mail.reply(());
                }
            }
        };
        let core = Core {
            name: "pings".into(),
            here,
            spawner: Some(Box::new(Function(Arc::new(entity))) as _),
            mailbox: 10,
            idle: None,
            is_resident: false,
            bytes: Default::default(),
            tally: Tally::default(),
            requests: Default::default(),
        };
        let shard = Shard::new(Arc::new(core), 0);
        let (owner, epoch) = (Peer { id, incarnation: Revision::new(1) }, Revision::new(5));
        assert!(shard.see(&Grant::Owned { owner, epoch }, Some(epoch)));
        Self { shard, standing, permits }
    }

    /// Puts a tell into the mailbox of an entity that waits to be started.
    fn waiting(&self) -> Arc<Slot<Ping>> {
        self.shard.change(|inner, _| {
            inner.admission.enter();
            let id = MessageId { incarnation: Revision::new(1), sequence: 1 };
            let letter = || {
                let (content, deadline) = (Content::Command(Ping), now() + SECOND);
                Some(Letter { content, id, deadline, to: ReplyTo::NoReceiver })
            };
            let put = inner.put(&self.shard.core, "n", letter);
            put.unwrap_or_else(|refusal| panic!("{refusal:?}")).0
        })
    }

    fn inside(&self) -> usize {
        self.shard.lock().admission.inside()
    }

    fn running(&self) -> usize {
        self.shard.core.here.starts.running()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            if holds(self) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("never: {what}");
    }
}

/// Two threads have decided to start the same entity, for example because its only ask expired while
/// it waited to be started, and the next one arrived when its turn had come.
#[tokio::test]
async fn s1605_two_starts_of_one_entity_start_one_instance() {
    let stage = Stage::new();
    let slot = stage.waiting();
    stage.shard.start(&slot);
    stage.shard.start(&slot);
    assert_eq!((stage.shard.core.tally.started(), stage.running()), (1, 1));
    stage.permits.notify_one();
    stage.shard.drain(now() + SECOND);
    stage.until("the shard is drained", |it| it.inside() == 0).await;
    assert_eq!(stage.running(), 0);
    assert!(stage.shard.hand_over());
}

#[tokio::test]
async fn s1605_a_start_that_meets_a_kill_starts_nothing() {
    let stage = Stage::new();
    let slot = stage.waiting();
    assert_eq!(stage.shard.kill().len(), 1);
    stage.shard.start(&slot);
    let started = stage.shard.core.tally.started();
    assert_eq!((started, stage.running(), stage.inside()), (0, 0, 0));
    // Another entity is inside, and is not counted out by the end of one that was killed.
    stage.shard.change(|inner, _| inner.admission.enter());
    stage.until("nothing runs", |it| it.running() == 0).await;
    assert_eq!(stage.inside(), 1);
}

/// The instance notices first that the node may no longer act, before the driver does.
#[tokio::test]
async fn s1606_the_tells_of_an_instance_that_is_dropped_are_dead_letters() {
    let stage = Stage::new();
    for _ in 0..3 {
        assert!(stage.shard.tell("n", Ping, now() + SECOND).is_ok());
    }
    stage
        .until("one is opened", |it| {
            it.shard.busiest(now()).is_some_and(|_| {
                let inner = it.shard.lock();
                inner.slots.iter().all(|it| it.0.lock().queue.len() == 2)
            })
        })
        .await;
    stage.standing.lose();
    stage.permits.notify_one();
    stage.until("it is dropped", |it| it.inside() == 0).await;
    assert_eq!(stage.shard.core.tally.dead_letters(), 2);
    // The driver then gets the losses, and counts nothing twice.
    let dropped = stage.shard.lose();
    let [Killed { id, dead_letters: 2, .. }] = &dropped[..] else { panic!("{dropped:?}") };
    assert_eq!(&**id, "n");
    assert_eq!(stage.shard.core.tally.dead_letters(), 2);
    assert!(stage.shard.lose().is_empty());
}
