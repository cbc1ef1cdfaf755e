//! Hooks that block their thread, and applications that block all workers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{Phase, Reason, Shutdown, Step, StepFailure, StopCx};

use super::{Notes, build, outcome, seconds, shutdown};

/// Blocks its thread until the test is over, or for a while.
fn blocks(held: &Arc<Mutex<std::sync::mpsc::Receiver<()>>>) -> impl FnOnce() + Send + use<> {
    let held = Arc::clone(held);
    move || {
        let _ = held.lock().unwrap().recv_timeout(seconds(3));
    }
}

/// As many as there are workers, and the steps that they depend on.
fn blocking_steps(notes: &Notes, held: &Arc<Mutex<std::sync::mpsc::Receiver<()>>>) -> Vec<Step> {
    let brief = Duration::from_millis(100);
    let blocking = ["one", "two"].map(|id| {
        let blocks = blocks(held);
        Step::new(id).depends_on("pg").stop_timeout(brief).stop(async move |_| blocks())
    });
    let others = [notes.step("pg"), notes.step("web").depends_on("pg")];
    others.into_iter().chain(blocking).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s576_as_many_blocking_stops_as_workers_do_not_delay_the_shutdown() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (notes, held) = (Notes::new(), Arc::new(Mutex::new(held)));
    let shutdown = shutdown();
    build(blocking_steps(&notes, &held)).start(&shutdown).await.unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.took < Duration::from_millis(1_500), "{report}");
    assert_eq!(outcome(&report, "stop pg"), "finished");
    assert_eq!(outcome(&report, "stop web"), "finished");
    for id in ["stop one", "stop two"] {
        assert_eq!(outcome(&report, id), "failed: abandoned: still running", "{report}");
    }
    assert!(!report.to_string().contains("( to stop)"), "{report}");
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s576_as_many_blocking_stops_as_workers_do_not_delay_a_rollback() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (notes, held) = (Notes::new(), Arc::new(Mutex::new(held)));
    let bad = Step::new("bad").depends_on("one").start(async |_| Err::<(), _>("bad luck"));
    let steps = blocking_steps(&notes, &held).into_iter().chain([bad]);
    let began = tokio::time::Instant::now();
    let error = build(steps).start(&shutdown()).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
    assert_eq!(error.others().len(), 2, "{error}");
    assert!(notes.0.to_string().contains("stop pg: over"), "{}", notes.0);
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn s104_a_start_that_blocks_the_only_worker_is_abandoned_in_time() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let blocks = blocks(&Arc::new(Mutex::new(held)));
    let step = Step::new("blocks").start_timeout(Duration::from_millis(200));
    let began = tokio::time::Instant::now();
    let error = build([step.start(async move |_| blocks())]).start(&shutdown()).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
    assert!(matches!(error.cause().unwrap().failure, StepFailure::Abandoned), "{error}");
    drop(release);
}

// On a single thread a blocking start cannot be interrupted, but it is detected afterwards.
#[tokio::test]
async fn s575_a_start_that_blocks_the_only_thread_beyond_its_timeout_has_failed() {
    let notes = Notes::new();
    let stops = notes.clone();
    let late = Step::new("late")
        .start_timeout(Duration::from_millis(20))
        .start(async |_| std::thread::sleep(Duration::from_millis(60)))
        .stop(async move |_| stops.note("stopped"));
    let error = build([late]).start(&shutdown()).await.unwrap_err();
    assert!(matches!(error.cause().unwrap().failure, StepFailure::TimedOut(_)), "{error}");
    assert!(notes.0.to_string().contains("stopped"), "the step that came up was not stopped");
}

#[tokio::test]
async fn s106_a_stop_that_blocks_the_only_thread_beyond_its_timeout_has_timed_out() {
    let late = Step::new("late")
        .stop_timeout(Duration::from_millis(20))
        .stop(async |_| std::thread::sleep(Duration::from_millis(60)));
    let shutdown = shutdown();
    build([late]).start(&shutdown).await.unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert_eq!(outcome(&report, "stop late"), "failed: timed out after 20ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s38_awaiting_the_shutdown_in_a_stop_is_an_error() {
    let shutdown = shutdown();
    let awaits = shutdown.clone();
    let step = Step::new("awaits").stop(async move |_| awaits.completed().await.map(drop));
    build([step]).start(&shutdown).await.unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let outcome = outcome(&report, "stop awaits");
    assert!(outcome.contains("cannot wait for the end of the shutdown"), "{outcome}");
}

/// Blocks every worker until it is dropped.
fn block_workers(workers: usize) -> std::sync::mpsc::Sender<()> {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    let (blocks, blocked) = std::sync::mpsc::channel();
    for _ in 0..workers {
        let (held, blocks) = (std::sync::Arc::clone(&held), blocks.clone());
        tokio::runtime::Handle::current().spawn(async move {
            blocks.send(()).unwrap();
            let _ = held.lock().unwrap().recv();
        });
    }
    for _ in 0..workers {
        blocked.recv().unwrap();
    }
    release
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s576_steps_are_stopped_while_the_application_blocks_every_worker() {
    let notes = Notes::new();
    let (shutdown, brief) = (shutdown(), Duration::from_millis(500));
    let noted = |id: &'static str| {
        let notes = notes.clone();
        Step::new(id).stop_timeout(brief).stop(async move |_: StopCx| notes.note(id))
    };
    let lifecycle = build([noted("base"), noted("top").depends_on("base")]);
    lifecycle.start(&shutdown).await.unwrap();
    let release = block_workers(2);
    let report = shutdown.run(Reason::Unknown).wait().unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(report.took < brief, "{report}");
    let stopped = notes.0.to_string();
    assert!(stopped.find("top") < stopped.find("base") && stopped.contains("base"), "{stopped}");
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s480_the_librarys_own_tasks_run_while_the_application_blocks_every_worker() {
    let brief = Duration::from_millis(400);
    let config = adieu_core::Config::for_tests()
        .lame_duck(brief / 4)
        .phase_timeout(Phase::BEFORE_SERVICE_UNBIND, brief);
    let shutdown = Shutdown::configured(config).unwrap();
    let gate = shutdown.add_gate("http").unwrap();
    // As a server does: it accepts its queue on the application's runtime.
    let first = adieu_core::Drain::of(&gate).first(async |_| tokio::task::yield_now().await);
    shutdown.drain(first).unwrap();
    let pass = gate.enter().unwrap();
    let release = block_workers(2);
    let completion = shutdown.run(Reason::Unknown);
    std::thread::sleep(Duration::from_secs(3)); // Longer than all phases except the drain may take.
    drop(pass);
    let report = completion.wait().unwrap();
    assert!(report.is_clean(), "{report}");
    drop(release);
}
