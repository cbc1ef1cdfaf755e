use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adieu_core::{
    AddLoopError, Backoff, Config, Consumer, Interrupted, JobCx, KillAfter, LoopCx, LoopSpec,
    Outcome, Periodic, Phase, Reason, Report, Shutdown, Signal, Source,
};
use adieu_testkit::timeline::Timeline;
use expect_test::expect;
use tokio::sync::Notify;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

async fn sleep(count: u64) {
    tokio::time::sleep(seconds(count)).await;
}

fn shutdown() -> Shutdown {
    Shutdown::configured(Config::for_tests()).unwrap()
}

fn outcome(report: &Report, phase: Phase, task: &str) -> String {
    report.phase(&phase).unwrap().task(task).unwrap().outcome.to_string()
}

// === a queue that records the calls to it ===

#[derive(Clone)]
struct Queue {
    timeline: Timeline,
    waiting: Arc<Mutex<VecDeque<Vec<u64>>>>,
    more: Arc<Notify>,
    /// How a source behaves when it has no more jobs.
    ends: &'static str,
}

struct Taker(Queue);

impl Queue {
    fn new(timeline: &Timeline, batches: &[&[u64]]) -> Self {
        let waiting = batches.iter().map(|batch| batch.to_vec()).collect();
        let waiting = Arc::new(Mutex::new(waiting));
        Self { timeline: timeline.clone(), waiting, more: Arc::default(), ends: "waits" }
    }

    fn push(&self, batch: &[u64]) {
        self.waiting.lock().unwrap().push_back(batch.to_vec());
        self.more.notify_one();
    }

    /// For `Shutdown::add_consumer`.
    fn connect(&self) -> impl FnMut() -> std::future::Ready<Result<Taker, String>> + use<> {
        let queue = self.clone();
        move || {
            queue.timeline.note("connected");
            std::future::ready(Ok(Taker(queue.clone())))
        }
    }
}

impl Source for Taker {
    type Job = u64;
    type Error = String;

    async fn take(&mut self) -> Result<Option<Vec<u64>>, String> {
        loop {
            let batch = self.0.waiting.lock().unwrap().pop_front();
            match (batch, self.0.ends) {
                (Some(batch), _) => return Ok(Some(batch)),
                (None, "fails") => return Err("connection lost".into()),
                (None, "panics") => panic!("a bug in the client"),
                (None, "ends") => return Ok(None),
                (None, _) => self.0.more.notified().await,
            }
        }
    }

    async fn done(&mut self, job: &u64, outcome: &Outcome) -> Result<(), String> {
        self.0.timeline.note(format!("job {job} {outcome}"));
        if self.0.ends == "forgets" { Err("no such job".into()) } else { Ok(()) }
    }

    async fn on_interrupted(&mut self, job: &u64) -> Result<(), String> {
        self.0.timeline.note(format!("job {job} interrupted"));
        Ok(())
    }

    async fn release(&mut self, jobs: Vec<u64>) -> Result<(), String> {
        self.0.timeline.note(format!("returned: {jobs:?}"));
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), String> {
        self.0.timeline.note("committed");
        Ok(())
    }

    async fn leave(&mut self) -> Result<(), String> {
        self.0.timeline.note("left");
        Ok(())
    }

    fn label(&self, job: &u64) -> Option<String> {
        Some(format!("job {job}"))
    }
}

/// A job takes as many seconds as its number.
async fn take_its_time(job: Arc<u64>, _: JobCx) {
    sleep(*job).await;
}

// === loops ===

