//! Dead letters, work that is left, and who is in the tree.

use std::sync::Arc;
use std::time::Duration;

use adieu_actors::{ActorSystem, NodeEnding, NodePath, Undelivered};
use adieu_core::Deadline;
use tokio::sync::Notify;

use crate::frameworks::{Framework, Job, Kameo, Log, Plain, Ractor, Script};

const LONG: Duration = Duration::from_secs(60);

async fn s169_what_comes_too_late_is_a_dead_letter<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let gone = F::spawn(&system, None, "gone", Script::new(&log)).await.unwrap();
    let sender = F::spawn(&system, None, "sender", Script::new(&log)).await.unwrap();
    let mut subscription = system.subscribe_to_dead_letters();
    let path = NodePath::user().child("gone").unwrap();
    let stopped = system.stop(&path, LONG).await.unwrap();
    assert!(stopped.is_clean());
    assert!(system.stop(&path, LONG).await.is_none());
    let to = gone.clone();
    let job = Job::new(move || async move {
        assert!(!F::send(&to, Job::forever()).await);
    });
    assert!(F::send(&sender, job).await);
    assert!(system.await_quiescence(Deadline::after(LONG)).await);
    assert!(!F::send(&gone, Job::forever()).await);

    assert_eq!(system.dead_letter_count(), 2);
    let letters = system.dead_letters();
    assert_eq!(letters.len(), 2);
    assert!(letters.iter().all(|letter| letter.to == path));
    assert!(letters.iter().all(|letter| letter.because == Undelivered::Stopped));
    let from = letters[0].from.as_ref().map(NodePath::as_str);
    assert_eq!((from, letters[1].from.as_ref()), (Some("/user/sender"), None));
    assert!(letters[0].message.is_some_and(|message| message.ends_with("Job")));
    assert_eq!(subscription.next().await.as_ref(), Some(&letters[0]));
    assert_eq!(subscription.next().await.as_ref(), Some(&letters[1]));
    assert!(letters[0].to_string().ends_with("from /user/sender, which had stopped"));
}

#[tokio::test(start_paused = true)]
async fn s169_on_kameo() {
    s169_what_comes_too_late_is_a_dead_letter::<Kameo>().await;
}

#[tokio::test(start_paused = true)]
async fn s169_on_ractor() {
    s169_what_comes_too_late_is_a_dead_letter::<Ractor>().await;
}

#[tokio::test(start_paused = true)]
async fn s169_only_the_latest_thousand_are_kept() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let stuck = Ractor::spawn(&system, None, "stuck", Script::new(&log)).await.unwrap();
    assert!(Ractor::send(&stuck, Job::forever()).await);
    for _ in 0..1500 {
        assert!(Ractor::send(&stuck, Job::forever()).await);
    }
    let report = system.shutdown(Duration::ZERO).await.unwrap();
    assert_eq!(report.dead_letters(), 1501, "{report}");
    assert_eq!(system.dead_letter_count(), report.dead_letters());
    assert_eq!(system.dead_letters().len(), 1000);
}

async fn s170_it_is_quiet_when_nobody_has_anything_to_do<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    assert!(system.await_quiescence(Deadline::after(LONG)).await);
    let ping = F::spawn(&system, None, "ping", Script::new(&log)).await.unwrap();
    let pong = F::spawn(&system, None, "pong", Script::new(&log)).await.unwrap();
    fn hop<F: Framework>(left: u32, to: F::Ref, then: F::Ref, log: Log) -> Job {
        Job::new(move || async move {
            tokio::time::sleep(Duration::from_millis(7)).await;
            log.add("hop");
            if left > 0 {
                let job = hop::<F>(left - 1, then.clone(), to.clone(), log);
                assert!(F::send(&to, job).await);
            }
        })
    }
    // There is never more than one message, and nothing in any mailbox most of the time.
    assert!(F::send(&ping, hop::<F>(99, pong.clone(), ping.clone(), log.clone())).await);
    assert!(!system.await_quiescence(Deadline::after(Duration::from_millis(300))).await);
    assert!(system.await_quiescence(Deadline::after(LONG)).await);
    assert_eq!(log.len(), 100);
    let go = Arc::new(Notify::new());
    let gone = Arc::clone(&go);
    assert!(F::send(&ping, Job::new(move || async move { gone.notified().await })).await);
    assert!(!system.await_quiescence(Deadline::after(LONG)).await);
    go.notify_one();
    assert!(system.await_quiescence(Deadline::after(LONG)).await);
}

