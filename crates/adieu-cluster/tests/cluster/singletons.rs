//! Singletons: one instance, handed over, never two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use adieu_cluster::store::Memory;
use adieu_cluster::{SingletonCx, Stage};
use adieu_core::Reason;

use crate::stage::{History, SECOND, TTL, config, id, is_at, node, node_with, until};

#[tokio::test(start_paused = true)]
async fn s630_a_singleton_is_handed_over_when_its_node_leaves() {
    let (store, history) = (Memory::new(), History::default());
    let one = node(&store, "one").sweeper(&history).joined().await;
    let two = node(&store, "two").sweeper(&history).joined().await;
    let three = node(&store, "three").sweeper(&history).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    // Long enough for the others to be preferred.
    tokio::time::sleep(5 * SECOND).await;
    let (report, took) = one.leave().await;
    assert!(report.is_clean() && took < SECOND, "{report}");
    until("it runs elsewhere", || history.running().len() == 1).await;
    let owner = history.running()[0].clone();
    let (next, last) = if owner == "two" { (two, three) } else { (three, two) };
    next.leave().await;
    until("it runs at the last", || history.running() == [last.cluster.id().as_str()]).await;
    let (report, took) = last.leave().await;
    assert!(report.is_clean() && took < SECOND, "{report}");
    assert!(history.running().is_empty());
    assert_eq!(history.owners().len(), 3);
    history.assert_sound();
}

/// A timer has a resolution of a millisecond, which is longer than a commit takes.
#[tokio::test(start_paused = true)]
async fn s884_a_hand_over_waits_for_no_timer() {
    let (store, history) = (Memory::new(), History::default());
    let one = node(&store, "one").sweeper(&history).joined().await;
    let _two = node(&store, "two").sweeper(&history).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    // Between two ticks of the timer.
    tokio::time::advance(SECOND / 3_000).await;
    one.leave().await;
    until("it runs elsewhere", || history.running() == ["two"]).await;
    assert_eq!(history.began_at("two"), history.ended_at("one"));
    history.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn s631_a_singleton_of_a_node_without_store_ends_before_the_next_begins() {
    let (store, history) = (Memory::new(), History::default());
    let one = node(&store, "one").sweeper(&history).joined().await;
    let _two = node(&store, "two").sweeper(&history).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    one.store.faults().cut(true);
    until("it runs elsewhere", || history.running() == ["two"]).await;
    history.assert_sound();
    let (ended, began) = (history.ended_at("one"), history.began_at("two"));
    // It ended a margin before the session, and the next waited for the removal margin.
    assert!(began - ended >= 3 * SECOND, "{:?}", began - ended);
    assert!(began - ended <= TTL, "{:?}", began - ended);
    assert_eq!(one.shutdown.reason(), Some(Reason::ClusterDowning));
}

#[tokio::test(start_paused = true)]
async fn s632_a_singleton_that_does_not_stop_is_dropped_and_still_handed_over() {
    let (store, history) = (Memory::new(), History::default());
    let stubborn = |_| std::future::pending::<()>();
    let one = node(&store, "one").singleton("sweeper", &history, stubborn).joined().await;
    let _two = node(&store, "two").singleton("sweeper", &history, stubborn).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    let (report, took) = one.leave().await;
    // The phase has ten seconds, and the last of them is for this.
    assert!((9 * SECOND..10 * SECOND).contains(&took), "{took:?}");
    let task =
        report.phase("cluster-exiting").unwrap().task("cluster: hand over singletons").unwrap();
    let text = format!("{task:?}");
    let expected = "singletons dropped, because they did not end within 9s: sweeper";
    assert!(text.contains(expected), "{text}");
    assert_eq!(one.cluster.stage(), Stage::Removed);
    until("it runs elsewhere", || history.running() == ["two"]).await;
    history.assert_sound();
}

/// In real time, because code that blocks does not let the paused clock go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s636_a_singleton_that_blocks_its_thread_keeps_its_place_until_it_ends() {
    let (store, history) = (Memory::new(), History::default());
    let blocks = |cx: SingletonCx| async move {
        cx.stopped().await;
        std::thread::sleep(4 * SECOND);
    };
    let config = || {
        let short = SECOND / 2;
        config()
            .phase_timeout("cluster-exiting", short)
            .phase_timeout("cluster-exiting-done", short)
            .phase_timeout("cluster-shutdown", short)
    };
    let with = |name| node_with(&store, name, config(), |it| it.ttl(SECOND));
    let one = with("one").singleton("sweeper", &history, blocks).joined().await;
    let _two = with("two").singleton("sweeper", &history, blocks).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    let (report, took) = one.leave().await;
    assert!(!report.is_clean() && took < 4 * SECOND, "{report}");
    assert!(format!("{report:?}").contains("cannot be stopped"), "{report:?}");
    assert_eq!(history.running(), ["one"]);
    until("it runs elsewhere", || history.running() == ["two"]).await;
    history.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn s633_a_singleton_that_fails_is_started_again_and_one_that_returns_is_not() {
    let store = Memory::new();
    let one = node(&store, "one");
    let (fails, returns) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&fails);
    one.cluster
        .singleton("fails", move |_| {
            let count = count.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(count != 1, "a panic is a failure, too");
                Err::<(), _>("not today")
            }
        })
        .unwrap();
    let count = Arc::clone(&returns);
    one.cluster
        .singleton("returns", move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            async {}
        })
        .unwrap();
    let one = one.joined().await;
    until("it failed three times", || fails.load(Ordering::Relaxed) == 3).await;
    assert_eq!(returns.load(Ordering::Relaxed), 1);
    let (report, took) = one.leave().await;
    assert!(report.is_clean() && took < SECOND, "{report}");
}

