//! The phase of the actors is cut short: the report names the messages that were lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use adieu_actors::{ActorSystem, NodeEnding, Worker, WorkerThreads};
use adieu_core::{Config, Format, Phase, Reason, Report, Rung, Shutdown, Signal};
use tokio::sync::Notify;

use crate::frameworks::{Framework, Job, Kameo, Log, Ractor, Script, Tasks};

const QUEUED: u64 = 20;

fn with_timeout(phase: &str) -> Shutdown {
    let config = format!("[phases.actor-system-terminate]\ntimeout = \"{phase}\"\n");
    let config = Config::parse(&config, Format::Toml).unwrap().terminate_actor_system(true);
    Shutdown::configured(config).unwrap()
}

/// Returns the error, or the detail, of the only task of the actors' phase, and the findings.
fn named(report: &Report) -> String {
    let phase = report.phase(Phase::ACTOR_SYSTEM_TERMINATE).unwrap();
    let tasks = phase.tasks.iter().map(|task| format!("{} {:?}", task.outcome, task.detail));
    let findings = report.findings.iter().map(|finding| finding.what.clone());
    tasks.chain(findings).collect::<Vec<_>>().join("\n")
}

/// Returns the numbers before this text.
fn numbers_before(text: &str, what: &str) -> Vec<u64> {
    let before = text.match_indices(what).map(|(at, _)| text[..at].trim_end());
    before.filter_map(|text| text.rsplit([' ', '(']).next()?.parse().ok()).collect()
}

// The time of the phase is too short for the grace of killed actors.
async fn s1001_messages_lost_in_a_phase_shorter_than_the_grace_are_counted<F: Framework>() {
    for timeout in ["1s", "300ms", "2s", "10s"] {
        let (shutdown, log) = (with_timeout(timeout), Log::default());
        let system = ActorSystem::on(&shutdown, "shop").unwrap();
        let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
        assert!(F::send(&orders, Job::forever()).await);
        for _ in 0..QUEUED {
            assert!(F::send(&orders, Job::log(&log, "processed")).await);
        }
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        let text = named(&report);
        assert!(text.contains("/user/orders was killed, 21 dead letters"), "{timeout}: {report}");
        assert_eq!(system.dead_letter_count(), 21, "{timeout}: {report}");
    }
}

on_all_actors![
    s1001_messages_lost_in_a_phase_shorter_than_the_grace_are_counted,
    s1803_after_a_hard_stop_messages_are_processed_for_most_of_the_time,
];

/// Keeps all cores busy until it is dropped.
struct Busy(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Busy {
    fn threads(count: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || while !is_over.load(Ordering::Relaxed) {})
        };
        let threads = (0..count).map(spin).collect();
        Self(is_over, threads)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Runs shutdowns in real time on a busy machine, with more messages than there is time for.
fn on_a_busy_machine<F: Framework>() {
    const SENT: u64 = 2_000;
    let busy = Busy::threads(24);
    for _ in 0..4 {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        let handled = Arc::new(AtomicU64::new(0));
        let report = runtime.block_on(async {
            let (shutdown, log) = (with_timeout("400ms"), Log::default());
            let system = ActorSystem::on(&shutdown, "shop").unwrap();
            let script = Script { room: Some(10_000), ..Script::new(&log) };
            let orders = F::spawn(&system, None, "orders", script).await.unwrap();
            for _ in 0..SENT {
                let handled = Arc::clone(&handled);
                let job = Job::new(move || async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    handled.fetch_add(1, Ordering::SeqCst);
                });
                assert!(F::send(&orders, job).await);
            }
            shutdown.run(Reason::Unknown).await.unwrap()
        });
        let (text, handled) = (named(&report), handled.load(Ordering::SeqCst));
        assert!(!report.is_clean(), "{report}");
        let dead = numbers_before(&text, " dead letters");
        let (lost, queued) = (SENT - handled, numbers_before(&text, " messages queued"));
        let is_exact = dead.contains(&lost);
        let at_least = numbers_before(&text, " queued)");
        let is_bound = queued.iter().chain(&at_least).any(|count| *count > 0 && *count <= lost);
        assert!(is_exact || is_bound, "{lost} lost: {report}");
    }
    drop(busy);
}

#[test]
fn s1001_messages_of_kameo_lost_on_a_busy_machine_are_named() {
    on_a_busy_machine::<Kameo>();
}

#[test]
fn s1001_messages_of_ractor_lost_on_a_busy_machine_are_named() {
    on_a_busy_machine::<Ractor>();
}

#[test]
fn s1001_messages_of_tasks_lost_on_a_busy_machine_are_named() {
    on_a_busy_machine::<Tasks>();
}

