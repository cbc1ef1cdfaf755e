//! Names that are used again, those in between that have gone, and panics in odd places.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_actors::{ActorSystem, Ended, Node, NodeEnding, NodePath, ractor::actor};
use futures_util::future::BoxFuture;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::SetOnce;
use tokio::time::Instant;

const LONG: Duration = Duration::from_secs(60);

type Log = Arc<Mutex<Vec<&'static str>>>;

/// Says when its stop hook runs.
struct Says(&'static str, Log);

impl Actor for Says {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<()>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.1.lock().unwrap().push(self.0);
        Ok(())
    }
}

#[tokio::test]
async fn s171_a_name_that_is_used_again_is_that_of_the_new_one() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let old = system.spawn("a", actor(Says("old", Arc::clone(&log)), ())).await.unwrap();
    assert!(system.remove(old.path()));
    let new = system.spawn("a", actor(Says("new", Arc::clone(&log)), ())).await.unwrap();
    old.actor_ref().stop(None);
    old.terminated().await;
    let report = system.shutdown(LONG).await.unwrap();
    assert_eq!((report.nodes.len(), new.terminated().await), (1, Ended::Stopped));
    assert_eq!(*log.lock().unwrap(), ["old", "new"]);
}

/// A node that ends some time after it was told, and looks at its system when it is dropped.
struct Slow {
    path: NodePath,
    system: ActorSystem,
    log: Log,
    told: SetOnce<Instant>,
}

impl Slow {
    fn ends_at(&self) -> Option<Instant> {
        self.told.get().map(|told| *told + Duration::from_secs(1))
    }

    fn ended(&self) -> Ended {
        let mut log = self.log.lock().unwrap();
        if !log.contains(&"slow") {
            log.push("slow");
        }
        Ended::Stopped
    }
}

impl Node for Slow {
    fn path(&self) -> &NodePath {
        &self.path
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        let _ = self.told.set(Instant::now());
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {}

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(async {
            self.told.wait().await;
            if let Some(at) = self.ends_at() {
                tokio::time::sleep_until(at).await;
            }
            self.ended()
        })
    }

    fn has_terminated(&self) -> Option<Ended> {
        self.ends_at().filter(|at| *at <= Instant::now()).map(|_| self.ended())
    }

    fn queued(&self) -> Option<usize> {
        None
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.system.tree();
    }
}

#[tokio::test(start_paused = true)]
async fn s161_those_beneath_one_that_has_gone_are_beneath_the_one_above_it() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let top = system.spawn("a", actor(Says("a", Arc::clone(&log)), ())).await.unwrap();
    let path = top.path().child("gone").unwrap().child("slow").unwrap();
    let (told, node) = (SetOnce::new(), Arc::clone(&log));
    let slow = Slow { path, system: system.clone(), log: node, told };
    system.register(Arc::new(slow)).unwrap();
    // And who drops its node may use the system: nothing of ours is locked then.
    assert!(system.shutdown(LONG).await.unwrap().is_clean());
    assert_eq!(*log.lock().unwrap(), ["slow", "a"]);
}

/// Panics where the future is made, not where it is polled; or after it has started.
struct Panics {
    after_start: bool,
}

impl Actor for Panics {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn post_start(&self, _: ActorRef<()>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        assert!(!self.after_start, "not today");
        Ok(())
    }

    fn post_stop(
        &self,
        _: ActorRef<()>,
        (): &mut (),
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        assert!(self.after_start, "at once");
        std::future::ready(Ok(()))
    }
}

#[tokio::test]
async fn s166_a_panic_is_reported_as_one_wherever_it_is() {
    let system = ActorSystem::new("shop");
    let late = system.spawn("late", actor(Panics { after_start: true }, ())).await.unwrap();
    assert_eq!(late.terminated().await, Ended::Failed { error: "not today".into() });
    let hook = system.spawn("hook", actor(Panics { after_start: false }, ())).await.unwrap();
    hook.actor_ref().stop(None);
    assert_eq!(hook.terminated().await, Ended::HookFailed { error: "at once".into() });
}

/// Spawns one that is stuck behind our back, and stops.
struct Spawns;

/// Never done.
struct Stuck;

impl Actor for Stuck {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<()>, (): (), (): &mut ()) -> Result<(), ActorProcessingErr> {
        std::future::pending().await
    }
}

