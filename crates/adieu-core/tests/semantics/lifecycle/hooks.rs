//! The results of hooks, how hooks are wrapped, and the loops that they add.

use std::sync::{Arc, OnceLock};

use adieu_core::{
    DeploymentProfile, Lifecycle, LoopCx, Reason, Signal, StartCx, StartHook, Started, Step,
    StopCx, StopHook,
};
use expect_test::expect;

use super::{Notes, build, seconds, shutdown, sleep};

#[tokio::test(start_paused = true)]
async fn s114_a_stop_gets_the_value_of_its_start() {
    let notes = Notes::new();
    let pool: Arc<OnceLock<Arc<str>>> = Arc::default();
    let (filled, used, noted) = (Arc::clone(&pool), Arc::clone(&pool), notes.clone());
    let lifecycle = build([
        Step::new("pool").run(
            async move |_| {
                let pool: Arc<str> = "ten connections".into();
                let _ = filled.set(Arc::clone(&pool));
                Ok::<_, std::io::Error>(pool)
            },
            async move |pool: Arc<str>, cx: StopCx| noted.note(format!("{}: {pool}", cx.step())),
        ),
        Step::new("web").depends_on("pool").start(async move |_| {
            assert_eq!(used.get().map(|pool| &**pool), Some("ten connections"));
        }),
    ]);
    let shutdown = shutdown();
    lifecycle.start(&shutdown).await.unwrap();
    shutdown.run(Reason::Unknown).await.unwrap();
    notes.check(expect![[r#"
        0s pool: ten connections
    "#]]);
}

/// Wraps a step like a guard that lets one replica run it.
fn guarded(step: Step, notes: &Notes, is_ours: bool) -> Step {
    let notes = notes.clone();
    let wrapped = step.singleton_guarded().extend_start_timeout(seconds(60));
    wrapped.wrap(async move |start: StartHook, cx: StartCx| {
        assert_eq!(cx.remaining(), seconds(90));
        if !is_ours {
            return Ok(Started::skipped("held by another replica"));
        }
        notes.note("locked");
        let started = start.start(cx).await?;
        notes.note("unlocked");
        let noted = notes.clone();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(started.wrap_stop(
            async move |stop: StopHook, cx: StopCx| {
                noted.note("before the stop");
                let ended = stop.stop(cx).await;
                noted.note("after the stop");
                ended
            },
        ))
    })
}

#[tokio::test(start_paused = true)]
async fn s114_hooks_can_be_wrapped_and_skipped_steps_are_not_stopped() {
    let notes = Notes::new();
    let (started, stopped) = (notes.clone(), notes.clone());
    let indexes = || {
        let (started, stopped) = (started.clone(), stopped.clone());
        Step::new("indexes")
            .mutates_shared_state()
            .start(async move |_| started.note("made"))
            .stop(async move |_| stopped.note("stopped"))
    };
    for is_ours in [true, false] {
        let shutdown = shutdown();
        let lifecycle = Lifecycle::builder()
            .profile(DeploymentProfile::Fleet)
            .step(guarded(indexes(), &notes, is_ours))
            .build()
            .unwrap();
        assert_eq!(lifecycle.start_budget(), seconds(90));
        lifecycle.start(&shutdown).await.unwrap();
        assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    }
    notes.check(expect![[r#"
        0s locked
        0s made
        0s unlocked
        0s before the stop
        0s stopped
        0s after the stop
    "#]]);
}

/// Adds a loop that records when it begins and ends.
fn looping(notes: &Notes) -> impl FnOnce(StartCx) -> std::future::Ready<()> + Send + use<> {
    let notes = notes.clone();
    move |cx: StartCx| {
        let work = move |cx: LoopCx| {
            let notes = notes.clone();
            async move {
                let span = notes.0.start("loop:");
                cx.stops_now().await;
                sleep(50).await;
                span.over();
            }
        };
        cx.shutdown().add_loop("orders", work).unwrap();
        std::future::ready(())
    }
}

#[tokio::test(start_paused = true)]
async fn s113_loops_that_a_step_has_added_end_before_steps_are_stopped() {
    for hard in [false, true] {
        let notes = Notes::new();
        let shutdown = shutdown();
        let consumer = Step::new("consumer").depends_on("pg").start(looping(&notes));
        build([notes.step("pg"), consumer]).start(&shutdown).await.unwrap();
        let completion = shutdown.run(Reason::Unknown);
        if hard {
            for _ in 0..3 {
                let _ = shutdown.receive(Signal::TERM);
                sleep(600).await;
            }
        }
        completion.await.unwrap();
        let order: Vec<String> = notes
            .0
            .to_string()
            .lines()
            .filter_map(|line| line.split_once("ms ").map(|(_, what)| what.to_owned()))
            .collect();
        assert_eq!(
            order,
            ["pg: over", "loop: started", "loop: over", "stop pg: started", "stop pg: over"],
        );
    }
}

#[tokio::test(start_paused = true)]
async fn s113_loops_that_a_step_has_added_end_when_start_up_fails() {
    let notes = Notes::new();
    let shutdown = shutdown();
    let lifecycle = build([
        notes.step("pg"),
        Step::new("consumer").depends_on("pg").start(looping(&notes)),
        Step::new("deaf").depends_on("pg").start(async |cx: StartCx| {
            cx.shutdown().add_loop("deaf", async |_| std::future::pending::<()>().await).unwrap();
        }),
        notes
            .starting("bad", async |_| {
                sleep(100).await;
                Err("bad luck")
            })
            .depends_on("consumer"),
    ]);
    let error = lifecycle.start(&shutdown).await.unwrap_err();
    expect![[r#"
        failed to start up: step bad did not start: bad luck
          loop deaf did not end: aborted"#]]
    .assert_eq(&error.to_string());
    notes.check(expect![[r#"
        0s pg: started
        100ms pg: over
        100ms loop: started
        100ms bad: started
        200ms bad: over
        250ms loop: over
        5s 200ms stop pg: started
        5s 210ms stop pg: over
    "#]]);
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
}