// The actor reacts to its kill after its phase was cut, and before the task of the phase is aborted.
async fn messages_of_an_actor_that_ends_late_are_named<F: Framework>() {
    let (shutdown, log) = (with_timeout("1s"), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let job = Job::new(move || async move {
        begun.notify_one();
        std::thread::sleep(Duration::from_millis(1_100));
        std::future::pending().await
    });
    assert!(F::send(&orders, job).await);
    began.notified().await;
    for _ in 0..QUEUED {
        assert!(F::send(&orders, Job::log(&log, "processed")).await);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let text = named(&report);
    let is_exact = text.contains("/user/orders was killed, 21 dead letters");
    let is_bound = text.contains("20 queued)") || text.contains("at least");
    assert!(is_exact || is_bound, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s1001_messages_of_an_actor_of_kameo_that_ends_late_are_named() {
    messages_of_an_actor_that_ends_late_are_named::<Kameo>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s1001_messages_of_an_actor_of_ractor_that_ends_late_are_named() {
    messages_of_an_actor_that_ends_late_are_named::<Ractor>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s1001_messages_of_a_task_that_ends_late_are_named() {
    messages_of_an_actor_that_ends_late_are_named::<Tasks>().await;
}

// The handler blocks its thread, so whether its message is done cannot be known.
async fn an_abandoned_actor_has_no_exact_number<F: Framework>() {
    let (shutdown, log) = (with_timeout("500ms"), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    let (release, until) = std::sync::mpsc::channel::<()>();
    let began = Arc::new(Notify::new());
    let begun = Arc::clone(&began);
    let job = Job::new(move || async move {
        begun.notify_one();
        let _ = until.recv();
    });
    assert!(F::send(&orders, job).await);
    began.notified().await;
    for _ in 0..QUEUED {
        assert!(F::send(&orders, Job::log(&log, "processed")).await);
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let text = named(&report);
    let abandoned = "/user/orders could not be killed, and is still running, \
                     dead letters unknown (at least 0, 20 queued)";
    assert!(text.contains(abandoned), "{report}");
    let drained = system.terminate(Duration::ZERO).await.unwrap();
    let node = drained.node("/user/orders").unwrap();
    assert_eq!((node.ending(), node.dead_letters()), (&NodeEnding::Abandoned, None));
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s1002_an_abandoned_actor_of_kameo_has_no_exact_number_of_dead_letters() {
    an_abandoned_actor_has_no_exact_number::<Kameo>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s1002_an_abandoned_actor_of_ractor_has_no_exact_number_of_dead_letters() {
    an_abandoned_actor_has_no_exact_number::<Ractor>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn s1002_an_abandoned_task_has_no_exact_number_of_dead_letters() {
    an_abandoned_actor_has_no_exact_number::<Tasks>().await;
}

#[tokio::test]
async fn s1001_messages_of_workers_lost_in_a_phase_shorter_than_the_grace_are_counted() {
    let shutdown = with_timeout("1s");
    let threads = WorkerThreads::builder("back").count(1).start(async |mut worker: Worker<u64>| {
        let _first = worker.recv().await;
        std::future::pending::<()>().await;
    });
    let threads = threads.unwrap();
    threads.on(&shutdown).unwrap();
    for number in 0..QUEUED {
        threads.send(0, number).await.unwrap();
    }
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    let text = named(&report);
    assert!(text.contains("worker 0 was cut short, 20 dead letters"), "{report}");
}

/// After a hard stop, with a reserve of 6 s, their phase has 3.3 s.
async fn s1803_after_a_hard_stop_messages_are_processed_for_most_of_the_time<F: Framework>() {
    const SENT: usize = 24; // They take 2.4 s.
    let text = "kill-after = \"none\"\nlame-duck = \"0s\"\nreserve = \"6s\"\n";
    let config = Config::parse(text, Format::Toml).unwrap();
    let (shutdown, log) = (Shutdown::configured(config).unwrap(), Log::default());
    let system = ActorSystem::on(&shutdown, "shop").unwrap();
    let orders = F::spawn(&system, None, "orders", Script::new(&log)).await.unwrap();
    shutdown
        .add_task(Phase::BEFORE_SERVICE_UNBIND, "hang", async |_| {
            std::future::pending::<()>().await
        })
        .unwrap();
    assert_eq!(shutdown.receive(Signal::INT), Some(Rung::Graceful));
    for _ in 0..SENT {
        let log = log.clone();
        let job = Job::new(move || async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            log.add("processed");
        });
        assert!(F::send(&orders, job).await);
    }
    // A repeated signal that comes at once would not count.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(shutdown.receive(Signal::INT), Some(Rung::HardStop));
    let report = shutdown.completed().await.unwrap();
    assert_eq!(log.lines().iter().filter(|line| *line == "processed").count(), SENT, "{report}");
    assert_eq!(system.dead_letter_count(), 0, "{report}");
}