#[tokio::test(start_paused = true)]
async fn s69_a_loop_is_restarted_after_a_pause_that_doubles_and_resets() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let backoff = Backoff::new(seconds(2), seconds(6)).well_after(seconds(100));
    let runs = Arc::new(AtomicU32::new(0));
    let began = timeline.clone();
    let lasts = move |_: LoopCx| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        began.note(format!("run {run}"));
        async move {
            match run {
                0 => Err("no"),
                1 => panic!("no"),
                2 | 3 => Err("no"),
                // The loop has run long enough for its pause to be reset.
                4 => {
                    sleep(100).await;
                    Err("no")
                }
                _ => Ok(()),
            }
        }
    };
    shutdown.add_loop(LoopSpec::new("l").backoff(backoff).seed(7), lasts).unwrap();
    sleep(1_000).await;
    timeline.note("well");
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    expect![[r#"
        0s run 0
        1s 774ms run 1
        4s 219ms run 2
        9s 374ms run 3
        13s 818ms run 4
        1m 54s 935ms run 5
        16m 40s well
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s572_a_loop_that_must_take_no_more_is_not_restarted() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    for (name, crash) in [("early", 0), ("late", 2)] {
        let began = timeline.clone();
        let crashes = move |cx: LoopCx| {
            began.note(format!("{name} runs"));
            async move {
                if crash > 0 {
                    cx.takes_no_more().await;
                }
                sleep(crash).await;
                Err::<(), _>("broken")
            }
        };
        let backoff = Backoff::new(seconds(60), seconds(60));
        shutdown.add_loop(LoopSpec::new(name).backoff(backoff), crashes).unwrap();
    }
    sleep(1).await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    timeline.note("over");
    expect![[r#"
        0s early runs
        0s late runs
        3s over
    "#]]
    .assert_eq(&timeline.to_string());
    let of = |task| outcome(&report, Phase::BEFORE_CLUSTER_SHUTDOWN, task);
    assert_eq!(of("leave early"), "finished", "its crash was logged before");
    assert_eq!(of("leave late"), "failed: broken");
}

#[tokio::test(start_paused = true)]
async fn s70_a_loop_is_signalled_at_two_levels() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let noted = timeline.clone();
    let listens = move |cx: LoopCx| {
        let timeline = noted.clone();
        async move {
            let pass = cx.enter().unwrap().labelled("a long job");
            assert!(cx.is_taking() && cx.may_take().await);
            cx.takes_no_more().await;
            assert!(!cx.is_taking() && !cx.may_take().await && cx.enter().is_err());
            assert!(cx.no_more_token().is_cancelled() && !cx.stop_token().is_cancelled());
            for _ in 0..32 {
                assert_eq!(cx.take(async {}).await, Some(()), "a job that was taken was lost");
            }
            timeline.note("takes no more");
            cx.stops_now().await;
            timeline.note("stops");
            drop(pass);
        }
    };
    shutdown.add_loop("l", listens).unwrap();
    shutdown.add_task(Phase::BEFORE_SERVICE_UNBIND, "wait", async |_| sleep(2).await).unwrap();
    sleep(1).await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    expect![[r#"
        3s takes no more
        13s stops
    "#]]
    .assert_eq(&timeline.to_string());
    assert_eq!(outcome(&report, Phase::BEFORE_CLUSTER_SHUTDOWN, "leave l"), "finished");
}

#[tokio::test(start_paused = true)]
async fn s70_a_cordon_pauses_a_loop_until_it_is_removed() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let noted = timeline.clone();
    let takes = move |cx: LoopCx| {
        let timeline = noted.clone();
        async move {
            while cx.may_take().await {
                timeline.note("takes");
                let taken = cx.take(sleep(10)).await;
                timeline.note(if taken.is_some() { "taken" } else { "paused" });
            }
        }
    };
    shutdown.cordon();
    shutdown.add_loop("l", takes).unwrap();
    sleep(3).await;
    assert!(shutdown.uncordon());
    sleep(14).await;
    shutdown.cordon();
    sleep(5).await;
    assert!(shutdown.uncordon());
    sleep(1).await;
    shutdown.run(Reason::Unknown).await.unwrap();
    expect![[r#"
        3s takes
        13s taken
        13s takes
        17s paused
        22s takes
        23s paused
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s71_a_loop_that_does_not_end_is_aborted_joined_and_reported() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let noted = timeline.clone();
    let hangs = move |_: LoopCx| {
        let span = noted.start("loop");
        async move {
            let _span = span;
            std::future::pending::<()>().await;
        }
    };
    shutdown.add_loop("l", hangs).unwrap();
    let next = timeline.clone();
    let leave = async move |_| next.note("cluster-leave");
    shutdown.add_task(Phase::CLUSTER_LEAVE, "leave", leave).unwrap();
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    expect![[r#"
        0s loop started
        5s loop dropped
        5s cluster-leave
    "#]]
    .assert_eq(&timeline.to_string());
    let left = outcome(&report, Phase::BEFORE_CLUSTER_SHUTDOWN, "leave l");
    assert_eq!(left, "timed out after 5s");
}

#[tokio::test(start_paused = true)]
async fn s573_no_lame_duck_waits_for_a_loop_and_it_ends_with_its_shutdown() {
    let config = Config::for_tests().lame_duck(seconds(6));
    let timeline = Timeline::new();
    let busy = |name: &'static str| {
        let timeline = timeline.clone();
        move |cx: LoopCx| {
            let span = timeline.start(name);
            async move {
                let _pass = cx.enter();
                cx.takes_no_more().await;
                span.over();
            }
        }
    };
    let ended = Shutdown::configured(config.clone()).unwrap();
    ended.add_loop("l", busy("ended")).unwrap();
    let dropped = Shutdown::configured(config).unwrap();
    dropped.add_loop("l", busy("dropped")).unwrap();
    sleep(1).await;
    ended.run(Reason::Unknown).await.unwrap();
    sleep(1).await;
    drop(dropped);
    sleep(1).await;
    expect![[r#"
        0s ended started
        0s dropped started
        1s ended over
        2s dropped dropped
    "#]]
    .assert_eq(&timeline.to_string());
}

#[test]
fn s574_a_loop_needs_a_runtime_and_a_name() {
    let without = Shutdown::new();
    let nothing = |_: LoopCx| async {};
    let refused = without.add_loop("l", nothing).unwrap_err();
    assert_eq!(refused, AddLoopError::NoRuntime { name: "l".into() });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    assert_eq!(without.add_loop(" ", nothing).unwrap_err(), AddLoopError::EmptyName);
    without.add_loop("l", nothing).unwrap();
    // If one of its tasks is too late, the loop is rejected.
    assert_eq!(without.tasks().len(), 5);
    without.run_from(Phase::SERVICE_STOP, Reason::Unknown).unwrap().wait().unwrap();
    let refused = without.add_loop("late", nothing).unwrap_err();
    assert!(matches!(refused, AddLoopError::Task { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn s38_awaiting_the_shutdown_in_one_of_its_loops_is_an_error() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let (noted, handle) = (timeline.clone(), shutdown.clone());
    let awaits = move |_: LoopCx| {
        let (timeline, shutdown) = (noted.clone(), handle.clone());
        async move {
            let refused = shutdown.run(Reason::Unknown).await.unwrap_err();
            timeline.note(refused.to_string());
        }
    };
    shutdown.add_loop("l", awaits).unwrap();
    assert!(shutdown.completed().await.unwrap().is_clean());
    assert!(timeline.to_string().starts_with("0s "), "{timeline}");
}

// === consumers ===

#[tokio::test(start_paused = true)]
async fn s72_a_consumer_returns_finishes_commits_and_leaves_in_this_order() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue::new(&timeline, &[&[4, 2, 7, 8]]);
    let consumer = Consumer::new("orders").concurrency(2);
    shutdown.add_consumer(consumer, queue.connect(), take_its_time).unwrap();
    sleep(1).await;
    queue.push(&[9]);
    let completed = shutdown.run(Reason::Unknown);
    sleep(2).await;
    let waiting = shutdown.status().waiting_for[0].detail.clone();
    assert_eq!(waiting.as_deref(), Some("1 in flight, oldest 3s job 4"));
    let report = completed.await.unwrap();
    timeline.note(format!("over: {}", report.outcome));
    expect![[r#"
        0s connected
        1s returned: [7, 8]
        2s job 2 finished
        4s job 4 finished
        4s committed
        4s left
        4s over: clean
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s72_a_source_that_has_ended_is_left_for_good() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue { ends: "ends", ..Queue::new(&timeline, &[&[1, 2], &[3]]) };
    shutdown.add_consumer(Consumer::new("orders"), queue.connect(), take_its_time).unwrap();
    sleep(60).await;
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    expect![[r#"
        0s connected
        1s job 1 finished
        3s job 2 finished
        6s job 3 finished
        6s committed
        6s left
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s72_a_cordon_returns_jobs_that_have_not_begun() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue::new(&timeline, &[&[5, 1]]);
    shutdown.add_consumer(Consumer::new("orders"), queue.connect(), take_its_time).unwrap();
    sleep(1).await;
    shutdown.cordon();
    queue.push(&[2]);
    sleep(10).await;
    timeline.note("uncordoned");
    assert!(shutdown.uncordon());
    sleep(10).await;
    expect![[r#"
        0s connected
        1s returned: [1]
        5s job 5 finished
        11s uncordoned
        13s job 2 finished
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s73_a_job_is_never_dropped_and_fails_alone() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue::new(&timeline, &[&[4, 1, 2]]);
    let spans = timeline.clone();
    let handle = move |job: Arc<u64>, _: JobCx| {
        let span = spans.start(format!("{job}"));
        async move {
            sleep(*job).await;
            span.over();
            match *job {
                1 => panic!("bang"),
                2 => Err("out of stock"),
                _ => Ok(()),
            }
        }
    };
    let consumer = Consumer::new("orders").concurrency(9);
    shutdown.add_consumer(consumer, queue.connect(), handle).unwrap();
    // Jobs that arrive while others run cause `take` to be dropped and called again.
    sleep(3).await;
    queue.push(&[5]);
    sleep(1).await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    assert!(report.is_clean(), "{report}");
    expect![[r#"
        0s connected
        0s 4 started
        0s 1 started
        0s 2 started
        1s 1 over
        1s job 1 panicked: bang
        2s 2 over
        2s job 2 failed: out of stock
        3s 5 started
        4s 4 over
        4s job 4 finished
        8s 5 over
        8s job 5 finished
        8s committed
        8s left
    "#]]
    .assert_eq(&timeline.to_string());
}

/// A source of numbers, each to be handled once. Its connection fails now and then.
#[derive(Clone, Default)]
struct Ledger {
    waiting: Arc<Mutex<VecDeque<u64>>>,
    settled: Arc<Mutex<Vec<u64>>>,
    takes: Arc<AtomicU32>,
}

impl Source for Ledger {
    type Job = u64;
    type Error = String;

    async fn take(&mut self) -> Result<Option<Vec<u64>>, String> {
        tokio::task::yield_now().await;
        let mut waiting = self.waiting.lock().unwrap();
        match waiting.len() {
            0 => Ok(None),
            _ if self.takes.fetch_add(1, Ordering::Relaxed) % 11 == 10 => Err("lost".into()),
            left => Ok(Some(waiting.drain(..left.min(7)).collect())),
        }
    }

    async fn done(&mut self, job: &u64, _: &Outcome) -> Result<(), String> {
        self.settled.lock().unwrap().push(*job);
        if job.is_multiple_of(50) { Err("lost".into()) } else { Ok(()) }
    }

    async fn on_interrupted(&mut self, job: &u64) -> Result<(), String> {
        self.waiting.lock().unwrap().push_back(*job);
        Ok(())
    }

    async fn release(&mut self, jobs: Vec<u64>) -> Result<(), String> {
        self.waiting.lock().unwrap().extend(jobs);
        Ok(())
    }
}

// On several threads, with a source that fails, cordons, and a shutdown in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s73_every_job_is_settled_once_or_returned() {
    for round in 0..10 {
        let shutdown = shutdown();
        shutdown.set_phase_timeout(Phase::SERVICE_REQUESTS_DONE, Duration::from_millis(5)).unwrap();
        let ledger = Ledger::default();
        ledger.waiting.lock().unwrap().extend(1..=500);
        let handle = async |job: Arc<u64>, cx: JobCx| {
            let work = Duration::from_micros(*job % 13 * 100);
            let work = if job.is_multiple_of(97) { seconds(60) } else { work };
            cx.interruptible(tokio::time::sleep(work)).await
        };
        let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(1));
        let consumer = Consumer::new("numbers").concurrency(4 + round).backoff(backoff);
        let connect = {
            let ledger = ledger.clone();
            move || std::future::ready(Ok::<_, String>(ledger.clone()))
        };
        shutdown.add_consumer(consumer, connect, handle).unwrap();
        for _ in 0..round {
            tokio::time::sleep(Duration::from_millis(2)).await;
            shutdown.cordon();
            tokio::task::yield_now().await;
            assert!(shutdown.uncordon());
        }
        shutdown.run(Reason::Unknown).await.unwrap();
        let mut all = ledger.settled.lock().unwrap().clone();
        all.extend(ledger.waiting.lock().unwrap().iter());
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(1..=500), "round {round}");
    }
}

/// Handles three jobs: one finishes when it is signalled, one returns that it was interrupted, and one
/// ignores the signal.
fn stubborn(timeline: &Timeline) -> impl Fn(Arc<u64>, JobCx) -> Job + Send + Sync + 'static {
    let timeline = timeline.clone();
    move |job, cx| {
        let span = timeline.start(format!("{job}"));
        Box::pin(async move {
            match *job {
                1 => cx.stops_now().await,
                2 => cx.interruptible(sleep(3_600)).await.map_err(Wrapped)?,
                _ => sleep(3_600).await,
            }
            span.over();
            Ok(())
        })
    }
}

type Job = std::pin::Pin<Box<dyn Future<Output = Result<(), Wrapped>> + Send>>;

/// An error of the application that an interruption has caused.
#[derive(Debug)]
struct Wrapped(Interrupted);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("half-way")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn s74_interrupted_jobs_are_passed_to_the_source_after_they_have_ended() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue::new(&timeline, &[&[1, 2, 3]]);
    let consumer = Consumer::new("orders").concurrency(3);
    shutdown.add_consumer(consumer, queue.connect(), stubborn(&timeline)).unwrap();
    tokio::task::yield_now().await;
    let report = shutdown.run(Reason::Unknown).await.unwrap();
    timeline.note("over");
    expect![[r#"
        0s connected
        0s 1 started
        0s 2 started
        0s 3 started
        10s 1 over
        10s 2 dropped
        10s job 1 finished
        10s job 2 interrupted
        14s 100ms 3 dropped
        14s 100ms job 3 interrupted
        14s 100ms committed
        14s 100ms left
        14s 100ms over
    "#]]
    .assert_eq(&timeline.to_string());
    assert_eq!(outcome(&report, Phase::BEFORE_CLUSTER_SHUTDOWN, "leave orders"), "finished");
}

#[tokio::test(start_paused = true)]
async fn s74_after_a_hard_stop_interrupted_jobs_are_passed_on_within_the_reserve() {
    let kill_after = KillAfter::After(seconds(30));
    let (unbind, done, leave) = (
        (Phase::BEFORE_SERVICE_UNBIND, 1),
        (Phase::SERVICE_REQUESTS_DONE, 1),
        // By then the loop has been signalled, and is being joined.
        (Phase::BEFORE_CLUSTER_SHUTDOWN, 7),
    );
    for (early, after) in [unbind, done, leave] {
        let timeline = Timeline::new();
        let config = Config::for_tests().kill_after(kill_after).drain_timeout(seconds(5));
        let shutdown = Shutdown::configured(config).unwrap();
        let queue = Queue::new(&timeline, &[&[3, 4]]);
        shutdown
            .add_consumer(Consumer::new("orders"), queue.connect(), stubborn(&timeline))
            .unwrap();
        shutdown.add_task(&early, "wait", async |_| sleep(4).await).unwrap();
        let _ = shutdown.receive(Signal::INT);
        sleep(after).await;
        assert_eq!(shutdown.status().waiting_for[0].phase, early.to_string());
        let _ = shutdown.receive(Signal::INT);
        shutdown.completed().await.unwrap();
        let text = timeline.to_string();
        for line in ["returned: [4]", "3 dropped", "job 3 interrupted", "committed", "left"] {
            assert!(text.contains(line), "{line}, {early}:\n{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s75_if_a_source_fails_begun_jobs_are_settled_before_a_new_one_connects() {
    let mut timelines = Vec::new();
    for (ends, error) in [("fails", "connection lost"), ("panics", "panicked: a bug in the client")]
    {
        let (shutdown, timeline) = (shutdown(), Timeline::new());
        let queue = Queue { ends, ..Queue::new(&timeline, &[&[3, 1]]) };
        let backoff = Backoff::new(seconds(2), seconds(2));
        let consumer = Consumer::new("orders").concurrency(3).backoff(backoff).seed(1);
        shutdown.add_consumer(consumer, queue.connect(), take_its_time).unwrap();
        sleep(4).await;
        queue.push(&[2]);
        sleep(2).await;
        // The source has failed again, and the consumer is still finishing its jobs.
        let report = shutdown.run(Reason::Unknown).await.unwrap();
        let left = outcome(&report, Phase::BEFORE_CLUSTER_SHUTDOWN, "leave orders");
        assert_eq!(left, format!("failed: {error}"));
        timeline.note("over");
        timelines.push(timeline.to_string());
    }
    assert_eq!(timelines[0], timelines[1]);
    expect![[r#"
        0s connected
        1s job 1 finished
        3s job 3 finished
        3s committed
        3s left
        4s 658ms connected
        6s 658ms job 2 finished
        6s 658ms committed
        6s 658ms left
        6s 658ms over
    "#]]
    .assert_eq(&timelines[0]);
}

#[tokio::test(start_paused = true)]
async fn s75_if_a_source_fails_jobs_that_have_not_begun_are_returned() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue { ends: "forgets", ..Queue::new(&timeline, &[&[2, 1, 5]]) };
    let consumer = Consumer::new("orders").seed(1);
    shutdown.add_consumer(consumer, queue.connect(), take_its_time).unwrap();
    sleep(10).await;
    expect![[r#"
        0s connected
        2s job 2 finished
        2s returned: [1, 5]
        2s committed
        2s left
        2s 415ms connected
    "#]]
    .assert_eq(&timeline.to_string());
}

#[tokio::test(start_paused = true)]
async fn s75_a_source_that_cannot_connect_is_retried() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let queue = Queue::new(&timeline, &[&[1]]);
    let mut connect = queue.connect();
    let mut tries = 0;
    let fails_twice = move || {
        tries += 1;
        let made = if tries < 3 { Err("no route".to_owned()) } else { Ok(connect()) };
        async move {
            match made {
                Ok(connecting) => connecting.await,
                Err(error) => Err(error),
            }
        }
    };
    shutdown.add_consumer(Consumer::new("orders"), fails_twice, take_its_time).unwrap();
    sleep(10).await;
    assert!(timeline.to_string().contains("job 1 finished"), "{timeline}");
}

// === periodic loops ===

/// Returns the ticks of one minute if each takes `takes` seconds.
async fn ticks(periodic: Periodic, takes: u64) -> String {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let noted = timeline.clone();
    let tick = move |_: LoopCx| {
        let span = noted.start("tick");
        async move {
            sleep(takes).await;
            span.over();
        }
    };
    shutdown.add_periodic(periodic, tick).unwrap();
    sleep(62).await;
    timeline.note("down");
    assert!(shutdown.run(Reason::Unknown).await.unwrap().is_clean());
    timeline.to_string()
}

#[tokio::test(start_paused = true)]
async fn s76_the_first_tick_is_random_and_the_others_have_jitter() {
    let periodic = |seed| Periodic::new("p", seconds(20)).seed(seed);
    let (one, two) = (ticks(periodic(1), 0).await, ticks(periodic(2), 0).await);
    assert_ne!(one, two, "replicas do not tick together");
    expect![[r#"
        13s 141ms tick started
        13s 141ms tick over
        33s 280ms tick started
        33s 280ms tick over
        52s 239ms tick started
        52s 239ms tick over
        1m 2s down
    "#]]
    .assert_eq(&one);
    let strict = Periodic::new("p", seconds(25)).jitter(0.0).splay(Duration::ZERO);
    expect![[r#"
        0s tick started
        0s tick over
        25s tick started
        25s tick over
        50s tick started
        50s tick over
        1m 2s down
    "#]]
    .assert_eq(&ticks(strict, 0).await);
}

#[tokio::test(start_paused = true)]
async fn s76_ticks_do_not_overlap_and_missed_ticks_are_not_repeated() {
    let strict = Periodic::new("p", seconds(10)).jitter(0.0).splay(Duration::ZERO);
    expect![[r#"
        0s tick started
        24s tick over
        34s tick started
        58s tick over
        1m 2s down
    "#]]
    .assert_eq(&ticks(strict.clone(), 24).await);
    expect![[r#"
        0s tick started
        4s tick over
        10s tick started
        14s tick over
        20s tick started
        24s tick over
        30s tick started
        34s tick over
        40s tick started
        44s tick over
        50s tick started
        54s tick over
        1m tick started
        1m 2s down
        1m 4s tick over
    "#]]
    .assert_eq(&ticks(strict, 4).await);
}

#[tokio::test(start_paused = true)]
async fn s76_a_tick_that_fails_or_panics_is_followed_by_the_next() {
    let (shutdown, timeline) = (shutdown(), Timeline::new());
    let noted = timeline.clone();
    let mut count = 0;
    let tick = move |_: LoopCx| {
        noted.note(format!("tick {count}"));
        count += 1;
        assert!(count != 1, "before its first await");
        async move { if count == 2 { Err("no") } else { Ok(()) } }
    };
    let strict = Periodic::new("p", seconds(10)).jitter(0.0).splay(Duration::ZERO);
    shutdown.add_periodic(strict, tick).unwrap();
    sleep(25).await;
    shutdown.cordon();
    sleep(10).await;
    assert!(shutdown.uncordon());
    sleep(10).await;
    expect![[r#"
        0s tick 0
        10s tick 1
        20s tick 2
        40s tick 3
    "#]]
    .assert_eq(&timeline.to_string());
    let refused = shutdown.add_periodic(Periodic::new("p", Duration::ZERO), |_| async {});
    assert_eq!(refused.unwrap_err(), AddLoopError::ZeroPeriod { name: "p".into() });
    let refused = shutdown.add_periodic(Periodic::new("p", Duration::MAX), |_| async {});
    assert_eq!(refused.unwrap_err(), AddLoopError::EndlessPeriod { name: "p".into() });
}