#[tokio::test(start_paused = true)]
async fn s170_on_kameo() {
    s170_it_is_quiet_when_nobody_has_anything_to_do::<Kameo>().await;
}

#[tokio::test(start_paused = true)]
async fn s170_on_ractor() {
    s170_it_is_quiet_when_nobody_has_anything_to_do::<Ractor>().await;
}

async fn s171_the_tree_shows_who_is_there<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let worker = F::spawn(&system, Some(&orders), "worker-3", Script::new(&log)).await.unwrap();
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let job = Job::new(move || {
        begun.notify_one();
        std::future::pending()
    });
    assert!(F::send(&worker, job).await);
    began.notified().await;
    assert!(F::send(&worker, Job::forever()).await);
    assert_eq!(system.tree().to_string(), "shop\n  /user\n    orders\n      worker-3  1 queued\n");
    let path = NodePath::user().child("orders").unwrap();
    let report = system.stop(&path, Duration::from_secs(1)).await.unwrap();
    assert_eq!(report.node("/user/orders/worker-3").unwrap().ending(), &NodeEnding::Killed);
    assert_eq!(report.node("/user/orders").unwrap().ending(), &NodeEnding::Drained);
    assert!(system.tree().nodes.is_empty());
    // The name is free again.
    F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s171_on_kameo() {
    s171_the_tree_shows_who_is_there::<Kameo>().await;
}

#[tokio::test(start_paused = true)]
async fn s171_on_ractor() {
    s171_the_tree_shows_who_is_there::<Ractor>().await;
}

#[tokio::test(start_paused = true)]
async fn s171_on_plain_tokio() {
    s171_the_tree_shows_who_is_there::<Plain>().await;
}

/// An actor that blocks its thread delays only itself. In real time, because its thread is.
async fn s172_who_blocks_its_thread_delays_only_itself<F: Framework>() {
    let (system, log) = (ActorSystem::new("shop"), Log::default());
    let blocks = F::spawn(&system, None, "blocks", Script::new(&log)).await.unwrap();
    let good = F::spawn(&system, None, "good", Script::new(&log)).await.unwrap();
    let (release, until) = std::sync::mpsc::channel::<()>();
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let job = Job::new(move || async move {
        begun.notify_one();
        let _ = until.recv();
    });
    assert!(F::send(&blocks, job).await);
    began.notified().await;
    for _ in 0..10 {
        assert!(F::send(&good, Job::say(&log, "good")).await);
    }
    let report = system.shutdown(Duration::from_millis(50)).await.unwrap();
    drop(release);
    assert_eq!(report.node("/user/blocks").unwrap().ending(), &NodeEnding::Abandoned);
    assert_eq!(report.node("/user/good").unwrap().ending(), &NodeEnding::Drained);
    assert_eq!(report.nodes.last().unwrap().path().name(), "blocks");
    assert_eq!(log.lines().iter().filter(|line| *line == "good").count(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s172_on_kameo() {
    s172_who_blocks_its_thread_delays_only_itself::<Kameo>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s172_on_ractor() {
    s172_who_blocks_its_thread_delays_only_itself::<Ractor>().await;
}

/// Holds its letter without opening it.
struct Holds;

impl ractor::Actor for Holds {
    type Msg = adieu_actors::ractor::Letter<u32>;
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ractor::ActorRef<Self::Msg>,
        (): (),
    ) -> Result<(), ractor::ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ractor::ActorRef<Self::Msg>,
        letter: Self::Msg,
        (): &mut (),
    ) -> Result<(), ractor::ActorProcessingErr> {
        std::future::pending::<()>().await;
        drop(letter);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s163_a_letter_that_is_not_opened_is_counted_once() {
    let system = ActorSystem::new("shop");
    let holds = system.spawn("holds", adieu_actors::ractor::actor(Holds, ())).await.unwrap();
    for number in 0..3 {
        holds.post(number).unwrap();
    }
    let report = system.shutdown(Duration::from_secs(1)).await.unwrap();
    assert_eq!((report.dead_letters(), system.dead_letter_count()), (3, 3), "{report}");
}