#[tokio::test(start_paused = true)]
async fn s634_when_the_cluster_stops_singletons_are_not_moved_around() {
    let (store, history) = (Memory::new(), History::default());
    let one = node(&store, "one").sweeper(&history).joined().await;
    let two = node(&store, "two").sweeper(&history).joined().await;
    until("it runs", || history.running() == ["one"]).await;
    two.cluster.stop_all().await.unwrap();
    let (first, second) = tokio::join!(one.completed(), two.completed());
    assert!(first.is_clean() && second.is_clean());
    assert_eq!(history.owners(), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn s635_a_cordoned_node_receives_no_singleton() {
    let (store, history) = (Memory::new(), History::default());
    let one = node(&store, "one").sweeper(&history).joined().await;
    let two = node(&store, "two").sweeper(&history).joined().await;
    let three = node(&store, "three").sweeper(&history).joined().await;
    two.shutdown.mark_started();
    two.shutdown.cordon();
    until("the others have seen it", || {
        one.cluster.status().nodes.iter().any(|it| it.node == id("two") && !it.ready)
    })
    .await;
    one.leave().await;
    until("it runs", || history.running() == [three.cluster.id().as_str()]).await;
    history.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn s604_an_instance_can_see_that_it_may_no_longer_act() {
    let store = Memory::new();
    let kept = Arc::new(std::sync::Mutex::new(None::<SingletonCx>));
    let one = node_with(&store, "one", config().run_when_down(false), |it| it);
    let keep = Arc::clone(&kept);
    one.cluster
        .singleton("sweeper", move |cx: SingletonCx| {
            *keep.lock().unwrap() = Some(cx.clone());
            async move { cx.stopped().await }
        })
        .unwrap();
    let one = one.joined().await;
    until("it runs", || kept.lock().unwrap().is_some()).await;
    let cx = kept.lock().unwrap().clone().unwrap();
    assert_eq!(cx.check().unwrap(), cx.fence());
    one.store.faults().cut(true);
    is_at(&one, Stage::Down).await;
    assert_eq!(cx.check().unwrap_err().fence, cx.fence());
    assert!(cx.is_stopped());
}

/// By the clock, without the help of the driver.
#[tokio::test(start_paused = true)]
async fn s1274_an_instance_that_may_no_longer_act_is_stopped() {
    let store = Memory::new();
    let (send, mut contexts) = tokio::sync::mpsc::channel::<SingletonCx>(1);
    let one = node_with(&store, "one", config().run_when_down(false), |it| it);
    let sweeper = move |me: SingletonCx| {
        let send = send.clone();
        async move {
            send.send(me).await.unwrap();
            std::future::pending::<()>().await;
        }
    };
    one.cluster.singleton("sweeper", sweeper).unwrap();
    let one = one.joined().await;
    let me = contexts.recv().await.unwrap();
    assert!(!me.is_stopped() && me.check().is_ok());
    // The clock advances, and the driver does not run.
    let mut advance = std::pin::pin!(tokio::time::advance(2 * TTL));
    let polled = std::future::poll_fn(|cx| Poll::Ready(advance.as_mut().poll(cx))).await;
    assert!(polled.is_pending(), "the driver has run");
    assert!(me.is_stopped() && me.check().is_err());
    me.stopped().await;
    drop(one);
}
