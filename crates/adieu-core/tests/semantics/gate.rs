//! Promises about gates: admission, draining and cuts.

use std::sync::Arc;
use std::time::Duration;

use adieu_core::{
    AddTaskError, Config, Deadline, Drain, DrainClass, Draining, Gate, KillAfter, Phase, Reason,
    Shutdown, Verdict,
};
use adieu_testkit::timeline::Timeline;
use expect_test::expect;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

#[tokio::test(start_paused = true)]
async fn s58_a_closed_gate_admits_no_work_and_stays_empty() {
    let gate = Gate::new("g");
    let (first, second) = (gate.enter().unwrap(), gate.enter().unwrap());
    assert_eq!(gate.in_flight(), 2);
    assert!(!gate.is_closed() && !gate.is_drained() && !first.is_draining());
    gate.close();
    gate.close();
    assert!(first.is_draining() && second.is_draining());
    assert!(gate.is_closed() && gate.enter().is_err() && !gate.is_drained());
    drop(first);
    assert_eq!(gate.in_flight(), 1);
    drop(second);
    assert!(gate.is_drained() && gate.enter().is_err() && gate.is_drained());
    assert_eq!(gate.drained(soon()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn s58_waiting_ends_with_the_last_pass_or_at_the_deadline() {
    let gate = Gate::new("g");
    let pass = gate.enter().unwrap();
    gate.close();
    let timeline = Timeline::new();
    let left = gate.drained(Deadline::after(Duration::from_secs(3))).await;
    timeline.note(format!("{left} left"));
    let leaving = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        drop(pass);
    };
    let (left, ()) = tokio::join!(gate.drained(soon()), leaving);
    timeline.note(format!("{left} left"));
    expect![[r"
        3s 1 left
        7s 0 left
    "]]
    .assert_eq(&timeline.to_string());
}

// Many threads enter, pass their passes on to each other and leave while the gate closes.
#[test]
fn s58_closed_and_empty_is_final_on_many_threads() {
    for _ in 0..200 {
        let gate = Gate::new("g");
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let gate = gate.clone();
                std::thread::spawn(move || {
                    let mut carried = Vec::new();
                    while let Ok(pass) = gate.enter() {
                        carried.push(std::thread::spawn(move || drop(pass)));
                        if carried.len() > 8 {
                            break;
                        }
                    }
                    for carrier in carried {
                        carrier.join().unwrap();
                    }
                })
            })
            .collect();
        gate.close();
        while !gate.is_drained() {
            std::thread::yield_now();
        }
        assert!(gate.enter().is_err());
        assert_eq!(gate.in_flight(), 0);
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(gate.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn s59_a_clone_is_admitted_while_its_parent_lives_even_when_draining() {
    let gate = Gate::new("g");
    let parent = gate.enter().unwrap();
    gate.close();
    let child = parent.clone();
    drop(parent);
    assert!(!gate.is_drained(), "zero although work is admitted");
    let grandchild = std::thread::spawn(move || child.clone()).join().unwrap();
    assert_eq!(gate.in_flight(), 1);
    drop(grandchild);
    assert!(gate.is_drained());
}

#[tokio::test(start_paused = true)]
async fn s60_admitted_work_may_enter_again_across_join_timeout_and_spawn() {
    let (gate, other) = (Gate::new("g"), Gate::new("other"));
    let pass = gate.enter().unwrap();
    gate.close();
    other.close();
    assert!(gate.enter().is_err());
    let second = Duration::from_secs(1);
    pass.scope(async {
        let nested = gate.enter().expect("it rides");
        assert!(other.enter().is_err(), "the pass is for another gate");
        drop(nested);
        tokio::time::sleep(second).await;
        assert!(gate.enter().is_ok(), "refused after an await");
        let enter = async || {
            tokio::time::sleep(second).await;
            gate.enter().is_ok()
        };
        assert_eq!(tokio::join!(enter(), enter()), (true, true));
        assert!(tokio::time::timeout(10 * second, enter()).await.unwrap());

        // A spawned task has no pass unless it gets one.
        let stranger = {
            let gate = gate.clone();
            async move { gate.enter().is_ok() }
        };
        let alone = tokio::task::JoinSet::from_iter([stranger]).join_next().await;
        assert!(!alone.unwrap().unwrap());
        let gate_of_task = gate.clone();
        let spawned = gate.spawn(async move { gate_of_task.enter().is_ok() }).unwrap();
        assert!(spawned.await.unwrap());
    })
    .await;
    assert!(gate.is_drained());
    assert!(gate.spawn(async {}).is_err());
}

#[tokio::test(start_paused = true)]
async fn s60_work_spawned_with_the_gate_keeps_it_from_draining() {
    let gate = Gate::new("g");
    let pass = gate.enter().unwrap();
    gate.close();
    let mut detached = None;
    pass.scope(async {
        detached = Some(gate.spawn(tokio::time::sleep(Duration::from_secs(5))).unwrap());
    })
    .await;
    assert_eq!(gate.in_flight(), 1, "the spawned work is still running");
    detached.unwrap().await.unwrap();
    assert!(gate.is_drained());
}

#[test]
fn s61_a_refusal_contains_a_code_a_delay_and_a_verdict() {
    let gate = Gate::new("g");
    gate.set_retry_after(Duration::from_secs(5));
    gate.close();
    let refused = gate.enter().unwrap_err();
    assert_eq!(Draining::CODE, "draining");
    assert_eq!(refused.to_string(), "draining: try again in 5s");
    assert_eq!(refused.retry_after(), Duration::from_secs(5));
    assert_eq!(refused.verdict(), Verdict::Requeue { after: Duration::from_secs(5) });
}

#[tokio::test(start_paused = true)]
async fn s62_labelled_work_is_listed_oldest_first() {
    let gate = Gate::new("http");
    let _plain = gate.enter().unwrap();
    let first = gate.enter().unwrap().labelled("GET /export");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let _second = gate.enter().unwrap().labelled(String::from("POST /orders"));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(gate.summary(), "3 in flight, oldest 6s GET /export, 4s POST /orders");
    assert_eq!(gate.oldest(1).len(), 1);
    drop(first);
    assert_eq!(gate.summary(), "2 in flight, oldest 4s POST /orders");
    // A label can be set and changed later. Its age counts from then on.
    let mut late = gate.enter().unwrap();
    late.set_label("a request");
    late.set_label("GET /late");
    assert_eq!(gate.summary(), "3 in flight, oldest 4s POST /orders, 0s GET /late");
}

#[tokio::test(start_paused = true)]
async fn s62_the_report_names_remaining_work() {
    let config = Config::for_tests().drain_timeout(Duration::from_secs(5));
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    let _stuck = gate.enter().unwrap().labelled("GET /export");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let completed = shutdown.run(Reason::Unknown);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let waiting = &shutdown.status().waiting_for;
    assert_eq!(waiting[0].detail.as_deref(), Some("1 in flight, oldest 4s GET /export"));
    let report = completed.await.unwrap();
    let drain = report.phase(Phase::SERVICE_REQUESTS_DONE).unwrap().task("drain http").unwrap();
    assert_eq!(drain.outcome.to_string(), "timed out after 5s");
    assert_eq!(drain.detail.as_deref(), Some("1 in flight, oldest 6s GET /export"));
    assert!(report.to_string().contains("timed out after 5s (1 in flight, oldest 6s GET /export)"));
}

#[tokio::test(start_paused = true)]
async fn s63_each_class_is_signalled_at_its_time() {
    let gate = Gate::new("g");
    let finish = gate.enter().unwrap();
    let stream = gate.enter_as(DrainClass::CloseNow).unwrap();
    let export = gate.enter_as(DrainClass::Resumable).unwrap();
    let tokens = [&finish, &stream, &export].map(adieu_core::Pass::token);
    let cancelled = || tokens.each_ref().map(|token| token.is_cancelled());
    assert_eq!(cancelled(), [false, false, false]);
    gate.close();
    assert_eq!(cancelled(), [false, true, true]);
    gate.cut();
    assert_eq!(cancelled(), [true, true, true]);
    finish.cancelled().await;
    assert_eq!(stream.clone().class(), DrainClass::CloseNow);
}

#[tokio::test(start_paused = true)]
async fn s64_an_empty_gate_drains_at_once_and_an_expired_window_ends_the_drain() {
    for (inside, took) in [(0, 0), (2, 5_000)] {
        let kill_after = KillAfter::After(Duration::from_secs(60));
        let config = Config::for_tests().drain_timeout(Duration::from_secs(5));
        let shutdown = Shutdown::configured(config.kill_after(kill_after)).unwrap();
        let gate = shutdown.add_gate("http").unwrap();
        let work: Vec<_> = (0..inside).map(|_| gate.enter().unwrap()).collect();
        // Work that listens to the cut ends when its window has elapsed.
        let listening: tokio::task::JoinSet<_> =
            work.into_iter().map(|pass| async move { pass.cancelled().await }).collect();
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        assert_eq!(report.took, Duration::from_millis(took));
        assert_eq!(report.is_clean(), inside == 0);
        listening.join_all().await;
        assert!(gate.is_drained());
    }
}

#[tokio::test(start_paused = true)]
async fn s571_a_gate_is_drained_once_after_all_functions_that_come_first() {
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let gate = shutdown.add_gate("api").unwrap();
    let timeline = Timeline::new();
    for ms in [1_000, 1_500] {
        let (timeline, gate) = (timeline.clone(), gate.clone());
        let first = Drain::of(&gate.clone()).first(async move |_| {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            timeline.note(format!("closed: {}", gate.is_closed()));
        });
        shutdown.drain(first).unwrap();
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    expect![[r#"
        1s closed: false
        1s 500ms closed: false
    "#]]
    .assert_eq(&timeline.to_string());
    let tasks = report.phase(&Phase::SERVICE_UNBIND).unwrap().tasks.len();
    assert_eq!(tasks, 1, "{report}");
    let late = shutdown.drain(&gate).unwrap_err();
    assert!(matches!(late, AddTaskError::TooLate { .. }), "{late}");
}

#[tokio::test(start_paused = true)]
async fn s65_a_cordon_is_reversible_until_the_gate_is_closed() {
    let gate = Gate::new("g");
    let inside = gate.enter().unwrap();
    gate.cordon();
    assert!(gate.is_cordoned() && gate.enter().is_err());
    assert!(!gate.is_drained(), "a cordoned gate is not drained");
    assert!(gate.uncordon() && gate.uncordon());
    drop(gate.enter().unwrap());
    gate.cordon();
    gate.close();
    gate.cordon();
    assert!(!gate.uncordon() && gate.is_closed() && gate.enter().is_err());
    drop(inside);
    assert!(gate.is_drained());
}

#[test]
fn s214_a_gate_reuses_the_memory_of_a_dropped_one() {
    // The counters are reused. The new gate shows no state of the old one.
    for _ in 0..100 {
        let gate = Gate::new("g");
        assert!(!gate.is_closed() && gate.in_flight() == 0 && gate.oldest(1).is_empty());
        let pass = gate.enter().unwrap().labelled("x");
        let clone = gate.clone();
        drop(gate);
        clone.close();
        assert!(!pass.clone().token().is_cancelled() && clone.in_flight() == 1);
        drop(clone);
        drop(pass);
    }
    let gate = Arc::new(Gate::new("g"));
    assert!(gate.enter().is_ok());
}

#[tokio::test]
async fn s196_a_pass_whose_label_panics_when_dropped_leaves_its_gate() {
    struct Bomb;
    impl std::fmt::Display for Bomb {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a label")
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a label that panics when it is dropped")
        }
    }
    let shutdown = Shutdown::configured(Config::for_tests()).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    let mut pass = gate.enter().unwrap().labelled(Bomb);
    pass.set_label(Bomb);
    assert_eq!(gate.oldest(1)[0].label, "a label");
    gate.close();
    drop(pass);
    assert!(gate.is_drained());
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn s1230_a_pass_knows_when_its_window_ends() {
    let config = Config::for_tests()
        .kill_after(KillAfter::After(Duration::from_secs(20)))
        .drain_timeout(Duration::from_secs(5));
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    let pass = gate.enter().unwrap();
    assert_eq!(pass.window_end(), None);
    let completed = shutdown.run(Reason::Unknown);
    let began = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let end = pass.window_end().unwrap();
    assert_eq!(end.instant() - began, Duration::from_secs(5));
    // The work is cut off then, not earlier.
    pass.cancelled().await;
    assert_eq!(tokio::time::Instant::now().duration_since(end.instant()).as_millis(), 0);
    drop(pass);
    completed.await.unwrap();

    // A gate that no shutdown drains has no window.
    let gate = Gate::new("own");
    let pass = gate.enter().unwrap();
    gate.close();
    assert_eq!(pass.window_end(), None);
}

#[tokio::test(start_paused = true)]
async fn s1230_the_window_ends_sooner_if_the_deadline_is_shortened() {
    let config = Config::for_tests().kill_after(KillAfter::After(Duration::from_secs(60)));
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    let pass = gate.enter().unwrap();
    let completed = shutdown.run(Reason::Unknown);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let first = pass.window_end().unwrap();
    shutdown.shorten(Duration::from_secs(20));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let second = pass.window_end().unwrap();
    assert!(second < first, "{first:?} {second:?}");
    assert!(second < shutdown.deadline().unwrap());
    pass.cancelled().await;
    assert_eq!(tokio::time::Instant::now().duration_since(second.instant()).as_millis(), 0);
    drop(pass);
    completed.await.unwrap();
}
