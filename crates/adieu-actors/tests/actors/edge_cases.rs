//! Edge cases: reused names, missing parents, panics, and nodes that contradict themselves.

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

/// Logs when its stop hook runs.
struct Logs(&'static str, Log);

impl Actor for Logs {
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
async fn s352_a_reused_name_belongs_to_the_new_actor() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let old = system.spawn("a", actor(Logs("old", Arc::clone(&log)), ())).await.unwrap();
    assert!(system.remove(old.path()));
    let new = system.spawn("a", actor(Logs("new", Arc::clone(&log)), ())).await.unwrap();
    old.actor_ref().stop(None);
    old.terminated().await;
    let report = system.shutdown(LONG).await.unwrap();
    assert_eq!((report.nodes.len(), new.terminated().await), (1, Ended::Stopped));
    assert_eq!(*log.lock().unwrap(), ["old", "new"]);
}

/// A node that ends one second after it was stopped, and uses its system when it is dropped.
struct Slow {
    path: NodePath,
    system: ActorSystem,
    log: Log,
    stopped: SetOnce<Instant>,
}

impl Slow {
    fn ends_at(&self) -> Option<Instant> {
        self.stopped.get().map(|stopped| *stopped + Duration::from_secs(1))
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
        let _ = self.stopped.set(Instant::now());
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {}

    fn terminated(&self) -> BoxFuture<'_, Ended> {
        Box::pin(async {
            self.stopped.wait().await;
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
async fn s161_children_of_a_missing_parent_stop_before_its_parent() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let top = system.spawn("a", actor(Logs("a", Arc::clone(&log)), ())).await.unwrap();
    let path = top.path().child("missing").unwrap().child("slow").unwrap();
    let stopped = SetOnce::new();
    let slow = Slow { path, system: system.clone(), log: Arc::clone(&log), stopped };
    system.register(Arc::new(slow)).unwrap();
    // The destructor of the node uses the system: no lock is held then.
    assert!(system.shutdown(LONG).await.unwrap().is_clean());
    assert_eq!(*log.lock().unwrap(), ["slow", "a"]);
}

/// Panics in `post_start`, or in `post_stop` before that returns a future.
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
        assert!(!self.after_start, "in post_start");
        Ok(())
    }

    fn post_stop(
        &self,
        _: ActorRef<()>,
        (): &mut (),
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        assert!(self.after_start, "in post_stop");
        std::future::ready(Ok(()))
    }
}

#[tokio::test]
async fn s166_panics_in_hooks_are_reported() {
    let system = ActorSystem::new("shop");
    let late = system.spawn("late", actor(Panics { after_start: true }, ())).await.unwrap();
    assert_eq!(late.terminated().await, Ended::Failed { error: "in post_start".into() });
    let hook = system.spawn("hook", actor(Panics { after_start: false }, ())).await.unwrap();
    hook.actor_ref().stop(None);
    assert_eq!(hook.terminated().await, Ended::HookFailed { error: "in post_stop".into() });
}

/// Spawns a stuck child through ractor, without adieu, and stops.
struct SpawnsStuckChild;

/// Processes no message to the end.
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

impl Actor for SpawnsStuckChild {
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
async fn s341_the_wait_for_linked_children_is_bounded() {
    let system = ActorSystem::new("shop");
    let parent = system.spawn("parent", actor(SpawnsStuckChild, ())).await.unwrap();
    parent.send(()).unwrap();
    let ended = tokio::time::timeout(LONG, parent.terminated()).await;
    assert_eq!(ended, Ok(Ended::Stopped));
}

/// A node that ends at an instant, and counts the calls of `has_terminated`.
struct EndsAt {
    path: NodePath,
    at: Instant,
    calls: Arc<AtomicUsize>,
    /// Whether `has_terminated` agrees with `terminated`.
    is_consistent: bool,
}

impl Node for EndsAt {
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
        self.calls.fetch_add(1, Ordering::Relaxed);
        (self.is_consistent && self.at <= Instant::now()).then_some(Ended::Stopped)
    }

    fn queued(&self) -> Option<usize> {
        None
    }
}

// Without a pause between two checks, this test would not end.
#[tokio::test(start_paused = true)]
async fn s347_a_node_that_contradicts_itself_is_abandoned_at_the_deadline() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let logs = system.spawn("logs", actor(Logs("logs", Arc::clone(&log)), ())).await.unwrap();
    let path = NodePath::user().child("broken").unwrap();
    let (at, calls) = (Instant::now(), Arc::default());
    system.register(Arc::new(EndsAt { path, at, calls, is_consistent: false })).unwrap();
    let report = system.shutdown(Duration::from_secs(5)).await.unwrap();
    assert_eq!(logs.terminated().await, Ended::Stopped);
    let endings: Vec<_> =
        report.nodes.iter().map(|node| (node.path().as_str(), node.ending().to_string())).collect();
    assert_eq!(endings.len(), 2, "{endings:?}");
    assert_eq!(endings[0], ("/user/logs", "drained".to_owned()));
    assert_eq!(endings[1].0, "/user/broken");
    assert!(!report.is_clean());
}

// The number of checks would grow with the square of the nodes, if each end caused a check of all.
#[tokio::test(start_paused = true)]
async fn s161_the_number_of_checks_grows_linearly_with_the_nodes() {
    const MANY: usize = 2_000;
    let (system, calls) = (ActorSystem::new("shop"), Arc::new(AtomicUsize::new(0)));
    let began = Instant::now();
    for number in 0..MANY {
        let path = NodePath::user().child(&format!("n{number}")).unwrap();
        // The last node ends first.
        let at = began + Duration::from_millis((MANY - number) as u64);
        let node = EndsAt { path, at, calls: Arc::clone(&calls), is_consistent: true };
        system.register(Arc::new(node)).unwrap();
    }
    let report = system.shutdown(LONG).await.unwrap();
    assert!(report.is_clean() && report.nodes.len() == MANY);
    let calls = calls.load(Ordering::Relaxed);
    assert!(calls < 30 * MANY, "{calls} calls");
}

/// A node with methods that panic.
struct Panicking(NodePath);

impl Node for Panicking {
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
async fn s347_a_node_that_panics_is_abandoned_and_the_others_are_drained() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    system.spawn("logs", actor(Logs("logs", Arc::clone(&log)), ())).await.unwrap();
    let path = NodePath::user().child("broken").unwrap();
    system.register(Arc::new(Panicking(path))).unwrap();
    let report = system.shutdown(Duration::from_secs(5)).await.unwrap();
    let broken = report.node("/user/broken").unwrap();
    assert_eq!(broken.ending(), &NodeEnding::Abandoned);
    assert_eq!((broken.drained(), broken.dead_letters()), (None, None));
    assert_eq!(report.node("/user/logs").unwrap().ending(), &NodeEnding::Drained);
}

/// Stops when it receives a message.
struct StopsItself(&'static str, Log);

impl Actor for StopsItself {
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
        me.stop(None);
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<()>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.1.lock().unwrap().push(self.0);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s341_children_of_an_actor_of_ractor_that_stops_itself_stop_first() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let new = |name| actor(StopsItself(name, Arc::clone(&log)), ());
    let parent = system.spawn("parent", new("parent")).await.unwrap();
    let child = parent.spawn("child", new("child")).await.unwrap();
    let _leaf = child.spawn("leaf", new("leaf")).await.unwrap();
    parent.send(()).unwrap();
    parent.terminated().await;
    assert_eq!(*log.lock().unwrap(), ["leaf", "child", "parent"]);
    assert!(system.tree().nodes.is_empty());
}

/// Stops when it receives a message, its children first.
struct StopsChildrenFirst {
    system: ActorSystem,
    path: NodePath,
    name: &'static str,
    log: Log,
}

impl kameo::Actor for StopsChildrenFirst {
    type Args = Self;
    type Error = kameo::error::Infallible;

    async fn on_start(
        args: Self,
        _: kameo::actor::ActorRef<Self>,
    ) -> Result<Self, kameo::error::Infallible> {
        Ok(args)
    }

    async fn on_stop(
        &mut self,
        _: kameo::actor::WeakActorRef<Self>,
        _: kameo::error::ActorStopReason,
    ) -> Result<(), kameo::error::Infallible> {
        self.system.stop_children(&self.path, LONG).await;
        self.log.lock().unwrap().push(self.name);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s341_a_stop_hook_of_kameo_can_stop_the_children_first() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let new = |path: &NodePath, name| {
        let (system, path, log) = (system.clone(), path.child(name).unwrap(), Arc::clone(&log));
        let args = StopsChildrenFirst { system, path, name, log };
        adieu_actors::kameo::actor::<StopsChildrenFirst>(args)
    };
    let user = NodePath::user();
    let parent = system.spawn("parent", new(&user, "parent")).await.unwrap();
    let child = parent.spawn("child", new(parent.path(), "child")).await.unwrap();
    parent.actor_ref().stop_gracefully().await.unwrap();
    parent.terminated().await;
    assert_eq!(*log.lock().unwrap(), ["child", "parent"]);
    drop(child);
}