impl Actor for Spawns {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        me: ActorRef<()>,
        (): (),
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let (stuck, _) = Actor::spawn_linked(None, Stuck, (), me.get_cell()).await?;
        stuck.cast(())?;
        me.stop(None);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s161_one_that_stops_by_itself_does_not_wait_for_ever_for_those_linked_to_it() {
    let system = ActorSystem::new("shop");
    let parent = system.spawn("parent", actor(Spawns, ())).await.unwrap();
    parent.send(()).unwrap();
    let ended = tokio::time::timeout(LONG, parent.terminated()).await;
    assert_eq!(ended, Ok(Ended::Stopped));
}

/// Ends when its time has come, and counts how often it is asked whether it has.
struct Ends {
    path: NodePath,
    at: Instant,
    asked: Arc<AtomicUsize>,
    /// It says so also when it is asked.
    admits: bool,
}

impl Node for Ends {
    fn path(&self) -> &NodePath {
        &self.path
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {}

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(async {
            tokio::time::sleep_until(self.at).await;
            Ended::Stopped
        })
    }

    fn has_terminated(&self) -> Option<Ended> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        (self.admits && self.at <= Instant::now()).then_some(Ended::Stopped)
    }

    fn queued(&self) -> Option<usize> {
        None
    }
}

// Without a pause between two questions, this test would not end.
#[tokio::test(start_paused = true)]
async fn s163_who_contradicts_itself_is_given_up_at_the_deadline() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let says = system.spawn("says", actor(Says("says", Arc::clone(&log)), ())).await.unwrap();
    let path = NodePath::user().child("odd").unwrap();
    let (at, asked) = (Instant::now(), Arc::default());
    system.register(Arc::new(Ends { path, at, asked, admits: false })).unwrap();
    let report = system.shutdown(Duration::from_secs(5)).await.unwrap();
    assert_eq!(says.terminated().await, Ended::Stopped);
    let endings: Vec<_> =
        report.nodes.iter().map(|node| (node.path().as_str(), node.ending().to_string())).collect();
    assert_eq!(endings.len(), 2, "{endings:?}");
    assert_eq!(endings[0], ("/user/says", "drained".to_owned()));
    assert_eq!(endings[1].0, "/user/odd");
    assert!(!report.is_clean());
}

// Checks how the cost grows: with the square of them, if all were looked at for each that ends.
#[tokio::test(start_paused = true)]
async fn s161_those_that_end_one_by_one_are_not_all_looked_at_for_each() {
    const MANY: usize = 2_000;
    let (system, asked) = (ActorSystem::new("shop"), Arc::new(AtomicUsize::new(0)));
    let began = Instant::now();
    for number in 0..MANY {
        let path = NodePath::user().child(&format!("n{number}")).unwrap();
        // The last first.
        let at = began + Duration::from_millis((MANY - number) as u64);
        let ends = Ends { path, at, asked: Arc::clone(&asked), admits: true };
        system.register(Arc::new(ends)).unwrap();
    }
    let report = system.shutdown(LONG).await.unwrap();
    assert!(report.is_clean() && report.nodes.len() == MANY);
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked < 30 * MANY, "asked {asked} times");
}

/// Panics whatever it is asked but its path.
struct Odd(NodePath);

impl Node for Odd {
    fn path(&self) -> &NodePath {
        &self.0
    }

    fn children(&self) -> Vec<Arc<dyn Node>> {
        panic!("children")
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        panic!("drain")
    }

    fn try_drain(&self) -> bool {
        panic!("try_drain")
    }

    fn kill(&self) {
        panic!("kill")
    }

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        panic!("terminated")
    }

    fn has_terminated(&self) -> Option<Ended> {
        None
    }

    fn queued(&self) -> Option<usize> {
        panic!("queued")
    }

    fn handled(&self) -> Option<u64> {
        panic!("handled")
    }

    fn dead_letters(&self) -> Option<u64> {
        panic!("dead_letters")
    }
}

#[tokio::test(start_paused = true)]
async fn s166_a_node_that_panics_is_given_up_and_the_others_are_drained() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    system.spawn("says", actor(Says("says", Arc::clone(&log)), ())).await.unwrap();
    let path = NodePath::user().child("odd").unwrap();
    system.register(Arc::new(Odd(path))).unwrap();
    let report = system.shutdown(Duration::from_secs(5)).await.unwrap();
    let odd = report.node("/user/odd").unwrap();
    assert_eq!(odd.ending(), &NodeEnding::Abandoned);
    assert_eq!((odd.drained(), odd.dead_letters()), (None, None));
    assert_eq!(report.node("/user/says").unwrap().ending(), &NodeEnding::Drained);
}
